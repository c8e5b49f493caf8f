"""Simplify integer index arithmetic by the ranges of its variables: what reshapes and wrap-around leave behind.

`(20*i + j) // 20` is `i` and `(20*i + j) % 20` is `j` where 0 <= j < 20; `t % n` is `t` where 0 <= t < n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pymbolic.primitives as prim

from aotato.emit.ranges import Range, range_of
from aotato.frontend import expr as ex

Terms = list[tuple[int, ex.Expr]]  # a sum of coefficient times expression; the expression of a constant is 1


def simplified(index: ex.Expr, ranges: Mapping[str, Range], loaded: Callable[[str], Range | None]) -> ex.Expr:
    """An equal expression for index variables in `ranges`; `loaded(operand)` is the range of a table's elements."""

    def known(node: ex.Expr) -> Range | None:
        return range_of(node, ranges, loaded)

    def rule(node: ex.Expr) -> ex.Expr:
        match node:
            case prim.Sum() | prim.Product() if _is_integer(node):
                return _written(_terms(node))
            case prim.FloorDiv() if type(node.denominator) is int and node.denominator > 0:
                return _divided(node, known)
            case prim.Remainder() if type(node.denominator) is int and node.denominator > 0:
                return _rest(node, known)
        return node

    return ex.rewrite(index, rule)


def _is_integer(node: ex.Expr) -> bool:
    """Whether only Python integers and index variables meet, whose arithmetic is exact in any order."""
    parts = (part for part in ex.walk(node) if ex.is_leaf(part))
    typed = any(isinstance(part, prim.Subscript | ex.Cast) for part in ex.walk(node))
    return not typed and all(isinstance(part, prim.Variable) or type(part) is int for part in parts)


def _terms(node: ex.Expr) -> Terms:
    """`node` as a sum, equal terms joined, in order of first appearance."""
    if type(node) is int:
        return [(node, 1)] if node else []
    if isinstance(node, prim.Sum):
        return _joined([term for child in node.children for term in _terms(child)])
    if isinstance(node, prim.Product):
        factor, rest = 1, []
        for child in node.children:
            if type(child) is int:
                factor *= child
            else:
                rest.append(child)
        if len(rest) == 1:
            return [(factor * n, term) for n, term in _terms(rest[0])] if factor else []
        return [(factor, prim.Product(tuple(rest)) if rest else 1)] if factor else []
    return [(1, node)]


def _joined(terms: Terms) -> Terms:
    found: dict[ex.Expr, int] = {}
    for factor, term in terms:
        found[term] = found.get(term, 0) + factor
    return [(factor, term) for term, factor in found.items() if factor]


def _written(terms: Terms) -> ex.Expr:
    parts = [
        factor if type(term) is int else term if factor == 1 else prim.Product((factor, term)) for factor, term in terms
    ]
    if not parts:
        return 0
    return parts[0] if len(parts) == 1 else prim.Sum(tuple(parts))


def _split(node: prim.FloorDiv | prim.Remainder, every: bool) -> tuple[Terms, Terms]:
    """The numerator as a multiple of the denominator, divided by it, and a rest.

    `every`: all terms are split, which may make two of one; otherwise numbers, and terms that leave no rest.
    """
    terms = _terms(node.numerator) if _is_integer(node.numerator) else [(1, node.numerator)]
    whole: Terms = []
    rest: Terms = []
    for factor, term in terms:
        below = factor % node.denominator
        if below and not every and type(term) is not int:
            below = factor
        whole.append(((factor - below) // node.denominator, term))
        rest.append((below, term))
    return [(factor, term) for factor, term in whole if factor], [(factor, term) for factor, term in rest if factor]


def _divided(node: prim.FloorDiv, known: Callable[[ex.Expr], Range | None]) -> ex.Expr:
    for every in (True, False):
        whole, rest = _split(node, every)
        below = _written(rest)
        span = known(below)
        if span is not None and span[0] // node.denominator == span[1] // node.denominator:
            return _written(_joined([*whole, *_terms(span[0] // node.denominator)]))
    inner = node.numerator
    nested = isinstance(inner, prim.FloorDiv) and type(inner.denominator) is int and inner.denominator > 0
    if nested and _is_integer(inner.numerator):
        return prim.FloorDiv(inner.numerator, inner.denominator * node.denominator)
    return _written([*whole, (1, prim.FloorDiv(below, node.denominator))]) if whole else node


def _rest(node: prim.Remainder, known: Callable[[ex.Expr], Range | None]) -> ex.Expr:
    for every in (True, False):
        whole, rest = _split(node, every)
        below = _written(rest)
        span = known(below)
        if span is not None and span[0] >= 0 and span[1] < node.denominator:
            return below
    return prim.Remainder(below, node.denominator) if whole else node
