"""The canonical form of an index table: the simplest of arithmetic, a table over fewer axes, and a table of rows.

A table gives an index for every element of a box of axes. Where `care` is false any index will do. All ranks of a
class take the same form; constants, tables and their extents may differ from rank to rank.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import expr as ex

Array = np.ndarray[Any, Any]

CODES = 256  # rows that a byte can number
LEAST = 4096  # bytes of a table that are worth a table of rows
LONGEST_ROW = 1 << 12
SAMPLE = 4  # indices along each other axis that show most often that there are no runs
FIRST_ROWS = 2048  # rows that show most often that there are too many
DTYPES = ("uint8", "uint16", "int32", "int64")


@dataclass(frozen=True)
class Tables:
    """A table on each rank: `values[r]` has an axis for each of `places`, the indices that it is read at."""

    values: tuple[Array, ...]
    care: tuple[Array | None, ...]  # None: every element
    places: tuple[ex.Expr, ...]

    @property
    def nbytes(self) -> int:
        return sum(array.size for array in self.values) * self.dtype.itemsize

    @property
    def dtype(self) -> np.dtype[Any]:
        top = max((int(array.max()) for array in self.values if array.size), default=0)
        return next(dtype for dtype in map(np.dtype, DTYPES) if top <= np.iinfo(dtype).max)


@dataclass(frozen=True)
class Affine:
    """On rank r, `constants[r]` plus the sum of `factors[r][n] * places[n]`."""

    constants: tuple[int, ...]
    factors: tuple[tuple[int, ...], ...]
    places: tuple[ex.Expr, ...]
    nbytes: int = 0

    def exprs(self) -> tuple[ex.Expr, ...]:
        found = []
        for constant, factors in zip(self.constants, self.factors, strict=True):
            each = zip(factors, self.places, strict=True)
            terms = [place if n == 1 else prim.Product((n, place)) for n, place in each if n]
            terms += [constant] if constant or not terms else []
            found.append(terms[0] if len(terms) == 1 else prim.Sum(tuple(terms)))
        return tuple(found)


@dataclass(frozen=True)
class Rows:
    """Row number `code` of `rows`, whose last place is the index in the row: two tables."""

    code: Tables
    rows: Tables

    @property
    def nbytes(self) -> int:
        return self.code.nbytes + self.rows.nbytes


Form = Affine | Tables | Rows


def canonical(tables: Tables) -> Form:
    """The form with the fewest bytes, and the simplest of those. No rank's table is empty, all its indices are >= 0."""
    found = simplest(tables)
    if isinstance(found, Affine):
        return found
    best: Form = found
    for axis in _row_axes(found) if found.nbytes >= LEAST else ():
        for run in _divisors([array.shape[axis] for array in found.values]):
            # Longer rows come first; a byte for each is the least that rows take
            if 1 < run <= LONGEST_ROW and sum(array.size for array in found.values) // run < best.nbytes:
                rows = _rows(found, axis, run)
                best = rows if rows is not None and rows.nbytes < best.nbytes else best
    return best


def simplest(tables: Tables) -> Affine | Tables:
    """As arithmetic, or as a table of one entry for each run."""
    # Runs of what is not cared for may hide that it is the own index
    line = affine(tables) if any(care is not None for care in tables.care) else None
    found = compressed(tables)
    return line or affine(found) or found


def _row_axes(tables: Tables) -> list[int]:
    """Axes along which there may be rows: of nodes, not of elements."""
    extents = [max(array.shape[axis] for array in tables.values) for axis in range(len(tables.places))]
    return [axis for axis, extent in enumerate(extents) if len(extents) > 1 and axis != extents.index(max(extents))]


def compressed(tables: Tables) -> Tables:
    """With one entry for each run along an axis, and without axes on which nothing depends."""
    for axis in range(len(tables.places)):
        run = _run(tables, axis)
        if run != 1:
            tables = _one_a_run(tables, axis, run)
    gone = [axis for axis in range(len(tables.places)) if all(array.shape[axis] == 1 for array in tables.values)]
    values = tuple(array.reshape(_without(array.shape, gone)) for array in tables.values)
    care = tuple(c if c is None else c.reshape(_without(c.shape, gone)) for c in tables.care)
    return Tables(values, care, _without(tables.places, gone))


