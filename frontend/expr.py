"""Scalar expressions: pymbolic trees over index variables, array reads, casts and reductions.

An expression gives one element of a `Lambda`. Its leaves are

- `Variable("_0")`, `Variable("_1")`, ...: the element's own index along each axis,
- `Variable("_r0")`, ...: the indices of the enclosing `Reduce` nodes, unique in a Lambda,
- Python scalars, which take the dtype of what they meet ("weak"), and numpy scalars, which do not,
- `Subscript(Variable("a0"), (i, j))`: an element of operand 0 (`()` reads a 0-dimensional one).

Inner nodes are pymbolic's `Sum`, `Product`, `Quotient`, `FloorDiv`, `Remainder`, `Power`, `Comparison`,
`LogicalAnd`, `LogicalOr`, `LogicalNot`, `BitwiseAnd`, `BitwiseOr`, `BitwiseXor`, `BitwiseNot`, `LeftShift`,
`RightShift`, `If`, `Min`, `Max`, `Call` of a function in `FUNCTIONS`, and the two classes below. Sums and
products are evaluated from left to right. It is not a programming language: no assignment, no side effect.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pymbolic.primitives as prim

Expr = Any  # a pymbolic node, or a Python or numpy scalar; pymbolic has no useful common type

REDUCE_OPS = ("sum", "product", "min", "max", "any", "all")

FUNCTIONS = frozenset(
    (
        *("abs", "sqrt", "exp", "log", "log10", "isnan", "real", "imag", "conj"),
        *("sin", "cos", "tan", "asin", "acos", "atan", "atan2", "sinh", "cosh", "tanh"),
    )
)


@prim.expr_dataclass()
class Reduce(prim.ExpressionNode):
    """`op` over `body` for every index with lower <= index < upper; bounds are Python integers."""

    op: str
    bounds: tuple[tuple[str, int, int], ...]  # index name, lower, upper
    body: Expr

    mapper_method = "map_aotato_reduce"


@prim.expr_dataclass()
class Cast(prim.ExpressionNode):
    """`body` converted to `dtype`, with numpy's `astype` meaning."""

    dtype: np.dtype[Any]
    body: Expr

    mapper_method = "map_aotato_cast"


NARY = (
    prim.Sum,
    prim.Product,
    prim.LogicalAnd,
    prim.LogicalOr,
    prim.BitwiseAnd,
    prim.BitwiseOr,
    prim.BitwiseXor,
    prim.Min,
    prim.Max,
)
BINARY: dict[type, tuple[str, str]] = {
    prim.Quotient: ("numerator", "denominator"),
    prim.FloorDiv: ("numerator", "denominator"),
    prim.Remainder: ("numerator", "denominator"),
    prim.Power: ("base", "exponent"),
    prim.LeftShift: ("shiftee", "shift"),
    prim.RightShift: ("shiftee", "shift"),
}


def is_leaf(expr: Expr) -> bool:
    return isinstance(expr, prim.Variable) or not isinstance(expr, prim.ExpressionNode)


def children(expr: Expr) -> tuple[Expr, ...]:
    """The sub-expressions of `expr`, in the order that `with_children` takes them."""
    if is_leaf(expr):
        return ()
    if isinstance(expr, NARY):
        return tuple(expr.children)
    if type(expr) in BINARY:
        return tuple(getattr(expr, name) for name in BINARY[type(expr)])
    match expr:
        case prim.Subscript():
            return expr.index_tuple
        case prim.Call():
            return expr.parameters
        case prim.Comparison():
            return (expr.left, expr.right)
        case prim.If():
            return (expr.condition, expr.then, expr.else_)
        case prim.LogicalNot() | prim.BitwiseNot():
            return (expr.child,)
        case Reduce() | Cast():
            return (expr.body,)
    raise AssertionError(f"unknown expression node {type(expr).__name__}")


