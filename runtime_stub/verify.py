"""Prove a bundle again: for every entry and target, all ranks' schedules, as `aotato verify` does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Entry
from aotato.runtime_stub.schedule import Launch, Schedule
from aotato.runtime_stub.simulate import NO_CARRY, ScheduleError, prove

Signature = tuple[tuple[str, str, bool], ...]  # dtype, mode, by value


class Provable(Protocol):
    """What `verify` needs of `format.Bundle`. Opening it has checked every digest."""

    @property
    def entries(self) -> Mapping[str, Entry]: ...

    @property
    def targets(self) -> Mapping[str, Any]: ...

    @property
    def ranks(self) -> int: ...

    def schedule(self, entry: str, target: str, rank: int) -> Schedule: ...

    def kernel(self, digest: str) -> str: ...


def verify(bundle: Provable, carry: Mapping[str, Mapping[str, str]] | None = None) -> list[str]:
    """One line for each entry and target that was proved. Raises Refusal with a sentence for the first that fails.

    `carry[entry]` maps the entry's output paths to its own input paths that the plan feeds them back to.
    """
    lines = []
    kernels: dict[str, tuple[str, Signature]] = {}
    for entry in sorted(bundle.entries):
        for target in sorted(bundle.targets):
            where = f"entry {entry!r} for target {target!r}"
            try:
                schedules = _schedules(bundle, entry, target)
                prove(schedules, (carry or {}).get(entry, NO_CARRY))
                check_interface(bundle.entries[entry], schedules)
                check_signatures(schedules, where, kernels)
            except ScheduleError as error:
                raise Refusal(f"{where}: {error}; the bundle must be built again") from None
            lines.append(f"{where}: {_summary(schedules)}")
    for digest, (where, _) in kernels.items():
        _check_kernel(bundle, digest, where)
    return lines


def _schedules(bundle: Provable, entry: str, target: str) -> list[Schedule]:
    """All ranks' schedules, which must say themselves what they were asked for as."""
    schedules = []
    for rank in range(bundle.ranks):
        try:
            s = bundle.schedule(entry, target, rank)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ScheduleError(f"rank {rank} has no readable schedule ({type(error).__name__}: {error})") from None
        if (s.entry, s.target) != (entry, target):
            raise ScheduleError(f"rank {rank} has a schedule of entry {s.entry!r} for target {s.target!r}")
        schedules.append(s)
    return schedules


def check_interface(entry: Entry, schedules: Sequence[Schedule]) -> None:
    """A rank's schedule takes no inputs but the entry's, and leaves exactly its outputs, in their dtypes and shapes."""
    for s in schedules:
        inputs = {i.name for i in entry.inputs if i.present[s.rank]}
        for b in s.buffers:
            if b.kind == "input" and b.source not in inputs:
                raise ScheduleError(f"rank {s.rank}: buffer {b.name!r} holds {b.source!r}, no input of the entry")
        expected = {o.name: (o.dtype, o.shapes[s.rank]) for o in entry.outputs if o.present[s.rank]}
        found = {o.path: (o.dtype, o.shape) for o in s.outputs}
        for path in sorted(expected.keys() | found.keys()):
            if expected.get(path) != found.get(path):
                raise ScheduleError(f"rank {s.rank}: output {path!r} is {_array(expected.get(path))} by the entry, but "
                                    f"{_array(found.get(path))} in the schedule")


def _array(facts: tuple[str, tuple[int, ...]] | None) -> str:
    return f"{facts[0]}{list(facts[1])}" if facts else "missing"


def _check_kernel(bundle: Provable, digest: str, where: str) -> None:
    try:
        bundle.kernel(digest)
    except (KeyError, ValueError):
        raise Refusal(f"{where}: the bundle has no kernel {digest!r}; it must be built again") from None


def check_signatures(schedules: Sequence[Schedule], where: str, kernels: dict[str, tuple[str, Signature]]) -> None:
    """All launches of a kernel, in the whole bundle, pass arguments and parameters of the same dtypes and modes.

    `kernels` holds the first launch of each digest, in words, and its signature; new ones are added.
    """
    for s in schedules:
        for number, launch in enumerate(s.launches):
            found = _signature(launch)
            here = f"{where}, rank {s.rank}, launch {number}"
            there, expected = kernels.setdefault(launch.kernel, (here, found))
            if found != expected:
                raise ScheduleError(f"rank {s.rank}, launch {number} (kernel {launch.name!r}) passes {found}, "
                                    f"but the same kernel in {there} gets {expected}")


def _signature(launch: Launch) -> Signature:
    # What an early launch leaves alone, another reads
    arguments = tuple((a.dtype, "r" if a.mode == "n" else a.mode, a.by_value) for a in launch.arguments)
    return arguments + tuple((dtype, "r", True) for dtype, _ in launch.parameters)


def _summary(schedules: Sequence[Schedule]) -> str:
    launches = [len(s.launches) for s in schedules]
    sent = [m for s in schedules for m in s.messages if m.outgoing]
    text = (f"ranks {len(schedules)}, batches {schedules[0].batches}, launches {_spread(launches)} on a rank, "
            f"messages {len(sent)} with {sum(m.nbytes for m in sent)} bytes, "
            f"collectives {len(schedules[0].reductions)}")
    return f"{text}: matched; no stall with eager or rendezvous sends; no hazard over two calls"


def _spread(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low} to {high}"
