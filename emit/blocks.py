"""Kernels over blocks of elements: what several work-items of a group need goes through local memory.

Inside a kernel every array is computed for the group's own elements. An array that a reader reads at another node than
its own, and that costs more than reading, is a phase: computed once per element and node into local memory, before a
barrier. Everything else is inlined. Short axes in front of the batch axis (components, directions) are written out,
so that a work-item computes all components of its node from common values.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass

import pymbolic.primitives as prim

from aotato.emit import body
from aotato.emit.axes import lanes
from aotato.emit.nest import Block, Kernel, Local, Nest
from aotato.frontend import expr as ex
from aotato.frontend import ir

LANES = 192  # work-items of a group, about; a group takes as many elements as fill it
PHASE_FLOPS = 4  # an elementwise array that costs less is computed anew by every reader
MOST_ELEMENTS = 32


@dataclass(frozen=True)
class _Plan:
    """One kernel: its arrays in order, which are phases, and the level of each inside the kernel."""

    program: ir.Program
    batch: Mapping[str, int]
    roots: tuple[str, ...]
    closure: tuple[str, ...]  # Lambdas computed here, in program order
    in_memory: frozenset[str]
    phases: frozenset[str]
    level: Mapping[str, int]


def kernel(
    program: ir.Program,
    batch: Mapping[str, int],
    name: str,
    part: int,
    roots: tuple[str, ...],
    in_memory: frozenset[str],
    local_bytes: int,
) -> Kernel | None:
    """The kernel that computes `roots` from arrays in memory, or None if its phases do not fit local memory.

    All roots have a batch axis, and every Lambda below them that is not in memory is read at its reader's element.
    """
    plan = _planned(program, batch, roots, in_memory)
    shapes = _shapes(plan)
    elements = program.arrays[roots[0]].shape[batch[roots[0]]]
    size = _block_size(plan, shapes, elements, local_bytes)
    if size is None:
        return None
    nests = tuple(_nest(plan, level, shape, names) for (level, shape), names in shapes.items())
    reads = dict.fromkeys(r for nest in nests for r in body.arrays_read(nest) if r not in plan.phases)
    local = tuple(Local(n, batch[n]) for n in plan.closure if n in plan.phases)
    return Kernel(name, part, nests, tuple(reads), roots, Block(elements, size, local))


def _planned(
    program: ir.Program, batch: Mapping[str, int], roots: tuple[str, ...], in_memory: frozenset[str]
) -> _Plan:
    closure = ir.computed_below(program, roots, in_memory)
    crossing = _crossing(program, batch, closure)
    flops: dict[str, int] = {}
    phases: set[str] = set()
    for name in closure:
        node = program.arrays[name]
        assert isinstance(node, ir.Lambda)
        below = sum(flops.get(node.operands[p], 0) for p, _ in ex.reads(node.expr))
        flops[name] = ex.flops(node.expr) + below
        if name in crossing and (ex.has_reduce(node.expr) or flops[name] >= PHASE_FLOPS):
            phases.add(name)
            flops[name] = 0
    level: dict[str, int] = {}
    for name in closure:
        level[name] = max(
            (level[op] + (op in phases) for op in ir.operands(program.arrays[name]) if op in level), default=0
        )
    return _Plan(program, batch, roots, closure, in_memory, frozenset(phases), level)


def _crossing(program: ir.Program, batch: Mapping[str, int], closure: tuple[str, ...]) -> set[str]:
    """Arrays that some reader reads at another node than its own."""
    found = set()
    inside = set(closure)
    for reader in closure:
        node = program.arrays[reader]
        assert isinstance(node, ir.Lambda)
        own = tuple(prim.Variable(f"_{a}") for a in lanes(node.shape, batch[reader])) if reader in batch else ()
        for position, indices in ex.reads(node.expr):
            operand = node.operands[position]
            if operand in inside and operand in batch:
                shape = program.arrays[operand].shape
                if tuple(indices[a] for a in lanes(shape, batch[operand])) != own:
                    found.add(operand)
    return found


def _shapes(plan: _Plan) -> dict[tuple[int, ir.Shape], list[str]]:
    """Results by (level, extents of the index space): each becomes a nest; levels ascend."""
    found: dict[tuple[int, ir.Shape], list[str]] = {}
    for name in plan.closure:
        if (name in plan.phases or name in plan.roots) and ir.size(plan.program.arrays[name].shape):
            found.setdefault((plan.level[name], _space(plan, name)), []).append(name)
    return dict(sorted(found.items(), key=lambda item: item[0][0]))


def _space(plan: _Plan, name: str) -> ir.Shape:
    shape, axis = plan.program.arrays[name].shape, plan.batch[name]
    return (shape[axis], *(shape[a] for a in lanes(shape, axis)))


def _block_size(
    plan: _Plan, shapes: Mapping[tuple[int, ir.Shape], list[str]], elements: int, local_bytes: int
) -> int | None:
    """Elements of a group: a power of two that fills the lanes and whose phases fit local memory."""
    inner = max((ir.size(space[1:]) for (_, space), names in shapes.items() if set(names) & set(plan.roots)), default=1)
    per_element = sum(ir.nbytes(plan.program.arrays[name]) // elements for name in plan.phases)
    size = 1
    while size < MOST_ELEMENTS and 2 * size * inner <= LANES and 2 * size * per_element <= local_bytes:
        size *= 2
    return size if size * per_element <= local_bytes else None


def _nest(plan: _Plan, level: int, space: ir.Shape, names: list[str]) -> Nest:
    results = tuple((name, indices) for name in names for indices in _elements(plan, name))

    def stored(name: str, indices: tuple[ex.Expr, ...]) -> bool:
        if name in plan.in_memory:
            return True
        here = bool(indices) and indices[plan.batch[name]] == prim.Variable("_0") if name in plan.phases else False
        return here and plan.level[name] < level

    return body.nest_of(plan.program, space, results, stored, shared=False)


def _elements(plan: _Plan, name: str) -> list[tuple[ex.Expr, ...]]:
    """One index tuple for each combination of unrolled components."""
    shape, axis = plan.program.arrays[name].shape, plan.batch[name]
    across = lanes(shape, axis)
    short = [a for a in range(len(shape)) if a != axis and a not in across]
    found = []
    for components in itertools.product(*(range(shape[a]) for a in short)):
        at: dict[int, ex.Expr] = dict(zip(short, components, strict=True))
        at |= {axis: prim.Variable("_0")} | {a: prim.Variable(f"_{i + 1}") for i, a in enumerate(across)}
        found.append(tuple(at[a] for a in range(len(shape))))
    return found
