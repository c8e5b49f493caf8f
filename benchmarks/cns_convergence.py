"""Orders of convergence of the app `cns`: `python cns_convergence.py --out results/cns_convergence.json`.

The L2 error of density, momentum and energy, each over its own L2 norm, by a quadrature that is exact for polynomials
of twice the order and more, of: the isentropic vortex (`physics=euler`), and the manufactured solution
(`manufactured.py`) at Peclet numbers |u| h / nu of 0.1 and 10 on the coarsest mesh. Each mesh is built and run by a
process of its own, `--jobs` of them at a time. `--docs` writes the tables of a result file into docs/cns.md; `--only
vortex/tri/2` runs a part.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import aotato
from aotato.frontend import app
from aotato.frontend.apps._dg.elements import interpolation, quadrature
from aotato.frontend.apps._flow import problem
from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.gas import Gas

Array = np.ndarray[Any, Any]

MANUFACTURED = str(Path(__file__).with_name("manufactured.py"))
DOCS = Path(__file__).parent.parent / "docs" / "cns.md"
BEGIN, END = "<!-- cns_convergence.py -->", "<!-- end -->"  # in the docs, around the tables
DIMENSIONS = {"tri": 2, "quad": 2, "tet": 3, "hex": 3}
SPEED = 1.0  # of the mean flow, for the Peclet number


@dataclass(frozen=True)
class Study:
    """One row of a table: a case on meshes of so many cells an edge."""

    case: str  # "vortex", "diffusive" or "convective"
    cell: str
    order: int
    meshes: tuple[int, ...]

    @property
    def name(self) -> str:
        return f"{self.case}/{self.cell}/{self.order}"

    @property
    def end(self) -> float:
        return 1.0 if self.case == "vortex" else 0.25  # long enough for sound to cross the box: errors settle by then

    @property
    def reynolds(self) -> float:
        """So that |u| h / nu is 0.1 or 10 with the coarsest mesh's h."""
        return {"vortex": 0.0, "diffusive": 0.1, "convective": 10.0}[self.case] * self.meshes[0] / SPEED


COARSEST = {  # cells along an edge, by case and order: fine enough that orders show
    "vortex": {1: 64, 2: 32, 3: 16, 4: 16},
    "diffusive": {1: 8, 2: 8, 3: 8, 4: 6},
    "convective": {1: 16, 2: 8, 3: 8, 4: 8},
}
COARSEST_3D = {"vortex": {1: 64, 2: 32, 3: 24}, "diffusive": {1: 8, 2: 8, 3: 4}, "convective": {1: 16, 2: 8, 3: 8}}


def studies() -> Iterator[Study]:
    for cells, coarsest, levels in ((("tri", "quad"), COARSEST, 3), (("tet", "hex"), COARSEST_3D, 2)):
        for case, first in coarsest.items():
            for cell, order in itertools.product(cells, first):
                yield Study(case, cell, order, tuple(first[order] << level for level in range(levels)))


def one(study: Study, count: int, chosen: argparse.Namespace) -> None:
    """Print the error on a mesh of `count` cells along each edge."""
    dim = DIMENSIONS[study.cell]
    counts = [count] * dim
    given: dict[str, Any] = {"cells": study.cell, "order": str(study.order), "cfl": str(chosen.cfl),
                             "dt_every": "1000", **dict(text.split("=", 1) for text in chosen.option)}
    if study.case == "vortex":
        given |= {"case": "vortex", "lengths": "14", "origin": "-7"}
        if dim == 3:  # nothing happens along the third axis
            counts[2], given["lengths"] = 2, f"14,14,{28 / count}"
    else:
        given |= {"case": MANUFACTURED, "re": str(study.reynolds)}
    given["mesh"] = f"box:{','.join(map(str, counts))}"
    opt = app.options(app.find("cns"), given)
    with tempfile.TemporaryDirectory() as folder:
        path = aotato.build("cns", options=given, path=Path(folder, "cns.h5"), targets=chosen.target)
        with aotato.load(path, target=chosen.target) as program:
            reached = program.run(set={"end": study.end})
            found = distance(opt, program.state()["q"], reached["t"])
            print("error", found, "on", program.device.name.strip(), flush=True)


def distance(opt: Any, q: Array, t: float) -> float:
    """The root of the sum, over density, momentum and energy, of the squared relative L2 errors."""
    made = problem.make(1, opt)
    (domain,), settings = made.domains, made.settings
    element = domain.element
    points, weights = quadrature(element.cell, 2 * element.order + 4)
    inside = interpolation(element, points)
    x = [domain.nodes[:, :, d] @ inside.T for d in range(element.dim)]
    assert domain.affine
    weights = domain.jacobian[:, None] * weights
    gas = Gas(opt.gamma, opt.gas_constant, opt.prandtl, 1 / settings.re)
    flow = Flow(gas, settings.mach, settings.lengths, settings.case.parameters)
    assert settings.case.exact is not None
    wanted = gas.conserved(settings.case.exact(x, t, flow))
    wrong = [(weights * (found @ inside.T - row) ** 2).sum() for found, row in zip(q, wanted, strict=True)]
    whole = [(weights * row**2).sum() for row in wanted]
    return math.sqrt(wrong[0] / whole[0] + sum(wrong[1:-1]) / sum(whole[1:-1]) + wrong[-1] / whole[-1])


