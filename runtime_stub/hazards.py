"""No access overtakes another: by happens-before, over two consecutive calls of one rank.

Three things act at once: the host, the compute queue and the transfer queue, the queues in order. A clock
(host, compute, transfer) says how many actions of each have completed. Every action knows the clock that has
certainly passed when it starts, from program order, queue order and the waits in `Synchronisation`, nothing else;
two accesses to one memory, one of them a write, must be ordered by it. The network is an access of its own, from
`post` to `wait` and from `send` to `settle`. What peers do cannot matter beyond that.

A buffer is one memory when mapped; when copied it has a device side, for launches, and a host side, for the network.
Nothing is awaited between calls. A call repeats all accesses of the one before, so what is ordered after the last
call is ordered after all earlier ones: two calls stand for any number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from aotato.runtime_stub.contents import carried_buffers
from aotato.runtime_stub.form import ScheduleError, name_step
from aotato.runtime_stub.schedule import Schedule

CALLS = 2
HOST, COMPUTE, TRANSFER = range(3)
NEVER = 1 << 62
Clock = tuple[int, int, int]
ZERO: Clock = (0, 0, 0)


@dataclass(frozen=True)
class Synchronisation:
    """What the loader waits for, besides program order and queue order. It may wait for more, never for less.

    "Enqueued so far" counts launches of earlier calls. A memory that is carried is tracked as memory: a launch
    that reads it as an input is a reader of the recv or reduce buffer too. Mapped, nothing is copied: an upload is
    complete at once, a fetch is complete when its writers are.
    """

    launch_after_uploads: bool = True  # queue: the last upload of each recv or reduce buffer it reads or writes
    fetch_after_writers: bool = True  # queue: the last launch enqueued so far that writes the send buffer
    send_after_fetch: bool = True  # host: its fetch
    post_after_readers: bool = True  # host: mapped, the last launch enqueued so far that reads it; copied, the last put
    put_after_readers: bool = True  # queue: the last launch enqueued so far that reads the buffer
    reduce_after_writers: bool = True  # host: the last launch enqueued so far that writes the operands, the copy down


PROMISED = Synchronisation()


def check_hazards(s: Schedule, carry: Mapping[str, str], given: Synchronisation = PROMISED) -> None:
    """Raises ScheduleError naming the two steps that may touch one memory at once."""
    rank = _Rank(s, given, carried_buffers(s, carry))
    for rank.call in range(CALLS):
        for rank.step, step in enumerate(s.steps):
            if step.op == "launch":
                rank.launch(step.index)
            elif step.op == "reduce":
                rank.reduce(s.reductions[step.index].buffer)
            else:
                getattr(rank, step.op)(s.messages[step.index].buffer)


def join(*clocks: Clock) -> Clock:
    return max(c[0] for c in clocks), max(c[1] for c in clocks), max(c[2] for c in clocks)


@dataclass
class _Memory:
    """The last write and, for each thing that acts, the last read since: where, and which of its actions ends it."""

    write: tuple[int, int, int, int] = (HOST, 0, 0, 0)  # actor, action, call, step
    reads: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # actor -> action, call, step


class _Rank:
    """One rank's host at one step: what has certainly completed, and the last accesses of each memory."""

    def __init__(self, s: Schedule, given: Synchronisation, carried: Mapping[str, str]) -> None:
        self.s, self.given, self.carried = s, given, carried
        self.call = self.step = 0
        self.clocks: list[Clock] = [ZERO, ZERO, ZERO]  # of the last action of host, compute, transfer
        self.memories: dict[tuple[str, str], _Memory] = {}
        self.writer: dict[str, Clock] = {}  # buffer -> completion of the last launch that writes it
        self.reader: dict[str, Clock] = {}
        self.upload: dict[str, Clock] = {}
        self.fetched: dict[str, Clock] = {}
        self.nbytes = {b.name: b.nbytes for b in s.buffers}
        self.kind = {b.name: b.kind for b in s.buffers}
        self.copied = s.staging == "copied"

    def act(self, actor: int, *awaited: Clock) -> tuple[Clock, Clock]:
        """The next action of `actor`: the clocks certainly passed at its start and at its end."""
        start = join(self.clocks[HOST], self.clocks[actor], *awaited)
        end = (start[0] + (actor == HOST), start[1] + (actor == COMPUTE), start[2] + (actor == TRANSFER))
        self.clocks[actor] = end
        return start, end

    def launch(self, index: int) -> None:
        for a in self.s.launches[index].arguments:
            if a.by_value and self.kind[a.buffer] == "reduce":
                self.access("host", a.buffer, False, HOST, *self.act(HOST))
        arguments = [a for a in self.s.launches[index].arguments if not a.by_value and a.mode != "n"]
        names = {a.buffer: self._memory_of(a.buffer) for a in arguments}
        uploads = [self.upload.get(n, ZERO) for n in names.values()] if self.given.launch_after_uploads else []
        start, end = self.act(COMPUTE, *uploads)
        for a in arguments:
            name = names[a.buffer]
            self.access("device", name, a.mode == "w", COMPUTE, start, end)
            (self.writer if a.mode == "w" else self.reader)[name] = end

    def fetch(self, name: str) -> None:
        written = self.writer.get(name, ZERO) if self.given.fetch_after_writers else ZERO
        if not self.copied:
            self.fetched[name] = written
            return
        start, end = self.act(TRANSFER, written)
        self.access("device", name, False, TRANSFER, start, end)
        self.access("host", name, True, TRANSFER, start, end)
        self.fetched[name] = end

    def send(self, name: str) -> None:
        start, _ = self.act(HOST, self.fetched[name] if self.given.send_after_fetch else ZERO)
        self.access("host", name, False, HOST, start, (NEVER, 0, 0))

    def settle(self, name: str) -> None:
        self._complete(name, self.act(HOST)[1][HOST])

    def post(self, name: str) -> None:
        last = (self.upload if self.copied else self.reader).get(name, ZERO)
        start, _ = self.act(HOST, last if self.given.post_after_readers else ZERO)
        self.access("host", name, True, HOST, start, (NEVER, 0, 0))

    def wait(self, name: str) -> None:
        self._complete(name, self.act(HOST)[1][HOST])

    def put(self, name: str) -> None:
        if self.copied:
            self._copy_up(name, self.reader.get(name, ZERO) if self.given.put_after_readers else ZERO)

    def reduce(self, name: str) -> None:
        written = self.writer.get(name, ZERO) if self.given.reduce_after_writers else ZERO
        if self.copied:
            start, written = self.act(TRANSFER, written)
            self.access("device", name, False, TRANSFER, start, written)
            self.access("host", name, True, TRANSFER, start, written)
        start, end = self.act(HOST, written if self.given.reduce_after_writers else ZERO)
        self.access("host", name, True, HOST, start, end)
        if self.copied:
            self._copy_up(name, ZERO)

    def access(self, side: str, name: str, write: bool, actor: int, start: Clock, end: Clock) -> None:
        """Record an access that begins after `start`; what it conflicts with must have ended by then, or be itself."""
        if not self.nbytes[name]:
            return
        memory = self.memories.setdefault((side if self.copied else "", name), _Memory())
        other, action, call, step = memory.write
        if start[other] < action and (other, action) != (actor, end[actor]):
            raise self._overtakes(name, write, True, call, step)
        if write:
            for other, (action, call, step) in memory.reads.items():
                if start[other] < action and (other, action) != (actor, end[actor]):
                    raise self._overtakes(name, write, False, call, step)
            memory.write, memory.reads = (actor, end[actor], self.call, self.step), {}
        else:
            memory.reads[actor] = end[actor], self.call, self.step

    def _copy_up(self, name: str, last: Clock) -> None:
        start, end = self.act(TRANSFER, last)
        self.access("host", name, False, TRANSFER, start, end)
        self.access("device", name, True, TRANSFER, start, end)
        self.upload[name] = end

    def _complete(self, name: str, action: int) -> None:
        """The network's access ends with this action of the host."""
        memory = self.memories.get(("host" if self.copied else "", name))
        if memory is None:
            return
        if memory.write[:2] == (HOST, NEVER):
            memory.write = (HOST, action, *memory.write[2:])
        if HOST in memory.reads and memory.reads[HOST][0] == NEVER:
            memory.reads[HOST] = (action, *memory.reads[HOST][1:])

    def _memory_of(self, name: str) -> str:
        return self.carried.get(name, name) if self.call else name

    def _overtakes(self, name: str, write: bool, written: bool, call: int, step: int) -> ScheduleError:
        here, there = "write" if write else "read", "writing" if written else "reading"
        return ScheduleError(f"{name_step(self.s, self.step)}, in call {self.call + 1}, may {here} {name!r} while "
                             f"{name_step(self.s, step)}, in call {call + 1}, is still {there} it")
