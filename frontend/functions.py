"""Numpy's functions of one or two numbers, power included, on values with bounds."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import reduce as fold

import numpy as np

from aotato.frontend.dtypes import CALLS
from aotato.frontend.values import Array, Value, flushable, is_exact, magnitude, rounding, settle, times, wide

# Units in the last place that OpenCL allows, double or float, whichever is larger; 4 eps where absent.
ULPS = {"tan": 5, "atan2": 6, "tanh": 5, "atan": 5, "sin": 4, "cos": 4, "sinh": 4, "cosh": 4, "asin": 4, "acos": 4}
POW_ULPS = 16

SLOPES: dict[str, Callable[[Array], Array]] = {
    "sqrt": lambda x: 0.5 / np.sqrt(x),
    "exp": np.exp,
    "log": lambda x: 1 / x,
    "log10": lambda x: 1 / (x * math.log(10)),
    "sin": np.cos,
    "cos": np.sin,
    "tan": lambda x: 1 + np.tan(x) ** 2,
    "asin": lambda x: 1 / np.sqrt(1 - x * x),
    "acos": lambda x: 1 / np.sqrt(1 - x * x),
    "atan": lambda x: 1 / (1 + x * x),
    "sinh": np.cosh,
    "cosh": np.sinh,
    "tanh": lambda x: 1 - np.tanh(x) ** 2,
}


def call(name: str, arguments: Sequence[Value]) -> Value:
    x = arguments[0]
    match name:
        case "real" | "imag" | "conj":
            return Value(np.asarray(CALLS[name](x.value)), x.bound)
        case "isnan":
            return Value(np.isnan(x.value), np.where(np.isinf(x.bound), np.inf, 0.0))
        case "abs":
            value = np.abs(x.value)
            own = rounding(value, 4, wide(value), value == 0) if x.value.dtype.kind == "c" else 0.0
            return settle(value, x.bound + own, arguments)
        case "atan2":
            return _atan2(arguments[0], arguments[1])
    return _function(name, x)


def _function(name: str, x: Value) -> Value:
    """A function of one number: its slope here, or its change to the ends of the interval if that is more."""
    x = flushable(x)
    function, slope = CALLS[name], SLOPES[name]
    value, center = function(x.value), wide(x.value)
    ulps = max(4, ULPS.get(name, 3) + 1)
    own = rounding(value, ulps, np.abs(wide(value)), (x.value == 0) & (x.bound == 0) & (value == 0))
    if is_exact(x):
        return settle(value, own, (x,))
    carried = times(np.abs(slope(center)), x.bound)
    if value.dtype.kind == "c":
        return settle(value, carried + own, (x,))
    if name in ("sin", "cos"):
        return settle(value, np.minimum(x.bound, 2.0) + own, (x,))
    low, high = function(center - x.bound), function(center + x.bound)
    carried = np.fmax(carried, np.maximum(np.abs(high - function(center)), np.abs(low - function(center))))
    doubt = (x.bound > 0) & (np.isnan(low) | np.isnan(high)) & ~(np.isnan(low) & np.isnan(high) & np.isnan(value))
    if name == "tan":
        doubt = np.floor((center - x.bound) / math.pi + 0.5) != np.floor((center + x.bound) / math.pi + 0.5)
    ends = [end.astype(value.dtype) for end in (low, high)]
    sure = fold(np.logical_and, [(end == value) | np.isnan(end) & np.isnan(value) for end in ends])
    return settle(value, carried + own, (x,), doubt, sure)


def _atan2(y: Value, x: Value) -> Value:
    """The angle subtended by the bounds, or a full turn across the cut along negative x."""
    y, x = flushable(y), flushable(x)
    value = np.arctan2(y.value, x.value)
    reach = np.hypot(x.bound, y.bound)
    share = np.where(reach == 0, 0.0, reach / np.hypot(wide(x.value), wide(y.value)))
    carried = np.where(share < 1, np.arcsin(np.minimum(share, 1.0)), 2 * math.pi)
    cut = (y.bound > 0) & (magnitude(y) <= y.bound) & (wide(x.value) - x.bound < 0)
    own = rounding(value, ULPS["atan2"] + 1, np.abs(wide(value)), (y.value == 0) & (y.bound == 0))
    return settle(value, np.where(cut, 2 * math.pi, carried) + own, (y, x))


def power(x: Value, y: Value, literal: int | None = None) -> Value:
    """x ** y; `literal` is the exponent if it is written as an integer, which is defined for x around zero too."""
    x, y = flushable(x), flushable(y)
    value = np.power(x.value, y.value)
    if value.dtype.kind in "biu":
        return settle(value, np.zeros(()), (x, y), (x.bound > 0) | (y.bound > 0))
    a, size = magnitude(x), np.abs(wide(value))
    own = rounding(value, 4 if literal in (0, 1) else POW_ULPS + 1, size, (a == 0) & (x.bound == 0))
    if value.dtype.kind == "c":
        slope = np.abs(wide(y.value)) * size / a
        carried = times(slope, x.bound) + times(size * np.abs(np.log(wide(x.value))), y.bound)
        vanishing = (a == 0) & (y.value.imag != 0)  # NaN in older versions of numpy
        return settle(value, carried + own, (x, y), (x.bound > 0) & (a <= x.bound) | vanishing)
    corners = [np.power(a + s * x.bound, wide(y.value) + t * y.bound) for s in (1, -1) for t in (1, -1)]
    carried = fold(np.maximum, [np.abs(corner - np.power(a, wide(y.value))) for corner in corners])
    carried = np.where((x.bound == 0) & (y.bound == 0), 0.0, carried)
    doubt = (x.bound > 0) & (a <= x.bound) | (x.value < 0) & (y.bound > 0)
    doubt |= (x.value == -np.inf) & (y.value == 0.5)  # numpy takes the square root for some dtypes
    if literal is not None and literal >= 0:
        carried, doubt = np.power(a + x.bound, literal) - np.power(a, literal), False
    sure = fold(np.logical_and, [np.isinf(corner.astype(value.dtype)) for corner in corners])
    return settle(value, carried + own, (x, y), doubt, sure)
