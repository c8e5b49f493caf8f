"""Put a rank's kernels, messages and reductions in the one order in which its driver performs them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from aotato.emit import account, calls, limits, memory, opencl
from aotato.emit.axes import batch_axes
from aotato.emit.draft import Draft
from aotato.emit.fuse import Fused, fuse
from aotato.emit.joined import Joined
from aotato.emit.layout import Layout, lay_out
from aotato.emit.names import Place
from aotato.emit.nest import Call, Kernel
from aotato.emit.overlap import overlapped
from aotato.emit.sharing import Cache, Source
from aotato.emit.target import Target
from aotato.frontend import ir
from aotato.frontend.parts import Partition
from aotato.runtime_stub import schedule as sch


@dataclass(frozen=True)
class Emitted:
    """A rank's entry for a target: its schedule, its kernels, and by digest their sources and the constants in use."""

    schedule: sch.Schedule
    kernels: tuple[Kernel | Call, ...]
    sources: Mapping[str, str]
    constants: Mapping[str, np.ndarray[Any, Any]]


@dataclass(frozen=True)
class _Drafted:
    """A rank's kernels before they are written, and where its arrays lie."""

    joined: Joined
    fused: Fused
    layout: Layout
    drafts: tuple[tuple[str, bool, Draft], ...]
    calls: tuple[calls.Launched, ...]


def emit(
    partitions: Sequence[Joined],
    target: Target,
    contract: bool,
    overlap: bool,
    on_device: frozenset[str],
    cache: Cache,
    inline: bool = True,
) -> list[Emitted]:
    """All ranks of an entry; `on_device` as in `lay_out`, `inline` as in `fuse`.

    `overlap` allows kernels to be launched in halves.
    """
    target = replace(target, matrices=target.matrices and contract)
    batches = batch_axes([joined.partition.program for joined in partitions])
    fused = [fuse(joined, batch, target, inline) for joined, batch in zip(partitions, batches, strict=True)]
    kernels: list[Sequence[Kernel | Call]] = [each.kernels for each in fused]
    if overlap:
        kernels = [*overlapped(list(zip(partitions, kernels, strict=True)), target)]
    drafted = [
        _drafted(joined, replace(each, kernels=tuple(row)), target, contract, on_device, cache)
        for joined, each, row in zip(partitions, fused, kernels, strict=True)
    ]
    sources = cache.write([rank.drafts for rank in drafted], contract, target.parameter_bytes)
    return [_emitted(rank, len(drafted), target, row) for rank, row in zip(drafted, sources, strict=True)]


def _drafted(
    joined: Joined, fused: Fused, target: Target, contract: bool, on_device: frozenset[str], cache: Cache
) -> _Drafted:
    program = joined.partition.program
    layout = lay_out(joined, fused, on_device)
    drafts, launched = [], []
    for kernel in fused.kernels:
        if isinstance(kernel, Call):
            launched.append(calls.launched(kernel, program, layout.home, target, contract, cache.calls))
            continue
        write_at = {name: _destinations(kernel, program, layout, name) for name in kernel.writes}
        draft = opencl.draft(kernel, program, layout.home, write_at, target)
        # Both halves of a kernel share a text
        late = kernel.block is not None and kernel.block.first and not kernel.early
        drafts.append((kernel.name, bool(late), draft))
    layout = replace(layout, buffers=(*layout.buffers, *(buffer for made in launched for buffer in made.scratch)))
    return _Drafted(joined, fused, layout, tuple(drafts), tuple(launched))


def _emitted(rank: _Drafted, size: int, target: Target, sources: Sequence[Source]) -> Emitted:
    partition, program, layout = rank.joined.partition, rank.joined.partition.program, rank.layout
    limits.check(program, target, [k for k in rank.fused.kernels if isinstance(k, Kernel)], sources)
    written, called = iter(sources), iter(rank.calls)
    launches: list[sch.Launch] = []
    for kernel in rank.fused.kernels:
        if isinstance(kernel, Call):
            launches.extend(next(called).launches)
        else:
            launches.append(_launch(kernel, program, layout, next(written)))
    plan = memory.plan(_lifetimes(layout, launches), target.alignment)
    limits.check_memory(program, target, layout, plan.nbytes)
    outputs = tuple(_output(program, layout, output) for output in program.outputs)
    used = {a.buffer for launch in launches for a in launch.arguments} | {output.buffer for output in outputs}
    buffers = tuple(
        replace(b, offset=plan.offsets.get(b.name, b.offset))
        for b in layout.buffers
        if b.kind != "const" or b.name in used
    )
    constants = {b.source: program.constants[b.source] for b in buffers if b.kind == "const"}
    schedule = sch.Schedule(
        program.entry,
        program.rank,
        size,
        target.name,
        target.staging,
        len(partition.parts),
        partition.batches,
        plan.nbytes,
        plan.live_nbytes,
        buffers,
        tuple(launches),
        layout.messages,
        layout.reductions,
        _steps(partition, target, launches, layout),
        outputs,
        _untagged(program, layout),
    )
    texts = {source.digest: source.text for source in sources}
    for made in rank.calls:
        texts |= made.texts
    return Emitted(schedule, rank.fused.kernels, texts, constants)


