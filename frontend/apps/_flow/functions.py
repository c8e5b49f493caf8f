"""Elementary functions that take numpy arrays and numbers as well as pytato arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytato as pt

Values = Any  # a numpy or pytato array, or a number


def sqrt(x: Values) -> Values:
    return pt.sqrt(x) if isinstance(x, pt.Array) else np.sqrt(x)


def exp(x: Values) -> Values:
    return pt.exp(x) if isinstance(x, pt.Array) else np.exp(x)


def log(x: Values) -> Values:
    return pt.log(x) if isinstance(x, pt.Array) else np.log(x)


def sin(x: Values) -> Values:
    return pt.sin(x) if isinstance(x, pt.Array) else np.sin(x)


def cos(x: Values) -> Values:
    return pt.cos(x) if isinstance(x, pt.Array) else np.cos(x)


def tanh(x: Values) -> Values:
    return pt.tanh(x) if isinstance(x, pt.Array) else np.tanh(x)


def arctan2(y: Values, x: Values) -> Values:
    return pt.arctan2(y, x) if _symbolic(x, y) else np.arctan2(y, x)


def absolute(x: Values) -> Values:
    return pt.abs(x) if isinstance(x, pt.Array) else np.abs(x)


def maximum(x: Values, y: Values) -> Values:
    """Of two; where `y` is NaN it is `x` (pytato's own asks both, which costs as much again)."""
    return where(less(x, y), y, x)


def minimum(x: Values, y: Values) -> Values:
    return where(less(y, x), y, x)


def where(condition: Values, x: Values, y: Values) -> Values:
    return pt.where(condition, x, y) if _symbolic(condition, x, y) else np.where(condition, x, y)


def less(x: Values, y: Values) -> Values:
    return pt.less(x, y) if _symbolic(x, y) else np.less(x, y)


def spread(x: Values, like: Values) -> Values:
    """A number or array as one of the shape of `like`."""
    if np.shape(x) == np.shape(like):
        return x
    if _symbolic(x, like):
        return x + pt.zeros(like.shape, "float64")
    return np.broadcast_to(x, np.shape(like))


def dot(x: Any, y: Any) -> Values:
    """The sum of products of two sequences of arrays, without a zero to start from."""
    first, *rest = (a * b for a, b in zip(x, y, strict=True))
    for term in rest:
        first = first + term
    return first


def _symbolic(*values: Values) -> bool:
    return any(isinstance(value, pt.Array) for value in values)
