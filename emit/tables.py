"""Index maps as data: every index that constants decide is evaluated, and written in its simplest form.

Gathers, reshapes and pick lists between an array and its reader disappear: the reader reads at an index of its own,
which is arithmetic, a table over as few axes as it depends on, or a few rows and the numbers of rows. Where a constant
mask leaves an element unused, any index will do. Ranks of a class take the same forms.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import pymbolic.primitives as prim

from aotato.emit.classes import classes
from aotato.emit.indices import Exprs, Indices, Place
from aotato.emit.moves import named, normal, source, through
from aotato.frontend import expr as ex
from aotato.frontend import ir


def tables(programs: ir.Programs) -> ir.Programs:
    """`programs` with canonical indices."""
    ranks = list(programs.ranks)
    for members in classes(programs):
        done = _Class([programs.ranks[number] for number in members]).rewritten()
        for number, program in zip(members, done, strict=True):
            ranks[number] = program
    return dataclasses.replace(programs, ranks=tuple(ranks))


def only_sent(program: ir.Program) -> set[str]:
    """The Lambdas that nothing but messages needs."""
    roots = {output.array for output in program.outputs} | {name for name, _ in program.of_type(ir.Allreduce)}
    kept = set(roots)
    for name in reversed(list(program.arrays)):
        if name in kept:
            kept.update(ir.operands(program.arrays[name]))
    return {name for name, _ in program.of_type(ir.Lambda) if name not in kept}


class _Class:
    """Ranks that are rewritten alike."""

    def __init__(self, programs: Sequence[ir.Program]) -> None:
        self.old = programs
        # Looked up while they grow, in dependency order
        self.arrays: list[dict[str, ir.Node]] = [{} for _ in programs]
        self.new = [
            dataclasses.replace(program, arrays=arrays, constants=dict(program.constants))
            for program, arrays in zip(programs, self.arrays, strict=True)
        ]
        self.indices = Indices(self.new, self.arrays, {name for program in programs for name in program.arrays})
        self.sent = only_sent(programs[0])

    def rewritten(self) -> list[ir.Program]:
        for name in self.old[0].arrays:
            nodes = self._nodes(name, [program.arrays[name] for program in self.old])
            for arrays, node in zip(self.arrays, nodes, strict=True):
                arrays[name] = node
        return self.new

    def _nodes(self, name: str, nodes: Sequence[ir.Node]) -> Sequence[ir.Node]:
        lambdas = [node for node in nodes if isinstance(node, ir.Lambda)]
        # Pick lists of messages stay lists: what goes to several peers then differs in these alone, and becomes one
        if not lambdas or name in self.sent or not all(ir.size(node.shape) for node in lambdas):
            return nodes
        extents = tuple({f"_{axis}": (0, n) for axis, n in enumerate(node.shape)} for node in lambdas)
        before = tuple(named(node.expr, node.operands) for node in lambdas)
        after = self._exprs(before, Place(name, extents))
        if after == before:
            return nodes
        found = zip(lambdas, normal(after, [node.shape for node in lambdas]), strict=True)
        return [dataclasses.replace(node, expr=expr, operands=operands) for node, (expr, operands) in found]

    def _exprs(self, exprs: Exprs, place: Place) -> Exprs:
        """The expressions of all ranks, which differ only in integers, with canonical indices."""
        match exprs[0]:
            case prim.Subscript():
                return self._read(exprs, place)
            case prim.If():
                return self._chosen(exprs, place)
            case ex.Reduce():
                extents = tuple(
                    {**mine, **{index: (lower, upper) for index, lower, upper in expr.bounds}}
                    for mine, expr in zip(place.extents, exprs, strict=True)
                )
                place = dataclasses.replace(place, extents=extents)
        parts = zip(*map(ex.children, exprs), strict=True)
        new = zip(*(self._exprs(part, place) for part in parts), strict=True)
        return exprs if ex.is_leaf(exprs[0]) else tuple(map(ex.with_children, exprs, new))

    def _read(self, exprs: Exprs, place: Place) -> Exprs:
        while all(source(program, expr.aggregate.name) for program, expr in zip(self.new, exprs, strict=True)):
            exprs = tuple(map(through, self.new, exprs))
        indices = list(zip(*(expr.index_tuple for expr in exprs), strict=True))
        # What only a run decides may read tables in turn
        indices = [i if self.indices.decides(i, place) else self._exprs(i, place) for i in indices]
        written = self.indices.of_read(exprs[0].aggregate.name, indices, place)
        return tuple(
            prim.Subscript(expr.aggregate, tuple(index[rank] for index in written)) for rank, expr in enumerate(exprs)
        )

    def _chosen(self, exprs: Exprs, place: Place) -> Exprs:
        """A choice; a constant mask tells its branches which elements are used."""
        condition = tuple(expr.condition for expr in exprs)
        branches = []
        for wanted, branch in ((True, tuple(e.then for e in exprs)), (False, tuple(e.else_ for e in exprs))):
            conditions = (*place.conditions, (condition, wanted))
            branches.append(self._exprs(branch, dataclasses.replace(place, conditions=conditions)))
        if not self.indices.decides(condition, place):
            return tuple(map(prim.If, self._exprs(condition, place), *branches))
        written = self.indices.of_condition(condition, place)
        if not isinstance(written, bool):
            return tuple(map(prim.If, written, *branches))
        same = all(known.dtype(a) == known.dtype(b) for known, a, b in zip(self.indices.known, *branches, strict=True))
        return branches[not written] if same else tuple(map(prim.If, (written,) * len(exprs), *branches))
