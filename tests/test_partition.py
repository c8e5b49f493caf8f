"""Every pattern of communication, written as IR: how it is cut, and that it computes what it says."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pymbolic.primitives as prim
import pytest

from aotato.frontend import late
from aotato.frontend.checks import check
from aotato.frontend.expr import own_index, read
from aotato.frontend.interpret import run as interpret
from aotato.frontend.ir import Programs
from aotato.frontend.partition import partition
from aotato.frontend.parts import Message, Parcel, Part, Partition
from parts_run import execute, orders
from rank_programs import Ranks, values

Partitions = tuple[Partition, ...]


def cut(programs: Programs) -> Partitions:
    """The partition, once it is known to give what the interpreter gives, in any order of parts."""
    check(programs)
    found = partition(programs)
    inputs = values(programs)
    expected = interpret(programs, inputs)
    for choose in orders([3, 1, 4, 1, 5, 9, 2, 6]):
        for numbered in (False, True):
            results = execute(programs, found, inputs, choose, numbered)
            for outputs, meaning in zip(results, expected, strict=True):
                assert outputs.keys() == meaning.keys()
                for path in meaning:
                    assert outputs[path].dtype == meaning[path].value.dtype
                    np.testing.assert_array_equal(outputs[path], meaning[path].value)
    return found


def sent(found: Partition) -> list[Message]:
    return [message for part in found.parts for message in part.sends]


def numbers(found: Partition) -> list[int]:
    return [part.number for part in found.parts]


def stores(found: Partition) -> dict[str, int]:
    return {name: part.number for part in found.parts for name in part.stores}


@pytest.fixture
def early(monkeypatch):
    """Every reduction counts as a long one."""
    monkeypatch.setattr(late, "LONGEST_DELAYED", 0)


def double(x: Any) -> Any:
    return 2 * x


def add(x: Any, y: Any) -> Any:
    return x + y


IDLE = (Part(0, (), (), ()),)


# Patterns


def test_an_input_sent_as_it_is():
    ranks = Ranks(2)
    back = ranks.move(0, ranks.input(0, name="x"), 1)
    ranks.output(1, "out", ranks.map(1, double, back, name="y"))
    zero, one = cut(ranks.programs())
    message = Message(0, 0, 1, (Parcel("x", back, 0),))
    assert zero.parts == (Part(0, (), (message,), ()),)
    assert one.parts == (Part(1, ("y",), (), ()),)
    assert one.recvs == (message,)


def test_a_received_array_as_output():
    ranks = Ranks(2)
    twos = ranks.const(1, np.full(10, 2.0))
    ranks.output(1, "out", ranks.move(0, ranks.map(0, double, ranks.move(1, twos, 0)), 1))
    zero, one = cut(ranks.programs())
    assert (zero.batches, one.batches) == (2, 2)
    assert stores(zero) == stores(one) == {}  # doubled values go into the message, the result is read in place
    (result,) = interpret(ranks.programs(), values(ranks.programs()))[1].values()
    assert result.value.tolist() == [4.0] * 10


def test_a_received_array_forwarded_unchanged():
    ranks = Ranks(2)
    there = ranks.move(0, ranks.map(0, double, ranks.input(0, name="x")), 1)
    ranks.output(0, "out", ranks.move(1, there, 0))
    zero, one = cut(ranks.programs())
    assert [[parcel.sent for parcel in message.parcels] for message in sent(one)] == [[there]]
    assert stores(zero) == stores(one) == {}
    assert numbers(zero) == [0]
    assert numbers(one) == [1]


def test_a_self_send_is_an_alias():
    ranks = Ranks(2)
    doubled = ranks.map(0, double, ranks.input(0), name="doubled")
    again = ranks.move(0, ranks.move(0, doubled, 0, name="once"), 0, name="again")
    ranks.output(0, "out", ranks.map(0, add, again, doubled, name="sum"))
    ranks.output(0, "same", "once")
    zero, one = cut(ranks.programs())
    assert zero.aliases == {"once": "doubled", "again": "doubled"}
    assert zero.batches == 0
    assert zero.recvs == ()
    assert zero.parts == (Part(0, ("doubled", "sum"), (), ()),)
    assert one.parts == IDLE


def test_a_self_receive_may_stand_before_what_it_receives():
    ranks = Ranks(1)
    copy = ranks.move(0, ranks.total(0, ranks.input(0)), 0)
    ranks.output(0, "out", ranks.map(0, double, copy))
    (found,) = cut(ranks.programs(recvs_first=True))
    assert len(found.parts) == 1


def test_a_self_send_of_a_received_array_takes_no_round():
    ranks = Ranks(2)
    received = ranks.move(0, ranks.input(0), 1)
    ranks.output(1, "out", ranks.move(1, ranks.map(1, double, ranks.move(1, received, 1)), 1))
    assert cut(ranks.programs())[1].batches == 1


def test_one_array_to_many_ranks():
    ranks = Ranks(5)
    total = ranks.total(0, ranks.input(0))
    for rank in range(1, 5):
        ranks.output(rank, "out", ranks.move(0, total, rank))
    zero, *others = cut(ranks.programs())
    assert numbers(zero) == [0]
    assert [message.dest for message in sent(zero)] == [1, 2, 3, 4]
    assert all(found.parts == IDLE for found in others)


def test_many_arrays_to_one_rank():
    ranks = Ranks(4)
    for rank in range(1, 4):
        for _ in range(3):
            ranks.output(0, f"out{rank}{_}", ranks.move(rank, ranks.map(rank, double, ranks.input(rank)), 0))
    found = cut(ranks.programs())
    assert [(message.source, len(message.parcels)) for message in found[0].recvs] == [(1, 3), (2, 3), (3, 3)]


def test_parcels_lie_in_the_order_of_tag_numbers():
    ranks = Ranks(2)
    names = [ranks.input(0) for _ in range(3)]
    for tag in ("c", "a", "b"):
        ranks.tags.setdefault(tag, len(ranks.tags))
    for name, tag in zip(names, ("a", "b", "c"), strict=True):
        ranks.move(0, name, 1, tag)
    (message,) = sent(cut(ranks.programs())[0])
    assert [(parcel.tag, parcel.sent) for parcel in message.parcels] == [(0, names[2]), (1, names[0]), (2, names[1])]


def test_one_array_twice_to_one_rank():
    ranks = Ranks(2)
    x = ranks.input(0)
    ranks.output(1, "out", ranks.map(1, add, ranks.move(0, x, 1), ranks.move(0, x, 1)))
    (message,) = sent(cut(ranks.programs())[0])
    assert [parcel.sent for parcel in message.parcels] == [x, x]


def test_the_same_array_under_two_output_names():
    ranks = Ranks(1)
    doubled = ranks.map(0, double, ranks.input(0))
    ranks.output(0, "a", doubled)
    ranks.output(0, "b", doubled)
    (found,) = cut(ranks.programs())
    assert stores(found) == {doubled: 0}


def test_outputs_that_are_inputs_or_constants():
    ranks = Ranks(1)
    ranks.output(0, "a", ranks.input(0))
    ranks.output(0, "b", ranks.const(0, np.arange(3)))
    (found,) = cut(ranks.programs())
    assert found.parts == IDLE


@pytest.mark.parametrize("shape", [(), (0,), (2, 0, 3), (5,)], ids=str)
def test_messages_of_every_dtype_and_shape(shape: tuple[int, ...]):
    dtypes = ("bool", "int8", "uint16", "int32", "int64", "float16", "float32", "float64", "complex64", "complex128")
    ranks = Ranks(2)
    for dtype in dtypes:
        ranks.output(1, dtype, ranks.move(0, ranks.input(0, shape, dtype), 1))
    (message,) = sent(cut(ranks.programs())[0])
    assert len(message.parcels) == len(dtypes)


def test_a_rank_without_communication():
    ranks = Ranks(3)
    ranks.output(1, "out", ranks.move(0, ranks.input(0), 1))
    ranks.output(2, "out", ranks.total(2, ranks.map(2, double, ranks.input(2))))
    found = cut(ranks.programs())[2]
    assert (numbers(found), found.recvs, found.batches) == ([0], (), 1)


def test_a_rank_with_nothing_to_compute():
    found = cut(Ranks(2).programs())
    assert [f.parts for f in found] == [IDLE, IDLE]
    assert found[0].batches == 0


def test_sends_whose_value_nobody_needs_locally():
    ranks = Ranks(2)
    ranks.output(1, "out", ranks.move(0, ranks.total(0, ranks.input(0)), 1))
    ranks.move(1, ranks.input(1), 0)  # and a receive that nobody reads
    zero, one = cut(ranks.programs())
    assert stores(zero) == {}
    assert len(sent(one)) == 1


def test_a_chain_over_many_ranks():
    ranks = Ranks(9)
    carried = ranks.input(0)
    for rank in range(1, 9):
        carried = ranks.map(rank, add, ranks.move(rank - 1, carried, rank), ranks.input(rank))
    ranks.output(8, "out", carried)
    found = cut(ranks.programs())
    assert found[0].batches == 8
    assert [numbers(f) for f in found] == [[rank] for rank in range(9)]


def test_a_tree_over_many_ranks():
    ranks = Ranks(8)
    values = [ranks.input(rank) for rank in range(8)]
    for stride in (1, 2, 4):
        for rank in range(0, 8, 2 * stride):
            values[rank] = ranks.map(rank, add, values[rank], ranks.move(rank + stride, values[rank + stride], rank))
    ranks.output(0, "out", values[0])
    found = cut(ranks.programs())
    assert found[0].batches == 3
    assert sum(len(sent(f)) for f in found) == 7


# Known answers


def test_sixteen_independent_exchanges():
    ranks = Ranks(2)
    for number in range(16):
        for rank in range(2):
            received = ranks.move(rank, ranks.map(rank, double, ranks.input(rank)), 1 - rank)
            ranks.output(1 - rank, f"out{number:02}", ranks.map(1 - rank, double, received))
    for found in cut(ranks.programs()):
        assert numbers(found) == [0, 1]
        assert len(sent(found)) == 1
        assert len(stores(found)) == 16


def test_two_dependent_rounds():
    ranks = Ranks(2)
    state = [ranks.input(rank) for rank in range(2)]
    for _ in range(2):
        arrived = [ranks.move(1 - rank, state[1 - rank], rank) for rank in range(2)]
        state = [ranks.map(rank, add, state[rank], arrived[rank]) for rank in range(2)]
    for rank in range(2):
        ranks.output(rank, "out", state[rank])
    for found in cut(ranks.programs()):
        assert numbers(found) == [0, 1, 2]
        assert len(sent(found)) == 2
        assert stores(found) == {state[found.program.rank]: 2}


def test_a_navier_stokes_pattern():
    ranks = Ranks(4)
    everyone = range(4)

    def from_others(arrays: list[list[str]]) -> list[list[list[str]]]:
        """What each rank gets of each array of its three neighbours."""
        return [
            [
                [ranks.move(other, arrays[other][k], rank) for other in everyone if other != rank]
                for k in range(len(arrays[rank]))
            ]
            for rank in everyone
        ]

    states = [[ranks.input(rank, (6,), name=f"q{k}") for k in range(5)] for rank in everyone]
    outer = from_others(states)
    gradients = [
        [
            ranks.total(rank, ranks.map(rank, lambda *q: prim.Sum(q), states[rank][k], *outer[rank][k]), keep=True)
            for k in range(5)
            for _ in range(3)
        ]
        for rank in everyone
    ]
    arrived = from_others(gradients)
    for rank in everyone:
        for k in range(5):
            near = [gradients[rank][3 * k], *(face for d in range(3) for face in arrived[rank][3 * k + d])]
            ranks.output(rank, f"rhs{k}", ranks.map(rank, lambda *q: prim.Sum(q), *near, name=f"rhs{k}"))

    for found in cut(ranks.programs()):
        assert numbers(found) == [0, 1, 2]
        peers = [(message.batch, message.dest, len(message.parcels)) for message in sent(found)]
        others = [rank for rank in everyone if rank != found.program.rank]
        assert peers == [(0, other, 5) for other in others] + [(1, other, 15) for other in others]
        own = [gradients[found.program.rank][3 * k] for k in range(5)]
        assert stores(found) == dict.fromkeys(own, 1) | {f"rhs{k}": 2 for k in range(5)}


# Collectives


def test_an_allreduce_is_a_round():
    ranks = Ranks(3)
    for rank in range(3):
        total = ranks.allreduce(rank, ranks.total(rank, ranks.input(rank)), name="total")
        ranks.output(rank, "out", ranks.map(rank, double, total, name="twice"))
    for found in cut(ranks.programs()):
        assert [len(part.reductions) for part in found.parts] == [1, 0]
        assert found.parts[0].reductions[0].results == ("total",)
        assert stores(found) == {"twice": 1}


def test_independent_rounds_of_both_kinds_share_a_batch():
    ranks = Ranks(2)
    inputs = [ranks.input(rank, ()) for rank in range(2)]
    for rank, x in enumerate(inputs):
        for name, op in (("a", "sum"), ("b", "sum"), ("c", "max")):
            ranks.output(rank, name, ranks.allreduce(rank, x, op, name))
        ranks.output(rank, "got", ranks.move(1 - rank, inputs[1 - rank], rank))
    for found in cut(ranks.programs()):
        assert found.batches == 1
        (part,) = found.parts
        assert [(call.op, call.results) for call in part.reductions] == [("sum", ("a", "b")), ("max", ("c",))]


def test_a_collective_waits_for_its_last_operand(early):
    ranks = Ranks(2)
    late = ranks.total(1, ranks.move(0, ranks.input(0), 1), name="late")
    early = ranks.total(0, ranks.input(0), name="early")
    for rank, name in enumerate((early, late)):
        ranks.output(rank, "out", ranks.allreduce(rank, name))
    zero, one = cut(ranks.programs())
    assert zero.batches == 2
    assert stores(zero) == {"early": 0}  # not held back until the collective
    assert stores(one) == {}
    assert [[call.batch for call in part.reductions] for part in zero.parts] == [[], [1]]


# Storage


def crossing(build: Callable[[Ranks, str, str], None], shape: tuple[int, ...] = (4,)) -> Partition:
    """Rank 0's partition of what `build` makes of an input of its own and an array from rank 1."""
    ranks = Ranks(2)
    x = ranks.input(0, shape, name="x")
    back = ranks.move(1, ranks.input(1, shape), 0, name="back")
    build(ranks, x, back)
    return cut(ranks.programs())[0]


