"""The form of one schedule: types, ranges, names; each message, launch and reduction exactly once, in legal order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from itertools import pairwise
from math import prod
from typing import Any

import numpy as np

from aotato.runtime_stub.schedule import (
    BUFFER_KINDS,
    OPS,
    Argument,
    Buffer,
    Launch,
    Message,
    Output,
    Parcel,
    Reduction,
    Schedule,
    Step,
    members,
)

STAGINGS = ("mapped", "copied")
REDUCE_OPS = ("sum", "min", "max")
MAX_TAG = 32767  # the smallest MPI_TAG_UB that MPI allows
OUTGOING = ("fetch", "send", "settle")
INCOMING = ("post", "wait", "put")
WRITABLE = ("temporary", "output", "send", "reduce")  # by kernels; also an input that is updated in place
BY_VALUE = ("input", "reduce")
RETURNABLE = ("output", "recv", "reduce", "input", "const")
PARAMETERS = {"int32": 1 << 31, "int64": 1 << 63}  # dtype -> the first number too large for it
_TYPES = {"int": int, "str": str, "bool": bool}


class ScheduleError(Exception):
    """A schedule breaks a promise; the sentence names the rank, the step, the buffer and the peer."""


def name_step(schedule: Schedule, number: int) -> str:
    """A step in words: "rank 0, step 3 (send of message 1 to rank 2, buffer 's')"."""
    step = schedule.steps[number]
    if step.op == "launch":
        what = f"launch {step.index}, kernel {schedule.launches[step.index].name!r}"
    elif step.op == "reduce":
        what = f"reduction {step.index}, buffer {schedule.reductions[step.index].buffer!r}"
    else:
        m = schedule.messages[step.index]
        what = f"{step.op} of message {step.index} {'to' if m.outgoing else 'from'} rank {m.peer}, buffer {m.buffer!r}"
    return f"rank {schedule.rank}, step {number} ({what})"


@lru_cache(maxsize=256)
def itemsize(dtype: str) -> int:
    """Bytes of one element. Raises ScheduleError for what is not the name of a number type."""
    try:
        found = np.dtype(dtype)
    except TypeError:
        raise ScheduleError(f"{dtype!r} is not a dtype") from None
    if found.kind not in "biufc":
        raise ScheduleError(f"arrays of dtype {dtype!r} cannot be stored or sent")
    return found.itemsize


def check_form(schedule: Schedule) -> None:
    """Everything that one rank's schedule, of right types and expanded, shows without time and other ranks."""
    check_header(schedule)
    check_buffers(schedule)
    named = {b.name: b for b in schedule.buffers}
    for number, launch in enumerate(schedule.launches):
        check_launch(schedule, named, number, launch)
    for number, message in enumerate(schedule.messages):
        check_message(schedule, named, number, message)
    for number, reduction in enumerate(schedule.reductions):
        check_reduction(schedule, named, number, reduction)
    check_own_buffers(schedule)
    check_message_keys(schedule)
    check_outputs(schedule, named)
    check_steps(schedule)


@lru_cache(maxsize=16)
def _typed_fields(cls: type) -> tuple[tuple[str, type], ...]:
    return tuple((f.name, _TYPES.get(str(f.type), tuple)) for f in fields(cls))


def check_types(schedule: Schedule) -> None:
    """Every field has the type its class declares; a schedule is read from a file that anyone can write."""
    rows: list[tuple[Any, type]] = [(schedule, Schedule)]
    parts: tuple[tuple[type, tuple[Any, ...]], ...] = (
        (Buffer, schedule.buffers), (Launch, schedule.launches), (Message, schedule.messages),
        (Reduction, schedule.reductions), (Step, schedule.steps), (Output, schedule.outputs))
    for cls, part in parts:
        rows += [(row, cls) for row in part]
    rows += [(a, Argument) for launch in schedule.launches for a in launch.arguments]
    rows += [(p, Parcel) for message in schedule.messages for p in message.parcels]
    for row, cls in rows:
        for name, kind in _typed_fields(cls):
            value = getattr(row, name)
            if type(value) is not kind:
                raise ScheduleError(f"rank {schedule.rank}: {cls.__name__}.{name} is {value!r}, not {kind.__name__}")


