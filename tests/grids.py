"""Build and run the grid apps on 1 to 4 ranks in one MPI job, and put their blocks together."""

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


@dataclass(frozen=True)
class Result:
    """One run: fields of the whole box by output, host values, and the rows of `observe` by value."""

    fields: Mapping[str, Array]
    attributes: Mapping[str, Any]
    observed: Mapping[str, Array]


def run_all(folder: Path, app: str, cases: Mapping[str, tuple[dict[str, int], str]]) -> dict[tuple[str, int], Result]:
    """`cases`: a name -> options of the app and arguments of aotato-run. Results by name and number of ranks."""
    lines = []
    for name, (options, arguments) in cases.items():
        for ranks in RANKS:
            path = folder / f"{name}_{ranks}"
            aotato.build(app, ranks=ranks, options=options, path=f"{path}.h5", targets="cpu")
            lines.append(f"{path}.h5 --output {path}_out.h5 --quiet {arguments}")
    jobs = folder / "jobs"
    jobs.write_text("\n".join(lines))
    done = mpiexec(max(RANKS), [Path(__file__).with_name("run_many.py"), jobs], timeout=240)
    assert (done.returncode, done.stderr) == (0, "")
    grids = {name: SimpleNamespace(**{option.name: option.default for option in _grid.OPTIONS} | options)
             for name, (options, _) in cases.items()}
    return {(name, ranks): _read(folder / f"{name}_{ranks}_out.h5", _grid.blocks(ranks, opt), opt)
            for name, opt in grids.items() for ranks in RANKS}


def _read(path: Path, blocks: list[_grid.Block], opt: SimpleNamespace) -> Result:
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
