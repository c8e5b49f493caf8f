"""Count the rounds of communication that must complete before each array of each rank can be computed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aotato.frontend.dependences import dependences, order
from aotato.frontend.ir import Programs


@dataclass(frozen=True)
class Levels:
    """An array of level l can be computed once batches 0 .. l-1 have completed, and not before.

    What is sent at level l travels in batch l and is received at level l + 1. All ranks take part in a collective,
    so its batch is the highest level of its operands, and its results are one level higher on every rank.
    """

    arrays: tuple[Mapping[str, int], ...]  # level of each array of each rank
    collectives: tuple[int, ...]  # batch of each collective
    batches: int  # the longest chain of rounds over all ranks


def levels(programs: Programs) -> Levels:
    """The levels of all arrays, in time linear in the nodes and edges of all ranks together.

    `programs` has passed `check`.
    """
    graph = dependences(programs)
    sequence = order(graph)
    assert len(sequence) == len(graph.before), "ranks wait for each other in a cycle; check() was not called"

    level = [0] * len(graph.before)
    for node in sequence:
        level[node] = max((level[earlier] for earlier in graph.before[node]), default=0) + graph.rounds[node]

    arrays = tuple(
        {name: level[start + i] for i, name in enumerate(program.arrays)}
        for program, start in zip(programs.ranks, graph.starts, strict=True)
    )
    return Levels(
        arrays=arrays,
        collectives=tuple(level[node] for node in graph.collectives),
        batches=max(level, default=0),
    )
