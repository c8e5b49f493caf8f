"""One kernel for ranks whose kernels differ in integers only: what differs becomes a parameter.

An integer that is the same on all ranks stays a literal; integers that take equal values on every rank are one
parameter.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pymbolic.primitives as prim

MOST = 48  # parameters of a kernel; ranks that differ in more have kernels of their own
# A factor must stay a literal: bounds of loops are linear
_BOUND = re.compile(r"(?<![\w.*])\d+(?!\w|\s*\*)")


@dataclass(frozen=True)
class Parameter:
    """An integer argument after all others; `values` by rank of the group."""

    name: str
    dtype: str
    values: tuple[int, ...]


def text_of(expr: Any, integers: list[int]) -> str:
    """Class and fields of every node, without the integers, which are appended to `integers` in order.

    pymbolic's repr leaves out what lies deep, numpy 1's the dtype of a scalar.
    """
    if type(expr) is int:
        integers.append(expr)
        return "int"
    if isinstance(expr, prim.ExpressionNode):
        fields = (text_of(getattr(expr, field.name), integers) for field in dataclasses.fields(expr))
        return f"{type(expr).__name__}({', '.join(fields)})"
    if isinstance(expr, tuple):
        return f"({', '.join(text_of(item, integers) for item in expr)})"
    return f"{type(expr).__name__} {expr!r}"


def with_integers(expr: Any, replacements: Any) -> Any:
    """`expr` with its integers replaced, in the order of `text_of`, by the next ones of an iterator; None keeps one."""
    if type(expr) is int:
        new = next(replacements)
        return expr if new is None else new
    if isinstance(expr, prim.ExpressionNode):
        names = [field.name for field in dataclasses.fields(expr)]
        old = [getattr(expr, name) for name in names]
        new = [with_integers(value, replacements) for value in old]
        return expr if all(a is b for a, b in zip(old, new, strict=True)) else type(expr)(*new)
    if isinstance(expr, tuple):
        return tuple(with_integers(item, replacements) for item in expr)
    return expr


def bound_text(domain: str, integers: list[int]) -> str:
    """`domain` without the integers that may become parameters, which are appended to `integers`."""

    def taken(match: re.Match[str]) -> str:
        integers.append(int(match.group()))
        return "int"

    return _BOUND.sub(taken, domain)


def with_bounds(domain: str, replacements: Any) -> str:
    """`domain` with its integers replaced by parameters; None keeps one. It names the parameters that it uses."""
    used: dict[str, None] = {}

    def put(match: re.Match[str]) -> str:
        new = next(replacements)
        if new is None:
            return match.group()
        used[new.name] = None
        return str(new.name)

    text = _BOUND.sub(put, domain)
    if not used:
        return text
    before, arrow, rest = text.rpartition("->")
    names = [name for name in before.strip().strip("[]").replace(" ", "").split(",") if name]
    return f"[{', '.join([*names, *used])}] -> {rest if arrow else text}"


def differing(rows: Sequence[Sequence[int]]) -> tuple[tuple[Parameter, ...], list[Any]] | None:
    """Parameters for the columns of `rows` (integers by rank) that are not the same on all ranks.

    Also, by column, the variable that replaces the integer, or None. None where there are too many.
    """
    known: dict[tuple[int, ...], Parameter] = {}
    columns: list[Any] = []
    for column in zip(*rows, strict=True):
        if len(set(column)) == 1:
            columns.append(None)
            continue
        wide = max(map(abs, column)) >= 2**31
        found = known.setdefault(column, Parameter(f"p{len(known)}", "int64" if wide else "int32", column))
        columns.append(prim.Variable(found.name))
    return (tuple(known.values()), columns) if len(known) <= MOST else None
