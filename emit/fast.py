"""Algebra that changes rounding, on request only (`algebra=fast`): quotients are products with a reciprocal.

Quotients by one value share its reciprocal, and a device multiplies several times as fast as it divides. The result
is off by at most three roundings instead of one; where the reciprocal overflows or is subnormal, it is another one.
Reciprocals and roots themselves may be those of `approximations.py`.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.dtypes import dtype_of


def fast(programs: ir.Programs) -> ir.Programs:
    """`programs` that multiply by reciprocals."""
    return dataclasses.replace(programs, ranks=tuple(map(_program, programs.ranks)))


def _program(program: ir.Program) -> ir.Program:
    arrays = {name: _node(program, node) for name, node in program.arrays.items()}
    return dataclasses.replace(program, arrays=arrays)


def _node(program: ir.Program, node: ir.Node) -> ir.Node:
    if not isinstance(node, ir.Lambda):
        return node
    dtypes = [program.arrays[operand].dtype for operand in node.operands]
    return dataclasses.replace(node, expr=ex.rewrite(node.expr, lambda part: _product(part, dtypes)))


def _product(expr: ex.Expr, dtypes: Sequence[ir.DType]) -> ex.Expr:
    if not isinstance(expr, prim.Quotient):
        return expr
    above, below = ex.children(expr)
    dtype = dtype_of(expr, dtypes)
    if dtype.kind != "f" or ex.is_number(above, 1):
        return expr
    one = dtype.type(1)
    if isinstance(below, np.floating | float | int):
        return prim.Product((above, one / dtype.type(below))) if below else expr
    return prim.Product((above, prim.Quotient(one, below)))
