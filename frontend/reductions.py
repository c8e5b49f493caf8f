"""Reductions along the last axis of values with bounds, which may come in blocks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import reduce as fold

import numpy as np

from aotato.frontend.bounds import logical
from aotato.frontend.values import Array, Value, flushable, is_exact, magnitude, rounding, sum_rounding, tiny, wide


def extreme(op: str, x: Value) -> Value:
    """The minimum or maximum along the last axis; only elements that may be it lend their bound."""
    pick = np.minimum if op == "min" else np.maximum
    value = pick.reduce(x.value, axis=-1)
    if is_exact(x):
        return Value(np.asarray(value), np.zeros((1,) * value.ndim))
    if x.value.dtype.kind == "c":
        return Value(np.asarray(value), np.where((x.bound > 0).any(axis=-1), np.inf, 0.0))
    sign = 1.0 if op == "min" else -1.0
    center = sign * wide(x.value)
    contends = center - x.bound <= np.min(center + x.bound, axis=-1, keepdims=True)
    contends |= np.isinf(x.bound)  # may be NaN on a device
    return Value(np.asarray(value), np.max(np.where(contends, x.bound, 0.0), axis=-1))


def reduction(op: str, blocks: Iterable[Value], count: int) -> Value:
    """`op` along the last axis of all `blocks`, whose lengths sum to `count`, at least one."""
    match op:
        case "sum":
            return _reduce_sum(blocks, count)
        case "product":
            return _reduce_product(blocks, count)
        case "any" | "all":
            return fold(lambda x, y: logical(op == "all", (x, y)), (_quantify(op == "all", x) for x in blocks))
        case "min" | "max":
            return fold(lambda x, y: extreme(op, stack((x, y))), (extreme(op, x) for x in blocks))
    raise AssertionError(f"unknown reduction {op!r}")


def stack(values: Sequence[Value]) -> Value:
    """Values side by side along a new last axis."""
    shape = np.broadcast_shapes(*(array.shape for x in values for array in (x.value, x.bound)))
    value = np.stack([np.broadcast_to(x.value, shape) for x in values], axis=-1)
    return Value(value, np.stack([np.broadcast_to(x.bound, shape) for x in values], axis=-1))


def _quantify(is_all: bool, x: Value) -> Value:
    decided = ((x.value != is_all) & (x.bound == 0)).any(axis=-1)
    doubt = (x.bound > 0).any(axis=-1) & ~decided
    value = x.value.all(axis=-1) if is_all else x.value.any(axis=-1)
    return Value(np.asarray(value), np.where(doubt, np.inf, 0.0))


def _reduce_sum(blocks: Iterable[Value], count: int) -> Value:
    """Single precision is added up in double, so that the oracle has no error to speak of."""
    value, dtype = None, None
    total, spread, finite = np.zeros(()), np.zeros(()), np.ones((), bool)
    for x in map(flushable, blocks):
        dtype = x.value.dtype
        accumulator = np.promote_types(dtype, np.float64) if dtype.kind in "fc" else dtype
        part = np.add.reduce(x.value, axis=-1, dtype=accumulator)
        value = part if value is None else value + part
        total = total + np.add.reduce(magnitude(x), axis=-1)
        spread = spread + np.add.reduce(x.bound, axis=-1)
        finite = finite & np.isfinite(x.value).all(axis=-1)
    result = np.asarray(value).astype(dtype)
    bound = spread + sum_rounding(result, total, count)
    if result.dtype.kind in "fc":
        bound = np.where(total + spread > np.finfo(result.dtype).max, np.inf, bound)  # in some order
    overflow = np.where(finite | np.isinf(spread), np.inf, 0.0)
    return Value(result, np.where(np.isfinite(result), bound, overflow))


def _reduce_product(blocks: Iterable[Value], count: int) -> Value:
    """Every factor as far from zero as its bound lets it, against the product itself."""
    value: Array = None
    upper = size = high = low = np.ones(())
    uncertain, moved, finite = np.zeros((), bool), np.zeros((), bool), np.ones((), bool)
    for x in map(flushable, blocks):
        part = np.multiply.reduce(x.value, axis=-1, dtype=x.value.dtype)
        value = part if value is None else value * part
        a = magnitude(x)
        size = size * np.multiply.reduce(a, axis=-1)
        upper = upper * np.multiply.reduce(a + x.bound, axis=-1)
        high = high * np.multiply.reduce(np.maximum(a + x.bound, 1), axis=-1)
        low = low * np.multiply.reduce(np.minimum(a, 1), axis=-1)
        uncertain = uncertain | np.isinf(x.bound).any(axis=-1)
        moved = moved | (x.bound > 0).any(axis=-1)
        finite = finite & np.isfinite(x.value).all(axis=-1)
    bound = upper - size
    if value.dtype.kind in "fc" and count > 1:
        bound = bound + rounding(value, 4 * count, upper, upper == 0)
        vanishing = (low > 0) & (low < tiny(value.dtype))  # in some order, before the large factors come
        bound = bound + np.where(vanishing, tiny(value.dtype) * high, 0.0)
        uncertain = uncertain | finite & (high > np.finfo(value.dtype).max)  # in some order
    bound = np.where(np.isfinite(value), bound, np.where(finite | moved, np.inf, 0.0))
    return Value(np.asarray(value), np.where(uncertain | np.isnan(bound), np.inf, bound))
