"""Joint buffers and early launches in schedules: what is accepted, and each promise broken once."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from aotato.runtime_stub.schedule import Argument, Buffer, Launch, Schedule, Step, from_json, to_json
from aotato.runtime_stub.simulate import ScheduleError, prove
from aotato.runtime_stub.verify import check_signatures
from schedules import NBYTES, alter, edit, ring, schedules

Schedules = list[Schedule]


def joined(s: Schedule, kind: str) -> Schedule:
    """Both messages of a ring in one buffer."""
    names = [b.name for b in s.buffers if b.kind == kind]
    places = {name: k * NBYTES for k, name in enumerate(names)}
    inside = (replace(b, offset=places[b.name], inside=kind) if b.kind == kind else b for b in s.buffers)
    launches = []
    for launch in s.launches:
        other = tuple(a for a in launch.arguments if a.buffer not in names)
        mine = [a for a in launch.arguments if a.buffer in names]
        launches.append(replace(launch, arguments=(*other, replace(mine[0], buffer=kind)) if mine else other))
    buffers = (*inside, Buffer(kind, "joint", NBYTES * len(names)))
    return replace(s, buffers=buffers, launches=tuple(launches))


def rings(staging: str = "copied") -> Schedules:
    return [joined(joined(s, "send"), "recv") for s in schedules(3, [ring(3)], staging)]


def early(s: Schedule) -> Schedule:
    """A launch of the last kernel before the waits, which leaves the messages alone."""
    last = s.launches[-1]
    left = tuple(replace(a, mode="n") if a.buffer == "recv" else a for a in last.arguments)
    place = next(n for n, step in enumerate(s.steps) if step.op == "wait")
    steps = (*s.steps[:place], Step("launch", len(s.launches)), *s.steps[place:])
    return replace(s, launches=(*s.launches, replace(last, arguments=left, early=True)), steps=steps)


@pytest.mark.parametrize("staging", ["mapped", "copied"])
def test_joint_messages_are_proved(staging: str) -> None:
    whole = rings(staging)
    prove(whole)
    prove([early(s) for s in whole])
    assert [from_json(to_json(s)) for s in whole] == whole


def place(name: str, **fields: Any) -> Any:
    def change(s: Schedule) -> Schedule:
        number = next(n for n, b in enumerate(s.buffers) if b.name == name)
        return edit("buffers", number, **fields)(s)

    return change


def dropped_wait(s: Schedule) -> Schedule:
    """The last launch comes before one of the two messages has arrived."""
    order = list(s.steps)
    last = next(step for step in reversed(order) if step.op == "launch")
    order.remove(last)
    order.insert(max(n for n, step in enumerate(order) if step.op == "wait"), last)
    return replace(s, steps=tuple(order))


def unsent(s: Schedule) -> Schedule:
    """What is sent is fetched before the launch that packs it."""
    order = list(s.steps)
    first = next(n for n, step in enumerate(order) if step.op == "fetch")
    order.insert(first - 1, order.pop(first))
    return replace(s, steps=tuple(order))


MUTANTS: dict[str, tuple[Any, str]] = {
    "overlap": (place("recv0_2", offset=NBYTES - 8), "overlap at"),
    "outside": (place("recv0_2", offset=NBYTES + 8), "outside 0 to"),
    "two directions": (place("send0_0", inside="recv", offset=2 * NBYTES), "holds buffers of kinds recv, send"),
    "no such buffer": (place("recv0_2", inside="nowhere"), "joint buffer 'nowhere' is none"),
    "empty": (lambda s: replace(s, buffers=(*s.buffers, Buffer("e", "joint", 8))), "holds buffers of kinds none"),
    "an output in it": (edit("outputs", 0, buffer="recv"), "there is no buffer 'recv'"),
    "one message has not arrived": (dropped_wait, "before this call has filled it"),
    "fetched before it is packed": (unsent, "before any launch of this call writes it"),
    "joint of joint": (place("recv", inside="send"), "holds buffers of kinds joint, send"),
}


@pytest.mark.parametrize("name", MUTANTS)
def test_broken_joints_are_rejected(name: str) -> None:
    change, words = MUTANTS[name]
    with pytest.raises(ScheduleError, match=words):
        prove(alter(rings(), 1, change))


def leaves_alone(buffer: str, is_early: bool) -> Any:
    def change(s: Schedule) -> Schedule:
        last = s.launches[-1]
        left = tuple(replace(a, mode="n") if a.buffer == buffer else a for a in last.arguments)
        return replace(s, launches=(*s.launches[:-1], replace(last, arguments=left, early=is_early)))

    return change


@pytest.mark.parametrize(("buffer", "is_early"), [("recv", False), ("x", True)])
def test_only_an_early_launch_leaves_messages_alone(buffer: str, is_early: bool) -> None:
    with pytest.raises(ScheduleError, match="but does not touch"):
        prove(alter(rings(), 1, leaves_alone(buffer, is_early)))


@pytest.mark.parametrize("parameter", [("int32", 1 << 31), ("int16", 1), ("int64", True)])
def test_parameters_are_integers_in_range(parameter: tuple[str, int]) -> None:
    with pytest.raises(ScheduleError, match="parameter"):
        prove(alter(rings(), 1, edit("launches", 0, parameters=(parameter,))))


def test_launches_of_a_kernel_agree_in_parameters() -> None:
    def launch(*parameters: tuple[str, int], mode: str = "r") -> Launch:
        return Launch("k", "k", 0, (Argument("x", "float64", mode),), (8,), (4,), 8, 8, 1, 0, 0, parameters)

    (whole,) = schedules(1, [])
    check_signatures([replace(whole, launches=(launch(("int32", 1)), launch(("int32", 2), mode="n")))], "", {})
    with pytest.raises(ScheduleError, match="but the same kernel"):
        check_signatures([replace(whole, launches=(launch(("int32", 1)), launch()))], "", {})
