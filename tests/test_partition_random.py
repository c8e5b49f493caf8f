"""Random programs: parts in any order give the program's meaning, and broken partitions are found."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import partition_mutants
from aotato.frontend import late
from aotato.frontend.checks import check
from aotato.frontend.interpret import run as interpret
from aotato.frontend.invariant import InvalidPartition
from aotato.frontend.ir import Programs
from aotato.frontend.partition import partition
from aotato.frontend.partition_checks import check_partition
from parts_run import execute, orders
from programs_random import FEATURES, features, programs
from rank_programs import Ranks, values

# What such a mutant returns may be valid where there is no better choice to be missed, or an equal one
COSTS = ("whatever is read later is stored",)
EXAMPLES = int(os.environ.get("AOTATO_EXAMPLES", "200"))
SETTINGS = settings(
    max_examples=EXAMPLES, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


def test_any_order_of_parts_gives_the_meaning_of_the_program():
    seen: Counter[str] = Counter()
    total = 0

    @SETTINGS
    @given(programs(), st.lists(st.integers(0, 30), max_size=12), st.booleans())
    def run(program: Programs, choices: list[int], delayed: bool) -> None:
        nonlocal total
        check(program)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(late, "LONGEST_DELAYED", 1024 if delayed else 0)
            partitions = partition(program)
        total += 1
        seen.update(features(program, partitions))
        inputs = values(program)
        expected = interpret(program, inputs)
        for choose in orders(choices):
            for numbered in (False, True):
                found = execute(program, partitions, inputs, choose, numbered)
                for rank in range(program.size):
                    assert found[rank].keys() == expected[rank].keys()
                    for path, meaning in expected[rank].items():
                        assert found[rank][path].dtype == meaning.value.dtype
                        np.testing.assert_array_equal(found[rank][path], meaning.value)

    run()
    shares = {name: round(seen[name] / total, 2) for name in FEATURES}
    print(f"{total} programs: {shares}")
    assert total >= EXAMPLES
    assert min(shares.values()) >= 0.2, shares


@pytest.fixture(scope="module", autouse=True)
def nothing_is_delayed():
    """Programs of tests are small: their reductions would all be short, and none would cross parts."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(late, "LONGEST_DELAYED", 0)
        yield


def some_programs(count: int) -> list[Programs]:
    """The same random programs each time."""
    found: list[Programs] = []

    @settings(SETTINGS, max_examples=count)
    @given(programs())
    def collect(program: Programs) -> None:
        found.append(program)

    collect()
    return found


def unneeded() -> Programs:
    """A reduction that only an array nobody needs reads after a round."""
    ranks = Ranks(2)
    total = ranks.total(0, ranks.input(0))
    back = ranks.move(1, ranks.input(1, ()), 0)
    ranks.map(0, lambda a, b: a + b, total, back)
    return ranks.programs()


def seldom() -> Programs:
    """Two sums in one collective, and a self-send beside another array of its type."""
    ranks = Ranks(2)
    for rank in range(2):
        arrays = [ranks.input(rank), ranks.input(rank)]
        for number, array in enumerate(arrays):
            ranks.output(rank, f"sum{number}", ranks.allreduce(rank, array))
        ranks.output(rank, "own", ranks.move(rank, arrays[1], rank))
    return ranks.programs()


@pytest.fixture(scope="module")
def examples() -> list[tuple[Programs, partition_mutants.Partitions]]:
    found = [*some_programs(max(60, EXAMPLES // 2)), unneeded(), seldom()]
    return [(program, partition(program)) for program in found]


@pytest.mark.parametrize("mutant", partition_mutants.RESULTS, ids=lambda mutant: mutant.__name__)
def test_broken_partitions_are_rejected(mutant: Any, examples: list[tuple[Programs, Any]]):
    broken = [(program, mutant(partitions)) for program, partitions in examples]
    broken = [(program, partitions) for program, partitions in broken if partitions is not None]
    assert broken
    for program, partitions in broken:
        with pytest.raises(InvalidPartition):
            check_partition(program, partitions)


@pytest.mark.parametrize("mutant", partition_mutants.PATCHES)
def test_broken_partitioners_are_found_out(mutant: str, examples: list[tuple[Programs, Any]], monkeypatch: Any):
    monkeypatch.setattr(*partition_mutants.PATCHES[mutant])
    found = 0
    for program, right in examples:
        try:
            assert partition(program) == right or mutant in COSTS
        except InvalidPartition:
            found += 1
    assert found


WRONG_RESULTS = (
    "message_dropped",
    "parcels_swapped_at_receiver",
    "tags_swapped",
    "message_a_part_too_early",
    "message_never_received",
    "output_not_stored",
    "stored_a_part_too_early",
    "alias_lost",
    "alias_of_another_array",
    "collective_missing_on_a_rank",
    "results_swapped_in_collective",
)


@pytest.mark.parametrize("name", WRONG_RESULTS)
def test_running_broken_partitions_shows_it(name: str, examples: list[tuple[Programs, Any]]):
    mutant = getattr(partition_mutants, name)
    for program, partitions in examples:
        broken = mutant(partitions)
        if broken is not None and not runs_right(program, broken):
            return
    pytest.fail("no program shows it")


def runs_right(program: Programs, partitions: partition_mutants.Partitions) -> bool:
    inputs = values(program)
    try:
        found = execute(program, partitions, inputs, lambda n: 0, numbered=True)
    except (AssertionError, LookupError, ValueError):
        return False
    pairs = zip(found, interpret(program, inputs), strict=True)
    return all(
        np.array_equal(outputs[path], meaning.value, equal_nan=meaning.value.dtype.kind in "fc")
        for outputs, expected in pairs
        for path, meaning in expected.items()
    )
