"""Where every array of a rank's entry lies: which buffer, which byte."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from aotato.emit.fuse import Fused
from aotato.emit.joined import Joined, Joint
from aotato.emit.names import Place
from aotato.frontend import ir
from aotato.frontend.parts import Message, Partition
from aotato.runtime_stub import schedule as sch


@dataclass(frozen=True)
class Layout:
    """Buffers (temporaries without their offsets), places of arrays, and messages with their parcels laid out."""

    buffers: tuple[sch.Buffer, ...]
    home: Mapping[str, Place]  # where an array is read, and written if it is a Lambda
    packed: Mapping[tuple[int, str], tuple[Place, ...]]  # (part, array) -> places in messages and reductions
    messages: tuple[sch.Message, ...]
    reductions: tuple[sch.Reduction, ...]


def lay_out(joined: Joined, fused: Fused, on_device: frozenset[str]) -> Layout:
    """`on_device`: paths of 0-dimensional inputs that stay in device memory; others are passed by value."""
    partition, program = joined.partition, joined.partition.program
    buffers: dict[str, sch.Buffer] = {}
    home: dict[str, Place] = {}
    packed: dict[tuple[int, str], list[Place]] = {}
    outgoing = [_message(program, m, True, buffers, home, packed) for part in partition.parts for m in part.sends]
    incoming = [_message(program, m, False, buffers, home, packed) for m in partition.recvs]
    for joint in joined.joints:
        _join(joint, outgoing if joint.outgoing else incoming, buffers, home, packed)
    reductions = _reductions(partition, buffers, home, packed)
    for name, node in program.arrays.items():
        place = home.get(name) or _home(partition, fused, name, node, on_device)
        if place is not None:
            home[name] = place
            buffers.setdefault(place.buffer, _buffer(program, place.buffer, name, node))
    return Layout(
        tuple(buffers.values()),
        home,
        {key: tuple(places) for key, places in packed.items()},
        tuple(sorted((*outgoing, *incoming), key=lambda m: (m.batch, m.outgoing, m.peer))),
        tuple(reductions),
    )


def _join(
    joint: Joint,
    messages: list[sch.Message],
    buffers: dict[str, sch.Buffer],
    home: dict[str, Place],
    packed: dict[tuple[int, str], list[Place]],
) -> None:
    """Put the messages of a joint behind each other into a buffer of its own."""
    offset, own = 0, {m.parcels[0].array: m.buffer for m in messages if m.batch == joint.batch}
    for piece in joint.pieces:
        place = Place(joint.buffer, offset)
        buffers[own[piece]] = replace(buffers[own[piece]], offset=offset, inside=joint.buffer)
        if joint.outgoing:
            del packed[joint.batch, piece]
        else:
            home[piece] = place
        offset += buffers[own[piece]].nbytes
    buffers[joint.buffer] = sch.Buffer(joint.buffer, "joint", offset)
    if joint.outgoing:
        packed[joint.batch, joint.array] = [Place(joint.buffer)]
    else:
        home[joint.array] = Place(joint.buffer)


def _home(
    partition: Partition, fused: Fused, name: str, node: ir.Node, on_device: frozenset[str]
) -> Place | None:
    match node:
        case ir.Input():
            return Place(f"input:{node.path}", 0, not node.shape and node.path not in on_device)
        case ir.Const():
            return Place(f"const:{node.digest[:16]}")
        case ir.Recv() | ir.Allreduce():
            return None  # laid out with its message or reduction
        case ir.Lambda() | ir.LoopyCall():
            path = next((output.path for output in partition.program.outputs if output.array == name), None)
            if path is not None:
                return Place(f"output:{path}")
            stored = name in fused.temporaries or any(name in part.stores for part in partition.parts)
            return Place(f"temporary:{name}") if stored else None
    raise AssertionError(f"unknown node {type(node).__name__}")


def _buffer(program: ir.Program, buffer: str, name: str, node: ir.Node) -> sch.Buffer:
    kind, _, source = buffer.partition(":")
    if isinstance(node, ir.Const):
        source = node.digest
    return sch.Buffer(buffer, kind, ir.nbytes(node), 0, source)


def _message(
    program: ir.Program,
    message: Message,
    outgoing: bool,
    buffers: dict[str, sch.Buffer],
    home: dict[str, Place],
    packed: dict[tuple[int, str], list[Place]],
) -> sch.Message:
    """One message: its parcels one behind another, each at a multiple of 16 bytes, so that any dtype is aligned."""
    peer = message.dest if outgoing else message.source
    buffer = f"{'send' if outgoing else 'recv'}:{message.batch}:{peer}"
    offset, parcels = 0, []
    for parcel in message.parcels:
        name = parcel.sent if outgoing else parcel.received
        node = program.arrays[name]
        offset = -(-offset // 16) * 16
        parcels.append(sch.Parcel(name, offset, node.shape, node.dtype.name))
        if outgoing:
            packed.setdefault((message.batch, name), []).append(Place(buffer, offset))
        else:
            home[name] = Place(buffer, offset)
        offset += ir.nbytes(node)
    buffers[buffer] = sch.Buffer(buffer, "send" if outgoing else "recv", offset)
    return sch.Message(message.batch, peer, outgoing, message.batch, offset, buffer, tuple(parcels))


def _reductions(
    partition: Partition,
    buffers: dict[str, sch.Buffer],
    home: dict[str, Place],
    packed: dict[tuple[int, str], list[Place]],
) -> list[sch.Reduction]:
    program, found = partition.program, []
    for part in partition.parts:
        for reduction in part.reductions:
            buffer = f"reduce:{reduction.batch}:{reduction.op}:{reduction.dtype}"
            first, values = 0, []
            for result in reduction.results:
                node = program.arrays[result]
                assert isinstance(node, ir.Allreduce)
                offset = first * node.dtype.itemsize
                values.append((result, first, node.shape))
                home[result] = Place(buffer, offset, not node.shape)
                packed.setdefault((part.number, node.operand), []).append(Place(buffer, offset))
                first += ir.size(node.shape)
            itemsize = np.dtype(reduction.dtype).itemsize
            buffers[buffer] = sch.Buffer(buffer, "reduce", first * itemsize)
            found.append(
                sch.Reduction(reduction.batch, reduction.op, reduction.dtype, first, buffer, tuple(values))
            )
    return found
