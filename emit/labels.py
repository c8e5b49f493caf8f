"""Which arrays of different ranks do the same: labels without sizes, integers, data and the number of neighbours.

Passes that must rewrite ranks alike decide for all arrays of one label at once. Programs of ranks with other neighbours
differ in what they receive and send; the concatenation of all that is received has one label whatever its pieces.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Hashable, Iterable
from typing import NamedTuple

from aotato.emit.joined import concatenated
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.text_expr import expr_text


class Label(NamedTuple):
    """What an array does, and which of the arrays of its rank that do the same it is; None if it is only sent."""

    what: int
    number: int | None


_INTEGER = re.compile(r"(?<![\w.\"])(?<!e-)-?\d+(?![\w.\"])")


def skeleton(expr: ex.Expr) -> str:
    """The text of `expr` without its integers."""
    return _INTEGER.sub("#", expr_text(expr))


def alike(exprs: Iterable[ex.Expr]) -> bool:
    """Whether expressions differ only in integers."""
    return len(set(map(skeleton, exprs))) < 2


def labels(programs: ir.Programs) -> list[dict[str, Label]]:
    """By rank, the label of every array.

    Arrays of a rank that do the same are told apart by their order, unless they are only sent: to any number of peers.
    """
    numbers: dict[object, int] = {}
    return [_labels(program, numbers) for program in programs.ranks]


def _labels(program: ir.Program, numbers: dict[object, int]) -> dict[str, Label]:
    whole = {name: concatenated(program, node) for name, node in program.of_type(ir.Lambda)}
    received = {name for name, node in program.of_type(ir.Recv)}
    joined = {name for name, pieces in whole.items() if pieces and received.issuperset(pieces)}
    pieces = {piece for name in joined for piece in whole[name]}
    found: dict[str, int] = {}
    for name, node in program.arrays.items():
        what = "piece" if name in pieces else "received" if name in joined | received else _what(node, found)
        found[name] = numbers.setdefault((what, node.dtype.name, len(node.shape)), len(numbers))
    kept = _kept(program) - pieces
    seen: Counter[int] = Counter()
    result: dict[str, Label] = {}
    for name, number in found.items():
        result[name] = Label(number, seen[number] if name in kept else None)
        seen[number] += name in kept
    return result


def _what(node: ir.Node, found: dict[str, int]) -> Hashable:
    match node:
        case ir.Input():
            return "input", node.path
        case ir.Const():
            return "const"
        case ir.Lambda():
            return "lambda", skeleton(node.expr), node.stored, tuple(found[name] for name in node.operands)
        case ir.Allreduce():
            return "allreduce", node.op, found[node.operand]
        case ir.LoopyCall():
            return "call", node.kernel, node.result, tuple(found[name] for name in node.operands)
    raise AssertionError(f"unknown node {type(node).__name__}")


def _kept(program: ir.Program) -> set[str]:
    """Arrays that are needed for more than to be sent."""
    needed = {output.array for output in program.outputs}
    for name in reversed(list(program.arrays)):
        node = program.arrays[name]
        if name in needed or isinstance(node, ir.Allreduce | ir.Recv):
            needed |= {name, *ir.operands(node)}
    return needed
