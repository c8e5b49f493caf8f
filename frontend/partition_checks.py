"""Prove that partitions of all ranks compute what their programs say, with as few rounds as possible.

One function an invariant: here those of messages, collectives and batches, in `part_checks` those of what parts
compute and store. They look at programs and partitions only, never at how the partitions were found.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from aotato.frontend.cones import computed
from aotato.frontend.invariant import hold
from aotato.frontend.ir import Allreduce, Programs, Recv, is_costly, operands
from aotato.frontend.late import can_wait
from aotato.frontend.part_checks import (
    check_needs,
    check_outputs,
    check_reductions_once,
    check_stores,
    check_stores_have_reasons,
)
from aotato.frontend.parts import Message, Partition, Reduction


def check_partition(programs: Programs, partitions: Sequence[Partition]) -> None:
    """Raise InvalidPartition at the first invariant that does not hold."""
    check_ranks(programs, partitions)
    for found in partitions:
        check_parts(found)
        check_aliases(found)
        check_recvs_sorted(found)
    check_ends_agree(partitions)
    check_one_message(partitions)
    for found in partitions:
        check_sends_packed_once(found)
        check_recvs_arrive_once(found)
        check_parcel_order(found)
        check_reductions_called_once(found)
    check_collectives_agree(partitions)
    for found in partitions:
        check_stores(found)
        check_outputs(found)
        check_needs(found)
        check_stores_have_reasons(found)
        check_reductions_once(found)
    rounds = chains(partitions)
    check_batches_minimal(partitions, rounds)
    for found in partitions:
        check_nothing_held_back(found, rounds[found.program.rank])


def check_ranks(programs: Programs, partitions: Sequence[Partition]) -> None:
    """One partition a rank, in order, of the same programs, with the same number of batches."""
    hold(len(partitions) == programs.size, "{} partitions for {} ranks", len(partitions), programs.size)
    for program, found in zip(programs.ranks, partitions, strict=True):
        hold(found.program is program, "rank {} has a partition of another program", program.rank)
        hold(
            found.batches == partitions[0].batches,
            "rank {} has {} batches, but rank 0 has {}",
            program.rank,
            found.batches,
            partitions[0].batches,
        )


def check_parts(found: Partition) -> None:
    """At most batches + 1 parts, in order, none idle (unless it is the only one), all they hold in their batch."""
    rank = found.program.rank
    numbers = [part.number for part in found.parts]
    hold(bool(numbers), "rank {} has no part", rank)
    hold(numbers == sorted(set(numbers)), "rank {} has parts {}", rank, numbers)
    hold(
        numbers[0] >= 0 and numbers[-1] <= found.batches, "rank {}, {} batches: parts {}", rank, found.batches, numbers
    )
    for part in found.parts:
        busy = part.stores or part.sends or part.reductions
        hold(bool(busy) or len(numbers) == 1, "rank {} has nothing to do in part {}", rank, part.number)
        joins: tuple[Message | Reduction, ...] = (*part.sends, *part.reductions)
        for joined in joins:
            hold(joined.batch == part.number, "rank {} starts batch {} in part {}", rank, joined.batch, part.number)
            hold(joined.batch < found.batches, "rank {} starts batch {} of {}", rank, joined.batch, found.batches)


def check_aliases(found: Partition) -> None:
    """Exactly the Recvs from the rank itself are aliases, each of the array that the rank sends itself."""
    program = found.program
    own = {name: recv for name, recv in program.of_type(Recv) if recv.source == program.rank}
    hold(
        list(found.aliases) == list(own), "rank {} has aliases {}, not {}", program.rank, list(found.aliases), list(own)
    )
    sent = {send.tag: send.array for send in program.sends if send.dest == program.rank}
    for name, recv in own.items():
        array = sent[recv.tag]
        hold(
            found.aliases[name] == found.aliases.get(array, array) and found.aliases[name] not in own,
            "rank {}: {!r} is an alias of {!r}, but {!r} is sent",
            program.rank,
            name,
            found.aliases[name],
            array,
        )


def check_recvs_sorted(found: Partition) -> None:
    """Messages that arrive are sorted by batch and source, those that leave by dest."""
    rank = found.program.rank
    arriving = [(message.batch, message.source) for message in found.recvs]
    hold(arriving == sorted(arriving), "rank {} receives in the order {}", rank, arriving)
    for part in found.parts:
        leaving = [message.dest for message in part.sends]
        hold(leaving == sorted(leaving), "rank {} sends in part {} in the order {}", rank, part.number, leaving)


def check_ends_agree(partitions: Sequence[Partition]) -> None:
    """Every message that leaves a rank arrives with the same parcels in the same order, and no other does."""
    leaving = {_ends(message): message for found in partitions for message in _sent(found)}
    arriving = {_ends(message): message for found in partitions for message in found.recvs}
    for found in partitions:
        for message in _sent(found):
            hold(message.source == found.program.rank, "rank {} sends {}", found.program.rank, message)
            hold(arriving.get(_ends(message)) == message, "{} arrives as {}", message, arriving.get(_ends(message)))
        for message in found.recvs:
            hold(message.dest == found.program.rank, "rank {} receives {}", found.program.rank, message)
            hold(leaving.get(_ends(message)) == message, "{} leaves as {}", message, leaving.get(_ends(message)))


def check_one_message(partitions: Sequence[Partition]) -> None:
    """At most one message for each batch, source and dest, never empty, never to the rank itself."""
    for found in partitions:
        for messages in (list(_sent(found)), found.recvs):
            ends = [_ends(message) for message in messages]
            hold(len(ends) == len(set(ends)), "rank {} has several messages in one batch: {}", found.program.rank, ends)
            for message in messages:
                hold(bool(message.parcels), "empty {}", message)
                hold(message.source != message.dest, "rank {} sends itself {}", message.source, message)


def check_sends_packed_once(found: Partition) -> None:
    """The parcels that leave a rank are its sends to others, each once, under its own tag."""
    program = found.program
    packed = [(message.dest, parcel.tag, parcel.sent) for message in _sent(found) for parcel in message.parcels]
    wanted = [(send.dest, send.tag, send.array) for send in program.sends if send.dest != program.rank]
    hold(sorted(packed) == sorted(wanted), "rank {} packs {}, not {}", program.rank, sorted(packed), sorted(wanted))


def check_recvs_arrive_once(found: Partition) -> None:
    """The parcels that arrive at a rank are its Recvs from others, each once, under its own tag."""
    program = found.program
    unpacked = [(message.source, parcel.tag, parcel.received) for message in found.recvs for parcel in message.parcels]
    recvs = program.of_type(Recv)
    wanted = [(recv.source, recv.tag, name) for name, recv in recvs if recv.source != program.rank]
    hold(
        sorted(unpacked) == sorted(wanted), "rank {} unpacks {}, not {}", program.rank, sorted(unpacked), sorted(wanted)
    )


def check_parcel_order(found: Partition) -> None:
    """Parcels lie in their message by ascending tag number."""
    for message in found.recvs:
        tags = [parcel.tag for parcel in message.parcels]
        hold(tags == sorted(set(tags)), "parcels out of order in {}", message)


def check_reductions_called_once(found: Partition) -> None:
    """Each Allreduce is in exactly one collective, of its own operator and dtype; a batch has no two of a kind."""
    program = found.program
    called: list[str] = []
    for part in found.parts:
        kinds = [(reduction.op, reduction.dtype) for reduction in part.reductions]
        hold(len(kinds) == len(set(kinds)), "rank {} reduces {} in batch {}", program.rank, kinds, part.number)
        for reduction in part.reductions:
            for name in reduction.results:
                node = program.arrays[name]
                same = isinstance(node, Allreduce) and (node.op, node.dtype.name) == (reduction.op, reduction.dtype)
                hold(same, "rank {} reduces {!r} in {}", program.rank, name, reduction)
                called.append(name)
    wanted = [name for name, _ in program.of_type(Allreduce)]
    hold(sorted(called) == sorted(wanted), "rank {} reduces {}, not {}", program.rank, called, wanted)


def check_collectives_agree(partitions: Sequence[Partition]) -> None:
    """All ranks call the same collectives in the same batches and order, over the same Allreduces by number."""

    def calls(found: Partition) -> list[tuple[int, str, str, list[int]]]:
        number = {name: k for k, (name, _) in enumerate(found.program.of_type(Allreduce))}
        return [
            (reduction.batch, reduction.op, reduction.dtype, [number[name] for name in reduction.results])
            for part in found.parts
            for reduction in part.reductions
        ]

    first = calls(partitions[0])
    for found in partitions[1:]:
        hold(calls(found) == first, "rank {} calls {}, but rank 0 calls {}", found.program.rank, calls(found), first)


def check_batches_minimal(partitions: Sequence[Partition], rounds: Sequence[Mapping[str, int]]) -> None:
    """There are as many batches as the longest chain of rounds over all ranks has."""
    longest = max((count for counts in rounds for count in counts.values()), default=0)
    hold(longest == partitions[0].batches, "{} batches for a chain of {} rounds", partitions[0].batches, longest)


def check_nothing_held_back(found: Partition, rounds: Mapping[str, int]) -> None:
    """Messages, collectives, outputs, calls and long reductions come as early as their rounds allow."""
    program = found.program
    outputs = {found.aliases.get(output.array, output.array) for output in program.outputs}
    text = "rank {} has {!r} in part {}, but it waits for {} rounds"
    for part in found.parts:
        sent = [parcel.sent for message in part.sends for parcel in message.parcels]
        for name in (*(name for name in part.stores if name in outputs), *sent):
            hold(rounds[name] == part.number, text, program.rank, name, part.number, rounds[name])
        for name in (*part.stores, *computed(found, part)):
            hold(rounds[name] <= part.number, text, program.rank, name, part.number, rounds[name])
            if is_costly(program.arrays[name]) and not can_wait(program.arrays[name]):
                hold(rounds[name] == part.number, text, program.rank, name, part.number, rounds[name])
        late = "rank {} has the result {!r} of a reduction of part {}, but it waits for {} rounds"
        for name in (result for reduction in part.reductions for result in reduction.results):
            hold(rounds[name] == part.number + 1, late, program.rank, name, part.number, rounds[name])


def chains(partitions: Sequence[Partition]) -> list[dict[str, int]]:
    """The longest chain of rounds that each array of each rank waits for.

    Found by raising lower bounds until none changes, which takes one pass for each batch, or until there is a chain
    longer than the batches.
    """
    rounds: list[dict[str, int]] = [dict.fromkeys(found.program.arrays, 0) for found in partitions]
    sent_by = [
        {parcel.received: (message.source, parcel.sent) for message in found.recvs for parcel in message.parcels}
        for found in partitions
    ]
    calls = [list(found.program.of_type(Allreduce)) for found in partitions]
    changed = True
    while changed:
        changed = False
        joined = [
            1 + max(rounds[rank][calls[rank][k][1].operand] for rank in range(len(calls))) for k in range(len(calls[0]))
        ]
        for rank, found in enumerate(partitions):
            result = {name: bound for (name, _), bound in zip(calls[rank], joined, strict=True)}
            for name, node in found.program.arrays.items():
                if name in sent_by[rank]:
                    source, sent = sent_by[rank][name]
                    bound = 1 + rounds[source][sent]
                elif name in found.aliases:
                    bound = rounds[rank][found.aliases[name]]
                elif name in result:
                    bound = result[name]
                else:
                    bound = max((rounds[rank][below] for below in operands(node)), default=0)
                hold(bound <= found.batches, "{} batches for a chain of {} rounds", found.batches, bound)
                changed |= bound != rounds[rank][name]
                rounds[rank][name] = bound
    return rounds


def _sent(found: Partition) -> Iterator[Message]:
    return (message for part in found.parts for message in part.sends)


def _ends(message: Message) -> tuple[int, int, int]:
    return message.batch, message.source, message.dest
