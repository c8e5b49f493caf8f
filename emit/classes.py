"""Rank classes: ranks whose programs differ only in integers, sizes and data, and so are rewritten alike."""

from __future__ import annotations

from aotato.emit.labels import skeleton
from aotato.frontend import ir


def classes(programs: ir.Programs) -> list[list[int]]:
    """Rank numbers, class by class, in order of the first rank of each."""
    found: dict[object, list[int]] = {}
    for number, program in enumerate(programs.ranks):
        found.setdefault(_skeleton(program), []).append(number)
    return list(found.values())


def _skeleton(program: ir.Program) -> object:
    arrays = tuple((name, *_node(node)) for name, node in program.arrays.items())
    sends = tuple(send.array for send in program.sends)
    return arrays, sends, program.outputs


def _node(node: ir.Node) -> tuple[object, ...]:
    what: tuple[object, ...] = ()
    match node:
        case ir.Input():
            what = (node.path,)
        case ir.Lambda():
            what = (node.operands, node.stored, skeleton(node.expr))
        case ir.LoopyCall():
            what = (node.kernel, node.result, node.operands)
        case ir.Allreduce():
            what = (node.operand, node.op)
    return type(node).__name__, node.dtype.name, len(node.shape), *what
