"""What tests of the app `cns` share: its options, its equations in numpy on any number of ranks, and real runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np
import pytato as pt

import aotato
import cns_loop
from aotato.frontend import app, interpret
from aotato.frontend.adapter.trace import trace
from aotato.frontend.apps._flow import problem
from aotato.frontend.apps._flow.problem import Problem
from mpi import mpiexec

Array = np.ndarray[Any, Any]
# More processes than cores: one thread each, and those who wait give way
CROWDED = {"POCL_MAX_PTHREAD_COUNT": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


def options(**given: str) -> SimpleNamespace:
    return app.options(app.find("cns"), given)


def made(ranks: int = 1, **given: str) -> tuple[SimpleNamespace, Problem]:
    opt = options(**given)
    return opt, problem.make(ranks, opt)


def state(opt: SimpleNamespace, found: Problem) -> Array:
    """The case's initial state on the whole mesh, (variables, elements, nodes)."""

    return evaluate(opt, found, lambda rank, equations: equations.initial())


def rate(opt: SimpleNamespace, found: Problem, q: Array, t: float = 0.0) -> Array:
    """dq/dt of the whole mesh."""

    def entry(rank: int, equations: Any) -> Any:
        placeholder = pt.make_placeholder(name="q", shape=found.shape(rank), dtype="float64")
        return equations.rate(placeholder, t)

    return evaluate(opt, found, entry, q)


def evaluate(opt: SimpleNamespace, found: Problem, function: Any, q: Array | None = None) -> Array:
    """`function(rank, equations)` on all ranks, by the interpreter; parts put together as the mesh counts elements."""
    traced = trace("test", len(found.domains), lambda rank: {"out": function(rank, found.equations(rank, opt))})
    inputs: list[dict[str, Any]] = [
        {name: facts.default for name, facts in row.items() if facts.default is not None} for row in traced.inputs]
    if q is not None:
        inputs = [row | {"q": np.ascontiguousarray(q[:, d.elements])}
                  for row, d in zip(inputs, found.domains, strict=True)]
    parts = [result["out"].value for result in interpret.run(traced.programs, inputs)]
    return together(found, parts)


def together(found: Problem, parts: Sequence[Array]) -> Array:
    """(variables, elements, nodes) of the whole mesh from those of the ranks."""
    whole = np.full((parts[0].shape[0], sum(part.shape[1] for part in parts), parts[0].shape[2]), np.nan)
    for domain, part in zip(found.domains, parts, strict=True):
        whole[:, domain.elements] = part
    return whole


def integral(found: Problem, values: Array) -> Array:
    """Over the whole mesh, of each variable."""
    mass = together(found, [domain.mass[np.newaxis] for domain in found.domains])
    return np.asarray((values * mass).sum(axis=(1, 2)))


@dataclass(frozen=True)
class Job:
    """A run: options of the build, and arguments of aotato-run."""

    options: Mapping[str, str]
    arguments: str
    ranks: int = 1


@dataclass(frozen=True)
class Result:
    """The state of the whole mesh at the end, host values, and the columns of `observe`."""

    q: Array
    attributes: Mapping[str, Any]
    observed: Mapping[str, Array]


def run_all(folder: Path, jobs: Mapping[str, Job]) -> dict[str, Result]:
    """Build all (those of fixed steps as `cns_loop`), run them in one MPI job; bundles stay in `folder` as NAME.h5."""
    lines = []
    for name, job in jobs.items():
        path = folder / name
        app_of = cns_loop if "dt" in job.options else "cns"
        aotato.build(app_of, ranks=job.ranks, options=job.options, path=f"{path}.h5", targets="cpu")
        lines.append(f"{path}.h5 --output {path}_out.h5 --quiet {job.arguments}")
    (folder / "jobs").write_text("\n".join(lines))
    most = max(job.ranks for job in jobs.values())
    done = mpiexec(most, [Path(__file__).with_name("run_many.py"), folder / "jobs"], timeout=280, env=CROWDED)
    assert (done.returncode, done.stderr) == (0, "")
    return {name: _read(folder / f"{name}_out.h5", job) for name, job in jobs.items()}


def _read(path: Path, job: Job) -> Result:
    _, found = made(job.ranks, **job.options)
    with h5py.File(path) as file:
        q = together(found, [file[f"rank/{rank}/q"][()] for rank in range(job.ranks)])
        observed = {name: node[()] for name, node in file.get("observed/observe", {}).items()}
        return Result(q, dict(file.attrs), observed)
