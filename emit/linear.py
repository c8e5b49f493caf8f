"""Index expressions as sums of multiples: equal terms are one, and `n * (i // n) + i % n` is i again."""

from __future__ import annotations

from collections.abc import Iterable

import pymbolic.primitives as prim

from aotato.frontend import expr as ex
from aotato.frontend import ir

Linear = dict[ex.Expr, int]  # term -> factor; the term 1 has the constant. Terms are no sums, and no multiples


def linear(expr: ex.Expr) -> Linear:
    """`expr` as such a sum, exact for integers of any size."""
    return _rejoined(_collected(_parts(expr, 1)))


def place(strides: Iterable[int], indices: Iterable[ex.Expr]) -> Linear:
    """The sum of strides times indices: the flat number of an element."""
    parts = [part for stride, index in zip(strides, indices, strict=True) for part in _parts(index, stride)]
    return _rejoined(_collected(parts))


def steps(shape: ir.Shape, indices: tuple[ex.Expr, ...]) -> dict[str, int]:
    """How far apart elements of an array lie in memory for neighbouring values of each index variable, about."""
    found: dict[str, int] = {}
    for term, factor in place([ir.size(shape[axis + 1 :]) for axis in range(len(shape))], indices).items():
        if isinstance(term, prim.FloorDiv):
            continue  # it moves rarely
        # A loaded index may be anywhere
        step = ir.size(shape) if isinstance(term, prim.Subscript) else abs(factor)
        for node in ex.walk(term):
            if isinstance(node, prim.Variable):
                found[node.name] = max(found.get(node.name, 0), step)
    return found


def _parts(expr: ex.Expr, factor: int) -> list[tuple[ex.Expr, int]]:
    if type(expr) is int:
        return [(1, factor * expr)]
    if isinstance(expr, prim.Sum):
        return [part for child in expr.children for part in _parts(child, factor)]
    if isinstance(expr, prim.Product):
        numbers = [child for child in expr.children if type(child) is int]
        others = [child for child in expr.children if type(child) is not int]
        for number in numbers:
            factor *= number
        if numbers and len(others) < 2:
            return _parts(others[0] if others else 1, factor)
        return [(prim.Product(tuple(others)) if numbers else expr, factor)]
    return [(expr, factor)]


def _collected(parts: list[tuple[ex.Expr, int]]) -> Linear:
    found: Linear = {}
    for term, factor in parts:
        found[term] = found.get(term, 0) + factor
    return {term: factor for term, factor in found.items() if factor}


def _rejoined(form: Linear) -> Linear:
    for term, factor in form.items():
        if isinstance(term, prim.Remainder) and type(term.denominator) is int:
            whole = prim.FloorDiv(term.numerator, term.denominator)
            if form.get(whole) == factor * term.denominator:
                rest = [(other, number) for other, number in form.items() if other not in (term, whole)]
                return _rejoined(_collected([*rest, *_parts(term.numerator, factor)]))
    return form
