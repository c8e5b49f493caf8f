"""Contents: in step order, every read finds what this call wrote, and temporaries that share bytes never mix.

Step order is the order in which a rank's host takes its steps; that real accesses keep this order is what
`hazards` proves. Buffers of no bytes hold nothing and are not checked. The host takes the values of inputs that are
passed by value before the call.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping
from heapq import heappop, heappush

from aotato.runtime_stub.form import ScheduleError, name_step
from aotato.runtime_stub.schedule import Schedule

_ALWAYS = ("input", "const")


def check_contents(s: Schedule, carry: Mapping[str, str]) -> None:
    """Reads come after writes, writes before reads; carried outputs outlive their reads in the next call."""
    call = _Call(s)
    for number, step in enumerate(s.steps):
        if step.op == "launch":
            call.launch(number, step.index)
        elif step.op == "fetch":
            call.consume(number, s.messages[step.index].buffer)
        elif step.op == "put":
            call.arrived.add(s.messages[step.index].buffer)
        elif step.op == "reduce":
            call.consume(number, s.reductions[step.index].buffer)
            call.arrived.add(s.reductions[step.index].buffer)
    for o in s.outputs:
        if not call.readable(o.buffer):
            raise ScheduleError(f"rank {s.rank}: output {o.path!r} in buffer {o.buffer!r} is never written")
    check_carried(s, carry)
    check_temporaries(s)


class _Call:
    """What each buffer holds at one point of the call: step of the first write, step of the first read."""

    def __init__(self, s: Schedule) -> None:
        self.s = s
        self.buffers = {b.name: b for b in s.buffers}
        self.written: dict[str, int] = {}
        self.read: dict[str, int] = {}
        self.arrived: set[str] = set()  # received and put, or reduced

    def readable(self, name: str) -> bool:
        b = self.buffers[name]
        if b.kind in ("recv", "reduce"):
            return name in self.arrived or not b.nbytes
        return b.kind in _ALWAYS or name in self.written or not b.nbytes

    def launch(self, number: int, index: int) -> None:
        arguments = self.s.launches[index].arguments
        writes = {a.buffer for a in arguments if a.mode == "w"}
        for a in arguments:
            if a.mode == "r" and not (a.by_value and self.buffers[a.buffer].kind == "input"):
                self._read(number, a.buffer, writes)
        for name in sorted(writes):
            self._write(number, name)

    def consume(self, number: int, name: str) -> None:
        """The host takes what launches wrote: nobody may write it after this."""
        if self.buffers[name].nbytes and name not in self.written:
            raise ScheduleError(f"{name_step(self.s, number)} reads {name!r} before any launch of this call writes it")
        self.read.setdefault(name, number)

    def _read(self, number: int, name: str, writes: set[str]) -> None:
        if not self.readable(name):
            raise ScheduleError(f"{name_step(self.s, number)} reads {name!r} before this call has filled it")
        if self.buffers[name].kind == "input" and name in self.written and name not in writes:
            raise ScheduleError(f"{name_step(self.s, number)} reads input {name!r}, which "
                                f"step {self.written[name]} has updated in place")
        self.read.setdefault(name, number)

    def _write(self, number: int, name: str) -> None:
        # An input updated in place is read before it is written; that each element is, is the emitter's to see
        if name in self.read and self.buffers[name].kind != "input" and self.buffers[name].nbytes:
            raise ScheduleError(f"{name_step(self.s, number)} writes {name!r} after step {self.read[name]} read it")
        self.written.setdefault(name, number)


def carried_buffers(s: Schedule, carry: Mapping[str, str]) -> dict[str, str]:
    """Input buffer -> the recv or reduce buffer whose memory it is in the next call, because an output lies there."""
    at = {o.path: o.buffer for o in s.outputs}
    kinds = {b.name: b.kind for b in s.buffers}
    inputs = {b.source: b.name for b in s.buffers if b.kind == "input"}
    pairs = ((inputs[into], at[path]) for path, into in carry.items() if path in at and into in inputs)
    return {name: memory for name, memory in pairs if kinds[memory] in ("recv", "reduce")}


def check_carried(s: Schedule, carry: Mapping[str, str]) -> None:
    """Launches read a carried received or reduced array before this call's steps begin to overwrite its memory."""
    memories = carried_buffers(s, carry)
    overwritten: dict[str, int] = {}
    for number, step in enumerate(s.steps):
        for name in _overwrites(s, number):
            overwritten.setdefault(name, number)
        if step.op == "launch":
            for a in s.launches[step.index].arguments:
                memory = "" if a.by_value or a.mode == "n" else memories.get(a.buffer, "")
                if memory in overwritten:
                    raise ScheduleError(f"{name_step(s, number)} reads carried input {a.buffer!r}, but its memory "
                                        f"{memory!r} is overwritten from step {overwritten[memory]}")


def _overwrites(s: Schedule, number: int) -> Iterator[str]:
    """The device memory that a step begins to overwrite."""
    step = s.steps[number]
    if step.op == "launch":
        yield from (a.buffer for a in s.launches[step.index].arguments if a.mode == "w")
    elif step.op == "reduce":
        yield s.reductions[step.index].buffer
    elif step.op == ("post" if s.staging == "mapped" else "put"):
        yield s.messages[step.index].buffer


def check_temporaries(s: Schedule) -> None:
    """Two temporaries that share bytes of the arena are not in use, first write to last access, at the same step.

    All accesses are launches on the in-order compute queue, so being apart in step order is being apart in time.
    O(n log n): at any step the ranges in use are disjoint, so a new one needs comparing with its neighbours only.
    """
    uses = _uses(s)
    temporaries = {b.name: b for b in s.buffers if b.kind == "temporary" and b.nbytes and b.name in uses}
    in_use: list[tuple[int, str]] = []  # (offset, name), sorted
    ends: list[tuple[int, int, str]] = []  # (last step, offset, name)
    for name, (first, last) in sorted(uses.items(), key=lambda use: use[1]):
        if name not in temporaries:
            continue
        while ends and ends[0][0] < first:
            _, offset, old = heappop(ends)
            del in_use[bisect_left(in_use, (offset, old))]
        b = temporaries[name]
        place = bisect_left(in_use, (b.offset, name))
        for _, other in in_use[max(place - 1, 0):place + 1]:
            o = temporaries[other]
            if o.offset < b.offset + b.nbytes and b.offset < o.offset + o.nbytes:
                raise ScheduleError(f"{name_step(s, first)} writes temporary {name!r} over {other!r}, which is in "
                                    f"use until step {uses[other][1]}")
        insort(in_use, (b.offset, name))
        heappush(ends, (last, b.offset, name))


def _uses(s: Schedule) -> dict[str, tuple[int, int]]:
    """Buffer -> first and last step that is a launch with it as argument."""
    uses: dict[str, tuple[int, int]] = {}
    for number, step in enumerate(s.steps):
        if step.op == "launch":
            for a in s.launches[step.index].arguments:
                if not a.by_value:
                    uses[a.buffer] = uses.get(a.buffer, (number, number))[0], number
    return uses
