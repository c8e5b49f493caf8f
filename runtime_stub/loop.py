"""aotato-run of a bundle with a loop: what the command line asks for, progress, observed values, results."""

from __future__ import annotations

import sys
import time
from argparse import Namespace
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotato.runtime_stub import output, plan, plan_data, values, vtkhdf
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.output import About
from aotato.runtime_stub.plan import Runner, Stopped
from aotato.runtime_stub.program import Program
from aotato.runtime_stub.values import Array, Wanted

OUTPUT = "output"  # the name of result files in --every
VTK = "vtk"  # and of files for ParaView
PROGRESS_SECONDS = 1.0
WIDTH, STEP_WIDTH = 12, 7  # of printed columns: six digits, sign and exponent


@dataclass(frozen=True)
class Order:
    """What a command line asks of a loop, checked."""

    plan: plan_data.Plan
    steps: int | None
    until: float | None
    every: Mapping[str, int]
    write_every: int | None  # steps between result files
    scalars: Mapping[str, float]
    inputs: Mapping[str, Array]
    draw_every: int | None = None  # steps between VTKHDF files


@dataclass(frozen=True)
class Done:
    """A loop that has ended. `error`: it did not get where it should."""

    steps: int
    seconds: float
    about: About
    results: Mapping[str, Array]
    error: Refusal | None

    def sentence(self) -> str:
        numbers = [f"{name} {value:.7g}" for name, value in self.about.scalars.items()]
        rate = f"{self.seconds:.3g} s" + (f", {self.seconds / self.steps * 1e6:.4g} us a step" if self.steps else "")
        return "  ".join([f"  step {self.about.step}", *numbers, rate])


def wanted(chosen: Namespace) -> list[str]:
    """The options on the command line that are about a loop."""
    return [f"--{name}" for name in ("steps", "until", "every") if getattr(chosen, name) not in (None, [])]


def read(bundle: Bundle, found: plan_data.Plan, rank: int, chosen: Namespace) -> Order:
    """Raises Refusal."""
    every = dict(_interval(text) for text in chosen.every)
    write_every = every.pop(OUTPUT, None)
    if write_every is not None and not chosen.output:
        raise Refusal(f"expected --output FILE beside --every {OUTPUT}={write_every}, but found none: name the file")
    draw_every = every.pop(VTK, None)
    if draw_every is not None and not chosen.vtk:
        raise Refusal(f"expected --vtk FILE beside --every {VTK}={draw_every}, but found none: name the file")
    if chosen.vtk:
        vtkhdf.check(bundle, found.entries)
    plan.check(found, chosen.steps, chosen.until, every)
    signature = _signature(bundle, found, rank)
    scalars, settings = _scalars(found, signature, chosen.set)
    inputs = values.gather(signature, rank, chosen.input, settings, lambda name: _default(bundle, found, name, rank),
                           elsewhere=[s.name for name in found.entries for s in bundle.entries[name].inputs])
    return Order(found, chosen.steps, chosen.until, every, write_every, scalars, inputs, draw_every)


def _interval(text: str) -> tuple[str, int]:
    name, _, number = text.partition("=")
    if not name or not number.isdecimal() or int(number) < 1:
        raise Refusal(f"expected --every ENTRY=K with a positive K, but found --every {text}: write for instance "
                      "--every observe=10", code=2)
    return name, int(number)


def _signature(bundle: Bundle, found: plan_data.Plan, rank: int) -> list[Wanted]:
    """The inputs of all entries that neither the plan sets nor an init call feeds."""
    rows = {s.name: s for name in found.entries for s in bundle.entries[name].inputs if s.present[rank]}
    with_default = {s.name for name in found.entries for s in bundle.entries[name].inputs
                    if s.present[rank] and s.has_default(rank)}
    return [Wanted(s.name, s.shapes[rank], s.dtype, s.name in with_default)
            for s in rows.values() if s.name not in found.fed()]


def _default(bundle: Bundle, found: plan_data.Plan, name: str, rank: int) -> Array:
    entries = (bundle.entries[entry] for entry in found.entries)
    entry = next(e.name for e in entries for s in e.inputs if s.name == name and s.has_default(rank))
    return bundle.default(entry, name, rank)


def _scalars(found: plan_data.Plan, signature: list[Wanted], texts: list[str]) -> tuple[dict[str, float], list[str]]:
    """Numbers for the host, and the texts that are about inputs."""
    scalars: dict[str, float] = {}
    settings = []
    inputs = {one.name for one in signature} | {one.path for one in found.free}
    for text in texts:
        name, _, number = text.partition("=")
        if any(text.startswith(f"{one}=") for one in inputs):
            settings.append(text)
            continue
        plan.check_settable(found, name)
        if name in scalars:
            raise Refusal(f"expected one value for {name!r}, but found two: keep one of them", code=2)
        try:
            scalars[name] = float(number)
        except ValueError:
            raise Refusal(f"expected a number for {name!r}, but found --set {text}: write for instance "
                          f"--set {name}=0.5", code=2) from None
    return scalars, settings


