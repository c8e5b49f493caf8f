"""Prove that every part of a rank computes what it should, once, from what is there.

One function an invariant.
"""

from __future__ import annotations

from aotato.frontend.cones import computed, demands, stored_parts
from aotato.frontend.invariant import hold
from aotato.frontend.ir import (
    Allreduce,
    Const,
    Input,
    Lambda,
    LoopyCall,
    Recv,
    is_computed,
    is_costly,
    operands,
)
from aotato.frontend.parts import Part, Partition


def check_stores(found: Partition) -> None:
    """What is stored is computed: never an input, constant, received array or result; and only once."""
    program = found.program
    stores = [name for part in found.parts for name in part.stores]
    hold(len(stores) == len(set(stores)), "rank {} stores an array twice: {}", program.rank, stores)
    for name in stores:
        node = program.arrays.get(name)
        computed_here = node is not None and is_computed(node)
        hold(computed_here, "rank {} stores {!r}, a {}", program.rank, name, type(node).__name__)
    kept = set(stores)
    unstored = tuple(name for name, node in program.of_type(Lambda) if node.stored and name not in kept)
    hold(found.unstored_hints == unstored, "rank {} reports {}, not {}", program.rank, found.unstored_hints, unstored)


def check_outputs(found: Partition) -> None:
    """Every output is stored, unless it is an input, a constant, received or a collective's result."""
    program = found.program
    stores = {name for part in found.parts for name in part.stores}
    for output in program.outputs:
        array = found.aliases.get(output.array, output.array)
        available = array in stores or not is_computed(program.arrays[array])
        hold(available, "rank {}: output {!r} ({!r}) is not stored", program.rank, output.path, array)


def check_needs(found: Partition) -> None:
    """All that a part reads is there when the part starts, or is computed in it from what is."""
    program = found.program
    arrives, stored_in = _arrivals(found), stored_parts(found)
    for part in found.parts:
        for name in computed(found, part):
            for operand in operands(program.arrays[name]):
                _check_read(found, part, found.aliases.get(operand, operand), arrives, stored_in)
        for name in demands(found, part):
            _check_read(found, part, name, arrives, stored_in)


def check_stores_have_reasons(found: Partition) -> None:
    """What is stored is an output, or holds what is costly and not stored below it, and is read by a later part."""
    program = found.program
    outputs = {found.aliases.get(output.array, output.array) for output in program.outputs}
    read_in: dict[str, int] = {}
    for part in found.parts:
        below = [operand for name in computed(found, part) for operand in operands(program.arrays[name])]
        for name in (*demands(found, part), *below):
            read_in[found.aliases.get(name, name)] = part.number
    for part in found.parts:
        for name in part.stores:
            if name in outputs:
                continue
            later = read_in.get(name, -1) > part.number
            hold(later, "rank {} stores {!r}, which no later part reads", program.rank, name)
            costly = _is_costly(found, name)
            hold(costly, "rank {} stores {!r}, which is elementwise above stored arrays", program.rank, name)


def _is_costly(found: Partition, name: str) -> bool:
    """Whether `name` is, or is computed from, what is computed once, with no stored array between."""
    stored_in, seen, stack = stored_parts(found), {name}, [name]
    while stack:
        node = found.program.arrays[stack.pop()]
        if is_costly(node):
            return True
        for operand in operands(node):
            below = found.aliases.get(operand, operand)
            inlined = is_computed(found.program.arrays[below]) and below not in stored_in
            if inlined and below not in seen:
                seen.add(below)
                stack.append(below)
    return False


def _check_read(found: Partition, part: Part, name: str, arrives: dict[str, int], stored_in: dict[str, int]) -> None:
    match found.program.arrays[name]:
        case Input() | Const():
            return
        case Recv() | Allreduce():
            there = name in arrives and arrives[name] < part.number
        case Lambda() | LoopyCall():
            there = stored_in.get(name, part.number) <= part.number
        case node:
            raise AssertionError(f"unknown node {type(node).__name__}")
    when = arrives.get(name, stored_in.get(name))
    hold(there, "rank {} reads {!r} in part {}, but it is there after {}", found.program.rank, name, part.number, when)


def _arrivals(found: Partition) -> dict[str, int]:
    """The batch in which each Recv and Allreduce is completed."""
    arrives = {parcel.received: message.batch for message in found.recvs for parcel in message.parcels}
    for part in found.parts:
        arrives.update((name, reduction.batch) for reduction in part.reductions for name in reduction.results)
    return arrives


def check_reductions_once(found: Partition) -> None:
    """No reduction and no call is computed in two parts."""
    parts: dict[str, int] = {}
    for part in found.parts:
        for name in computed(found, part):
            if is_costly(found.program.arrays[name]):
                text = "rank {} computes {!r} in parts {} and {}"
                first = parts.setdefault(name, part.number)
                hold(first == part.number, text, found.program.rank, name, first, part.number)
