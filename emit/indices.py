"""Canonical indices of one read, on all ranks of a class together.

Candidates are every index evaluated as a whole, the tables inside divisions and remainders evaluated, and the indices
as they are; what reads the fewest bytes of tables is taken.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import integers
from aotato.emit.classes import alike
from aotato.emit.index_arithmetic import simplified
from aotato.emit.index_forms import Affine, Form, Tables, canonical, compressed
from aotato.emit.known import LARGEST, Array, Extents, Known
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.constants import digest
from aotato.frontend.dtypes import INT64
from aotato.frontend.text_expr import expr_text

Exprs = tuple[ex.Expr, ...]  # one on each rank of a class, all of one structure
FLAT = (1 << 31) - 1  # what an index inside a division stays below


@dataclass(frozen=True)
class Place:
    """Where a read stands: the ranges of index variables on each rank, and the conditions that let it be evaluated."""

    reader: str
    extents: tuple[Extents, ...]
    conditions: tuple[tuple[Exprs, bool], ...] = ()


class Indices:
    """Writes indices for the programs of a class, to which it adds the tables; `taken` are names not to give them."""

    def __init__(self, programs: Sequence[ir.Program], arrays: Sequence[dict[str, ir.Node]], taken: set[str]) -> None:
        self.programs, self.arrays, self.taken = programs, arrays, taken
        self.known = [Known(program) for program in programs]
        self.forms: dict[object, Form | None] = {}
        self.cared: dict[object, tuple[Array, ...]] = {}
        self.tables: dict[tuple[str, ...], str] = {}  # names by digests
        self.texts: dict[int, Exprs] = {}  # what was written for a form, by identity
        self.written: set[Exprs] = set()  # canonical indices: what reads through a move may come to one again

    def decides(self, exprs: Exprs, place: Place) -> bool:
        """Whether constants decide an index or condition, and not arithmetic alone."""
        each = zip(self.known, exprs, place.extents, strict=True)
        return _tables(exprs[0]) and all(known.decides(expr, extents) for known, expr, extents in each)

    def of_read(self, array: str, indices: Sequence[Exprs], place: Place) -> list[Exprs]:
        """What to read `array` at, axis by axis."""
        indices = [self._simplified(index, place) for index in indices]
        chosen = [axis for axis, index in enumerate(indices) if self.decides(index, place)]
        done = not place.conditions and all(indices[axis] in self.written for axis in chosen)
        if done or not chosen:
            return list(indices)
        whole = [self._form(indices[axis], self._extents(array, axis), place) for axis in chosen]
        inner = [_inner(indices[axis]) for axis in chosen]
        before = self._nbytes([indices[axis] for axis in chosen])
        parts: list[Form | None] = [None] * len(chosen)
        if _cost(whole) > before // 2:
            parts = [self._form(index, (FLAT,) * len(index), place) for index, _ in inner]
        best = min(_cost(whole), _cost(parts), before)
        if best == before and all(_is_bare(indices[axis][0]) for axis in chosen):
            return list(indices)
        written = dict(enumerate(indices))
        for axis, form, part, (_, outside) in zip(chosen, whole, parts, inner, strict=True):
            if form is not None and best == _cost(whole):
                written[axis] = self._written(form, place.reader)
            elif part is not None and best == _cost(parts):
                written[axis] = outside(self._written(part, place.reader))
        self.written.update(written[axis] for axis in chosen)
        return [written[axis] for axis in range(len(indices))]

    def _extents(self, array: str, axis: int) -> tuple[int, ...]:
        return tuple(program.arrays[array].shape[axis] for program in self.programs)

    def of_condition(self, exprs: Exprs, place: Place) -> Exprs | bool:
        """A condition that constants decide, as a table over few axes, or its value where it has only one."""
        axes = _axes(exprs[0], place)
        found = self._evaluated(exprs, axes, ((0, 1),) * len(exprs), place, False)
        if found is None:
            return exprs
        for value in (True, False):
            if all(bool((array == value).all()) for array in found):
                return value
        masks = compressed(Tables(found, (None,) * len(found), tuple(map(prim.Variable, axes))))
        if masks.nbytes > self._nbytes([exprs]) or (masks.nbytes == self._nbytes([exprs]) and _is_bare(exprs[0])):
            return exprs
        name = self.constant(tuple(array.astype(bool) for array in masks.values), place.reader)
        return (prim.Subscript(prim.Variable(name), masks.places),) * len(exprs)

    def _simplified(self, index: Exprs, place: Place) -> Exprs:
        ranges = [{name: (lo, hi - 1) for name, (lo, hi) in extents.items()} for extents in place.extents]
        each = zip(index, ranges, self.known, strict=True)
        found = tuple(simplified(expr, mine, known.range) for expr, mine, known in each)
        return found if alike(found) else index

    def _form(self, index: Exprs, limits: tuple[int, ...], place: Place) -> Form | None:
        """The canonical form of an index below `limits`; None where there is none."""
        axes = _axes(index[0], place)
        key = (tuple(map(expr_text, index)), limits, _text(place, axes))
        if key not in self.forms:
            self.forms[key] = self._canonical(index, axes, limits, place)
        return self.forms[key]

    def _canonical(self, index: Exprs, axes: Sequence[str], limits: tuple[int, ...], place: Place) -> Form | None:
        care = self._care(axes, place)
        values = self._evaluated(index, axes, tuple((-1, limit) for limit in limits), place, care is not None)
        if values is None:
            return None
        if care is not None:
            values = tuple(np.where(mask, array, 0) for mask, array in zip(care, values, strict=True))
        if any(array.min() < 0 or array.max() >= limit for array, limit in zip(values, limits, strict=True)):
            return None
        return canonical(Tables(values, care or (None,) * len(values), tuple(map(prim.Variable, axes))))

    def _evaluated(
        self, exprs: Exprs, axes: Sequence[str], limits: tuple[tuple[int, int], ...], place: Place, clip: bool
    ) -> tuple[Array, ...] | None:
        """`exprs` over `axes` on each rank; None if they are too large, empty, or read outside a table."""
        boxes = [[extents[axis] for axis in axes] for extents in place.extents]
        sizes = [int(np.prod([hi - lo for lo, hi in box], dtype=np.int64)) for box in boxes]
        if any(lo for box in boxes for lo, _ in box) or max(sizes) > LARGEST or not all(sizes):
            return None
        each = zip(self.known, exprs, place.extents, limits, strict=True)
        try:
            return tuple(known.over(expr, axes, extents, limit, clip) for known, expr, extents, limit in each)
        except IndexError:
            return None

    def _care(self, axes: Sequence[str], place: Place) -> tuple[Array, ...] | None:
        """Which indices are read at; None: all of them."""
        found: tuple[Array, ...] | None = None
        for condition, wanted in place.conditions:
            masks = self._mask(condition, wanted, axes, place)
            if masks is not None and not all(mask.all() for mask in masks):
                found = masks if found is None else tuple(a & b for a, b in zip(found, masks, strict=True))
        if found is None:
            return None
        shapes = [tuple(extents[axis][1] for axis in axes) for extents in place.extents]
        return tuple(np.broadcast_to(mask, shape) for mask, shape in zip(found, shapes, strict=True))

    def _mask(
        self, condition: Exprs, wanted: bool, axes: Sequence[str], place: Place
    ) -> tuple[Array, ...] | None:
        """Where the condition is as wanted for any value of indices other than `axes`; it broadcasts over them."""
        each = zip(self.known, condition, place.extents, strict=True)
        if not all(known.decides(expr, extents) for known, expr, extents in each):
            return None
        mine = _axes(condition[0], place)
        key = (tuple(map(expr_text, condition)), wanted, tuple(axes), _text(place, mine))
        if key not in self.cared:
            values = self._evaluated(condition, mine, ((0, 1),) * len(condition), place, True)
            if values is None:
                return None
            self.cared[key] = tuple(_projected(array == wanted, mine, axes) for array in values)
        return self.cared[key]

    def _nbytes(self, indices: Sequence[Exprs]) -> int:
        """Of the tables that are read."""
        parts = (part for index in indices for part in ex.walk(index[0]) if isinstance(part, prim.Subscript))
        names = {part.aggregate.name for part in parts}
        return sum(ir.nbytes(program.arrays[name]) for program in self.programs for name in names)

    def _written(self, form: Form, reader: str) -> Exprs:
        if id(form) not in self.texts:
            self.texts[id(form)] = self._text(form, reader)
        return self.texts[id(form)]

    def _text(self, form: Form, reader: str) -> Exprs:
        if isinstance(form, Affine):
            return _arithmetic(form)
        rows, number = (form, ()) if isinstance(form, Tables) else (form.rows, self._written(form.code, reader)[:1])
        name = self.constant(tuple(array.astype(rows.dtype) for array in rows.values), reader)
        return (prim.Subscript(prim.Variable(name), (*number, *rows.places)),) * len(rows.values)

    def constant(self, data: tuple[Array, ...], reader: str) -> str:
        """The name of a constant that is `data[r]` on rank r, added where it is new."""
        data = tuple(np.asarray(array, order="C") for array in data)
        key = tuple(map(digest, data))
        if key not in self.tables:
            numbers = range(len(self.taken) + 1)
            name = next(name for number in numbers if (name := f"{reader}_t{number}") not in self.taken)
            self.tables[key] = name
            self.taken.add(name)
            for program, arrays, array, one in zip(self.programs, self.arrays, data, key, strict=True):
                program.constants[one] = array  # type: ignore[index]
                arrays[name] = ir.Const(one, array.shape, array.dtype)
        return self.tables[key]


def _tables(expr: ex.Expr) -> bool:
    return any(isinstance(part, prim.Subscript) for part in ex.walk(expr))


def _axes(expr: ex.Expr, place: Place) -> list[str]:
    """Index variables of `expr`, outermost first."""
    used = set(integers.variables(expr))
    return [name for name in place.extents[0] if name in used]


def _text(place: Place, axes: Sequence[str]) -> object:
    """What the values over `axes` depend on beside the expression."""
    boxes = tuple(tuple(extents[axis] for axis in axes) for extents in place.extents)
    return boxes, tuple((tuple(map(expr_text, condition)), wanted) for condition, wanted in place.conditions)


def _inner(index: Exprs) -> tuple[Exprs, Callable[[Exprs], Exprs]]:
    """The table inside a division or remainder by a number, and what to do with one in its place."""
    kind = type(index[0])
    if kind not in (prim.FloorDiv, prim.Remainder) or any(type(expr.denominator) is not int for expr in index):
        return index, lambda table: table
    return (
        tuple(expr.numerator for expr in index),
        # Wide, as the number may not fit a narrow table's type
        lambda table: tuple(kind(ex.Cast(INT64, t), expr.denominator) for t, expr in zip(table, index, strict=True)),
    )


def _cost(forms: Sequence[Form | None]) -> float:
    """Bytes of all tables, each once."""
    distinct = {id(form): form for form in forms}
    return sum(math.inf if form is None else form.nbytes for form in distinct.values())


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


def _arithmetic(form: Affine) -> Exprs:
    found = []
    for constant, factors in zip(form.constants, form.factors, strict=True):
        each = zip(factors, form.places, strict=True)
        terms = [place if n == 1 else prim.Product((n, place)) for n, place in each if n]
        terms += [constant] if constant or not terms else []
        found.append(terms[0] if len(terms) == 1 else prim.Sum(tuple(terms)))
    return tuple(found)
