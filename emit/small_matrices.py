"""Sums of a nest that are products of a small matrix with columns in local memory: one column an element.

`sum over j of M[j, _1] * ~X[c, _0, j]`: rows are the nodes of the nest, columns the elements of the group. Such sums
can be computed 8 nodes by 8 elements at a time, by units that multiply matrices.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pymbolic.primitives as prim

from aotato.emit.nest import Accumulate, Assign, Loop, Nest, is_local
from aotato.frontend import expr as ex

ROWS = 8  # nodes of a tile, and elements
FEWEST_ROWS = 10  # of the matrix: fewer leave most of a tile empty
FEWEST_TERMS = 8
MOST_TERMS = 64  # of a loop: longer sums are added in pieces, lane by lane


@dataclass(frozen=True)
class MatrixSum:
    """`name = sum over loop of matrix * column`, inside `loops`."""

    name: str
    loop: Loop
    loops: tuple[str, ...]
    matrix: prim.Subscript
    column: prim.Subscript


def matrix_sums(nest: Nest) -> tuple[MatrixSum, ...] | None:
    """All sums of the nest, innermost ones, if every one has this form and there is more than one row to a tile."""
    if len(nest.shape) != 2 or nest.shape[1] < FEWEST_ROWS:
        return None
    loops = {loop.name: loop for loop in nest.loops}
    found: list[MatrixSum] = []
    for statement in nest.statements:
        if isinstance(statement, Assign):
            if statement.loops:
                return None
            continue
        one = _matrix_sum(statement, loops)
        if one is not None:
            found.append(one)
        elif not _closes(statement, found):
            return None
    return tuple(found) or None


def _matrix_sum(statement: Accumulate, loops: dict[str, Loop]) -> MatrixSum | None:
    expr, loop = statement.expr, loops[statement.loop]
    extent = loop.upper - loop.lower
    if statement.op != "sum" or statement.dtype != np.float64 or not FEWEST_TERMS <= extent <= MOST_TERMS:
        return None
    if not isinstance(expr, prim.Product) or len(expr.children) != 2:
        return None
    for matrix, column in (expr.children, expr.children[::-1]):
        if not isinstance(matrix, prim.Subscript) or not isinstance(column, prim.Subscript):
            return None
        if is_local(column.aggregate.name) and not is_local(matrix.aggregate.name):
            rows, columns = set(_variables(matrix)), set(_variables(column))
            if {"_1", loop.name} <= rows and "_0" not in rows and {"_0", loop.name} <= columns and "_1" not in columns:
                return MatrixSum(statement.name, loop, statement.loops, matrix, column)
    return None


def _closes(statement: Accumulate, inner: list[MatrixSum]) -> bool:
    """Whether the statement adds up one of the sums over a loop around it."""
    return statement.op == "sum" and statement.dtype == np.float64 and any(
        statement.expr == prim.Variable(one.name) and one.loops == (*statement.loops, statement.loop) for one in inner
    )


def _variables(expr: prim.Subscript) -> Iterator[str]:
    for index in expr.index_tuple:
        for node in ex.walk(index):
            if isinstance(node, prim.Subscript):
                yield "_0"  # tables are no part of a matrix
            elif isinstance(node, prim.Variable):
                yield node.name


def lanes_each(rows: int) -> int:
    """Lanes for each element of a group: 32 for 8 rows of 8 elements."""
    return 4 * -(-rows // ROWS)


def as_matrix(nest: Nest) -> Nest:
    return dataclasses.replace(nest, matrix=True)