def _launch(kernel: Kernel, program: ir.Program, layout: Layout, source: Source) -> sch.Launch:
    write_at = {name: _destinations(kernel, program, layout, name) for name in kernel.writes}
    packed = frozenset(name for name in kernel.writes if (kernel.part, name) in layout.packed)
    travelling = _arriving(layout, kernel.part - 1) if kernel.early else frozenset()
    cost = account.account(kernel, program, layout.home, write_at, packed, travelling)
    modes = [("r" if mode == "v" else "n" if buffer in travelling else mode) for buffer, _, mode, _ in source.arguments]
    arguments = tuple(
        sch.Argument(buffer, dtype, mode, given == "v", element)
        for mode, (buffer, dtype, given, element) in zip(modes, source.arguments, strict=True)
    )
    return sch.Launch(
        source.digest,
        kernel.name,
        kernel.part,
        arguments,
        source.global_size,
        source.local_size,
        cost.bytes_read,
        cost.bytes_written,
        cost.flops,
        source.local_bytes,
        cost.identity_copies,
        source.parameters,
        kernel.early,
    )


def _arriving(layout: Layout, batch: int) -> frozenset[str]:
    """The buffers into which messages of a batch are received, joint ones too."""
    into = {m.buffer for m in layout.messages if m.batch == batch and not m.outgoing}
    return frozenset(into | {b.inside for b in layout.buffers if b.name in into and b.inside})


def _destinations(kernel: Kernel, program: ir.Program, layout: Layout, name: str) -> tuple[Place, ...]:
    """Its own memory, if this kernel computes it, and every place it is packed into."""
    packed = layout.packed.get((kernel.part, name), ())
    computed = isinstance(program.arrays[name], ir.Lambda) and name in layout.home and name not in kernel.reads
    return ((layout.home[name],) if computed else ()) + packed


def _lifetimes(layout: Layout, launches: list[sch.Launch]) -> tuple[memory.Lifetime, ...]:
    found: dict[str, list[int]] = {}
    for index, launch in enumerate(launches):
        for argument in launch.arguments:
            found.setdefault(argument.buffer, []).append(index)
    return tuple(
        memory.Lifetime(b.name, b.nbytes, min(found[b.name]), max(found[b.name]))
        for b in layout.buffers
        if b.kind == "temporary" and b.name in found
    )


def _steps(
    partition: Partition, target: Target, launches: list[sch.Launch], layout: Layout
) -> tuple[sch.Step, ...]:
    """Receives start first; what feeds sends comes next; work that waits for nothing runs while messages travel."""
    steps: list[sch.Step] = []
    messages = list(enumerate(layout.messages))

    def each(op: str, batch: int, outgoing: bool) -> None:
        steps.extend(sch.Step(op, i) for i, m in messages if m.batch == batch and m.outgoing == outgoing)

    batches = sorted({m.batch for m in layout.messages} | {r.batch for r in layout.reductions})
    if target.staging == "copied":
        for batch in batches:
            each("post", batch, False)
    numbers = sorted({launch.part for launch in launches} | set(batches))
    packs = {b.inside or b.name for b in layout.buffers if b.kind in ("send", "reduce")}
    for number in numbers:
        mine = [(i, launch) for i, launch in enumerate(launches) if launch.part == number and not launch.early]
        last_pack = max((i for i, launch in mine if any(a.buffer in packs and a.mode == "w" for a in launch.arguments)),
                        default=-1)
        steps.extend(sch.Step("launch", i) for i, _ in mine if i <= last_pack)
        each("fetch", number, True)
        if target.staging == "mapped":
            # The fetch has just waited for the kernels of the last call that read what now arrives
            each("post", number, False)
        each("send", number, True)
        steps.extend(sch.Step("launch", i) for i, _ in mine if i > last_pack)
        early = [i for i, launch in enumerate(launches) if launch.part == number + 1 and launch.early]
        steps.extend(sch.Step("launch", i) for i in early)
        steps.extend(sch.Step("reduce", i) for i, r in enumerate(layout.reductions) if r.batch == number)
        for index, message in messages:
            if message.batch == number and not message.outgoing:
                steps += [sch.Step("wait", index), sch.Step("put", index)]
    for batch in batches:
        each("settle", batch, True)
    return tuple(steps)


def _output(program: ir.Program, layout: Layout, output: ir.Output) -> sch.Output:
    node, place = program.arrays[output.array], layout.home[output.array]
    return sch.Output(output.path, place.buffer, place.offset, node.shape, node.dtype.name)


def _untagged(program: ir.Program, layout: Layout) -> tuple[str, ...]:
    """Arrays with memory of their own that are no inputs, outputs or messages, and that the user did not tag."""
    named = {b.name: program.arrays.get(b.name.partition(":")[2]) for b in layout.buffers if b.kind == "temporary"}
    return tuple(name for name, node in named.items() if isinstance(node, ir.Lambda) and not node.stored)