def check_joints(s: Schedule) -> None:
    """What lies inside a joint buffer are messages of one direction, disjoint; only kernels use the whole."""
    named = {b.name: b for b in s.buffers}
    for name, inside in members(s).items():
        where = f"rank {s.rank}, joint buffer {name!r}"
        if name not in named or named[name].kind != "joint" or named[name].inside or named[name].offset:
            raise ScheduleError(f"{where} is none")
        kinds = {b.kind for b in inside}
        if kinds not in ({"send"}, {"recv"}):
            raise ScheduleError(f"{where} holds buffers of kinds {', '.join(sorted(kinds)) or 'none'}")
        check_disjoint(where, named[name].nbytes, [(b.name, b.offset, b.nbytes) for b in inside])


def check_header(s: Schedule) -> None:
    if s.staging not in STAGINGS:
        raise ScheduleError(f"rank {s.rank}: staging {s.staging!r} is none of {', '.join(STAGINGS)}")
    if s.batches < 0 or not 0 <= s.parts <= s.batches + 1:
        raise ScheduleError(f"rank {s.rank} has {s.parts} parts for {s.batches} batches, expected at most one more")
    if not 0 <= s.live_nbytes <= s.arena_nbytes:
        raise ScheduleError(f"rank {s.rank}: {s.live_nbytes} live bytes in an arena of {s.arena_nbytes}")


def check_buffers(s: Schedule) -> None:
    twice = [name for name, n in Counter(b.name for b in s.buffers).items() if n > 1 or not name]
    if twice:
        raise ScheduleError(f"rank {s.rank}: buffer name {twice[0]!r} is empty or used twice")
    for b in s.buffers:
        if b.kind not in BUFFER_KINDS:
            raise ScheduleError(f"rank {s.rank}: buffer {b.name!r} has unknown kind {b.kind!r}")
        if b.nbytes < 0 or b.offset < 0 or (b.offset and b.kind != "temporary"):
            raise ScheduleError(f"rank {s.rank}: {b.kind} buffer {b.name!r} has {b.nbytes} bytes at offset {b.offset}")
        if b.kind == "temporary" and b.offset + b.nbytes > s.arena_nbytes:
            raise ScheduleError(f"rank {s.rank}: temporary {b.name!r} ends at byte {b.offset + b.nbytes}, "
                                f"outside the arena of {s.arena_nbytes}")


def check_launch(s: Schedule, named: Mapping[str, Buffer], number: int, launch: Launch) -> None:
    """Arguments exist, may be accessed so and are aligned; work sizes are what OpenCL accepts."""
    where = f"rank {s.rank}, launch {number} (kernel {launch.name!r})"
    if not 0 <= launch.part <= s.batches:
        raise ScheduleError(f"{where}: part {launch.part} is outside 0 to {s.batches}")
    whole, local = launch.global_size, launch.local_size
    if not (1 <= len(whole) <= 3 and len(local) in (0, len(whole)) and _naturals((*whole, *local), least=1)
            and all(g % n == 0 for g, n in zip(whole, local, strict=False))):
        raise ScheduleError(f"{where}: work sizes {whole} and {local} are not positive multiples in 1 to 3 axes")
    counts = launch.bytes_read, launch.bytes_written, launch.flops, launch.local_bytes, launch.identity_copies
    if not _naturals(counts):
        raise ScheduleError(f"{where}: a count of bytes, flops or copies is negative")
    for dtype, value in launch.parameters:
        if dtype not in PARAMETERS or type(value) is not int or not -PARAMETERS[dtype] <= value < PARAMETERS[dtype]:
            raise ScheduleError(f"{where}: parameter {value!r} is no {dtype!r} integer")
    in_place = {o.buffer for o in s.outputs}
    for a in launch.arguments:
        b = _buffer(where, named, a.buffer)
        if a.mode not in ("r", "w", "n"):
            raise ScheduleError(f"{where}: buffer {b.name!r} is accessed as {a.mode!r}, none of 'r', 'w', 'n'")
        if a.mode == "n" and (b.kind != "recv" or not launch.early):
            raise ScheduleError(f"{where} is no early launch that leaves out a message, but does not touch {b.name!r}")
        if a.by_value:
            _check_value(where, b, a)
        elif a.mode == "w" and b.kind not in WRITABLE and not (b.kind == "input" and b.name in in_place):
            raise ScheduleError(f"{where} writes {b.kind} buffer {b.name!r}")
        if b.offset % itemsize(a.dtype) or 0 < b.nbytes < itemsize(a.dtype):
            raise ScheduleError(f"{where}: {b.nbytes} bytes at {b.offset}, buffer {b.name!r}, are no {a.dtype} array")


