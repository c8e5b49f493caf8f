"""Host expressions: a small language of numbers, checked and compiled; nothing else can be said in it.

A text is parsed by `ast`, translated node by node into a new tree that can only look names up in a mapping, and that
tree is compiled. Numbers and powers are floating-point ones, so that no expression takes much memory or time.
"""

from __future__ import annotations

import ast
import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from aotato.runtime_stub.errors import Refusal

LONGEST = 500  # characters: far below what recursion can walk

Values = Mapping[str, float]

# name -> function, and whether it takes one argument (else two or more)
FUNCTIONS: dict[str, tuple[Callable[..., float], bool]] = {
    "abs": (abs, True),
    "exp": (math.exp, True),
    "log": (math.log, True),
    "max": (max, False),
    "min": (min, False),
    "sqrt": (math.sqrt, True),
}
_GLOBALS: dict[str, Any] = {"__builtins__": {}, "pow": math.pow, **{name: f for name, (f, _) in FUNCTIONS.items()}}
_BINARY = ast.Add | ast.Sub | ast.Mult | ast.Div | ast.FloorDiv | ast.Mod
_COMPARISONS = ast.Lt | ast.LtE | ast.Gt | ast.GtE | ast.Eq | ast.NotEq


class ExpressionError(Refusal):
    """A text that is no host expression, or one without a value: a sentence."""


@dataclass(frozen=True)
class Expression:
    """`value(values)` reads `names` from a mapping; raises ExpressionError where there is no value."""

    text: str
    names: frozenset[str]
    value: Callable[[Values], float]


def parse(text: str) -> Expression:
    """Raises ExpressionError for everything that is not of the language."""
    if len(text) > LONGEST:
        raise ExpressionError(f"expression {text[:40]!r}... has {len(text)} characters, but {LONGEST} are the most")
    names: set[str] = set()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of Python's parser, about what is refused below
            tree = ast.parse(text.strip(), mode="eval")
        code = _compiled(_checked(tree.body, names))
    except _NotAllowed as error:
        raise ExpressionError(f"expression {text!r} holds {error}, which host expressions do not have") from None
    except (SyntaxError, ValueError, OverflowError, RecursionError, MemoryError) as error:
        why = getattr(error, "msg", "") or str(error)
        raise ExpressionError(f"expression {text!r} cannot be read: {why}") from None
    return Expression(text, frozenset(names), _guarded(text, code))


class _NotAllowed(Exception):
    """What was found, for a sentence."""


def _compiled(body: ast.expr) -> Callable[[Values], float]:
    arguments = ast.arguments(posonlyargs=[], args=[ast.arg("_")], kwonlyargs=[], kw_defaults=[], defaults=[])
    tree = ast.fix_missing_locations(ast.Expression(ast.Lambda(arguments, body)))
    code: Callable[[Values], float] = eval(compile(tree, "<host expression>", "eval"), dict(_GLOBALS))
    return code


def _guarded(text: str, code: Callable[[Values], float]) -> Callable[[Values], float]:
    def value(values: Values) -> float:
        try:
            return code(values)
        except KeyError as error:
            why = f"{error.args[0]!r} is not known yet"
        except (ArithmeticError, ValueError) as error:
            why = str(error)
        # Every rank computes with the same numbers, so all come here
        raise ExpressionError(f"expression {text!r} has no value: {why}", agreed=True)

    return value


def _checked(node: ast.expr, names: set[str]) -> ast.expr:
    """The same expression from nodes made here. Raises _NotAllowed; adds to `names`."""

    def inner(child: ast.expr) -> ast.expr:
        return _checked(child, names)

    match node:
        case ast.Constant(value=bool() | int() | float() as number):
            return ast.Constant(number if isinstance(number, bool) else float(number))
        case ast.Name() | ast.Attribute() | ast.Subscript():
            path = _path(node)
            names.add(path)
            return ast.Subscript(ast.Name("_", ast.Load()), ast.Constant(path), ast.Load())
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() | ast.Not()):
            return ast.UnaryOp(node.op, inner(node.operand))
        case ast.BinOp(op=ast.Pow()):
            return ast.Call(ast.Name("pow", ast.Load()), [inner(node.left), inner(node.right)], [])
        case ast.BinOp() if isinstance(node.op, _BINARY):
            return ast.BinOp(inner(node.left), node.op, inner(node.right))
        case ast.BoolOp():
            return ast.BoolOp(node.op, [inner(value) for value in node.values])
        case ast.Compare() if all(isinstance(op, _COMPARISONS) for op in node.ops):
            return ast.Compare(inner(node.left), node.ops, [inner(value) for value in node.comparators])
        case ast.IfExp():
            return ast.IfExp(inner(node.test), inner(node.body), inner(node.orelse))
        case ast.Call(func=ast.Name(id=name), keywords=[]) if name in FUNCTIONS:
            if len(node.args) != 1 if FUNCTIONS[name][1] else len(node.args) < 2:
                raise _NotAllowed(f"{name} of {len(node.args)} argument{'s' * (len(node.args) != 1)}")
            return ast.Call(ast.Name(name, ast.Load()), [inner(value) for value in node.args], [])
    raise _NotAllowed(f"{ast.unparse(node)!r}")


def _path(node: ast.expr) -> str:
    """`q.momentum[0]` is the name `q.momentum.0`."""
    match node:
        case ast.Name():
            return node.id
        case ast.Attribute():
            return f"{_path(node.value)}.{node.attr}"
        case ast.Subscript(slice=ast.Constant(value=int() | str() as key)) if not isinstance(key, bool):
            return f"{_path(node.value)}.{key}"
    raise _NotAllowed(f"{ast.unparse(node)!r}")