def test_elementwise_work_is_recomputed():
    def build(ranks: Ranks, x: str, back: str) -> None:
        doubled = ranks.map(0, double, x, name="doubled", stored=True)
        ranks.output(1, "out", ranks.move(0, doubled, 1))
        ranks.output(0, "out", ranks.map(0, add, doubled, back, name="sum"))

    found = crossing(build)
    assert stores(found) == {"sum": 1}
    assert found.unstored_hints == ("doubled",)


def test_a_reduction_runs_early_and_is_stored(early):
    def build(ranks: Ranks, x: str, back: str) -> None:
        centred = ranks.total(0, x, keep=True, name="centred")
        above = ranks.map(0, double, centred, name="above")
        ranks.output(0, "out", ranks.map(0, add, above, back, name="sum"))

    assert stores(crossing(build)) == {"centred": 0, "sum": 1}


def test_a_short_reduction_runs_where_it_is_read():
    def build(ranks: Ranks, x: str, back: str) -> None:
        centred = ranks.total(0, x, keep=True, name="centred")
        ranks.output(0, "out", ranks.map(0, add, ranks.map(0, double, centred), back, name="sum"))

    assert stores(crossing(build)) == {"sum": 1}


def test_a_short_reduction_runs_early_if_it_is_sent():
    def build(ranks: Ranks, x: str, back: str) -> None:
        centred = ranks.total(0, x, keep=True, name="centred")
        ranks.output(1, "got", ranks.move(0, centred, 1))
        ranks.output(0, "out", ranks.map(0, add, centred, back, name="sum"))

    assert stores(crossing(build)) == {"centred": 0, "sum": 1}


