"""Random sums of guarded terms: fluxes of groups of faces, added up over all faces; ranks differ in size and data.

Every term has faces of its own, which a table numbers for each face of all; under its mask it reads a flux of an
own side, another side and a constant of its group.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import ir
from aotato.frontend.expr import Reduce, own_index, read
from rank_programs import Ranks

Draw = Any
FLUXES = ("mean", "upwind", "other", "own")
SIDES = ("state", "state", "reduced", "second", "received")


@st.composite
def face_sums(draw: Draw) -> ir.Programs:
    """Programs of one or two ranks: the sum over all groups, and its sum with something else."""
    ranks = Ranks(draw(st.integers(1, 2)))
    groups = draw(st.lists(st.tuples(st.sampled_from(FLUXES), st.sampled_from(SIDES)), min_size=2, max_size=4))
    shape = draw(st.sampled_from(("left", "right", "spread")))
    overlap, uncovered = draw(st.sampled_from((False, False, False, True))), draw(st.booleans())
    order = draw(st.integers(0, 99))
    for rank in range(ranks.size):
        _rank(ranks, rank, groups, shape, overlap, uncovered, order)
    return ranks.programs()


def _rank(
    ranks: Ranks, rank: int, groups: list[tuple[str, str]], shape: str, overlap: bool, uncovered: bool, order: int
) -> None:
    rng = np.random.default_rng((rank, order))
    elements, faces, nodes = 5 + rank, 3, 2
    x, y = ranks.input(rank, (elements, 4), name="x"), ranks.input(rank, (elements, 4), name="y")
    peer = (rank + 1) % ranks.size
    sent = ranks.map(rank, lambda a: a + 3, x)
    received = ranks.move(rank, sent, rank) if ranks.size == 1 else ""
    if not received:
        ranks.send(rank, sent, peer, "halo")
        received = ranks.recv(rank, peer, "halo", (5 + peer, 4))
    square = ranks.map(rank, lambda a: a * a, x)
    weights = ranks.const(rank, rng.random((4, 4)))
    body = prim.Product((read(0, (prim.Variable("_0"), prim.Variable("_r0"))),
                         read(1, (prim.Variable("_1"), prim.Variable("_r0")))))
    reduced = ranks.compute(rank, (square, weights), Reduce("sum", (("_r0", 0, 4),), body), (elements, 4), "float64")
    arrays = {"state": square, "reduced": reduced, "second": y, "received": received}
    owner = rng.integers(0, len(groups) + uncovered, elements * faces)
    terms = []
    for number, (flux, side) in enumerate(groups):
        mask = (owner == number) | (overlap & (owner == 0))
        terms.append(_term(ranks, rank, rng, mask, nodes, flux, arrays["state"], arrays[side]))
    ranks.output(rank, "out", _total(ranks, rank, terms, shape, (elements * faces, nodes), rng))


def _term(
    ranks: Ranks, rank: int, rng: np.random.Generator, mask: Any, nodes: int, flux: str, own: str, other: str
) -> str:
    """`where(mask, flux[number of the face], 0)`; the number is wild where the mask is false."""
    count = max(1, int(mask.sum()))
    arrays = ranks.arrays[rank]
    sides = []
    for name in (own, other):
        index = ranks.const(rank, rng.integers(0, arrays[name].shape[0], (count, 1)).astype("int32"))
        node = ranks.const(rank, rng.integers(0, 4, (1, nodes)).astype("int32"))
        at = (read(1, (prim.Variable("_0"), 0)), read(2, (0, prim.Variable("_1"))))
        sides.append(ranks.compute(rank, (name, index, node), read(0, at), (count, nodes), "float64"))
    normal = ranks.const(rank, rng.random((count,)) - 0.5)
    a, b, n = read(0, own_index(2)), read(1, own_index(2)), read(2, own_index(1))
    expr = {"mean": n * (a + b), "upwind": prim.If(prim.Comparison(n, ">", 0.0), a, b) * n, "other": b * b + n,
            "own": a * n}[flux]
    used = ranks.compute(rank, (*sides, normal), expr, (count, nodes), "float64")
    number = np.where(mask, np.cumsum(mask) - 1, rng.choice([-3, 10**6])).astype("int64")
    operands = (ranks.const(rank, mask), used, ranks.const(rank, number))
    taken = read(1, (read(2, own_index(1)), prim.Variable("_1")))
    guarded = prim.If(read(0, own_index(1)), taken, 0.0)
    return ranks.compute(rank, operands, guarded, (len(mask), nodes), "float64")


def _total(
    ranks: Ranks, rank: int, terms: list[str], shape: str, extents: tuple[int, int], rng: np.random.Generator
) -> str:
    """Added from the left, from the right, or with something else in between."""
    bias = ranks.const(rank, rng.random(extents))
    order = {"left": terms, "right": terms[::-1], "spread": [terms[0], bias, *terms[1:]]}[shape]
    total = order[0]
    for term in order[1:]:
        pair = (term, total) if shape == "right" else (total, term)
        own = [read(number, own_index(2)) for number in range(2)]
        total = ranks.compute(rank, pair, prim.Sum(tuple(own)), extents, "float64")
    return total
