"""What each part computes: all that lies below what it stores, sends and reduces, down to what earlier parts stored."""

from __future__ import annotations

from collections.abc import Sequence

from aotato.frontend.ir import is_computed, operands
from aotato.frontend.parts import Part, Partition


def computed(found: Partition, part: Part) -> list[str]:
    """The arrays that `part` computes, each once, in an order that depends on the partition only."""
    return cone(found, part, [*part.stores, *demands(found, part)])


def cone(found: Partition, part: Part, roots: Sequence[str]) -> list[str]:
    """The arrays that `part` computes for `roots`."""
    program, stored_in = found.program, stored_parts(found)
    reached: dict[str, None] = {}
    stack = list(reversed(roots))
    while stack:
        name = stack.pop()
        name = found.aliases.get(name, name)
        stored_before = stored_in.get(name, part.number) < part.number
        if name not in reached and not stored_before and is_computed(program.arrays[name]):
            reached[name] = None
            stack.extend(operands(program.arrays[name]))
    return list(reached)


def demands(found: Partition, part: Part) -> list[str]:
    """What leaves a part in messages and collectives."""
    sent = [parcel.sent for message in part.sends for parcel in message.parcels]
    reduced = [found.program.arrays[name] for reduction in part.reductions for name in reduction.results]
    names = sent + [operand for node in reduced for operand in operands(node)]
    return [found.aliases.get(name, name) for name in names]


def stored_parts(found: Partition) -> dict[str, int]:
    """The number of the part that stores each stored array."""
    return {name: part.number for part in found.parts for name in part.stores}