def _check_value(where: str, b: Buffer, a: Argument) -> None:
    if a.mode != "r" or b.kind not in BY_VALUE:
        raise ScheduleError(f"{where} passes {b.kind} buffer {b.name!r} by value, mode {a.mode!r}")
    if a.element < 0 or (a.element + 1) * itemsize(a.dtype) > b.nbytes:
        raise ScheduleError(f"{where} passes element {a.element} of {a.dtype} in {b.nbytes} bytes of {b.name!r}")


def check_message(s: Schedule, named: Mapping[str, Buffer], number: int, m: Message) -> None:
    """Peer, tag and batch are in range; the parcels are aligned, disjoint and inside the message."""
    where = f"rank {s.rank}, message {number} {'to' if m.outgoing else 'from'} rank {m.peer}, buffer {m.buffer!r}"
    if not 0 <= m.peer < s.size or m.peer == s.rank:
        raise ScheduleError(f"{where}: the peer is not another rank of {s.size}")
    if not 0 <= m.tag <= MAX_TAG:
        raise ScheduleError(f"{where}: tag {m.tag} is outside 0 to {MAX_TAG}")
    if not 0 <= m.batch < s.batches:
        raise ScheduleError(f"{where}: batch {m.batch} is outside 0 to {s.batches - 1}")
    b, kind = _buffer(where, named, m.buffer), "send" if m.outgoing else "recv"
    if b.kind != kind or not 0 <= m.nbytes <= b.nbytes:
        raise ScheduleError(f"{where}: {m.nbytes} bytes in a {b.kind} buffer of {b.nbytes}, expected a {kind} buffer")
    for p in m.parcels:
        if not _naturals(p.shape) or p.offset < 0 or p.offset % itemsize(p.dtype):
            raise ScheduleError(f"{where}: parcel {p.array!r} of {p.dtype}{p.shape} is misplaced at {p.offset}")
    check_disjoint(where, m.nbytes, [(p.array, p.offset, prod(p.shape) * itemsize(p.dtype)) for p in m.parcels])


def check_reduction(s: Schedule, named: Mapping[str, Buffer], number: int, r: Reduction) -> None:
    where = f"rank {s.rank}, reduction {number}, buffer {r.buffer!r}"
    if r.op not in REDUCE_OPS:
        raise ScheduleError(f"{where}: operator {r.op!r} is none of {', '.join(REDUCE_OPS)}")
    if not 0 <= r.batch < s.batches:
        raise ScheduleError(f"{where}: batch {r.batch} is outside 0 to {s.batches - 1}")
    b = _buffer(where, named, r.buffer)
    if b.kind != "reduce" or r.count < 0 or r.count * itemsize(r.dtype) > b.nbytes:
        raise ScheduleError(f"{where}: {r.count} {r.dtype} values in a {b.kind} buffer of {b.nbytes} bytes")
    if not all(len(v) == 3 and isinstance(v[0], str) and type(v[1]) is int and _naturals(v[2]) for v in r.values):
        raise ScheduleError(f"{where}: values {r.values} are not (name, first element, shape)")
    check_disjoint(where, r.count, [(name, first, prod(shape)) for name, first, shape in r.values])


def check_disjoint(where: str, total: int, spans: Sequence[tuple[str, int, int]]) -> None:
    """(name, first, length): all inside [0, total), no two overlap; empty ones overlap nothing."""
    for name, first, length in spans:
        if first < 0 or first + length > total:
            raise ScheduleError(f"{where}: {name!r} covers {first} to {first + length}, outside 0 to {total}")
    for (a, first, length), (b, start, _) in pairwise(sorted((s for s in spans if s[2]), key=lambda s: s[1])):
        if first + length > start:
            raise ScheduleError(f"{where}: {a!r} and {b!r} overlap at {start}")


