"""Schedules built by hand: rounds of messages along given edges, or of a reduction, on any number of ranks.

`schedules(size, rounds)`: before each round a launch computes a temporary from what is known and a second one
packs it for every peer; after the last, a launch computes the output. A round is a set of (source, dest) or "sum".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from aotato.runtime_stub.schedule import (
    Argument,
    Buffer,
    Launch,
    Message,
    Output,
    Parcel,
    Reduction,
    Schedule,
    Step,
)

Round = frozenset[tuple[int, int]] | str
NBYTES = 96  # a float64 of shape (4, 2) at 0 and 8 float32 at 64


def ring(size: int) -> Round:
    """Every rank sends to both neighbours."""
    return frozenset((r, (r + d) % size) for r in range(size) for d in (1, -1) if (r + d) % size != r)


def chain(size: int) -> Round:
    """Rank r sends to r + 1: the first only sends, the last only receives."""
    return frozenset((r, r + 1) for r in range(size - 1))


def schedules(size: int, rounds: Sequence[Round], staging: str = "copied", late_post: bool = False) -> list[Schedule]:
    """All ranks' schedules; with `late_post`, receives are posted after the first wait for a fetch."""
    return [_Builder(rank, size, rounds, staging).build(late_post) for rank in range(size)]


class _Builder:
    def __init__(self, rank: int, size: int, rounds: Sequence[Round], staging: str) -> None:
        self.rank, self.size, self.rounds, self.staging = rank, size, rounds, staging
        self.buffers = [Buffer("x", "input", NBYTES, source="x"), Buffer("c", "const", NBYTES, source="00"),
                        Buffer("out", "output", NBYTES, source="out")]
        self.launches: list[Launch] = []
        self.messages: list[Message] = []
        self.reductions: list[Reduction] = []
        self.steps: list[Step] = []
        self.known = ["x", "c"]

    def build(self, late_post: bool) -> Schedule:
        for batch, edges in enumerate(self.rounds):
            self.temporary(batch)
            if isinstance(edges, str):
                self.reduction(batch, edges)
            else:
                self.exchange(batch, edges)
        self.launch("last", len(self.rounds), self.known, ["out"])
        posts = [Step("post", n) for n, m in enumerate(self.messages) if not m.outgoing]
        first = next((n + 1 for n, s in enumerate(self.steps) if s.op == "send"), 0) if late_post else 0
        # A receive is waited for after the sends of its batch, hence after the first send where there is one
        first = min([first, *(n for n, s in enumerate(self.steps) if s.op in ("wait", "reduce"))])
        settles = [Step("settle", n) for n, m in enumerate(self.messages) if m.outgoing]
        return Schedule("step", self.rank, self.size, "cpu", self.staging, len(self.rounds) + 1, len(self.rounds),
                        2 * NBYTES, NBYTES, tuple(self.buffers), tuple(self.launches), tuple(self.messages),
                        tuple(self.reductions), (*self.steps[:first], *posts, *self.steps[first:], *settles),
                        (Output("out", "out", 0, (4, 2), "float64"),))

    def launch(self, name: str, part: int, reads: Sequence[str], writes: Sequence[str]) -> None:
        arguments = tuple(Argument(b, "float64", mode) for mode, bs in (("r", reads), ("w", writes)) for b in bs)
        self.steps.append(Step("launch", len(self.launches)))
        self.launches.append(Launch(f"k{len(arguments)}", name, part, arguments, (8,), (4,), 8, 8, 1, 0))

    def temporary(self, batch: int) -> None:
        """Temporaries take turns in the two halves of the arena."""
        name = f"t{batch}"
        self.buffers.append(Buffer(name, "temporary", NBYTES, offset=batch % 2 * NBYTES))
        self.launch(f"compute{batch}", batch, self.known, [name])
        self.known = [k for k in self.known if not k.startswith("t")] + [name]

    def exchange(self, batch: int, edges: frozenset[tuple[int, int]]) -> None:
        sends = [self.message(batch, dest, True) for source, dest in sorted(edges) if source == self.rank]
        recvs = [self.message(batch, source, False) for source, dest in sorted(edges) if dest == self.rank]
        if sends:
            self.launch(f"pack{batch}", batch, [f"t{batch}"], [self.messages[n].buffer for n in sends])
        self.steps += [Step("fetch", n) for n in sends] + [Step("send", n) for n in sends]
        self.steps += [Step("wait", n) for n in recvs] + [Step("put", n) for n in recvs]
        self.known = [*self.known, *(self.messages[n].buffer for n in recvs)]

    def message(self, batch: int, peer: int, outgoing: bool) -> int:
        kind = "send" if outgoing else "recv"
        name = f"{kind}{batch}_{peer}"
        self.buffers.append(Buffer(name, kind, NBYTES))
        parcels = (Parcel("u", 0, (4, 2), "float64"), Parcel("v", 64, (8,), "float32"))
        self.messages.append(Message(batch, peer, outgoing, 10 + batch, NBYTES, name, parcels))
        return len(self.messages) - 1

    def reduction(self, batch: int, op: str) -> None:
        name = f"reduce{batch}"
        self.buffers.append(Buffer(name, "reduce", NBYTES))
        self.launch(f"pack{batch}", batch, [f"t{batch}"], [name])
        self.steps.append(Step("reduce", len(self.reductions)))
        values = ((f"s{batch}", 0, ()), (f"v{batch}", 1, (11,)))
        self.reductions.append(Reduction(batch, op, "float64", 12, name, values))
        self.known = [*self.known, name]


def alter(whole: Sequence[Schedule], rank: int, change: Callable[[Schedule], Schedule]) -> list[Schedule]:
    """All ranks' schedules, one of them changed."""
    return [change(s) if s.rank == rank else s for s in whole]


def edit(part: str, number: int, /, **fields: Any) -> Callable[[Schedule], Schedule]:
    """A change of row `number` of `part`: edit("messages", 0, tag=5)."""
    def change(s: Schedule) -> Schedule:
        rows = list(getattr(s, part))
        rows[number] = replace(rows[number], **fields)
        return replace(s, **{part: tuple(rows)})
    return change


def reorder(order: Callable[[list[Step]], list[Step]]) -> Callable[[Schedule], Schedule]:
    """A change of the steps."""
    return lambda s: replace(s, steps=tuple(order(list(s.steps))))


def swap(a: int, b: int) -> Callable[[Schedule], Schedule]:
    def order(steps: list[Step]) -> list[Step]:
        steps[a], steps[b] = steps[b], steps[a]
        return steps
    return reorder(order)


def move(op: str, index: int, to: int) -> Callable[[Schedule], Schedule]:
    """Take one step out and put it before the step now at `to`."""
    def order(steps: list[Step]) -> list[Step]:
        step = steps.pop(steps.index(Step(op, index)))
        return [*steps[:to], step, *steps[to:]]
    return reorder(order)