def test_delaying_must_not_store_more():
    """Rows of a matrix that is itself a product: their sums are less to keep than the matrix."""

    def build(ranks: Ranks, x: str, back: str) -> None:
        centred = ranks.total(0, x, keep=True, name="centred")
        ranks.output(1, "got", ranks.move(0, centred, 1))
        whole = ranks.total(0, centred, name="whole")
        expr = read(0, ()) + read(1, own_index(1))
        ranks.output(0, "out", ranks.compute(0, (whole, back), expr, (4,), "float64", name="sum"))

    assert stores(crossing(build)) == {"whole": 0, "sum": 1}


def test_fewer_bytes_above_the_reduction_are_stored_instead(early):
    def build(ranks: Ranks, x: str, back: str) -> None:
        centred = ranks.total(0, x, keep=True, name="centred")
        first = ranks.compute(0, (centred,), read(0, (0,)), (), "float64", name="first")
        expr = read(0, ()) + read(1, own_index(1))
        ranks.output(0, "out", ranks.compute(0, (first, back), expr, (4,), "float64", name="sum"))

    assert stores(crossing(build)) == {"first": 0, "sum": 1}


def test_a_hint_breaks_a_tie(early):
    def build(ranks: Ranks, x: str, back: str) -> None:
        centred = ranks.total(0, x, keep=True, name="centred")
        above = ranks.map(0, double, centred, name="above", stored=True)
        ranks.output(0, "out", ranks.map(0, add, above, back, name="sum"))

    found = crossing(build)
    assert stores(found) == {"above": 0, "sum": 1}
    assert found.unstored_hints == ()


