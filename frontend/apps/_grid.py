"""A box of n points an axis inside walls where everything is zero, cut into one block a rank.

`heat` and `poisson` share it. The walls lie one spacing outside the first and last points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytato as pt

from aotato.frontend import AppError, Option, make_distributed_recv, positive, staple_distributed_send

Field = np.ndarray[Any, np.dtype[np.float64]]


def _two_or_three(dim: int) -> str | None:
    return None if dim in (2, 3) else f"must be 2 or 3, not {dim}"


OPTIONS = (
    Option("n", int, 64, unit="points", doc="points an axis, walls not counted", check=positive),
    Option("dim", int, 2, doc="axes of the box", check=_two_or_three),
)


@dataclass(frozen=True)
class Block:
    """The points [starts, stops) of a rank, and its neighbours by (axis, side); side -1 is below, 1 above."""

    n: int
    starts: tuple[int, ...]
    stops: tuple[int, ...]
    neighbours: dict[tuple[int, int], int]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(stop - start for start, stop in zip(self.starts, self.stops, strict=True))

    def coordinates(self) -> list[Field]:
        """Positions of the block's points along each axis, in units of the box's edge, ready to broadcast."""
        axes = [np.arange(b + 1, e + 1) / (self.n + 1) for b, e in zip(self.starts, self.stops, strict=True)]
        return [np.asarray(x) for x in np.meshgrid(*axes, indexing="ij", sparse=True)]

    def field(self, values: Any) -> Field:
        return np.ascontiguousarray(np.broadcast_to(values, self.shape))


def blocks(size: int, opt: Any) -> list[Block]:
    """A block for every rank: the box is cut along its first two axes. Raises AppError if ranks outnumber points."""
    narrow = max(p for p in range(1, int(size**0.5) + 1) if size % p == 0)
    ranks = (size // narrow, narrow, 1)[: opt.dim]
    if max(ranks) > opt.n:
        raise AppError(f"n={opt.n} points an axis are too few for {max(ranks)} ranks along it: use fewer ranks")
    cuts = [[opt.n * i // p for i in range(p + 1)] for p in ranks]
    places = list(product(*map(range, ranks)))
    return [_block(opt.n, cuts, places, place) for place in places]


def _block(n: int, cuts: Sequence[Sequence[int]], places: list[tuple[int, ...]], place: tuple[int, ...]) -> Block:
    starts = tuple(cut[i] for cut, i in zip(cuts, place, strict=True))
    stops = tuple(cut[i + 1] for cut, i in zip(cuts, place, strict=True))
    neighbours = {}
    for axis, side in product(range(len(place)), (-1, 1)):
        other = (*place[:axis], place[axis] + side, *place[axis + 1 :])
        if other in places:
            neighbours[axis, side] = places.index(other)
    return Block(n, starts, stops, neighbours)


def laplacian(u: Any, block: Block) -> Any:
    """The sum of second differences of `u` along all axes (times the squared spacing); exchanges the blocks' edges."""
    total = -2 * u.ndim * u
    for axis in range(u.ndim):
        padded = pt.concatenate([_ghost(u, block, axis, -1), u, _ghost(u, block, axis, 1)], axis)
        below, above = (_layers(padded, axis, first, u.shape[axis]) for first in (0, 2))
        total = total + (below + above)
    return total


def _ghost(u: Any, block: Block, axis: int, side: int) -> Any:
    """The layer just outside the block: the neighbour's outermost, in exchange for ours, or the wall's zeros."""
    edge = _layers(u, axis, 0 if side < 0 else u.shape[axis] - 1, 1)
    if (axis, side) not in block.neighbours:
        return pt.zeros(edge.shape, u.dtype)
    peer = block.neighbours[axis, side]
    received = make_distributed_recv(peer, ("edge", axis, -side), edge.shape, u.dtype)
    return staple_distributed_send(edge, peer, ("edge", axis, side), stapled_to=received)


def _layers(u: Any, axis: int, first: int, count: int) -> Any:
    return u[tuple(slice(first, first + count) if a == axis else slice(0, n) for a, n in enumerate(u.shape))]
