"""Evaluate one Lambda with numpy, element by element in meaning and array by array in fact, with error bounds.

Index variables are integer arrays, each along an axis of its own: first the element's, then those of the
reductions from the outermost in, so that a subexpression has only the axes that it depends on. Large index
spaces are cut into blocks, which bounds memory.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import bounds
from aotato.frontend import expr as ex
from aotato.frontend.dtypes import INT64, UFUNCS, dtype_of, function_name, make_explicit
from aotato.frontend.expr import Cast, Expr, Reduce
from aotato.frontend.functions import call, power
from aotato.frontend.ir import DType, Lambda
from aotato.frontend.reductions import extreme, reduction, stack
from aotato.frontend.values import Value, exact

BLOCK = 1 << 20  # elements (of index space times reduction) that are evaluated at a time
Range = tuple[int, int]  # lower, upper


@dataclass(frozen=True)
class Space:
    """The index space that an expression is evaluated over."""

    indices: Mapping[str, np.ndarray[Any, Any]]  # int64, each of `ndim` axes
    ndim: int
    points: int
    active: np.ndarray[Any, Any]  # bool, broadcasts over the space: where the `If`s above select this expression
    operands: Sequence[Value]
    names: Sequence[str]  # of the operands, for messages


def evaluate(node: Lambda, operands: Sequence[Value]) -> Value:
    """The array of `node`, and how far a device may be from it.

    Raises IndexError where an element that is not masked by an `If` reads outside an operand, ValueError where
    it needs the minimum of nothing or an integer to a negative power.
    """
    dtypes = [x.value.dtype for x in operands]
    expr = ex.rewrite(make_explicit(node.expr, dtypes, node.dtype), lambda e: _explicit_indices(e, dtypes))
    value, bound = np.empty(node.shape, node.dtype), np.empty(node.shape)
    for block in _blocks([(0, extent) for extent in node.shape], BLOCK // max(1, _terms(expr))):
        indices = {f"_{axis}": _along(axis, len(block), lo_hi) for axis, lo_hi in enumerate(block)}
        points = math.prod(hi - lo for lo, hi in block)
        active = np.ones((1,) * len(block), bool)
        with np.errstate(all="ignore"):
            result = _eval(expr, Space(indices, len(block), points, active, operands, node.operands))
        where = tuple(slice(lo, hi) for lo, hi in block)
        value[where], bound[where] = result.value, result.bound
    return Value(value, bound)


def _explicit_indices(expr: Expr, dtypes: Sequence[DType]) -> Expr:
    if not isinstance(expr, prim.Subscript):
        return expr
    for index in expr.index_tuple:
        if dtype_of(index, dtypes).kind not in "biu":
            raise TypeError(f"an array is indexed with a {dtype_of(index, dtypes).name}")
    return prim.Subscript(expr.aggregate, tuple(make_explicit(index, dtypes, INT64) for index in expr.index_tuple))


def _terms(expr: Expr) -> int:
    """The most reduction terms that are alive for one element."""
    inner = max(map(_terms, ex.children(expr)), default=1)
    if isinstance(expr, Reduce):
        inner *= max(1, math.prod(max(0, upper - lower) for _, lower, upper in expr.bounds))
    return inner


def _blocks(ranges: Sequence[Range], limit: int) -> Iterator[list[Range]]:
    """`ranges` cut into boxes of at most `limit` points (or one), halving the longest side; none if empty."""
    extents = [hi - lo for lo, hi in ranges]
    points = math.prod(extents)
    if points == 0:
        return
    if points <= max(1, limit):
        yield list(ranges)
        return
    axis = extents.index(max(extents))
    lo, hi = ranges[axis]
    for part in ((lo, (lo + hi) // 2), ((lo + hi) // 2, hi)):
        yield from _blocks([*ranges[:axis], part, *ranges[axis + 1 :]], limit)


def _along(axis: int, ndim: int, lo_hi: Range) -> np.ndarray[Any, Any]:
    return np.arange(*lo_hi, dtype=np.int64).reshape([-1 if k == axis else 1 for k in range(ndim)])


def _eval(expr: Expr, space: Space) -> Value:
    match expr:
        case np.generic():
            return exact(expr)
        case prim.Variable():
            return exact(space.indices[expr.name])
        case prim.Subscript():
            return _read(expr, space)
        case prim.If():
            return _choose(expr, space)
        case Reduce():
            return _reduce(expr, space)
        case prim.Power():
            return _power(expr, space)
    parts = [_eval(child, space) for child in ex.children(expr)]
    match expr:
        case prim.Sum():
            return bounds.add(parts)
        case prim.Product() if ex.is_negation(expr) and parts[1].value.dtype.kind == "c":
            return Value(-parts[1].value, parts[1].bound)
        case prim.Product():
            result = parts[0]
            for part in parts[1:]:
                result = bounds.multiply(result, part)
            return result
        case prim.Quotient():
            return bounds.divide(*parts)
        case prim.FloorDiv():
            return bounds.floor_divide(*parts)
        case prim.Remainder():
            return bounds.remainder(*parts)
        case prim.Comparison():
            return bounds.compare(expr.operator, *parts)
        case prim.LogicalAnd() | prim.LogicalOr():
            return bounds.logical(isinstance(expr, prim.LogicalAnd), parts)
        case prim.LogicalNot():
            return bounds.logical_not(parts[0])
        case prim.Min() | prim.Max():
            return extreme("min" if isinstance(expr, prim.Min) else "max", stack(parts))
        case prim.Call():
            return call(function_name(expr), parts)
        case Cast():
            return bounds.cast(parts[0], expr.dtype)
    return bounds.bitwise(UFUNCS[type(expr)], parts)


def _read(expr: prim.Subscript, space: Space) -> Value:
    position = ex.operand_position(expr)
    source = space.operands[position]
    parts = [_eval(index, space) for index in expr.index_tuple]
    shape = source.value.shape
    if len(parts) != len(shape):
        raise IndexError(f"'{space.names[position]}' has {len(shape)} axes, but is read with {len(parts)} indices")
    outside = np.zeros((1,) * space.ndim, bool)
    for part, extent in zip(parts, shape, strict=True):
        outside = outside | (part.value < 0) | (part.value >= extent)
    if outside.any():
        _check_range(space, position, [part.value for part in parts], outside)
    if source.value.size == 0:
        return Value(np.zeros((1,) * space.ndim, source.value.dtype), np.full((1,) * space.ndim, np.inf))
    where = tuple(np.clip(part.value, 0, extent - 1) for part, extent in zip(parts, shape, strict=True))
    bound = np.asarray(source.bound[where])
    doubt = outside
    for part in parts:
        doubt = doubt | (part.bound > 0)
    return Value(np.asarray(source.value[where]), np.where(doubt, np.inf, bound) if doubt.any() else bound)


def _check_range(space: Space, position: int, indices: Sequence[Any], outside: Any) -> None:
    bad = outside & space.active
    if bad.any():
        at = np.unravel_index(np.argmax(bad), bad.shape)
        read = [int(np.broadcast_to(index, np.broadcast_shapes(index.shape, bad.shape))[at]) for index in indices]
        source = space.operands[position].value
        array = f"'{space.names[position]}' {source.dtype.name}[{','.join(map(str, source.shape))}]"
        raise IndexError(f"index {read} is out of range for {array}")


def _choose(expr: prim.If, space: Space) -> Value:
    condition = _eval(expr.condition, space)
    if not condition.bound.any():
        if condition.value.all():
            return _eval(expr.then, space)
        if not condition.value.any():
            return _eval(expr.else_, space)
    then = _eval(expr.then, replace(space, active=space.active & condition.value))
    else_ = _eval(expr.else_, replace(space, active=space.active & ~condition.value))
    return bounds.choose(condition, then, else_)


def _power(expr: prim.Power, space: Space) -> Value:
    base = _eval(expr.base, space)
    if type(expr.exponent) is int:
        return power(base, exact(base.value.dtype.type(expr.exponent)), expr.exponent)
    exponent = _eval(expr.exponent, space)
    if base.value.dtype.kind in "iu":
        negative = exponent.value < 0
        if (negative & space.active).any():
            raise ValueError("an integer to a negative integer power")
        exponent = Value(np.where(negative, np.ones_like(exponent.value), exponent.value), exponent.bound)
    return power(base, exponent)


def _reduce(expr: Reduce, space: Space) -> Value:
    """Reduce over new last axes, in blocks where there are many terms."""
    ranges = [(lower, upper) for _, lower, upper in expr.bounds]
    count = math.prod(max(0, upper - lower) for lower, upper in ranges)
    if not expr.bounds:
        return _eval(expr.body, space)
    if count == 0:
        return _reduce_nothing(expr, space)
    limit = BLOCK // max(1, space.points)
    return reduction(expr.op, (_flattened(expr, space, block) for block in _blocks(ranges, limit)), count)


def _flattened(expr: Reduce, space: Space, block: Sequence[Range]) -> Value:
    """The body over one block of the reduction, whose axes become one last axis."""
    tail = (1,) * len(block)
    ndim = space.ndim + len(block)
    indices = {name: index.reshape(index.shape + tail) for name, index in space.indices.items()}
    for axis, ((name, _, _), lo_hi) in enumerate(zip(expr.bounds, block, strict=True), space.ndim):
        indices[name] = _along(axis, ndim, lo_hi)
    extents = tuple(hi - lo for lo, hi in block)
    active = space.active.reshape(space.active.shape + tail)
    inner = replace(space, indices=indices, ndim=ndim, points=space.points * math.prod(extents), active=active)
    body = _eval(expr.body, inner)
    shape = np.broadcast_shapes(body.value.shape, body.bound.shape, (1,) * space.ndim + extents)
    flat = (*shape[: space.ndim], -1)
    return Value(np.broadcast_to(body.value, shape).reshape(flat), np.broadcast_to(body.bound, shape).reshape(flat))


def _reduce_nothing(expr: Reduce, space: Space) -> Value:
    dtype = dtype_of(expr, [x.value.dtype for x in space.operands])
    identity = {"sum": 0, "product": 1, "any": False, "all": True}.get(expr.op)
    if identity is None and space.active.any():
        ranges = ", ".join(f"{name} in [{lower}, {upper})" for name, lower, upper in expr.bounds)
        raise ValueError(f"{expr.op} over no elements: {ranges}")
    return exact(np.full((1,) * space.ndim, identity or 0, dtype))