def check_own_buffers(s: Schedule) -> None:
    """Every message and reduction has a buffer of its own, so their states never mix."""
    users = Counter([m.buffer for m in s.messages] + [r.buffer for r in s.reductions])
    if users and users.most_common(1)[0][1] > 1:
        raise ScheduleError(f"rank {s.rank}: two messages or reductions share buffer {users.most_common(1)[0][0]!r}")


def check_message_keys(s: Schedule) -> None:
    """One message per peer, direction and batch; no tag twice between two ranks, so none is matched wrongly."""
    for what, keys in (("message in batch", [(m.outgoing, m.peer, m.batch) for m in s.messages]),
                       ("message with tag", [(m.outgoing, m.peer, m.tag) for m in s.messages])):
        for (outgoing, peer, value), n in Counter(keys).items():
            if n > 1:
                way = "to" if outgoing else "from"
                raise ScheduleError(f"rank {s.rank} has more than one {what} {value} {way} rank {peer}")


def check_outputs(s: Schedule, named: Mapping[str, Buffer]) -> None:
    for path, n in Counter(o.path for o in s.outputs).items():
        if n > 1:
            raise ScheduleError(f"rank {s.rank} has two outputs {path!r}")
    for o in s.outputs:
        where = f"rank {s.rank}, output {o.path!r}"
        b = _buffer(where, named, o.buffer)
        if b.kind not in RETURNABLE:
            raise ScheduleError(f"{where} lies in {b.kind} buffer {b.name!r}, which does not outlive the call")
        if not _naturals(o.shape) or o.offset % itemsize(o.dtype):
            raise ScheduleError(f"{where}: {o.dtype}{o.shape} is misplaced at {o.offset} in buffer {b.name!r}")
        check_disjoint(f"{where}, buffer {b.name!r}", b.nbytes, [(o.path, o.offset, prod(o.shape) * itemsize(o.dtype))])


def check_steps(s: Schedule) -> None:
    """Steps exist, and each message, launch and reduction takes each of its steps once, in order."""
    at: dict[tuple[str, int], int] = {}
    limits = {"launch": len(s.launches), "reduce": len(s.reductions)}
    for number, step in enumerate(s.steps):
        if step.op not in OPS or not 0 <= step.index < limits.get(step.op, len(s.messages)):
            raise ScheduleError(f"rank {s.rank}, step {number}: there is no {step.op!r} {step.index}")
        if step.op in OUTGOING + INCOMING and (step.op in OUTGOING) != s.messages[step.index].outgoing:
            raise ScheduleError(f"{name_step(s, number)} goes the wrong way")
        first = at.setdefault((step.op, step.index), number)
        if first != number:
            raise ScheduleError(f"{name_step(s, number)} repeats step {first}")
    for number, m in enumerate(s.messages):
        _check_order(s, number, m, at)
    for op, limit in limits.items():
        for number in range(limit):
            if (op, number) not in at:
                raise ScheduleError(f"rank {s.rank} never does {op} {number}")


def _check_order(s: Schedule, number: int, m: Message, at: Mapping[tuple[str, int], int]) -> None:
    """Outgoing: fetch, send, settle. Incoming: post, wait and, where kernels or callers read it, put."""
    ops = OUTGOING if m.outgoing else INCOMING
    found = [at.get((op, number), -1) for op in ops]
    needed = found if m.outgoing or found[2] >= 0 else found[:2]
    for op, place in zip(ops, needed, strict=False):
        if place < 0:
            way = "to" if m.outgoing else "from"
            raise ScheduleError(f"rank {s.rank} never does {op} of message {number} {way} rank {m.peer}, "
                                f"buffer {m.buffer!r}")
    for (op, place), (later, other) in pairwise(zip(ops, needed, strict=False)):
        if place > other:
            raise ScheduleError(f"{name_step(s, other)}: {later} comes before {op} at step {place}")


def _buffer(where: str, named: Mapping[str, Buffer], name: str) -> Buffer:
    if name not in named:
        raise ScheduleError(f"{where}: there is no buffer {name!r}")
    return named[name]


def _naturals(values: Any, least: int = 0) -> bool:
    return isinstance(values, tuple) and all(type(v) is int and v >= least for v in values)
