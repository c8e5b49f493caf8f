"""Print what each stage of a build made: `AOTATO_DUMP=folder` writes numbered text files; golden tests use the same."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from aotato.emit.nest import Accumulate, Call, Kernel, Nest
from aotato.frontend import ir
from aotato.frontend.parts import Message, Partition
from aotato.frontend.text import dumps
from aotato.frontend.text_expr import expr_text
from aotato.runtime_stub.schedule import Schedule


def write(number: int, name: str, text: str) -> None:
    """`NN-name.txt` in the folder that AOTATO_DUMP names; nothing where it names none."""
    folder = os.environ.get("AOTATO_DUMP")
    if folder:
        Path(folder).mkdir(parents=True, exist_ok=True)
        Path(folder, f"{number:02}-{name}.txt").write_text(text)


def programs_text(programs: ir.Programs) -> str:
    return "\n".join(dumps(program) for program in programs.ranks)


def partitions_text(partitions: Sequence[Partition]) -> str:
    return "\n".join(map(partition_text, partitions))


def partition_text(partition: Partition) -> str:
    lines = [f"rank {partition.program.rank}, {partition.batches} batches"]
    for part in partition.parts:
        lines.append(f"  part {part.number}: stores {', '.join(part.stores) or 'nothing'}")
        lines += [f"    send to {m.dest}: {_parcels(m, True)}" for m in part.sends]
        lines += [f"    allreduce {r.op} {r.dtype}: {', '.join(r.results)}" for r in part.reductions]
    lines += [f"  batch {m.batch}: receive from {m.source}: {_parcels(m, False)}" for m in partition.recvs]
    lines += [f"  {name} is {target}" for name, target in partition.aliases.items()]
    lines += [f"  {name} was tagged as stored and is not" for name in partition.unstored_hints]
    return "\n".join(lines) + "\n"


def _parcels(message: Message, sent: bool) -> str:
    return ", ".join(f"{p.sent if sent else p.received} (tag {p.tag})" for p in message.parcels)


def kernels_text(kernels: Sequence[Kernel | Call]) -> str:
    return "\n".join(map(kernel_text, kernels))


def kernel_text(kernel: Kernel | Call) -> str:
    if isinstance(kernel, Call):
        return f"call {kernel.name}: reads {', '.join(kernel.reads) or 'nothing'}; makes {', '.join(kernel.writes)}\n"
    head = f"kernel {kernel.name}: reads {', '.join(kernel.reads) or 'nothing'}; makes {', '.join(kernel.writes)}\n"
    return head + "".join(map(_nest_text, kernel.nests))


def _nest_text(nest: Nest) -> str:
    who = f"a few work-items ({nest.share})" if nest.share else "a work-item"
    lines = [f"  {who} for each of [{', '.join(map(str, nest.shape))}]"]
    for loop in nest.loops:
        inside = f" in {', '.join(loop.parents)}" if loop.parents else ""
        lines.append(f"    for {loop.name} in {loop.lower}..{loop.upper}{inside}")
    for s in nest.statements:
        where = f"    [{', '.join(s.loops)}] " if s.loops else "    "
        if isinstance(s, Accumulate):
            lines.append(f"{where}{s.name} = {s.op} over {s.loop} of {expr_text(s.expr)}")
        else:
            lines.append(f"{where}{s.name} = {expr_text(s.expr)}")
    lines += [f"    {store.array}[own] = {expr_text(store.expr)}" for store in nest.stores]
    return "\n".join(lines) + "\n"


def schedule_text(schedule: Schedule) -> str:
    lines = [f"rank {schedule.rank}, target {schedule.target}"]
    for step in schedule.steps:
        if step.op == "launch":
            what = schedule.launches[step.index].name
        elif step.op == "reduce":
            what = schedule.reductions[step.index].buffer
        else:
            what = schedule.messages[step.index].buffer
        lines.append(f"  {step.op} {what}")
    return "\n".join(lines) + "\n"
