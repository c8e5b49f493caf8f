"""Sums that the lanes of a work-group share: each lane's part first, then trees over local memory."""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as prim

from aotato.emit.nest import Accumulate
from aotato.frontend import expr as ex


def accumulated(writer: Any, statement: Accumulate) -> None:
    """Every lane sums its share, then two trees join the lanes: in columns of local memory, and their results.

    No memory is read and written between the same two barriers: where lanes are joined in place, PoCL 3.0 goes
    wrong for some types.
    """
    assert writer.space.share is not None
    own = f"{writer.name(statement.name)}_own"
    writer.sum_pieces(statement, own, writer.loops[statement.loop])
    size, lane = writer.space.share.lanes, prim.Variable("l")
    columns = 1 << (size.bit_length() - 1) // 2
    lanes = _share(writer, statement, "all", size, prim.Variable(own), writer.written[statement.name])
    rows: list[ex.Expr] = [prim.Sum((lane, row)) if row else lane for row in range(0, size, columns)]
    column = _tree(writer, statement, lanes[0], rows, size)
    few = prim.Comparison(lane, "<", columns)
    joined = _share(writer, statement, "few", columns, column, frozenset({lanes[1]}), few)
    name = writer.name(statement.name)
    writer.declare(name, writer.scalars.value_dtype(statement.dtype))
    total = _tree(writer, statement, joined[0], list(range(columns)), columns)
    writer.written[statement.name] = frozenset(
        {writer.instruct(writer.cell(name), total, (), frozenset({joined[1]}))}
    )


def _share(
    writer: Any, statement: Accumulate, suffix: str, lanes: int, value: ex.Expr, after: frozenset[str], who: Any = None
) -> tuple[str, str]:
    """Local memory in which each of `lanes` lanes puts its `value`, and the instruction that does it."""
    assert writer.space.share is not None
    name, dtype = f"{writer.name(statement.name)}_{suffix}", writer.scalars.value_dtype(statement.dtype)
    size = writer.space.share.results * lanes
    writer.declare(name, dtype, shape=(size,), address_space=lp.AddressSpace.LOCAL)
    writer.out.local_bytes += size * np.dtype(dtype).itemsize
    cell = prim.Subscript(prim.Variable(name), (writer.space.share.cell(prim.Variable("l"), lanes),))
    return name, writer.instruct(cell, value, (), after, who)


def _tree(writer: Any, statement: Accumulate, memory: str, rows: list[ex.Expr], lanes: int) -> ex.Expr:
    """What the lanes `rows` of `lanes` have put into local memory, joined in pairs of pairs."""
    assert writer.space.share is not None
    cells = [writer.space.share.cell(row, lanes) for row in rows]
    terms: list[ex.Expr] = [prim.Subscript(prim.Variable(memory), (cell,)) for cell in cells]
    while len(terms) > 1:
        pairs = zip(terms[::2], terms[1::2], strict=True)
        terms = [writer.scalars.join(statement.op, statement.dtype, a, b) for a, b in pairs]
    return terms[0]
