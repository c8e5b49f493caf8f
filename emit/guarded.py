"""Sums of `where(mask, x, 0)` over disjoint constant masks become one term where their x are computed alike.

Fluxes of interior faces, of neighbours and of boundaries, each computed for its own faces and added up over all, are
then computed once for every face, of operands that follow the masks: one array at an overlaid index, overlaid
constants, or a choice of two arrays. At most one term of an element is not zero, so only the sign of a zero can change.
Sums of one label are merged alike on all ranks, or not at all.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import integers
from aotato.emit.known import LARGEST, Known
from aotato.emit.labels import Label, labels
from aotato.emit.moves import named, numbered, through
from aotato.emit.overlaid import Exprs, Made, Overlay, Reader
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.text_expr import expr_text


@dataclass(frozen=True)
class _Term:
    """`where(condition, body, zero)`, or `body` alone, on each rank."""

    body: Exprs
    condition: Exprs | None = None
    zero: Exprs = ()

    @property
    def exprs(self) -> Exprs:
        return self.body if self.condition is None else tuple(map(prim.If, self.condition, self.body, self.zero))


class _Rank:
    """A program to which merged arrays are added, shared between the sums that need them."""

    def __init__(self, program: ir.Program) -> None:
        self.old = program
        self.arrays, self.constants = dict(program.arrays), dict(program.constants)
        self.program = dataclasses.replace(program, arrays=self.arrays, constants=self.constants)
        self.known = Known(self.program)
        self.hidden: dict[str, bool] = {}
        self.bodies: dict[str, ex.Expr | None] = {}

    def sums(self) -> list[str]:
        """Sums with guarded terms."""
        lambdas = self.old.of_type(ir.Lambda)
        return [name for name, node in lambdas if isinstance(node.expr, prim.Sum) and self._has_terms(name)]

    def _has_terms(self, name: str) -> bool:
        if name not in self.hidden:
            node = self.old.arrays[name]
            self.hidden[name] = isinstance(node, ir.Lambda) and self._is_guarded(named(node.expr, node.operands))
        return self.hidden[name]

    def _is_guarded(self, expr: ex.Expr) -> bool:
        match expr:
            case prim.Sum():
                return any(map(self._is_guarded, expr.children))
            case prim.If():
                return _is_zero(expr.else_)
            case prim.Subscript():
                return self._has_terms(expr.aggregate.name)
        return False

    def below(self, expr: ex.Expr) -> dict[str, ir.Node]:
        """New arrays that `expr` needs."""
        needed = {part.aggregate.name for part in ex.walk(expr) if isinstance(part, prim.Subscript)}
        new = [name for name in self.arrays if name not in self.old.arrays]
        for name in reversed(new):
            if name in needed:
                needed |= set(ir.operands(self.arrays[name]))
        return {name: self.arrays[name] for name in new if name in needed}

    def with_sums(self, merged: Mapping[str, ex.Expr]) -> ir.Program:
        """The program with these sums in their new form, which reads by name."""
        arrays: dict[str, ir.Node] = {}
        for name, node in self.old.arrays.items():
            if name in merged and isinstance(node, ir.Lambda):
                arrays |= self.below(merged[name])
                expr, operands = numbered(merged[name])
                node = dataclasses.replace(node, expr=expr, operands=operands)
            arrays[name] = node
        return dataclasses.replace(self.old, arrays=arrays, constants=self.constants)


def guarded(programs: ir.Programs) -> ir.Programs:
    """`programs` with merged terms."""
    key, ranks = labels(programs), list(map(_Rank, programs.ranks))
    groups: dict[Label, list[tuple[int, str]]] = {}
    for number, rank in enumerate(ranks):
        for name in rank.sums():
            groups.setdefault(key[number][name], []).append((number, name))
    made: dict[object, dict[object, Made | None]] = {}  # by ranks, conditions and shapes
    found: list[dict[str, ex.Expr]] = [{} for _ in ranks]
    for label, group in groups.items():
        # What is only sent may become one array for all peers
        merged = _Merge([(ranks[n], name) for n, name in group], made).merged() if label.number is not None else None
        for (number, name), expr in zip(group, merged or (), strict=merged is not None):
            found[number][name] = expr
    new = (rank.with_sums(mine) if mine else rank.old for rank, mine in zip(ranks, found, strict=True))
    return dataclasses.replace(programs, ranks=tuple(new))


class _Merge:
    """Merges the terms of one sum, on all ranks that have it."""

    def __init__(self, group: Sequence[tuple[_Rank, str]], made: dict[object, dict[object, Made | None]]) -> None:
        self.made = made
        self.readers = [
            Reader(rank.known, name, rank.arrays[name].shape, rank.arrays, rank.constants, rank.bodies)
            for rank, name in group
        ]

    def merged(self) -> Exprs | None:
        """The sum with terms merged; None where none can be."""
        if not all(ir.size(reader.shape) for reader in self.readers):
            return None
        lists = []
        for reader in self.readers:
            node = reader.arrays[reader.name]
            assert isinstance(node, ir.Lambda)
            lists.append(_terms(reader, named(node.expr, node.operands), node.dtype))
        if len({tuple(condition is not None for _, condition, _ in terms) for terms in lists}) > 1:
            return None
        terms = [_term(column) for column in zip(*lists, strict=True)]
        written: list[Exprs] = []
        for is_guarded, group in itertools.groupby(terms, lambda term: term.condition is not None):
            run = list(group)
            if is_guarded and len(run) > 1 and all(self._disjoint(run, n) for n in range(len(self.readers))):
                run = self._clusters(run)
            written += [term.exprs for term in run]
        if len(written) == len(terms):
            return None
        return written[0] if len(written) == 1 else tuple(map(prim.Sum, zip(*written, strict=True)))

    def _disjoint(self, terms: Sequence[_Term], rank: int) -> bool:
        """Whether no element has two terms."""
        reader = self.readers[rank]
        conditions = [term.condition[rank] for term in terms if term.condition is not None]
        used = {name for condition in conditions for name in integers.variables(condition)}
        axes = [axis for axis in reader.extents if axis in used]
        shape = tuple(reader.extents[axis][1] for axis in axes)
        if ir.size(shape) > LARGEST:
            return False
        total = np.zeros(shape, np.int32)
        try:
            for condition in conditions:
                total += reader.known.over(condition, axes, reader.extents, (0, 1), False)
        except IndexError:
            return False
        return bool((total <= 1).all())

    def _clusters(self, terms: Sequence[_Term]) -> list[_Term]:
        """Terms that are computed alike as one, in the place of the first."""
        found: list[_Term] = []
        for term in terms:
            for place, other in enumerate(found):
                joined = self._joined(other, term)
                if joined is not None:
                    found[place] = joined
                    break
            else:
                found.append(term)
        return found

    def _joined(self, first: _Term, second: _Term) -> _Term | None:
        assert first.condition is not None and second.condition is not None
        conditions = first.condition, second.condition
        place = [(reader.known.program.rank, reader.shape) for reader in self.readers]
        key = tuple(place), tuple(expr_text(condition) for each in conditions for condition in each)
        made = Overlay(self.readers, conditions, self.made.setdefault(key, {})).of((first.body, second.body))
        if made is None:
            return None
        either = tuple(prim.LogicalOr(both) for both in zip(*conditions, strict=True))
        return _Term(made.exprs, either, first.zero)


_OneTerm = tuple[ex.Expr, ex.Expr | None, ex.Expr]  # body, condition, zero on one rank


def _term(column: Sequence[_OneTerm]) -> _Term:
    """One term on all ranks."""
    body, conditions, zero = zip(*column, strict=True)
    return _Term(body, None if conditions[0] is None else conditions, zero)


def _terms(reader: Reader, expr: ex.Expr, dtype: ir.DType) -> list[_OneTerm]:
    """What `expr` adds up from left to right, through sums of guarded terms that it reads."""
    if isinstance(expr, prim.Sum):
        first, *others = expr.children
        found = _terms(reader, first, dtype)
        for other in others:
            inner = _terms(reader, other, dtype)
            # x + (g + h) is x + g + h where no two of g and h are not zero
            found += inner if all(condition is not None for _, condition, _ in inner) else [(other, None, 0)]
        return found
    if isinstance(expr, prim.If) and _is_zero(expr.else_) and reader.known.decides(expr.condition, reader.extents):
        return [(expr.then, expr.condition, expr.else_)]
    if isinstance(expr, prim.Subscript) and _is_open(reader.arrays[expr.aggregate.name], dtype):
        inner = _terms(reader, through(reader.known.program, expr), dtype)
        if any(condition is not None for _, condition, _ in inner):
            return inner
    return [(expr, None, 0)]


def _is_open(node: ir.Node, dtype: ir.DType) -> bool:
    """Whether it may be a term or a sum of them."""
    if not isinstance(node, ir.Lambda) or node.dtype != dtype:
        return False
    return isinstance(node.expr, prim.Sum | prim.If | prim.Subscript)


def _is_zero(expr: ex.Expr) -> bool:
    return ex.is_leaf(expr) and not isinstance(expr, prim.Variable | bool | np.bool_) and bool(expr == 0)
