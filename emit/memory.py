"""Assign every temporary an offset in one arena, reusing bytes after last use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Lifetime:
    """A temporary is live over launches [first, last]."""

    name: str
    nbytes: int
    first: int
    last: int


@dataclass(frozen=True)
class MemoryPlan:
    """Byte offsets, each a multiple of the alignment, in an arena of `nbytes`; `live_nbytes` is its lower bound."""

    offsets: Mapping[str, int]
    nbytes: int
    live_nbytes: int


def plan(lifetimes: tuple[Lifetime, ...], alignment: int) -> MemoryPlan:
    """First fit, largest first; O(n^2) in temporaries, which number in the hundreds."""
    placed: list[tuple[int, Lifetime]] = []
    # Largest first, so that small buffers fill the gaps; ties by name, for determinism
    for buf in sorted(lifetimes, key=lambda b: (-b.nbytes, b.name)):
        offset = 0
        for start, other in sorted(((s, o) for s, o in placed if _overlap(o, buf)), key=lambda item: item[0]):
            if offset + buf.nbytes <= start:
                break
            offset = max(offset, _aligned(start + other.nbytes, alignment))
        placed.append((offset, buf))
    end = max((start + buf.nbytes for start, buf in placed), default=0)
    return MemoryPlan({buf.name: start for start, buf in placed}, end, live(lifetimes))


def live(lifetimes: tuple[Lifetime, ...]) -> int:
    """The largest sum of live bytes at any launch."""
    points = {buf.first for buf in lifetimes}
    return max((sum(b.nbytes for b in lifetimes if b.first <= point <= b.last) for point in points), default=0)


def _overlap(a: Lifetime, b: Lifetime) -> bool:
    return a.first <= b.last and b.first <= a.last


def _aligned(offset: int, alignment: int) -> int:
    return -(-offset // alignment) * alignment
