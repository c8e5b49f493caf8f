"""A receive from the rank itself is the array that was sent: no message, no copy."""

from __future__ import annotations

import dataclasses

from aotato.frontend import ir
from aotato.frontend.parts import Message, Parcel, Part, Partition


def resolved(partition: Partition) -> Partition:
    """`partition` with every aliased receive replaced by the array it stands for, in dependency order."""
    if not partition.aliases:
        return partition
    real = {name: _target(partition, name) for name in partition.program.arrays}
    return dataclasses.replace(
        partition,
        program=_program(partition.program, real),
        parts=tuple(_part(part, real) for part in partition.parts),
        recvs=partition.recvs,
        aliases={},
    )


def _target(partition: Partition, name: str) -> str:
    while name in partition.aliases:
        name = partition.aliases[name]
    return name


def _program(program: ir.Program, real: dict[str, str]) -> ir.Program:
    renamed = {name: ir.renamed(node, real) for name, node in program.arrays.items() if real[name] == name}
    return dataclasses.replace(
        program,
        arrays={name: renamed[name] for name in _ordered(renamed)},
        sends=tuple(dataclasses.replace(send, array=real[send.array]) for send in program.sends),
        outputs=tuple(dataclasses.replace(output, array=real[output.array]) for output in program.outputs),
    )


def _ordered(arrays: dict[str, ir.Node]) -> list[str]:
    """Names so that operands stand before their readers; otherwise in the old order."""
    order: dict[str, None] = {}
    stack = list(reversed(arrays))
    while stack:
        name = stack.pop()
        waiting = [operand for operand in ir.operands(arrays[name]) if operand not in order]
        if waiting:
            stack.append(name)
            stack.extend(waiting)
        else:
            order[name] = None
    return list(order)


def _part(part: Part, real: dict[str, str]) -> Part:
    sends = tuple(_message(message, real) for message in part.sends)
    return dataclasses.replace(part, stores=tuple(dict.fromkeys(real[n] for n in part.stores)), sends=sends)


def _message(message: Message, real: dict[str, str]) -> Message:
    parcels = tuple(Parcel(real[p.sent], p.received, p.tag) for p in message.parcels)
    return dataclasses.replace(message, parcels=parcels)
