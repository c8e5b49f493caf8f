"""Index maps as data: the same values, few bytes of tables, and the canonical forms that one expects."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pymbolic.primitives as prim
import pytest
from hypothesis import HealthCheck, given, settings

import aotato
from aotato.emit.index_forms import Rows, Tables, canonical
from aotato.emit.rewritten import pruned
from aotato.emit.tables import tables
from aotato.frontend import interpret, ir
from aotato.frontend.expr import Reduce, own_index, read
from aotato.frontend.text import dumps
from bundles import write
from gathers_random import gathers
from rank_programs import Ranks, values

EXAMPLES = int(os.environ.get("AOTATO_EXAMPLES", "200"))
Array = np.ndarray[Any, Any]


def some(count: int) -> settings:
    return settings(max_examples=count, derandomize=True, deadline=None, database=None,
                    suppress_health_check=list(HealthCheck))


def table_bytes(program: ir.Program) -> int:
    return sum(ir.nbytes(node) for _, node in program.of_type(ir.Const) if node.dtype.kind in "biu")


def test_any_chain_of_gathers_keeps_its_values_on_few_bytes() -> None:
    seen: Counter[str] = Counter()

    @some(EXAMPLES)
    @given(gathers())
    def run(programs: ir.Programs) -> None:
        found = pruned(tables(programs))
        inputs = values(programs)
        results = interpret.run(found, inputs)
        for before, after, meaning, result in zip(
            programs.ranks, found.ranks, interpret.run(programs, inputs), results, strict=True
        ):
            for path, value in meaning.items():
                interpret.assert_agrees(path, value, result[path].value)
            seen["fewer bytes"] += table_bytes(after) < table_bytes(before)
            seen["fewer arrays"] += len(after.arrays) < len(before.arrays)
            seen["total"] += 1
        assert len({tuple(program.arrays) for program in found.ranks}) == 1

    run()
    assert min(seen["fewer bytes"], seen["fewer arrays"]) > seen["total"] // 4, seen


def test_kernels_read_through_the_tables(tmp_path: Path) -> None:
    @some(4)
    @given(gathers().filter(lambda programs: programs.size == 1))
    def run(programs: ir.Programs) -> None:
        write(programs, tmp_path / "gathers.h5")
        with aotato.load(tmp_path / "gathers.h5", target="cpu") as program:
            assert "passed" in program.selftest()

    run()


def variables(*names: str) -> tuple[Any, ...]:
    return tuple(map(prim.Variable, names))


def lines(programs: ir.Programs, rank: int = 0) -> list[str]:
    """Arrays after the pass, without inputs and digests."""
    text = dumps(pruned(tables(programs)).ranks[rank]).splitlines()
    found = [line.partition("  #")[0] for line in text if " = " in line and not line.startswith("output")]
    short = [" ".join(line.split()[:4]) if " = const " in line else line for line in found]
    return [line for line in short if " = input " not in line]


def flat_gather(ranks: Ranks, rank: int, table: Array, nodes: int) -> None:
    """take(reshape(2 x), table)."""
    elements = len(table)
    x = ranks.map(rank, lambda a: a * 2, ranks.input(rank, (elements, nodes), name="x"), name="double")
    flat = read(0, (prim.Variable("_0") // nodes, prim.Variable("_0") % nodes))
    flat_x = ranks.compute(rank, (x,), flat, (elements * nodes,), "float64", "flat")
    index = ranks.const(rank, table.astype("int32"), "table")
    taken = read(0, (prim.Remainder(read(1, own_index(2)), elements * nodes),))
    ranks.output(rank, "out", ranks.compute(rank, (flat_x, index), taken, table.shape, "float64", "taken"))


def neighbours(elements: int, nodes: int, seed: int) -> Array:
    """Four faces of five nodes: a neighbour each, whose nodes come in one of twenty orders."""
    rng = np.random.default_rng(seed)
    orders = rng.permuted(np.tile(np.arange(nodes), (20, 1)), axis=1)[:, :5]
    whom, order = rng.integers(elements, size=(elements, 4)), rng.integers(20, size=(elements, 4))
    return np.asarray((whom[..., None] * nodes + orders[order]).reshape(elements, 20))


def test_a_flat_gather_is_a_neighbour_and_an_order_of_its_nodes() -> None:
    ranks = Ranks(2)
    for rank in range(2):
        flat_gather(ranks, rank, neighbours(300 + rank, 10, rank), 10)
    assert lines(ranks.programs(), 1) == [
        "double = lambda float64[301,10] (x): (a0[_0, _1] * 2)",
        "taken_t0 = const uint16[301,4]",
        "taken_t2 = const uint8[20,5]",
        "taken_t1 = const uint8[301,4]",
        "taken = lambda float64[301,20] (double, taken_t0, taken_t2, taken_t1): "
        "a0[a1[_0, (_1 // 5)], a2[a3[_0, (_1 // 5)], (_1 % 5)]]",
    ]


@pytest.mark.parametrize("hidden", [0, 999])
def test_rows_that_nobody_reads_are_none(hidden: int) -> None:
    """Wherever they stand."""
    rng = np.random.default_rng(0)
    orders = np.array([rng.permutation(20)[:5] for _ in range(6)])
    table, care = orders[rng.integers(0, 6, 1000)], np.ones((1000, 5), bool)
    table[hidden], care[hidden] = 0, False
    found = canonical(Tables((table,), (care,), variables("_0", "_1")))
    assert isinstance(found, Rows)
    (code,), (rows,) = found.code.values, found.rows.values
    assert len(rows) == 6 and (rows[code][care] == table[care]).all()


def sent_twice(whole: Array, count: int) -> ir.Programs:
    """Rank 0 sends x[whole[picks]] to ranks 1 and 2, other picks to each; x has rows of two numbers."""
    ranks = Ranks(3)
    x, chain = ranks.input(0, (len(whole), 2), name="x"), ranks.const(0, whole, "whole")
    for peer in (1, 2):
        picks = ranks.const(0, np.random.default_rng(peer).integers(0, len(whole), count + peer), f"picks{peer}")
        expr = read(0, (read(1, (read(2, (prim.Variable("_0"),)),)), prim.Variable("_1")))
        shape = count + peer, 2
        sent = ranks.compute(0, (x, chain, picks), expr, shape, "float64", f"sent{peer}")
        ranks.output(peer, "got", ranks.move(0, sent, peer, name="got"))
    return ranks.programs()


def test_what_is_sent_reads_a_table_for_each_peer() -> None:
    """In one form for all peers, which may become one."""
    programs = sent_twice(np.random.default_rng(0).permutation(300), 100)
    assert lines(programs) == [
        line for peer in (1, 2) for line in (
            f"sent{peer}_t0 = const uint16[{100 + peer}]",
            f"sent{peer} = lambda float64[{100 + peer},2] (x, sent{peer}_t0): a0[a1[_0], _1]",
        )
    ]
    before, after = (interpret.run(p, values(p)) for p in (programs, pruned(tables(programs))))
    for peer in (1, 2):
        interpret.assert_agrees("got", before[peer]["got"], after[peer]["got"].value)


def test_a_table_that_two_would_not_shorten_stays_one() -> None:
    ranks = Ranks(1)
    flat_gather(ranks, 0, np.random.default_rng(0).integers(0, 300 * 70000, (300, 20)), 70000)
    assert lines(ranks.programs())[1:] == [
        "taken_t0 = const int32[300,20]",
        "taken = lambda float64[300,20] (double, taken_t0): a0[(a1[_0, _1] // 70000), (a1[_0, _1] % 70000)]",
    ]


@pytest.mark.parametrize(
    ("table", "index"),
    [
        (np.arange(12), "_0"),
        (np.full(12, 7), "7"),
        (np.arange(12)[::-1] + 3, "(14 + (-1 * _0))"),
        (np.arange(12) - 20, "_0"),  # wraps around at 20
        (np.arange(12) // 4 * 5, "(5 * (_0 // 4))"),
        (np.repeat([3, 9, 1], 4), "a1[(_0 // 4)]"),
    ],
)
def test_canonical_forms_of_a_list(table: Array, index: str) -> None:
    ranks = Ranks(1)
    x, picked = ranks.input(0, (20,), name="x"), ranks.const(0, table, "table")
    expr = read(0, (prim.Remainder(read(1, own_index(1)), 20),))
    ranks.output(0, "out", ranks.compute(0, (x, picked), expr, (12,), "float64", "out"))
    assert lines(ranks.programs())[-1].endswith(f": a0[{index}]")


def masked(ranks: Ranks, rank: int, table: Array, mask: Array) -> None:
    """where(mask, x[table], 0)."""
    x = ranks.input(rank, (len(table) + 1,), name="x")
    operands = (ranks.const(rank, mask, "mask"), x, ranks.const(rank, table, "table"))
    expr = prim.If(read(0, own_index(1)), read(1, (read(2, own_index(1)),)), 0.0)
    ranks.output(rank, "out", ranks.compute(rank, operands, expr, table.shape, "float64", "out"))


def test_what_a_mask_hides_may_be_anything() -> None:
    mask = np.arange(12) % 3 > 0
    ranks = Ranks(2)
    masked(ranks, 0, np.where(mask, np.arange(12), -5), mask)
    masked(ranks, 1, np.where(~mask, np.arange(12), 10**9), ~mask)
    for rank in range(2):
        assert lines(ranks.programs(), rank)[-1].endswith("(mask, x): where(a0[_0], a1[_0], 0.0)")


def test_what_one_rank_cannot_have_none_has() -> None:
    mask = np.ones(12, bool)
    ranks = Ranks(2)
    masked(ranks, 0, np.arange(12), mask)
    masked(ranks, 1, np.arange(12)[::-1], mask)
    # A choice without an alternative goes; 0 + 1 * i and 11 - 1 * i are not the same operations
    for rank in range(2):
        assert lines(ranks.programs(), rank)[-1].endswith("(x, out_t0): a0[a1[_0]]")
    ranks = Ranks(2)
    masked(ranks, 0, np.arange(12), mask)
    masked(ranks, 1, np.arange(12), np.arange(12) != 6)
    for rank in range(2):
        assert lines(ranks.programs(), rank)[-1].endswith("(mask, x): where(a0[_0], a1[_0], 0.0)")


def test_a_mask_of_faces_has_an_entry_a_face() -> None:
    """Also where the mask is computed from a constant."""
    ranks = Ranks(1)
    kind = ranks.const(0, np.repeat(np.random.default_rng(0).integers(0, 3, (50, 4)), 6, axis=1), "kind")
    boundary = ranks.compute(0, (kind,), prim.Comparison(read(0, own_index(2)), "==", 1), (50, 24), "bool", "boundary")
    x = ranks.input(0, (50, 24), name="x")
    expr = prim.If(read(0, own_index(2)), read(1, own_index(2)), 0.0)
    ranks.output(0, "out", ranks.compute(0, (boundary, x), expr, (50, 24), "float64", "out"))
    assert lines(ranks.programs()) == [
        "out_t0 = const bool[50,4]",
        "out = lambda float64[50,24] (out_t0, x): where(a0[_0, (_1 // 6)], a1[_0, _1], 0.0)",
    ]


def test_a_reduction_reads_at_canonical_indices() -> None:
    ranks = Ranks(1)
    x, table = ranks.input(0, (50, 4), name="x"), ranks.const(0, np.repeat(np.arange(4), 3), "table")
    total = Reduce("sum", (("_r0", 0, 12),), read(0, (prim.Variable("_0"), read(1, variables("_r0")))))
    ranks.output(0, "out", ranks.compute(0, (x, table), total, (50,), "float64", "out"))
    assert lines(ranks.programs()) == [
        "out = lambda float64[50] (x): sum(a0[_0, (_r0 // 3)] for _r0 in range(0, 12))"
    ]


def chained(stored: bool = False) -> Ranks:
    """Reshaped to one axis and back, and every other element, of a computed array."""
    ranks = Ranks(1)
    x = ranks.map(0, lambda a: a * a, ranks.input(0, (30, 4), name="x"), name="square")
    flat = read(0, (prim.Variable("_0") // 4, prim.Variable("_0") % 4))
    one = ranks.compute(0, (x,), flat, (120,), "float64", "flat", stored)
    unflat = read(0, (prim.Variable("_0") * 4 + prim.Variable("_1"),))
    back = ranks.compute(0, (one,), unflat, (30, 4), "float64", "back")
    every = read(0, (prim.Variable("_0") * 2, prim.Variable("_1")))
    half = ranks.compute(0, (back,), every, (15, 4), "float64", "half")
    ranks.output(0, "out", ranks.map(0, lambda a: a + 1, half))
    return ranks


def test_reshapes_vanish_and_a_slice_of_what_is_computed_stays() -> None:
    assert lines(chained().programs())[1:] == [
        "half = lambda float64[15,4] (square): a0[(2 * _0), _1]",
        "t5 = lambda float64[15,4] (half): (a0[_0, _1] + 1)",
    ]


def test_nothing_reads_through_what_a_user_stored() -> None:
    assert lines(chained(stored=True).programs())[1].startswith("flat = lambda float64[120] stored (square)")


def test_arithmetic_on_an_index_is_wide_though_its_table_is_narrow() -> None:
    ranks = Ranks(1)
    order = np.random.default_rng(0).permutation(100).astype("int8")
    x, table = ranks.input(0, (300, 2), name="x"), ranks.const(0, order)
    wide = ranks.compute(0, (x,), read(0, (prim.Variable("_0") * 3 + 2, 1)), (100,), "float64", "wide")
    ranks.output(0, "out", ranks.compute(0, (wide, table), read(0, (read(1, own_index(1)),)), (100,), "float64"))
    programs = ranks.programs()
    (value,) = interpret.run(programs, values(programs))
    (found,) = interpret.run(tables(programs), values(programs))
    np.testing.assert_array_equal(found["out"].value, value["out"].value)


def test_an_index_out_of_range_is_left_to_be_found() -> None:
    ranks = Ranks(1)
    x, table = ranks.input(0, (5,), name="x"), ranks.const(0, np.arange(7), "table")
    ranks.output(0, "out", ranks.compute(0, (x, table), read(0, (read(1, own_index(1)),)), (7,), "float64", "out"))
    with pytest.raises(IndexError, match=r"index \[5\] is out of range for 'x'"):
        interpret.run(tables(ranks.programs()), values(ranks.programs()))
