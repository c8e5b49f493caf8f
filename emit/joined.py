"""Let the messages of a batch lie one behind the other: one array for all peers, sent or received.

What is received from several peers and then concatenated is read in place. What is sent to several peers and differs
only in constant tables is one array, computed by one nest. Kernels then do not depend on the number of peers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.constants import digest
from aotato.frontend.parts import Message, Partition


@dataclass(frozen=True)
class Joint:
    """`array` is `pieces`, concatenated along axis 0: each the only array of a message of `batch`."""

    array: str
    batch: int
    outgoing: bool
    pieces: tuple[str, ...]

    @property
    def buffer(self) -> str:
        return f"{'send' if self.outgoing else 'recv'}:{self.batch}"


@dataclass(frozen=True)
class Joined:
    """A partition whose program holds the arrays of `joints` too."""

    partition: Partition
    joints: tuple[Joint, ...] = ()


def joined(partition: Partition) -> Joined:
    """`partition` with every batch joined where that is possible. It has no aliases left."""
    received = _received(partition)
    program, sent = partition.program, []
    stored = {name for part in partition.parts for name in part.stores}
    for part in partition.parts:
        made = _sent(program, part.sends, stored)
        if made is not None:
            program, joint = made
            sent.append(joint)
    return Joined(dataclasses.replace(partition, program=program), (*received, *sent))


def _received(partition: Partition) -> list[Joint]:
    """Concatenations of arrays that come alone in messages of one batch, and that nobody else needs."""
    program = partition.program
    alone = {m.parcels[0].received: m.batch for m in partition.recvs if len(m.parcels) == 1}
    outputs = {output.array for output in program.outputs} | {send.array for send in program.sends}
    found: list[Joint] = []
    for name, node in program.of_type(ir.Lambda):
        pieces = concatenated(program, node)
        batches = {alone.get(piece) for piece in pieces}
        taken = {piece for joint in found for piece in joint.pieces} | {joint.batch for joint in found}
        free = not taken.intersection((*pieces, *batches)) and not outputs.intersection((*pieces, name))
        if len(set(pieces)) == len(pieces) > 1 and len(batches) == 1 and free:
            (batch,) = batches
            if batch is not None:
                found.append(Joint(name, batch, False, pieces))
    return found


def concatenated(program: ir.Program, node: ir.Lambda) -> tuple[str, ...]:
    """The arrays that `node` is the concatenation of, along axis 0 and unchanged; empty if it is no such thing."""
    found: list[str] = []
    expr, start = node.expr, 0
    while True:
        last = not isinstance(expr, prim.If)
        read = expr if last else expr.then
        if not isinstance(read, prim.Subscript) or not _is_shifted(read, start):
            return ()
        piece = node.operands[ex.operand_position(read)]
        if program.arrays[piece].shape[1:] != node.shape[1:] or program.arrays[piece].dtype != node.dtype:
            return ()
        found.append(piece)
        start += program.arrays[piece].shape[0]
        if last:
            return tuple(found) if start == node.shape[0] else ()
        if not _ends_at(expr.condition, start):
            return ()
        expr = expr.else_


def _is_shifted(read: prim.Subscript, start: int) -> bool:
    """Whether the read is at `[_0 - start, _1, ...]`."""
    if not read.index_tuple:
        return False
    first, *rest = read.index_tuple
    own = ex.own_index(len(rest) + 1)
    if tuple(rest) != own[1:]:
        return False
    if not start:
        return bool(first == own[0])
    return isinstance(first, prim.Sum) and set(first.children) == {own[0], -start} and len(first.children) == 2


def _ends_at(condition: ex.Expr, end: int) -> bool:
    """Whether it says `_0 < end`."""
    if not isinstance(condition, prim.Comparison) or condition.operator != "<" or isinstance(condition.right, ex.Cast):
        return False
    left = condition.left.body if isinstance(condition.left, ex.Cast) else condition.left
    return bool(left == prim.Variable("_0")) and ex.is_leaf(condition.right) and bool(condition.right == end)


def _sent(
    program: ir.Program, messages: Sequence[Message], stored: Collection[str]
) -> tuple[ir.Program, Joint] | None:
    """What goes to all peers of a batch as one array, or None; what has memory of its own is sent from there."""
    pieces = tuple(message.parcels[0].sent for message in messages)
    if len(pieces) < 2 or any(len(message.parcels) != 1 for message in messages) or len(set(pieces)) < len(pieces):
        return None
    if any(piece in stored or not isinstance(program.arrays[piece], ir.Lambda) for piece in pieces):
        return None
    merge = _Merge(program)
    name = merge.array(pieces)
    if name is None:
        return None
    whole = dataclasses.replace(
        program, arrays={**program.arrays, **merge.arrays}, constants={**program.constants, **merge.constants}
    )
    return whole, Joint(name, messages[0].batch, True, pieces)


class _Merge:
    """Arrays of one skeleton, one for each peer, concatenated along axis 0."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.arrays: dict[str, ir.Node] = {}
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.known: dict[tuple[str, ...], str | None] = {}

    def array(self, names: tuple[str, ...]) -> str | None:
        """The name of the concatenation of arrays, or None where they differ in more than constants."""
        if names not in self.known:
            self.known[names] = self._made(names)
        return self.known[names]

    def _made(self, names: tuple[str, ...]) -> str | None:
        nodes = [self.program.arrays[name] for name in names]
        first = nodes[0]
        if any(type(n) is not type(first) or n.shape[1:] != first.shape[1:] or n.dtype != first.dtype for n in nodes):
            return None
        if not first.shape:
            return None
        if isinstance(first, ir.Const):
            return self._constant(names[0], nodes)
        if isinstance(first, ir.Lambda):
            return self._lambda(names[0], nodes)
        return None

    def _add(self, name: str, node: ir.Node) -> str:
        new = f"{name}_all"
        while new in self.program.arrays or new in self.arrays:
            new += "_"
        self.arrays[new] = node
        return new

    def _constant(self, name: str, nodes: list[Any]) -> str:
        data = np.concatenate([self.program.constants[node.digest] for node in nodes])
        key = digest(data)
        self.constants[key] = data
        return self._add(name, ir.Const(key, data.shape, data.dtype))

    def _lambda(self, name: str, nodes: list[Any]) -> str | None:
        first = nodes[0]
        if any(node.expr != first.expr or len(node.operands) != len(first.operands) for node in nodes):
            return None
        operands = []
        for position, columns in enumerate(zip(*(node.operands for node in nodes), strict=True)):
            indices = [index for number, index in ex.reads(first.expr) if number == position]
            along = [_uses_first(index) for index in indices]
            if not any(along):
                if len(set(columns)) > 1:
                    return None
                operands.append(columns[0])
                continue
            # The first index counts over all peers: it may only choose within what is concatenated too
            if not all(index[0] == prim.Variable("_0") and not _uses_first(index[1:]) for index in indices):
                return None
            merged = self.array(tuple(columns))
            if merged is None:
                return None
            operands.append(merged)
        if _uses_first((_without_reads(first.expr),)):
            return None
        shape = (sum(node.shape[0] for node in nodes), *first.shape[1:])
        return self._add(name, dataclasses.replace(first, operands=tuple(operands), shape=shape))


def _uses_first(indices: Sequence[ex.Expr]) -> bool:
    """Whether `_0` occurs outside of reads of other arrays."""
    found = (node for index in indices for node in ex.walk(_without_reads(index)))
    return any(isinstance(node, prim.Variable) and node.name == "_0" for node in found)


def _without_reads(expr: ex.Expr) -> ex.Expr:
    """`expr` with every read replaced by a number: a read answers for its own indices."""
    return ex.rewrite(expr, lambda node: 0 if isinstance(node, prim.Subscript) else node)


def send_names(joints: Sequence[Joint]) -> Mapping[tuple[int, str], str]:
    """(batch, array that is sent) -> the array that holds it."""
    return {(joint.batch, piece): joint.array for joint in joints if joint.outgoing for piece in joint.pieces}
