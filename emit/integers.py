"""Evaluate index and mask expressions, whose data is known at build time, over numpy arrays of index values."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import expr as ex

Array = np.ndarray[Any, Any]
Table = Callable[[prim.Subscript], Array | None]  # the constant that is read, or None where a run decides

_CHAINS: dict[type, Callable[[Any, Any], Any]] = {
    prim.Sum: lambda a, b: a + b,
    prim.Product: lambda a, b: a * b,
    prim.Min: np.minimum,
    prim.Max: np.maximum,
    prim.LogicalAnd: np.logical_and,
    prim.LogicalOr: np.logical_or,
}
_PAIRS: dict[type, Callable[[Any, Any], Any]] = {prim.FloorDiv: lambda a, b: a // b, prim.Remainder: lambda a, b: a % b}
_COMPARISONS: dict[str, Callable[[Any, Any], Any]] = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "==": np.equal,
    "!=": np.not_equal,
}
_OTHER = (ex.Cast, prim.Comparison, prim.LogicalNot, prim.If)


def variables(expr: ex.Expr) -> Iterator[str]:
    """The index variables of `expr`, once for each use."""
    return (node.name for node in ex.walk(expr) if isinstance(node, prim.Variable))


def is_known(expr: ex.Expr, free: Mapping[str, Any], table: Table) -> bool:
    """Whether `expr` follows from index variables in `free` and constants alone."""
    for node in ex.walk(expr):
        if isinstance(node, prim.Variable):
            if node.name not in free:
                return False
        elif isinstance(node, prim.Subscript):
            if table(node) is None:
                return False
        elif not ex.is_leaf(node) and type(node) not in (*_CHAINS, *_PAIRS, *_OTHER):
            return False
    return True


def evaluate(expr: ex.Expr, values: Mapping[str, Any], table: Table, clip: bool = False) -> Any:
    """`expr` where variable v is `values[v]`: arrays that broadcast together.

    Raises IndexError outside a constant, or reads its nearest element with `clip`.
    """
    if isinstance(expr, prim.Variable):
        return values[expr.name]
    if ex.is_leaf(expr):
        return expr
    parts = [evaluate(child, values, table, clip) for child in ex.children(expr)]
    match expr:
        case prim.Subscript():
            return _read(table(expr), parts, clip)
        case ex.Cast():
            return np.asarray(parts[0]).astype(expr.dtype)
        case prim.Comparison():
            return _COMPARISONS[expr.operator](*parts)
        case prim.LogicalNot():
            return np.logical_not(parts[0])
        case prim.If():
            return np.where(*parts)
    if type(expr) in _PAIRS:
        return _PAIRS[type(expr)](*parts)
    return reduce(_CHAINS[type(expr)], parts)


def _read(data: Array | None, indices: list[Any], clip: bool) -> Any:
    assert data is not None
    inside = []
    for index, extent in zip(indices, data.shape, strict=True):
        if np.size(index) and (np.min(index) < 0 or np.max(index) >= extent):
            if not clip or not extent:
                raise IndexError(f"index {np.min(index)} to {np.max(index)} of an axis of {extent}")
            index = np.clip(index, 0, extent - 1)
        inside.append(index)
    return data[tuple(inside)]
