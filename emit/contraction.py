"""The cheapest way to sum a product over several indices: which factors to multiply and sum first.

A tensor contraction over up to LARGEST factors, by exhaustive search over trees. A partial sum is written in place
where it depends on all axes of the array it stands in, and is an array of its own where it depends on fewer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

LARGEST = 6  # factors: the number of trees grows beyond measure

Axes = frozenset[str]


@dataclass(frozen=True)
class Factor:
    flops: int  # operations of one evaluation
    axes: Axes  # index variables it depends on


@dataclass(frozen=True)
class Sum:
    """The product of `parts`, each a factor by its number or a partial sum, summed over `over`."""

    over: Axes
    parts: tuple[int | Sum, ...]
    axes: Axes  # what it depends on
    apart: bool  # whether it is an array of its own


@dataclass(frozen=True)
class Plan:
    """`flops` over all ranks, an array of its own counting with what `Problem.apart` says."""

    flops: int
    arrays: int  # of their own
    tree: Sum


@dataclass
class Problem:
    """The sum over `reduced` of the product of `factors`, for every index of `own`."""

    factors: Sequence[Factor]
    own: Axes
    reduced: Axes
    extents: Sequence[Mapping[str, int]]  # of every index, for each rank
    apart: Callable[[Axes], int | None]  # what an array over these axes costs beside its operations; None: forbidden
    nested: bool = True  # whether a sum in place may stand inside the loop of another
    known: dict[tuple[tuple[int, ...], Axes, Axes], Plan] = field(default_factory=dict)

    def axes(self, members: Sequence[int]) -> Axes:
        return frozenset().union(*(self.factors[m].axes for m in members))

    def private(self, members: Sequence[int]) -> Axes:
        """Reduced indices that no other factor depends on."""
        others = [number for number in range(len(self.factors)) if number not in members]
        return (self.axes(members) & self.reduced) - self.axes(others)

    def size(self, axes: Axes) -> list[int]:
        return [math.prod(extents[axis] for axis in axes) for extents in self.extents]


def cheapest(problem: Problem) -> Plan:
    """The plan with the fewest operations, then the fewest arrays, then the first found."""
    everything = tuple(range(len(problem.factors)))
    found = _node(problem, everything, problem.own, frozenset())
    whole = _apart(problem, everything, problem.own)
    if whole is not None:
        read = Sum(frozenset(), (whole.tree,), problem.own, False)
        found = min(found, Plan(whole.flops, whole.arrays, read), key=_order)
    return found


def _order(plan: Plan) -> tuple[int, int]:
    return plan.flops, plan.arrays


def _partial(problem: Problem, members: tuple[int, ...], around: Axes, loops: Axes) -> Plan | None:
    """`members` summed over indices of their own, for every index of `around` and of `loops`; None if it has none."""
    if not problem.private(members):
        return None
    found = [_apart(problem, members, around)]
    if problem.nested or not loops:
        found.append(_known(problem, members, around, problem.axes(members) & loops))
    return min((plan for plan in found if plan is not None), key=_order, default=None)


def _apart(problem: Problem, members: tuple[int, ...], around: Axes) -> Plan | None:
    """The same as an array of fewer axes than `around`."""
    axes = problem.axes(members) - problem.private(members)
    cost = problem.apart(axes) if axes & problem.own < around else None
    if cost is None:
        return None
    plan = _known(problem, members, axes & problem.own, axes - problem.own)
    return Plan(plan.flops + cost, plan.arrays + 1, Sum(plan.tree.over, plan.tree.parts, axes, True))


def _known(problem: Problem, members: tuple[int, ...], around: Axes, loops: Axes) -> Plan:
    key = members, around, loops
    if key not in problem.known:
        problem.known[key] = _node(problem, members, around, loops)
    return problem.known[key]


def _node(problem: Problem, members: tuple[int, ...], around: Axes, loops: Axes) -> Plan:
    """The cheapest product of factors and partial sums, for every index of `around` and of the `loops` outside."""
    best: Plan | None = None
    for blocks in _partitions(members):
        if len(blocks) > 1 or len(members) == 1:
            for plan in _products(problem, members, blocks, around, loops):
                best = plan if best is None else min(best, plan, key=_order)
    assert best is not None
    return best


def _products(
    problem: Problem, members: tuple[int, ...], blocks: list[tuple[int, ...]], around: Axes, loops: Axes
) -> Iterator[Plan]:
    """The product of `blocks`: a single factor as it is, or every block summed first."""
    summed = [block for block in blocks if len(block) > 1]
    singles = [block for block in blocks if len(block) == 1 and problem.private(block) and len(members) > 1]
    for early in ([], singles) if singles else ([],):
        chosen = [*summed, *early]
        over = problem.private(members) - frozenset().union(*(problem.private(block) for block in chosen))
        plans = [_partial(problem, block, around, over | loops) for block in chosen]
        if all(plan is not None for plan in plans):
            direct = [block[0] for block in blocks if block not in chosen]
            yield _joined(problem, direct, [plan for plan in plans if plan is not None], over, around | loops)


def _joined(problem: Problem, direct: list[int], plans: list[Plan], over: Axes, axes: Axes) -> Plan:
    operations = sum(problem.factors[m].flops for m in direct) + len(direct) + len(plans) - 1 + bool(over)
    flops = operations * sum(problem.size(axes | over)) + sum(plan.flops for plan in plans)
    tree = Sum(over, (*direct, *(plan.tree for plan in plans)), axes, False)
    return Plan(flops, sum(plan.arrays for plan in plans), tree)


def _partitions(members: tuple[int, ...]) -> Iterator[list[tuple[int, ...]]]:
    """All ways to split `members` into blocks."""
    if not members:
        yield []
        return
    first, rest = members[0], members[1:]
    for blocks in _partitions(rest):
        yield [(first,), *blocks]
        for place, block in enumerate(blocks):
            yield [*blocks[:place], (first, *block), *blocks[place + 1 :]]
