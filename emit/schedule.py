"""Put a rank's kernels, messages and reductions in the one order in which its driver performs them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from aotato.emit import account, calls, memory, opencl
from aotato.emit.fuse import fuse
from aotato.emit.layout import Layout, lay_out
from aotato.emit.names import Place
from aotato.emit.nest import Call, Kernel
from aotato.emit.target import Target
from aotato.frontend import ir
from aotato.frontend.parts import Partition
from aotato.runtime_stub import schedule as sch


@dataclass(frozen=True)
class Emitted:
    """A rank's entry for a target: its schedule, its kernels, and their sources by digest."""

    schedule: sch.Schedule
    kernels: tuple[Kernel | Call, ...]
    sources: Mapping[str, str]


def emit(
    partition: Partition,
    size: int,
    target: Target,
    contract: bool,
    on_device: frozenset[str],
    writer: opencl.Cache,
    inline: bool = True,
) -> Emitted:
    """`partition` has no aliases left; `on_device` as in `lay_out`, `inline` as in `fuse`."""
    program = partition.program
    fused = fuse(partition, target.local_bytes, inline)
    layout = lay_out(partition, fused, on_device)
    launches: list[sch.Launch] = []
    sources: dict[str, str] = {}
    for kernel in fused.kernels:
        if isinstance(kernel, Call):
            made, scratch = calls.launches(kernel, program, layout.home, target, contract, writer.calls)
            layout = replace(layout, buffers=(*layout.buffers, *scratch))
        else:
            made = [_launch(kernel, program, layout, target, contract, writer)]
        launches.extend(launch for launch, _ in made)
        sources |= {launch.kernel: source for launch, source in made}
    plan = memory.plan(_lifetimes(layout, launches), target.alignment)
    buffers = tuple(replace(b, offset=plan.offsets.get(b.name, 0)) for b in layout.buffers)
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
        tuple(_output(program, layout, output) for output in program.outputs),
        _untagged(program, layout),
    )
    return Emitted(schedule, fused.kernels, sources)


def _launch(
    kernel: Kernel, program: ir.Program, layout: Layout, target: Target, contract: bool, writer: opencl.Cache
) -> tuple[sch.Launch, str]:
    write_at = {name: _destinations(kernel, program, layout, name) for name in kernel.writes}
    source = writer.write(kernel, program, layout.home, write_at, target.group_size, contract)
    packed = frozenset(name for name in kernel.writes if (kernel.part, name) in layout.packed)
    cost = account.account(kernel, program, layout.home, write_at, packed)
    arguments = tuple(
        sch.Argument(buffer, dtype, "r" if mode == "v" else mode, mode == "v", element)
        for buffer, dtype, mode, element in source.arguments
    )
    launch = sch.Launch(
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
    )
    return launch, source.text


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
    packs = {b.name for b in layout.buffers if b.kind in ("send", "reduce")}
    for number in numbers:
        mine = [(i, launch) for i, launch in enumerate(launches) if launch.part == number]
        last_pack = max((i for i, launch in mine if any(a.buffer in packs and a.mode == "w" for a in launch.arguments)),
                        default=-1)
        steps.extend(sch.Step("launch", i) for i, _ in mine if i <= last_pack)
        each("fetch", number, True)
        if target.staging == "mapped":
            # The fetch has just waited for the kernels of the last call that read what now arrives
            each("post", number, False)
        each("send", number, True)
        steps.extend(sch.Step("launch", i) for i, _ in mine if i > last_pack)
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
