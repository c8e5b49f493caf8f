"""Integer ranges of index expressions, so that reads can be proved inside their array."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import expr as ex

Range = tuple[int, int]  # smallest and largest value, both included


def range_of(expr: ex.Expr, variables: Mapping[str, Range], loaded: Callable[[str], Range | None]) -> Range | None:
    """The values an index expression can take, or None where they are not known.

    `loaded(array)` gives the range of an array's elements (constants), or None.
    """

    def rec(node: ex.Expr) -> Range | None:
        if isinstance(node, int | np.integer):
            return int(node), int(node)
        match node:
            case prim.Variable():
                return variables.get(node.name)
            case prim.Subscript():
                return loaded(node.aggregate.name)
            case ex.Cast():
                return rec(node.body) if node.dtype.kind in "iu" and node.dtype.itemsize >= 4 else None
            case prim.Sum():
                return _fold(rec, node.children, lambda a, b: (a[0] + b[0], a[1] + b[1]))
            case prim.Product():
                return _fold(rec, node.children, _product)
            case prim.FloorDiv():
                return _floordiv(rec(node.numerator), rec(node.denominator))
            case prim.Remainder():
                return _remainder(rec(node.numerator), rec(node.denominator))
            case prim.Min():
                return _fold(rec, node.children, lambda a, b: (min(a[0], b[0]), min(a[1], b[1])))
            case prim.Max():
                return _fold(rec, node.children, lambda a, b: (max(a[0], b[0]), max(a[1], b[1])))
            case prim.If():
                return _fold(rec, (node.then, node.else_), lambda a, b: (min(a[0], b[0]), max(a[1], b[1])))
        return None

    return rec(expr)


def _fold(
    rec: Callable[[ex.Expr], Range | None], nodes: tuple[ex.Expr, ...], join: Callable[[Range, Range], Range]
) -> Range | None:
    total: Range | None = None
    for index, node in enumerate(nodes):
        one = rec(node)
        if one is None:
            return None
        total = one if index == 0 or total is None else join(total, one)
    return total


def _product(a: Range, b: Range) -> Range:
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def _floordiv(a: Range | None, b: Range | None) -> Range | None:
    if a is None or b is None or b[0] <= 0:
        return None
    ends = [x // y for x in a for y in b]
    return min(ends), max(ends)


def _remainder(a: Range | None, b: Range | None) -> Range | None:
    if b is None or b[0] <= 0:
        return None
    if a is not None and a[0] >= 0 and a[1] < b[0]:
        return a
    return 0, b[1] - 1
