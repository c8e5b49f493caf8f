"""The host loop: call a bundle's entries in the order of its plan, with everything prepared before the first step.

All ranks evaluate the same expressions of the same reduced values, so they decide alike without a word.
"""

from __future__ import annotations

import difflib
import functools
import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol

from aotato.runtime_stub import expressions, plan_data
from aotato.runtime_stub.errors import Refusal

Action = Callable[[], Any]
Observe = Callable[[str, int, Mapping[str, float]], Any]  # entry, steps done, its reduced values
TIME = "t"  # the scalar that --until compares


class Steppable(Protocol):
    """What the loop needs of a program."""

    initialised: bool  # init has run, or the state was set

    def perform(self, entry: str) -> Any:
        """Run the entry on the present state, and feed its outputs on as the plan's carries say."""

    def put_scalar(self, path: str, value: float) -> Any:
        """Set a 0-dimensional input that is passed by value; nothing on a rank that has none of that path."""

    def reduced(self, entry: str) -> Mapping[str, float]:
        """The 0-dimensional allreduce outputs of the last call of the entry."""

    def not_finite(self) -> str:
        """Where the state holds values that are not finite: words, or none. Collective."""


class Stopped(Refusal):
    """The loop has ended where it should not have: its state is as the last step left it."""


class NotReached(Stopped):
    """The loop has done the most steps it may do, and its end was not reached."""


class CheckFailed(Stopped):
    """A check of the plan does not hold."""


