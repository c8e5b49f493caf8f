"""Run schedules with made-up contents in a random interleaving, and see races happen instead of proving there are none.

Written from the loader's promises alone, to be compared with `simulate`: every access takes time, between `begin`
and `end`; the network holds a send buffer from `send` to `settle` and a receive buffer from `post` to `wait`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from aotato.runtime_stub.hazards import PROMISED, Synchronisation
from aotato.runtime_stub.schedule import Schedule

CELL = 8  # bytes of arena that are told apart
Key = tuple[str, Any]


class Fault(Exception):
    """A race, a wrong content or a stall, seen to happen."""


@dataclass
class Memory:
    content: Any = None
    readers: int = 0
    writers: int = 0


@dataclass
class Command:
    """One entry of a queue: what it reads (with the content it must find) and writes."""

    after: list[Command]
    reads: list[tuple[Key, Any]]
    writes: list[tuple[Key, Any]]
    started: bool = False
    done: bool = False


@dataclass
class Rank:
    s: Schedule
    given: Synchronisation
    call: int = 0
    step: int = 0
    phase: int = 0
    memory: dict[Key, Memory] = field(default_factory=dict)
    queues: tuple[list[Command], list[Command]] = field(default_factory=lambda: ([], []))  # compute, transfer
    writer: dict[str, Command] = field(default_factory=dict)
    reader: dict[str, Command] = field(default_factory=dict)
    upload: dict[str, Command] = field(default_factory=dict)
    fetched: dict[str, Command] = field(default_factory=dict)

    def step_turn(self) -> int:
        """The number of the collective that is the next step."""
        return sum(step.op == "reduce" for step in self.s.steps[:self.step])

    def keys(self, name: str, side: str) -> list[Key]:
        b = self.s.buffer(name)
        if b.kind == "temporary":
            return [("arena", n) for n in range(b.offset // CELL, -(-(b.offset + b.nbytes) // CELL))]
        return [(side if self.s.staging == "copied" else "both", name)]

    def begin(self, key: Key, write: bool, expected: Any = None) -> None:
        m = self.memory.setdefault(key, Memory())
        if m.writers or (write and m.readers):
            raise Fault(f"rank {self.s.rank} step {self.step}: race on {key}")
        if not write and expected is not None and m.content != expected:
            raise Fault(f"rank {self.s.rank} step {self.step}: {key} holds {m.content}, expected {expected}")
        m.writers, m.readers = m.writers + write, m.readers + (not write)

    def end(self, key: Key, write: bool, content: Any = None) -> None:
        m = self.memory[key]
        m.writers, m.readers = m.writers - write, m.readers - (not write)
        if write:
            m.content = content

    def enqueue(self, queue: int, after: list[Command | None], reads: list[tuple[Key, Any]],
                writes: list[tuple[Key, Any]]) -> Command:
        command = Command([c for c in after if c], reads, list(dict(writes).items()))
        self.queues[queue].append(command)
        return command

    def advance(self, queue: int) -> None:
        command = self.queues[queue][0]
        if not command.started:
            for key, content in command.reads:
                self.begin(key, False, content)
            own = {key for key, _ in command.reads}
            for key, _ in command.writes:
                if key not in own:
                    self.begin(key, True)
            command.started = True
            return
        own = {key for key, _ in command.reads}
        for key, _ in command.reads:
            self.end(key, False)
        for key, content in command.writes:
            self.end(key, True, content) if key not in own else None
        command.done = True
        self.queues[queue].pop(0)

    def runnable(self, queue: int) -> bool:
        return bool(self.queues[queue]) and all(c.done for c in self.queues[queue][0].after)


class World:
    """All ranks and what the network has seen."""

    def __init__(self, whole: Sequence[Schedule], rendezvous: bool, given: Synchronisation = PROMISED) -> None:
        self.ranks = [Rank(s, given) for s in whole]
        self.rendezvous = rendezvous
        self.sent: dict[tuple[int, int, int], list[Any]] = {}
        self.posted: dict[tuple[int, int, int], int] = {}
        self.entered: dict[tuple[int, int], int] = {}

    def run(self, random: Random, calls: int = 3) -> None:
        """Take one possible action after the other until all is done; raises Fault."""
        pace = [random.choice((1, 1, 40)) for _ in range(3)]  # compute queues, transfer queues, hosts: some are slow
        while True:
            actions = [(r, q) for r in self.ranks for q in (0, 1) if r.runnable(q)]
            actions += [(r, 2) for r in self.ranks if r.call < calls and self.ready(r)]
            if not actions:
                break
            (rank, what), = random.choices(actions, [pace[what] for _, what in actions])
            if what < 2:
                rank.advance(what)
            else:
                self.take(rank)
        if any(r.call < calls for r in self.ranks):
            raise Fault("stall")

    def ready(self, r: Rank) -> bool:
        """Whether the host may take its next step."""
        step = r.s.steps[r.step]
        if step.op == "reduce":
            return self._reduce_ready(r, r.s.reductions[step.index].buffer)
        if step.op in ("launch", "fetch", "put"):
            return True
        m = r.s.messages[step.index]
        channel = (r.s.rank, m.peer, m.tag) if m.outgoing else (m.peer, r.s.rank, m.tag)
        awaited = None
        if step.op == "send":
            awaited = r.fetched.get(m.buffer) if r.given.send_after_fetch else None
        elif step.op == "post":
            last = r.upload if r.s.staging == "copied" else r.reader
            awaited = last.get(m.buffer) if r.given.post_after_readers else None
        elif step.op == "wait":
            return len(self.sent.get(channel, ())) > r.call
        elif step.op == "settle":
            return not self.rendezvous or self.posted.get(channel, 0) > r.call
        return awaited is None or awaited.done

    def _reduce_ready(self, r: Rank, name: str) -> bool:
        if r.phase == 0:
            return True
        if r.phase == 1:
            down = r.fetched.get(name) if r.given.reduce_after_writers else None
            return down is None or down.done
        return self.entered[r.call, r.step_turn()] == len(self.ranks)

    def take(self, r: Rank) -> None:
        step = r.s.steps[r.step]
        if step.op == "launch":
            self.launch(r, step.index)
        elif step.op == "reduce":
            r.phase = (r.phase + 1) % 3
            getattr(self, f"reduce{r.phase}")(r, r.s.reductions[step.index].buffer)
            if r.phase:
                return
        else:
            m = r.s.messages[step.index]
            getattr(self, step.op)(r, m, (r.s.rank, m.peer, m.tag) if m.outgoing else (m.peer, r.s.rank, m.tag))
        r.step += 1
        if r.step == len(r.s.steps):
            r.call, r.step = r.call + 1, 0

    def expected(self, r: Rank, name: str) -> Any:
        """What a launch of this call must find in a buffer."""
        kind = r.s.buffer(name).kind
        if kind == "recv":
            m = next(m for m in r.s.messages if m.buffer == name)
            peer = self.ranks[m.peer].s
            other = next(o for o in peer.messages if o.outgoing and (o.peer, o.batch) == (r.s.rank, m.batch))
            return r.call, m.peer, other.buffer
        return None if kind in ("input", "const") else (r.call, "all" if kind == "reduce" else r.s.rank, name)

    def launch(self, r: Rank, index: int) -> None:
        for a in r.s.launches[index].arguments:
            if a.by_value and r.s.buffer(a.buffer).kind == "reduce":
                key, = r.keys(a.buffer, "host")
                r.begin(key, False, self.expected(r, a.buffer))
                r.end(key, False)
        arguments = [a for a in r.s.launches[index].arguments if not a.by_value]
        names = [a.buffer for a in arguments]
        uploads = [r.upload.get(n) for n in names] if r.given.launch_after_uploads else []
        reads = [(k, self.expected(r, a.buffer)) for a in arguments if a.mode == "r"
                 for k in r.keys(a.buffer, "device")]
        writes = [(k, (r.call, r.s.rank, a.buffer)) for a in arguments if a.mode == "w"
                  for k in r.keys(a.buffer, "device")]
        command = r.enqueue(0, uploads, reads, writes)
        for a in arguments:
            (r.reader if a.mode == "r" else r.writer)[a.buffer] = command

    def fetch(self, r: Rank, m: Any, channel: Any) -> None:
        self._copy_down(r, m.buffer, r.writer.get(m.buffer) if r.given.fetch_after_writers else None)

    def _copy_down(self, r: Rank, name: str, after: Command | None) -> None:
        content = (r.call, r.s.rank, name)
        if r.s.staging == "copied":
            r.fetched[name] = r.enqueue(1, [after], [(("device", name), content)], [(("host", name), content)])
        elif after is not None:
            r.fetched[name] = after

    def send(self, r: Rank, m: Any, channel: Any) -> None:
        key, = r.keys(m.buffer, "host")
        content = (r.call, r.s.rank, m.buffer)
        r.begin(key, False, content)
        self.sent.setdefault(channel, []).append(content)

    def settle(self, r: Rank, m: Any, channel: Any) -> None:
        r.end(r.keys(m.buffer, "host")[0], False)

    def post(self, r: Rank, m: Any, channel: Any) -> None:
        r.begin(r.keys(m.buffer, "host")[0], True)
        self.posted[channel] = self.posted.get(channel, 0) + 1

    def wait(self, r: Rank, m: Any, channel: Any) -> None:
        r.end(r.keys(m.buffer, "host")[0], True, self.sent[channel][r.call])

    def put(self, r: Rank, m: Any, channel: Any) -> None:
        self._copy_up(r, m.buffer, self.expected(r, m.buffer), r.given.put_after_readers)

    def _copy_up(self, r: Rank, name: str, content: Any, wait: bool) -> None:
        if r.s.staging == "copied":
            after = [r.reader.get(name)] if wait else []
            r.upload[name] = r.enqueue(1, after, [(("host", name), content)], [(("device", name), content)])

    def reduce1(self, r: Rank, name: str) -> None:
        self._copy_down(r, name, r.writer.get(name) if r.given.reduce_after_writers else None)

    def reduce2(self, r: Rank, name: str) -> None:
        key, = r.keys(name, "host")
        r.begin(key, False, (r.call, r.s.rank, name))
        r.end(key, False)
        r.begin(key, True)
        turn = r.call, r.step_turn()
        self.entered[turn] = self.entered.get(turn, 0) + 1

    def reduce0(self, r: Rank, name: str) -> None:
        key, = r.keys(name, "host")
        r.end(key, True, (r.call, "all", name))
        self._copy_up(r, name, (r.call, "all", name), False)
