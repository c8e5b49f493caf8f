"""Random chains of reshapes, gathers, slices and masked reads through constant tables; ranks differ in size and data.

A step is what it does, the kind of its table, and a seed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import ir
from aotato.frontend.expr import Reduce, own_index, read
from rank_programs import Ranks

Draw = Any
Array = np.ndarray[Any, Any]
TABLES = ("own", "constant", "affine", "reversed", "runs", "rows", "random", "wrapped")
STEPS = ("map", "flatten", "fold", "pick", "gather", "masked", "slice", "permute", "sum", "combine")
Step = tuple[str, str, int]


@st.composite
def gathers(draw: Draw) -> ir.Programs:
    """Programs of one or two ranks that read an input of elements and nodes in roundabout ways."""
    steps = draw(st.lists(st.tuples(st.sampled_from(STEPS), st.sampled_from(TABLES), st.integers(0, 9)), min_size=2,
                          max_size=7))
    ranks = Ranks(draw(st.integers(1, 2)))
    nodes = draw(st.sampled_from((1, 4, 6)))
    elements = draw(st.sampled_from((3, 6, 300)))
    outputs = draw(st.sets(st.integers(1, len(steps)), max_size=2)) | {len(steps)}
    for rank in range(ranks.size):
        name = ranks.input(rank, (elements + 2 * rank, nodes), name="x")
        for number, step in enumerate(steps, 1):
            name = _step(ranks, rank, name, step)
            if number in outputs:
                ranks.output(rank, f"out{number}", name)
    return ranks.programs()


def _step(ranks: Ranks, rank: int, name: str, step: Step) -> str:
    what, kind, seed = step
    return DO[what](ranks, rank, name, ranks.arrays[rank][name], kind, seed)


def table(kind: str, shape: tuple[int, ...], extent: int, rng: np.random.Generator) -> Array:
    """Indices below `extent` as (long, short) table of that shape."""
    longer, shorter = shape
    rows, columns = np.indices(shape)
    made = {
        "own": rows * shorter + columns,
        "constant": np.full(shape, int(rng.integers(extent))),
        "affine": 3 * rows + 2 * columns + 1,
        "reversed": shorter * longer - 1 - rows * shorter - columns,
        "runs": np.repeat(rng.integers(0, extent, (longer, 2)), [shorter - shorter // 2, shorter // 2], axis=1),
        "rows": rng.integers(0, extent, (5, shorter))[rng.integers(0, 5, longer)],
        "random": rng.integers(0, extent, shape),
        "wrapped": rng.integers(-extent, extent, shape),
    }[kind]
    return made if kind == "wrapped" else made % extent


def _map(ranks: Ranks, rank: int, name: str, node: ir.Node, kind: str, seed: int) -> str:
    return ranks.map(rank, lambda x: x * 2 + 1, name)


def _flatten(ranks: Ranks, rank: int, name: str, node: ir.Node, kind: str, seed: int) -> str:
    long, short = node.shape
    flat = prim.Variable("_0")
    return ranks.compute(rank, (name,), read(0, (flat // short, flat % short)), (long * short, 1), "float64")


def _fold(ranks: Ranks, rank: int, name: str, node: ir.Node, kind: str, seed: int) -> str:
    """The other way where the length allows it: to (length / 2, 2 * width)."""
    long, short = node.shape
    flat = prim.Variable("_0") * (2 * short) + prim.Variable("_1")
    shape = (long // 2, 2 * short) if long > 1 else (long, short)
    return ranks.compute(rank, (name,), read(0, (flat // short % long, flat % short)), shape, "float64")


def _pick(ranks: Ranks, rank: int, name: str, node: ir.Node, kind: str, seed: int) -> str:
    """Along the short axis, by a list."""
    rng = np.random.default_rng((rank, seed))
    long, short = node.shape
    chosen = table(kind, (1, 6), short, rng)[0]
    index = ranks.const(rank, chosen.astype("int8"))
    expr = read(0, (prim.Variable("_0"), prim.Remainder(read(1, (prim.Variable("_1"),)), short)))
    return ranks.compute(rank, (name, index), expr, (long, 6), "float64")


def _gather(ranks: Ranks, rank: int, name: str, node: ir.Node, kind: str, seed: int) -> str:
    """By flat numbers, one for each element of the result."""
    rng = np.random.default_rng((rank, seed))
    long, short = node.shape
    index = ranks.const(rank, table(kind, (long, 8), long * short, rng).astype("int32" if seed % 2 else "int64"))
    flat = prim.Remainder(read(1, own_index(2)), long * short)
    return ranks.compute(rank, (name, index), read(0, (flat // short, flat % short)), (long, 8), "float64")


def _masked(ranks: Ranks, rank: int, name: str, node: ir.Node, kind: str, seed: int) -> str:
    """By a table that is wild where a mask hides it."""
    rng = np.random.default_rng((rank, seed))
    long, short = node.shape
    mask = table("runs" if seed % 2 else "random", (long, 8), 2, rng).astype(bool)
    chosen = np.where(mask, table(kind, (long, 8), long, rng) % long, rng.choice([-7, 10**6]))
    operands = (name, ranks.const(rank, chosen.astype("int32")), ranks.const(rank, mask))
    inner = read(0, (read(1, own_index(2)), prim.Variable("_1") % short))
    expr = prim.If(read(2, own_index(2)), inner, 0.0)
    return ranks.compute(rank, operands, expr, (long, 8), "float64")


def _slice(ranks: Ranks, rank: int, name: str, node: ir.Node, kind: str, seed: int) -> str:
    long, short = node.shape
    kept = (long - long // 3, short)
    expr = read(0, (prim.Variable("_0") + long // 3, prim.Variable("_1")))
    return ranks.compute(rank, (name,), expr, kept, "float64")


def _permute(ranks: Ranks, rank: int, name: str, node: ir.Node, kind: str, seed: int) -> str:
    """Elements in another order."""
    rng = np.random.default_rng((rank, seed))
    long, short = node.shape
    order = rng.permutation(long) if kind == "random" else table(kind, (long, 1), long, rng)[:, 0] % long
    index = ranks.const(rank, order)
    return ranks.compute(rank, (name, index), read(0, (read(1, own_index(1)), prim.Variable("_1"))), (long, short),
                         "float64")


def _sum(ranks: Ranks, rank: int, name: str, node: ir.Node, kind: str, seed: int) -> str:
    """Over nodes gathered by a list."""
    rng = np.random.default_rng((rank, seed))
    long, short = node.shape
    index = ranks.const(rank, table(kind, (1, 4), short, rng)[0] % short)
    inner = read(0, (prim.Variable("_0"), read(1, (prim.Variable("_r0"),))))
    weights = ranks.const(rank, rng.random((3, 4)))
    body = prim.Product((inner, read(2, (prim.Variable("_1"), prim.Variable("_r0")))))
    return ranks.compute(rank, (name, index, weights), Reduce("sum", (("_r0", 0, 4),), body), (long, 3), "float64")


def _combine(ranks: Ranks, rank: int, name: str, node: ir.Node, kind: str, seed: int) -> str:
    """With itself in reverse order."""
    long, short = node.shape
    index = ranks.const(rank, np.arange(long)[::-1].astype("int32"))
    expr = read(0, own_index(2)) - read(0, (read(1, own_index(1)), prim.Variable("_1")))
    return ranks.compute(rank, (name, index), expr, (long, short), "float64")


DO: dict[str, Callable[..., str]] = {
    "map": _map, "flatten": _flatten, "fold": _fold, "pick": _pick, "gather": _gather, "masked": _masked,
    "slice": _slice, "permute": _permute, "sum": _sum, "combine": _combine,
}
