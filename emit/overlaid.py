"""Two expressions that count under disjoint constant masks, laid over each other: one that is each in its turn.

What they read is overlaid too: arrays computed alike become one array over the reader's axes, one array is read at an
index that follows the masks, constants become one constant, and other arrays are chosen between. This is done for the
same reader on several ranks at once, and alike.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import integers
from aotato.emit.index_forms import Affine, Tables, compressed, simplest
from aotato.emit.known import LARGEST, Array, Extents, Known
from aotato.emit.moves import at, named, numbered
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.constants import digest
from aotato.frontend.text_expr import expr_text

CHOICE = 1 << 20  # bytes of tables that a choice between two arrays is worth

Exprs = tuple[ex.Expr, ...]  # one on each rank
Pair = tuple[Exprs, Exprs]


@dataclass(frozen=True)
class Made:
    """One expression for two, and what it costs, in bytes of tables and constants that it reads."""

    exprs: Exprs
    cost: int


@dataclass(frozen=True)
class Reader:
    """The array of one rank that is to read; new arrays and constants are added to those that `known` looks into."""

    known: Known
    name: str
    shape: ir.Shape
    arrays: dict[str, ir.Node]
    constants: dict[str, Array]
    bodies: dict[str, ex.Expr | None]  # what `body` found

    def body(self, name: str) -> ex.Expr | None:
        """The expression of an elementwise array, which reads by name; None of any other array."""
        if name not in self.bodies:
            node = self.arrays[name]
            self.bodies[name] = None
            # Whether it is stored is a hint, worth less than computing it once
            if isinstance(node, ir.Lambda) and not ex.has_reduce(node.expr):
                self.bodies[name] = named(node.expr, node.operands)
        return self.bodies[name]

    def element(self, read: prim.Subscript) -> ex.Expr:
        """An element of an elementwise array as its expression."""
        body = self.body(read.aggregate.name)
        assert body is not None
        return at(body, {f"_{axis}": index for axis, index in enumerate(read.index_tuple)})

    @property
    def extents(self) -> Extents:
        return {f"_{axis}": (0, extent) for axis, extent in enumerate(self.shape)}


@dataclass
class Overlay:
    """Lays expressions of `readers` over each other; the first counts where the first of `conditions` is true."""

    readers: Sequence[Reader]
    conditions: Pair
    merged: dict[object, Made | None]  # what was made for these conditions and shapes, by texts

    def of(self, pair: Pair) -> Made | None:
        """One expression for both, or None where they differ in more than what they read and where."""
        every = [expr for exprs in pair for expr in exprs]
        if all(isinstance(expr, prim.Subscript) for expr in every):
            key = _texts(pair)
            if key not in self.merged:
                self.merged[key] = self._reads(pair)
            return self.merged[key]
        if all(map(ex.is_leaf, every)):
            return Made(pair[0], 0) if _texts(pair[:1]) == _texts(pair[1:]) else None
        if not all(_same_operation(every[0], expr) for expr in every):
            return None
        found: Made | None = None
        for parts in _pairings(pair):
            made = self._parts(pair[0], parts)
            if made is not None and (found is None or made.cost < found.cost):
                found = made
            if found is not None and found.cost < CHOICE:
                break
        return found

    def _parts(self, operations: Exprs, parts: Sequence[Pair]) -> Made | None:
        found: list[Made] = []
        for part in parts:
            made = self.of(part)
            if made is None:
                return None
            found.append(made)
        children = zip(*(one.exprs for one in found), strict=True)
        return Made(tuple(map(ex.with_children, operations, children)), sum(one.cost for one in found))

    def _reads(self, pair: Pair) -> Made | None:
        first, second = (tuple(map(_behind, self.readers, exprs)) for exprs in pair)
        nodes = [node for reads in (first, second) for node in self._nodes(reads)]
        if len({node.dtype for node in nodes}) > 1 or not all(ir.size(node.shape) for node in nodes):
            return None
        one_array = all(a.aggregate == b.aggregate for a, b in zip(first, second, strict=True))
        found = self._read((first, second), self.conditions) if one_array else None
        bodies = [r.body(read.aggregate.name) for reads in (first, second) for r, read in self._each(reads)]
        if found is None and None not in bodies:
            found = self._computed((first, second), nodes[0].dtype)
        if found is None and all(isinstance(node, ir.Const) for node in nodes):
            found = self._constant((first, second))
        # To choose between two computations is what the terms did
        if found is None and all(body is None for body in bodies):
            found = self._choice((first, second))
        return found

    def _nodes(self, reads: Exprs) -> list[ir.Node]:
        return [reader.arrays[read.aggregate.name] for reader, read in self._each(reads)]

    def _each(self, exprs: Exprs) -> Iterator[tuple[Reader, ex.Expr]]:
        return zip(self.readers, exprs, strict=True)

    def _computed(self, pair: Pair, dtype: ir.DType) -> Made | None:
        """Elementwise arrays, computed for each element of the reader."""
        first, second = (tuple(reader.element(read) for reader, read in self._each(reads)) for reads in pair)
        inner = self.of((first, second))
        if inner is None or all(isinstance(expr, prim.Subscript) for expr in inner.exprs):
            return inner
        nodes = []
        for reader, expr in zip(self.readers, inner.exprs, strict=True):
            new, operands = numbered(expr)
            nodes.append(ir.Lambda(new, operands, reader.shape, dtype))
        return Made(self._added("m", nodes, lambda r: ex.own_index(len(r.shape))), inner.cost)

    def _choice(self, pair: Pair) -> Made | None:
        first, second = (self._read((reads,), (c,)) for reads, c in zip(pair, self.conditions, strict=True))
        if first is None or second is None:
            return None
        chosen = tuple(map(prim.If, self.conditions[0], first.exprs, second.exprs))
        return Made(chosen, first.cost + second.cost + CHOICE)

    def _read(self, terms: Sequence[Exprs], conditions: Sequence[Exprs]) -> Made | None:
        """One read of the array that all `terms` read, inside it for every element of the reader."""
        ndim = {len(read.index_tuple) for reads in terms for read in reads}
        if len(ndim) > 1:
            return None
        made = []
        for axis in range(ndim.pop()):
            indices = [tuple(read.index_tuple[axis] for read in reads) for reads in terms]
            made.append(self._index(indices, conditions, [node.shape[axis] for node in self._nodes(terms[0])]))
        found = [one for one in made if one is not None]
        if len(found) < len(made):
            return None
        places = zip(*(one.exprs for one in found), strict=True) if found else itertools.repeat(())
        exprs = tuple(prim.Subscript(read.aggregate, place) for read, place in zip(terms[0], places, strict=False))
        return Made(exprs, sum(one.cost for one in found))

    def _index(self, terms: Sequence[Exprs], conditions: Sequence[Exprs], extents: Sequence[int]) -> Made | None:
        key = "index", _texts(terms), _texts(conditions), tuple(extents)
        if key not in self.merged:
            self.merged[key] = self._index_of(terms, conditions, extents)
        return self.merged[key]

    def _index_of(self, terms: Sequence[Exprs], conditions: Sequence[Exprs], extents: Sequence[int]) -> Made | None:
        axes = self._axes([*terms, *conditions], terms)
        if axes is None:
            return None
        if all(indices == terms[0] for indices in terms) and self._is_inside(terms[0], axes, extents):
            return Made(terms[0], 0)
        values, care = [], []
        for rank, (reader, extent) in enumerate(zip(self.readers, extents, strict=True)):
            masks = self._masks(rank, conditions, axes)
            each = [reader.known.over(i[rank], axes, reader.extents, (-1, extent), True) for i in terms]
            values.append(np.select(masks, each, 0).astype(np.int32))
            care.append(np.asarray(np.logical_or.reduce(masks)))
        if any(data.min() < 0 or data.max() >= extent for data, extent in zip(values, extents, strict=True)):
            return None
        whole = Tables(tuple(values), tuple(care), tuple(map(prim.Variable, axes)))
        found = simplest(whole)
        if isinstance(found, Affine):
            if self._is_inside(found.exprs(), axes, extents):
                return Made(found.exprs(), 0)
            found = compressed(whole)
        return self._table(found)

    def _is_inside(self, indices: Exprs, axes: Sequence[str], extents: Sequence[int]) -> bool:
        """Whether they are indices of an axis of `extents` for every element, tables that they read included."""
        for reader, index, extent in zip(self.readers, indices, extents, strict=True):
            try:
                found = reader.known.over(index, axes, reader.extents, (-1, extent), False)
            except IndexError:
                return False
            if found.min() < 0 or found.max() >= extent:
                return False
        return True

    def _constant(self, pair: Pair) -> Made | None:
        """One constant for both, if it is no larger than they are and their tables."""
        indices = [tuple(index) for reads in pair for index in zip(*(read.index_tuple for read in reads), strict=True)]
        axes = self._axes([*indices, *self.conditions], indices)
        if axes is None:
            return None
        values, care, before = [], [], 0
        for rank, reader in enumerate(self.readers):
            masks = self._masks(rank, self.conditions, axes)
            each = [_values(reader, reads[rank], axes) for reads in pair]
            values.append(np.select(masks, each, 0).astype(each[0].dtype))
            care.append(np.asarray(np.logical_or.reduce(masks)))
            parts = (part for reads in pair for part in ex.walk(reads[rank]) if isinstance(part, prim.Subscript))
            before += sum(ir.nbytes(reader.arrays[name]) for name in {part.aggregate.name for part in parts})
        found = compressed(Tables(tuple(values), tuple(care), tuple(map(prim.Variable, axes))))
        return None if sum(data.nbytes for data in found.values) > before else self._table(found)

    def _table(self, tables: Tables) -> Made:
        nodes = []
        for reader, array in zip(self.readers, tables.values, strict=True):
            data = np.asarray(array, order="C")
            key = digest(data)
            reader.constants[key] = data
            nodes.append(ir.Const(key, data.shape, data.dtype))
        return Made(self._added("o", nodes, lambda r: tables.places), sum(array.nbytes for array in tables.values))

    def _added(self, letter: str, nodes: Sequence[ir.Node], index: Callable[[Reader], tuple[ex.Expr, ...]]) -> Exprs:
        """Reads of new arrays, whose names follow from the reader's."""
        numbers = itertools.count()
        number = next(n for n in numbers if all(f"{r.name}_{letter}{n}" not in r.arrays for r in self.readers))
        found = []
        for reader, node in zip(self.readers, nodes, strict=True):
            reader.arrays[f"{reader.name}_{letter}{number}"] = node
            found.append(prim.Subscript(prim.Variable(f"{reader.name}_{letter}{number}"), index(reader)))
        return tuple(found)

    def _axes(self, every: Sequence[Exprs], decided: Sequence[Exprs]) -> list[str] | None:
        """The axes that expressions depend on; None where constants do not decide all of `decided`."""
        for exprs in decided:
            each = zip(self.readers, exprs, strict=True)
            if not all(reader.known.decides(expr, reader.extents) for reader, expr in each):
                return None
        used = {name for exprs in every for expr in exprs for name in integers.variables(expr)}
        axes = [axis for axis in self.readers[0].extents if axis in used]
        sizes = (math.prod(reader.extents[axis][1] for axis in axes) for reader in self.readers)
        return axes if max(sizes) <= LARGEST else None

    def _masks(self, rank: int, conditions: Sequence[Exprs], axes: Sequence[str]) -> list[Array]:
        reader = self.readers[rank]
        return [reader.known.over(c[rank], axes, reader.extents, (0, 1), True).astype(bool) for c in conditions]


