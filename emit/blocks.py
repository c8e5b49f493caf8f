"""Kernels over blocks of elements: what several work-items of a group need goes through local memory.

Inside a kernel every array is computed for the group's own elements, in nests one after another with barriers between
(`phases`, `steps`). Short axes in front of the batch axis (components, directions) are written out, so that a work-item
computes all components of its node from common values; where sums dominate, it computes several nodes (`tiles`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence

import pymbolic.primitives as prim

from aotato.emit import body
from aotato.emit.axes import lanes
from aotato.emit.nest import LOCAL, Block, Kernel, Nest, array_of, inside, is_local
from aotato.emit.phases import Phases, planned
from aotato.emit.steps import Steps, ordered, with_early_sums
from aotato.emit.target import Target
from aotato.emit.tiles import SINGLE, Tile, tile_of
from aotato.frontend import expr as ex
from aotato.frontend import ir


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
        steps = ordered(plan)
        tiles_ = _tiles(plan, steps, target)
        if _lanes_that_fit(steps, tiles_, target) < target.lanes:
            early = with_early_sums(plan)
            if early is not None and early.bytes_each < steps.bytes_each:
                last, steps = tiles_[-1], early
                tiles_ = [last if step.space == steps.steps[-1].space and (step.kept or step is steps.steps[-1])
                          else tile for step, tile in zip(steps.steps, _tiles(plan, steps, target), strict=True)]
        block = _block(plan, steps, tiles_, target)
        if block is not None:
            nests = tuple(_nest(plan, steps, number, tile) for number, tile in enumerate(tiles_))
            reads = dict.fromkeys(r for nest in nests for r in body.arrays_read(nest))
            return Kernel(name, part, nests, tuple(reads), roots, block)
    return None


def sharing(program: ir.Program, kernels: Sequence[Kernel]) -> bool:
    """Whether several work-items of a group read what one has computed, or components of a work-item share values."""
    over = [kernel for kernel in kernels if kernel.block is not None]
    indices = (index for kernel in over for nest in kernel.nests for store in nest.stores for index in store.indices)
    return any(type(index) is int for index in indices) or any(_rereads(program, kernel) for kernel in over)


def _rereads(program: ir.Program, kernel: Kernel) -> bool:
    """Whether some array in local memory is read more than once an element."""
    assert kernel.block is not None
    reads: dict[str, int] = {}
    for nest in kernel.nests:
        extents = {loop.name: loop.upper - loop.lower for loop in nest.loops}
        for item in (*nest.statements, *nest.stores):
            times = math.prod(extents[name] for name in inside(item)) * ir.size(nest.shape[1:])
            for node in ex.walk(item.expr):
                if isinstance(node, prim.Subscript) and is_local(node.aggregate.name):
                    name = array_of(node.aggregate.name)
                    reads[name] = reads.get(name, 0) + times
    return any(count * kernel.block.elements > ir.size(program.arrays[name].shape) for name, count in reads.items())


def _tiles(plan: Phases, steps: Steps, target: Target) -> list[Tile]:
    return [tile_of(_nest(plan, steps, number, SINGLE), target.accumulators) for number in range(len(steps.steps))]


def _lanes_that_fit(steps: Steps, tiles_: list[Tile], target: Target) -> int:
    """Work-items that the last step has for as many elements as local memory holds."""
    fit = target.local_bytes // steps.bytes_each if steps.bytes_each else target.elements
    return fit * _work(steps, tiles_)


def _work(steps: Steps, tiles_: list[Tile]) -> int:
    return ir.size(tiles_[-1].lanes(steps.steps[-1].space)[1:])


def _nest(plan: Phases, steps: Steps, number: int, tile: Tile) -> Nest:
    step, local = steps.steps[number], steps.reads[number]
    results = tuple(
        (name, indices) for k in range(tile.count) for name in step.names for indices in _elements(plan, name, tile, k)
    )
    kept = frozenset() if step.kept else steps.kept

    def where(name: str, indices: tuple[ex.Expr, ...]) -> str | None:
        own = bool(indices) and name in plan.batch and indices[plan.batch[name]] == prim.Variable("_0")
        if name in kept or (own and name in local):
            return LOCAL + name
        return name if name in plan.in_memory else None

    return body.nest_of(plan.program, tile.lanes(step.space), results, where, shared=False)


def _elements(plan: Phases, name: str, tile: Tile, number: int) -> list[tuple[ex.Expr, ...]]:
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


def _block(plan: Phases, steps: Steps, tiles_: list[Tile], target: Target) -> Block | None:
    """As many elements as fill the lanes with the last nest, and as fit local memory; None where not one does."""
    elements = steps.steps[-1].space[0]
    most = target.local_bytes // steps.bytes_each if steps.bytes_each else target.elements
    work = _work(steps, tiles_)
    if most < 1:
        return None
    size = _size(max(1, min(most, target.elements, target.lanes // work, elements)), work, target.width)
    return Block(elements, size, max(1, min(size * work, target.lanes)), steps.local, steps.kept)


def _size(most: int, work: int, width: int) -> int:
    """At most `most` elements of `work` work-items each, so that few of those that run in lockstep idle."""

    def busy(size: int) -> float:
        return size * work / (-(-size * work // width) * width)

    return max(range(most - most // 4, most + 1), key=lambda size: (round(8 * busy(size)), size))
