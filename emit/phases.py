"""Which arrays of a kernel over blocks of elements go through local memory, and after how many barriers each is known.

A phase is an array computed once for each element and node into local memory. An array is one where readers at other
nodes than its own would compute it many times over, or would repeat a reduction. An array in memory that loops read
over and over at the group's own elements is staged: copied into local memory first. All else is inlined.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import pymbolic.primitives as prim

from aotato.emit import slots
from aotato.emit.axes import is_local, lanes
from aotato.emit.values import UNROLLED
from aotato.frontend import expr as ex
from aotato.frontend import ir

LOAD = 8  # flops that a read of memory is worth, which may be far away
ACCESS = 2  # flops that an access to local memory is worth
FEWEST_STAGED = 16  # numbers of an element that are worth copying
STAGED_BYTES = 4096  # for an element of an array that is worth copying


@dataclass(frozen=True)
class Read:
    """An array that another one reads."""

    operand: str
    indices: tuple[ex.Expr, ...]
    loops: tuple[str, ...]  # that stay loops, and on which its indices depend
    axes: frozenset[int]  # of the reader, on which its indices depend
    times: int  # different indices for one element of the reader


@dataclass(frozen=True)
class Phases:
    """One kernel: its arrays in order, which are in local memory, and how many barriers precede each."""

    program: ir.Program
    batch: Mapping[str, int]
    roots: tuple[str, ...]
    closure: tuple[str, ...]  # Lambdas computed here, in program order
    in_memory: frozenset[str]
    phases: frozenset[str]
    staged: tuple[str, ...]
    level: Mapping[str, int]
    reads: Mapping[str, tuple[Read, ...]]  # of each of the closure
    crossing: frozenset[str]  # read at other nodes than the reader's own
    same: Mapping[str, str] = field(default_factory=dict)  # phases that hold what another one holds
    layout: str = slots.ROWS  # of local memory

    def copied(self, reader: str, read: Read) -> bool:
        """Whether the read is of a copy in local memory; reads at the reader's own node need none."""
        return read.operand in self.staged and _elsewhere(self.program, self.batch, reader, read, self.layout)

    @property
    def local(self) -> frozenset[str]:
        return (self.phases | frozenset(self.staged)) - frozenset(self.same)


def planned(
    program: ir.Program,
    batch: Mapping[str, int],
    roots: tuple[str, ...],
    in_memory: frozenset[str],
    staging: bool,
    layout: str = slots.ROWS,
) -> Phases:
    """`staging` allows copies of arrays that are in memory."""
    closure = ir.computed_below(program, roots, in_memory)
    found = {name: tuple(_reads(program.arrays[name])) for name in closure}
    crossing = frozenset(_crossing(program, batch, closure, found))
    phases, evaluations = _phases(program, batch, roots, closure, found, crossing)
    staged = _staged(program, batch, found, evaluations, layout) if staging else ()
    level = _levels(program, batch, closure, found, phases, staged, layout)
    return Phases(
        program, batch, roots, closure, in_memory, phases, staged, level, found, crossing, layout=layout
    )


def _levels(
    program: ir.Program,
    batch: Mapping[str, int],
    closure: tuple[str, ...],
    reads: Mapping[str, tuple[Read, ...]],
    phases: frozenset[str],
    staged: tuple[str, ...],
    layout: str,
) -> dict[str, int]:
    level: dict[str, int] = {}
    for name in closure:
        below = (level[r.operand] + (r.operand in phases) for r in reads[name] if r.operand in level)
        copies = any(r.operand in staged and _elsewhere(program, batch, name, r, layout) for r in reads[name])
        level[name] = max(max(below, default=0), int(copies))
    return level


