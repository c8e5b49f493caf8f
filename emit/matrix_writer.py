"""Write a matrix product for loopy: a group's rectangle of the result, through local memory and registers.

Rectangles at the lower and right edge reach back into their neighbours, so that all are whole; each element is stored
once.
"""

from __future__ import annotations

from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as prim

from aotato.emit.linear import steps
from aotato.emit.nest import Accumulate, Assign, Loop
from aotato.emit.nest_writer import LONGEST_SUM, NestWriter
from aotato.emit.space import Space
from aotato.frontend import expr as ex
from aotato.frontend import ir

_SIDES = ("left", "right")


class MatrixWriter(NestWriter):
    """Adds the instructions of a product to `out`. `u` and `v` number a lane's rows and columns."""

    def _space(self) -> Space:
        self.found, self.rectangle = self.out.mapping.product
        inner = {name: count for name, count in zip("uv", self.rectangle.each, strict=True) if count > 1}
        return Space(frozenset({"g", *self.out.mapping.lanes, *inner}), (), None, inner=inner)

    def write(self) -> None:
        axes = (self.found.row, self.found.column)
        self.begins: dict[int, ex.Expr] = {}
        others = [axis for axis in reversed(range(len(self.spec.shape))) if axis not in axes]
        # Groups next to each other have the same rows
        sizes = dict(zip(axes, self.rectangle.sides, strict=True))
        self.placed_all(sizes, [axes[1], axes[0], *others], prim.Variable("g"))
        statement = self.found.statement
        loop = next(loop for loop in self.spec.loops if loop.name == statement.loop)
        for one in self.spec.statements:
            if isinstance(one, Assign):
                self._assign(one)
            else:
                self._multiply(one, loop)
        for index, store in enumerate(self.spec.stores):
            self._store(index, store)

    def element(self, axis: int, begin: ex.Expr) -> ex.Expr:
        self.begins[axis] = begin
        axes = (self.found.row, self.found.column)
        return begin + self._offset(axes.index(axis)) if axis in axes else begin

    def _offset(self, which: int) -> ex.Expr:
        """The lane's row (0) or column (1) within the group's rectangle."""
        lane = prim.Variable("pl"[which])
        if self.rectangle.each[which] == 1:
            return lane
        return lane + self.rectangle.lanes[which] * prim.Variable("uv"[which])

    def _multiply(self, statement: Accumulate, loop: Loop) -> None:
        """Tile after tile of both factors; partial sums have at most LONGEST_SUM terms."""
        self.scalars.dtypes[statement.name] = statement.dtype
        extent, depth = loop.upper - loop.lower, self.rectangle.depth
        weights = [depth]
        while weights[0] * (LONGEST_SUM // depth if len(weights) == 1 else LONGEST_SUM) < extent:
            weights.insert(0, weights[0] * (LONGEST_SUM // depth if len(weights) == 1 else LONGEST_SUM))
        names = tuple(f"{self.name('k')}{d}" for d in reversed(range(len(weights))))
        for level, name in enumerate(names):
            reached = " + ".join(f"{w}*{n}" for w, n in zip(weights, names[: level + 1], strict=False))
            inside = weights[level - 1] // weights[level] if level else 0
            most = f"{name} < {inside} and " if level else ""
            self.out.loop_domains.append(
                f"[{', '.join(names[:level])}] -> {{ [{name}] : 0 <= {name} and {most}{reached} < {extent} }}"
            )
        term = self.name("k")
        self.out.loop_domains.append(f"[] -> {{ [{term}] : 0 <= {term} < {depth} }}")
        self.out.priorities.append((*names, term))
        parts = zip(weights, names, strict=True)
        first: ex.Expr = prim.Sum(tuple(prim.Product((weight, prim.Variable(name))) for weight, name in parts))
        loaded = frozenset(self._load(side, loop, names, first) for side in _SIDES)
        self._sum(statement, names, term, loaded)

    def _load(self, side: str, loop: Loop, names: tuple[str, ...], first: ex.Expr) -> str:
        """All lanes bring a tile into local memory, neighbours what lies side by side; nothing beyond the last term."""
        which = _SIDES.index(side)
        axis, factor = (self.found.row, self.found.column)[which], (self.found.left, self.found.right)[which]
        lanes, wide, depth = self.rectangle.lanes, self.rectangle.sides[which], self.rectangle.depth
        along = self._runs_along(factor, f"_{axis}", loop.name)
        # (index along the sum, index across) by neighbouring lanes and by the others, and how often each is repeated
        counts = (depth // lanes[1], wide // lanes[0]) if along else (depth // lanes[0], wide // lanes[1])
        repeats = {f"{self.name(side)}_{n}": count for n, count in zip("ka", counts, strict=True) if count > 1}
        self.unrolled(repeats)
        fast, slow = (prim.Variable("l"), lanes[1]), (prim.Variable("p"), lanes[0])
        places = []
        for n, (lane, number) in zip("ka", (fast, slow) if along else (slow, fast), strict=True):
            name = f"{self.name(side)}_{n}"
            places.append(lane + number * prim.Variable(name) if name in repeats else lane)
        dtype = self.scalars.dtype(factor)
        memory = self.name(f"{side}_tile")
        self._tile(memory, dtype, depth, wide + (1 if along else 0))
        saved = dict(self.scalars.places)
        self.scalars.places[axis] = (self.begins[axis] + places[1], saved[axis][1])
        index = first + places[0]
        self.scalars.indices[loop.name] = index + loop.lower if loop.lower else index
        value, after = self.scalars.written(factor)
        if (loop.upper - loop.lower) % depth:
            inside = prim.Comparison(index, "<", loop.upper - loop.lower)
            value = prim.If(inside, value, self.scalars.neutral("sum", dtype))
        self.scalars.places = saved
        inames = frozenset({"g", *self.out.mapping.lanes, *names, *repeats})
        target = prim.Subscript(prim.Variable(memory), tuple(places))
        return self.outside(target, value, inames, after)

    def _runs_along(self, factor: ex.Expr, own: str, loop: str) -> bool:
        """Whether neighbouring terms lie closer together in memory than neighbouring rows, or columns."""
        votes = 0
        for node in ex.walk(factor):
            if isinstance(node, prim.Subscript):
                array = self.program.arrays[node.aggregate.name]
                found = steps(array.shape, node.index_tuple)
                if own in found and loop in found:
                    votes += ir.nbytes(array) * (1 if found[loop] < found[own] else -1)
        return votes > 0

    def _tile(self, memory: str, dtype: np.dtype[Any], depth: int, wide: int) -> None:
        kept = self.scalars.value_dtype(dtype)
        self.out.temporaries.append(
            lp.TemporaryVariable(memory, kept, shape=(depth, wide), address_space=lp.AddressSpace.LOCAL)
        )
        self.out.local_bytes += depth * wide * kept.itemsize

    def _sum(self, statement: Accumulate, names: tuple[str, ...], term: str, loaded: frozenset[str]) -> None:
        """One accumulator a loop, outermost last, as for any other sum."""
        dtype = self.scalars.value_dtype(statement.dtype)
        for which, (side, factor) in enumerate(zip(_SIDES, (self.found.left, self.found.right), strict=True)):
            self.scalars.dtypes[side] = self.scalars.dtype(factor)
            place = (prim.Variable(term), self._offset(which))
            self.cells[side] = prim.Subscript(prim.Variable(self.name(f"{side}_tile")), place)
            self.written[side] = loaded
        expr, after = self.scalars.written(self.found.product)
        sums = [f"{self.name(statement.name)}_{depth}" if depth else self.name(statement.name)
                for depth in range(len(names))]
        start = []
        for depth, name in enumerate(sums):
            self.declare(name, dtype)
            neutral = self.scalars.neutral(statement.op, statement.dtype)
            start.append(self.instruct(self.cell(name), neutral, names[:depth], frozenset()))
        last = self.scalars.join("sum", statement.dtype, self.cell(sums[-1]), expr)
        done = self.instruct(self.cell(sums[-1]), last, (*names, term), after | {start[-1]})
        for depth in reversed(range(len(sums) - 1)):
            joined = self.scalars.join("sum", statement.dtype, self.cell(sums[depth]), self.cell(sums[depth + 1]))
            done = self.instruct(self.cell(sums[depth]), joined, names[: depth + 1], frozenset({done, start[depth]}))
        self.written[statement.name] = frozenset({done, start[0]})


def _whole(number: ex.Expr, count: int) -> ex.Expr:
    return prim.FloorDiv(number, count) if count > 1 else number


def _rest(number: ex.Expr, count: int) -> ex.Expr:
    return prim.Remainder(number, count) if count > 1 else 0
