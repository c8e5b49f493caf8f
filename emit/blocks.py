"""Kernels over blocks of elements: what several work-items of a group need goes through local memory.

Inside a kernel every array is computed for the group's own elements, in nests one after another with barriers between
(`phases`). Short axes in front of the batch axis (components, directions) are written out, so that a work-item computes
all components of its node from common values; where sums dominate, it computes several nodes (`tiles`).
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping

import pymbolic.primitives as prim

from aotato.emit import body, slots, tiles
from aotato.emit.axes import lanes
from aotato.emit.nest import LOCAL, Block, Kernel, Nest, array_of, is_local
from aotato.emit.phases import Phases, planned
from aotato.emit.target import Target
from aotato.frontend import expr as ex
from aotato.frontend import ir

_Spaces = Mapping[tuple[int, ir.Shape], list[str]]


def kernel(
    program: ir.Program,
    batch: Mapping[str, int],
    name: str,
    part: int,
    roots: tuple[str, ...],
    in_memory: frozenset[str],
    target: Target,
) -> Kernel | None:
    """The kernel that computes `roots` from arrays in memory, or None if its phases do not fit local memory.

    All roots have a batch axis, and every Lambda below them that is not in memory is read at its reader's element.
    """
    for staging in (True, False):
        plan = planned(program, batch, roots, in_memory, staging)
        nests = _nests(plan, target)
        local = slots.slots(program, batch, _lives(plan, nests))
        elements = program.arrays[roots[0]].shape[batch[roots[0]]]
        made = _block(plan, [nest for _, nest in nests], local, elements, target)
        if made is not None:
            done = tuple(nest for _, nest in nests)
            reads = dict.fromkeys(r for nest in done for r in body.arrays_read(nest))
            return Kernel(name, part, done, tuple(reads), roots, made)
    return None


def _nests(plan: Phases, target: Target) -> list[tuple[int, Nest]]:
    """Nests with their levels, which ascend."""
    return [(level, _tiled(plan, level, space, names, target)) for (level, space), names in _spaces(plan).items()]


def _spaces(plan: Phases) -> _Spaces:
    """Results by (level, extents of the index space): each becomes a nest; levels ascend."""
    found: dict[tuple[int, ir.Shape], list[str]] = {}
    for name in (*plan.staged, *plan.closure):
        if (name in plan.local or name in plan.roots) and ir.size(plan.program.arrays[name].shape):
            found.setdefault((plan.level.get(name, 0), _space(plan, name)), []).append(name)
    return dict(sorted(found.items(), key=lambda item: item[0][0]))


def _space(plan: Phases, name: str) -> ir.Shape:
    shape, axis = plan.program.arrays[name].shape, plan.batch[name]
    return (shape[axis], *(shape[a] for a in lanes(shape, axis)))


def _tiled(plan: Phases, level: int, space: ir.Shape, names: list[str], target: Target) -> Nest:
    single = _nest(plan, level, space, names, tiles.SINGLE)
    tile = tiles.tile_of(single, target.accumulators)
    return single if tile == tiles.SINGLE else _nest(plan, level, space, names, tile)


def _nest(plan: Phases, level: int, space: ir.Shape, names: list[str], tile: tiles.Tile) -> Nest:
    results = tuple(
        (name, indices) for number in range(tile.count) for name in names
        for indices in _elements(plan, name, tile, number)
    )

    def where(name: str, indices: tuple[ex.Expr, ...]) -> str | None:
        if name in plan.local and indices and indices[plan.batch[name]] == prim.Variable("_0"):
            before = plan.level.get(name, 0) < level
            if before:
                return LOCAL + name
        return name if name in plan.in_memory else None

    return body.nest_of(plan.program, tile.lanes(space) if tile.axis else space, results, where, shared=False)


def _elements(plan: Phases, name: str, tile: tiles.Tile, number: int) -> list[tuple[ex.Expr, ...]]:
    """Node `number` of the tile: one index tuple for each combination of unrolled components."""
    shape, axis = plan.program.arrays[name].shape, plan.batch[name]
    across = lanes(shape, axis)
    short = [a for a in range(len(shape)) if a != axis and a not in across]
    own: dict[int, ex.Expr] = {axis: prim.Variable("_0")}
    for i, a in enumerate(across):
        variable = prim.Variable(f"_{i + 1}")
        own[a] = prim.Sum((variable, tile.step * number)) if i + 1 == tile.axis and number else variable
    found = []
    for components in itertools.product(*(range(shape[a]) for a in short)):
        at = own | dict(zip(short, components, strict=True))
        found.append(tuple(at[a] for a in range(len(shape))))
    return found


def _lives(plan: Phases, nests: list[tuple[int, Nest]]) -> dict[str, tuple[int, int]]:
    """Levels at which arrays in local memory are written and last read."""
    lives = {name: (plan.level.get(name, 0), plan.level.get(name, 0)) for name in (*plan.staged, *plan.closure)
             if name in plan.local}
    for level, nest in nests:
        for item in (*nest.statements, *nest.stores):
            for node in ex.walk(item.expr):
                if isinstance(node, prim.Subscript) and is_local(node.aggregate.name):
                    name = array_of(node.aggregate.name)
                    lives[name] = (lives[name][0], max(lives[name][1], level))
    return lives


def _block(
    plan: Phases, nests: list[Nest], local: tuple[slots.Local, ...], elements: int, target: Target
) -> Block | None:
    """As many elements as fill the lanes with the last nest, and as fit local memory; None where not one does."""
    bytes_each = slots.per_element(plan.program, plan.batch, local)
    most = target.local_bytes // bytes_each if bytes_each else target.elements
    inner = ir.size(nests[-1].shape[1:])
    size = max(1, min(most, target.elements, target.lanes // inner, elements))
    if size > most:
        return None
    lanes_ = max(1, min(size * inner, target.lanes))
    return Block(elements, size, lanes_, local)
