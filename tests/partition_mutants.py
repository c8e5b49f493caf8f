"""Ways to break a partition, or the partitioner itself, that invariants must find.

A mutant of a result takes the partitions of all ranks and returns broken ones, or None where there is nothing to
break. A mutant of the partitioner is a patch: the module, the name in it, and what stands there instead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from types import ModuleType
from typing import Any

from aotato.frontend import dependences, late, levels, storage
from aotato.frontend.expr import has_reduce
from aotato.frontend.ir import Allreduce, Input, Lambda, LoopyCall, Programs, Recv
from aotato.frontend.parts import Message, Part, Partition

Partitions = tuple[Partition, ...]
Change = Callable[[Partition], Partition]


def parts_of(found: Partition, change: Callable[[Part], Part]) -> Partition:
    return replace(found, parts=tuple(map(change, found.parts)))


def on_rank(partitions: Partitions, rank: int, change: Change) -> Partitions:
    return (*partitions[:rank], change(partitions[rank]), *partitions[rank + 1 :])


def changed(partitions: Partitions, rank: int, **fields: Any) -> Partitions:
    return on_rank(partitions, rank, lambda found: replace(found, **fields))


def messages(partitions: Partitions) -> Iterator[Message]:
    return (message for found in partitions for part in found.parts for message in part.sends)


def stores(partitions: Partitions) -> Iterator[tuple[Partition, Part, str]]:
    return ((found, part, name) for found in partitions for part in found.parts for name in part.stores)


def both_ends(partitions: Partitions, old: Message, new: Sequence[Message]) -> Partitions:
    """`old` replaced by `new` on both ranks, packed in the part of its batch."""

    def sending(found: Partition) -> Partition:
        def change(part: Part) -> Part:
            kept = [message for message in part.sends if message is not old]
            added = [message for message in new if message.batch == part.number]
            return replace(part, sends=tuple(sorted(kept + added, key=lambda message: message.dest)))

        numbers = {part.number for part in found.parts}
        fresh = tuple(Part(m.batch, (), (), ()) for m in new if m.batch not in numbers)
        parts = tuple(sorted(found.parts + fresh, key=lambda part: part.number))
        return parts_of(replace(found, parts=parts), change)

    def receiving(found: Partition) -> Partition:
        kept = [message for message in found.recvs if message is not old]
        return replace(found, recvs=tuple(sorted([*kept, *new], key=lambda m: (m.batch, m.source))))

    return on_rank(on_rank(partitions, old.source, sending), old.dest, receiving)


def move_store(partitions: Partitions, found: Partition, name: str, to: int | None) -> Partitions:
    """The store of `name` moved to part `to`, or dropped."""

    def change(part: Part) -> Part:
        kept = tuple(store for store in part.stores if store != name)
        return replace(part, stores=(*kept, name) if part.number == to else kept)

    numbers = [part.number for part in found.parts]
    parts = found.parts
    if to is not None and to not in numbers:
        parts = tuple(sorted([*parts, Part(to, (), (), ())], key=lambda part: part.number))
    return on_rank(partitions, found.program.rank, lambda f: parts_of(replace(f, parts=parts), change))


def message_dropped(partitions: Partitions) -> Partitions | None:
    for message in messages(partitions):
        return both_ends(partitions, message, [])
    return None


def parcels_swapped_at_receiver(partitions: Partitions) -> Partitions | None:
    for message in messages(partitions):
        if len(message.parcels) > 1:
            swapped = replace(message, parcels=message.parcels[::-1])
            recvs = tuple(swapped if recv is message else recv for recv in partitions[message.dest].recvs)
            return changed(partitions, message.dest, recvs=recvs)
    return None


def parcels_swapped_on_both_ends(partitions: Partitions) -> Partitions | None:
    for message in messages(partitions):
        if len(message.parcels) > 1:
            return both_ends(partitions, message, [replace(message, parcels=message.parcels[::-1])])
    return None


def tags_swapped(partitions: Partitions) -> Partitions | None:
    for message in messages(partitions):
        if len(message.parcels) > 1:
            first, second, *rest = message.parcels
            a = replace(first, received=second.received)
            b = replace(second, received=first.received)
            return both_ends(partitions, message, [replace(message, parcels=(a, b, *rest))])
    return None


def message_split(partitions: Partitions) -> Partitions | None:
    for message in messages(partitions):
        if len(message.parcels) > 1:
            halves = [replace(message, parcels=message.parcels[:1]), replace(message, parcels=message.parcels[1:])]
            return both_ends(partitions, message, halves)
    return None


def parcel_doubled(partitions: Partitions) -> Partitions | None:
    for message in messages(partitions):
        return both_ends(partitions, message, [replace(message, parcels=message.parcels[:1] + message.parcels)])
    return None


def message_a_part_too_early(partitions: Partitions) -> Partitions | None:
    for message in messages(partitions):
        free = all(
            (m.source, m.dest, m.batch + 1) != (message.source, message.dest, message.batch)
            for m in messages(partitions)
        )
        if message.batch > 0 and free:
            return both_ends(partitions, message, [replace(message, batch=message.batch - 1)])
    return None


def message_a_part_too_late(partitions: Partitions) -> Partitions | None:
    for message in messages(partitions):
        free = all(
            (m.source, m.dest, m.batch - 1) != (message.source, message.dest, message.batch)
            for m in messages(partitions)
        )
        if message.batch + 1 < partitions[0].batches and free:
            return both_ends(partitions, message, [replace(message, batch=message.batch + 1)])
    return None


def message_never_received(partitions: Partitions) -> Partitions | None:
    for found in partitions:
        if found.recvs:
            return on_rank(partitions, found.program.rank, lambda f: replace(f, recvs=f.recvs[1:]))
    return None


def output_not_stored(partitions: Partitions) -> Partitions | None:
    for found, _, name in stores(partitions):
        if name in [found.aliases.get(output.array, output.array) for output in found.program.outputs]:
            return move_store(partitions, found, name, None)
    return None


def reduction_not_stored(partitions: Partitions) -> Partitions | None:
    for found, _, name in stores(partitions):
        if name not in [found.aliases.get(output.array, output.array) for output in found.program.outputs]:
            return move_store(partitions, found, name, None)
    return None


def stored_a_part_too_early(partitions: Partitions) -> Partitions | None:
    for found, part, name in stores(partitions):
        if part.number > 0:
            return move_store(partitions, found, name, part.number - 1)
    return None


def stored_a_part_too_late(partitions: Partitions) -> Partitions | None:
    for found, part, name in stores(partitions):
        if part.number < found.batches:
            return move_store(partitions, found, name, part.number + 1)
    return None


def _also_stored(partitions: Partitions, kind: type) -> Partitions | None:
    for found in partitions:
        kept = [name for part in found.parts for name in part.stores]
        for name, _ in found.program.of_type(kind):
            if name not in kept:
                first = found.parts[0]
                parts = (replace(first, stores=(*first.stores, name)), *found.parts[1:])
                return changed(partitions, found.program.rank, parts=parts)
    return None


def input_stored(partitions: Partitions) -> Partitions | None:
    return _also_stored(partitions, Input)


def received_array_stored(partitions: Partitions) -> Partitions | None:
    return _also_stored(partitions, Recv)


def more_stored_than_needed(partitions: Partitions) -> Partitions | None:
    return _also_stored(partitions, Lambda)


def one_batch_more(partitions: Partitions) -> Partitions | None:
    return tuple(replace(found, batches=found.batches + 1) for found in partitions)


def one_batch_less(partitions: Partitions) -> Partitions | None:
    return tuple(replace(found, batches=found.batches - 1) for found in partitions)


def alias_lost(partitions: Partitions) -> Partitions | None:
    for found in partitions:
        for name in found.aliases:
            rest = {other: array for other, array in found.aliases.items() if other != name}
            return changed(partitions, found.program.rank, aliases=rest)
    return None


def alias_of_another_array(partitions: Partitions) -> Partitions | None:
    for found in partitions:
        for name, array in found.aliases.items():
            for other in found.program.arrays:
                if other != array and other not in found.aliases:
                    wrong = {**found.aliases, name: other}
                    return changed(partitions, found.program.rank, aliases=wrong)
    return None


def collective_missing_on_a_rank(partitions: Partitions) -> Partitions | None:
    found = partitions[-1]
    if not any(part.reductions for part in found.parts):
        return None
    return on_rank(partitions, found.program.rank, lambda f: parts_of(f, lambda part: replace(part, reductions=())))


def collectives_in_another_order(partitions: Partitions) -> Partitions | None:
    if len(partitions) == 1 or not any(len(part.reductions) > 1 for part in partitions[-1].parts):
        return None
    return on_rank(
        partitions,
        len(partitions) - 1,
        lambda found: parts_of(found, lambda part: replace(part, reductions=part.reductions[::-1])),
    )


def results_swapped_in_collective(partitions: Partitions) -> Partitions | None:
    if len(partitions) == 1 or not any(len(r.results) > 1 for part in partitions[-1].parts for r in part.reductions):
        return None

    def change(part: Part) -> Part:
        return replace(part, reductions=tuple(replace(r, results=r.results[::-1]) for r in part.reductions))

    return on_rank(partitions, len(partitions) - 1, lambda found: parts_of(found, change))


def idle_part(partitions: Partitions) -> Partitions | None:
    found = partitions[0]
    numbers = [part.number for part in found.parts]
    for number in range(found.batches + 1):
        if number not in numbers:
            parts = tuple(sorted([*found.parts, Part(number, (), (), ())], key=lambda part: part.number))
            return changed(partitions, 0, parts=parts)
    return None


RESULTS: tuple[Callable[[Partitions], Partitions | None], ...] = (
    message_dropped,
    parcels_swapped_at_receiver,
    parcels_swapped_on_both_ends,
    tags_swapped,
    message_split,
    parcel_doubled,
    message_a_part_too_early,
    message_a_part_too_late,
    message_never_received,
    output_not_stored,
    reduction_not_stored,
    stored_a_part_too_early,
    stored_a_part_too_late,
    input_stored,
    received_array_stored,
    more_stored_than_needed,
    one_batch_more,
    one_batch_less,
    alias_lost,
    alias_of_another_array,
    collective_missing_on_a_rank,
    collectives_in_another_order,
    results_swapped_in_collective,
    idle_part,
)


def _receives_wait_for_nothing(programs: Programs) -> dependences.Dependences:
    graph = dependences.dependences(programs)
    nodes = [programs.ranks[rank].arrays[name] for rank, name in graph.arrays]
    before = tuple(() if isinstance(node, Recv) else below for node, below in zip(nodes, graph.before, strict=False))
    return replace(graph, before=before + graph.before[len(nodes) :])


def _rounds_take_no_time(kind: type) -> Callable[[Programs], dependences.Dependences]:
    def mutant(programs: Programs) -> dependences.Dependences:
        graph = dependences.dependences(programs)
        nodes = [programs.ranks[rank].arrays[name] for rank, name in graph.arrays]
        rounds = [0 if isinstance(node, kind) else n for node, n in zip(nodes, graph.rounds, strict=False)]
        return replace(graph, rounds=(*rounds, *graph.rounds[len(nodes) :]))

    return mutant


def _self_sends_take_a_round(programs: Programs) -> dependences.Dependences:
    graph = dependences.dependences(programs)
    nodes = [programs.ranks[rank].arrays[name] for rank, name in graph.arrays]
    rounds = [1 if isinstance(node, Recv) else n for node, n in zip(nodes, graph.rounds, strict=False)]
    return replace(graph, rounds=(*rounds, *graph.rounds[len(nodes) :]))


def _own_collectives(programs: Programs) -> dependences.Dependences:
    """Collectives wait for rank 0 only."""
    graph = dependences.dependences(programs)
    before = tuple(below[:1] if node in graph.collectives else below for node, below in enumerate(graph.before))
    return replace(graph, before=before)


def _largest_cut(weights: Any, readers: Any, costly: Any, needed: Any) -> tuple[str, ...]:
    return tuple(weights)


def _store_readers(weights: Any, readers: Any, costly: Any, needed: Any) -> tuple[str, ...]:
    """Store whatever is read later, also where it is elementwise."""
    return tuple(needed)


def _only_outputs(program: Any, level: Any, alias: Any) -> tuple[str, ...]:
    return tuple(name for name, _ in program.of_type(Lambda) if name in {output.array for output in program.outputs})


PATCHES: dict[str, tuple[ModuleType, str, Any]] = {
    "dropped dependency: receives wait for nothing": (levels, "dependences", _receives_wait_for_nothing),
    "messages take no round": (levels, "dependences", _rounds_take_no_time(Recv)),
    "collectives take no round": (levels, "dependences", _rounds_take_no_time(Allreduce)),
    "self-sends take a round": (levels, "dependences", _self_sends_take_a_round),
    "collectives wait for one rank": (levels, "dependences", _own_collectives),
    "reductions are taken for elementwise": (storage, "is_costly", lambda node: isinstance(node, LoopyCall)),
    "calls are taken for elementwise": (
        storage, "is_costly", lambda node: isinstance(node, Lambda) and has_reduce(node.expr)
    ),
    "everything that might be is stored": (storage, "cut", _largest_cut),
    "whatever is read later is stored": (storage, "cut", _store_readers),
    "nothing is stored for later parts": (storage, "cut", lambda *arguments: ()),
    "only outputs are stored, aliases forgotten": (late, "stored", _only_outputs),
    "aliases forgotten": (late, "aliases", lambda program: {}),
    "arrays that nothing needs are taken for live": (storage, "live", lambda p, alias: dict(p.arrays)),
}
