"""Which axis of each array runs over the elements that work-groups share out: the batch axis.

Two axes are of one class where one array reads the other at its own index. The batch axis is the class of largest
extent that every result of the entry has, behind short axes only, and that nothing computed is reduced over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

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


def batch_axes(programs: Sequence[ir.Program]) -> list[dict[str, int]]:
    """By rank, the batch axis of every array that has one; all empty where the entry has no batch axis.

    All ranks take the same axis of the same result, that of the rank where it is longest, or none: a rank with few
    elements shares the kernels of the others.
    """
    classes = [_classes(program) for program in programs]
    results = [
        {o.path: o.array for o in program.outputs if isinstance(program.arrays[o.array], ir.Lambda)}
        for program in programs
    ]
    found = [_largest(p, c, r) for p, c, r in zip(programs, classes, results, strict=True)]
    path, axis, extent = max(found, key=lambda choice: choice[2])
    if extent < FEWEST_ELEMENTS or any(path not in row or axis not in _open(p, c, row)[path]
                                       for p, c, row in zip(programs, classes, results, strict=True)):
        return [{} for _ in programs]
    return [_numbered(p, c, c.find((row[path], axis))) for p, c, row in zip(programs, classes, results, strict=True)]


def _classes(program: ir.Program) -> _Classes:
    classes = _Classes()
    for name, node in program.of_type(ir.Lambda):
        for axis, index in _unions(name, node):
            classes.unite(axis, index)
    return classes


def _numbered(program: ir.Program, classes: _Classes, chosen: _Axis) -> dict[str, int]:
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


def _open(program: ir.Program, classes: _Classes, results: Mapping[str, str]) -> dict[str, list[int]]:
    """The leading axes of each result whose class all results have and nothing computed is reduced over."""
    # The loop of a reduction is sequential, whatever it runs over
    closed = {classes.find((name, loop)) for name, node in program.of_type(ir.Lambda) for loop in _loops(node.expr)}
    common: set[_Axis] | None = None
    for name in results.values():
        mine = {classes.find((name, axis)) for axis in _leading(program.arrays[name].shape)}
        common = mine if common is None else common & mine
    wanted = (common or set()) - closed
    return {
        path: [axis for axis in _leading(program.arrays[name].shape) if classes.find((name, axis)) in wanted]
        for path, name in results.items()
    }


def _leading(shape: ir.Shape) -> range:
    """The axes up to the first long one: behind it, neighbouring work-items would be far apart in memory."""
    return range(1 + next((axis for axis, extent in enumerate(shape) if extent > LONGEST_UNROLLED), len(shape) - 1))


def _largest(program: ir.Program, classes: _Classes, results: Mapping[str, str]) -> tuple[str, int, int]:
    """Path of a result, its axis that is longest of all open ones, and its extent; ("", 0, 0) if there is none."""
    found = [
        (path, axis, program.arrays[results[path]].shape[axis])
        for path, axes in _open(program, classes, results).items()
        for axis in axes
    ]
    return max(found, key=lambda choice: choice[2], default=("", 0, 0))


def is_local(indices: tuple[ex.Expr, ...], axis: int, own: int) -> bool:
    """Whether a read at `indices` of an array with batch axis `axis` stays at its reader's batch index `own`."""
    return isinstance(indices[axis], prim.Variable) and indices[axis].name == f"_{own}"


def lanes(shape: ir.Shape, axis: int) -> tuple[int, ...]:
    """The axes, beside the batch axis, whose elements go to different work-items; short leading ones are unrolled."""
    return tuple(a for a in range(len(shape)) if a != axis and not (a < axis and shape[a] <= LONGEST_UNROLLED))