class Runner:
    """The loop of one program. `values` are the host's: scalars, `step` (the steps done), reduced values.

    Keep one Runner with a program: it knows how far the state has come.
    """

    def __init__(self, program: Steppable, plan: plan_data.Plan) -> None:
        self.program, self.plan = program, plan
        self.values: dict[str, float] = {"step": 0.0} | {s.name: float(s.default) for s in plan.scalars}
        self._expressions = {text: expressions.parse(text) for text in _texts(plan)}
        self._used = frozenset(name for e in self._expressions.values() for name in e.names)
        self._init = [self._call(call) for call in plan.init]
        self._step = [self._call(call) for call in plan.step] + [self._update(u) for u in plan.update]
        self._draw = [self._call(call) for call in plan.draw]

    @property
    def step(self) -> int:
        """Steps done."""
        return int(self.values["step"])

    def scalars(self) -> dict[str, float]:
        """The scalars, and `step`."""
        return {"step": self.step} | {s.name: self.values[s.name] for s in self.plan.scalars}

    def draw(self) -> None:
        """Compute what only pictures need, of the present state."""
        for action in self._draw:
            action()

    def run(
        self,
        steps: int | None = None,
        until_time: float | None = None,
        set: Mapping[str, float] | None = None,
        every: Mapping[str, int] | None = None,
        on_observe: Observe | None = None,
        on_step: Callable[[int], Any] | None = None,
    ) -> dict[str, float]:
        """Do `steps` further steps, or fewer where the plan's `until` holds or the scalar t reaches `until_time`.

        Steps are whole: the last one may pass `until_time`. `set`: scalars, free 0-dimensional inputs, or reduced
        values of init calls that a set state replaces; `every`: intervals by entry. `on_observe` is called after each
        `every` call that is not `before`, `on_step` with the steps done after each step. Returns `scalars()`.
        Raises Refusal (agreed where all ranks give the same arguments), NotReached after `at_most` steps, CheckFailed.
        """
        intervals = check(self.plan, steps, until_time, every or {})
        self._set(set or {})
        if not self.program.initialised:
            for action in self._init:
                action()
            self.program.initialised = True
        self._check_known()
        before = [(intervals[e.entry], self._every(e, None)) for e in self.plan.every if e.before]
        after = [(intervals[e.entry], self._every(e, on_observe)) for e in self.plan.every if not e.before]
        self._loop(steps, until_time, before, after, on_step)
        return self.scalars()

    def _loop(
        self,
        steps: int | None,
        until_time: float | None,
        before: list[tuple[int, Action]],
        after: list[tuple[int, Action]],
        on_step: Callable[[int], Any] | None,
    ) -> None:
        values, actions, at_most = self.values, self._step, self.plan.at_most
        until = self._expressions[self.plan.until] if self.plan.until else None
        known = False
        step = self.step
        end = None if steps is None else step + steps
        time = values.get(TIME, 0.0)
        while step != end and (until_time is None or time < until_time):
            if until is not None:
                known = known or until.names <= values.keys()
                if known and until.value(values):
                    return
                if step >= at_most:
                    raise NotReached(f"the loop has done {step} steps, the most it may do, and {until.text!r} does not "
                                     "hold: the result is not what was asked for", agreed=True)
            for interval, action in before:
                if not step % interval:
                    action()
            for action in actions:
                action()
            step += 1
            values["step"] = float(step)
            for interval, action in after:
                if not step % interval:
                    action()
            if on_step is not None:
                on_step(step)
            if until_time is not None:
                time = _advanced(time, values[TIME], step)

    def _set(self, given: Mapping[str, float]) -> None:
        free = {one.path: one.dtype for one in self.plan.free}
        for name, value in given.items():
            check_settable(self.plan, name, self.program.initialised)
            _stored(free.get(name, "float64"), value, name)
        for name, value in given.items():
            if name in free:
                self.program.put_scalar(name, _stored(free[name], value, name))
            else:
                self.values[name] = float(value)

    def _check_known(self) -> None:
        for name in sorted((self._used & _only_init(self.plan)) - self.values.keys()):
            raise Refusal(f"the loop needs {name!r}, which an init call computes, but the state was set instead: give "
                          f"it with set, as in set={{{name!r}: 1.0}}", agreed=True)

    def _every(self, every: plan_data.Every, on_observe: Observe | None) -> Action:
        call, entry, values, reduced = self._call(every), every.entry, self.values, self.program.reduced
        updates, checks = [self._update(u) for u in every.update], every.check
        if not updates and not checks and on_observe is None:
            return call

        def action() -> None:
            call()
            for update in updates:
                update()
            if on_observe is not None:
                on_observe(entry, int(values["step"]), reduced(entry))
            for check in checks:
                self._check(check)

        return action

    def _check(self, check: plan_data.Check) -> None:
        """All ranks find the same, as they know the same values."""
        expression = self._expressions[check.text]
        if expression.value(self.values):
            return
        step = self.step
        time = f" (t = {self.values[TIME]:.7g})" if TIME in self.values else ""
        found = ", ".join(f"{name} is {self.values[name]:.7g}" for name in sorted(expression.names))
        where = self.program.not_finite()
        raise CheckFailed(f"after {step} step{'s' * (step != 1)}{time} {check.words}: {found}, where {check.text!r} "
                          f"should hold{where and '; ' + where}", agreed=True)

    def _call(self, call: plan_data.Call | plan_data.Every) -> Action:
        """Settings, the call, and the reduced values that some expression reads."""
        values, entry, perform, reduced = self.values, call.entry, self.program.perform, self.program.reduced
        puts = [self._put(setting) for setting in call.set]
        paths = tuple(path for path in self.plan.reduced_of(entry) if path in self._used)
        if not puts and not paths:
            return functools.partial(perform, entry)

        def action() -> None:
            for put in puts:
                put()
            perform(entry)
            if paths:
                found = reduced(entry)
                for path in paths:
                    values[path] = found[path]

        return action

    def _put(self, setting: plan_data.Setting) -> Action:
        put, path, values = self.program.put_scalar, setting.path, self.values
        if not isinstance(setting.value, str):
            return functools.partial(put, path, setting.value)
        value = self._expressions[setting.value].value
        if setting.dtype.startswith(("float", "complex")):
            return lambda: put(path, value(values))
        return lambda: put(path, _stored(setting.dtype, value(values), path))

    def _update(self, update: plan_data.Update) -> Action:
        name, values, text = update.name, self.values, update.text
        value = self._expressions[text].value

        def action() -> None:
            values[name] = float(value(values))

        return action


