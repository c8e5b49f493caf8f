"""Which axis of each array runs over the elements that work-groups share out: the batch axis.

Two axes are of one class where one array reads the other at its own index. The batch axis is the class of largest
extent that every result of the entry has, behind short axes only, and that nothing computed is reduced over.
"""

from __future__ import annotations

from collections.abc import Iterable

import pymbolic.primitives as prim

from aotato.frontend import expr as ex
from aotato.frontend import ir

FEWEST_ELEMENTS = 64  # a shorter axis is not worth sharing out
LONGEST_UNROLLED = 6  # an axis of components in front of the batch axis that is written out

_Axis = tuple[str, int | str]  # array and axis, or array and reduction index


class _Classes:
    """Union-find over axes."""

    def __init__(self) -> None:
        self.parent: dict[_Axis, _Axis] = {}

    def find(self, axis: _Axis) -> _Axis:
        root = axis
        while self.parent.setdefault(root, root) != root:
            root = self.parent[root]
        while self.parent[axis] != root:
            self.parent[axis], axis = root, self.parent[axis]
        return root

    def unite(self, a: _Axis, b: _Axis) -> None:
        self.parent[self.find(b)] = self.find(a)


def batch_axes(program: ir.Program, results: Iterable[str]) -> dict[str, int]:
    """The batch axis of every array that has one; empty where the entry has no batch axis."""
    classes = _Classes()
    for name, node in program.of_type(ir.Lambda):
        for axis, index in _unions(name, node):
            classes.unite(axis, index)
    # The loop of a reduction is sequential, whatever it runs over
    closed = {
        classes.find((name, loop)) for name, node in program.of_type(ir.Lambda) for loop in _loops(node.expr)
    }
    chosen = _largest(program, classes, list(results), closed)
    if chosen is None:
        return {}
    found: dict[str, int] = {}
    for name, node in program.arrays.items():
        mine = [number for number in range(len(node.shape)) if classes.find((name, number)) == chosen]
        if mine:
            found[name] = mine[0]
    return found


def _unions(name: str, node: ir.Lambda) -> Iterable[tuple[_Axis, _Axis]]:
    for position, indices in ex.reads(node.expr):
        for axis, index in enumerate(indices):
            if isinstance(index, prim.Variable):
                own: int | str = int(index.name[1:]) if index.name[1:].isdigit() else index.name
                yield (node.operands[position], axis), (name, own)


def _loops(expr: ex.Expr) -> Iterable[str]:
    return (loop for node in ex.walk(expr) if isinstance(node, ex.Reduce) for loop, _, _ in node.bounds)


def _largest(program: ir.Program, classes: _Classes, results: list[str], closed: set[_Axis]) -> _Axis | None:
    common: dict[_Axis, int] | None = None
    for name in results:
        shape = program.arrays[name].shape
        # Behind a long axis, neighbouring work-items would be far apart in memory
        first = next((axis for axis, extent in enumerate(shape) if extent > LONGEST_UNROLLED), len(shape))
        mine = {classes.find((name, axis)): extent for axis, extent in enumerate(shape[: first + 1])}
        common = mine if common is None else {c: n for c, n in common.items() if c in mine}
    wide = {c: n for c, n in (common or {}).items() if n >= FEWEST_ELEMENTS and c not in closed}
    return max(wide, key=lambda c: (wide[c], str(c))) if wide else None


def is_local(indices: tuple[ex.Expr, ...], axis: int, own: int) -> bool:
    """Whether a read at `indices` of an array with batch axis `axis` stays at its reader's batch index `own`."""
    return isinstance(indices[axis], prim.Variable) and indices[axis].name == f"_{own}"


def lanes(shape: ir.Shape, axis: int) -> tuple[int, ...]:
    """The axes, beside the batch axis, whose elements go to different work-items; short leading ones are unrolled."""
    return tuple(a for a in range(len(shape)) if a != axis and not (a < axis and shape[a] <= LONGEST_UNROLLED))


