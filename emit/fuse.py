"""Which arrays of a part get memory, and which kernels compute them.

Elementwise arrays are inlined into their readers, stored ones too. A reduction is inlined where one reader reads it at
its own index; otherwise it gets memory and a level of its own, and so does what it is inlined into. What a call reads
and makes is in memory. What feeds messages and reductions over ranks comes first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pymbolic.primitives as prim

from aotato.emit import arguments, blocks, crossing, levels, relief
from aotato.emit.draft import POINTER
from aotato.emit.groups import large
from aotato.emit.joined import Joined, send_names
from aotato.emit.levels import PartPlan
from aotato.emit.nest import Call, Kernel
from aotato.emit.target import Target
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.parts import Part

FEWEST_OF_A_SCHEME = 4  # arrays of a part; with more, work-items of a block have more in common than products
HEAVIEST = 600  # expression nodes of an elementwise array that is still recomputed at every index it is read at


_Read = tuple[str, tuple[ex.Expr, ...], bool]  # reader, index, whether inside a reduction of the reader


@dataclass(frozen=True)
class Fused:
    """The kernels of a rank in launch order, and the arrays that live only inside one part."""

    kernels: tuple[Kernel | Call, ...]
    temporaries: tuple[str, ...]  # materialised inside a part, in order


def fuse(joined: Joined, batch: Mapping[str, int], target: Target, inline: bool = True) -> Fused:
    """Kernels part by part. What a part stores is in memory for the parts after it.

    `batch` is the rank's row of `axes.batch_axes`: kernels over blocks of elements; without, array by array.
    Without `inline`, every array gets memory and a kernel of its own.
    """
    partition = joined.partition
    stored = {joint.array for joint in joined.joints if not joint.outgoing}
    kernels: list[Kernel | Call] = []
    temporaries: list[str] = []
    for part in partition.parts:
        made: Sequence[Kernel | Call]
        if inline:
            plan, made = _part(joined, part, frozenset(stored), batch, target)
        else:
            plan = _apart(joined, part, frozenset(stored), target)
            made = levels.kernels(partition.program, plan, frozenset(stored))
        kernels.extend(made)
        stored.update(plan.stores, plan.materialised)
        temporaries.extend(plan.materialised)
    return Fused(tuple(kernels), tuple(temporaries))


def _part(
    joined: Joined, part: Part, stored: frozenset[str], batch: Mapping[str, int], target: Target
) -> tuple[PartPlan, Sequence[Kernel | Call]]:
    """The part over blocks of elements where that has a use and fits local memory; else array by array."""
    program = joined.partition.program
    computed = ir.computed_below(program, _roots(joined, part)[1], stored)
    called = any(isinstance(program.arrays[name], ir.LoopyCall) for name in computed)
    if batch and part.stores and all(name in batch for name in part.stores) and not called:
        found = _over_blocks(program, _plan(joined, part, stored, batch, target), stored, batch, target)
        if found is not None and blocks.sharing(program, found[1]):
            plain = _products(joined, part, stored, found[0], target)
            return plain if plain is not None and len(plain[1]) <= len(found[1]) else found
    plan = _plan(joined, part, stored, {}, target)
    return plan, levels.kernels(program, plan, stored)


def _over_blocks(
    program: ir.Program, plan: PartPlan, stored: frozenset[str], batch: Mapping[str, int], target: Target
) -> tuple[PartPlan, list[Kernel]] | None:
    """Kernels over blocks, for which the plan may store more; None where they cannot be."""
    while all(name in batch for name in (*plan.materialised, *plan.stores)):
        kernels = levels.over_blocks(program, plan, stored, batch, target)
        if not isinstance(kernels, levels.Overflow):
            return plan, kernels
        other = relief.relieved(program, batch, plan, kernels)
        if other is None:
            break
        plan = other
    return None


def _products(
    joined: Joined, part: Part, stored: frozenset[str], plan: PartPlan, target: Target
) -> tuple[PartPlan, Sequence[Kernel | Call]] | None:
    """The part array by array, where it is little more than products of large matrices."""
    if len(plan.level) > FEWEST_OF_A_SCHEME:
        return None
    other = _plan(joined, part, stored, {}, target)
    kernels = levels.kernels(joined.partition.program, other, stored)
    nests = (nest for kernel in kernels if isinstance(kernel, Kernel) for nest in kernel.nests)
    return (other, kernels) if any(map(large, nests)) else None


def _plan(
    joined: Joined, part: Part, stored: frozenset[str], batch: Mapping[str, int], target: Target
) -> PartPlan:
    program, (urgent, roots, places) = joined.partition.program, _roots(joined, part)
    limit = target.parameter_bytes
    closure = frozenset(ir.computed_below(program, roots, stored))
    readers = _readers(program, closure, roots)
    if batch:
        materialised, level = crossing.storage(program, closure, tuple(roots), part.stores, batch)
        return PartPlan(part, urgent, part.stores, materialised, level, limit, places)
    most = limit - max((arguments.written(name, places) for name in (*part.stores, *urgent)), default=POINTER)
    costly = _costly(program, closure, readers, roots, most)
    materialised = tuple(name for name in costly if name not in part.stores)
    level = _levels(program, closure, frozenset(costly))
    return PartPlan(part, urgent, part.stores, materialised, level, limit, places)


def _roots(joined: Joined, part: Part) -> tuple[tuple[str, ...], dict[str, None], dict[str, int]]:
    """What leaves the part in messages and reductions; that with what it stores; and the places it leaves to."""
    program, together = joined.partition.program, send_names(joined.joints)
    names = [(message.batch, parcel.sent) for message in part.sends for parcel in message.parcels]
    sent = [together.get(key, key[1]) for key in names]
    reduced = [program.arrays[result].operand for reduction in part.reductions for result in reduction.results]  # type: ignore[union-attr]
    urgent = tuple(dict.fromkeys([*sent, *reduced]))
    places = Counter([*reduced, *(name for key, name in zip(names, sent, strict=True) if key not in together)])
    return urgent, dict.fromkeys([*urgent, *part.stores]), dict(places | Counter(set(together.values()) & set(sent)))


def _apart(joined: Joined, part: Part, stored: frozenset[str], target: Target) -> PartPlan:
    """Every array in memory."""
    program, (urgent, roots, places) = joined.partition.program, _roots(joined, part)
    closure = frozenset(ir.computed_below(program, roots, stored))
    materialised = tuple(name for name in program.arrays if name in closure and name not in part.stores)
    level = _levels(program, closure, closure)
    return PartPlan(part, urgent, part.stores, materialised, level, target.parameter_bytes, places, each=True)


def _readers(
    program: ir.Program, closure: frozenset[str], roots: Mapping[str, None]
) -> dict[str, list[_Read]]:
    """For each array: (reader, index, whether inside a reduction of the reader)."""
    found: dict[str, list[_Read]] = {name: [] for name in closure}
    for reader in program.arrays:
        node = program.arrays[reader]
        if reader not in closure or not isinstance(node, ir.Lambda):
            continue
        for position, index, reduced in _reads(node.expr, False):
            if node.operands[position] in found:
                found[node.operands[position]].append((reader, index, reduced))
    return found


def _reads(expr: ex.Expr, reduced: bool) -> list[tuple[int, tuple[ex.Expr, ...], bool]]:
    found = []
    if isinstance(expr, prim.Subscript):
        found.append((ex.operand_position(expr), expr.index_tuple, reduced))
    for child in ex.children(expr):
        found.extend(_reads(child, reduced or isinstance(expr, ex.Reduce)))
    return found


def _costly(
    program: ir.Program,
    closure: frozenset[str],
    readers: Mapping[str, list[_Read]],
    roots: Mapping[str, None],
    most: int,
) -> tuple[str, ...]:
    """Arrays that must be in memory before others read them, in order; readers compute the rest anew.

    `most`: bytes of a kernel's arguments for what it reads.
    """
    found: set[str] = set()
    below: dict[str, frozenset[str]] = {}  # arrays in memory that an array is computed from
    weight: dict[str, int] = {}  # expression nodes with elementwise operands written out
    reducing: set[str] = set()  # whoever computes them anew repeats a reduction
    calls = {name: node for name, node in program.of_type(ir.LoopyCall) if name in closure}
    called = {operand for call in calls.values() for operand in call.operands}
    for name, node in program.arrays.items():
        if name in calls or (name in closure and name in called):
            found.add(name)
        if name not in closure or not isinstance(node, ir.Lambda):
            continue
        stored = arguments.between(program, found, name, below, most)
        found, reducing = found | stored, reducing - stored
        if name in found:
            continue
        heavy = (weight.get(node.operands[position], 0) for position, _ in ex.reads(node.expr))
        weight[name] = sum(1 for _ in ex.walk(node.expr)) + sum(heavy)
        reduces = ex.has_reduce(node.expr) or not reducing.isdisjoint(node.operands)
        if (reduces or weight[name] > HEAVIEST) and _must_precede(program, name, reduces, readers[name], roots):
            found.add(name)
            weight[name] = 0
        elif reduces:
            reducing.add(name)
    return tuple(name for name in program.arrays if name in found)


def _must_precede(
    program: ir.Program, name: str, reduces: bool, readers: list[_Read], roots: Mapping[str, None]
) -> bool:
    """Whether some reader reads it at another index than its own, or (a reduction) not only one array needs it."""
    shape = program.arrays[name].shape
    own = all(index == ex.own_index(len(shape)) and not reduced for _, index, reduced in readers)
    same_shape = all(program.arrays[reader].shape == shape for reader, _, _ in readers)
    once = len({reader for reader, _, _ in readers}) == 1 and name not in roots
    return bool(readers) and not (own and same_shape and (once or not reduces))


def _levels(program: ir.Program, closure: frozenset[str], costly: frozenset[str]) -> dict[str, int]:
    """1 + the highest level among costly arrays below, for every array of the closure."""
    level: dict[str, int] = {}
    for name in program.arrays:
        if name in closure:
            below = [op for op in ir.operands(program.arrays[name]) if op in closure]
            level[name] = max((level[op] + (op in costly) for op in below), default=0)
    return level
