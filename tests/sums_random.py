"""Random sums over products: einsums of inputs, constants, computed and gathered arrays; ranks differ in size and data.

A factor is (kind, axes). Kinds: an input, a constant, an array computed from an input, an array gathered along the
first reduced axis by a table of runs or by `k // m`, and a number.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import ir
from aotato.frontend.expr import Expr, Reduce, own_index, read
from rank_programs import Ranks, data

Draw = Any
Factor = tuple[str, tuple[str, ...]]
KINDS = ("input", "input", "const", "computed", "table", "quotient", "number")
ELEMENTS = 64  # as many as a batch axis has at least
RUNS = 3  # of the first reduced axis


@st.composite
def sums(draw: Draw) -> ir.Programs:
    """Programs of one or two ranks with one or two outputs, which may read the same factors."""
    ranks = Ranks(draw(st.integers(1, 2)))
    dtype = draw(st.sampled_from(("float64", "float64", "float32", "complex128")))
    own = draw(st.sampled_from((("_0", "_1", "_2"), ("_0", "_1", "_2"), ("_0", "_1"), ("_0",), ())))
    extents = {"_0": draw(st.sampled_from((2, 8))), "_2": draw(st.sampled_from((1, 4)))}
    extents |= {"_r0": RUNS * draw(st.sampled_from((1, 2, 4))), "_r1": draw(st.sampled_from((1, 5, 8)))}
    pool = [_factor(draw, own) for _ in range(draw(st.integers(2, 5)))]
    chosen = st.lists(st.sampled_from(pool), min_size=1, max_size=5)
    plans = draw(st.lists(st.tuples(chosen, st.integers(0, 2), st.integers(0, 1)), min_size=1, max_size=2))
    for rank in range(ranks.size):
        # The elements of a batch axis differ from rank to rank
        mine = {**extents, "_1": ELEMENTS + rank} if own != ("_0",) else {**extents, "_0": ELEMENTS + rank}
        made: dict[Factor, tuple[str, Expr] | None] = {}
        for number, (factors, form, lower) in enumerate(plans):
            for factor in factors:
                if factor not in made:
                    made[factor] = _made(ranks, rank, factor, mine, dtype)
            terms = [made[factor] for factor in factors]
            ranks.output(rank, f"out{number}", _sum(ranks, rank, own, mine, dtype, terms, form, lower))
    return ranks.programs()


def _factor(draw: Draw, own: Sequence[str]) -> Factor:
    axes = [axis for axis in (*own, "_r0", "_r1") if draw(st.booleans())]
    return draw(st.sampled_from(KINDS)), tuple(draw(st.permutations(axes)))


def _made(
    ranks: Ranks, rank: int, factor: Factor, extents: Mapping[str, int], dtype: str
) -> tuple[str, Expr] | None:
    """The array and the index at which a factor reads it; None for a number."""
    kind, axes = factor
    if kind == "number":
        return None
    shape = tuple(extents[axis] for axis in axes)
    index = tuple(map(prim.Variable, axes))
    rng = np.random.default_rng((rank, len(ranks.arrays[rank])))
    if kind in ("table", "quotient") and "_r0" in axes:
        shape = tuple(RUNS if axis == "_r0" else extents[axis] for axis in axes)
        run = extents["_r0"] // RUNS
        source = ranks.const(rank, data(rng, shape, np.dtype(dtype)))
        if kind == "quotient":
            quotient = prim.FloorDiv(prim.Variable("_r0"), run)
            return source, tuple(quotient if axis == "_r0" else i for axis, i in zip(axes, index, strict=True))
        table = ranks.const(rank, np.repeat(rng.permutation(RUNS).astype("int32"), run))
        place = axes.index("_r0")
        own = list(own_index(len(axes)))
        own[place] = read(1, (own[place],))
        whole = tuple(extents[axis] for axis in axes)
        return ranks.compute(rank, (source, table), read(0, tuple(own)), whole, dtype), index
    if kind == "const":
        return ranks.const(rank, data(rng, shape, np.dtype(dtype))), index
    name = ranks.input(rank, shape, dtype)
    return (ranks.map(rank, lambda x: x * x + 1, name), index) if kind == "computed" else (name, index)


def _sum(
    ranks: Ranks,
    rank: int,
    own: Sequence[str],
    extents: Mapping[str, int],
    dtype: str,
    terms: Sequence[tuple[str, Expr] | None],
    form: int,
    lower: int,
) -> str:
    names = list(dict.fromkeys(term[0] for term in terms if term is not None))
    body = prim.Product(tuple(2 if t is None else read(names.index(t[0]), t[1]) for t in terms))
    bounds = (("_r0", 0, extents["_r0"]), ("_r1", lower, extents["_r1"]))
    total: Expr = Reduce("sum", bounds, body)
    if form == 1:
        total = prim.Sum((total, prim.Product((3, total))))
    if form == 2 and own:
        total = prim.If(prim.Comparison(prim.Variable("_0"), "<", 1), total, 1)
    return ranks.compute(rank, names, total, [extents[axis] for axis in own], dtype)