def check(
    plan: plan_data.Plan, steps: int | None, until_time: float | None, every: Mapping[str, int]
) -> dict[str, int]:
    """The interval of each `every` entry. Raises Refusal for a run that has no end or cannot be."""
    if steps is None and until_time is None and not plan.until:
        raise Refusal("this bundle's loop has no end of its own: give the number of steps (steps=N, --steps N)",
                      agreed=True)
    if steps is not None and steps < 0:
        raise Refusal(f"expected a number of steps, but found {steps}", agreed=True)
    if until_time is not None and (TIME not in {u.name for u in plan.update} or math.isnan(until_time)):
        raise Refusal(f"expected a loop that advances a scalar {TIME!r} in every step, to run until {until_time}, but "
                      "this bundle's has none: give the number of steps", agreed=True)
    intervals = {e.entry: e.interval for e in plan.every}
    for name, interval in every.items():
        if name not in intervals:
            raise Refusal(f"expected an interval for one of {_listed(intervals)}, but found {name}={interval}"
                          f"{_meant(name, intervals)}", agreed=True)
        if interval < 1:
            raise Refusal(f"expected a positive interval, but found {name}={interval}", agreed=True)
    return intervals | dict(every)


def check_settable(plan: plan_data.Plan, name: str, initialised: bool = False) -> None:
    """Raises Refusal unless it is a scalar, a free input, or, where no init will run, a value that init reduces."""
    names = [*(s.name for s in plan.scalars), *(one.path for one in plan.free)]
    names += sorted(_only_init(plan)) if initialised else []
    if name in names:
        return
    taken = {s.path for call in plan.calls for s in call.set}
    carried = {carry.input: f"output {carry.output!r} of entry {carry.entry!r}" for carry in plan.carry}
    if name in taken:
        found = "an input that the plan sets itself"
    elif name in carried:
        found = f"an input that {carried[name]} feeds"
    else:
        found = f"no number of this bundle's loop{_meant(name, names)}"
    raise Refusal(f"expected one of {_listed(names)} to be set, but {name!r} is {found}", agreed=True)


def _texts(plan: plan_data.Plan) -> set[str]:
    settings = (setting.value for call in plan.calls for setting in call.set)
    updates = (update.text for update in (*plan.update, *(u for e in plan.every for u in e.update)))
    checks = (check.text for e in plan.every for check in e.check)
    return {text for text in (*settings, *updates, *checks, plan.until or None) if isinstance(text, str)}


def _only_init(plan: plan_data.Plan) -> frozenset[str]:
    """Reduced values that no call of the loop computes."""
    calls: tuple[plan_data.Call | plan_data.Every, ...] = (*plan.step, *plan.every)
    loop = {path for call in calls for path in plan.reduced_of(call.entry)}
    return frozenset(path for call in plan.init for path in plan.reduced_of(call.entry)) - loop


def _advanced(before: float, now: float, step: int) -> float:
    if not now > before:
        raise Refusal(f"{TIME} is {before} before step {step} and {now} after it, so no time will ever be reached",
                      agreed=True)
    return now


def _stored(dtype: str, value: float, path: str) -> float:
    """The value as an input of that dtype can hold it. Raises Refusal."""
    if dtype == "bool":
        return bool(value)
    if dtype.startswith(("int", "uint")):
        if not math.isfinite(value) or value != int(value):
            raise Refusal(f"input {path!r} is {dtype}, but was set to {value}: give a whole number", agreed=True)
        return int(value)
    return value


def _meant(name: str, names: Iterable[str]) -> str:
    near = difflib.get_close_matches(name, list(names), 1)
    return f"; did you mean {near[0]!r}?" if near else ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(names) or "(there is none)"
