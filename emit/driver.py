"""Print a schedule as the Python module that performs it."""

from __future__ import annotations

from dataclasses import dataclass

import jinja2

from aotato.runtime_stub.schedule import Schedule, Step


@dataclass(frozen=True)
class _Line:
    name: str
    op: str
    index: int
    comment: str


def render(schedule: Schedule) -> str:
    """The driver's source. It holds no peer, size or path, so that ranks of a class share it."""
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("aotato.templates", ""),
        undefined=jinja2.StrictUndefined,
        autoescape=False,  # the output is Python
        keep_trailing_newline=True,
    )
    lines = [_Line(f"{s.op}_{s.index}", s.op, s.index, _comment(schedule, s)) for s in schedule.steps]
    return environment.get_template("driver.py.jinja").render(
        entry=schedule.entry,
        target=schedule.target,
        parts=schedule.parts,
        batches=schedule.batches,
        launches=len(schedule.launches),
        bound=lines,
        steps=lines,
    )


def _comment(schedule: Schedule, step: Step) -> str:
    if step.op == "launch":
        return f"part {schedule.launches[step.index].part}"
    if step.op == "reduce":
        reduction = schedule.reductions[step.index]
        return f"batch {reduction.batch}: {reduction.op} over ranks"
    return f"batch {schedule.messages[step.index].batch}"
