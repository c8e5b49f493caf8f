"""The nests of a kernel over blocks of elements, in the order that needs least local memory.

Each step computes arrays of one index space. Sums that a later step needs at its own nodes can be taken early and kept
in registers, so that what they are sums of makes room in local memory.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from aotato.emit import slots
from aotato.emit.axes import lanes
from aotato.emit.nest import Local
from aotato.emit.phases import Phases
from aotato.frontend import expr as ex
from aotato.frontend import ir

MOST_ORDERED = 7  # steps whose orders are all tried


@dataclass(frozen=True)
class Step:
    """Arrays computed together, over the index space `space`: elements first."""

    names: tuple[str, ...]
    space: ir.Shape
    kept: bool = False  # in registers, for the last step


@dataclass(frozen=True)
class Steps:
    """Steps in order, the last one with the results; what each reads from local memory, and where that lies."""

    steps: tuple[Step, ...]
    reads: tuple[frozenset[str], ...]
    local: tuple[Local, ...]
    bytes_each: int  # of local memory for one element

    @property
    def kept(self) -> frozenset[str]:
        return frozenset(name for step in self.steps if step.kept for name in step.names)


def ordered(plan: Phases) -> Steps:
    """The natural order, or a better one."""
    return _best(plan, _natural(plan))


def with_early_sums(plan: Phases) -> Steps | None:
    """The last step's sums over local memory taken early; None if it has none or they free nothing."""
    natural = _natural(plan)
    early = _early(plan, natural[-1])
    return _best(plan, [*natural[:-1], *early, natural[-1]]) if early else None


def _natural(plan: Phases) -> list[Step]:
    """Results by level and index space; those of the kernel last."""
    found: dict[tuple[int, ir.Shape], list[str]] = {}
    for name in (*plan.staged, *plan.closure):
        if (name in plan.local or name in plan.roots) and ir.size(plan.program.arrays[name].shape):
            found.setdefault((plan.level.get(name, 0), space(plan, name)), []).append(name)
    return [Step(tuple(names), shape) for (_, shape), names in sorted(found.items(), key=lambda item: item[0][0])]


def space(plan: Phases, name: str) -> ir.Shape:
    """Elements, and the axes whose elements go to different work-items."""
    shape, axis = plan.program.arrays[name].shape, plan.batch[name]
    return (shape[axis], *(shape[a] for a in lanes(shape, axis)))


def _early(plan: Phases, last: Step) -> list[Step]:
    """Steps that sum early: arrays of the last step's space that read local memory in loops, by what they read."""
    inlined = _below(plan, last.names, frozenset())
    by_source: dict[frozenset[str], list[str]] = {}
    covered: set[str] = set()
    for name in reversed(plan.closure):
        node = plan.program.arrays[name]
        if name not in inlined or name in plan.roots or name in covered or name not in plan.batch:
            continue
        if isinstance(node, ir.Lambda) and ex.has_reduce(node.expr) and space(plan, name) == last.space:
            read = _local_reads(plan, (name,), frozenset())
            if read and name not in plan.crossing:
                by_source.setdefault(read, []).append(name)
                covered |= _below(plan, (name,), frozenset())
    # The last group stays where it is
    groups = [Step(tuple(reversed(names)), last.space, True) for names in by_source.values()]
    return groups[1:] if len(groups) > 1 else []


def _below(plan: Phases, names: Sequence[str], stop: frozenset[str]) -> set[str]:
    """Arrays that `names` are computed from in the same nest, themselves included."""
    found, stack = set(names), list(names)
    while stack:
        for operand in ir.operands(plan.program.arrays[stack.pop()]):
            if operand in plan.level and operand not in found | plan.phases | stop:
                found.add(operand)
                stack.append(operand)
    return found


def _local_reads(plan: Phases, names: Sequence[str], kept: frozenset[str]) -> frozenset[str]:
    """Arrays in local memory that a nest for `names` reads; kept ones are there already."""
    found: set[str] = set()
    for name in _below(plan, [n for n in names if n in plan.level], kept):
        found |= {plan.same.get(r.operand, r.operand) for r in plan.reads[name] if r.operand in plan.phases}
        found |= {r.operand for r in plan.reads[name] if plan.copied(name, r)}
    return frozenset(found)


def _best(plan: Phases, steps: list[Step]) -> Steps:
    kept = frozenset(name for step in steps if step.kept for name in step.names)
    reads = [_local_reads(plan, step.names, frozenset() if step.kept else kept) for step in steps]
    made = {name: number for number, step in enumerate(steps) for name in step.names if not step.kept}
    needs = [{made[name] for name in read} for read in reads]
    best: Steps | None = None
    for order in _orders(len(steps), needs):
        local = _local(plan, [steps[i] for i in order], [reads[i] for i in order])
        nbytes = slots.per_element(plan.program, local)
        if best is None or nbytes < best.bytes_each:
            best = Steps(tuple(steps[i] for i in order), tuple(reads[i] for i in order), local, nbytes)
    assert best is not None
    return best


def _orders(count: int, needs: Sequence[set[int]]) -> Iterator[tuple[int, ...]]:
    """Orders in which every step comes after those it needs and the last stays last; the given one first."""
    yield tuple(range(count))
    if count <= MOST_ORDERED:
        for order in itertools.permutations(range(count - 1)):
            place = {step: at for at, step in enumerate(order)}
            if all(place[other] < place[step] for step in order for other in needs[step]):
                yield (*order, count - 1)


def _local(plan: Phases, steps: Sequence[Step], reads: Sequence[frozenset[str]]) -> tuple[Local, ...]:
    lives: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(steps):
        for name in reads[number]:
            lives[name] = (lives[name][0], number)
        lives |= {name: (number, number) for name in step.names if name in plan.local}
    return slots.slots(plan.program, plan.batch, lives, plan.layout)

