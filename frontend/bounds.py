"""Numpy's operators on values with bounds; both operands have one dtype, as `make_explicit` leaves them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce as fold
from typing import Any

import numpy as np

from aotato.frontend.ir import DType
from aotato.frontend.values import (
    Array,
    Value,
    eps,
    exact,
    flushable,
    is_exact,
    magnitude,
    rounding,
    settle,
    sum_rounding,
    times,
    tiny,
    wide,
)


def add(terms: Sequence[Value]) -> Value:
    terms = [flushable(term) for term in terms]
    value = fold(np.add, [term.value for term in terms])
    total = fold(np.add, [magnitude(term) for term in terms])
    spread = fold(np.add, [term.bound for term in terms])
    return settle(value, spread + sum_rounding(value, total, len(terms)), terms)


def multiply(x: Value, y: Value) -> Value:
    x, y = flushable(x), flushable(y)
    value = x.value * y.value
    a, b = magnitude(x), magnitude(y)
    carried = times(a, y.bound) + times(b, x.bound) + times(x.bound, y.bound)
    void = (a == 0) & (x.bound == 0) | (b == 0) & (y.bound == 0)
    unit = (a == 1) & (x.bound == 0) | (b == 1) & (y.bound == 0)
    own = np.where(unit, 0.0, rounding(value, 4, np.abs(wide(value)), void))
    doubt = np.isinf(a) & (y.bound > 0) & (b <= y.bound) | np.isinf(b) & (x.bound > 0) & (a <= x.bound)
    return settle(value, carried + own, (x, y), doubt)


def divide(x: Value, y: Value) -> Value:
    x, y = flushable(x), flushable(y)
    value = np.true_divide(x.value, y.value)
    size, b = np.abs(wide(value)), magnitude(y)
    touches_zero = (y.bound > 0) & (b <= y.bound)
    carried = (x.bound + times(size, y.bound)) / (b - y.bound)
    carried = np.where((x.bound == 0) & (y.bound == 0), 0.0, carried)
    ulps = 8 if value.dtype.kind == "c" else 4
    own = rounding(value, ulps, size, (x.value == 0) & (x.bound == 0))
    pole_sign = (b == 0) & (x.bound > 0) & (magnitude(x) > x.bound)
    return settle(value, carried + own, (x, y), touches_zero, pole_sign)


def _floor_doubt(x: Value, y: Value) -> tuple[Array, Array]:
    """The floor of x / y in float64, and where an integer is so near that either neighbour is right."""
    ratio = divide(Value(wide(x.value), x.bound), Value(wide(y.value), y.bound))
    if x.value.dtype.kind != "f":
        limits = np.iinfo(x.value.dtype)
        overflow = (x.value == limits.min) & (y.value == -1) if limits.min < 0 else False
        return np.floor(ratio.value), (x.bound > 0) | (y.bound > 0) | (y.value == 0) | overflow
    margin = ratio.bound + 4 * eps(x.value.dtype) * np.abs(ratio.value)
    margin = margin + np.where(x.value != 0, tiny(x.value.dtype), 0.0)  # the quotient may vanish
    whole = (x.bound == 0) & (y.bound == 0) & (np.remainder(x.value, y.value) == 0) & (x.value.dtype == np.float64)
    doubt = (np.floor(ratio.value - margin) != np.floor(ratio.value + margin)) & ~whole
    return np.floor(ratio.value), doubt & ~np.isnan(ratio.value) | np.isinf(ratio.bound)


def floor_divide(x: Value, y: Value) -> Value:
    x, y = flushable(x), flushable(y)
    _, doubt = _floor_doubt(x, y)
    return settle(np.floor_divide(x.value, y.value), np.zeros(()), (x, y), doubt, ~np.asarray(doubt))


def remainder(x: Value, y: Value) -> Value:
    x, y = flushable(x), flushable(y)
    floor, doubt = _floor_doubt(x, y)
    value = np.remainder(x.value, y.value)
    own = rounding(value, 4, magnitude(x) + magnitude(y), x.value == 0)
    return settle(value, x.bound + times(np.abs(floor), y.bound) + own, (x, y), doubt)


def bitwise(function: Any, operands: Sequence[Value]) -> Value:
    value = fold(function, [x.value for x in operands]) if len(operands) > 1 else function(operands[0].value)
    return settle(value, np.zeros(()), operands, fold(np.logical_or, [x.bound > 0 for x in operands]))


def compare(operator: str, x: Value, y: Value) -> Value:
    names = {"<": "less", "<=": "less_equal", ">": "greater", ">=": "greater_equal", "==": "equal", "!=": "not_equal"}
    value = getattr(np, names[operator])(x.value, y.value)
    margin = x.bound + y.bound
    doubt = np.isinf(margin) | (margin > 0) & (np.abs(wide(x.value) - wide(y.value)) <= margin)
    return Value(np.asarray(value), np.where(doubt, np.inf, 0.0))


def logical(is_and: bool, terms: Sequence[Value]) -> Value:
    """And, or: a term that certainly decides makes doubt about the others irrelevant."""
    value = fold(np.logical_and if is_and else np.logical_or, [term.value for term in terms])
    decided = fold(np.logical_or, [(term.value != is_and) & (term.bound == 0) for term in terms])
    doubt = fold(np.logical_or, [term.bound > 0 for term in terms]) & ~decided
    return Value(np.asarray(value), np.where(doubt, np.inf, 0.0))


def logical_not(x: Value) -> Value:
    return Value(np.logical_not(x.value), x.bound)


def choose(condition: Value, x: Value, y: Value) -> Value:
    """`where`; an uncertain condition adds the distance of the branches."""
    value = np.where(condition.value, x.value, y.value)
    bound = np.where(condition.value, x.bound, y.bound)
    if not is_exact(condition):
        equal = (x.value == y.value) | (x.value != x.value) & (y.value != y.value)
        gap = np.where(equal, 0.0, np.abs(wide(x.value) - wide(y.value)))
        gap = np.where(np.isnan(gap), np.inf, gap)
        bound = np.where(condition.bound > 0, gap + x.bound + y.bound, bound)
    return Value(value, bound)


def cast(x: Value, dtype: DType) -> Value:
    """`astype`; a float outside the range of an integer dtype is undefined."""
    source, array = x.value.dtype, x.value
    if source == dtype:
        return x
    if dtype == np.bool_:
        return compare("!=", x, exact(np.zeros((), source)))
    value = (array.real if source.kind == "c" and dtype.kind != "c" else array).astype(dtype)
    if dtype.kind in "iu":
        return _to_integer(x, value) if source.kind in "fc" else Value(value, x.bound)
    inexact = np.abs(wide(value)) > 2 / eps(dtype) if source.kind in "iu" else eps(dtype) > eps(source)
    own = np.where(inexact, rounding(value, 1, np.abs(wide(value)), magnitude(x) == 0), 0.0)
    return settle(value, x.bound + own, (x,))


def _to_integer(x: Value, value: Array) -> Value:
    info = np.iinfo(value.dtype)
    real = wide(x.value).real
    low, high = np.trunc(real - x.bound), np.trunc(real + x.bound)
    inside = (low >= info.min) & (high < 2.0 ** (info.bits - (info.min < 0)))
    return Value(value, np.where(inside & (low == high), 0.0, np.inf))
