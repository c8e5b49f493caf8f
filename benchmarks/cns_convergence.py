"""Orders of convergence of the app `cns`: `python cns_convergence.py > results/cns_convergence.json`.

The L2 error of all conserved variables, each over its own L2 norm, by a quadrature that is exact for polynomials of
twice the order and more, of: the isentropic vortex (`physics=euler`), and the manufactured solution
(`manufactured.py`) at Peclet numbers |u| h / nu of 0.1 and 10 on the coarsest mesh. `--tables` prints a result file as
the tables in docs/cns.md; `--only vortex/tri/2` runs a part.
"""

from __future__ import annotations

import argparse
import itertools
import json
import math
import sys
import tempfile
import time
from collections.abc import Iterator
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
        return {"vortex": 1.0, "diffusive": 0.02, "convective": 0.25}[self.case]

    @property
    def reynolds(self) -> float:
        """So that |u| h / nu is 0.1 or 10 with the coarsest mesh's h."""
        return {"vortex": 0.0, "diffusive": 0.1, "convective": 10.0}[self.case] * self.meshes[0] / SPEED


def studies() -> Iterator[Study]:
    for case in ("vortex", "diffusive", "convective"):
        for cell in ("tri", "quad"):
            for order in (1, 2, 3, 4):
                coarsest = (32 if order < 3 else 16) if case == "vortex" else 8
                yield Study(case, cell, order, (coarsest, 2 * coarsest, 4 * coarsest))
        for cell in ("tet", "hex"):
            for order in (1, 2, 3):
                coarsest = 16 if case == "vortex" else 4 if order == 3 else 8
                yield Study(case, cell, order, (coarsest, 2 * coarsest))


def error(study: Study, count: int, chosen: argparse.Namespace) -> float:
    """Of a run on a mesh of `count` cells along each edge."""
    dim = DIMENSIONS[study.cell]
    counts = [count] * dim
    given: dict[str, Any] = {"cells": study.cell, "order": str(study.order), "cfl": str(chosen.cfl),
                             "ldg_beta": str(chosen.beta), "ldg_tau": str(chosen.tau), "dt_every": "1000"}
    if study.case == "vortex":
        given = {k: v for k, v in given.items() if not k.startswith("ldg")} | {"case": "vortex", "lengths": "14"}
        given["origin"] = "-7"
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
            q = program.state()["q"]
    return distance(opt, q, reached["t"])


def distance(opt: Any, q: Array, t: float) -> float:
    """The root of the sum, over variables, of the squared relative L2 errors."""
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
    squares = [(weights * (found @ inside.T - row) ** 2).sum()
               / (weights * row**2).sum() for found, row in zip(q, wanted, strict=True)]
    return math.sqrt(sum(squares))


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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default="", help="studies whose name, case/cell/order, begins so")
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--cfl", type=float, default=0.5)
    parser.add_argument("--beta", type=float, default=0.5, help="option ldg_beta")
    parser.add_argument("--tau", type=float, default=0.0, help="option ldg_tau")
    parser.add_argument("--halved", action="store_true", help="meshes half as fine")
    parser.add_argument("--tables", metavar="FILE", help="print the tables of a result file instead")
    chosen = parser.parse_args()
    if chosen.tables:
        print(tables(json.loads(Path(chosen.tables).read_text())["studies"]))
        return
    rows = []
    for study in studies():
        if not study.name.startswith(chosen.only):
            continue
        meshes = tuple(m // 2 for m in study.meshes) if chosen.halved else study.meshes
        study = Study(study.case, study.cell, study.order, meshes)
        begin = time.monotonic()
        errors = [error(study, count, chosen) for count in study.meshes]
        orders = [math.log2(a / b) for a, b in itertools.pairwise(errors)]
        print(f"{study.name}: {errors} orders {orders}, {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
        rows.append({"case": study.case, "cell": study.cell, "order": study.order, "meshes": study.meshes,
                     "reynolds": study.reynolds, "end": study.end, "errors": errors, "orders": orders})
    print(json.dumps({"command": " ".join(sys.argv), "studies": rows}, indent=1))


if __name__ == "__main__":
    main()