def test_an_output_serves_later_parts_too():
    def build(ranks: Ranks, x: str, back: str) -> None:
        above = ranks.map(0, double, ranks.total(0, x, keep=True), name="above")
        ranks.output(0, "early", above)
        ranks.output(0, "out", ranks.map(0, add, above, back, name="sum"))

    assert stores(crossing(build)) == {"above": 0, "sum": 1}


def test_a_reduction_of_one_part_is_not_stored():
    def build(ranks: Ranks, x: str, back: str) -> None:
        ranks.output(0, "out", ranks.map(0, add, ranks.total(0, back, keep=True), back, name="sum"))

    assert stores(crossing(build)) == {"sum": 1}


def test_what_nobody_needs_is_not_stored():
    def build(ranks: Ranks, x: str, back: str) -> None:
        ranks.map(0, add, ranks.total(0, x, keep=True), back)
        ranks.output(0, "out", x)

    assert crossing(build).parts == IDLE


# Size and determinism


def ring(size: int, rounds: int) -> Programs:
    """Rounds of exchanges with both neighbours, each followed by a reduction that a later round reads."""
    ranks = Ranks(size)
    state = [ranks.input(rank, name="x") for rank in range(size)]
    for _ in range(rounds):
        left = [ranks.move((rank + 1) % size, state[(rank + 1) % size], rank) for rank in range(size)]
        right = [ranks.move((rank - 1) % size, state[(rank - 1) % size], rank) for rank in range(size)]
        for rank in range(size):
            mean = ranks.total(rank, state[rank], keep=True)
            terms = (state[rank], left[rank], right[rank], mean)
            state[rank] = ranks.map(rank, lambda *q: prim.Sum(q), *terms)
    for rank in range(size):
        ranks.output(rank, "out", state[rank])
    return ranks.programs()


