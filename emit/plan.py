"""Check an app's plan against its traced entries, and write it out as the bundle's data."""

from __future__ import annotations

import keyword
import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from aotato.emit import plan_names
from aotato.emit.plan_paths import Paths, collect, unknown
from aotato.frontend import ir
from aotato.frontend.app import AppError
from aotato.frontend.plan import Call, Every, Plan, Scalar
from aotato.runtime_stub import plan_data as data


def resolve(plan: Plan, programs: Mapping[str, ir.Programs]) -> data.Plan:
    """The plan as data; `programs` are all entries of the app by name. Raises AppError: one sentence a mistake."""
    _check_form(plan)
    calls: list[Call | Every] = [*plan.init, *plan.step, *plan.every, *plan.draw]
    entries = dict.fromkeys(call.entry for call in calls)
    for entry in entries:
        if entry not in programs:
            raise unknown("the plan calls entry", entry, programs)
    paths = collect({entry: programs[entry] for entry in entries})
    _check_scalars(plan, paths)
    carries = tuple(_carries(plan, paths))
    found = data.Plan(
        tuple(_call(call, paths) for call in plan.step),
        tuple(_call(call, paths) for call in plan.init),
        carries,
        tuple(data.Scalar(s.name, float(s.default), s.unit, s.doc) for s in plan.scalars),
        _updates(plan, plan.update),
        tuple(_every(plan, every, paths) for every in plan.every),
        plan.until or "",
        plan.at_most or 0,
        tuple((entry, paths.reduced(entry)) for entry in paths.outputs),
        draw=tuple(_call(call, paths) for call in plan.draw),
    )
    taken = _check_taken(found, paths)
    plan_names.check(found, paths)
    free = (path for path in paths.inputs if paths.is_scalar(path) and path not in taken)
    return replace(found, free=tuple(data.FreeInput(path, paths.dtype(path)) for path in free))


def device_scalars(plan: data.Plan | None, programs: Mapping[str, ir.Programs]) -> frozenset[str]:
    """0-dimensional inputs that some output feeds which only the device knows; all others are passed by value."""
    found: frozenset[str] = frozenset()
    while plan is not None:
        more = {c.input for c in plan.carry if any(_only_device(n, found) for n in _fed_scalars(c, programs))}
        if more <= found:
            break
        found |= more
    return found


def _fed_scalars(carry: data.Carry, programs: Mapping[str, ir.Programs]) -> list[ir.Node]:
    ranks = programs[carry.entry].ranks
    nodes = [program.arrays[o.array] for program in ranks for o in program.outputs if o.path == carry.output]
    return [node for node in nodes if node.shape == ()]


def _only_device(node: ir.Node, on_device: frozenset[str]) -> bool:
    by_value = isinstance(node, ir.Input) and node.path not in on_device
    return not (by_value or isinstance(node, ir.Allreduce))


def _check_form(plan: Any) -> None:
    if not isinstance(plan, Plan):
        raise AppError(f"plan(opt) of an app must return a Plan, not a {type(plan).__name__}")
    for name, kind in (("init", Call), ("step", Call), ("every", Every), ("scalars", Scalar), ("draw", Call)):
        for item in getattr(plan, name):
            if not isinstance(item, kind):
                raise AppError(f"{name} of the plan holds {item!r}; expected {kind.__name__}(...)")
    if not plan.step:
        raise AppError("the plan has no step: list its calls, as in step=(Call('step'),)")
    if bool(plan.until) != (plan.at_most is not None):
        raise AppError("the plan has one of until and at_most; give both, as the end of a loop may never be "
                       "reached, or none")
    if plan.at_most is not None and (not isinstance(plan.at_most, int) or plan.at_most < 1):
        raise AppError(f"at_most of the plan must be a positive number of steps, not {plan.at_most!r}")
    seen = set()
    for every in plan.every:
        if not isinstance(every.interval, int) or every.interval < 1:
            raise AppError(f"the interval of entry {every.entry!r} must be a positive number of steps, "
                           f"not {every.interval!r}")
        if every.entry in seen:
            raise AppError(f"the plan gives entry {every.entry!r} two intervals; keep one of them")
        seen.add(every.entry)
    if "output" in seen:
        raise AppError("entry 'output' cannot have an interval, as --every output=K is for result files; rename it")


def _check_scalars(plan: Plan, paths: Paths) -> None:
    seen: set[str] = set()
    for scalar in plan.scalars:
        name = scalar.name
        if not name.isidentifier() or keyword.iskeyword(name) or name == "step":
            raise AppError(f"a scalar of the plan cannot be called {name!r}; expected a name other than 'step', of "
                           "letters, digits and _")
        if name in seen:
            raise AppError(f"the plan has two scalars {name!r}; keep one of them")
        if not isinstance(scalar.default, int | float) or not math.isfinite(scalar.default):
            raise AppError(f"the default of scalar {name!r} must be a number, not {scalar.default!r}")
        seen.add(name)
    for entry in paths.outputs:
        for name in sorted({"step", *seen} & set(paths.reduced(entry))):
            raise AppError(f"output {name!r} of entry {entry!r} is a reduced value, but {name!r} is "
                           f"{'the number of steps' if name == 'step' else 'a scalar'}: rename one of them")


