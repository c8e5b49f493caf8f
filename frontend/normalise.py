"""Write equal expressions alike: operations that change nothing are left out, commuting operands get one order.

`x + 0`, `1 * x`, `i // 1` and `i % n` of an index expression below n become their operand, `i // n` of one becomes 0;
never `0 * x`, which may be NaN. An index that can only be 0 is the own index of its axis, where that has one element,
or the number. Only the sign of a zero can change. The two operands of a sum or product commute exactly, so they take a
fixed order; longer chains keep theirs, which rounding depends on.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Sequence
from typing import Any

import pymbolic.primitives as prim

from aotato.frontend import expr as ex
from aotato.frontend.text_expr import expr_text

DIGITS = 12
_NUMBER = re.compile(r"\d+")


def normalise(expr: ex.Expr, operands: Sequence[str], shape: Sequence[int]) -> tuple[ex.Expr, tuple[str, ...]]:
    """`expr` of an array of `shape` in normal form, and its operands in the order in which it reads them."""
    names = {f"a{position}": name for position, name in enumerate(operands)}
    expr = ex.rewrite(expr, lambda node: _named(node, names))
    expr = ex.rewrite(expr, lambda node: _simpler(node, shape))
    order: dict[str, int] = {}
    for node in ex.walk(expr):
        if isinstance(node, prim.Subscript):
            order.setdefault(node.aggregate.name, len(order))
    return ex.rewrite(expr, lambda node: _numbered(node, order)), tuple(order)


def _named(node: ex.Expr, names: dict[str, str]) -> ex.Expr:
    if isinstance(node, prim.Subscript):
        return prim.Subscript(prim.Variable(names[node.aggregate.name]), node.index_tuple)
    return node


def _numbered(node: ex.Expr, order: dict[str, int]) -> ex.Expr:
    return ex.read(order[node.aggregate.name], node.index_tuple) if isinstance(node, prim.Subscript) else node


def _simpler(node: ex.Expr, shape: Sequence[int]) -> ex.Expr:
    match node:
        case prim.Subscript():
            indices = enumerate(node.index_tuple)
            return prim.Subscript(node.aggregate, tuple(_index(index, axis, shape) for axis, index in indices))
        case prim.Sum():
            kept = [child for child in node.children if _range(child, shape) != (0, 0)]
            return _chain(node if len(kept) == len(node.children) else prim.Sum((*kept, 0)), 0)
        case prim.Product():
            return 0 if _range(node, shape) == (0, 0) else _chain(node, 1)
        case prim.FloorDiv() if ex.is_number(node.denominator, 1):
            return node.numerator
        case prim.FloorDiv() if _below(node.numerator, node.denominator, shape):
            return 0
        case prim.Remainder() if _below(node.numerator, node.denominator, shape):
            return node.numerator
    return node


def _index(index: ex.Expr, axis: int, shape: Sequence[int]) -> ex.Expr:
    if index == prim.Variable(f"_{axis}") or _range(index, shape) != (0, 0):
        return index
    return prim.Variable(f"_{axis}") if axis < len(shape) and shape[axis] == 1 else 0


def _chain(node: prim.Sum | prim.Product, neutral: int) -> ex.Expr:
    """Without neutral elements, as long as one operand stays."""
    kept = [child for child in node.children if not ex.is_number(child, neutral)] or list(node.children[:1])
    if len(kept) == 1:
        return kept[0]
    if len(kept) == 2:
        kept.sort(key=_order)
    return type(node)(tuple(kept))


def _order(node: ex.Expr) -> tuple[int, str]:
    """Numbers first in a product (`-1*x` reads as a negation), negations last in a sum; arrays as they were traced.

    Names count as numbers do, so that a rank with one array less orders the rest as others do.
    """
    negation = isinstance(node, prim.Product) and ex.is_number(node.children[0], -1)
    is_number = not isinstance(node, prim.ExpressionNode)
    text = _NUMBER.sub(lambda found: found.group().zfill(DIGITS), expr_text(node))
    return (0 if is_number else 2 if negation else 1), text


def _below(index: Any, extent: Any, shape: Sequence[int]) -> bool:
    """Whether 0 <= index < extent everywhere."""
    found = _range(index, shape)
    return type(extent) is int and found is not None and found[0] >= 0 and found[1] < extent


def _range(index: Any, shape: Sequence[int]) -> tuple[int, int] | None:
    """The smallest and largest value of an expression of own indices and plain integers; None for any other."""
    match index:
        case prim.Variable() if index.name[1:].isdigit():
            return 0, max(0, shape[int(index.name[1:])] - 1)
        case int() if type(index) is int:
            return index, index
        case prim.Sum() | prim.Product():
            parts = [_range(child, shape) for child in index.children]
            known = [part for part in parts if part is not None]
            if len(known) < len(parts):
                return None
            if isinstance(index, prim.Sum):
                return sum(low for low, _ in known), sum(high for _, high in known)
            ends = [math.prod(some) for some in itertools.product(*known)]
            return min(ends), max(ends)
        case prim.FloorDiv() | prim.Remainder() if type(index.denominator) is int and index.denominator > 0:
            top, bottom = _range(index.numerator, shape), index.denominator
            if isinstance(index, prim.Remainder):
                return 0, bottom - 1
            return None if top is None else (top[0] // bottom, top[1] // bottom)
    return None
