"""Random distributed programs as IR, valid by construction, and a count of what they hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pymbolic.primitives as prim

from aotato.frontend.cones import computed
from aotato.frontend.expr import Cast, Expr, Reduce, own_index, read
from aotato.frontend.ir import Allreduce, LoopyCall, Node, Programs, Recv, is_costly, operands
from aotato.frontend.parts import Partition
from loopy_kernels import twice_and_shifted
from rank_programs import Ranks, data

DTYPES = ("bool", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128")
SHAPES = ((), (3,), (2, 3), (0,), (2, 0), (1,))
STEPS = (
    *("map", "map", "combine", "combine", "reduce", "reduce", "centre", "gather"),
    *("exchange", "halo", "halo", "forward", "forward", "self", "allreduce", "cross", "cross", "cross"),
    "call",
)
FEATURES = ("3 batches", "forward", "self-send", "mixed dtypes", "reduction crosses", "allreduce", "call")
CALLED = (("int32", "float64"), ((), (3,), (2, 3)))  # dtypes and shapes: each of them is a kernel to compile
Draw = Any


@st.composite
def programs(draw: Draw) -> Programs:
    """Programs of 1 to 6 ranks with messages, collectives and reductions in any order that has no cycle."""
    ranks = Ranks(draw(st.sampled_from((1, 2, 2, 3, 3, 4, 5, 6))))
    for rank in range(ranks.size):
        for _ in range(draw(st.integers(1, 3))):
            shape, dtype = draw(st.sampled_from(SHAPES)), draw(st.sampled_from(DTYPES))
            if draw(st.integers(0, 3)):
                ranks.input(rank, shape, dtype)
            else:
                ranks.const(rank, data(np.random.default_rng(rank), shape, np.dtype(dtype)))
    for _ in range(draw(st.integers(8, 20))):
        STEP[draw(st.sampled_from(STEPS))](draw, ranks)
    for rank in range(ranks.size):
        names = list(ranks.arrays[rank])
        for number, name in enumerate(draw(st.lists(st.sampled_from(names[::-1]), max_size=4))):
            ranks.output(rank, f"out{number}", name)
    return ranks.programs(recvs_first=draw(st.booleans()))


def features(programs: Programs, partitions: Sequence[Partition]) -> Counter[str]:
    """Which of FEATURES the programs have, each 0 or 1."""
    sent = [(p.rank, send.dest, p.arrays[send.array]) for p in programs.ranks for send in p.sends]
    between = [(source, node) for source, dest, node in sent if source != dest]
    found = {
        "3 batches": partitions[0].batches >= 3,
        "forward": any(isinstance(node, Recv) and node.source != source for source, node in between),
        "self-send": any(source == dest for source, dest, _ in sent),
        "mixed dtypes": len({node.dtype for _, node in between}) > 1,
        "reduction crosses": any(map(reductions_cross, partitions)),
        "allreduce": any(list(program.of_type(Allreduce)) for program in programs.ranks),
        "call": any(list(program.of_type(LoopyCall)) for program in programs.ranks),
    }
    return Counter({name: int(found[name]) for name in FEATURES})


def reductions_cross(found: Partition) -> bool:
    """Whether a part reads a reduction or the result of a call that an earlier part stored."""
    program = found.program
    stored: dict[str, None] = {}
    for part in found.parts:
        below = [operand for name in computed(found, part) for operand in operands(program.arrays[name])]
        if any(found.aliases.get(name, name) in stored for name in below):
            return True
        nodes = [(name, program.arrays[name]) for name in part.stores]
        stored.update((name, None) for name, node in nodes if is_costly(node))
    return False


def _rank(draw: Draw, ranks: Ranks) -> int:
    return draw(st.integers(0, ranks.size - 1))


def _array(draw: Draw, ranks: Ranks, rank: int) -> tuple[str, Node]:
    """Any array, more often a recent one, so that chains are long."""
    names = list(ranks.arrays[rank])
    last = 3 if draw(st.booleans()) else len(names)
    name = draw(st.sampled_from(names[-last:][::-1]))
    return name, ranks.arrays[rank][name]


def _map(draw: Draw, ranks: Ranks) -> None:
    rank = _rank(draw, ranks)
    name, node = _array(draw, ranks, rank)
    element = read(0, own_index(len(node.shape)))
    kind, dtype = node.dtype.kind, node.dtype
    choices: list[tuple[Expr, Any]] = [(element, dtype)]  # the identity
    if kind == "b":
        choices += [(prim.LogicalNot(element), dtype), (Cast(np.dtype("int32"), element), "int32")]
    else:
        choices += [(element + 1, dtype), (element * 2, dtype), (element * element, dtype)]
    if kind == "c":
        real = prim.Call(prim.Variable("real"), (element,))
        choices += [(real, np.zeros(0, dtype).real.dtype)]
    else:
        choices += [(prim.Comparison(element, ">", dtype.type(1)), "bool")]
        choices += [
            (Cast(np.dtype("complex128"), element), "complex128"),
            (Cast(np.dtype("float16"), element), "float16"),
        ]
    expr, dtype = draw(st.sampled_from(choices))
    ranks.compute(rank, (name,), expr, node.shape, dtype, stored=draw(st.integers(0, 3)) == 0)


def _combine(draw: Draw, ranks: Ranks) -> None:
    """A sum of two arrays, one of which may be broadcast from a number."""
    rank = _rank(draw, ranks)
    a, first = _array(draw, ranks, rank)
    fits = [n for n, node in ranks.arrays[rank].items() if node.shape in (first.shape, ())]
    b = draw(st.sampled_from(fits[::-1]))
    names = tuple(dict.fromkeys((a, b)))
    second = ranks.arrays[rank][b]
    left = read(0, own_index(len(first.shape)))
    right = read(names.index(b), own_index(len(second.shape)))
    ranks.compute(rank, names, left + right, first.shape, np.result_type(first.dtype, second.dtype))


def _reduction(draw: Draw, node: Node, body: Expr, axes: Sequence[int], summed: bool = False) -> tuple[Expr, Any]:
    """A reduction of `node` over `axes`, whose elements are `body`."""
    bounds = tuple((f"_r{axis}", 0, node.shape[axis]) for axis in axes)
    if node.dtype.kind == "b":
        if summed:
            return Reduce("sum", bounds, Cast(np.dtype("int64"), body)), "int64"
        return Reduce(draw(st.sampled_from(("any", "all"))), bounds, body), "bool"
    ordered = node.dtype.kind != "c" and all(node.shape[axis] for axis in axes)
    op = "sum" if summed else draw(st.sampled_from(("sum", "product", "min", "max") if ordered else ("sum", "product")))
    return Reduce(op, bounds, body), node.dtype


def _reduce(draw: Draw, ranks: Ranks) -> None:
    """A reduction over all axes or the last one."""
    rank = _rank(draw, ranks)
    name, node = _array(draw, ranks, rank)
    ndim = len(node.shape)
    axes = draw(st.sampled_from((tuple(range(ndim)), tuple(range(ndim))[-1:])))
    kept = [axis for axis in range(ndim) if axis not in axes]
    index = tuple(prim.Variable(f"_r{axis}" if axis in axes else f"_{kept.index(axis)}") for axis in range(ndim))
    expr, dtype = _reduction(draw, node, read(0, index), axes)
    shape = tuple(node.shape[axis] for axis in kept)
    if not axes:
        expr = read(0, ())
    ranks.compute(rank, (name,), expr, shape, dtype, stored=draw(st.integers(0, 3)) == 0)


def _centre(draw: Draw, ranks: Ranks) -> None:
    """Every element plus the sum of all: holds a reduction, and is as large as what it reduces."""
    rank = _rank(draw, ranks)
    name, node = _array(draw, ranks, rank)
    ndim = len(node.shape)
    if ndim == 0:
        return _map(draw, ranks)
    index = tuple(prim.Variable(f"_r{axis}") for axis in range(ndim))
    total, dtype = _reduction(draw, node, read(0, index), range(ndim), summed=True)
    ranks.compute(rank, (name,), read(0, own_index(ndim)) + total, node.shape, dtype)


def _gather(draw: Draw, ranks: Ranks) -> None:
    """The elements along the last axis, rolled."""
    rank = _rank(draw, ranks)
    name, node = _array(draw, ranks, rank)
    if not node.shape:
        return _map(draw, ranks)
    *outer, last = own_index(len(node.shape))
    index = prim.Remainder(last + 1, max(1, node.shape[-1]))
    ranks.compute(rank, (name,), read(0, (*outer, index)), node.shape, node.dtype)


def _call(draw: Draw, ranks: Ranks) -> None:
    """One or both results of a kernel, of any array and number there are."""
    rank = _rank(draw, ranks)
    dtypes, shapes = CALLED
    nodes = ranks.arrays[rank]
    fits = [n for n, node in nodes.items() if node.dtype.name in dtypes and node.shape in shapes]
    if not fits:
        return _map(draw, ranks)
    x = draw(st.sampled_from(fits[::-1]))
    numbers = [name for name in fits if nodes[name].dtype == nodes[x].dtype and not nodes[name].shape]
    number = draw(st.sampled_from(numbers[::-1])) if numbers else ranks.const(rank, np.ones((), nodes[x].dtype))
    kernel = twice_and_shifted(nodes[x].shape, nodes[x].dtype.name)
    for result in draw(st.sampled_from((("twice",), ("shifted",), ("twice", "shifted")))):
        ranks.call(rank, kernel, (x, number), result)


def _exchange(draw: Draw, ranks: Ranks) -> None:
    source, dest = _rank(draw, ranks), _rank(draw, ranks)
    for _ in range(draw(st.integers(1, 3))):
        ranks.move(source, _array(draw, ranks, source)[0], dest)


def _halo(draw: Draw, ranks: Ranks) -> None:
    """Every rank sends to the next one."""
    names = [_array(draw, ranks, rank)[0] for rank in range(ranks.size)]
    for rank, name in enumerate(names):
        ranks.move(rank, name, (rank + 1) % ranks.size)


def _forward(draw: Draw, ranks: Ranks) -> None:
    """A received array goes on as it is, perhaps to several ranks."""
    received = [(r, name) for r in range(ranks.size) for name, n in ranks.arrays[r].items() if isinstance(n, Recv)]
    if not received:
        return _exchange(draw, ranks)
    rank, name = draw(st.sampled_from(received[::-1]))
    for dest in draw(st.lists(st.integers(0, ranks.size - 1), min_size=1, max_size=3)):
        ranks.move(rank, name, dest)


def _cross(draw: Draw, ranks: Ranks) -> None:
    """A rank combines a reduction of its own, or what a call makes of it, with what another sends, for an output."""
    rank, other = _rank(draw, ranks), _rank(draw, ranks)
    name, node = _array(draw, ranks, rank)
    index = tuple(prim.Variable(f"_r{axis}") for axis in range(len(node.shape)))
    total, dtype = _reduction(draw, node, read(0, index), range(len(node.shape)))
    total = ranks.compute(rank, (name,), total, (), dtype)
    if np.dtype(dtype).name in CALLED[0] and draw(st.booleans()):
        total = ranks.call(rank, twice_and_shifted((), np.dtype(dtype).name), (total, total), "shifted")
    back = ranks.move(other, _array(draw, ranks, other)[0], rank)
    shape, late = ranks.arrays[rank][back].shape, ranks.arrays[rank][back].dtype
    expr = read(0, own_index(len(shape))) + read(1, ())
    last = ranks.compute(rank, (back, total), expr, shape, np.result_type(dtype, late))
    ranks.output(rank, f"cross{len(ranks.outputs[rank])}", last)


def _self(draw: Draw, ranks: Ranks) -> None:
    rank = _rank(draw, ranks)
    ranks.move(rank, _array(draw, ranks, rank)[0], rank)


def _allreduce(draw: Draw, ranks: Ranks) -> None:
    """Every rank contributes an element of an array of its own, times the index."""
    dtype, shape = np.dtype(draw(st.sampled_from(DTYPES[1:]))), draw(st.sampled_from(((), (2,), (0,))))
    op = draw(st.sampled_from(("sum",) if dtype.kind == "c" else ("sum", "min", "max")))
    for rank in range(ranks.size):
        name, node = _array(draw, ranks, rank)
        if (node.shape, node.dtype) != (shape, dtype):
            real = dtype.kind != "c" and node.dtype.kind == "c"
            first: Expr = read(0, (0,) * len(node.shape))
            first = prim.Call(prim.Variable("real"), (first,)) if real else first
            used = (name,) if 0 not in node.shape else ()
            expr = Cast(dtype, first) if used else Cast(dtype, 1)
            name = ranks.compute(rank, used, expr * (own_index(1)[0] + 1) if shape else expr, shape, dtype)
        ranks.allreduce(rank, name, op)


STEP = {
    "map": _map,
    "combine": _combine,
    "reduce": _reduce,
    "centre": _centre,
    "gather": _gather,
    "call": _call,
    "exchange": _exchange,
    "halo": _halo,
    "forward": _forward,
    "cross": _cross,
    "self": _self,
    "allreduce": _allreduce,
}
