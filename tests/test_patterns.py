"""Every pattern from source to real ranks: known answers, costs, and what devices compute."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotato
from aotato.frontend.expr import own_index, read
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from bundles import write
from mpi import mpiexec
from pattern_programs import PATTERNS
from patterns import Cost, Pattern
from rank_programs import Ranks

RUNNER = Path(__file__).with_name("run_bundles.py")
COUNTER = RUNNER.with_name("count_copies.py")
each = pytest.mark.parametrize("found", PATTERNS, ids=lambda found: found.name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patterns")
    for found in PATTERNS:
        aotato.build(found.function, ranks=found.ranks, path=folder / f"{found.name}.h5")
    return folder


@each
def test_the_interpreter_gives_the_known_answer(found: Pattern, folder: Path):
    with Bundle.open(folder / f"{found.name}.h5") as bundle:
        for rank, answer in enumerate(found.answers):
            outputs = bundle.entries["step"].selftest[rank]["outputs"]
            assert outputs.keys() == answer.keys()
            for path, value in answer.items():
                np.testing.assert_array_equal(bundle.array(outputs[path]), value, err_msg=path)


@each
@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_a_call_costs_what_the_pattern_needs(found: Pattern, target: str, folder: Path):
    with Bundle.open(folder / f"{found.name}.h5") as bundle:
        rows = report(bundle, target)["entries"]["step"]["per_rank"]
    assert [row["batches"] for row in rows] == [found.batches] * found.ranks
    assert [row["identity_copies"] for row in rows] == [0] * found.ranks
    assert [cost(row) for row in rows] == list(found.costs)


def cost(row: Mapping[str, Any]) -> Cost:
    return Cost(row["parts"], row["messages"], row["launches"], row["stored_untagged"], row["collectives"])


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_real_ranks_agree_with_the_interpreter(target: str, folder: Path):
    done = mpiexec(4, [RUNNER, folder, target], timeout=240)
    assert [line for line in done.stdout.splitlines() if not line.startswith("passed ")] == []
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"passed {found.name}.h5" for found in PATTERNS)


def copies() -> Ranks:
    """An input, a constant and a received array copied into outputs, as no traced program does."""
    ranks = Ranks(2)
    constant = ranks.const(1, np.arange(1.0, 5.0))
    received = ranks.move(0, ranks.input(0, (4,)), 1)
    for path, name in (("a", constant), ("b", received), ("c", ranks.input(1, (4,)))):
        ranks.output(1, path, ranks.compute(1, (name,), read(0, own_index(1)), (4,), "float64"))
        ranks.output(1, f"{path}2", ranks.compute(1, (name,), read(0, own_index(1)) * 2, (4,), "float64"))
    return ranks


def test_the_report_counts_the_copies_that_memory_shows(folder: Path):
    path = write(copies().programs(), folder / "copies.h5")
    try:
        done = mpiexec(4, [COUNTER, folder], timeout=120)
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        shown = {(line["name"], line["rank"]): (line["copies"], line["temporaries"]) for line in lines}
        said = {}
        for file in folder.glob("*.h5"):
            with Bundle.open(file) as bundle:
                for row in report(bundle, "cpu")["entries"]["step"]["per_rank"]:
                    said[file.stem, row["rank"]] = row["identity_copies"], row["stored_untagged"]
    finally:
        path.unlink()
    assert shown == said
    assert shown["copies", 1] == (3, 0)
    assert max(temporaries for _, temporaries in shown.values()) == 15
