"""Random chains of matrices: sums over products that read elementwise combinations of sums over products.

`y[e, i] = s[e] * sum_j A[i, j] * (t[e] * u[e, j] - v[e, j])`, where u and v are sums of constants times inputs, over
one or several indices, some of them read at a number of a first axis; ranks differ in elements and data.
"""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import ir
from aotato.frontend.expr import Expr, Reduce, read
from rank_programs import Ranks, data

Draw = Any
ELEMENTS = 64  # as many as a batch axis has at least


def variables(*names: str) -> tuple[Any, ...]:
    return tuple(map(prim.Variable, names))


@st.composite
def chains(draw: Draw) -> ir.Programs:
    """Programs of one or two ranks with one to three outputs."""
    ranks = Ranks(draw(st.integers(1, 2)))
    dtype = draw(st.sampled_from(("float64", "float64", "float32", "complex128", "int64")))
    i, j, k = (draw(st.sampled_from((1, 3, 7, 12))) for _ in "ijk")
    inner = draw(st.lists(st.sampled_from(("plain", "metric", "parts", "own")), min_size=1, max_size=3))
    minus, moved, scaled = draw(st.booleans()), draw(st.booleans()), draw(st.sampled_from(("", "e", "j", "ej")))
    outer = draw(st.lists(st.sampled_from(("plain", "inside", "double", "guarded", "data")), min_size=1, max_size=2))
    shown = draw(st.sampled_from((False, False, True)))
    for rank in range(ranks.size):
        e = ELEMENTS + rank
        rng = np.random.default_rng(rank)
        x = [ranks.input(rank, (e, k), dtype) for _ in range(2)]
        sums = [_inner(ranks, rank, kind, x[n % 2], (e, j, k), dtype, rng) for n, kind in enumerate(inner)]
        reads = [read(n, (*([1] if kind == "metric" else []), *variables("_0", "_1"))) for n, kind in enumerate(inner)]
        total: Expr = reads[0]
        for term in reads[1:]:
            total = prim.Sum((total, prim.Product((-1, term)) if minus else term))
        operands = list(sums)
        if scaled:
            shape = tuple({"e": e, "j": j}[axis] for axis in scaled)
            operands.append(ranks.const(rank, data(rng, shape, np.dtype(dtype))))
            index = tuple(prim.Variable({"e": "_0", "j": "_1"}[axis]) for axis in scaled)
            total = prim.Product((read(len(operands) - 1, index), total))
        both = ranks.compute(rank, operands, total, (e, j), dtype)
        if moved:
            both = ranks.compute(rank, (both,), read(0, variables("_1", "_0")), (j, e), dtype)
        for number, kind in enumerate(outer):
            ranks.output(rank, f"out{number}", _outer(ranks, rank, kind, both, moved, (e, i, j), dtype, rng))
        if shown:
            ranks.output(rank, "shown", both)
    return ranks.programs()


def _inner(
    ranks: Ranks, rank: int, kind: str, x: str, extents: tuple[int, int, int], dtype: str, rng: np.random.Generator
) -> str:
    """A constant matrix, three of them with factors of the element, one over two indices, or a matrix an element."""
    e, j, k = extents

    def const(*shape: int) -> str:
        return ranks.const(rank, data(rng, shape, np.dtype(dtype)))

    if kind == "metric":
        body = prim.Product((read(0, variables("_0", "_r0", "_1")), read(1, variables("_r0", "_2", "_r1")),
                             read(2, variables("_1", "_r1"))))
        total = Reduce("sum", (("_r0", 0, 2), ("_r1", 0, k)), body)
        return ranks.compute(rank, (const(2, 2, e), const(2, j, k), x), total, (2, e, j), dtype)
    if kind == "parts":
        f = ranks.input(rank, (e, 2, 3), dtype)
        body = prim.Product((read(0, variables("_1", "_r0", "_r1")), read(1, variables("_0", "_r0")),
                             read(2, variables("_0", "_r0", "_r1"))))
        total = Reduce("sum", (("_r0", 0, 2), ("_r1", 0, 3)), body)
        return ranks.compute(rank, (const(j, 2, 3), const(e, 2), f), total, (e, j), dtype)
    matrix, index = (const(e, j, k), ("_0", "_1", "_r0")) if kind == "own" else (const(j, k), ("_1", "_r0"))
    body = prim.Product((read(0, variables(*index)), read(1, variables("_0", "_r0"))))
    return ranks.compute(rank, (matrix, x), Reduce("sum", (("_r0", 0, k),), body), (e, j), dtype)


def _outer(
    ranks: Ranks, rank: int, kind: str, both: str, moved: bool, extents: tuple[int, int, int], dtype: str,
    rng: np.random.Generator,
) -> str:
    e, i, j = extents
    shape = {"data": (e, i, j), "double": (i, 2, j)}.get(kind, (i, j))
    matrix = ranks.const(rank, data(rng, shape, np.dtype(dtype)))
    scale = ranks.const(rank, data(rng, (e, 2), np.dtype(dtype)))
    index = {"data": ("_0", "_1", "_r0"), "double": ("_1", "_r1", "_r0")}.get(kind, ("_1", "_r0"))
    factors = [read(0, variables(*index)), read(1, variables(*(("_r0", "_0") if moved else ("_0", "_r0"))))]
    bounds: tuple[tuple[str, int, int], ...] = (("_r0", 0, j),)
    if kind == "double":
        factors.append(read(2, variables("_0", "_r1")))
        bounds = (*bounds, ("_r1", 0, 2))
    if kind == "inside":
        factors.insert(0, read(2, (prim.Variable("_0"), 1)))
    total: Expr = Reduce("sum", bounds, prim.Product(tuple(factors)))
    operands = (matrix, both, scale) if kind in ("double", "inside") else (matrix, both)
    if kind == "guarded":
        total = prim.If(prim.Comparison(prim.Variable("_0"), "<", 3), total, ranks.arrays[rank][both].dtype.type(1))
    return ranks.compute(rank, operands, total, (e, i), dtype)
