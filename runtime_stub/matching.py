"""Matching over all ranks: every message has one other end that agrees, every collective is the same everywhere."""

from __future__ import annotations

from collections.abc import Sequence

from aotato.runtime_stub.form import ScheduleError, name_step
from aotato.runtime_stub.schedule import Message, Reduction, Schedule

Pair = tuple[int, int, int]  # source, destination, batch


def check_ranks(schedules: Sequence[Schedule]) -> None:
    """`schedules[r]` is rank r of one entry, target and number of batches."""
    if not schedules:
        raise ScheduleError("there are no ranks")
    first = schedules[0]
    for number, s in enumerate(schedules):
        if (s.rank, s.size) != (number, len(schedules)):
            raise ScheduleError(f"schedule {number} of {len(schedules)} says it is rank {s.rank} of {s.size}")
        for name in ("entry", "target", "batches"):
            here, there = getattr(s, name), getattr(first, name)
            if here != there:
                raise ScheduleError(f"rank {number} has {name} {here!r}, but rank 0 has {there!r}")


def check_messages(schedules: Sequence[Schedule]) -> None:
    """For each ordered pair of ranks and batch: one outgoing and one incoming message, equal in all that MPI moves."""
    sent, received = _ends(schedules, outgoing=True), _ends(schedules, outgoing=False)
    for pair in sorted(sent.keys() | received.keys()):
        source, dest, batch = pair
        if pair not in received:
            number, m = sent[pair]
            raise ScheduleError(f"rank {source} sends message {number} (batch {batch}, tag {m.tag}, buffer "
                                f"{m.buffer!r}) to rank {dest}, which has no receive for it")
        if pair not in sent:
            number, m = received[pair]
            raise ScheduleError(f"rank {dest} receives message {number} (batch {batch}, tag {m.tag}, buffer "
                                f"{m.buffer!r}) from rank {source}, which does not send it")
        (_, out), (_, into) = sent[pair], received[pair]
        for what, here, there in _differences(out, into):
            raise ScheduleError(f"rank {source} sends to rank {dest} in batch {batch} {what} {here} from buffer "
                                f"{out.buffer!r}, but rank {dest} expects {there} in buffer {into.buffer!r}")


def _ends(schedules: Sequence[Schedule], outgoing: bool) -> dict[Pair, tuple[int, Message]]:
    ends: dict[Pair, tuple[int, Message]] = {}
    for s in schedules:
        for number, m in enumerate(s.messages):
            if m.outgoing == outgoing:
                ends[(s.rank, m.peer, m.batch) if outgoing else (m.peer, s.rank, m.batch)] = number, m
    return ends


def _differences(out: Message, into: Message) -> list[tuple[str, object, object]]:
    """(what, sent, expected); the names of arrays may differ between ranks."""
    both = ("tag", out.tag, into.tag), ("bytes", out.nbytes, into.nbytes), ("parcels", _layout(out), _layout(into))
    return [(what, here, there) for what, here, there in both if here != there]


def _layout(m: Message) -> list[tuple[int, str, tuple[int, ...]]]:
    return [(p.offset, p.dtype, p.shape) for p in m.parcels]


def check_collectives(schedules: Sequence[Schedule]) -> None:
    """Every rank performs rank 0's sequence of collectives: operator, dtype, count, batch and layout of values."""
    first = _collectives(schedules[0])
    for s in schedules[1:]:
        here = _collectives(s)
        for turn, (mine, other) in enumerate(zip(here, first, strict=False)):
            if mine[1] != other[1]:
                raise ScheduleError(f"{name_step(s, mine[0])} reduces {mine[1]} as collective {turn}, but "
                                    f"{name_step(schedules[0], other[0])} reduces {other[1]}")
        if len(here) != len(first):
            raise ScheduleError(f"rank {s.rank} performs {len(here)} collectives, but rank 0 performs {len(first)}")


def _collectives(s: Schedule) -> list[tuple[int, tuple[object, ...]]]:
    """(step, what must agree), in the order of steps."""
    return [(n, _agreed(s.reductions[step.index])) for n, step in enumerate(s.steps) if step.op == "reduce"]


def _agreed(r: Reduction) -> tuple[object, ...]:
    return r.op, r.dtype, r.count, r.batch, tuple((first, shape) for _, first, shape in r.values)
