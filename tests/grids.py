"""Build and run the grid apps on several numbers of ranks in one MPI job, and put their blocks together."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import h5py
import numpy as np

import aotato
from aotato.frontend.apps import _grid
from mpi import mpiexec

Array = np.ndarray[Any, Any]
RANKS = (1, 2, 3, 4)
# More processes than cores: one thread each, and those who wait give way
CROWDED = {"POCL_MAX_PTHREAD_COUNT": "1", "OMPI_MCA_mpi_yield_when_idle": "1"}


@dataclass(frozen=True)
class Case:
    """Options of the app, arguments of aotato-run, numbers of ranks."""

    options: Mapping[str, int]
    arguments: str
    ranks: tuple[int, ...] = RANKS

    @property
    def grid(self) -> SimpleNamespace:
        """All options of the grid."""
        return SimpleNamespace(**{option.name: option.default for option in _grid.OPTIONS} | self.options)


@dataclass(frozen=True)
class Result:
    """One run: fields of the whole box by output, host values, and the rows of `observe` by value."""

    fields: Mapping[str, Array]
    attributes: Mapping[str, Any]
    observed: Mapping[str, Array]


def run_all(folder: Path, app: str, cases: Mapping[str, Case]) -> dict[tuple[str, int], Result]:
    """Results by name of the case and number of ranks; the bundles stay in `folder` as NAME_RANKS.h5."""
    jobs = [(name, ranks) for name, case in cases.items() for ranks in case.ranks]
    lines = []
    for name, ranks in jobs:
        path, case = folder / f"{name}_{ranks}", cases[name]
        aotato.build(app, ranks=ranks, options=case.options, path=f"{path}.h5", targets="cpu")
        lines.append(f"{path}.h5 --output {path}_out.h5 --quiet {case.arguments}")
    (folder / "jobs").write_text("\n".join(lines))
    most = max(ranks for _, ranks in jobs)
    done = mpiexec(most, [Path(__file__).with_name("run_many.py"), folder / "jobs"], timeout=240, env=CROWDED)
    assert (done.returncode, done.stderr) == (0, "")
    return {(name, ranks): _read(folder / f"{name}_{ranks}_out.h5", cases[name].grid, ranks) for name, ranks in jobs}


def _read(path: Path, opt: SimpleNamespace, ranks: int) -> Result:
    blocks = _grid.blocks(ranks, opt)
    with h5py.File(path) as file:
        names = [name for name, node in file["rank/0"].items() if node.shape == blocks[0].shape]
        fields = {name: np.full((opt.n,) * opt.dim, np.nan) for name in names}
        for rank, block in enumerate(blocks):
            inside = tuple(map(slice, block.starts, block.stops))
            for name in names:
                fields[name][inside] = file[f"rank/{rank}/{name}"][()]
        observed = {name: node[()] for name, node in file.get("observed/observe", {}).items()}
        return Result(fields, dict(file.attrs), observed)


def laplacian(n: int, dim: int) -> Array:
    """The operator as a matrix, from the second difference of one axis."""
    second = (np.eye(n, k=1) - 2 * np.eye(n) + np.eye(n, k=-1)) * (n + 1) ** 2
    whole = np.zeros((n**dim, n**dim))
    for axis in range(dim):
        whole += np.kron(np.kron(np.eye(n**axis), second), np.eye(n ** (dim - 1 - axis)))
    return whole


def distance(found: Array, expected: Array) -> float:
    """The largest difference, relative to the largest value."""
    return float(np.abs(found - expected).max() / np.abs(expected).max())
