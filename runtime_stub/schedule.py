"""The static schedule of one entry on one rank: what a driver does, as data that can be proved and counted.

A schedule belongs to a target. It refers to buffers by name, to messages by number and to launches by number;
everything else a rank needs (peers, sizes, offsets) stands in the same object, so it can be simulated alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

BUFFER_KINDS = ("input", "const", "temporary", "output", "send", "recv", "reduce", "joint")

# What each operation promises; `simulate` proves schedules with exactly this, `binding` does at least this.
# Both queues are in order; "so far" includes earlier calls; nothing else is awaited between calls.
#
# post    message    host waits for the last reader so far of the buffer (mapped: a launch; copied: its `put`), then
#                    starts the receive: the network owns the host memory until `wait`
# launch  launch     compute queue waits for the last `put` or upload of every recv or reduce buffer among its arguments
# fetch   message    copied: copy down on the transfer queue, after the last launch that writes the buffer;
#                    mapped: complete when that launch is
# send    message    host waits for the message's `fetch`, then starts the send: the network reads until `settle`
# wait    message    completes the receive
# put     message    optional, after `wait`; copied: copy up on the transfer queue, after the last launch so far that
#                    reads the device buffer; mapped: nothing to do
# reduce  reduction  host waits for the last launch that writes the operands (copied: and the copy down), runs the
#                    collective, and makes the results readable
# settle  message    completes the send; under rendezvous it may wait for the peer's `post`
OPS = ("post", "launch", "fetch", "send", "wait", "put", "reduce", "settle")


@dataclass(frozen=True)
class Buffer:
    """Device memory known by name.

    A temporary is the byte range [offset, offset + nbytes) of the arena, and a message with `inside` that of the joint
    buffer of this name. A kernel that has a joint buffer as argument has all messages inside it.
    """

    name: str
    kind: str  # one of BUFFER_KINDS
    nbytes: int
    offset: int = 0  # bytes; temporaries and what lies inside a joint buffer
    source: str = ""  # input: its path; const: its digest; output: its path
    inside: str = ""

    @property
    def own_nbytes(self) -> int:
        """Bytes of device memory that no other buffer counts."""
        return 0 if self.inside or self.kind == "temporary" else self.nbytes


@dataclass(frozen=True)
class Argument:
    """A kernel argument: the buffer, read or written as `dtype`.

    With `by_value`, the host passes the 0-dimensional input or reduced value that lies in `buffer` instead of the
    buffer; `element` is its position there. With mode "n" the launch touches nothing in the buffer, as its emitter
    knows; other launches of the same kernel do.
    """

    buffer: str
    dtype: str
    mode: str  # "r", "w", "n"
    by_value: bool = False
    element: int = 0


@dataclass(frozen=True)
class Launch:
    """One enqueue of kernel `kernel` (a digest)."""

    kernel: str
    name: str
    part: int
    arguments: tuple[Argument, ...]
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    bytes_read: int  # compulsory: each distinct element once
    bytes_written: int
    flops: int
    local_bytes: int
    identity_copies: int = 0  # results that only duplicate an input, constant or received array
    parameters: tuple[tuple[str, int], ...] = ()  # (int32 or int64, value): integer arguments after all others
    early: bool = False  # runs while the messages before its part travel


@dataclass(frozen=True)
class Parcel:
    """One array inside a message, at a byte offset that is a multiple of its item size."""

    array: str
    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Message:
    """`outgoing`: to `peer`; otherwise from `peer`. The bytes lie in `buffer`."""

    batch: int
    peer: int
    outgoing: bool
    tag: int  # MPI tag, far below 32767
    nbytes: int
    buffer: str
    parcels: tuple[Parcel, ...]


@dataclass(frozen=True)
class Reduction:
    """One collective of a batch over all ranks, `count` values of `dtype` in `buffer`, reduced in place."""

    batch: int
    op: str
    dtype: str
    count: int
    buffer: str
    values: tuple[tuple[str, int, tuple[int, ...]], ...]  # result name, first element, shape


@dataclass(frozen=True)
class Step:
    op: str  # one of OPS
    index: int  # into launches, messages or reductions


@dataclass(frozen=True)
class Output:
    """Where the entry's output `path` lies after a call: `offset` bytes into `buffer`."""

    path: str
    buffer: str
    offset: int
    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class Schedule:
    entry: str
    rank: int
    size: int
    target: str
    staging: str  # "mapped": host and device share memory; "copied": through pinned host memory
    parts: int
    batches: int
    arena_nbytes: int
    live_nbytes: int
    buffers: tuple[Buffer, ...]
    launches: tuple[Launch, ...]
    messages: tuple[Message, ...]
    reductions: tuple[Reduction, ...]
    steps: tuple[Step, ...]
    outputs: tuple[Output, ...]
    untagged: tuple[str, ...] = ()  # temporaries that the user did not tag as stored

    def buffer(self, name: str) -> Buffer:
        return next(b for b in self.buffers if b.name == name)


def members(schedule: Schedule) -> dict[str, tuple[Buffer, ...]]:
    """The buffers inside each joint buffer."""
    found: dict[str, tuple[Buffer, ...]] = {b.name: () for b in schedule.buffers if b.kind == "joint"}
    for b in schedule.buffers:
        if b.inside:
            found[b.inside] = (*found.get(b.inside, ()), b)
    return found


def expanded(schedule: Schedule) -> Schedule:
    """The same schedule without joint buffers: a kernel's argument becomes one argument for each message inside."""
    inside = members(schedule)
    if not inside:
        return schedule

    def arguments(launch: Launch) -> tuple[Argument, ...]:
        return tuple(
            replace(a, buffer=name)
            for a in launch.arguments
            for name in ([b.name for b in inside[a.buffer]] if a.buffer in inside else [a.buffer])
        )

    apart = (replace(b, inside="", offset=0) if b.inside else b for b in schedule.buffers if b.kind != "joint")
    return replace(
        schedule,
        buffers=tuple(apart),
        launches=tuple(replace(launch, arguments=arguments(launch)) for launch in schedule.launches),
    )


def to_json(schedule: Schedule) -> dict[str, Any]:
    return asdict(schedule)


def from_json(data: Mapping[str, Any]) -> Schedule:
    """The inverse of `to_json`. Raises KeyError or TypeError on data of another form."""

    def many(cls: Any, rows: Sequence[Mapping[str, Any]], **nested: Any) -> tuple[Any, ...]:
        return tuple(cls(**{**{k: _tuples(v) for k, v in row.items()}, **{k: f(row) for k, f in nested.items()}})
                     for row in rows)

    return Schedule(
        **{k: _tuples(v) for k, v in data.items() if k not in _ROWS},
        buffers=many(Buffer, data["buffers"]),
        launches=many(Launch, data["launches"], arguments=lambda row: many(Argument, row["arguments"])),
        messages=many(Message, data["messages"], parcels=lambda row: many(Parcel, row["parcels"])),
        reductions=many(Reduction, data["reductions"]),
        steps=many(Step, data["steps"]),
        outputs=many(Output, data["outputs"]),
    )


_ROWS = ("buffers", "launches", "messages", "reductions", "steps", "outputs")


def _tuples(value: Any) -> Any:
    return tuple(_tuples(v) for v in value) if isinstance(value, list | tuple) else value
