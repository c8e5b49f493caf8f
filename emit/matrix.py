"""Matrix products: nests that sum, over an index, products of one factor for rows and one for columns of the result.

A group computes a rectangle of the result. Both factors go through local memory, tile by tile along the sum, and every
lane computes a smaller rectangle in registers.
"""

from __future__ import annotations

from dataclasses import dataclass

import pymbolic.primitives as prim

from aotato.emit.nest import Accumulate, Nest
from aotato.frontend import expr as ex
from aotato.frontend import ir

FEWEST = 16  # rows, columns and terms of a product that is worth it
FEWEST_TERMS = 1 << 17  # of all its elements together


@dataclass(frozen=True)
class Matrix:
    """`statement` sums `product` over its loop: `left` has no column in it, `right` no row."""

    statement: Accumulate
    row: int  # axes of the nest; all others number matrices
    column: int
    left: ex.Expr
    right: ex.Expr
    product: ex.Expr  # of the variables `left` and `right`


@dataclass(frozen=True)
class Rectangle:
    """A group has `lanes[0]` times `lanes[1]` lanes; each computes `each[0]` rows times `each[1]` columns.

    Rows and columns of neighbouring lanes are neighbours. `depth` terms of the sum are in local memory at a time.
    """

    lanes: tuple[int, int]
    each: tuple[int, int]
    depth: int

    @property
    def sides(self) -> tuple[int, int]:
        return self.lanes[0] * self.each[0], self.lanes[1] * self.each[1]


def matrix(nest: Nest) -> Matrix | None:
    """The product that `nest` computes, or None where it is something else."""
    sums = [s for s in nest.statements if isinstance(s, Accumulate)]
    if len(sums) != 1 or sums[0].op != "sum" or any(s.loops for s in nest.statements):
        return None
    (statement,) = sums
    extent = next(loop.upper - loop.lower for loop in nest.loops if loop.name == statement.loop)
    long = [axis for axis, size in enumerate(nest.shape) if size >= FEWEST]
    if len(long) < 2 or extent < FEWEST or ir.size(nest.shape) * extent < FEWEST_TERMS:
        return None
    for row in reversed(long[:-1]):
        found = _of(statement, row, long[-1])
        if found is not None:
            return found
    return None


def _of(statement: Accumulate, row: int, column: int) -> Matrix | None:
    casts, term = [], statement.expr
    while isinstance(term, ex.Cast):
        casts.append(term.dtype)
        term = term.body
    factors = _factors(term)
    right = [factor for factor in factors if _depends(factor, f"_{column}")]
    left = [factor for factor in factors if not any(factor is other for other in right)]
    if any(_depends(factor, f"_{row}") for factor in right):
        return None
    if not (_varies(left, f"_{row}", statement.loop) and _varies(right, f"_{column}", statement.loop)):
        return None
    product: ex.Expr = prim.Product((prim.Variable("left"), prim.Variable("right")))
    for dtype in reversed(casts):
        product = ex.Cast(dtype, product)
    return Matrix(statement, row, column, _product(left), _product(right), product)


def _varies(factors: list[ex.Expr], own: str, loop: str) -> bool:
    return any(_depends(factor, own) for factor in factors) and any(_depends(factor, loop) for factor in factors)


def _factors(expr: ex.Expr) -> list[ex.Expr]:
    if not isinstance(expr, prim.Product):
        return [expr]
    return [factor for child in expr.children for factor in _factors(child)]


def _product(factors: list[ex.Expr]) -> ex.Expr:
    return factors[0] if len(factors) == 1 else prim.Product(tuple(factors))


def _depends(expr: ex.Expr, name: str) -> bool:
    return any(isinstance(node, prim.Variable) and node.name == name for node in ex.walk(expr))


DEPTH = 16  # terms in local memory at a time, a multiple of the lanes along a side
ROWS, COLUMNS = 4, 4  # of a lane
BYTES = 256  # of a lane's sums
BUSY = 256  # groups that keep a device busy


def rectangle(found: Matrix, nest: Nest, itemsize: int, lanes: int) -> Rectangle:
    """The largest rectangle that the result has room for, or a smaller one where groups would be few.

    `lanes` of a group stand along each side; no more than FEWEST.
    """
    each = [ROWS, COLUMNS]
    extents = nest.shape[found.row], nest.shape[found.column]

    def made() -> Rectangle:
        return Rectangle((lanes, lanes), (each[0], each[1]), DEPTH)

    for side in (0, 1):
        while lanes * each[side] > extents[side]:
            each[side] //= 2
    while each[0] * each[1] > 1 and (2 * each[0] * each[1] * itemsize > BYTES or groups(found, nest, made()) < BUSY):
        each[0 if each[0] > each[1] else 1] //= 2
    return made()


def groups(found: Matrix, nest: Nest, rectangle: Rectangle) -> int:
    """How many groups compute the result."""
    extents = nest.shape[found.row], nest.shape[found.column]
    tall, wide = (-(-extent // side) for extent, side in zip(extents, rectangle.sides, strict=True))
    return ir.size(nest.shape) // (extents[0] * extents[1]) * tall * wide
