"""How an array varies along an axis: constant on runs of how many indices, counted from 0.

Index tables and `k // m` make such runs: a normal per face, read at every node of the face.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import integers
from aotato.frontend import expr as ex
from aotato.frontend import ir

SAMPLE = 4  # along each axis of a constant: they show most often that it has no runs


class Runs:
    """What is known of one program, remembered."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.known: dict[tuple[str, int], int] = {}

    def of_array(self, name: str, axis: int) -> int:
        """Elements whose index // run is the same are equal; 0 if all along the axis are."""
        if (name, axis) not in self.known:
            node = self.program.arrays[name]
            extent, run = node.shape[axis], 1
            if isinstance(node, ir.Lambda):
                run = self.of(node.expr, node.operands, f"_{axis}", extent)
            elif isinstance(node, ir.Const):
                run = _of_data(self.program.constants[node.digest], axis)
            run = math.gcd(extent, run)
            self.known[name, axis] = 0 if run == extent else run
        return self.known[name, axis]

    def of(self, expr: ex.Expr, operands: tuple[str, ...], variable: str, extent: int) -> int:
        """The same of an expression along an index that counts from 0 to `extent`."""
        if ex.is_leaf(expr):
            return int(isinstance(expr, prim.Variable) and expr.name == variable)
        if variable not in set(integers.variables(expr)):
            return 0
        known = self._of_known(expr, operands, variable, extent)
        if known is not None:
            return 0 if known == extent else known
        if isinstance(expr, prim.Subscript):
            name = operands[ex.operand_position(expr)]
            indices = enumerate(expr.index_tuple)
            return math.gcd(*(self._through(name, axis, i, operands, variable, extent) for axis, i in indices))
        return math.gcd(*(self.of(child, operands, variable, extent) for child in ex.children(expr)))

    def _of_known(self, expr: ex.Expr, operands: tuple[str, ...], variable: str, extent: int) -> int | None:
        """Of what the index and constants alone decide."""

        def table(node: prim.Subscript) -> np.ndarray[Any, Any] | None:
            source = self.program.arrays[operands[ex.operand_position(node)]]
            return self.program.constants[source.digest] if isinstance(source, ir.Const) else None

        if not integers.is_known(expr, {variable: None}, table):
            return None
        try:
            values = integers.evaluate(expr, {variable: np.arange(extent)}, table)
        except IndexError:
            return None  # a condition guards it
        return _of_slices(np.broadcast_to(values, (extent,)))

    def _through(
        self, name: str, axis: int, index: ex.Expr, operands: tuple[str, ...], variable: str, extent: int
    ) -> int:
        """Of a read whose index along `axis` is `index`."""
        if isinstance(index, prim.Variable) and index.name == variable:
            return self.of_array(name, axis)
        if isinstance(index, prim.FloorDiv) and type(index.denominator) is int and index.denominator > 0:
            inner = index.numerator
            if isinstance(inner, prim.Variable) and inner.name == variable:
                return index.denominator * self.of_array(name, axis)
        return self.of(index, operands, variable, extent)


def _of_data(data: np.ndarray[Any, Any], axis: int) -> int:
    along = np.moveaxis(data, axis, 0)
    if _of_slices(along[(slice(None), *(slice(SAMPLE) for _ in along.shape[1:]))]) == 1:
        return 1
    return _of_slices(along)


def _of_slices(along: np.ndarray[Any, Any]) -> int:
    differs = (along[1:] != along[:-1]).any(axis=tuple(range(1, along.ndim)))
    return math.gcd(len(along), *map(int, np.flatnonzero(differs) + 1))