def tables(results: list[dict[str, Any]]) -> str:
    """Markdown: a table a case, errors and the order of the finest pair."""
    titles = {"vortex": "Isentropic vortex, `physics=euler`", "diffusive": "Manufactured solution, Peclet number 0.1",
              "convective": "Manufactured solution, Peclet number 10"}
    lines = []
    for case, title in titles.items():
        rows = [row for row in results if row["case"] == case]
        if not rows:
            continue
        lines += ["", f"**{title}**", "", "| cells | order | meshes | errors | order of convergence |"]
        lines += ["|---|---|---|---|---|"]
        for row in rows:
            lines.append(f"| {row['cell']} | {row['order']} | {', '.join(map(str, row['meshes']))} | "
                         f"{', '.join(f'{e:.2e}' for e in row['errors'])} | "
                         f"{', '.join(f'{o:.2f}' for o in row['orders'])} |")
    return "\n".join(lines[1:])


def into_docs(text: str) -> None:
    """Replace what stands between the marks in docs/cns.md."""
    before, mark, rest = DOCS.read_text().partition(BEGIN)
    _, end, after = rest.partition(END)
    if not mark or not end:
        raise SystemExit(f"{DOCS} lacks {BEGIN} and {END}, between which tables belong")
    DOCS.write_text(f"{before}{BEGIN}\n{text}\n{END}{after}")


def measured(study: Study, count: int, words: list[str]) -> tuple[float, str]:
    """The error on one mesh, and the device, by a process; NaN, and its last words said here, where it failed."""
    command = [sys.executable, __file__, "--one", study.name, str(count), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    found = re.search(r"error (\S+) on (.*)", done.stdout)  # also of a process that stumbled at its end
    if not found:
        print(f"{study.name} {count}: {done.returncode} {done.stderr[-400:]}", file=sys.stderr, flush=True)
    return (float(found[1]), found[2]) if found else (math.nan, "")


def row(study: Study, found: list[tuple[float, str]]) -> dict[str, Any]:
    errors = [error for error, _ in found]
    orders = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
    return {"command": " ".join(sys.argv), "device": found[0][1], "case": study.case, "cell": study.cell,
            "order": study.order, "meshes": study.meshes, "reynolds": study.reynolds, "end": study.end,
            "errors": errors, "orders": orders}


def joined(kept: list[dict[str, Any]], new: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All studies in their order, the new ones in place of those kept from earlier runs."""
    found = {(row["case"], row["cell"], row["order"]): row for row in [*kept, *new]}
    return [found[key] for s in studies() if (key := (s.case, s.cell, s.order)) in found]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="studies whose name, case/cell/order, begins so")
    parser.add_argument("--jobs", type=int, default=1, help="processes at a time")
    parser.add_argument("--out", metavar="FILE", help="of JSON, written as studies end; others in it are kept")
    parser.add_argument("--docs", metavar="FILE", help="write a result file's tables into docs/cns.md instead")
    parser.add_argument("--one", nargs=2, metavar=("NAME", "COUNT"), help="print the error on one mesh instead")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--cfl", type=float, default=0.5)
    parser.add_argument("--option", action="append", default=[], metavar="NAME=VALUE", help="of the app, in all runs")
    chosen = parser.parse_args()
    if chosen.docs:
        into_docs(tables(json.loads(Path(chosen.docs).read_text())["studies"]))
    elif chosen.one:
        study = next(study for study in studies() if study.name == chosen.one[0])
        one(study, int(chosen.one[1]), chosen)
    else:
        run(chosen)


def run(chosen: argparse.Namespace) -> None:
    words = ["--target", chosen.target, "--cfl", str(chosen.cfl), *(w for o in chosen.option for w in ("--option", o))]
    wanted = [study for study in studies() if study.name.startswith(chosen.only)]
    kept = json.loads(Path(chosen.out).read_text())["studies"] if chosen.out and Path(chosen.out).exists() else []
    with ThreadPoolExecutor(chosen.jobs) as pool:
        meshes = {(study, count): pool.submit(measured, study, count, words)
                  for study in wanted for count in study.meshes[::-1]}
        for _ in as_completed(meshes.values()):
            done = [study for study in wanted if all(meshes[study, count].done() for count in study.meshes)]
            rows = [row(study, [meshes[study, count].result() for count in study.meshes]) for study in done]
            if chosen.out:
                Path(chosen.out).write_text(json.dumps({"studies": joined(kept, rows)}, indent=1))
    print(tables(rows))


if __name__ == "__main__":
    main()
