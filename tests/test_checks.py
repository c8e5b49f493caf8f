"""Every mistake of users is found at build time, with both ends named, all in one go."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pymbolic.primitives as prim
import pytest

from aotato.frontend import checks
from aotato.frontend.checks import ProgramErrors, check
from aotato.frontend.expr import Reduce, own_index, read
from aotato.frontend.ir import Allreduce, Const, Input, Lambda, Node, Output, Programs, Recv, Send
from aotato.frontend.program_checks import InvalidProgram
from rank_programs import Ranks, with_rank


def errors(programs: Programs) -> tuple[checks.MessageError, ...]:
    with pytest.raises(ProgramErrors) as caught:
        check(programs)
    assert str(caught.value).splitlines() == [str(error) for error in caught.value.errors]
    return caught.value.errors


def only(programs: Programs, kind: type) -> str:
    (error,) = errors(programs)
    assert type(error) is kind
    return str(error)


def pair() -> tuple[Ranks, str]:
    ranks = Ranks(3)
    return ranks, ranks.input(1, (48,), name="face")


def test_correct_programs_pass():
    ranks, face = pair()
    ranks.send(1, face, 2, "x")
    ranks.output(2, "out", ranks.recv(2, 1, "x", (48,)))
    check(ranks.programs())


def test_missing_send():
    ranks, face = pair()
    ranks.send(1, face, 2, "y")
    ranks.recv(2, 1, "y", (48,))
    ranks.recv(2, 1, "x", (40,), name="u_face", line=12)
    assert only(ranks.programs(), checks.MissingSend) == (
        "rank 2 receives 'u_face' as float64[40] (solver.py:12) from rank 1 with tag 'x', "
        "but rank 1 sends nothing to rank 2 with this tag (it sends with 'y')"
    )


def test_of_many_tags_the_nearest_are_named():
    ranks, face = pair()
    for k in range(10):
        ranks.send(1, face, 2, f"state {k}")
        ranks.recv(2, 1, f"state {k}", (48,))
    ranks.recv(2, 1, "state 33", (48,))
    text = only(ranks.programs(), checks.MissingSend)
    assert "(it sends with 'state 3', " in text
    assert text.endswith(" and 6 others)")


def test_missing_receive():
    ranks, face = pair()
    ranks.send(1, face, 2, "x", line=20)
    assert only(ranks.programs(), checks.MissingReceive) == (
        "rank 1 sends 'face' as float64[48] (solver.py:20) to rank 2 with tag 'x', "
        "but rank 2 receives nothing from rank 1 with this tag"
    )


def test_duplicate_send():
    ranks, face = pair()
    other = ranks.input(1, (48,), name="other")
    ranks.send(1, face, 2, "x", line=20)
    ranks.send(1, other, 2, "x", line=21)
    ranks.recv(2, 1, "x", (48,), name="u", line=12)
    assert only(ranks.programs(), checks.DuplicateSend) == (
        "rank 1 sends 2 arrays to rank 2 with tag 'x': 'face' as float64[48] (solver.py:20) and "
        "'other' as float64[48] (solver.py:21), but rank 2 receives 'u' as float64[48] (solver.py:12)"
    )


def test_duplicate_receive():
    ranks, face = pair()
    ranks.send(1, face, 2, "x", line=20)
    ranks.recv(2, 1, "x", (48,), name="u", line=12)
    ranks.recv(2, 1, "x", (48,), name="v", line=13)
    assert only(ranks.programs(), checks.DuplicateReceive) == (
        "rank 2 receives 2 arrays from rank 1 with tag 'x': 'u' as float64[48] (solver.py:12) and "
        "'v' as float64[48] (solver.py:13), but rank 1 sends 'face' as float64[48] (solver.py:20)"
    )


def test_dtype_mismatch():
    ranks, face = pair()
    ranks.send(1, face, 2, "x", line=20)
    ranks.recv(2, 1, "x", (48,), "float32", name="u_face", line=12)
    assert only(ranks.programs(), checks.DtypeMismatch) == (
        "rank 2 receives 'u_face' as float32[48] (solver.py:12) with tag 'x', "
        "but rank 1 sends 'face' as float64[48] (solver.py:20): dtypes differ"
    )


def test_shape_mismatch():
    ranks, face = pair()
    ranks.send(1, face, 2, "x", line=20)
    ranks.recv(2, 1, "x", (40,), name="u_face", line=12)
    assert only(ranks.programs(), checks.ShapeMismatch) == (
        "rank 2 receives 'u_face' as float64[40] (solver.py:12) with tag 'x', "
        "but rank 1 sends 'face' as float64[48] (solver.py:20): shapes differ"
    )


def test_a_self_send_must_match_too():
    ranks, face = pair()
    ranks.send(1, face, 1, "x")
    ranks.recv(1, 1, "x", (40,), name="u")
    assert "rank 1 receives 'u' as float64[40] with tag 'x', but rank 1 sends 'face'" in only(
        ranks.programs(), checks.ShapeMismatch
    )


def test_unknown_rank():
    ranks, face = pair()
    ranks.send(1, face, 3, "x", line=20)
    ranks.recv(2, -1, "x", (48,), name="u")
    first, second = errors(ranks.programs())
    assert type(first) is type(second) is checks.UnknownRank
    assert str(first) == (
        "rank 1 sends 'face' as float64[48] (solver.py:20) to rank 3 with tag 'x', but ranks are 0 to 2"
    )
    assert str(second) == "rank 2 receives 'u' as float64[48] from rank -1 with tag 'x', but ranks are 0 to 2"


def test_a_cycle_is_told_rank_by_rank():
    ranks = Ranks(2)
    a = ranks.recv(0, 1, "back", name="a", line=3)
    b = ranks.map(0, lambda x: x + 1, a, name="b")
    ranks.send(0, b, 1, "there", line=5)
    c = ranks.recv(1, 0, "there", name="c", line=7)
    ranks.send(1, c, 0, "back", line=9)
    d = ranks.map(1, lambda x: x * 2, c)
    ranks.output(1, "out", d)
    assert only(ranks.programs(), checks.CommunicationCycle) == (
        "ranks wait for each other: rank 0 computes 'b' from 'a' and sends it to rank 1 as 'c' with tag 'there' "
        "(solver.py:5); rank 1 passes 'c' on and sends it to rank 0 as 'a' with tag 'back' (solver.py:9); "
        "so none can be first"
    )


def test_a_cycle_through_a_collective():
    ranks = Ranks(2)
    a = ranks.recv(0, 1, "x", (), name="a")
    ranks.allreduce(0, a, name="sum")
    mine = ranks.input(1, ())
    total = ranks.allreduce(1, mine, name="total")
    ranks.send(1, total, 0, "x")
    assert only(ranks.programs(), checks.CommunicationCycle) == (
        "ranks wait for each other: rank 0 passes 'a' on and reduces it over all ranks, which gives rank 1 'total'; "
        "rank 1 passes 'total' on and sends it to rank 0 as 'a' with tag 'x'; so none can be first"
    )


def test_a_rank_that_sends_itself_what_it_waits_for():
    ranks = Ranks(1)
    a = ranks.recv(0, 0, "x", name="a")
    ranks.send(0, ranks.map(0, lambda x: x + 1, a, name="b"), 0, "x")
    assert "rank 0 computes 'b' from 'a' and sends it to rank 0 as 'a'" in only(
        ranks.programs(), checks.CommunicationCycle
    )


def test_every_cycle_is_told():
    ranks = Ranks(4)
    for low in (0, 2):
        for rank, other in ((low, low + 1), (low + 1, low)):
            ranks.send(rank, ranks.recv(rank, other, (other, rank)), other, (rank, other))
    assert [type(error) for error in errors(ranks.programs())] == [checks.CommunicationCycle] * 2


def reducing(*calls: list[tuple[str, tuple[int, ...], str]]) -> Programs:
    ranks = Ranks(len(calls))
    for rank, wanted in enumerate(calls):
        for number, (op, shape, dtype) in enumerate(wanted):
            ranks.allreduce(rank, ranks.input(rank, shape, dtype, f"x{number}"), op, f"r{number}")
    return ranks.programs()


FULL = ("sum", (3,), "float64")


@pytest.mark.parametrize(
    "other",
    [("max", (3,), "float64"), ("sum", (4,), "float64"), ("sum", (3,), "float32")],
    ids=["op", "shape", "dtype"],
)
def test_collectives_that_differ(other: tuple[str, tuple[int, ...], str]):
    op, (extent,), dtype = other
    assert only(reducing([FULL, FULL], [FULL, other]), checks.CollectiveMismatch) == (
        f"reduction 2 over all ranks is {op} of 'x1' as {dtype}[{extent}] into 'r1' on rank 1, "
        "but sum of 'x1' as float64[3] into 'r1' on rank 0"
    )


def test_collectives_in_another_order():
    other = ("max", (), "float64")
    assert len(errors(reducing([FULL, other], [other, FULL]))) == 2


def test_a_rank_with_fewer_collectives():
    assert only(reducing([FULL], [FULL, FULL], [FULL, FULL]), checks.CollectiveMismatch) == (
        "rank 0 calls 1 of the 2 reductions over all ranks of rank 1, "
        "whose sum of 'x1' as float64[3] into 'r1' has no partner"
    )


def test_all_mistakes_are_reported_in_one_go():
    ranks, face = pair()
    ranks.send(1, face, 7, "far")
    ranks.send(1, face, 2, "lost")
    ranks.recv(2, 1, "wanted")
    ranks.send(1, face, 2, "typed")
    ranks.recv(2, 1, "typed", (40,), "int32")
    ranks.allreduce(0, ranks.input(0))
    ranks.send(0, ranks.recv(0, 1, "to0"), 1, "to1")
    ranks.send(1, ranks.recv(1, 0, "to1"), 0, "to0")
    found = [type(error) for error in errors(ranks.programs())]
    assert found == [
        checks.UnknownRank,
        checks.MissingReceive,
        checks.MissingSend,
        checks.DtypeMismatch,
        checks.ShapeMismatch,
        checks.CollectiveMismatch,
        checks.CollectiveMismatch,
        checks.CommunicationCycle,
    ]


# One program, and every way to break a rule of the IR
F8 = np.dtype("float64")


def sound() -> Programs:
    ranks = Ranks(1)
    ranks.input(0, (4, 3), name="x")
    ranks.const(0, np.arange(3.0), name="c")
    ranks.total(0, "x", name="s")
    ranks.allreduce(0, "s", name="r")
    ranks.output(0, "out", "r")
    return ranks.programs()


def arrays(name: str, node: Node) -> Callable[[Programs], Programs]:
    return lambda programs: with_rank(programs, 0, arrays={**programs.ranks[0].arrays, name: node})


def lambda_over_x(expr: object, operands: tuple[str, ...] = ("x",), shape: tuple[int, ...] = (4,)) -> Node:
    return Lambda(expr, operands, shape, F8)


def twice_reduced() -> Node:
    inner = Reduce("sum", (("_r0", 0, 3),), read(0, (prim.Variable("_0"), prim.Variable("_r0"))))
    return lambda_over_x(inner + inner)


BROKEN: dict[str, Callable[[Programs], Programs]] = {
    "reads 'z', which is not defined before it": arrays("y", lambda_over_x(read(0, ()), ("z",))),
    "reads operand 1 of 1": arrays("y", lambda_over_x(read(1, ()))),
    "never reads its operands": arrays("y", lambda_over_x(1)),
    "of 2 axes with 1 indices": arrays("y", lambda_over_x(read(0, own_index(1)))),
    "operands are not unique": arrays("y", lambda_over_x(read(0, own_index(2)) + read(1, own_index(2)), ("x", "x"))),
    "the index '_1', which is not bound": arrays("y", lambda_over_x(read(0, own_index(2)))),
    "two reductions over '_r0'": arrays("y", twice_reduced()),
    "calls 'system'": arrays("y", lambda_over_x(prim.Call(prim.Variable("system"), (1,)), ())),
    "reduces with 'xor'": arrays("y", lambda_over_x(Reduce("xor", (("_r0", 0, 3),), 1), ())),
    "has dtype |O": arrays("y", Input("y", (), np.dtype(object))),
    "not in native byte order": arrays("y", Input("y", (), F8.newbyteorder())),
    "has shape (-1,)": arrays("y", Input("y", (-1,), F8)),
    "no data for digest": arrays("y", Const("00", (), F8)),
    "tag number 0 of 0": arrays("y", Recv(0, 0, (), F8)),
    "reduces with 'mean'": arrays("y", Allreduce("s", "mean", (), F8)),
    "but reduces float64()": arrays("y", Allreduce("s", "sum", (2,), F8)),
    "input paths are not unique": arrays("y", Input("x", (), F8)),
    "rank 0 sends 'z'": lambda programs: with_rank(programs, 0, sends=(Send("z", 0, 0),)),
    "output 'out' is 'z'": lambda programs: with_rank(programs, 0, outputs=(Output("out", "z"),)),
    "outputs are not sorted": lambda programs: with_rank(programs, 0, outputs=(Output("b", "x"), Output("a", "x"))),
    "stands for": lambda programs: replace(programs, entry="init"),
}


@pytest.mark.parametrize("text", BROKEN)
def test_programs_that_are_not_well_formed_are_rejected(text: str):
    check(sound())
    with pytest.raises(InvalidProgram) as caught:
        check(BROKEN[text](sound()))
    assert text in str(caught.value)
