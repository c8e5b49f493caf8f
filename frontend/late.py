"""Put reductions into the latest part that needs them, where that stores less than computing them at once.

What only a later part reads is then computed there, together with its readers, and never stored. A long reduction
stays as early as it can be: it runs while messages travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aotato.frontend import expr as ex
from aotato.frontend.dependences import allreduces
from aotato.frontend.ir import LoopyCall, Node, Program, Programs, is_computed, is_costly, nbytes, operands
from aotato.frontend.levels import Levels
from aotato.frontend.storage import aliases, stored

LONGEST_DELAYED = 1024  # terms of a reduction that is worth delaying


@dataclass(frozen=True)
class Placed:
    """The part that computes each array of a rank, the arrays to store in program order, and receives from itself."""

    part: Mapping[str, int]
    stores: tuple[str, ...]
    aliases: dict[str, str]  # as in Partition


def placed(programs: Programs, found: Levels) -> tuple[Placed, ...]:
    """Late or early, whichever stores fewer bytes on all ranks together; late where both store the same."""
    alias = [aliases(program) for program in programs.ranks]
    early = [_stored(p, level, a) for p, level, a in zip(programs.ranks, found.arrays, alias, strict=True)]
    if found.batches == 0:
        return tuple(early)
    calls = allreduces(programs)
    late = [
        _stored(p, _late(p, level, a, _collected(calls[p.rank], found)), a)
        for p, level, a in zip(programs.ranks, found.arrays, alias, strict=True)
    ]
    return tuple(early if _nbytes(programs, early) < _nbytes(programs, late) else late)


def _stored(program: Program, part: Mapping[str, int], alias: dict[str, str]) -> Placed:
    return Placed(part, stored(program, part, alias), alias)


def _nbytes(programs: Programs, found: Sequence[Placed]) -> int:
    return sum(
        nbytes(program.arrays[name])
        for program, placed in zip(programs.ranks, found, strict=True)
        for name in placed.stores
    )


def _collected(calls: Sequence[tuple[str, object]], found: Levels) -> dict[str, int]:
    return {name: batch for (name, _), batch in zip(calls, found.collectives, strict=True)}


def _late(
    program: Program, level: Mapping[str, int], alias: Mapping[str, str], collected: Mapping[str, int]
) -> dict[str, int]:
    """Short reductions at their last possible part; everything else at its first after those."""
    latest: dict[str, int] = {}

    def needed(name: str, part: int) -> None:
        name = alias.get(name, name)
        latest[name] = min(latest.get(name, part), part)

    for output in program.outputs:
        needed(output.array, level[alias.get(output.array, output.array)])
    for send in program.sends:
        needed(send.array, level[alias.get(send.array, send.array)])
    for name in reversed(list(program.arrays)):
        if name in collected:
            needed(program.arrays[name].operand, collected[name])  # type: ignore[union-attr]
        elif is_computed(node := program.arrays[name]):
            # What nothing needs stays where it is
            latest.setdefault(name, level[name])
            for operand in operands(node):
                needed(operand, latest[name] if can_wait(node) else level[name])
    part = dict(level)
    for name, node in program.arrays.items():
        if is_costly(node):
            part[name] = latest[name] if can_wait(node) else level[name]
        elif is_computed(node):
            below = (part[alias.get(operand, operand)] for operand in operands(node))
            part[name] = max(below, default=level[name])
    return part


def can_wait(node: Node) -> bool:
    """Whether a computed array holds no reductions but such as are worth delaying; nothing is known of a call."""
    if isinstance(node, LoopyCall):
        return False
    loops = [inner for inner in ex.walk(node.expr) if isinstance(inner, ex.Reduce)]  # type: ignore[union-attr]
    terms = sum(int(np.prod([upper - lower for _, lower, upper in r.bounds])) for r in loops)
    return not loops or 0 < terms <= LONGEST_DELAYED
