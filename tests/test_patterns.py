"""Every pattern from source to real ranks: known answers, costs, and what devices compute."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aotato
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from mpi import mpiexec
from pattern_programs import PATTERNS
from patterns import Cost, Pattern

RUNNER = Path(__file__).with_name("run_bundles.py")
EVERY = PATTERNS
each = pytest.mark.parametrize("found", EVERY, ids=lambda found: found.name)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("patterns")
    for found in EVERY:
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
    assert sorted(done.stdout.splitlines()) == sorted(f"passed {found.name}.h5" for found in EVERY)
