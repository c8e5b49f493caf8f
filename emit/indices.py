"""Canonical indices of one read, on all ranks that have it together.

Candidates are every index evaluated as a whole, the tables inside divisions and remainders evaluated, and the indices
as they are; what reads the fewest bytes of tables is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import integers
from aotato.emit.index_arithmetic import simplified
from aotato.emit.index_forms import Affine, Form, Rows, Tables, canonical, compressed
from aotato.emit.known import LARGEST, Array, Extents, Known
from aotato.emit.moves import same
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.constants import digest
from aotato.frontend.text_expr import expr_text

Exprs = tuple[ex.Expr, ...]  # one for each request of a group, all of one structure
FLAT = (1 << 31) - 1  # what an index inside a division stays below


@dataclass(frozen=True)
class Request:
    """Indices at which `reader` of a rank reads, or a condition: what constants decide of it."""

    rank: int
    reader: str
    array: str | None  # None: a condition
    indices: Mapping[int, ex.Expr]  # by axis; a condition's only axis is 0
    extents: Extents  # of index variables, outermost first
    conditions: tuple[tuple[ex.Expr, bool], ...]  # that let the read be evaluated
    sent: bool = False  # a message to one of several peers, that may become one for all, of concatenated tables


Group = Sequence[Request]  # of one label


class Indices:
    """Writes indices for `programs`, to which it adds the tables: to `arrays` and `constants` of a rank."""

    def __init__(self, programs: Sequence[ir.Program]) -> None:
        self.programs = programs
        self.known = [Known(program) for program in programs]
        self.arrays: list[dict[str, ir.Node]] = [{} for _ in programs]
        self.constants: list[dict[str, Array]] = [{} for _ in programs]
        self.forms: dict[object, Form | None] = {}
        self.cared: dict[object, Array | None] = {}
        self.names: dict[object, list[str]] = {}  # of tables
        self.texts: dict[object, Exprs] = {}  # what was written for a form on some ranks, by the form's identity

    def answers(self, group: Group) -> list[Mapping[int, ex.Expr]]:
        """For each request what to read at, by axis, or the condition: a bool where it has only one value."""
        # Several readers of one table
        keys = [self._key(request) for request in group]
        distinct = dict(zip(keys, group, strict=True))
        found = dict(zip(distinct, self._answers(list(distinct.values())), strict=True))
        return [found[key] for key in keys]

    def _key(self, request: Request) -> object:
        """What the answer depends on."""
        texts = tuple((axis, expr_text(index)) for axis, index in request.indices.items())
        limits = request.array and tuple(self._extents(axis, (request,)) for axis in request.indices)
        return request.rank, limits, texts, _text(request, list(request.extents))

    def _answers(self, group: Group) -> list[Mapping[int, ex.Expr]]:
        first = group[0]
        fits = all(r.indices.keys() == first.indices.keys() and len(r.conditions) == len(first.conditions)
                   for r in group)
        old = {axis: tuple(request.indices[axis] for request in group) for axis in first.indices} if fits else {}
        if not fits or not all(map(same, old.values())):
            return [request.indices for request in group]
        new = {0: self._condition(old[0], group)} if first.array is None else self._read(old, group)
        return [{axis: exprs[number] for axis, exprs in new.items()} for number in range(len(group))]

    def _read(self, indices: Mapping[int, Exprs], group: Group) -> dict[int, Exprs]:
        found = {axis: self._simplified(index, group) for axis, index in indices.items()}
        chosen = {axis: index for axis, index in found.items() if _tables(index[0])}
        if not chosen:
            return found
        if any(request.sent for request in group):
            return found | self._sent(chosen, group)
        whole = {axis: self._form(index, self._extents(axis, group), group) for axis, index in chosen.items()}
        before = self._nbytes(chosen.values(), group)
        inner = {axis: _inner(index) for axis, index in chosen.items()}
        parts: dict[int, Form | None] = dict.fromkeys(chosen)
        if _cost(whole.values()) > before // 2:
            parts = {axis: self._form(index, (FLAT,) * len(group), group) for axis, (index, _) in inner.items()}
        costs = _cost(whole.values()), _cost(parts.values(), 4)
        best = min(*costs, before)
        if best == before and all(_is_bare(index[0]) for index in chosen.values()):
            return found
        for axis, (_, outside) in inner.items():
            form, part = whole[axis], parts[axis]
            if form is not None and best == costs[0]:
                found[axis] = self._written(form, group)
            elif part is not None and best == costs[1]:
                # Arithmetic on narrow numbers is narrow
                found[axis] = outside(self._written(part, group, 4))
        return found

    def _sent(self, indices: Mapping[int, Exprs], group: Group) -> dict[int, Exprs]:
        """Where chains of tables are long: one with an entry for each element, which may be one for all peers."""
        tables = {a: self._values(i, _axes(i[0], group[0]), self._extents(a, group), group) for a, i in indices.items()}
        if _cost(tables.values()) > self._nbytes(indices.values(), group) // 2:
            return {}
        return {axis: self._written(one, group) for axis, one in tables.items() if one is not None}

    def _condition(self, exprs: Exprs, group: Group) -> Exprs:
        """A condition that constants decide, as a table over few axes, or its value where it has only one."""
        axes = _axes(exprs[0], group[0])
        if not _tables(exprs[0]) or any(request.sent for request in group):
            return exprs
        found = self._evaluated(exprs, axes, ((0, 1),) * len(exprs), group, False)
        if found is None:
            return exprs
        for value in (True, False):
            if all(bool((array == value).all()) for array in found):
                return (value,) * len(exprs)
        masks = compressed(Tables(found, (None,) * len(found), tuple(map(prim.Variable, axes))))
        before = self._nbytes([exprs], group)
        if masks.nbytes > before or (masks.nbytes == before and _is_bare(exprs[0])):
            return exprs
        names = self._constants([array.astype(bool) for array in masks.values], group)
        return tuple(prim.Subscript(prim.Variable(name), masks.places) for name in names)

    def _simplified(self, index: Exprs, group: Group) -> Exprs:
        found = []
        for expr, request in zip(index, group, strict=True):
            ranges = {name: (lo, hi - 1) for name, (lo, hi) in request.extents.items()}
            known = self.known[request.rank]
            found.append(simplified(known.narrowed(expr), ranges, known.range))
        return tuple(found) if same(found) else index

    def _form(self, index: Exprs, limits: tuple[int, ...], group: Group) -> Form | None:
        """The canonical form of an index below `limits`; None where there is none."""
        axes = _axes(index[0], group[0])
        key = tuple((r.rank, expr_text(e), n, _text(r, axes)) for r, e, n in zip(group, index, limits, strict=True))
        if key not in self.forms:
            self.forms[key] = self._canonical(index, axes, limits, group)
        return self.forms[key]

    def _canonical(self, index: Exprs, axes: Sequence[str], limits: tuple[int, ...], group: Group) -> Form | None:
        values = self._values(index, axes, limits, group)
        return None if values is None else canonical(values)

    def _values(self, index: Exprs, axes: Sequence[str], limits: tuple[int, ...], group: Group) -> Tables | None:
        """The index for all of `axes`; 0 where nobody cares."""
        care = [self._care(axes, request) for request in group]
        wild = any(mask is not None for mask in care)
        values = self._evaluated(index, axes, tuple((-1, limit) for limit in limits), group, wild)
        if values is None:
            return None
        each = zip(care, values, strict=True)
        values = tuple(array if mask is None else np.where(mask, array, 0) for mask, array in each)
        if any(array.min() < 0 or array.max() >= limit for array, limit in zip(values, limits, strict=True)):
            return None
        return Tables(values, tuple(care), tuple(map(prim.Variable, axes)))

    def _evaluated(
        self, exprs: Exprs, axes: Sequence[str], limits: tuple[tuple[int, int], ...], group: Group, clip: bool
    ) -> tuple[Array, ...] | None:
        """`exprs` over `axes` for each request; None if they are too large, empty, or read outside a table."""
        boxes = [[request.extents[axis] for axis in axes] for request in group]
        sizes = [math.prod(hi - lo for lo, hi in box) for box in boxes]
        if any(lo for box in boxes for lo, _ in box) or max(sizes) > LARGEST or min(sizes) < 1:
            return None
        each = zip(exprs, limits, group, strict=True)
        try:
            return tuple(self.known[r.rank].over(expr, axes, r.extents, limit, clip) for expr, limit, r in each)
        except IndexError:
            return None

    def _care(self, axes: Sequence[str], request: Request) -> Array | None:
        """Which indices are read at; None: all of them."""
        found: Array | None = None
        for condition, wanted in request.conditions:
            mask = self._mask(condition, wanted, axes, request)
            if mask is not None and not mask.all():
                found = mask if found is None else found & mask
        return None if found is None else np.broadcast_to(found, tuple(request.extents[axis][1] for axis in axes))

    def _mask(self, condition: ex.Expr, wanted: bool, axes: Sequence[str], request: Request) -> Array | None:
        """Where the condition is as wanted for any value of indices other than `axes`; it broadcasts over them."""
        if not self.known[request.rank].decides(condition, request.extents):
            return None
        mine = _axes(condition, request)
        key = (request.rank, expr_text(condition), wanted, tuple(axes), tuple(request.extents[axis] for axis in mine))
        if key not in self.cared:
            values = self._evaluated((condition,), mine, ((0, 1),), (request,), True)
            self.cared[key] = None if values is None else _projected(values[0] == wanted, mine, axes)
        return self.cared[key]

    def _extents(self, axis: int, group: Group) -> tuple[int, ...]:
        return tuple(self.programs[request.rank].arrays[request.array or ""].shape[axis] for request in group)

    def _nbytes(self, indices: Iterable[Exprs], group: Group) -> int:
        """Of the tables that are read."""
        each = [(request.rank, expr) for index in indices for request, expr in zip(group, index, strict=True)]
        parts = [(rank, part) for rank, expr in each for part in ex.walk(expr) if isinstance(part, prim.Subscript)]
        names = {(rank, part.aggregate.name) for rank, part in parts}
        return sum(ir.nbytes(self.programs[rank].arrays[name]) for rank, name in names)

    def _written(self, form: Form, group: Group, least: int = 1) -> Exprs:
        """The form with tables of at least so many bytes an entry."""
        key = id(form), least, tuple(map(self._key, group))
        if key not in self.texts:
            self.texts[key] = self._text(form, group, least)
        return self.texts[key]

    def _text(self, form: Form, group: Group, least: int) -> Exprs:
        if isinstance(form, Affine):
            return form.exprs()
        codes: Exprs = ((),) * len(group)
        rows = form if isinstance(form, Tables) else form.rows
        if isinstance(form, Rows):
            codes = tuple((code,) for code in self._written(form.code, group))
        dtype = rows.dtype if rows.dtype.itemsize >= least else np.dtype("int32")
        names = self._constants([array.astype(dtype) for array in rows.values], group)
        each = zip(names, codes, strict=True)
        return tuple(prim.Subscript(prim.Variable(name), (*code, *rows.places)) for name, code in each)

    def _constants(self, data: Sequence[Array], group: Group) -> list[str]:
        """The names of constants, added where there are none that are equal on all ranks."""
        arrays = [np.asarray(array, order="C") for array in data]
        key = tuple((request.rank, digest(array)) for request, array in zip(group, arrays, strict=True))
        old = [self._old(request, content) for request, (_, content) in zip(group, key, strict=True)]
        if all(old):
            return [name for name in old if name]
        if key not in self.names:
            self.names[key] = [self._constant(*each) for each in zip(arrays, group, key, strict=True)]
        return self.names[key]

    def _old(self, request: Request, content: str) -> str | None:
        """A table of that content among those that are read."""
        arrays = self.programs[request.rank].arrays
        parts = (part for index in request.indices.values() for part in ex.walk(index))
        names = (part.aggregate.name for part in parts if isinstance(part, prim.Subscript))
        tables = ((name, arrays[name]) for name in names)
        return next((name for name, node in tables if isinstance(node, ir.Const) and node.digest == content), None)

    def _constant(self, array: Array, request: Request, key: tuple[int, str]) -> str:
        rank, content = key
        arrays, before = self.arrays[rank], self.programs[rank].arrays
        names = (f"{request.reader}_t{number}" for number in range(len(arrays) + len(before) + 1))
        name = next(name for name in names if name not in arrays and name not in before)
        self.constants[rank][content] = array
        arrays[name] = ir.Const(content, array.shape, array.dtype)
        return name


def _tables(expr: ex.Expr) -> bool:
    return any(isinstance(part, prim.Subscript) for part in ex.walk(expr))


def _axes(expr: ex.Expr, request: Request) -> list[str]:
    """Index variables of `expr`, outermost first."""
    used = set(integers.variables(expr))
    return [name for name in request.extents if name in used]


def _text(request: Request, axes: Sequence[str]) -> object:
    """What values over `axes` depend on beside the expression."""
    box = tuple(request.extents[axis] for axis in axes)
    return box, tuple((expr_text(condition), wanted) for condition, wanted in request.conditions)


def _inner(index: Exprs) -> tuple[Exprs, Callable[[Exprs], Exprs]]:
    """The table inside a division or remainder by a number, and what to do with one in its place."""
    kind = type(index[0])
    if kind not in (prim.FloorDiv, prim.Remainder) or any(type(expr.denominator) is not int for expr in index):
        return index, lambda table: table
    return (
        tuple(expr.numerator for expr in index),
        lambda table: tuple(kind(t, expr.denominator) for t, expr in zip(table, index, strict=True)),
    )


def _cost(forms: Iterable[Form | None], least: int = 1) -> float:
    """Bytes of all tables, each once, with at least so many an entry."""
    distinct = {id(form): form for form in forms}
    return sum(math.inf if form is None else _bytes(form, least) for form in distinct.values())


def _bytes(form: Form, least: int) -> int:
    if isinstance(form, Affine):
        return 0
    rows = form if isinstance(form, Tables) else form.rows
    wide = sum(array.size for array in rows.values) * max(least, rows.dtype.itemsize)
    return wide if isinstance(form, Tables) else form.code.nbytes + wide


def _is_bare(index: ex.Expr) -> bool:
    """Whether it is nothing but a read of a table at variables."""
    return isinstance(index, prim.Subscript) and all(isinstance(i, prim.Variable) for i in index.index_tuple)


def _projected(mask: Array, mine: Sequence[str], axes: Sequence[str]) -> Array:
    """Whether `mask`, over the axes `mine`, is true anywhere, for each index of those in `axes`."""
    gone = tuple(place for place, axis in enumerate(mine) if axis not in axes)
    kept = [axis for axis in mine if axis in axes]
    found = np.asarray(mask.any(axis=gone)).transpose([kept.index(axis) for axis in axes if axis in kept])
    extents = iter(found.shape)
    return found.reshape([next(extents) if axis in kept else 1 for axis in axes])
