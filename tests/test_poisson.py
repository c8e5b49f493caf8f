"""App poisson: the solution of the linear system, on every number of ranks; how the iteration ends."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import aotato
import grids
from aotato.frontend.apps import _grid
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from mpi import run

CASES = {
    "whole": grids.Case({}, "--steps 1000"),
    "small": grids.Case({"n": 13}, "--steps 1000", (1, 4)),
    "solid": grids.Case({"n": 7, "dim": 3}, "--steps 1000", (4,)),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("poisson")


@pytest.fixture(scope="module")
def results(folder) -> dict[tuple[str, int], grids.Result]:
    return grids.run_all(folder, "poisson", CASES)


def _right_hand_side(name: str) -> np.ndarray:
    (whole,) = _grid.blocks(1, CASES[name].grid)
    x = whole.coordinates()
    return whole.field(1 + x[0] * np.exp(x[-1]))


@pytest.mark.parametrize("name", ["small", "solid"])
def test_the_solution_is_that_of_a_dense_solver(results, name):
    opt, b = CASES[name].grid, _right_hand_side(name)
    exact = np.linalg.solve(-grids.laplacian(opt.n, opt.dim), b.ravel()).reshape(b.shape)
    for ranks in CASES[name].ranks:
        assert grids.distance(results[name, ranks].fields["u"], exact) < 1e-10


@pytest.mark.parametrize("name", CASES)
def test_the_loop_ends_at_the_residual(results, name):
    opt, b = CASES[name].grid, _right_hand_side(name)
    for ranks in CASES[name].ranks:
        u = np.pad(results[name, ranks].fields["u"], 1)
        inside = (slice(1, -1),) * opt.dim
        sums = sum(np.roll(u, side, axis) for axis in range(opt.dim) for side in (-1, 1))
        residual = b + (sums - 2 * opt.dim * u)[inside] * (opt.n + 1) ** 2
        assert np.linalg.norm(residual) < 2e-10 * np.linalg.norm(b)


def test_all_numbers_of_ranks_agree(results):
    one = results["whole", 1]
    assert 50 < one.attributes["step"] < 400
    for ranks in CASES["whole"].ranks:
        assert results["whole", ranks].attributes["step"] == one.attributes["step"]
        assert grids.distance(results["whole", ranks].fields["u"], one.fields["u"]) < 1e-12


def test_an_iteration_is_one_message_a_neighbour_and_two_collectives(results, folder):
    for ranks in CASES["whole"].ranks:
        with Bundle.open(folder / f"whole_{ranks}.h5") as bundle:
            rows = report(bundle, "cpu")["entries"]["step"]["per_rank"]
        for row, block in zip(rows, _grid.blocks(ranks, CASES["whole"].grid), strict=True):
            assert (row["messages"], row["collectives"]) == (len(block.neighbours), 2)
            assert row["identity_copies"] == 0


def test_a_loop_that_reaches_its_most_steps_fails(tmp_path):
    path = aotato.build("poisson", options={"n": 1}, path=tmp_path / "one.h5", targets="cpu")
    loader = ["-m", "aotato.runtime_stub.run", path, "--steps", "1000"]
    nan = tmp_path / "nan.npy"
    np.save(nan, np.full((1, 1), np.nan))
    done = run([sys.executable, *loader, "--input", f"b={nan}"])
    assert done.returncode == 1 and "the loop has done 20 steps" in done.stderr
