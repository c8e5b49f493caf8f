"""The outermost reductions of an expression that no condition guards: what is guarded may read outside its arrays."""

from __future__ import annotations

from collections.abc import Iterator

import pymbolic.primitives as prim

from aotato.frontend import expr as ex


def unguarded(expr: ex.Expr) -> Iterator[ex.Reduce]:
    """These reductions, left to right."""
    if isinstance(expr, ex.Reduce):
        yield expr
    elif not isinstance(expr, prim.If):
        for child in ex.children(expr):
            yield from unguarded(child)


def exchanged(expr: ex.Expr, new: Iterator[ex.Expr]) -> ex.Expr:
    """`expr` with others in their places, in the same order."""
    if isinstance(expr, ex.Reduce):
        return next(new)
    if isinstance(expr, prim.If) or ex.is_leaf(expr):
        return expr
    return ex.with_children(expr, tuple(exchanged(child, new) for child in ex.children(expr)))
