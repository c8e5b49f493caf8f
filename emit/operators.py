"""numpy's meaning of operators, functions, casts and reductions, in loopy's terms."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymbolic.primitives as prim
from loopy.symbolic import TypeCast

from aotato.emit import approximations, complex_functions, functions, ranges
from aotato.emit.slots import kept_dtype
from aotato.emit.values import elements, explicit_dtype
from aotato.frontend import expr as ex
from aotato.frontend import ir

_BINARY = {prim.FloorDiv: "floordiv", prim.Remainder: "mod"}
_MINMAX = {prim.Min: "min", prim.Max: "max"}
_INTEGERS = {prim.Sum: "add", prim.Product: "mul", prim.LeftShift: "shl", prim.RightShift: "shr"}
_WIDENING = (prim.Sum, prim.Product, prim.LeftShift)


class Operators:
    """Applies operators of one nest's expressions to operands that are written already."""

    def __init__(self, nest: Any, out: Any, program: ir.Program) -> None:
        self.nest, self.out, self.program = nest, out, program
        self.dtypes: dict[str, np.dtype[Any]] = {}  # of the nest's values
        self.indexing = False

    def value_dtype(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """The dtype that a value has in registers."""
        if dtype.kind == "c":
            self.out.complex = True
        return kept_dtype(dtype)

    def stored(self, expr: ex.Expr, dtype: np.dtype[Any]) -> ex.Expr:
        """`expr` as memory keeps it."""
        return self.call(functions.to_half(), expr) if dtype == np.float16 else expr

    def neutral(self, op: str, dtype: np.dtype[Any]) -> ex.Expr:
        kept = self.value_dtype(dtype)
        if op in ("min", "max"):
            if kept.kind == "c":
                end = np.zeros((), kept).real.dtype.type(np.inf if op == "min" else -np.inf)
                return self.call(functions.complex_number(kept), end, end)
            if kept.kind == "f":
                return kept.type(np.inf if op == "min" else -np.inf)
            info = np.iinfo(kept)
            return kept.type(info.max if op == "min" else info.min)
        return kept.type(1 if op in ("product", "all") else 0)

    def join(self, op: str, dtype: np.dtype[Any], a: ex.Expr, b: ex.Expr) -> ex.Expr:
        match op:
            case "sum" | "product" if dtype.kind == "c":
                return self.call(functions.binary("add" if op == "sum" else "mul", dtype), a, b)
            case "sum" | "product" if dtype.kind in "iu":
                return self.call(functions.binary("add" if op == "sum" else "mul", dtype), a, b)
            case "sum":
                return self._wrapped(prim.Sum((a, b)), dtype)
            case "product":
                return self._wrapped(prim.Product((a, b)), dtype)
            case "min" | "max":
                return self.call(functions.binary(op, self.value_dtype(dtype)), a, b)
            case "any":
                return TypeCast(np.uint8, prim.LogicalOr((a, b)))
            case "all":
                return TypeCast(np.uint8, prim.LogicalAnd((a, b)))
        raise AssertionError(f"unknown reduction {op}")

    def dtype(self, expr: ex.Expr) -> np.dtype[Any]:
        return explicit_dtype(expr, self.program, self.dtypes.get)

    def call(self, function: Any, *arguments: ex.Expr) -> ex.Expr:
        self.out.functions[function.name] = function
        return prim.Variable(function.name)(*arguments)

    def _wrapped(self, expr: ex.Expr, dtype: np.dtype[Any]) -> ex.Expr:
        """C computes narrow integers as int and half floats as float; numpy rounds each result to its own width."""
        if dtype == np.float16:
            return self.call(functions.from_half(), self.call(functions.to_half(), expr))
        if dtype.kind in "iu" and dtype.itemsize < 4:
            # A function, as loopy leaves out casts to the dtype that numpy would give the expression
            return self.call(functions.converted(np.dtype(np.int32), dtype), expr)
        return expr

    def _called(self, name: str, dtype: np.dtype[Any], arguments: Sequence[ex.Expr]) -> ex.Expr:
        """A function of written arguments, the first of which has that dtype."""
        kept = self.value_dtype(dtype)
        if name == "sqrt" and self._approximate(dtype):
            return self.call(approximations.root(), *arguments)
        function = functions.atan2(kept) if name == "atan2" else functions.unary(name, kept)
        result = self.call(function, *arguments)
        return result if name == "isnan" else self._wrapped(result, dtype)

    def _cast(self, expr: ex.Cast, value: ex.Expr) -> ex.Expr:
        """The cast of a written body."""
        source = self.dtype(expr.body)
        if source == expr.dtype:
            return value
        if source.kind == "c" and expr.dtype.kind == "b":
            return self.call(functions.binary("ne", source), value, source.type(0))
        if source.kind == "c" and expr.dtype.kind != "c":
            value, source = self.call(functions.unary("real", source), value), np.dtype(f"f{source.itemsize // 2}")
            if source == expr.dtype:
                return value
        if self.indexing and expr.dtype.kind in "iu" and source.kind in "iu":
            return self.call(functions.converted(source, expr.dtype), value)
        if expr.dtype == np.float16 and source == np.float64:
            return self.call(functions.from_half(), self.call(functions.double_to_half(), value))
        if expr.dtype.kind == "b":
            return prim.If(prim.Comparison(value, "!=", literal(source.type(0))), np.uint8(1), np.uint8(0))
        return self._wrapped(TypeCast(self.value_dtype(expr.dtype), value), expr.dtype)

    def _operator(self, expr: ex.Expr, parts: tuple[ex.Expr, ...]) -> ex.Expr:
        dtype = self.dtype(expr)
        if isinstance(expr, prim.FloorDiv | prim.Remainder):
            return self._division(expr, dtype, parts)
        if isinstance(expr, prim.Min | prim.Max):
            return self._chain(_MINMAX[type(expr)], dtype, parts)
        if isinstance(expr, prim.Power):
            return self._power(expr, dtype, parts)
        if isinstance(expr, prim.Quotient) and self._approximate(dtype) and ex.is_number(expr.numerator, 1):
            return self.call(approximations.reciprocal(), parts[1])
        if isinstance(expr, prim.Comparison) and self.dtype(expr.left).kind == "c":
            name = complex_functions.COMPARISONS[expr.operator]
            return self.call(functions.binary(name, self.dtype(expr.left)), *parts)
        if dtype.kind == "c" and isinstance(expr, prim.Sum | prim.Product | prim.Quotient):
            return self._complex(expr, dtype, parts)
        if isinstance(expr, prim.LogicalAnd | prim.LogicalOr | prim.LogicalNot | prim.Comparison | prim.If):
            return ex.with_children(expr, parts)
        if dtype.kind == "b":
            return _boolean(expr, parts)
        if dtype.kind in "iu" and type(expr) in _INTEGERS and self._is_loaded(expr):
            return self._chain(_INTEGERS[type(expr)], dtype, parts)
        if self._too_wide(expr, dtype):
            parts = (TypeCast(dtype, parts[0]), *parts[1:])
        return self._wrapped(ex.with_children(expr, parts), dtype)

    def _approximate(self, dtype: np.dtype[Any]) -> bool:
        return bool(self.out.target.approximate) and approximations.applies(dtype)

    def _power(self, expr: prim.Power, dtype: np.dtype[Any], parts: tuple[ex.Expr, ...]) -> ex.Expr:
        kept, exponent = self.value_dtype(dtype), expr.exponent
        if type(exponent) is int and kept.kind != "c" and 1 <= exponent <= functions.LARGEST_POWER:
            return self._wrapped(self.call(functions.power(kept, exponent), parts[0]), dtype)
        power = kept.type(exponent) if type(exponent) is int else parts[1]
        return self._wrapped(self.call(functions.binary("pow", kept), parts[0], power), dtype)

    def _complex(self, expr: ex.Expr, dtype: np.dtype[Any], parts: tuple[ex.Expr, ...]) -> ex.Expr:
        if ex.is_negation(expr):
            return self.call(functions.unary("neg", dtype), parts[1])
        return self._chain({prim.Sum: "add", prim.Product: "mul", prim.Quotient: "div"}[type(expr)], dtype, parts)

    def _chain(self, op: str, dtype: np.dtype[Any], parts: tuple[ex.Expr, ...]) -> ex.Expr:
        if self.indexing and dtype.kind in "iu" and all(isinstance(part, int) for part in parts[1:]):
            dtype = np.dtype("int64") if self.out.index_dtype == np.int64 else np.dtype("int32")
        result = parts[0]
        for part in parts[1:]:
            result = self.call(functions.binary(op, self.value_dtype(dtype)), result, part)
        return result

    def _is_loaded(self, expr: ex.Expr) -> bool:
        """Whether an integer is computed from data: of indices and numbers the range is known."""
        if self.indexing:
            return False
        return any(isinstance(n, prim.Subscript) or (isinstance(n, prim.Variable) and n.name in self.dtypes)
                   for n in ex.walk(expr))

    def _too_wide(self, expr: ex.Expr, dtype: np.dtype[Any]) -> bool:
        """Whether 64-bit arithmetic on indices, which C holds in 32 bits, may need more than these."""
        if dtype != np.int64 or self.out.index_dtype == np.int64 or not isinstance(expr, _WIDENING):
            return False
        if not any(isinstance(node, prim.Variable) and node.name not in self.dtypes for node in ex.walk(expr)):
            return False
        parts = ex.children(expr)
        # C evaluates from left to right: every partial result counts
        partial = [parts[0], *(ex.with_children(expr, parts[:end]) for end in range(2, len(parts) + 1))]
        return not all(_short(self._range(one)) for one in partial)

    def _division(self, expr: ex.Expr, dtype: np.dtype[Any], parts: tuple[ex.Expr, ...]) -> ex.Expr:
        """C's own division where both operands are known not to be negative, and none for the wrap-around of a roll."""
        top, bottom = ex.children(expr)
        over, under = self._range(top), self._range(bottom)
        op = _BINARY[type(expr)]
        if dtype == np.int64 and _short(over) and _short(under):
            dtype = np.dtype("int32")
        if op == "mod" and over and under and under[0] == under[1] and -under[0] <= over[0] and over[1] < 2 * under[0]:
            return self._wrapped_around(parts, over, under[0], dtype)
        if over and under and over[0] >= 0 and under[0] > 0:
            op = "div" if op == "floordiv" else "rem"
        return self.call(functions.binary(op, self.value_dtype(dtype)), *parts)

    def _wrapped_around(
        self, parts: tuple[ex.Expr, ...], over: ranges.Range, extent: int, dtype: np.dtype[Any]
    ) -> ex.Expr:
        """`index % extent` of an index that is at most one extent outside."""
        index = parts[0]
        if over[0] < 0:
            index = self.call(functions.binary("raised", self.value_dtype(dtype)), index, parts[1])
        if over[1] >= extent:
            index = self.call(functions.binary("lowered", self.value_dtype(dtype)), index, parts[1])
        return index

    def _range(self, expr: ex.Expr) -> ranges.Range | None:
        known = {f"_{axis}": (0, max(0, extent - 1)) for axis, extent in enumerate(self.nest.spec.shape)}
        known |= {loop.name: (loop.lower, max(loop.lower, loop.upper - 1)) for loop in self.nest.spec.loops}
        return ranges.range_of(expr, known, lambda array: elements(self.program, array))


def _short(found: ranges.Range | None) -> bool:
    """Whether 32 bits hold the range."""
    return found is not None and found[0] > -(2**31) and found[1] < 2**31


def _boolean(expr: ex.Expr, parts: tuple[ex.Expr, ...]) -> ex.Expr:
    """numpy's operators on booleans: sum is or, product is and."""
    match expr:
        case prim.Sum() | prim.BitwiseOr():
            return prim.LogicalOr(parts)
        case prim.Product() | prim.BitwiseAnd():
            return prim.LogicalAnd(parts)
        case prim.BitwiseXor():
            return ex.with_children(expr, parts)
        case prim.BitwiseNot():
            return prim.LogicalNot(parts[0])
    raise AssertionError(f"{type(expr).__name__} is not defined for booleans")


def literal(value: Any) -> ex.Expr:
    """A number as loopy takes it."""
    if isinstance(value, bool | np.bool_):
        return np.uint8(value)
    if isinstance(value, np.float16):
        value = np.float32(value)
    if isinstance(value, float | np.floating) and np.isnan(value):
        return prim.NaN(np.float32 if isinstance(value, np.float32) else np.float64)
    return value
