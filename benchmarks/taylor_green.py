"""Taylor-Green vortex in 3D, Re 100, M 0.1, against the spectral solution: `python taylor_green.py --target gpu`.

Runs hexahedra of order 5 and 3 and tetrahedra of order 3 on 8^3 blocks to t = 10, samples E (the integral of
rho |u|^2 / 2) and Z (that of rho |vorticity|^2 / 2) every 0.1, and prints JSON: both, dE/dt by central differences,
the largest |dE/dt + 2 nu Z| over the peak of -dE/dt, the distances to `results/taylor_green_spectral.json` (of
`taylor_green_spectral.py`) at t = 2, 4, ... 10, and whether these keep the bars. Each run has a process of its own,
`--jobs` of them at a time. `--figure` draws a result file.
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

import aotato

REYNOLDS, SAMPLE = 100.0, 0.1
REFERENCE = Path(__file__).with_name("results") / "taylor_green_spectral.json"


@dataclass(frozen=True)
class Run:
    """A discretisation and its bars: of the balance of energy over its peak, and of E and Z over the reference."""

    cells: str
    order: int
    balance: float
    energy: float
    enstrophy: float
    options: Mapping[str, str]  # of the app, where they are not the defaults

    @property
    def name(self) -> str:
        return " ".join([self.cells, str(self.order), *(f"{key}={value}" for key, value in self.options.items())])


BARS = 0.04, 0.01, 0.06
RUNS = (Run("hex", 5, 0.01, 0.005, 0.01, {}), Run("hex", 3, *BARS, {"flux": "llf", "quadrature": "9"}),
        Run("tet", 3, *BARS, {"cut": "middle", "quadrature": "9", "ldg_tau": "1"}),
        Run("tet", 3, *BARS, {"flux": "llf", "quadrature": "9"}))


def sampled(run: Run, count: int, until: float, target: str, cfl: float = 0.8) -> dict[str, Any]:
    """Time, kinetic energy and enstrophy of a run on count^3 blocks, and its cost."""
    given = {"case": "tgv", "dim": "3", "mesh": f"box:{count},{count},{count}", "cells": run.cells,
             "order": str(run.order), "re": str(REYNOLDS), "mach": "0.1", "prandtl": "0.71", "dt": "1", **run.options}
    with tempfile.TemporaryDirectory() as folder:
        begin = time.monotonic()
        path = aotato.build("cns", options=given, path=Path(folder, "cns.h5"), targets=target)
        built = time.monotonic()
        with aotato.load(path, target=target) as program:
            program.run(steps=0)
            longest = float(program.call("timestep")["longest"])
            steps = math.ceil(SAMPLE / (cfl * longest))
            rows = [_observed(program)]
            for _ in range(round(until / SAMPLE)):
                program.run(steps=steps, set={"dt": SAMPLE / steps, "end": 2 * until})
                rows.append(_observed(program))
            device = program.device.name.strip()
    times = [SAMPLE * i for i in range(len(rows))]
    return {"time": times, "kinetic_energy": [e for e, _ in rows], "enstrophy": [z for _, z in rows],
            "steps_per_sample": steps, "build_s": round(built - begin, 1), "run_s": round(time.monotonic() - built, 1),
            "device": device}


def _observed(program: Any) -> tuple[float, float]:
    found = program.call("observe")
    return float(found["kinetic"]), float(found["enstrophy"])


def judged(run: Run, found: dict[str, Any], reference: dict[str, Any] | None) -> dict[str, Any]:
    """The run's distances from the balance and from the reference, and whether they keep the bars."""
    energy, enstrophy = np.array(found["kinetic_energy"]), np.array(found["enstrophy"])
    change = (energy[2:] - energy[:-2]) / (2 * SAMPLE)
    balance = float(np.abs(change + 2 / REYNOLDS * enstrophy[1:-1]).max() / (-change).max())
    result = {"dE/dt": change.tolist(), "balance": balance, "kept": balance <= run.balance}
    if reference is not None:
        places = list(range(20, len(energy), 20))
        for name, values, bar in (("kinetic_energy", energy, run.energy), ("enstrophy", enstrophy, run.enstrophy)):
            wanted = np.array(reference[name])
            off = [abs(values[i] / wanted[i] - 1) for i in places]
            result[f"{name}_off"] = off
            result["kept"] = bool(result["kept"] and all(value <= bar for value in off))
    return result


def figure(results: dict[str, Any], out: str) -> None:
    """Dissipation of all runs and of the reference over time."""
    from matplotlib import pyplot

    reference = json.loads(REFERENCE.read_text())
    panel = pyplot.figure(figsize=(7, 4.5), layout="constrained").subplots()
    panel.plot(reference["time"], 2 / REYNOLDS * np.array(reference["enstrophy"]), "k-", label="spectral, 64^3: 2 nu Z")
    for row in results["runs"]:
        name = f"{row['run']['cells']}, order {row['run']['order']}"
        name += ", cut around middles" if row["run"]["options"].get("cut") == "middle" else ""
        (line,) = panel.plot(row["time"], 2 / REYNOLDS * np.array(row["enstrophy"]), "--", label=f"{name}: 2 nu Z")
        panel.plot(row["time"][1:-1], -np.array(row["dE/dt"]), ":", color=line.get_color(), label=f"{name}: -dE/dt")
    panel.set_xlabel("t")
    panel.legend()
    pyplot.savefig(out, dpi=150)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=8, help="blocks along each edge")
    parser.add_argument("--until", type=float, default=10.0)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--cfl", type=float, default=0.8)
    parser.add_argument("--only", default="", help="runs whose name, such as 'hex 5', begins so")
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the app, in all runs")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--one", type=int, help="do this run alone, here")
    parser.add_argument("--figure", nargs=2, metavar=("RESULTS", "PNG"), help="draw a result file instead")
    chosen = parser.parse_args()
    if chosen.figure:
        figure(json.loads(Path(chosen.figure[0]).read_text()), chosen.figure[1])
    elif chosen.one is not None:
        print(json.dumps(one(RUNS[chosen.one], chosen)), flush=True)
    else:
        numbers = [number for number, run in enumerate(RUNS) if run.name.startswith(chosen.only)]
        with ThreadPoolExecutor(chosen.jobs) as pool:
            rows = [row for row in pool.map(apart, numbers) if row is not None]
        print(json.dumps({"command": " ".join(sys.argv), "runs": rows}, indent=1))


def one(run: Run, chosen: argparse.Namespace) -> dict[str, Any]:
    reference = json.loads(REFERENCE.read_text()) if REFERENCE.exists() else None
    run = replace(run, options={**run.options, **dict(text.split("=", 1) for text in chosen.option)})
    found = sampled(run, chosen.count, chosen.until, chosen.target, chosen.cfl)
    return {"run": asdict(run), **found, **judged(run, found, reference)}


def apart(number: int) -> dict[str, Any] | None:
    """A run by a process of this command line; None, and its last words, where it failed."""
    done = subprocess.run([sys.executable, *sys.argv, "--one", str(number)], capture_output=True, text=True)
    if not done.stdout.startswith("{"):  # one that stumbled after its result has one
        print(f"{RUNS[number].name}: {done.returncode} {done.stderr[-400:]}", file=sys.stderr, flush=True)
        return None
    row: dict[str, Any] = json.loads(done.stdout.splitlines()[0])
    brief = {key: value for key, value in row.items() if not isinstance(value, list) or key.endswith("_off")}
    print(json.dumps(brief), file=sys.stderr, flush=True)
    return row


if __name__ == "__main__":
    main()
