"""The plan's loop allocates nothing: neither device buffers nor lasting Python objects."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import aotato
from mpi import mpiexec

SLACK = 4096  # bytes: lists and dictionaries of the interpreter that grow in steps


@pytest.mark.parametrize("targets", ["cpu", "gpu"])
def test_nothing_grows_over_1000_steps(targets: str, tmp_path: Path) -> None:
    path = aotato.build("heat", ranks=2, options={"n": 8}, targets=targets, path=tmp_path / "heat.h5")
    result = mpiexec(2, [Path(__file__).with_name("long_run.py"), path])
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    assert len(rows) == 2
    for row in rows:
        assert row["launches"] >= 2000
        assert row["allocations"] == 0
        assert row["grown"] < SLACK
