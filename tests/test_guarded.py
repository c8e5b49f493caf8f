"""Sums over disjoint masks: the same values, and one flux where there were several."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pymbolic.primitives as prim
import pytest
from hypothesis import HealthCheck, given, settings

import advection
import aotato
from aotato.emit import build
from aotato.emit.guarded import guarded
from aotato.emit.rewritten import pruned
from aotato.emit.tables import tables
from aotato.frontend import interpret, ir
from aotato.frontend.expr import own_index, read
from aotato.frontend.text import dumps
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from guarded_random import face_sums
from rank_programs import Ranks, values

EXAMPLES = int(os.environ.get("AOTATO_EXAMPLES", "60"))


def test_any_sum_over_groups_of_faces_keeps_its_values() -> None:
    seen: Counter[str] = Counter()

    @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))
    @given(face_sums())
    def run(programs: ir.Programs) -> None:
        merged = guarded(programs)
        inputs = values(programs)
        expected = interpret.run(programs, inputs)
        for found in (pruned(merged), pruned(tables(merged))):
            for meaning, result in zip(expected, interpret.run(found, inputs), strict=True):
                interpret.assert_agrees("out", meaning["out"], result["out"].value)
        seen["merged"] += merged != programs
        seen["total"] += 1

    run()
    assert seen["merged"] > seen["total"] // 5, seen


def variables(*names: str) -> tuple[Any, ...]:
    return tuple(map(prim.Variable, names))


def term(
    ranks: Ranks, rank: int, mask: Any, index: Any, function: Callable[[Any], Any], source: str = "x"
) -> str:
    """`where(mask, function(source)[index], 0)`."""
    arrays = ranks.arrays[rank]
    used = ranks.map(rank, function, source)
    operands = (ranks.const(rank, np.array(mask)), used, ranks.const(rank, np.array(index)))
    expr = prim.If(read(0, own_index(1)), read(1, (read(2, own_index(1)),)), 0.0)
    assert used in arrays
    return ranks.compute(rank, operands, expr, (len(mask),), "float64")


def plus(ranks: Ranks, rank: int, *terms: str) -> str:
    total = terms[0]
    for other in terms[1:]:
        sum_ = prim.Sum((read(0, own_index(1)), read(1, own_index(1))))
        total = ranks.compute(rank, (total, other), sum_, ranks.arrays[rank][total].shape, "float64")
    return total


def square(x: Any) -> Any:
    return x * x


def lines(programs: ir.Programs, rank: int = 0) -> list[str]:
    """The Lambdas after merging and the canonical indices that follow."""
    text = dumps(pruned(tables(pruned(guarded(programs)))).ranks[rank]).splitlines()
    return [line for line in text if " = lambda " in line]


def halves(ranks: Ranks, rank: int, second: list[bool], function: Callable[[Any], Any] = square) -> list[str]:
    """Terms of the first three and the last three elements of x and y."""
    ranks.input(rank, (6,), name="x")
    ranks.input(rank, (6,), name="y")
    first = term(ranks, rank, [True] * 3 + [False] * 3, [0, 1, 2, -1, -1, -1], square)
    return [first, term(ranks, rank, second, [9, 9, 9, 3, 4, 5], function)]


def test_terms_of_one_array_are_one() -> None:
    ranks = Ranks(1)
    ranks.output(0, "out", plus(ranks, 0, *halves(ranks, 0, [False] * 3 + [True] * 3)))
    assert lines(ranks.programs()) == [
        "t10_m0 = lambda float64[6] (x): (a0[_0] * a0[_0])",
        "t10 = lambda float64[6] (t10_m0): a0[_0]",
    ]


def test_terms_of_two_arrays_choose_one() -> None:
    ranks = Ranks(1)
    first, _ = halves(ranks, 0, [False] * 6)
    second = term(ranks, 0, [False] * 3 + [True] * 2 + [False], [9, 9, 9, 3, 4, 9], square, "y")
    ranks.output(0, "out", plus(ranks, 0, first, second))
    found = lines(ranks.programs())
    assert [line.partition(": ")[2] for line in found] == [
        "(where(a0[(_0 // 3)], a1[_0], a2[_0]) * where(a0[(_0 // 3)], a1[_0], a2[_0]))", "where(a0[_0], a1[_0], 0.0)",
    ]


@pytest.mark.parametrize(
    ("second", "function"),
    [
        ([False, False, True, True, True, True], square),  # an element in both
        ([False] * 3 + [True] * 3, lambda x: x + x),  # computed in another way
    ],
)
def test_terms_that_must_stay_apart(second: list[bool], function: Callable[[Any], Any]) -> None:
    ranks = Ranks(1)
    ranks.output(0, "out", plus(ranks, 0, *halves(ranks, 0, second, function)))
    assert guarded(ranks.programs()) == ranks.programs()


def test_what_stands_between_keeps_terms_apart() -> None:
    """(g + x) + h rounds twice where g is not zero, (g + h) + x once."""
    ranks = Ranks(1)
    first, second = halves(ranks, 0, [False] * 3 + [True] * 3)
    ranks.output(0, "out", plus(ranks, 0, first, "y", second))
    assert guarded(ranks.programs()) == ranks.programs()
    ranks.output(0, "other", plus(ranks, 0, "y", first, second))
    assert lines(ranks.programs())[-1].endswith("(y, t13_m0): (a0[_0] + a1[_0])")


def test_all_ranks_or_none() -> None:
    for masks in ([[False] * 3 + [True] * 3] * 2, [[False] * 3 + [True] * 3, [False] * 2 + [True] * 4]):
        ranks = Ranks(2)
        for rank, mask in enumerate(masks):
            ranks.output(rank, "out", plus(ranks, rank, *halves(ranks, rank, mask)))
        assert (guarded(ranks.programs()) == ranks.programs()) == (masks[0] != masks[1])


def test_sums_of_the_same_faces_share_what_they_compute() -> None:
    ranks = Ranks(1)
    first, second = halves(ranks, 0, [False] * 3 + [True] * 3)
    mask = ranks.arrays[0][first].operands[0], ranks.arrays[0][second].operands[0]  # type: ignore[union-attr]
    for number, factor in enumerate((3, 5)):
        parts = []
        for which, guard in zip((first, second), mask, strict=True):
            _, used, index = ranks.arrays[0][which].operands  # type: ignore[union-attr]
            scaled = ranks.map(0, lambda x, n=factor: x * n, used)
            expr = prim.If(read(0, own_index(1)), read(1, (read(2, own_index(1)),)), 0.0)
            parts.append(ranks.compute(0, (guard, scaled, index), expr, (6,), "float64"))
        ranks.output(0, f"out{number}", plus(ranks, 0, *parts))
    found = lines(ranks.programs())
    assert sum("(a0[_0] * a0[_0])" in line for line in found) == 1


def flops(path: Path) -> tuple[int, int]:
    with Bundle.open(path) as bundle:
        row = report(bundle)["entries"]["step"]["per_rank"][0]
    return row["launches"], sum(kernel["flops"] for kernel in row["kernels"])


def test_fluxes_of_groups_of_faces_are_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    merged = flops(aotato.build(advection.app(3), targets="cpu", path=tmp_path / "merged.h5"))
    with aotato.load(tmp_path / "merged.h5") as program:
        assert "passed" in program.selftest()
    monkeypatch.setattr(build, "PASSES", tuple(one for one in build.PASSES if one is not guarded))
    apart = flops(aotato.build(advection.app(3), targets="cpu", path=tmp_path / "apart.h5"))
    assert merged[0] == apart[0]
    assert merged[1] < apart[1]