def run(program: Program, order: Order, chosen: Namespace, digest: str) -> Done:
    """Collective: the loop, and all result files. Raises Refusal."""
    world, found = program.world, order.plan
    runner = program.runner
    loud = world.speaks and not chosen.quiet
    observed = Observed(found, runner.values, loud)
    results = _Results(program, runner, chosen, digest, observed, order)
    progress = _Progress(runner, order) if loud and (chosen.progress or sys.stderr.isatty()) else None
    program.start(order.inputs)
    beside: tuple[plan_data.Call | plan_data.Every, ...] = (*found.every, *(found.draw if chosen.vtk else ()))
    program.bind_ahead(*([call.entry for call in calls] for calls in (found.init, found.step, beside)))

    def on_step(step: int) -> None:
        if progress is not None:
            progress.show(step)
        if order.write_every is not None and step % order.write_every == 0:
            results.write(results.collect())
        if order.draw_every is not None and step % order.draw_every == 0:
            results.draw()

    watched = progress is not None or order.write_every is not None or order.draw_every is not None
    begin, error = time.monotonic(), None
    try:
        runner.run(order.steps, order.until, order.scalars, order.every, observed if world.rank == 0 else None,
                   on_step if watched else None)
    except Stopped as refusal:
        error = refusal
    program.queue.finish()
    seconds = time.monotonic() - begin
    arrays = results.collect()
    if chosen.output and results.written != runner.step:
        results.write(arrays)
    if chosen.vtk and results.drawn != runner.step:
        results.draw()
    return Done(runner.step, seconds, results.about(), arrays, error)


class Observed:
    """The reduced values of `every` calls, a row a call: printed as they come, kept for the result file."""

    def __init__(self, found: plan_data.Plan, scalars: Mapping[str, float], loud: bool) -> None:
        times = (plan.TIME,) if any(s.name == plan.TIME for s in found.scalars) else ()
        rows = {e.entry: found.reduced_of(e.entry) for e in found.every if not e.before}
        self.columns = {entry: ("step", *times, *paths) for entry, paths in rows.items() if paths}
        self.rows: dict[str, list[tuple[float, ...]]] = {entry: [] for entry in self.columns}
        self.scalars, self.loud = scalars, loud
        self.printed = {entry: _printed(columns, next(e.show for e in found.every if e.entry == entry))
                        for entry, columns in self.columns.items()}

    def __call__(self, entry: str, step: int, reduced: Mapping[str, float]) -> None:
        if entry not in self.columns:
            return
        columns, rows = self.columns[entry], self.rows[entry]
        row = tuple(step if c == "step" else reduced[c] if c in reduced else self.scalars[c] for c in columns)
        if self.loud and not rows:
            print(" ".join([entry, *(f"{columns[i]:>{width}}" for i, width in self.printed[entry])]), flush=True)
        rows.append(row)
        if self.loud:
            print(" ".join([entry, *(f"{row[i]:>{width}.6g}" for i, width in self.printed[entry])]), flush=True)

    def tables(self) -> dict[str, dict[str, Array]]:
        """entry -> column -> values."""
        return {entry: {name: np.array([row[i] for row in self.rows[entry]], "int64" if name == "step" else "float64")
                        for i, name in enumerate(columns)} for entry, columns in self.columns.items()}


def _printed(columns: tuple[str, ...], show: tuple[str, ...]) -> list[tuple[int, int]]:
    """The columns to print, and how wide: steps, the time, and what the plan shows, in its order."""
    first = [column for column in columns if column in ("step", plan.TIME)]
    chosen = [columns.index(column) for column in ((*first, *show) if show else columns)]
    return [(i, max(WIDTH if i else STEP_WIDTH, len(columns[i]))) for i in chosen]


class _Results:
    """Where the run stands, and its result files."""

    def __init__(self, program: Program, runner: Runner, chosen: Namespace, digest: str, observed: Observed,
                 order: Order) -> None:
        self.program, self.runner, self.chosen, self.digest = program, runner, chosen, digest
        self.observed, self.intervals = observed, {e.entry: e.interval for e in runner.plan.every} | dict(order.every)
        self.begin = runner.step
        self.written: int | None = None  # the step of the last file
        self.series = vtkhdf.Series(chosen.vtk or "")
        self.drawn: int | None = None

    def about(self) -> About:
        scalars: dict[str, Any] = self.runner.scalars()
        return About(self.digest, scalars.pop("step"), scalars.get(plan.TIME, 0.0), scalars)

    def collect(self) -> dict[str, Array]:
        """Outputs of the step's calls, and of those `every` calls that came after this very step; later ones win."""
        found, step = self.runner.plan, self.runner.step
        if step == self.begin:
            entries = [call.entry for call in found.init]
        else:
            entries = [call.entry for call in found.step]
            entries += [e.entry for e in found.every if not e.before and step % self.intervals[e.entry] == 0]
        arrays: dict[str, Array] = {}
        for entry in dict.fromkeys(entries):
            arrays |= self.program.outputs(entry)
        return arrays

    def write(self, arrays: Mapping[str, Array]) -> None:
        """Collective. `{step}` in the file's name is the number of steps."""
        self.written = self.runner.step
        path = values.expand(self.chosen.output, self.written, "step")
        output.write(path, self.program.world, arrays, self.about(), self.observed.tables())

    def draw(self) -> None:
        """Collective, as `write`; the plan's calls for pictures come first."""
        self.drawn = self.runner.step
        self.runner.draw()
        arrays = self.collect()
        for call in self.runner.plan.draw:
            arrays |= self.program.outputs(call.entry)
        self.series.write(self.program.world, self.program.bundle, arrays, self.about())


class _Progress:
    """At most one line a second on standard error."""

    def __init__(self, runner: Runner, order: Order) -> None:
        self.runner, self.first = runner, runner.step
        self.end = "" if order.steps is None else f" of {runner.step + order.steps}"
        self.begin = self.last = time.monotonic()

    def show(self, step: int) -> None:
        now = time.monotonic()
        if now - self.last < PROGRESS_SECONDS:
            return
        self.last = now
        at = f", t = {self.runner.values[plan.TIME]:.6g}" if plan.TIME in self.runner.values else ""
        rate = (step - self.first) / (now - self.begin)
        print(f"aotato: step {step}{self.end}{at}, {rate:.4g} steps/s", file=sys.stderr, flush=True)