def sums_apart(plan: Phases) -> Phases:
    """Sums through local memory, so that what is made of them does not occupy registers beside them.

    What is added up from sums with factors of the element alone goes there as a whole.
    """
    linear: dict[str, bool] = {}  # whether loops lead to it; arrays that need more of the node are not listed
    for name in plan.closure:
        if name in plan.batch and name not in plan.phases and _of_element(plan, name, linear):
            loops = any(read.loops for read in plan.reads[name])
            linear[name] = loops or any(linear.get(read.operand, False) for read in plan.reads[name])
    sums = {name for name, looped in linear.items() if looped and name not in plan.roots}
    cut: set[str] = set()
    for name in plan.closure:
        if name not in sums:
            cut |= {read.operand for read in plan.reads[name] if read.operand in sums}
    phases = plan.phases | cut
    level = _levels(plan.program, plan.batch, plan.closure, plan.reads, phases, plan.staged, plan.layout)
    return replace(plan, phases=phases, level=level)


def _of_element(plan: Phases, name: str, linear: Mapping[str, bool]) -> bool:
    """Whether the array needs nothing of its node but sums: reads in loops, of the element, and of such arrays."""
    own = {f"_{a}" for a in lanes(plan.program.arrays[name].shape, plan.batch[name])}
    for read in plan.reads[name]:
        used = {v.name for i in read.indices for v in ex.walk(i) if isinstance(v, prim.Variable)}
        if not read.loops and used & own and read.operand not in linear:
            return False
    return True


def _reads(node: ir.Node) -> Iterator[Read]:
    assert isinstance(node, ir.Lambda)

    def rec(expr: ex.Expr, loops: Mapping[str, int]) -> Iterator[Read]:
        if isinstance(expr, ex.Reduce):
            loops = {**loops, **{name: max(0, upper - lower) for name, lower, upper in expr.bounds}}
        if isinstance(expr, prim.Subscript):
            depends = {v.name for i in expr.index_tuple for v in ex.walk(i) if isinstance(v, prim.Variable)}
            times = math.prod(extent for name, extent in loops.items() if name in depends)
            axes = frozenset(a for a in range(len(node.shape)) if f"_{a}" in depends)
            around = tuple(name for name, extent in loops.items() if name in depends and extent > UNROLLED)
            yield Read(node.operands[ex.operand_position(expr)], expr.index_tuple, around, axes, times)
        for child in ex.children(expr):
            yield from rec(child, loops)

    return rec(node.expr, {})


def _phases(
    program: ir.Program,
    batch: Mapping[str, int],
    roots: tuple[str, ...],
    closure: tuple[str, ...],
    reads: Mapping[str, tuple[Read, ...]],
    crossing: frozenset[str],
) -> tuple[frozenset[str], Mapping[str, int]]:
    """Phases, and how often each array is evaluated, over all elements: readers first, from the results down."""
    cost = dict.fromkeys(closure, 0.0) | _cost(program, closure, reads, crossing)
    evaluations = dict.fromkeys(closure, 0)
    phases: set[str] = set()
    for name in reversed(closure):
        node = program.arrays[name]
        assert isinstance(node, ir.Lambda)
        size, times = ir.size(node.shape), evaluations[name]
        anew = (times - size) * cost[name] < (times + size) * ACCESS
        if name in crossing and (ex.has_reduce(node.expr) or (cost[name] and not anew)):
            phases.add(name)
        if name in phases or name in roots or (name in batch and name not in crossing):
            evaluations[name] = size
        for read in reads[name]:
            # Reads of other elements do not go through local memory
            if read.operand in evaluations and not _away(read, batch, name):
                shared = _shared(node.shape, batch.get(name), read)
                evaluations[read.operand] += evaluations[name] * read.times // shared
    return frozenset(phases), evaluations


def _shared(shape: ir.Shape, axis: int | None, read: Read) -> int:
    """How many components of the reader, all computed by one work-item, read the same element."""
    if axis is None:
        return 1
    across = lanes(shape, axis)
    return math.prod(n for a, n in enumerate(shape) if a != axis and a not in across and a not in read.axes)


def _crossing(
    program: ir.Program, batch: Mapping[str, int], closure: tuple[str, ...], reads: Mapping[str, tuple[Read, ...]]
) -> set[str]:
    """Arrays that some reader reads at another node than its own."""
    found, inside = set(), set(closure)
    for reader in closure:
        shape = program.arrays[reader].shape
        own = tuple(prim.Variable(f"_{a}") for a in lanes(shape, batch[reader])) if reader in batch else ()
        for read in reads[reader]:
            if read.operand in inside and read.operand in batch:
                across = lanes(program.arrays[read.operand].shape, batch[read.operand])
                if tuple(read.indices[a] for a in across) != own:
                    found.add(read.operand)
    return found


