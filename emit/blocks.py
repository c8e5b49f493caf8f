"""Kernels over blocks of elements: what several work-items of a group need goes through local memory.

Where work-items run one after another, a group is one, and its own memory takes the place of local memory.

Inside a kernel every array is computed for the group's own elements, in nests one after another with barriers between
(`phases`, `steps`). Short axes in front of the batch axis (components, directions) are written out, so that a work-item
computes all components of its node from common values; where sums dominate, it computes several nodes (`tiles`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pymbolic.primitives as prim

from aotato.emit import body, small_matrices
from aotato.emit.axes import lanes
from aotato.emit.nest import LOCAL, Block, Kernel, Nest, array_of, inside, is_local
from aotato.emit.phases import Phases, planned, sums_apart
from aotato.emit.slots import ACROSS, COLUMNS, ROWS
from aotato.emit.small_matrices import as_matrix
from aotato.emit.statements import arrays_read
from aotato.emit.steps import Steps, ordered, with_early_sums
from aotato.emit.target import Target
from aotato.emit.tiles import MATRIX, MOST_BESIDE, MOST_PAIRS, SINGLE, Tile, is_matrix, tile_of
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.text_expr import expr_text

GROUPS = 2  # that the least local memory should hold


def kernel(
    program: ir.Program,
    batch: Mapping[str, int],
    name: str,
    part: int,
    roots: tuple[str, ...],
    in_memory: frozenset[str],
    target: Target,
) -> Kernel | None:
    """The kernel that computes `roots` from arrays in memory, or None if its phases do not fit.

    All roots have a batch axis, and every Lambda below them that is not in memory is read at its reader's element.
    """
    for staging in (True, False):
        layout = ROWS if target.lockstep else ACROSS
        plan = _merged(planned(program, batch, roots, in_memory, staging, layout))
        for variant, matrices in _variants(plan, target):
            found = _mapped(variant, target, matrices)
            if found is not None:
                nests, block = found
                reads = dict.fromkeys(r for nest in nests for r in arrays_read(nest))
                return Kernel(name, part, nests, tuple(reads), roots, block)
    return None


def _variants(plan: Phases, target: Target) -> Iterator[tuple[Phases, bool]]:
    """Ways to map the kernel, the best first: matrix products with all else, before all else, or none."""
    if target.matrices:
        columns = replace(plan, layout=COLUMNS)
        yield columns, True
        if target.sums_apart:
            yield sums_apart(columns), True
    yield plan, False


def _merged(plan: Phases) -> Phases:
    """Phases with equal values are one."""
    steps = ordered(plan)
    same: dict[str, str] = {}
    for number in range(len(steps.steps)):
        values: dict[str, dict[tuple[ex.Expr, ...], ex.Expr]] = {}
        for store in _nest(plan, steps, number, SINGLE).stores:
            values.setdefault(store.array, {})[store.indices] = store.expr
        first: dict[str, str] = {}
        for name in values:
            # Texts, as pymbolic's own cut deep expressions off
            stores = sorted((*map(expr_text, indices), expr_text(expr)) for indices, expr in values[name].items())
            key = repr((plan.program.arrays[name].dtype, stores))
            other = first.setdefault(key, name)
            if other != name and {name, other} <= plan.phases and name not in plan.roots:
                same[name] = other
    return replace(plan, same=same)


def _mapped(plan: Phases, target: Target, matrices: bool) -> tuple[tuple[Nest, ...], Block] | None:
    """Nests, and how groups share them out; None if that is impossible."""
    steps = ordered(plan)
    if plan.layout == ACROSS:
        block = _across(plan, steps, target)
        return None if block is None else (tuple(_nest(plan, steps, i, SINGLE) for i in range(len(steps.steps))), block)
    tiles_ = _tiles(plan, steps, target, matrices)
    if matrices and not any(tile.matrix for tile in tiles_):
        return None
    # Several groups side by side hide each other's waits; early sums stay with work-items that have one turn
    if _work(steps, tiles_) <= target.lanes and _lanes_that_fit(steps, tiles_, target) < GROUPS * target.lanes:
        early = with_early_sums(plan)
        if early is not None and early.bytes_each < steps.bytes_each:
            steps, tiles_ = early, _tiles(plan, early, target, matrices, tiles_[-1])
    block = _block(steps, tiles_, target)
    return None if block is None else (tuple(_nest(plan, steps, i, tile) for i, tile in enumerate(tiles_)), block)


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


def _tiles(
    plan: Phases, steps: Steps, target: Target, matrices: bool, last: Tile | None = None
) -> list[Tile]:
    """One for each step. Where sums are taken early, both steps have the tile `last`."""
    found = []
    for number, step in enumerate(steps.steps):
        if last and (step.kept or number == len(steps.steps) - 1):
            found.append(last)
            continue
        single = _nest(plan, steps, number, SINGLE)
        # All products of a kernel share its lanes
        most = MOST_PAIRS if number < len(steps.steps) - 1 else MOST_BESIDE
        fits = matrices and step.space == steps.steps[-1].space and is_matrix(single, most)
        found.append(MATRIX if fits else tile_of(single, target.accumulators))
    return found


def _lanes_that_fit(steps: Steps, tiles_: list[Tile], target: Target) -> int:
    """Work-items that the last step has for as many elements as local memory holds."""
    fit = target.local_bytes // steps.bytes_each if steps.bytes_each else target.elements
    return fit * _work(steps, tiles_)


def _work(steps: Steps, tiles_: list[Tile]) -> int:
    """Work-items for an element: for a matrix product, or else for the results."""
    space = steps.steps[-1].space
    return next((tile.lanes_each(space) for tile in tiles_ if tile.matrix), tiles_[-1].lanes_each(space))


def _nest(plan: Phases, steps: Steps, number: int, tile: Tile) -> Nest:
    step, local = steps.steps[number], steps.reads[number]
    results = tuple(
        (name, indices) for k in range(tile.count) for name in step.names for indices in _elements(plan, name, tile, k)
    )
    kept = frozenset() if step.kept else steps.kept

    def where(name: str, indices: tuple[ex.Expr, ...]) -> str | None:
        own = bool(indices) and name in plan.batch and indices[plan.batch[name]] == prim.Variable("_0")
        here = plan.same.get(name, name)
        if name in kept or (own and here in local):
            return LOCAL + here
        return name if name in plan.in_memory else None

    nest = body.nest_of(plan.program, tile.space(step.space), results, where, shared=False)
    return as_matrix(nest) if tile.matrix else nest


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


def _block(steps: Steps, tiles_: list[Tile], target: Target) -> Block | None:
    """As many elements as fill the lanes with the last nest, and as fit local memory; None where not one does."""
    elements, work = steps.steps[-1].space[0], _work(steps, tiles_)
    most = target.local_bytes // steps.bytes_each if steps.bytes_each else target.elements
    if any(tile.matrix for tile in tiles_):
        size = min(most, target.matrix_lanes // work, target.elements) // small_matrices.ROWS * small_matrices.ROWS
        lanes_ = max(size * work, min(target.matrix_least, size * ir.size(steps.steps[-1].space[1:])))
        return Block(elements, size, lanes_, steps.local, kept=steps.kept) if size else None
    if most < 1:
        return None
    size = _size(max(1, min(most, target.elements, target.lanes // work, elements)), work, target.width)
    return Block(elements, size, max(1, min(size * work, target.lanes)), steps.local, kept=steps.kept)


def _across(plan: Phases, steps: Steps, target: Target) -> Block | None:
    """One work-item, whose innermost loops run over the elements of the block; None where these do not fit.

    As many elements as keep its arrays in the fastest cache, but enough to fill a vector.
    """
    elements, each = steps.steps[-1].space[0], max(1, steps.bytes_each)
    vector = max(1, target.vector_bytes // max(plan.program.arrays[name].dtype.itemsize for name in plan.roots))
    size = min(target.elements, target.near_bytes // each) // vector * vector
    size = min(max(size, vector), target.private_bytes // each)
    return Block(elements, size, 1, steps.local, across=True) if size else None


def _size(most: int, work: int, width: int) -> int:
    """At most `most` elements of `work` work-items each, so that few of those that run in lockstep idle."""

    def busy(size: int) -> float:
        return size * work / (-(-size * work // width) * width)

    return max(range(most - most // 4, most + 1), key=lambda size: (round(8 * busy(size)), size))
