"""How many nodes of an element a work-item computes: as many as its registers hold, where matrix products dominate.

In a sum over a small matrix and local memory, m nodes and v components of a work-item take m + v loads for m v terms.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from aotato.emit.nest import Accumulate, Nest
from aotato.emit.small_matrices import lanes_each, matrix_sums
from aotato.frontend import ir

MOST_NODES = 4  # of a work-item: with more, few work-items are left to hide the latency of memory
FEWEST_TERMS = 8  # of all reductions of a node together; with fewer, the loads and stores of the node weigh more


@dataclass(frozen=True)
class Tile:
    """A work-item computes `count` nodes, `step` apart along `axis` of the index space."""

    axis: int
    count: int
    step: int
    matrix: bool = False  # 32 work-items compute a tile of a matrix product instead

    def space(self, whole: ir.Shape) -> ir.Shape:
        """The index space with one work-item a tile."""
        if self.count == 1:
            return whole
        return (*whole[: self.axis], self.step, *whole[self.axis + 1 :])

    def lanes_each(self, whole: ir.Shape) -> int:
        """Work-items for an element."""
        return lanes_each(whole[1]) if self.matrix else ir.size(self.space(whole)[1:])


SINGLE = Tile(0, 1, 0)
MATRIX = Tile(0, 1, 0, True)
MOST_PAIRS = 40  # sums of a matrix product: a work-item has two of each
MOST_BESIDE = 16  # where the results of the kernel are made of them in the same nest


def tile_of(nest: Nest, registers: int) -> Tile:
    """The tile for `nest`, which computes one node: at most `registers` 8-byte accumulators."""
    own = accumulators(nest)
    if not own or _terms(nest) < FEWEST_TERMS:
        return SINGLE
    # The first axis behind the elements that divides, so that neighbours along the last stay neighbours
    for axis in range(1, len(nest.shape)):
        counts = _divisors(nest.shape[axis], min(MOST_NODES, int(registers / own)))
        if counts:
            return Tile(axis, counts[-1], nest.shape[axis] // counts[-1])
    return SINGLE


def is_matrix(nest: Nest, most: int) -> bool:
    """Whether `nest`, which computes one node, can be a matrix product of at most so many sums."""
    return matrix_sums(nest) is not None and accumulators(nest) <= most


def accumulators(nest: Nest) -> float:
    """Registers of 8 bytes that the sums of a node need while they are all alive."""
    sums = [s for s in nest.statements if isinstance(s, Accumulate)]
    outer = sum(_width(s) for s in sums if not s.loops)
    inner: dict[tuple[str, ...], float] = {}
    for s in sums:
        if s.loops:
            inner[s.loops] = inner.get(s.loops, 0) + _width(s)
    return outer + max(inner.values(), default=0)


def _width(statement: Accumulate) -> float:
    return max(4, statement.dtype.itemsize) / 8


def _terms(nest: Nest) -> int:
    extents = {loop.name: loop.upper - loop.lower for loop in nest.loops}
    total = 0
    for s in nest.statements:
        if isinstance(s, Accumulate):
            total += math.prod(extents[name] for name in (*s.loops, s.loop))
    return total


def _divisors(extent: int, largest: int) -> Sequence[int]:
    return [count for count in range(2, min(extent, largest) + 1) if extent % count == 0]
