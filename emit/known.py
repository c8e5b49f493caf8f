"""What constants and indices alone decide: integer and boolean expressions of a program as numpy arrays.

Expressions read arrays by name.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import integers
from aotato.emit.moves import named, numbered
from aotato.frontend import dtypes, ir
from aotato.frontend import expr as ex

Array = np.ndarray[Any, Any]
Extents = Mapping[str, tuple[int, int]]  # lower and upper of index variables

CHUNK = 1 << 22  # elements evaluated at a time
LARGEST = 1 << 28  # elements of what is evaluated at all


class Known:
    """One program's constants, and arrays of integers and truth values computed from them."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.lambdas: dict[str, Array | None] = {}
        self.ranges: dict[str, tuple[int, int]] = {}

    def data(self, name: str) -> Array | None:
        """The elements of an array of integers or truth values that constants decide; None of any other array."""
        node = self.program.arrays.get(name)
        if node is None or node.dtype.kind not in "biu" or node.dtype == np.uint64:
            return None
        if isinstance(node, ir.Const):
            return self.program.constants[node.digest]
        if isinstance(node, ir.Lambda):
            if name not in self.lambdas:
                self.lambdas[name] = self._lambda(node)
            return self.lambdas[name]
        return None

    def range(self, name: str) -> tuple[int, int] | None:
        """The smallest and largest element of such an array."""
        data = self.data(name)
        if data is None or not data.size:
            return None
        if name not in self.ranges:
            self.ranges[name] = int(data.min()), int(data.max())
        return self.ranges[name]

    def decides(self, expr: ex.Expr, extents: Extents) -> bool:
        return integers.is_known(expr, extents, self._table)

    def over(self, expr: ex.Expr, axes: Sequence[str], extents: Extents, limits: tuple[int, int], clip: bool) -> Array:
        """`expr` for all indices of `axes`, an axis each, what is beyond `limits` (inclusive) being as far as they are.

        Tables inside are read at their nearest element with `clip`, which raise IndexError otherwise.
        """
        shape = tuple(extents[axis][1] - extents[axis][0] for axis in axes)
        explicit = self._explicit(expr)
        found = np.empty(shape, np.int32 if max(map(abs, limits)) < 1 << 31 else np.int64)
        step = max(1, CHUNK // max(1, math.prod(shape[1:])))
        for start in range(0, shape[0] if shape else 1, step):
            values = {}
            for place, axis in enumerate(axes):
                lower, upper = extents[axis]
                first, last = (lower + start, min(upper, lower + start + step)) if place == 0 else (lower, upper)
                values[axis] = np.arange(first, last).reshape([-1 if p == place else 1 for p in range(len(axes))])
            part = np.asarray(integers.evaluate(explicit, values, self._table, clip))
            if part.min() < limits[0] or part.max() > limits[1]:
                part = np.clip(part.astype(np.int64), *limits)
            found[start : start + step if shape else None] = part
        return found

    def _table(self, read: prim.Subscript) -> Array | None:
        return self.data(read.aggregate.name)

    def narrowed(self, expr: ex.Expr) -> ex.Expr:
        """`expr` without conversions that divisions do not need: compilers count in 32 bits where these do."""

        def rule(part: ex.Expr) -> ex.Expr:
            match part:
                case prim.FloorDiv() | prim.Remainder() if isinstance(part.numerator, ex.Cast):
                    body, number = part.numerator.body, part.denominator
                    short = type(number) is int and 0 < number < 1 << 31
                    if short and part.numerator.dtype == np.int64 and self.dtype(body) in (np.int32, np.int64):
                        return type(part)(body, number)
            return part

        return ex.rewrite(expr, rule)

    def dtype(self, expr: ex.Expr) -> Any:
        """As `dtypes.weak_type_of`."""
        positions, names = numbered(expr)
        return dtypes.weak_type_of(positions, [self.program.arrays[name].dtype for name in names])

    def _explicit(self, expr: ex.Expr) -> ex.Expr:
        """`expr` with all conversions written out, in its own dtype."""
        positions, names = numbered(expr)
        given = [self.program.arrays[name].dtype for name in names]
        return named(dtypes.make_explicit(positions, given, dtypes.dtype_of(positions, given)), names)

    def _lambda(self, node: ir.Lambda) -> Array | None:
        expr = named(node.expr, node.operands)
        extents = {f"_{axis}": (0, extent) for axis, extent in enumerate(node.shape)}
        if ir.size(node.shape) > LARGEST or not ir.size(node.shape) or not self.decides(expr, extents):
            return None
        try:
            found = self.over(ex.Cast(node.dtype, expr), list(extents), extents, _limits(node.dtype), False)
        except IndexError:
            return None  # guarded: no element that is read
        return found.astype(node.dtype)


def _limits(dtype: np.dtype[Any]) -> tuple[int, int]:
    return (0, 1) if dtype.kind == "b" else (int(np.iinfo(dtype).min), int(np.iinfo(dtype).max))