def _cost(
    program: ir.Program, closure: tuple[str, ...], reads: Mapping[str, tuple[Read, ...]], crossing: frozenset[str]
) -> dict[str, float]:
    """Flops and accesses for an element of each crossing array, where those that are computed together share them.

    Copies of memory are read there instead, and not listed.
    """
    whole: dict[str, float] = {}
    for name in closure:
        node = program.arrays[name]
        assert isinstance(node, ir.Lambda)
        loads = sum(LOAD * read.times for read in reads[name] if read.operand not in reads)
        whole[name] = ir.size(node.shape) * (ex.flops(node.expr) + loads)
    cones = {name: _cone(name, reads) for name in closure if name in crossing}
    users = dict.fromkeys(closure, 0)
    for cone in cones.values():
        for name in cone:
            users[name] += 1
    return {
        name: sum(whole[a] / users[a] for a in cone) / max(1, ir.size(program.arrays[name].shape))
        for name, cone in cones.items()
        if any(ex.flops(program.arrays[a].expr) for a in cone)  # type: ignore[union-attr]
    }


def _cone(name: str, reads: Mapping[str, tuple[Read, ...]]) -> set[str]:
    """An array and all that it is computed from in the kernel."""
    found, stack = {name}, [name]
    while stack:
        for read in reads[stack.pop()]:
            if read.operand in reads and read.operand not in found:
                found.add(read.operand)
                stack.append(read.operand)
    return found


def _staged(
    program: ir.Program,
    batch: Mapping[str, int],
    reads: Mapping[str, tuple[Read, ...]],
    evaluations: Mapping[str, int],
    layout: str,
) -> tuple[str, ...]:
    """Arrays in memory that are read at the reader's own element, but at other nodes, often enough to copy them."""
    often: dict[str, int] = {}
    for reader, mine in reads.items():
        for read in mine:
            if read.operand not in reads and _elsewhere(program, batch, reader, read, layout):
                shared = _shared(program.arrays[reader].shape, batch[reader], read)
                often[read.operand] = often.get(read.operand, 0) + evaluations[reader] * read.times // shared
    return tuple(name for name, times in often.items() if _worth_staging(program, batch, name, times, layout))


def _elsewhere(
    program: ir.Program, batch: Mapping[str, int], reader: str, read: Read, layout: str
) -> bool:
    """Whether the read is at the reader's element and at a node that is not the reader's own.

    Where a lane computes all nodes of an element, it reads numbers of the element again for every node.
    """
    if reader not in batch or read.operand not in batch or not _own(read, batch, reader):
        return False
    across = lanes(program.arrays[read.operand].shape, batch[read.operand])
    own = tuple(prim.Variable(f"_{a}") for a in lanes(program.arrays[reader].shape, batch[reader]))
    found = tuple(read.indices[a] for a in across)
    return found != own and (layout == slots.ACROSS or any(not isinstance(index, int) for index in found))


def _away(read: Read, batch: Mapping[str, int], reader: str) -> bool:
    return read.operand in batch and not (reader in batch and _own(read, batch, reader))


def _own(read: Read, batch: Mapping[str, int], reader: str) -> bool:
    return is_local(read.indices, batch[read.operand], batch[reader])


def _worth_staging(program: ir.Program, batch: Mapping[str, int], name: str, times: int, layout: str) -> bool:
    node = program.arrays[name]
    elements = max(1, node.shape[batch[name]])
    size = ir.size(node.shape)
    saved = (times - size) * LOAD - (times + size) * ACCESS
    large = layout == slots.ACROSS or size >= FEWEST_STAGED * elements
    kinds = "fiu" if layout == slots.ACROSS else "f"
    return saved > 0 and large and node.dtype.kind in kinds and ir.nbytes(node) // elements <= STAGED_BYTES

