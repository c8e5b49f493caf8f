"""Print programs and expressions as text, and parse it back to the same.

Expressions are Python expressions, parsed by `ast`: fully parenthesised, `(a0[_0] * a1[()])`, `where(c, x, y)`,
`min(x, y)`, `sum(a0[_r0] for _r0 in range(0, 3))`, `cast("float32", x)`, and numpy scalars `float32(0.1)`. A chain
`(x + y + z)` is one node and `((x + y) + z)` are two. What Python cannot write so is a call of the class:
`Sum(x)`. Subscripts come back with a tuple as index, NaNs without sign and payload. Python's parser takes
some 190 levels of parentheses.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from aotato.frontend.ir import (
    Allreduce,
    Const,
    Input,
    Lambda,
    LoopyCall,
    Node,
    Output,
    Program,
    Recv,
    Send,
    Shape,
    type_text,
)
from aotato.frontend.ir import size as size_of
from aotato.frontend.opaque import Opaque
from aotato.frontend.text_expr import expr_text, parse_expr

__all__ = ["dumps", "expr_text", "parse", "parse_expr"]

SMALL = 16  # elements of a constant that is shown in a comment


def dumps(program: Program) -> str:
    """One line for the program, each array, send and output; stable, for golden files."""
    lines = [f"program {program.entry!r} rank {program.rank}"]
    lines += [f"{name} = {_node_text(node, program.constants)}" for name, node in program.arrays.items()]
    lines += [f"send {send.array} dest={send.dest} tag={send.tag}" for send in program.sends]
    lines += [f"output {output.path!r} = {output.array}" for output in program.outputs]
    return "\n".join(lines) + "\n"


def parse(
    text: str, constants: Mapping[str, np.ndarray[Any, Any]], kernels: Mapping[str, Opaque] = MappingProxyType({})
) -> Program:
    """The program that `dumps` printed; `constants` and `kernels` hold at least its own, by digest.

    Raises ValueError with the line that is wrong.
    """
    head: tuple[str, int] | None = None
    arrays: dict[str, Node] = {}
    sends: list[Send] = []
    outputs: list[Output] = []
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith("#"):
            continue
        if found := _match(r"program (.+) rank (\d+)", line):
            head = (_string(found[0]), int(found[1]))
        elif found := _match(r"send (\S+) dest=(-?\d+) tag=(-?\d+)", line):
            sends.append(Send(found[0], int(found[1]), int(found[2])))
        elif found := _match(r"output (.+) = (\S+)", line):
            outputs.append(Output(_string(found[0]), found[1]))
        elif found := _match(r"(\S+) = (\w+) (\w+)\[([\d,]*)\](.*)", line):
            name, kind, dtype, shape, rest = found
            arrays[name] = _parse_node(kind, np.dtype(dtype), _shape(shape), rest.strip(), f"line {number}: {line}")
        else:
            raise ValueError(f"line {number} is not part of a program: {line}")
    if head is None:
        raise ValueError("the text has no line 'program ENTRY rank N'")
    return Program(*head, arrays, tuple(sends), tuple(outputs), _used(arrays, constants), _called(arrays, kernels))


def _node_text(node: Node, constants: Mapping[str, np.ndarray[Any, Any]]) -> str:
    typed = type_text(node)
    match node:
        case Input():
            return f"input {typed} {node.path!r}"
        case Const():
            return f"const {typed} {node.digest}{_comment(node, constants)}"
        case Recv():
            return f"recv {typed} source={node.source} tag={node.tag}"
        case Lambda():
            stored = "stored " if node.stored else ""
            return f"lambda {typed} {stored}({', '.join(node.operands)}): {expr_text(node.expr)}"
        case LoopyCall():
            return f"call {typed} {node.result} of {node.kernel} ({', '.join(node.operands)})"
        case Allreduce():
            return f"allreduce {typed} {node.op} {node.operand}"
    raise AssertionError(f"unknown node {type(node).__name__}")


def _comment(node: Const, constants: Mapping[str, np.ndarray[Any, Any]]) -> str:
    array = constants.get(node.digest)
    return f"  # {array.tolist()}" if array is not None and size_of(node.shape) <= SMALL else ""


def _match(pattern: str, line: str) -> Sequence[str] | None:
    found = re.fullmatch(pattern, line)
    return found.groups() if found else None


def _string(text: str) -> str:
    return str(ast.literal_eval(text))


def _shape(text: str) -> Shape:
    return tuple(int(extent) for extent in text.split(",") if extent)


def _parse_node(kind: str, dtype: np.dtype[Any], shape: Shape, rest: str, where: str) -> Node:
    if kind == "input":
        return Input(_string(rest), shape, dtype)
    if kind == "const" and (found := _match(r"(\w+)(?:\s*#.*)?", rest)):
        return Const(found[0], shape, dtype)
    if kind == "recv" and (found := _match(r"source=(-?\d+) tag=(-?\d+)", rest)):
        return Recv(int(found[0]), int(found[1]), shape, dtype)
    if kind == "allreduce" and (found := _match(r"(\w+) (\S+)", rest)):
        return Allreduce(found[1], found[0], shape, dtype)
    if kind == "lambda" and (found := _match(r"(stored )?\(([^)]*)\): (.*)", rest)):
        return Lambda(parse_expr(found[2]), _names(found[1]), shape, dtype, stored=bool(found[0]))
    if kind == "call" and (found := _match(r"(\w+) of (\w+) \(([^)]*)\)", rest)):
        return LoopyCall(found[1], found[0], _names(found[2]), shape, dtype)
    raise ValueError(where)


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _called(arrays: Mapping[str, Node], kernels: Mapping[str, Opaque]) -> dict[str, Opaque]:
    called = {node.kernel: name for name, node in arrays.items() if isinstance(node, LoopyCall)}
    for digest, name in called.items():
        if digest not in kernels:
            raise ValueError(f"'{name}' calls kernel {digest}, which is not among the {len(kernels)} given")
    return {digest: kernels[digest] for digest in called}


def _used(arrays: Mapping[str, Node], constants: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, np.ndarray[Any, Any]]:
    used = {}
    for name, node in arrays.items():
        if isinstance(node, Const):
            if node.digest not in constants:
                raise ValueError(f"'{name}' is constant {node.digest}, which is not among the {len(constants)} given")
            used[node.digest] = constants[node.digest]
    return used
