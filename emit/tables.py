"""Index maps as data: every index that constants decide is evaluated, and written in its simplest form.

Gathers, reshapes and pick lists between an array and its reader disappear: the reader reads at an index of its own,
which is arithmetic, a table over as few axes as it depends on, or a few rows and the numbers of rows. Where a constant
mask leaves an element unused, any index will do. Reads of one label take the same form on all ranks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence

import pymbolic.primitives as prim

from aotato.emit.indices import Indices, Request
from aotato.emit.known import Extents, Known
from aotato.emit.labels import Label, labels
from aotato.emit.moves import is_move, named, normal, through
from aotato.frontend import expr as ex
from aotato.frontend import ir

Conditions = tuple[tuple[ex.Expr, bool], ...]
Answers = dict[tuple[int, str, int], Mapping[int, ex.Expr]]  # by rank, reader and the number of its request


def tables(programs: ir.Programs) -> ir.Programs:
    """`programs` with canonical indices."""
    indices, key = Indices(programs.ranks), labels(programs)
    moves = _moves(programs, key)
    walks = [_Walk(p, known, moves[p.rank]) for p, known in zip(programs.ranks, indices.known, strict=True)]
    answers = _answers(indices, walks, key)
    written: list[dict[str, ex.Expr]] = [
        {name: walk.expr(name, lambda r, n: answers[r.rank, r.reader, n]) for name in walk.readers} for walk in walks
    ]
    return dataclasses.replace(programs, ranks=_programs(programs, indices, _nodes(programs, written, key)))


def _moves(programs: ir.Programs, key: Sequence[Mapping[str, Label]]) -> list[set[str]]:
    """By rank the moves that all arrays of their label are."""
    each = [(p.rank, name, key[p.rank][name]) for p in programs.ranks for name in p.arrays]
    others = {label for rank, name, label in each if not is_move(programs.ranks[rank], name)}
    return [
        {name for name in program.arrays if key[program.rank][name] not in others} for program in programs.ranks
    ]


def _answers(indices: Indices, walks: Sequence[_Walk], key: Sequence[Mapping[str, Label]]) -> Answers:
    """All requests of one label are answered together."""
    groups: dict[object, list[tuple[Request, int]]] = {}

    def noted(request: Request, number: int) -> Mapping[int, ex.Expr]:
        label = key[request.rank][request.reader]
        request = dataclasses.replace(request, sent=label.number is None)
        groups.setdefault((label, number), []).append((request, number))
        return request.indices

    for walk in walks:
        for name in walk.readers:
            walk.expr(name, noted)
    found: Answers = {}
    for group in groups.values():
        for (request, number), answer in zip(group, indices.answers([r for r, _ in group]), strict=True):
            found[request.rank, request.reader, number] = answer
    return found


def _nodes(
    programs: ir.Programs, written: Sequence[Mapping[str, ex.Expr]], key: Sequence[Mapping[str, Label]]
) -> list[dict[str, ir.Lambda]]:
    """By rank the arrays that were written anew, in normal form where that leaves those of a label alike."""
    groups: dict[Label, list[tuple[int, str, ir.Lambda]]] = {}
    for program in programs.ranks:
        for name in written[program.rank]:
            node = program.arrays[name]
            assert isinstance(node, ir.Lambda)
            groups.setdefault(key[program.rank][name], []).append((program.rank, name, node))
    found: list[dict[str, ir.Lambda]] = [{} for _ in programs.ranks]
    for group in groups.values():
        exprs = [written[rank][name] for rank, name, _ in group]
        if all(expr == named(node.expr, node.operands) for expr, (_, _, node) in zip(exprs, group, strict=True)):
            continue
        new = normal(exprs, [node.shape for _, _, node in group])
        for (rank, name, node), (expr, operands) in zip(group, new, strict=True):
            found[rank][name] = dataclasses.replace(node, expr=expr, operands=operands)
    return found


def _programs(
    programs: ir.Programs, indices: Indices, written: Sequence[Mapping[str, ir.Lambda]]
) -> tuple[ir.Program, ...]:
    """Tables stand before their first reader."""
    ranks = []
    for program, new, nodes in zip(programs.ranks, indices.arrays, written, strict=True):
        arrays: dict[str, ir.Node] = {}
        for name, old in program.arrays.items():
            node = nodes.get(name, old)
            arrays |= {operand: new[operand] for operand in ir.operands(node) if operand in new}
            arrays[name] = node
        constants = {**program.constants, **indices.constants[program.rank]}
        ranks.append(dataclasses.replace(program, arrays=arrays, constants=constants))
    return tuple(ranks)


class _Walk:
    """Goes through the expressions of a rank, and asks what to write for each read and condition."""

    def __init__(self, program: ir.Program, known: Known, moves: Collection[str]) -> None:
        self.program, self.known, self.moves = program, known, moves
        self.readers = [name for name, node in program.of_type(ir.Lambda) if ir.size(node.shape)]
        self.reader, self.asked = "", 0
        self.ask: Callable[[Request, int], Mapping[int, ex.Expr]] = lambda request, number: request.indices

    def expr(self, name: str, ask: Callable[[Request, int], Mapping[int, ex.Expr]]) -> ex.Expr:
        """The expression of array `name`, reading by name; `ask` gives what is read instead, request by request."""
        node = self.program.arrays[name]
        assert isinstance(node, ir.Lambda)
        self.reader, self.asked, self.ask = name, 0, ask
        return self._expr(named(node.expr, node.operands), {f"_{a}": (0, n) for a, n in enumerate(node.shape)}, ())

    def _expr(self, expr: ex.Expr, extents: Extents, conditions: Conditions) -> ex.Expr:
        match expr:
            case prim.Subscript():
                return self._read(expr, extents, conditions)
            case prim.If():
                return self._chosen(expr, extents, conditions)
            case ex.Reduce():
                extents = {**extents, **{index: (lower, upper) for index, lower, upper in expr.bounds}}
        if ex.is_leaf(expr):
            return expr
        return ex.with_children(expr, tuple(self._expr(child, extents, conditions) for child in ex.children(expr)))

    def _answer(
        self, array: str | None, indices: Mapping[int, ex.Expr], extents: Extents, conditions: Conditions
    ) -> Mapping[int, ex.Expr]:
        self.asked += 1
        request = Request(self.program.rank, self.reader, array, indices, extents, conditions)
        return self.ask(request, self.asked)

    def _read(self, expr: prim.Subscript, extents: Extents, conditions: Conditions) -> ex.Expr:
        while expr.aggregate.name in self.moves and self._is_open(expr, extents):
            expr = through(self.program, expr)
        indices = dict(enumerate(expr.index_tuple))
        inner = {axis: index for axis, index in indices.items() if not ex.is_leaf(index)}
        decided = {axis: index for axis, index in inner.items() if self.known.decides(index, extents)}
        # What only a run decides may read tables in turn
        indices |= {a: self._expr(i, extents, conditions) for a, i in inner.items() if a not in decided}
        if decided:
            indices |= self._answer(expr.aggregate.name, decided, extents, conditions)
        return prim.Subscript(expr.aggregate, tuple(indices.values()))

    def _is_open(self, expr: prim.Subscript, extents: Extents) -> bool:
        """Whether one may read through a move: an index that only a run decides enters no arithmetic."""
        node = self.program.arrays[expr.aggregate.name]
        assert isinstance(node, ir.Lambda)
        plain = all(ex.is_leaf(index) for index in node.expr.index_tuple)
        return plain or all(self.known.decides(index, extents) for index in expr.index_tuple)

    def _chosen(self, expr: prim.If, extents: Extents, conditions: Conditions) -> ex.Expr:
        """A choice; a constant mask tells its branches which elements are used."""
        if self.known.decides(expr.condition, extents):
            condition = self._answer(None, {0: expr.condition}, extents, conditions)[0]
        else:
            condition = self._expr(expr.condition, extents, conditions)
        then = self._expr(expr.then, extents, (*conditions, (expr.condition, True)))
        else_ = self._expr(expr.else_, extents, (*conditions, (expr.condition, False)))
        if isinstance(condition, bool) and self.known.dtype(expr.then) == self.known.dtype(expr.else_):
            return then if condition else else_
        return prim.If(condition, then, else_)
