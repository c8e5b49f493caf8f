"""A viscous DG stage on several ranks: few launches, one message a neighbour and exchange, shared kernels."""

from __future__ import annotations

import dataclasses
import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import aotato
import mpi
from aotato.emit import target
from aotato.frontend import interpret
from aotato.frontend.adapter.trace import trace
from aotato.frontend.values import Value
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from dg_mesh import Piece, box, lattice, pieces
from dg_stage import stage


def cut(ranks: int, cells: int, order: int) -> list[Piece]:
    return pieces(box(cells, order), len(lattice(order)), ranks)


def build(found: list[Piece], order: int, path: Path, targets: str, overlap: bool = True) -> list[dict[str, Any]]:
    def entry(rank: int, size: int) -> Any:
        return stage(found[rank].mesh, order, found[rank])

    aotato.build(entry, ranks=len(found), targets=targets, overlap=overlap, path=path)
    with Bundle.open(path) as bundle:
        rows: list[dict[str, Any]] = report(bundle)["entries"]["step"]["per_rank"]
    return rows


def digests(rows: list[dict[str, Any]]) -> set[str]:
    return {kernel["digest"] for row in rows for kernel in row["kernels"]}


def test_kernels_are_shared_whatever_the_number_of_neighbours(tmp_path: Path) -> None:
    counts = set()
    for ranks in (2, 8):
        found = cut(ranks, 5, 1)
        rows = build(found, 1, tmp_path / "stage.h5", "cpu")
        for row, piece in zip(rows, found, strict=True):
            assert (row["launches"], row["parts"], row["identity_copies"]) == (4, 3, 0)
            assert row["messages"] == 2 * len(piece.peers)
        counts.add(len(digests(rows)))
    assert len({len(piece.peers) for piece in cut(8, 5, 1)} | {1}) > 1
    assert counts == {4}


@pytest.fixture
def worthwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small kernels are launched in halves too."""
    small = {name: dataclasses.replace(found, hidden_bytes=1) for name, found in target.TARGETS.items()}
    monkeypatch.setattr(target, "TARGETS", small)


@pytest.mark.parametrize(("name", "overlap"), [("cpu", True), ("gpu", True), ("gpu", False)])
def test_values_do_not_depend_on_the_number_of_ranks(
    name: str, overlap: bool, worthwhile: None, tmp_path: Path
) -> None:
    whole = box(4, 1)
    nodes, elements = len(lattice(1)), len(whole.outside)
    q = 1 + 0.1 * np.random.default_rng(1).random((5, elements, nodes))
    q[1] += 2
    scalars = {"dt": 1e-3, "a": 0.5, "b": 0.1}
    inputs = {"q": q, "residual": np.zeros_like(q), **{name: np.float64(x) for name, x in scalars.items()}}
    (expected,) = interpret.run(trace("step", 1, lambda rank: stage(whole, 1)).programs, [inputs])

    found = cut(3, 4, 1)
    path = tmp_path / "stage.h5"
    rows = build(found, 1, path, name, overlap)
    assert {row["launches"] for row in rows} == {6 if overlap else 4}
    assert len(digests(rows)) == 4  # halves share a kernel
    for rank, piece in enumerate(found):
        np.save(tmp_path / f"q_{rank}.npy", q[:, piece.numbers])
        np.save(tmp_path / f"residual_{rank}.npy", np.zeros((5, len(piece.numbers), nodes)))
    given = [f"--input={name}={tmp_path}/{name}_{{rank}}.npy" for name in ("q", "residual")]
    given += [f"--set={name}={x}" for name, x in scalars.items()]
    done = mpi.mpiexec(3, ["-m", "aotato.runtime_stub.run", path, *given, f"--output={tmp_path}/out.h5"])
    assert done.returncode == 0, done.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        for rank, piece in enumerate(found):
            for path_ in ("q_new", "residual_new"):
                want = expected[path_]
                part = Value(want.value[:, piece.numbers], want.bound[:, piece.numbers])
                interpret.assert_agrees(path_, part, file[f"rank/{rank}/{path_}"][()])