def _call(call: Call, paths: Paths) -> data.Call:
    return data.Call(call.entry, _settings(call, paths))


def _every(plan: Plan, every: Every, paths: Paths) -> data.Every:
    updates = _updates(plan, every.update)
    for text, words in every.check.items():
        if not isinstance(text, str) or not isinstance(words, str):
            raise AppError(f"a check after entry {every.entry!r} is {text!r}: {words!r}; expected a host expression "
                           "and what to say where it does not hold, both texts")
    for path in every.show:
        if path not in paths.reduced(every.entry):
            raise unknown(f"the plan shows, of entry {every.entry!r}, reduced value", path, paths.reduced(every.entry))
    checks = tuple(data.Check(text, words) for text, words in every.check.items())
    return data.Every(every.entry, every.interval, every.before, _settings(every, paths), updates, checks,
                      tuple(every.show))


def _settings(call: Call | Every, paths: Paths) -> tuple[data.Setting, ...]:
    found = []
    for path, value in call.set.items():
        if path not in paths.reads[call.entry]:
            raise unknown(f"the plan sets, for entry {call.entry!r}, input", path, paths.reads[call.entry])
        if not paths.is_scalar(path):
            node = next(node for node in paths.inputs[path] if node is not None)
            raise AppError(f"the plan sets input {path!r}, which is {ir.type_text(node)}: only 0-dimensional inputs "
                           "can be set")
        dtype = paths.dtype(path)
        found.append(data.Setting(path, dtype, value if isinstance(value, str) else _number(value, dtype, path)))
    return tuple(found)


def _number(value: Any, dtype: str, path: str) -> float:
    """The number, if the input's dtype has it."""
    kind = np.dtype(dtype).kind
    fits = isinstance(value, int | float | np.integer | np.floating)
    if fits and kind in "iu":
        limits = np.iinfo(dtype)
        fits = limits.min <= value <= limits.max and value == int(value)
    elif fits and kind == "b":
        fits = value in (0, 1)
    if not fits:
        raise AppError(f"the plan sets input {path!r}, which is {dtype}, to {value!r}: give a number of that type, or "
                       "a host expression")
    return bool(value) if kind == "b" else int(value) if kind in "iu" else float(value)


def _updates(plan: Plan, updates: Mapping[str, str]) -> tuple[data.Update, ...]:
    names = [scalar.name for scalar in plan.scalars]
    for name, text in updates.items():
        if name not in names:
            raise unknown("the plan updates scalar", name, names)
        if not isinstance(text, str):
            raise AppError(f"the update of {name!r} is {text!r}; expected a host expression, which is a text")
    return tuple(data.Update(name, text) for name, text in updates.items())


def _carries(plan: Plan, paths: Paths) -> Iterable[data.Carry]:
    outputs = {output for rows in paths.outputs.values() for output in rows}
    for output, path in plan.carry.items():
        if output not in outputs:
            raise unknown("the plan carries output", output, outputs)
        if path not in paths.inputs:
            raise unknown(f"the plan carries {output!r} to input", path, paths.inputs)
    init = {call.entry for call in plan.init}
    for entry, rows in paths.outputs.items():
        pairs = {output: path for output, path in plan.carry.items() if output in rows}
        if entry in init:
            others = {path for other, reads in paths.reads.items() if other != entry for path in reads}
            pairs |= {output: output for output in rows if output in others and output not in plan.carry}
        sources: dict[str, str] = {}
        for output, path in pairs.items():
            if path in sources:
                raise AppError(f"outputs {sources[path]!r} and {output!r} of entry {entry!r} both feed input {path!r}; "
                               "keep one of them")
            sources[path] = output
            carry = data.Carry(entry, output, path)
            _check_match(carry, paths)
            yield carry


def _check_match(carry: data.Carry, paths: Paths) -> None:
    for rank, (made, wanted) in enumerate(zip(paths.outputs[carry.entry][carry.output], paths.inputs[carry.input],
                                              strict=True)):
        if wanted is not None and (made is None or ir.type_text(made) != ir.type_text(wanted)):
            found = "does not exist" if made is None else f"is {ir.type_text(made)}"
            raise AppError(f"output {carry.output!r} of entry {carry.entry!r} feeds input {carry.input!r}, but on rank "
                           f"{rank} the output {found} and the input is {ir.type_text(wanted)}")


def _check_taken(plan: data.Plan, paths: Paths) -> set[str]:
    """The inputs that the plan sets or feeds, none of them by both."""
    setters = {s.path: call.entry for call in plan.calls for s in call.set}
    for carry in plan.carry:
        if carry.input in setters:
            raise AppError(f"input {carry.input!r} is set for entry {setters[carry.input]!r} and fed by output "
                           f"{carry.output!r} of entry {carry.entry!r}; keep one of them")
    taken = {*setters, *(carry.input for carry in plan.carry)}
    for scalar in plan.scalars:
        if scalar.name in paths.inputs and scalar.name not in taken:
            entry = next(entry for entry, reads in paths.reads.items() if scalar.name in reads)
            raise AppError(f"input {scalar.name!r} of entry {entry!r} has the name of a scalar, but no call sets it: "
                           f"add set={{{scalar.name!r}: {scalar.name!r}}}, or rename one of them")
    return taken