def with_children(expr: Expr, new: tuple[Expr, ...]) -> Expr:
    """`expr` with its sub-expressions replaced."""
    if is_leaf(expr):
        return expr
    if isinstance(expr, NARY):
        return type(expr)(new)
    if type(expr) in BINARY:
        return type(expr)(*new)
    match expr:
        case prim.Subscript():
            return prim.Subscript(expr.aggregate, new)
        case prim.Call():
            return prim.Call(expr.function, new)
        case prim.Comparison():
            return prim.Comparison(new[0], expr.operator, new[1])
        case prim.If():
            return prim.If(*new)
        case prim.LogicalNot() | prim.BitwiseNot():
            return type(expr)(new[0])
        case Reduce():
            return Reduce(expr.op, expr.bounds, new[0])
        case Cast():
            return Cast(expr.dtype, new[0])
    raise AssertionError(f"unknown expression node {type(expr).__name__}")


def rewrite(expr: Expr, rule: Callable[[Expr], Expr]) -> Expr:
    """Apply `rule` to every node, leaves first."""
    old = children(expr)
    new = tuple(rewrite(child, rule) for child in old)
    if any(a is not b for a, b in zip(old, new, strict=True)):
        expr = with_children(expr, new)
    return rule(expr)


def substitute(expr: Expr, values: Mapping[str, Expr]) -> Expr:
    """Replace free variables (indices; never operand names, which are read through Subscript)."""

    def rule(node: Expr) -> Expr:
        return values.get(node.name, node) if isinstance(node, prim.Variable) else node

    return rewrite(expr, rule)


def walk(expr: Expr) -> Iterator[Expr]:
    """Every node below and including `expr`, parents first, left to right."""
    yield expr
    for child in children(expr):
        yield from walk(child)


def reads(expr: Expr) -> Iterator[tuple[int, tuple[Expr, ...]]]:
    """Every array read in `expr`: (operand position, index expressions), reads inside indices included."""
    for node in walk(expr):
        if isinstance(node, prim.Subscript):
            yield operand_position(node), node.index_tuple


def read(position: int, indices: tuple[Expr, ...]) -> Expr:
    """An element of operand `position`."""
    return prim.Subscript(prim.Variable(f"a{position}"), indices)


def operand_position(node: prim.Subscript) -> int:
    assert isinstance(node.aggregate, prim.Variable)
    return int(node.aggregate.name[1:])


def own_index(ndim: int) -> tuple[Expr, ...]:
    """The index of the element itself, `(_0, _1, ...)`."""
    return tuple(prim.Variable(f"_{axis}") for axis in range(ndim))


def is_number(expr: Expr, value: int) -> bool:
    """Whether `expr` is that real number; a complex factor 1 is not exact for infinities."""
    other = prim.ExpressionNode | bool | np.bool_ | complex | np.complexfloating
    return not isinstance(expr, other) and bool(expr == value)


def is_negation(expr: Expr) -> bool:
    """Whether `expr` is -x, which pymbolic writes -1 * x: no product, for an infinite complex x."""
    if not isinstance(expr, prim.Product) or len(expr.children) != 2:
        return False
    first = expr.children[0]
    return isinstance(first, int | float | complex | np.number) and bool(first == -1)


def has_reduce(expr: Expr) -> bool:
    return any(isinstance(node, Reduce) for node in walk(expr))


def flops(expr: Expr) -> int:
    """Arithmetic operations on values (not on indices) per element; a reduction counts one per term."""
    if isinstance(expr, prim.Subscript) or is_leaf(expr):
        return 0
    inner = sum(flops(child) for child in children(expr))
    if isinstance(expr, Reduce):
        terms = 1
        for _, lower, upper in expr.bounds:
            terms *= max(0, upper - lower)
        return terms * (inner + 1)
    if isinstance(expr, Cast | prim.If):
        return inner
    if isinstance(expr, NARY):
        return inner + len(expr.children) - 1
    return inner + 1
