"""Joined axes are taken apart where all readers do: faces of elements, and what is computed for each of them once."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymbolic.primitives as prim
import pytato as pt
import pytest

import aotato
from aotato.emit.rewritten import pruned
from aotato.emit.target import TARGETS
from aotato.emit.unflattened import unflattened
from aotato.frontend import array_input, interpret, ir, take
from aotato.frontend.adapter.trace import trace
from aotato.frontend.expr import Reduce, read
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from rank_programs import Ranks, values

F, E, N, M = 4, 70, 6, 5  # faces, elements, nodes, face nodes
Index = Any


def faces() -> dict[str, Any]:
    """Fluxes over all faces of all elements, face by face: an array of F * E by M; then lifted."""
    rng = np.random.default_rng(0)
    wrap = pt.make_data_wrapper
    q = array_input("q", (E, N), "float64")
    flat = pt.reshape(q, (E * N,))
    own = np.tile(np.arange(E)[:, None] * N + np.arange(M), (F, 1)).astype("int32")
    other = rng.integers(0, E * N, (F * E, M)).astype("int32")
    a, b = take(flat, wrap(own), axis=0), take(flat, wrap(other), axis=0)
    flux = (a * a + b * b) / (2.0 + abs(a)) - wrap(rng.random((F * E, 1))) * (a - b)
    lift = wrap(rng.random((N, F, M)))
    return {"rhs": pt.einsum("ifj,fej->ei", lift, pt.reshape(flux, (F, E, M)))}


def test_a_flux_is_computed_once_a_face_node(tmp_path) -> None:
    path = aotato.build(faces(), path=tmp_path / "faces.h5", targets="gpu")
    with Bundle.open(path) as bundle:
        row = report(bundle)["entries"]["step"]["per_rank"][0]
    flops = sum(kernel["flops"] for kernel in row["kernels"])
    sums, once = 2 * E * N * F * M, E * F * M * 16
    assert row["launches"] == 1 and flops < sums + once, (flops, sums + once)


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_values(target, tmp_path) -> None:
    outputs, q = faces(), np.random.default_rng(1).standard_normal((E, N))
    (expected,) = interpret.run(trace("step", 1, lambda rank: outputs).programs, [{"q": q}])
    path = aotato.build(outputs, path=tmp_path / "faces.h5", targets=target)
    with aotato.load(path, target=target) as program:
        interpret.assert_agrees("rhs", expected["rhs"], program(q=q)["rhs"])


def joined(f: Index, e: Index, factor: int) -> Index:
    return prim.Sum((prim.Product((factor, f)), e))


def program(index: Any, elements: tuple[int, ...] = (7, 9), outer: int = 3) -> ir.Programs:
    """x[outer * elements, 2], read by a sum at `index(rank, r, own, elements)`, and by its double at the same."""
    ranks = Ranks(len(elements))
    for rank, inner in enumerate(elements):
        given = ranks.input(rank, (outer * inner, 2), name="q")
        x = ranks.map(rank, lambda a: a * 2, given, name="x")
        y = ranks.map(rank, lambda a: a + 1, x, name="y")
        r, own, node = (prim.Variable(name) for name in ("_r0", "_0", "_1"))
        term = read(0, (index(rank, r, own, inner), node))
        summed = Reduce("sum", (("_r0", 0, outer),), term)
        ranks.output(rank, "out", ranks.compute(rank, (y,), summed, (inner, 2), "float64", "sums"))
    return ranks.programs()


def shapes(programs: ir.Programs) -> list[tuple[ir.Shape, ...]]:
    return [tuple(rank.arrays[name].shape for name in ("x", "y")) for rank in pruned(unflattened(programs)).ranks]


def same_values(programs: ir.Programs) -> None:
    given = values(programs)
    for before, after in zip(interpret.run(programs, given), interpret.run(unflattened(programs), given), strict=True):
        assert np.array_equal(before["out"].value, after["out"].value)


def test_elements_come_first_and_chains_follow() -> None:
    made = program(lambda rank, r, own, inner: joined(r, own, inner))
    assert shapes(made) == [((7, 3, 2),) * 2, ((9, 3, 2),) * 2]
    same_values(made)


def test_either_factor_may_be_the_longer_one() -> None:
    made = program(lambda rank, r, own, inner: joined(own, r, 3))
    assert shapes(made) == [((7, 3, 2),) * 2, ((9, 3, 2),) * 2]
    same_values(made)


def test_ranks_that_read_in_other_ways_are_left_alone() -> None:
    made = program(lambda rank, r, own, inner: joined(r, own, inner) if rank else joined(own, r, 3) % 5)
    assert shapes(made) == [((21, 2),) * 2, ((27, 2),) * 2]
    same_values(made)


@pytest.mark.parametrize("shift", [0, 1])
def test_parts_of_an_axis_stay_as_they_are(shift) -> None:
    """Indices that do not run over all of it, or not from its beginning."""
    made = program(lambda rank, r, own, inner: joined(r, own, inner - 1) + shift)
    assert shapes(made) == [((21, 2),) * 2, ((27, 2),) * 2]
    same_values(made)


def test_what_is_an_output_keeps_its_shape() -> None:
    made = program(lambda rank, r, own, inner: joined(r, own, inner))
    for rank in made.ranks:
        object.__setattr__(rank, "outputs", (*rank.outputs, ir.Output("y", "y")))
    assert shapes(made) == [((21, 2),) * 2, ((27, 2),) * 2]
