"""Moves: arrays whose elements are elements of one other array, such as reshapes and gathers, and reading through them.

Expressions here read arrays by name, `Subscript(Variable("v3"), ...)`, so that those of several arrays can be mixed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pymbolic.primitives as prim

from aotato.emit.labels import alike
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.dtypes import INT64
from aotato.frontend.normalise import normalise


def named(expr: ex.Expr, operands: Sequence[str]) -> ex.Expr:
    """An expression that reads operand k as `a{k}`, reading it by name."""

    def rule(part: ex.Expr) -> ex.Expr:
        if isinstance(part, prim.Subscript):
            return prim.Subscript(prim.Variable(operands[ex.operand_position(part)]), part.index_tuple)
        return part

    return ex.rewrite(expr, rule)


def numbered(expr: ex.Expr) -> tuple[ex.Expr, tuple[str, ...]]:
    """The other way, and the operands."""
    names: dict[str, int] = {}
    for part in ex.walk(expr):
        if isinstance(part, prim.Subscript):
            names.setdefault(part.aggregate.name, len(names))

    def rule(part: ex.Expr) -> ex.Expr:
        return ex.read(names[part.aggregate.name], part.index_tuple) if isinstance(part, prim.Subscript) else part

    return ex.rewrite(expr, rule), tuple(names)


def same(exprs: Iterable[ex.Expr]) -> bool:
    """Whether expressions that read by name differ only in integers and in what they read."""
    return alike(numbered(expr)[0] for expr in exprs)


def normal(exprs: Sequence[ex.Expr], shapes: Sequence[ir.Shape]) -> list[tuple[ex.Expr, tuple[str, ...]]]:
    """Expressions that read by name, numbered, in normal form where that leaves them alike."""
    plain = [numbered(expr) for expr in exprs]
    # By numbers, so that names do not matter
    numbers = [[f"x{number}" for number in range(len(names))] for _, names in plain]
    found = [
        normalise(expr, own, shape) for (expr, _), own, shape in zip(plain, numbers, shapes, strict=True)
    ]
    if len({order for _, order in found}) > 1 or not alike(expr for expr, _ in found):
        return plain
    return [
        (expr, tuple(names[own.index(x)] for x in order))
        for (expr, order), (_, names), own in zip(found, plain, numbers, strict=True)
    ]


def is_move(program: ir.Program, name: str) -> bool:
    """Whether readers of `name` may as well read what it moves.

    Not where that is computed and larger: what is read at other indices may have to be stored, and a slice is less.
    """
    node = program.arrays[name]
    if not isinstance(node, ir.Lambda) or node.stored or not isinstance(node.expr, prim.Subscript):
        return False
    origin = program.arrays[node.operands[ex.operand_position(node.expr)]]
    larger = isinstance(origin, ir.Lambda) and ir.size(origin.shape) > ir.size(node.shape)
    return not larger and origin.dtype == node.dtype


def through(program: ir.Program, read: prim.Subscript) -> ex.Expr:
    """An element of a Lambda as its expression."""
    node = program.arrays[read.aggregate.name]
    assert isinstance(node, ir.Lambda)
    return at(named(node.expr, node.operands), {f"_{axis}": index for axis, index in enumerate(read.index_tuple)})


def at(expr: ex.Expr, places: Mapping[str, ex.Expr]) -> ex.Expr:
    """`expr` with indices in the places of variables; in arithmetic they are wide, as variables are."""
    if isinstance(expr, prim.Variable):
        index = places.get(expr.name, expr)
        narrow = any(isinstance(part, prim.Subscript) for part in ex.walk(index))
        return ex.Cast(INT64, index) if narrow else index
    if isinstance(expr, prim.Subscript):
        each = expr.index_tuple
        indices = (places.get(i.name, i) if isinstance(i, prim.Variable) else at(i, places) for i in each)
        return prim.Subscript(expr.aggregate, tuple(indices))
    return expr if ex.is_leaf(expr) else ex.with_children(expr, tuple(at(c, places) for c in ex.children(expr)))
