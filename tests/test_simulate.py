"""`simulate.prove` accepts schedules that run, and no change that could make one fail."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import fields, replace
from itertools import product
from random import Random
from time import process_time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotato.runtime_stub.hazards import PROMISED, check_hazards
from aotato.runtime_stub.schedule import Argument, Output, Parcel, Schedule, Step
from aotato.runtime_stub.simulate import NO_CARRY, ScheduleError, prove
from executor import Fault, World
from mutants import MUTANTS
from schedules import NBYTES, Round, alter, chain, edit, move, reorder, ring, schedules, swap

CASES: dict[str, tuple[int, list[Round]]] = {
    "alone": (1, []),
    "ring": (3, [ring(3)]),
    "two batches": (3, [ring(3), ring(3)]),
    "chain": (3, [chain(3)]),
    "allreduce": (2, ["sum"]),
    "both": (4, [chain(4), "sum", ring(4), "max"]),
}
STAGINGS = ("mapped", "copied")


def rejects(whole: Sequence[Schedule], words: str = ".") -> None:
    with pytest.raises(ScheduleError, match=words):
        prove(whole)


def accepts(whole: Sequence[Schedule]) -> bool:
    try:
        prove(whole)
    except ScheduleError:
        return False
    return True


def fault(whole: Sequence[Schedule], seeds: range, **options: Any) -> str:
    """The first fault seen in random runs with eager and rendezvous sends, or ''."""
    for seed, rendezvous in product(seeds, (False, True)):
        try:
            World(whole, rendezvous, **options).run(Random(seed))
        except Fault as error:
            return str(error)
    return ""


@pytest.mark.parametrize("late_post", (False, True))
@pytest.mark.parametrize("staging", STAGINGS)
@pytest.mark.parametrize("case", CASES)
def test_valid_schedules_are_proved_and_run(case: str, staging: str, late_post: bool) -> None:
    whole = schedules(*CASES[case], staging, late_post)
    prove(whole)
    assert not fault(whole, range(4))


@pytest.mark.parametrize("staging", STAGINGS)
@pytest.mark.parametrize("name", MUTANTS)
def test_mutants_of_a_ring_are_rejected(name: str, staging: str) -> None:
    change, words = MUTANTS[name]
    rejects(alter(schedules(3, [ring(3)], staging), 1, change), words)


def test_a_message_without_another_end_is_rejected() -> None:
    whole, silent = schedules(2, [ring(2)]), schedules(2, [frozenset()])
    rejects([whole[0], silent[1]], "rank 0 sends message 0 .*'send0_1'. to rank 1, which has no receive")
    rejects([silent[0], schedules(2, [chain(2)])[1]], "rank 1 receives message 0 .* from rank 0, which does not send")


def test_no_ranks_are_no_proof() -> None:
    rejects([], "there are no ranks")


def test_tags_that_could_be_confused_are_rejected() -> None:
    whole = [edit("messages", len(s.messages) // 2, tag=10)(s) for s in schedules(2, [ring(2)] * 2)]
    rejects(whole, "rank 0 has more than one message with tag 10 to rank 1")


def test_mutants_of_collectives_are_rejected() -> None:
    whole = schedules(3, ["sum", "max"])
    for change in ({"op": "min"}, {"dtype": "int64"}, {"count": 11, "values": ()}, {"values": ()}, {"batch": 1}):
        rejects(alter(whole, 1, edit("reductions", 0, **change)), "rank 1, step 2 .reduction 0")
    rejects([edit("reductions", 1, batch=2)(s) for s in whole], "rank 0, reduction 1.*batch 2 is outside 0 to 1")
    rejects([edit("reductions", 1, values=(("a", 0),))(s) for s in whole], "are not .name, first element, shape.")
    rejects(alter(whole, 1, edit("reductions", 0, op="xor")), "operator 'xor'")
    rejects(alter(whole, 1, edit("reductions", 0, count=13)), "13 float64 values")
    rejects(alter(whole, 1, edit("reductions", 0, values=(("a", 0, (2,)), ("b", 1, ())))), "overlap at 1")
    rejects([*whole[:2], schedules(3, ["sum", frozenset()])[2]], "rank 2 performs 1 collectives, but rank 0 performs 2")
    free = schedules(3, ["sum", "sum"])  # a second reduction that does not need the first
    change = edit("launches", 2, arguments=(Argument("x", "float64", "r"), Argument("t1", "float64", "w")))
    free = [change(s) for s in free]
    prove(free)
    early = reorder(lambda s: [s[0], s[1], s[3], s[4], s[5], s[2], *s[6:]])
    prove([early(s) for s in free])
    rejects(alter(free, 1, early), "rank 1, step 4 .reduction 1.* as collective 0, but rank 0")


@pytest.mark.parametrize("staging", STAGINGS)
def test_a_reduced_value_is_taken_after_its_reduction(staging: str) -> None:
    whole = schedules(2, ["sum"], staging)

    def scalar(number: int, **fields: Any) -> list[Schedule]:
        value = replace(Argument("reduce0", "float64", "r", by_value=True), **fields)
        others = [a for a in whole[0].launches[number].arguments if (a.buffer, a.mode) != ("reduce0", "r")]
        return [edit("launches", number, arguments=(value, *others))(s) for s in whole]

    for good in (scalar(2), scalar(2, element=11), scalar(0, buffer="x")):
        prove(good)
        assert not fault(good, range(20))
    rejects(scalar(0), "step 0 .launch 0.* reads 'reduce0' before this call has filled it")
    rejects(scalar(2, element=12), "element 12 of float64 in 96 bytes of 'reduce0'")
    rejects(scalar(2, buffer="t0"), "passes temporary buffer 't0' by value")
    rejects(scalar(2, mode="w"), "by value, mode 'w'")


@pytest.mark.parametrize("staging", STAGINGS)
def test_circles_of_waits_are_named(staging: str) -> None:
    whole = schedules(2, [ring(2)], staging)
    prove(alter(whole, 0, move("post", 1, 4)))
    late = move("post", 1, 7)
    settle_first = [reorder(lambda s: [*s[1:5], s[8], s[0], *s[5:8]])(s) for s in whole]
    rejects(settle_first, "rendezvous sends.*rank 0, step 4 .settle of message 0 to rank 1.*rank 1, step 4 .settle")
    prove(alter(whole, 0, reorder(lambda s: [*s[1:5], s[8], s[0], *s[5:8]])))
    wait_first = [reorder(lambda s: [s[0], s[1], s[5], *s[2:5], *s[6:]])(s) for s in whole]
    rejects(wait_first, "with eager sends.*rank 0, step 2 .wait of message 1 from rank 1.*in call 1; rank 1, step 2")
    rejects([late(s) for s in whole], "comes before post")
    both = schedules(2, [ring(2), "sum"], staging)
    rejects(alter(both, 0, move("reduce", 0, 1)), "before any launch")
    free = [edit("launches", 3, arguments=(Argument("x", "float64", "r"), Argument("reduce1", "float64", "w")))(s)
            for s in both]
    prove(free)
    early = reorder(lambda s: [s[0], s[8], s[9], *s[1:8], *s[10:]])
    rejects(alter(free, 0, early), "rank 0, step 2 .reduction 0.*; rank 1, step 5 .wait of message 1 from rank 0")


def test_overlapping_temporaries_are_rejected() -> None:
    whole = schedules(2, [ring(2)] * 3)
    prove(whole)
    number = [b.name for b in whole[0].buffers].index("t1")
    for offset, good in ((0, False), (8, False), (NBYTES - 8, False), (NBYTES, True)):
        assert accepts(alter(whole, 0, edit("buffers", number, offset=offset))) is good
    rejects(alter(whole, 0, edit("buffers", number, offset=8)), "writes temporary 't1' over 't0', .* until step 9")
    rejects(alter(whole, 0, edit("buffers", number, offset=2 * NBYTES)), "'t1' ends at byte 288, outside the arena")
    rejects(alter(whole, 0, edit("buffers", number, offset=NBYTES - 4)), "are no float64 array|over 't0'")


def _touches(s: Schedule, step: Step) -> tuple[set[Any], set[Any]]:
    """What a step reads and what it writes: buffers, bytes of the arena, messages, the order of collectives."""
    if step.op == "reduce":
        r = s.reductions[step.index]
        return {r.buffer}, {r.buffer, "collectives"}
    if step.op != "launch":
        m = s.messages[step.index]
        reads = {"fetch": {m.buffer}}.get(step.op, set())
        return reads, {("message", step.index)} | ({m.buffer} if step.op == "put" else set())
    found: tuple[set[Any], set[Any]] = set(), set()
    for a in s.launches[step.index].arguments:
        b = s.buffer(a.buffer)
        found[a.mode == "w"].update(range(b.offset, b.offset + b.nbytes) if b.kind == "temporary" else {b.name})
    return found


def _dependent(s: Schedule, first: Step, second: Step) -> bool:
    (reads, writes), (others, changes) = _touches(s, first), _touches(s, second)
    return bool(writes & (others | changes) or changes & reads)


def _may_stall(first: Step, second: Step) -> bool:
    """Swapped, what a peer may wait for comes after what may wait for a peer."""
    return first.op in ("post", "send", "reduce") and second.op in ("wait", "settle", "reduce")


@pytest.mark.parametrize("staging", STAGINGS)
@pytest.mark.parametrize("case", CASES)
def test_every_step_is_needed_once_and_in_order(case: str, staging: str) -> None:
    """Drop, repeat, swap with the next: rejected, or independent by rule, or (of progress) seen to run."""
    whole = schedules(*CASES[case], staging)
    for s in whole:
        for n, step in enumerate(s.steps):
            rejects(alter(whole, s.rank, reorder(lambda steps, n=n: steps[:n] + steps[n + 1:])))
            rejects(alter(whole, s.rank, reorder(lambda steps, n=n: [*steps[:n], steps[n], *steps[n:]])))
            if n + 1 == len(s.steps):
                continue
            following, swapped = s.steps[n + 1], alter(whole, s.rank, swap(n, n + 1))
            if _dependent(s, step, following):
                rejects(swapped)
            elif _may_stall(step, following):
                assert accepts(swapped) == (not fault(swapped, range(2)))
            else:
                prove(swapped)


@pytest.mark.parametrize("promise", [f.name for f in fields(PROMISED)])
def test_every_promise_of_the_loader_is_needed(promise: str) -> None:
    """Without it some schedule is rejected, in which a race is then seen to happen; where none is rejected, none is."""
    weaker = replace(PROMISED, **{promise: False})
    needed = 0
    for (size, rounds), staging in product(CASES.values(), STAGINGS):
        whole = schedules(size, rounds, staging)
        try:
            for s in whole:
                check_hazards(s, NO_CARRY, weaker)
        except ScheduleError:
            needed += 1
            assert fault(whole, range(1000), given=weaker)
        else:
            assert not fault(whole, range(4), given=weaker)
    assert needed


@pytest.mark.parametrize("staging", STAGINGS)
def test_received_arrays_as_outputs(staging: str) -> None:
    """They may be returned and, copied, carried where the input is not read after the next upload."""
    received = edit("outputs", 0, buffer="recv0_0")
    whole = [received(s) if s.rank == 1 else s for s in schedules(2, [chain(2)], staging)]
    prove(whole)
    with pytest.raises(ScheduleError, match=r"rank 1, step .* reads carried input 'x', but its memory 'recv0_0'"):
        prove(whole, {"out": "x"})
    early = edit("launches", 1, arguments=tuple(a for a in whole[1].launches[1].arguments if a.buffer != "x"))
    changed = alter(whole, 1, early)
    if staging == "copied":
        prove(changed, {"out": "x", "elsewhere": "y"})
    else:
        with pytest.raises(ScheduleError, match="overwritten from step 0"):
            prove(changed, {"out": "x"})
        prove(alter(changed, 1, move("post", 0, 1)), {"out": "x"})


def test_updates_in_place() -> None:
    """The last launches to read an input may write it, if it is an output; others may not read it then."""
    s, = schedules(1, [])
    x = Argument("x", "float64", "r"), Argument("x", "float64", "w")
    place = replace(edit("launches", 0, arguments=x)(s), outputs=(Output("out", "x", 0, (12,), "float64"),))
    twice = replace(place, launches=place.launches * 2, steps=(Step("launch", 0), Step("launch", 1)))
    after = edit("launches", 1, arguments=(x[0], Argument("out", "float64", "w")))(twice)
    prove([place])
    prove([twice])
    rejects([after], "reads input 'x', which step 0 has updated in place")


def test_empty_messages_need_no_launch() -> None:
    def empty(s: Schedule) -> Schedule:
        s = edit("messages", 0, nbytes=0, parcels=(Parcel("u", 0, (0, 3), "float64"),))(s)
        s = replace(s, buffers=tuple(replace(b, nbytes=0) if b.kind in ("send", "recv") else b for b in s.buffers))
        return edit("launches", 1, arguments=())(s) if s.rank == 0 else s
    prove([empty(s) for s in schedules(2, [chain(2)])])


@st.composite
def programs(draw: st.DrawFn) -> list[Schedule]:
    size = draw(st.integers(1, 4))
    pairs = [(a, b) for a in range(size) for b in range(size) if a != b]
    edges = st.frozensets(st.sampled_from(pairs)) if pairs else st.just(frozenset())
    rounds = draw(st.lists(edges | st.just("sum"), max_size=4))
    return schedules(size, rounds, draw(st.sampled_from(STAGINGS)), draw(st.booleans()))


@settings(max_examples=60, deadline=None)
@given(programs(), st.integers(0, 99))
def test_random_valid_schedules_are_proved_and_run(whole: list[Schedule], seed: int) -> None:
    prove(whole)
    assert not fault(whole, range(seed, seed + 1))


@settings(max_examples=150, deadline=None)
@given(programs(), st.data())
def test_what_is_accepted_after_random_changes_runs(whole: list[Schedule], data: st.DataObject) -> None:
    """Move steps, rewire arguments, shift temporaries; a change that is accepted shows no fault in random runs."""
    for _ in range(data.draw(st.integers(1, 3))):
        s = whole[data.draw(st.integers(0, len(whole) - 1))]
        kind = data.draw(st.sampled_from(("move", "move", "swap", "argument", "offset")))
        places = st.integers(0, len(s.steps) - 1)
        if kind == "move":
            step = s.steps[data.draw(places)]
            change = move(step.op, step.index, data.draw(places))
        elif kind == "swap":
            change = swap(data.draw(places), data.draw(places))
        elif kind == "argument":
            number = data.draw(st.integers(0, len(s.launches) - 1))
            arguments = list(s.launches[number].arguments)
            place = data.draw(st.integers(0, len(arguments) - 1))
            arguments[place] = replace(arguments[place], buffer=data.draw(st.sampled_from(s.buffers)).name,
                                       mode=data.draw(st.sampled_from("rw")))
            change = edit("launches", number, arguments=tuple(arguments))
        else:
            number = data.draw(st.integers(0, len(s.buffers) - 1))
            change = edit("buffers", number, offset=8 * data.draw(st.integers(0, 12)))
        whole = alter(whole, s.rank, change)
    if accepts(whole):
        assert not fault(whole, range(6))


def test_512_ranks_take_seconds() -> None:
    whole = schedules(512, [ring(512)] * 4)
    start = process_time()
    prove(whole)
    assert process_time() - start < 10


def test_sentences_are_one_line() -> None:
    with pytest.raises(ScheduleError) as raised:
        prove(alter(schedules(8, [ring(8)]), 3, edit("messages", 0, tag=5)))
    assert re.fullmatch(r"[^\n]{20,400}", str(raised.value))
