"""Arrays that carry a bound on how far a correct device may be from them, and the parts that bounds are made of.

The bounds of an operation's operands are carried through it, and its own rounding is added: 4 eps |f|, or where
larger what OpenCL 3.0 (full profile) allows the function, plus one for numpy's own error; sums of n terms have
(2 + log2 n) eps sum |x|, which is for sums taken in blocks or trees. Exact operations add nothing. Results below
the smallest normal number may be flushed to zero in float32, and lose digits in other dtypes. Where a step
(comparison, floor, truncation) is nearer than the bound, where a domain may be left, and where C leaves the
result undefined, the bound is infinite: any result is right. Not watched: signs of zeros, branch cuts of complex
functions.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce as fold
from typing import Any

import numpy as np

from aotato.frontend.ir import DType

Array = Any  # an ndarray, or the numpy scalar that numpy makes of a 0-dimensional one


@dataclass(frozen=True)
class Value:
    """An array and an absolute error bound of the same shape; 0 is exact, infinity accepts anything.

    A complex element has a bound on the modulus of its error. Inside an expression the two shapes only
    broadcast with each other.
    """

    value: np.ndarray[Any, Any]
    bound: np.ndarray[Any, Any]  # float64


def exact(value: Array) -> Value:
    array = np.asarray(value)
    return Value(array, np.zeros((1,) * array.ndim))


def eps(dtype: DType) -> float:
    return float(np.finfo(dtype).eps) if dtype.kind in "fc" else 0.0


def tiny(dtype: DType) -> float:
    return float(np.finfo(dtype).tiny)


def wide(array: Array) -> Array:
    """In the dtype that bounds are computed in."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)


def magnitude(x: Value) -> Array:
    return np.abs(wide(x.value))


def times(a: Array, b: Array) -> Array:
    """The product of two bounds or magnitudes; nothing times infinity is nothing."""
    return np.where((a == 0) | (b == 0), 0.0, a * b)


def is_exact(x: Value) -> bool:
    return not x.bound.any()


def rounding(value: Array, ulps: float, scale: Array, is_zero: Array) -> Array:
    """What one inexact operation adds: `ulps` eps of `scale`, and underflow unless the result is a true zero."""
    dtype = value.dtype
    if dtype.kind not in "fc":
        return np.zeros(())
    lost = tiny(dtype) if dtype in (np.float32, np.complex64) else 16 * eps(dtype) * tiny(dtype)
    below = ~is_zero & (np.abs(value) <= tiny(dtype))
    return ulps * eps(dtype) * scale + np.where(below, lost, 0.0)


def flushable(x: Value) -> Value:
    """`x` as an arithmetic operand: a subnormal float32 may count as zero."""
    if x.value.dtype not in (np.float32, np.complex64):
        return x
    size = magnitude(x)
    subnormal = (size > 0) & (size < tiny(x.value.dtype))
    return Value(x.value, x.bound + np.where(subnormal, size, 0.0)) if subnormal.any() else x


def settle(value: Array, bound: Array, operands: Sequence[Value], doubt: Array = False, sure: Array = False) -> Value:
    """The result, its bound infinite where an operand's is, where `doubt`, and where it may not be finite at all.

    An infinity or NaN is certain if it stands in an operand, or all operands are exact, or where `sure`.
    """
    certain = sure
    if not np.isfinite(value).all():
        inherited = fold(np.logical_or, [~np.isfinite(x.value) for x in operands])
        unmoved = fold(np.logical_and, [x.bound == 0 for x in operands])
        certain = certain | inherited | unmoved
    bound = np.where(np.isfinite(value), np.where(np.isnan(bound), np.inf, bound), np.where(certain, 0.0, np.inf))
    unknown = fold(np.logical_or, [np.isinf(x.bound) for x in operands], doubt)
    return Value(np.asarray(value), np.where(unknown, np.inf, bound))


def sum_rounding(value: Array, total: Array, count: int) -> Array:
    if count < 2:
        return np.zeros(())
    return rounding(value, 2 + math.log2(count), total, total == 0)
