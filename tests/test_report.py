"""The report's counts are those of a real run, for every app, number of ranks and target."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import aotato
from aotato.frontend.app import builtin_names
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from mpi import mpiexec

COUNTED = (
    "launches",
    "messages",
    "bytes_sent",
    "collectives",
    "copies",
    "uploads",
    "downloads",
    "upload_bytes",
    "download_bytes",
)
SMALL = {"ring": {"n": 7}}


@pytest.mark.parametrize("target", ["cpu", "gpu"])
@pytest.mark.parametrize("ranks", [1, 2])
@pytest.mark.parametrize("app", builtin_names())
def test_a_run_does_what_the_report_says(app: str, ranks: int, target: str, tmp_path: Path) -> None:
    path = aotato.build(app, ranks=ranks, options=SMALL.get(app), path=tmp_path / "x.h5")
    result = mpiexec(ranks, [str(Path(__file__).with_name("count_calls.py")), str(path), target])
    assert result.returncode == 0, result.stderr
    rows = [json.loads(line) for line in result.stdout.splitlines() if line.startswith("{")]
    assert sorted(row["rank"] for row in rows) == list(range(ranks))
    with Bundle.open(path) as bundle:
        said = report(bundle, target)
    for row in rows:
        for entry, counts in row["counts"].items():
            expected = said["entries"][entry]["per_rank"][row["rank"]]
            collectives = expected["collectives"] if ranks > 1 else 0  # a rank alone has nobody to call
            assert {key: counts.get(key, 0) for key in COUNTED} == {
                **{key: expected[key] for key in COUNTED},
                "collectives": collectives,
            }
            assert counts.get("receives", 0) == expected["messages"]  # whoever sends gets as many back, in these apps
            assert counts.get("allocations", 0) == 0
