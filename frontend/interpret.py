"""Give programs their meaning: run all ranks in numpy with simulated messages, and bound what a device may return."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aotato.frontend import bounds
from aotato.frontend.evaluate import evaluate
from aotato.frontend.ir import (
    Allreduce,
    Const,
    Input,
    Lambda,
    LoopyCall,
    Program,
    Programs,
    Recv,
    operands,
    type_text,
)
from aotato.frontend.opaque_run import call
from aotato.frontend.reductions import extreme, stack
from aotato.frontend.values import Value, wide

__all__ = ["Value", "agrees", "assert_agrees", "evaluate", "run"]

Inputs = Mapping[str, Any]  # input path -> array


@dataclass
class _Rank:
    """How far one rank has come."""

    program: Program
    inputs: Inputs
    waiting: list[str]  # arrays without a value, in program order
    values: dict[str, Value] = field(default_factory=dict)
    calls: dict[tuple[str, tuple[str, ...]], Mapping[str, Value]] = field(default_factory=dict)  # by kernel, operands


@dataclass(frozen=True)
class _Job:
    """All ranks, and who sends what."""

    ranks: Sequence[_Rank]
    senders: Mapping[tuple[int, int, int], str]  # (source, dest, tag) -> the array on `source`
    tags: Sequence[str]

    def tag_text(self, tag: int) -> str:
        return self.tags[tag] if 0 <= tag < len(self.tags) else str(tag)


def run(programs: Programs, inputs: Sequence[Inputs]) -> tuple[dict[str, Value], ...]:
    """The outputs of every rank by path, when rank r is given `inputs[r]`.

    Allreduces match by their order in `Program.arrays`. Raises ValueError where an input is missing or of
    another type, or the two ends of a message differ, RuntimeError where ranks wait for what never comes, and
    what `evaluate` and `opaque_run.call` raise, with the rank and array put before the message.
    """
    if len(inputs) != programs.size:
        raise ValueError(f"there are {programs.size} ranks, but inputs for {len(inputs)}")
    ranks = [_Rank(p, given, list(p.arrays)) for p, given in zip(programs.ranks, inputs, strict=True)]
    job = _Job(ranks, _senders(programs), programs.tags)
    progress = True
    while progress:
        progress = False
        for rank in ranks:
            before = len(rank.waiting)
            rank.waiting = [name for name in rank.waiting if not _attempt(job, rank, name)]
            progress |= len(rank.waiting) < before
    if any(rank.waiting for rank in ranks):
        raise RuntimeError(_stuck(job))
    return tuple({out.path: rank.values[out.array] for out in rank.program.outputs} for rank in ranks)


def _senders(programs: Programs) -> dict[tuple[int, int, int], str]:
    found: dict[tuple[int, int, int], str] = {}
    for source, program in enumerate(programs.ranks):
        for send in program.sends:
            key = (source, send.dest, send.tag)
            if key in found:
                both = f"'{found[key]}' and '{send.array}'"
                raise ValueError(f"rank {source} sends both {both} to rank {send.dest} with tag number {send.tag}")
            found[key] = send.array
    return found


def _attempt(job: _Job, rank: _Rank, name: str) -> bool:
    """Give array `name` its value if everything it needs is there."""
    node = rank.program.arrays[name]
    if any(operand not in rank.values for operand in operands(node)):
        return False
    match node:
        case Input():
            value = _exact(_input_array(rank, node))
        case Const():
            value = _exact(rank.program.constants[node.digest])
        case Recv():
            sent = job.senders.get((node.source, rank.program.rank, node.tag))
            if sent is None or sent not in job.ranks[node.source].values:
                return False
            _check_message(job, rank, name, node, sent)
            value = job.ranks[node.source].values[sent]
        case Allreduce():
            terms = _contributions(job.ranks, rank, name, node)
            if terms is None:
                return False
            value = _allreduce(node.op, terms)
        case Lambda():
            value = _evaluate(rank, name, node)
        case LoopyCall():
            value = _called(rank, name, node)
        case _:
            raise AssertionError(f"unknown node {type(node).__name__}")
    rank.values[name] = value
    return True


def _evaluate(rank: _Rank, name: str, node: Lambda) -> Value:
    try:
        return evaluate(node, [rank.values[operand] for operand in node.operands])
    except (IndexError, OverflowError, TypeError, ValueError) as error:
        kind = next(k for k in (IndexError, OverflowError, TypeError, ValueError) if isinstance(error, k))
        line = f" ({node.where})" if node.where else ""
        raise kind(f"rank {rank.program.rank}, array '{name}'{line}: {error}") from error


def _called(rank: _Rank, name: str, node: LoopyCall) -> Value:
    """One of the results of a kernel, which runs once for all."""
    key = (node.kernel, node.operands)
    if key not in rank.calls:
        try:
            rank.calls[key] = call(rank.program.kernels[node.kernel], [rank.values[o] for o in node.operands])
        except RuntimeError as error:
            raise type(error)(f"rank {rank.program.rank}, array '{name}': {error}") from error
    return rank.calls[key][node.result]


def _exact(array: np.ndarray[Any, Any]) -> Value:
    return Value(array, np.broadcast_to(np.float64(0), array.shape))


def _input_array(rank: _Rank, node: Input) -> np.ndarray[Any, Any]:
    wanted = f"rank {rank.program.rank} needs input '{node.path}' as {type_text(node)}"
    if node.path not in rank.inputs:
        raise ValueError(f"{wanted}, but is given only {sorted(rank.inputs)}")
    given = rank.inputs[node.path]
    array = np.asarray(given) if hasattr(given, "dtype") else np.asarray(given, node.dtype)
    if array.shape != node.shape or array.dtype != node.dtype:
        raise ValueError(f"{wanted}, but is given {array.dtype.name}[{','.join(map(str, array.shape))}]")
    return array


def _check_message(job: _Job, rank: _Rank, received: str, ours: Recv, sent: str) -> None:
    theirs = job.ranks[ours.source].program.arrays[sent]
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        raise ValueError(
            f"rank {rank.program.rank} receives '{received}' as {type_text(ours)}, but rank {ours.source} "
            f"sends '{sent}' as {type_text(theirs)} (tag {job.tag_text(ours.tag)})"
        )


def _nth_allreduce(rank: _Rank, n: int) -> tuple[str, Allreduce] | None:
    found: list[tuple[str, Allreduce]] = list(rank.program.of_type(Allreduce))
    return found[n] if n < len(found) else None


def _ordinal(rank: _Rank, name: str) -> int:
    return [other for other, _ in rank.program.of_type(Allreduce)].index(name)


def _contributions(ranks: Sequence[_Rank], rank: _Rank, name: str, node: Allreduce) -> list[Value] | None:
    """What every rank puts into this Allreduce, in rank order; None if one is not there yet."""
    terms = []
    for other in ranks:
        match = _nth_allreduce(other, _ordinal(rank, name))
        if match is None:
            return None
        theirs = match[1]
        if (theirs.op, theirs.shape, theirs.dtype) != (node.op, node.shape, node.dtype):
            raise ValueError(
                f"rank {rank.program.rank} reduces '{name}' with {node.op} as {type_text(node)}, but rank "
                f"{other.program.rank} '{match[0]}' with {theirs.op} as {type_text(theirs)}"
            )
        if theirs.operand not in other.values:
            return None
        terms.append(other.values[theirs.operand])
    return terms


def _allreduce(op: str, terms: Sequence[Value]) -> Value:
    with np.errstate(all="ignore"):
        result = bounds.add(terms) if op == "sum" else extreme(op, stack(terms))
    shape = terms[0].value.shape
    return Value(result.value, np.broadcast_to(result.bound, shape))


def _stuck(job: _Job) -> str:
    """Follow what the first blocked array waits for until it is missing, or comes round again."""
    ranks = job.ranks
    start = next(rank for rank in ranks if rank.waiting)
    seen: list[tuple[int, str]] = []
    steps: list[str] = []
    here = (start.program.rank, _blocker(start, start.waiting[0]))
    while here not in seen:
        seen.append(here)
        step, needed = _waits_for(job, ranks[here[0]], here[1])
        steps.append(step)
        if needed is None:
            return f"a message or reduction is missing: {steps[-1]}"
        here = (needed[0], _blocker(ranks[needed[0]], needed[1]))
    return f"ranks wait for each other in a cycle: {'; '.join(steps[seen.index(here):])}"


def _blocker(rank: _Rank, name: str) -> str:
    """The first Recv or Allreduce whose own operands are there, below the blocked array `name`."""
    while True:
        missing = [operand for operand in operands(rank.program.arrays[name]) if operand not in rank.values]
        if not missing:
            return name
        name = missing[0]


def _waits_for(job: _Job, rank: _Rank, name: str) -> tuple[str, tuple[int, str] | None]:
    """Say what the blocked `name` waits for, and give that array and its rank if it exists."""
    node, me = rank.program.arrays[name], rank.program.rank
    if isinstance(node, Recv):
        what = f"rank {me} receives '{name}' from rank {node.source} (tag {job.tag_text(node.tag)})"
        sent = job.senders.get((node.source, me, node.tag))
        if sent is None:
            return f"{what}, which sends no such message", None
        return f"{what}, which sends '{sent}'", (node.source, sent)
    what = f"rank {me} reduces '{name}'"
    for other in job.ranks:
        match = _nth_allreduce(other, _ordinal(rank, name))
        if match is None:
            return f"{what}, but rank {other.program.rank} has no such reduction", None
        operand = match[1].operand
        if operand not in other.values:
            return f"{what} with '{operand}' of rank {other.program.rank}", (other.program.rank, operand)
    raise AssertionError(f"{what}, and all ranks have what it takes")


def agrees(value: Value, device: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Elementwise: is `device` within the bound of `value`? NaN agrees with NaN, an infinity with itself."""
    device = np.asarray(device)
    expected = value.value
    with np.errstate(all="ignore"):
        equal = (expected == device) | (expected != expected) & (device != device)
        near = np.abs(wide(device) - wide(expected)) <= value.bound
        return np.asarray(equal | near | np.isinf(value.bound))


def assert_agrees(path: str, value: Value, device: np.ndarray[Any, Any]) -> None:
    """Raise AssertionError, naming the first element that differs, unless type and all elements agree."""
    device, expected = np.asarray(device), value.value
    types = [f"{a.dtype.name}[{','.join(map(str, a.shape))}]" for a in (device, expected)]
    if types[0] != types[1]:
        raise AssertionError(f"'{path}' is {types[0]}, expected {types[1]}")
    wrong = np.argwhere(~agrees(value, device))
    if len(wrong):
        at = tuple(int(i) for i in wrong[0])
        raise AssertionError(
            f"'{path}' at {list(at)}: got {device[at]!s}, expected {expected[at]!s} within {value.bound[at]:.3g} "
            f"({len(wrong)} of {device.size} elements differ)"
        )
