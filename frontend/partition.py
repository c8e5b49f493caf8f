"""Cut every rank's program into parts, joined by as few rounds of messages and collectives as possible.

A part computes what its level allows (`levels`) and no later part computes as well (`late`), stores what a later part
cannot recompute (`storage`, `cut`), and ends
with one message to each peer and one collective per operator and dtype. Inputs, constants, received arrays and results
of collectives are read in place by any part. Names in the result are the program's own: whoever reads an array looks
it up in `Partition.aliases` first.
"""

from __future__ import annotations

from collections.abc import Iterable

from aotato.frontend.dependences import allreduces, receives_by_key, sends_by_key
from aotato.frontend.ir import Lambda, Program, Programs
from aotato.frontend.late import Placed, placed
from aotato.frontend.levels import Levels, levels
from aotato.frontend.partition_checks import check_partition
from aotato.frontend.parts import Message, Parcel, Part, Partition, Reduction


def partition(programs: Programs) -> tuple[Partition, ...]:
    """The partition of every rank, proved by `check_partition`. `programs` has passed `check`."""
    found = levels(programs)
    messages = exchanges(programs, found)
    reductions = collectives(programs, found)

    outgoing: list[list[Message]] = [[] for _ in programs.ranks]
    incoming: list[list[Message]] = [[] for _ in programs.ranks]
    for message in messages:
        outgoing[message.source].append(message)
        incoming[message.dest].append(message)

    where = placed(programs, found)
    partitions = tuple(
        _rank(program, found.batches, where[rank], outgoing[rank], incoming[rank], reductions[rank])
        for rank, program in enumerate(programs.ranks)
    )
    check_partition(programs, partitions)
    return partitions


def exchanges(programs: Programs, found: Levels) -> list[Message]:
    """All messages between different ranks, sorted by batch, source and dest; parcels sorted by tag number."""
    receives = receives_by_key(programs)
    parcels: dict[tuple[int, int, int], list[Parcel]] = {}
    for (source, dest, tag), (send,) in sends_by_key(programs).items():
        if source != dest:
            ((received, _),) = receives[source, dest, tag]
            batch = found.arrays[source][send.array]
            parcels.setdefault((batch, source, dest), []).append(Parcel(send.array, received, tag))
    return [Message(*key, tuple(sorted(parcels[key], key=lambda parcel: parcel.tag))) for key in sorted(parcels)]


def collectives(programs: Programs, found: Levels) -> list[list[Reduction]]:
    """Each rank's reductions, one for each batch, operator and dtype, in the order of their first arrays."""
    result = []
    for calls in allreduces(programs):
        joined: dict[tuple[int, str, str], list[str]] = {}
        for batch, (name, call) in zip(found.collectives, calls, strict=True):
            joined.setdefault((batch, call.op, call.dtype.name), []).append(name)
        result.append([Reduction(*key, tuple(names)) for key, names in joined.items()])
    return result


def _rank(
    program: Program,
    batches: int,
    where: Placed,
    outgoing: list[Message],
    incoming: list[Message],
    reductions: list[Reduction],
) -> Partition:
    kept = set(where.stores)
    return Partition(
        program=program,
        parts=_parts(batches, [(where.part[name], name) for name in where.stores], outgoing, reductions),
        recvs=tuple(incoming),
        batches=batches,
        aliases=where.aliases,
        unstored_hints=tuple(name for name, node in program.of_type(Lambda) if node.stored and name not in kept),
    )


def _parts(
    batches: int, stores: Iterable[tuple[int, str]], sends: Iterable[Message], reductions: Iterable[Reduction]
) -> tuple[Part, ...]:
    """The parts with something to do; the first one where there is none, so that every rank has a part."""
    stored_in: list[list[str]] = [[] for _ in range(batches + 1)]
    sent_in: list[list[Message]] = [[] for _ in range(batches + 1)]
    reduced_in: list[list[Reduction]] = [[] for _ in range(batches + 1)]
    for part, name in stores:
        stored_in[part].append(name)
    for message in sends:
        sent_in[message.batch].append(message)
    for reduction in reductions:
        reduced_in[reduction.batch].append(reduction)
    parts = (
        Part(number, tuple(stored_in[number]), tuple(sent_in[number]), tuple(reduced_in[number]))
        for number in range(batches + 1)
    )
    return tuple(part for part in parts if part.stores or part.sends or part.reductions) or (Part(0, (), (), ()),)