def test_512_ranks_on_a_ring_take_seconds():
    programs = ring(512, 8)
    start = time.process_time()
    check(programs)
    found = partition(programs)
    elapsed = time.process_time() - start
    print(f"{sum(len(p.arrays) for p in programs.ranks)} arrays on 512 ranks: {elapsed:.2f} s")
    assert found[0].batches == 8
    assert all(numbers(f) == list(range(9)) and len(f.recvs) == 16 for f in found)
    assert elapsed < 20


def test_a_long_chain_needs_no_recursion():
    ranks = Ranks(1)
    name = ranks.input(0)
    for _ in range(5000):
        name = ranks.map(0, double, name)
    ranks.output(0, "out", name)
    check(ranks.programs())
    (found,) = partition(ranks.programs())
    assert stores(found) == {name: 0}


PRINT = """
from programs_random import programs
from test_partition_random import some_programs
from aotato.frontend.partition import partition
for program in some_programs(20):
    for found in partition(program):
        print(found.parts, found.recvs, found.aliases, found.unstored_hints)
"""


def test_the_hash_seed_does_not_matter():
    printed = []
    for seed in ("1", "2", "3"):
        environment = {**os.environ, "PYTHONHASHSEED": seed, "PYTHONPATH": os.path.dirname(__file__)}
        done = subprocess.run(
            [sys.executable, "-c", PRINT], env=environment, capture_output=True, text=True, check=True
        )
        printed.append(done.stdout)
    assert printed[0].count("Part") > 20
    assert printed[1:] == printed[:2]