def _texts(terms: Sequence[Exprs]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(map(expr_text, exprs)) for exprs in terms)


def _behind(reader: Reader, read: prim.Subscript) -> prim.Subscript:
    """The same element, of what its array only moves."""
    while isinstance(reader.body(read.aggregate.name), prim.Subscript):
        read = reader.element(read)
    return read


def _values(reader: Reader, read: prim.Subscript, axes: Sequence[str]) -> Array:
    """The elements of a constant over `axes`."""
    node = reader.arrays[read.aggregate.name]
    assert isinstance(node, ir.Const)
    each = zip(read.index_tuple, node.shape, strict=True)
    places = [reader.known.over(index, axes, reader.extents, (0, extent - 1), True) for index, extent in each]
    return np.asarray(reader.constants[node.digest][tuple(places)])


def _same_operation(first: ex.Expr, second: ex.Expr) -> bool:
    """Whether expressions are one operation on different operands."""
    if isinstance(first, ex.Reduce | prim.Subscript) or type(first) is not type(second) or ex.is_leaf(first):
        return False
    if len(ex.children(first)) != len(ex.children(second)):
        return False
    operands = (0,) * len(ex.children(first))
    return bool(ex.with_children(first, operands) == ex.with_children(second, operands))


def _pairings(pair: Pair) -> Iterator[list[Pair]]:
    """Operands side by side; the two of a sum or product commute."""
    first, second = (list(zip(*map(ex.children, exprs), strict=True)) for exprs in pair)
    yield list(zip(first, second, strict=True))
    if len(first) == 2 and isinstance(pair[0][0], prim.Sum | prim.Product):
        yield list(zip(first, second[::-1], strict=True))
