"""Print scalar expressions in Python's syntax, and parse them back."""

from __future__ import annotations

import ast
import math
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.frontend.dtypes import function_name
from aotato.frontend.expr import FUNCTIONS, NARY, REDUCE_OPS, Cast, Expr, Reduce, children

CHAINS: dict[type, tuple[str, type]] = {
    prim.Sum: ("+", ast.Add),
    prim.Product: ("*", ast.Mult),
    prim.BitwiseAnd: ("&", ast.BitAnd),
    prim.BitwiseOr: ("|", ast.BitOr),
    prim.BitwiseXor: ("^", ast.BitXor),
    prim.LogicalAnd: ("and", ast.And),
    prim.LogicalOr: ("or", ast.Or),
}
PAIRS: dict[type, tuple[str, type]] = {
    prim.Quotient: ("/", ast.Div),
    prim.FloorDiv: ("//", ast.FloorDiv),
    prim.Remainder: ("%", ast.Mod),
    prim.Power: ("**", ast.Pow),
    prim.LeftShift: ("<<", ast.LShift),
    prim.RightShift: (">>", ast.RShift),
}
COMPARISONS: dict[type, str] = {
    ast.Lt: "<",
    ast.LtE: "<=",
    ast.Gt: ">",
    ast.GtE: ">=",
    ast.Eq: "==",
    ast.NotEq: "!=",
}
_CHAIN_OF = {operator: kind for kind, (_, operator) in CHAINS.items()}
_PAIR_OF = {operator: kind for kind, (_, operator) in PAIRS.items()}
_NAMED = {kind.__name__: kind for kind in NARY}
_SCALARS: dict[str, np.dtype[Any]] = {
    "bool_": np.dtype(bool),
    **{f"int{bits}": np.dtype(f"int{bits}") for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": np.dtype(f"uint{bits}") for bits in (8, 16, 32, 64)},
    **{f"float{bits}": np.dtype(f"float{bits}") for bits in (16, 32, 64)},
    **{f"complex{bits}": np.dtype(f"complex{bits}") for bits in (64, 128)},
}


def expr_text(expr: Expr) -> str:
    """`expr` in Python's syntax: the same text for the same tree, and another for any other."""
    kind = type(expr)
    if not isinstance(expr, prim.ExpressionNode):
        return _scalar_text(expr)
    if isinstance(expr, prim.Variable):
        return str(expr.name)
    parts = [expr_text(child) for child in children(expr)]
    if kind in PAIRS:
        if kind is prim.Power and parts[0].startswith("-"):
            parts[0] = f"({parts[0]})"
        return f"({parts[0]} {PAIRS[kind][0]} {parts[1]})"
    if kind in CHAINS and len(parts) > 1:
        return f"({f' {CHAINS[kind][0]} '.join(parts)})"
    match expr:
        case prim.Min() | prim.Max() if parts:
            return f"{kind.__name__.lower()}({', '.join(parts)})"
        case prim.Subscript():
            return f"{expr.aggregate.name}[{', '.join(parts) or '()'}]"
        case prim.Call():
            return f"{function_name(expr)}({', '.join(parts)})"
        case prim.Comparison():
            return f"({parts[0]} {expr.operator} {parts[1]})"
        case prim.If():
            return f"where({', '.join(parts)})"
        case prim.LogicalNot():
            return f"(not {parts[0]})"
        case prim.BitwiseNot():
            return f"(~{parts[0]})"
        case Cast():
            return f'cast("{expr.dtype.name}", {parts[0]})'
        case Reduce():
            return _reduce_text(expr, parts[0])
    return f"{kind.__name__}({', '.join(parts)})"


def _reduce_text(expr: Reduce, body: str) -> str:
    if not expr.bounds:
        return f'Reduce("{expr.op}", {body})'
    loops = " ".join(f"for {name} in range({lower}, {upper})" for name, lower, upper in expr.bounds)
    return f"{expr.op}({body} {loops})"


def _scalar_text(value: Any) -> str:
    if not isinstance(value, np.generic):
        if isinstance(value, complex):
            return f"complex({_float_text(value.real)}, {_float_text(value.imag)})"
        return _float_text(value) if isinstance(value, float) else repr(value)
    name = "bool_" if isinstance(value, np.bool_) else value.dtype.name
    if name not in _SCALARS:
        raise TypeError(f"{value!r} has no exact text")
    if isinstance(value, np.complexfloating):
        part = value.real.dtype
        return f"{name}({_float_text(value.real.item(), part)}, {_float_text(value.imag.item(), part)})"
    if isinstance(value, np.floating):
        return f"{name}({_float_text(value.item(), value.dtype)})"
    return f"{name}({value.item()})"


def _float_text(value: float, dtype: np.dtype[Any] | None = None) -> str:
    """The fewest digits that give back the number in its own dtype."""
    if math.isnan(value):
        return "nan"
    if math.isinf(value) or dtype is None or dtype.itemsize == 8:
        return repr(value)
    for digits in range(1, 17):
        short = float(f"{value:.{digits}g}")
        if abs(short) <= np.finfo(dtype).max and dtype.type(short) == value:
            return repr(short)
    return repr(value)


def parse_expr(text: str) -> Expr:
    """The expression that `expr_text` printed; raises ValueError for anything else."""
    try:
        return _parse(ast.parse(text.strip(), mode="eval").body)
    except (SyntaxError, RecursionError, MemoryError) as error:
        raise ValueError(f"{error}: {text}") from error


def _parse(node: ast.AST) -> Expr:
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
        case ast.Name(id="nan" | "inf"):
            return _number(node)
        case ast.Name(id=name):
            return prim.Variable(name)
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return prim.LogicalNot(_parse(operand))
        case ast.UnaryOp(op=ast.Invert(), operand=operand):
            return prim.BitwiseNot(_parse(operand))
        case ast.BoolOp(op=operator, values=values):
            return _CHAIN_OF[type(operator)](tuple(map(_parse, values)))
        case ast.BinOp(op=operator) if type(operator) in _CHAIN_OF:
            return _CHAIN_OF[type(operator)](tuple(map(_parse, _links(node))))
        case ast.BinOp(left=left, op=operator, right=right) if type(operator) in _PAIR_OF:
            return _PAIR_OF[type(operator)](_parse(left), _parse(right))
        case ast.Compare(left=left, ops=[operator], comparators=[right]) if type(operator) in COMPARISONS:
            return prim.Comparison(_parse(left), COMPARISONS[type(operator)], _parse(right))
        case ast.Subscript(value=ast.Name(id=name), slice=index):
            indices = index.elts if isinstance(index, ast.Tuple) else [index]
            return prim.Subscript(prim.Variable(name), tuple(map(_parse, indices)))
        case ast.Call(func=ast.Name(id=name), args=arguments, keywords=[]):
            return _parse_call(name, arguments)
    raise _unknown(node)


def _unknown(node: ast.AST) -> ValueError:
    return ValueError(f"'{ast.unparse(node)}' is not part of an expression")


def _links(node: ast.BinOp) -> list[ast.expr]:
    """The terms of a chain. Its left operand continues it unless it stands in parentheses: these come first then."""
    links = [node.right]
    left = node.left
    start = (node.lineno, node.col_offset)
    while isinstance(left, ast.BinOp) and type(left.op) is type(node.op) and (left.lineno, left.col_offset) == start:
        links.append(left.right)
        left = left.left
    return [left, *reversed(links)]


def _number(node: ast.AST) -> Any:
    match node:
        case ast.Constant(value=bool() | int() | float() as value):
            return value
        case ast.Name(id="nan" | "inf" as name):
            return getattr(math, name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_number(operand)
    raise _unknown(node)


def _parse_call(name: str, arguments: list[ast.expr]) -> Expr:
    if name in REDUCE_OPS and len(arguments) == 1 and isinstance(arguments[0], ast.GeneratorExp):
        generator = arguments[0]
        return Reduce(name, tuple(map(_parse_loop, generator.generators)), _parse(generator.elt))
    if name == "complex":
        return complex(*map(_number, arguments))
    if name in _SCALARS:
        return _parse_scalar(_SCALARS[name], list(map(_number, arguments)))
    match name, arguments:
        case "cast", [ast.Constant(value=str() as dtype), body]:
            return Cast(np.dtype(dtype), _parse(body))
        case "Reduce", [ast.Constant(value=str() as op), body]:
            return Reduce(op, (), _parse(body))
    parts = tuple(map(_parse, arguments))
    if name == "where" and len(parts) == 3:
        return prim.If(*parts)
    if name in ("min", "max"):
        return (prim.Min if name == "min" else prim.Max)(parts)
    if name in _NAMED:
        return _NAMED[name](parts)
    if name in FUNCTIONS:
        return prim.Call(prim.Variable(name), parts)
    raise ValueError(f"unknown function '{name}'")


def _parse_scalar(dtype: np.dtype[Any], numbers: list[Any]) -> Any:
    if dtype.kind != "c":
        return dtype.type(*numbers)
    scalar = np.empty((), dtype)
    scalar.real, scalar.imag = numbers
    return scalar[()]


def _parse_loop(loop: ast.comprehension) -> tuple[str, int, int]:
    match loop:
        case ast.comprehension(
            target=ast.Name(id=name), iter=ast.Call(func=ast.Name(id="range"), args=[lower, upper]), ifs=[]
        ):
            return name, int(_number(lower)), int(_number(upper))
    raise _unknown(loop.target)
