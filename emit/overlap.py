"""Launch a kernel over blocks twice where most elements read nothing that is still travelling.

Its first elements up to the first one that reads a message run while the messages travel, the others after. Which
elements read messages is what the constant conditions around the reads say.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterator, Sequence
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import integers
from aotato.emit.joined import Joined
from aotato.emit.nest import Call, Kernel, Nest
from aotato.emit.target import Target
from aotato.frontend import expr as ex
from aotato.frontend import ir


def overlapped(ranks: Sequence[tuple[Joined, Sequence[Kernel | Call]]], target: Target) -> list[list[Kernel | Call]]:
    """The kernels of every rank in launch order, some split in two; number k is split on all ranks or on none."""
    found = [[interior(joined, kernels, k) for k in range(len(kernels))] for joined, kernels in ranks]
    made: list[list[Kernel | Call]] = [[] for _ in ranks]
    alike = len({len(kernels) for _, kernels in ranks}) == 1
    for rank, (_, kernels) in enumerate(ranks):
        for k, kernel in enumerate(kernels):
            worth = alike and _is_worth([(r[1][k], found[n][k]) for n, r in enumerate(ranks)], target)
            made[rank].extend(_halves(kernel, found[rank][k]) if worth else [kernel])
    return made


def interior(joined: Joined, kernels: Sequence[Kernel | Call], number: int) -> int:
    """How many elements, from the first on, kernel `number` can compute before the last messages arrive."""
    kernel, program = kernels[number], joined.partition.program
    travelling = arriving(joined, kernel.part - 1)
    beside = {name for other in kernels if other.part == kernel.part for name in other.writes}
    reduced = {name for part in joined.partition.parts if part.number == kernel.part - 1
               for reduction in part.reductions for name in reduction.results}
    if kernel.block is None or not travelling.intersection(kernel.reads):
        return 0
    if (beside | reduced).intersection(kernel.reads):
        return 0
    return min(_first_reader(program, nest, travelling) for nest in kernel.nests)


def arriving(joined: Joined, batch: int) -> set[str]:
    """Arrays that come in messages of a batch."""
    alone = {parcel.received for m in joined.partition.recvs if m.batch == batch for parcel in m.parcels}
    return alone | {joint.array for joint in joined.joints if joint.batch == batch and not joint.outgoing}


def _is_worth(ranks: Sequence[tuple[Kernel | Call, int]], target: Target) -> bool:
    """Whether every rank has a block kernel there, and the first halves take longer than the launches they cost."""
    if any(kernel.block is None for kernel, _ in ranks):
        return False
    return max(count * _bytes_each(kernel) for kernel, count in ranks) >= target.hidden_bytes


def _bytes_each(kernel: Kernel | Call) -> int:
    assert kernel.block is not None
    return 8 * sum(ir.size(nest.shape[1:]) * len(nest.stores) for nest in kernel.nests)


def _halves(kernel: Kernel | Call, count: int) -> list[Kernel | Call]:
    block = kernel.block
    assert isinstance(kernel, Kernel) and block is not None
    early = dataclasses.replace(block, first=0, elements=count)
    late = dataclasses.replace(block, first=count, elements=block.elements - count)
    halves = [dataclasses.replace(kernel, block=early, early=True), dataclasses.replace(kernel, block=late)]
    return [half for half in halves if half.block is not None and half.block.elements]


def _first_reader(program: ir.Program, nest: Nest, arrays: Collection[str]) -> int:
    """The first element of axis 0 for which the nest reads one of `arrays`; the number of elements if none does."""
    first = nest.shape[0]
    for item in (*nest.statements, *nest.stores):
        for conditions in _conditions(item.expr, arrays, ()):
            first = min(first, _first_true(program, nest, conditions))
    return first


_Conditions = tuple[tuple[ex.Expr, bool], ...]  # a condition, and whether it must hold


def _conditions(expr: ex.Expr, arrays: Collection[str], around: _Conditions) -> Iterator[_Conditions]:
    """The conditions around every read of one of `arrays`."""
    if isinstance(expr, prim.Subscript) and expr.aggregate.name in arrays:
        yield around
    if isinstance(expr, prim.If):
        yield from _conditions(expr.condition, arrays, around)
        yield from _conditions(expr.then, arrays, (*around, (expr.condition, True)))
        yield from _conditions(expr.else_, arrays, (*around, (expr.condition, False)))
        return
    for child in ex.children(expr):
        yield from _conditions(child, arrays, around)


def _first_true(program: ir.Program, nest: Nest, conditions: _Conditions) -> int:
    """The first element of axis 0 for which the conditions may hold together."""

    def table(read: prim.Subscript) -> Any:
        node = program.arrays.get(read.aggregate.name)
        return program.constants[node.digest] if isinstance(node, ir.Const) else None

    ranks = len(nest.shape)
    axes = {f"_{axis}": np.arange(extent).reshape([-1 if a == axis else 1 for a in range(ranks)])
            for axis, extent in enumerate(nest.shape)}
    holds: Any = np.ones((nest.shape[0], *(1 for _ in nest.shape[1:])), bool)
    for condition, wanted in conditions:
        if integers.is_known(condition, axes, table):  # others only a run knows: they may hold anywhere
            value = np.asarray(integers.evaluate(condition, axes, table), bool)
            holds = holds & (value if wanted else ~value)
    some = holds.reshape(nest.shape[0], -1).any(axis=1)
    return int(some.argmax()) if some.any() else nest.shape[0]
