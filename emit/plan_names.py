"""Check that a plan's expressions and settings use only what is known when they are first needed."""

from __future__ import annotations

from collections.abc import Iterable

from aotato.emit.plan_paths import Paths, unknown
from aotato.frontend.app import AppError
from aotato.runtime_stub import expressions
from aotato.runtime_stub import plan_data as data

Calls = data.Call | data.Every


def check(plan: data.Plan, paths: Paths) -> None:
    """Walk the first step in its order. Raises AppError: one sentence."""
    walk = _Walk(plan, paths)
    for call in plan.init:
        walk.call(call)
    for every in plan.every:
        if every.before:
            walk.call(every)
            walk.updates(every.update)
            walk.checks(every)
    for call in plan.step:
        walk.call(call)
    walk.updates(plan.update)
    after = [every for every in plan.every if not every.before]
    beside: list[data.Call | data.Every] = [*after, *plan.draw]
    for one in beside:
        # What it computes may be steps old, or not there yet, for everyone but itself
        known = set(walk.known)
        walk.call(one)
        if isinstance(one, data.Every):
            walk.updates(one.update)
            walk.checks(one)
        walk.known = known
    walk.known |= {path for every in after for path in paths.reduced(every.entry)}
    if plan.until:
        walk.expression(plan.until, "until")


class _Walk:
    """`known`: names with a value by now; `given`: inputs that the plan has set by now."""

    def __init__(self, plan: data.Plan, paths: Paths) -> None:
        self.plan, self.paths = plan, paths
        self.known = {"step", *(scalar.name for scalar in plan.scalars)}
        self.given: set[str] = set()
        self.set = {s.path for call in plan.calls for s in call.set}

    def call(self, call: Calls) -> None:
        for setting in call.set:
            if isinstance(setting.value, str):
                self.expression(setting.value, f"the setting of {setting.path!r} for entry {call.entry!r}")
            self.given.add(setting.path)
        for path in sorted((self.paths.reads[call.entry] & self.set) - self.given):
            raise AppError(
                f"entry {call.entry!r} reads {path!r} before the plan first sets it: set it in this call as well"
            )
        self.known |= set(self.paths.reduced(call.entry))

    def updates(self, updates: Iterable[data.Update]) -> None:
        for update in updates:
            self.expression(update.text, f"the update of {update.name!r}")

    def checks(self, every: data.Every) -> None:
        for check in every.check:
            self.expression(check.text, f"a check after entry {every.entry!r}")

    def expression(self, text: str, where: str) -> None:
        try:
            names = expressions.parse(text).names
        except expressions.ExpressionError as error:
            raise AppError(f"{where}: {error}") from None
        for name in sorted(names - self.known):
            raise self._unknown(name, f"{where}, {text!r},")

    def _unknown(self, name: str, where: str) -> AppError:
        makers = [entry for entry in self.plan.entries if name in self.paths.outputs[entry]]
        if any(name in self.paths.reduced(entry) for entry in makers):
            return AppError(f"{where} needs {name!r} before entry {makers[0]!r} has computed it: call that entry "
                            "earlier (in init, or with before=True)")
        if makers:
            return AppError(f"{where} reads {name!r}, but this output of entry {makers[0]!r} is no 0-dimensional "
                            "allreduce result on all ranks: return allreduce(x, op) under that path")
        if name in self.paths.inputs:
            return AppError(f"{where} reads {name!r}, which is an input: add Scalar({name!r}, ...) to the plan and "
                            f"set the input from it")
        return unknown(f"{where} reads", name, self.known)
