"""Products of constant arrays, summed over common indices while building, in more than their own precision.

Terms are added one after another, without BLAS: the same sums on every machine whose long double is the same.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import integers
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.evaluate import evaluate
from aotato.frontend.values import exact

LARGEST = 1 << 20  # elements of an array that takes part
MOST = 1 << 24  # products that are added up
LONGEST = 1 << 12  # terms of a sum

# At least twice the digits, or what C calls long double
_LONGER = {"float16": np.float64, "float32": np.float64, "float64": np.longdouble,
           "complex64": np.complex128, "complex128": np.clongdouble}

Array = np.ndarray[Any, Any]


class Constants:
    """One program's constants, and small arrays computed from them. Expressions read arrays by name."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.known: dict[str, Array | None] = {}
        self.longer: dict[str, Array] = {}  # of those that have taken part

    def decide(self, expr: ex.Expr, free: Mapping[str, Any]) -> bool:
        """Whether `expr` follows from constants and index variables in `free`."""
        return integers.is_known(expr, free, lambda read: self._array(read.aggregate.name))

    def contracted(
        self, factors: Sequence[ex.Expr], over: Sequence[str], axes: Sequence[str], extents: Mapping[str, int],
        dtype: ir.DType,
    ) -> Array | None:
        """The sum over `over` of the product of `factors`, an axis for each index of `axes`.

        None where that is too large, or has elements that `dtype` holds less exactly than others, or not at all.
        """
        shape, terms = tuple(extents[axis] for axis in axes), math.prod(extents[index] for index in over)
        if ir.size(shape) > LARGEST or terms > LONGEST or ir.size(shape) * terms > MOST:
            return None
        places = {axis: np.arange(n).reshape([-1 if p == place else 1 for p in range(len(axes))])
                  for place, (axis, n) in enumerate(zip(axes, shape, strict=True))}
        total: Any = 0
        with np.errstate(all="ignore"):
            for index in itertools.product(*(range(extents[name]) for name in over)):
                values = {**places, **dict(zip(over, index, strict=True))}
                each = (integers.evaluate(factor, values, self._longer) for factor in factors)
                total = total + functools.reduce(np.multiply, each)
            found = np.ascontiguousarray(np.broadcast_to(total, shape).astype(dtype))
            lost = (np.abs(found) < np.finfo(dtype).tiny) & (total != 0)
        return found if np.isfinite(found).all() and not lost.any() else None

    def _longer(self, read: prim.Subscript) -> Array | None:
        name, data = read.aggregate.name, self._array(read.aggregate.name)
        if data is None or data.dtype.kind not in "fc":
            return data
        if name not in self.longer:
            self.longer[name] = data.astype(_LONGER[data.dtype.name])
        return self.longer[name]

    def _array(self, name: str) -> Array | None:
        if name not in self.known:
            self.known[name] = self._computed(self.program.arrays[name])
        return self.known[name]

    def _computed(self, node: ir.Node) -> Array | None:
        if ir.size(node.shape) > LARGEST:
            return None
        if isinstance(node, ir.Const):
            return self.program.constants[node.digest]
        if not isinstance(node, ir.Lambda) or ex.has_reduce(node.expr):
            return None
        operands = [self._array(operand) for operand in node.operands]
        if any(operand is None for operand in operands):
            return None
        try:
            return evaluate(node, [exact(operand) for operand in operands if operand is not None]).value
        except IndexError:
            return None  # a condition guards it