def _without(items: tuple[Any, ...], gone: Sequence[int]) -> tuple[Any, ...]:
    return tuple(item for place, item in enumerate(items) if place not in gone)


def _divisors(extents: Sequence[int]) -> list[int]:
    """Of all extents, largest first."""
    common = math.gcd(*extents)
    return [common // n for n in range(1, common + 1) if common % n == 0]


def _one_a_run(tables: Tables, axis: int, run: int) -> Tables:
    values: list[Array] = []
    care: list[Array | None] = []
    for array, mask in zip(tables.values, tables.care, strict=True):
        length = run or array.shape[axis]
        blocks = _blocks(array, axis, length)
        if mask is None:
            values.append(blocks[..., 0])
            care.append(None)
        else:
            cared = _blocks(mask, axis, length)
            values.append(np.take_along_axis(blocks, cared.argmax(-1)[..., None], -1)[..., 0])
            care.append(np.asarray(cared.any(-1)))
    place = prim.FloorDiv(tables.places[axis], run or 1)
    return Tables(tuple(values), tuple(care), (*tables.places[:axis], place, *tables.places[axis + 1 :]))


def _blocks(array: Array, axis: int, run: int) -> Array:
    """`array` with `axis` cut into runs, which become a last axis."""
    shape = (*array.shape[:axis], array.shape[axis] // run, run, *array.shape[axis + 1 :])
    return np.moveaxis(array.reshape(shape), axis + 1, -1)


def _run(tables: Tables, axis: int) -> int:
    """The longest run along `axis` that every rank's table has; 0 if none depends on it."""
    extents = [array.shape[axis] for array in tables.values]
    each = list(zip(tables.values, tables.care, strict=True))
    if all(_has_run(*one, axis, extent) for one, extent in zip(each, extents, strict=True)):
        return 0
    return next((run for run in _divisors(extents) if all(_has_run(*one, axis, run) for one in each)), 1)


def _has_run(array: Array, care: Array | None, axis: int, run: int) -> bool:
    """Whether all entries of a run that are cared for are equal, for runs of that length along `axis`."""
    if run == 1:
        return True
    few = tuple(slice(max(run, LEAST // run * run) if a == axis else SAMPLE) for a in range(array.ndim))
    parts = [(array[few], None if care is None else care[few]), (array, care)]
    return all(_constant(_blocks(v, axis, run), None if c is None else _blocks(c, axis, run)) for v, c in parts)


def _constant(blocks: Array, care: Array | None) -> bool:
    if care is None:
        return bool((blocks[..., 1:] == blocks[..., :1]).all())
    first = np.take_along_axis(blocks, care.argmax(-1)[..., None], -1)
    return bool(((blocks == first) | ~care).all())


def affine(tables: Tables) -> Affine | None:
    """The table as arithmetic on its places, if it is on every rank, with the same operations."""
    found = [_line(*each) for each in zip(tables.values, tables.care, strict=True)]
    lines = [line for line in found if line is not None]
    shapes = {tuple((number == 0, place > 0 and number == 1) for place, number in enumerate(line)) for line in lines}
    if len(lines) < len(found) or len(shapes) > 1:
        return None
    return Affine(tuple(line[0] for line in lines), tuple(line[1:] for line in lines), tables.places)


def _line(array: Array, care: Array | None) -> tuple[int, ...] | None:
    """The constant and the factor of each axis."""
    ndim = array.ndim
    guesses: list[tuple[int, ...]] = []
    if care is None:
        first = int(array[(0,) * ndim])
        ahead = [tuple(int(a == axis) for a in range(ndim)) for axis in range(ndim)]
        slopes = (int(array[at]) - first if n > 1 else 0 for at, n in zip(ahead, array.shape, strict=True))
        guesses.append((first, *slopes))
    else:
        guesses += [(0, *(int(a == axis) for a in range(ndim))) for axis in range(ndim)]
        guesses.append((int(array.flat[int(care.argmax())]), *(0,) * ndim))
    return next((guess for guess in guesses if _is_line(array, care, guess)), None)


def _is_line(array: Array, care: Array | None, guess: tuple[int, ...]) -> bool:
    if not array.ndim:
        return int(array) == guess[0]
    step = max(1, (1 << 22) // max(1, array[0].size))
    for start in (0, *range(1, len(array), step)):
        part = array[start : start + (step if start else 1)]
        line: Any = guess[0]
        for axis, (slope, extent) in enumerate(zip(guess[1:], part.shape, strict=True)):
            along = np.arange(extent) + (start if axis == 0 else 0)
            line = line + slope * along.reshape([-1 if a == axis else 1 for a in range(array.ndim)])
        equal = part == line
        if not (equal if care is None else equal | ~care[start : start + len(part)]).all():
            return False
    return True


def _rows(tables: Tables, axis: int, run: int) -> Form | None:
    """Rows of `run` entries along `axis`, if they are few on every rank."""
    blocks = [_blocks(array, axis, run) for array in tables.values]
    care = [None if mask is None else _blocks(mask, axis, run) for mask in tables.care]
    coded = [_coded(*each) for each in zip(blocks, care, strict=True)]
    found = [one for one in coded if one is not None]
    if len(found) < len(coded):
        return None
    place = tables.places[axis]
    within = prim.Remainder(place, run) if any(array.shape[axis] > run for array in tables.values) else place
    rows = tuple(one[1] for one in found)
    if all(len(array) == 1 for array in rows):
        return canonical(Tables(tuple(array[0] for array in rows), (None,) * len(rows), (within,)))
    places = (*tables.places[:axis], prim.FloorDiv(place, run), *tables.places[axis + 1 :])
    code = compressed(Tables(tuple(one[0] for one in found), (None,) * len(found), places))
    return Rows(code, Tables(rows, (None,) * len(rows), (within,)))


def _coded(blocks: Array, care: Array | None) -> tuple[Array, Array] | None:
    """The number of each row, which is the last axis, and the rows in ascending order; None if they are too many."""
    flat = np.ascontiguousarray(blocks).reshape(-1, blocks.shape[-1])
    few = np.unique(_keys(flat[:: max(1, len(flat) // FIRST_ROWS)]))
    if len(few) > CODES:
        return None
    keys = _keys(flat)
    if care is not None:
        wanted = np.asarray(care.reshape(flat.shape).any(1))
        # A row that nobody reads stands for none
        keys = np.where(wanted, keys, keys[wanted.argmax()])
        flat = np.where(wanted[:, None], flat, flat[wanted.argmax()])
    # Most often the first ones are all
    missing = few[np.searchsorted(few, keys).clip(max=len(few) - 1)] != keys
    few = np.unique(np.concatenate([few, keys[missing]]))
    if len(few) > CODES:
        return None
    code = np.searchsorted(few, keys)
    first = np.empty(len(few), np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    used = np.flatnonzero(np.bincount(code, minlength=len(few)))
    rows = flat[first[used]]
    order = np.lexsort(rows.T[::-1])
    number = np.zeros(len(few), np.uint8)
    number[used[order]] = np.arange(len(used))
    rows, numbers = rows[order], number[code]
    equal = rows[numbers] == flat
    if not (equal if care is None else equal | ~care.reshape(flat.shape)).all():
        return None  # two rows of one key
    return numbers.reshape(blocks.shape[:-1]), rows


def _keys(rows: Array) -> Array:
    """A number for each row, the same for equal rows and most likely another for others."""
    weights = np.random.default_rng(0).integers(1 << 62, size=rows.shape[1])
    keys = np.zeros(len(rows), np.uint64)
    for column, weight in zip(rows.T, weights, strict=True):
        keys += column.astype(np.uint64) * np.uint64(2 * int(weight) + 1)
    return keys
