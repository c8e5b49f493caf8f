"""App heat: the exact solution of the discrete equations, on every number of ranks; launches and messages."""

from __future__ import annotations

import json
from types import SimpleNamespace

import numpy as np
import pytest

import aotato
import grids
from aotato.frontend import AppError
from aotato.frontend.apps import _grid, heat
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report

STEPS = 100
CASES = {
    "flat": grids.Case({"n": 13}, f"--steps {STEPS} --every observe=25"),
    "deep": grids.Case({"n": 7, "dim": 3}, f"--steps {STEPS} --every observe=25", (4,)),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> dict[tuple[str, int], grids.Result]:
    return grids.run_all(tmp_path_factory.mktemp("heat"), "heat", CASES)


def _modes(opt: SimpleNamespace) -> list[np.ndarray]:
    (whole,) = _grid.blocks(1, opt)
    return [heat.mode(whole, waves) for waves in heat.WAVES]


@pytest.mark.parametrize("name", CASES)
def test_modes_are_eigenvectors_of_the_operator(name):
    opt = CASES[name].grid
    operator = grids.laplacian(opt.n, opt.dim)
    for waves, mode in zip(heat.WAVES, _modes(opt), strict=True):
        assert grids.distance(operator @ mode.ravel(), -heat.rate(opt, waves) * mode.ravel()) < 1e-13


@pytest.mark.parametrize("name", CASES)
def test_every_mode_decays_at_its_rate(results, name):
    opt = CASES[name].grid
    dt = heat.time_step(opt)
    factors = [(1 - dt * heat.rate(opt, waves)) ** STEPS for waves in heat.WAVES]
    exact = sum(factor * mode for factor, mode in zip(factors, _modes(opt), strict=True))
    for ranks in CASES[name].ranks:
        found = results[name, ranks]
        assert np.abs(found.fields["u"] - exact).max() < 1e-15
        assert found.observed["error"].max() < 2e-15 and found.observed["step"].tolist() == [25, 50, 75, 100]
        scalars = json.loads(found.attributes["scalars"])
        assert scalars["amplitude0"] == pytest.approx(factors[0], rel=1e-12)
        assert found.attributes["step"] == STEPS and scalars["t"] == pytest.approx(STEPS * dt)


def test_all_numbers_of_ranks_agree(results):
    one = results["flat", 1]
    for ranks in CASES["flat"].ranks:
        other = results["flat", ranks]
        assert grids.distance(other.fields["u"], one.fields["u"]) < 1e-12
        for value in ("heat", "hottest"):
            assert grids.distance(other.observed[value], one.observed[value]) < 1e-12


@pytest.mark.parametrize(("ranks", "dim"), [(1, 2), (2, 2), (3, 2), (6, 2), (4, 3)])
def test_a_step_is_two_launches_and_a_message_a_neighbour(tmp_path, ranks, dim):
    path = aotato.build("heat", ranks=ranks, options={"n": 6, "dim": dim}, path=tmp_path / "heat.h5")
    blocks = _grid.blocks(ranks, SimpleNamespace(n=6, dim=dim))
    for target in ("cpu", "gpu"):
        with Bundle.open(path) as bundle:
            rows = report(bundle, target)["entries"]["step"]["per_rank"]
        for row, block in zip(rows, blocks, strict=True):
            assert (row["messages"], row["launches"]) == (len(block.neighbours), 2 if ranks > 1 else 1)
            assert row["identity_copies"] == 0 and row["arena_bytes"] == 0


@pytest.mark.parametrize("ranks", [1, 2, 3, 4, 6, 7, 8, 9, 12])
def test_blocks_cover_the_box_once(ranks):
    covered = np.zeros((7, 7), int)
    blocks = _grid.blocks(ranks, SimpleNamespace(n=7, dim=2))
    for rank, block in enumerate(blocks):
        covered[tuple(map(slice, block.starts, block.stops))] += 1
        for (axis, side), other in block.neighbours.items():
            assert blocks[other].neighbours[axis, -side] == rank
    assert (covered == 1).all()


def test_more_ranks_than_points_are_an_error():
    with pytest.raises(AppError, match="n=7 points an axis are too few for 11 ranks"):
        _grid.blocks(11, SimpleNamespace(n=7, dim=2))
