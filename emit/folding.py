"""Integer arithmetic on numbers, and comparisons and remainders that known ranges decide, done while building."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import ranges
from aotato.frontend import expr as ex


def folded(expr: ex.Expr, known: Callable[[ex.Expr], ranges.Range | None]) -> ex.Expr:
    """`expr`, or what it is for certain; `known` gives the range of a part."""
    parts = ex.children(expr)
    if isinstance(expr, ex.Cast) and expr.dtype.kind == "i" and type(parts[0]) is int:
        return parts[0]
    if isinstance(expr, prim.Comparison):
        return _decided(expr, known(parts[0]), known(parts[1]))
    if isinstance(expr, prim.Remainder) and type(parts[1]) is int and parts[1] > 0:
        top = known(parts[0])
        if top is not None and top[0] >= 0 and top[1] < parts[1]:
            return parts[0]
    if not parts or not all(type(part) is int or isinstance(part, bool) for part in parts):
        return expr
    match expr:
        case prim.Sum() if not any(isinstance(part, bool) for part in parts):
            return sum(parts)
        case prim.Product() if not any(isinstance(part, bool) for part in parts):
            return int(np.prod(parts, dtype=object))
        case prim.FloorDiv() if parts[1]:
            return parts[0] // parts[1]
        case prim.Remainder() if parts[1]:
            return parts[0] % parts[1]
        case prim.LogicalAnd():
            return all(parts)
        case prim.LogicalOr():
            return any(parts)
        case prim.LogicalNot():
            return not parts[0]
    return expr


def _decided(expr: prim.Comparison, left: ranges.Range | None, right: ranges.Range | None) -> ex.Expr:
    if left is None or right is None:
        return expr
    below, above = left[1] < right[0], left[0] > right[1]
    not_above, not_below = left[1] <= right[0], left[0] >= right[1]
    same = left == right and left[0] == left[1]
    yes, no = {
        "<": (below, not_below),
        "<=": (not_above, above),
        ">": (above, not_above),
        ">=": (not_below, below),
        "==": (same, below or above),
        "!=": (below or above, same),
    }[expr.operator]
    return True if yes else False if no else expr
