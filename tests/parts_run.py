"""Run partitions of all ranks in numpy, part by part, in any order that parts allow."""

from __future__ import annotations

import functools
import itertools
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from aotato.frontend.cones import computed, demands
from aotato.frontend.evaluate import evaluate
from aotato.frontend.ir import Const, Input, Lambda, LoopyCall, Program, Programs, operands
from aotato.frontend.opaque_run import run as run_kernel
from aotato.frontend.parts import Part, Partition
from aotato.frontend.values import Value

Array = np.ndarray[Any, Any]
Arrays = dict[str, Array]

JOINS: dict[str, Callable[[Any, Any], Any]] = {"sum": operator.add, "min": np.minimum, "max": np.maximum}


class NotThere(AssertionError):
    """A part reads what has not been computed, received or reduced, or no part can run."""


def element_values(node: Lambda, below: Sequence[Array]) -> Array:
    """All elements of `node` at once."""
    return evaluate(node, [Value(array, np.zeros(array.shape)) for array in below]).value


def reduce_ranks(op: str, parts: Sequence[Array]) -> Array:
    with np.errstate(all="ignore"):
        return np.asarray(functools.reduce(JOINS[op], parts), dtype=parts[0].dtype)


def execute(
    programs: Programs,
    partitions: Sequence[Partition],
    inputs: Sequence[Mapping[str, Array]],
    choose: Callable[[int], int],
    numbered: bool,
) -> list[Arrays]:
    """Every rank's outputs by path, parts being run one by one: `choose(n)` picks among the n that can run.

    A part can run once what it reads is there or, with `numbered`, once all earlier batches have completed.
    Only what `parts` says is kept between parts. Raises NotThere.
    """
    run = Run(partitions, [_given(program, inputs[program.rank]) for program in programs.ranks])
    waiting = [(found, part) for found in partitions for part in found.parts]
    while waiting:
        able = run.passed if numbered else run.readable
        ready = [(found, part) for found, part in waiting if able(found, part)]
        if not ready:
            raise NotThere(f"stall: {[(found.program.rank, part.number) for found, part in waiting]}")
        found, part = ready[choose(len(ready))]
        run.part(found, part)
        waiting = [other for other in waiting if other[0] is not found or other[1] is not part]
    return [{o.path: run.array(found, o.array) for o in found.program.outputs} for found in partitions]


class Run:
    """The memory of all ranks, and what they have posted."""

    def __init__(self, partitions: Sequence[Partition], memory: list[Arrays]) -> None:
        self.partitions = partitions
        self.memory = memory
        self.ran: set[tuple[int, int]] = set()
        self.arrived: set[tuple[int, int, int]] = set()
        self.posted: dict[tuple[int, str, str], dict[int, tuple[tuple[str, ...], list[Array]]]] = {}

    def array(self, found: Partition, name: str) -> Array:
        name = found.aliases.get(name, name)
        if name not in self.memory[found.program.rank]:
            raise NotThere(f"rank {found.program.rank} has no {name!r}")
        return self.memory[found.program.rank][name]

    def passed(self, found: Partition, part: Part) -> bool:
        rank = found.program.rank
        earlier = [other for other in found.parts if other.number < part.number]
        messages = [(message.batch, message.source, rank) for message in found.recvs if message.batch < part.number]
        calls = [(call.batch, call.op, call.dtype) for other in earlier for call in other.reductions]
        return (
            all((rank, other.number) in self.ran for other in earlier)
            and all(message in self.arrived for message in messages)
            and all(len(self.posted.get(call, ())) == len(self.partitions) for call in calls)
        )

    def readable(self, found: Partition, part: Part) -> bool:
        memory, inner = self.memory[found.program.rank], computed(found, part)
        below = [o for name in inner for o in operands(found.program.arrays[name])] + demands(found, part)
        names = (found.aliases.get(name, name) for name in below)
        return all(name in memory or name in inner for name in names)

    def part(self, found: Partition, part: Part) -> None:
        program, rank = found.program, found.program.rank
        memory, here = self.memory[rank], dict[str, Array]()
        inner = computed(found, part)

        def value(name: str) -> Array:
            name = found.aliases.get(name, name)
            node = program.arrays[name]
            if name not in here and name in inner:
                below = [value(operand) for operand in operands(node)]
                if isinstance(node, LoopyCall):
                    here[name] = run_kernel(program.kernels[node.kernel], below)[node.result]
                else:
                    assert isinstance(node, Lambda)
                    here[name] = element_values(node, below)
            return here[name] if name in here else self.array(found, name)

        packed = {(m.batch, rank, m.dest): [value(parcel.sent) for parcel in m.parcels] for m in part.sends}
        reduced = {
            (call.batch, call.op, call.dtype): (
                call.results,
                [value(operands(program.arrays[name])[0]) for name in call.results],
            )
            for call in part.reductions
        }
        memory.update({name: value(name) for name in part.stores})
        self.ran.add((rank, part.number))
        for ends, contents in packed.items():
            self._deliver(ends, contents)
        for kind, call in reduced.items():
            self._reduce(rank, kind, call)

    def _deliver(self, ends: tuple[int, int, int], contents: list[Array]) -> None:
        batch, source, dest = ends
        found = self.partitions[dest]
        matching = [m for m in found.recvs if (m.batch, m.source) == (batch, source)]
        if len(matching) != 1 or ends in self.arrived:
            raise NotThere(f"rank {dest} has {len(matching)} messages of batch {batch} from rank {source}")
        self.arrived.add(ends)
        for parcel, value in zip(matching[0].parcels, contents, strict=True):
            node = found.program.arrays[parcel.received]
            if (node.shape, node.dtype) != (value.shape, value.dtype):
                raise NotThere(f"rank {dest} unpacks {value.dtype}{value.shape} as {node.dtype}{node.shape}")
            self.memory[dest][parcel.received] = value

    def _reduce(self, rank: int, kind: tuple[int, str, str], call: tuple[tuple[str, ...], list[Array]]) -> None:
        ranks = self.posted.setdefault(kind, {})
        ranks[rank] = call
        if len(ranks) < len(self.partitions):
            return
        joined = [reduce_ranks(kind[1], values) for values in zip(*(ranks[r][1] for r in sorted(ranks)), strict=True)]
        for r, (results, _) in ranks.items():
            self.memory[r].update(zip(results, joined, strict=True))


def _given(program: Program, inputs: Mapping[str, Array]) -> Arrays:
    given = {name: inputs[node.path] for name, node in program.of_type(Input)}
    given.update((name, program.constants[node.digest]) for name, node in program.of_type(Const))
    return given


def orders(choices: Sequence[int]) -> Iterator[Callable[[int], int]]:
    """Ways to choose among n: always the first, always the last, and by `choices`."""
    yield lambda n: 0
    yield lambda n: n - 1
    cycle = itertools.cycle(choices or [0])
    yield lambda n: next(cycle) % n
