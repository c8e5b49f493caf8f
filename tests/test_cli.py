"""aotato inspect and verify: what they print, and how they refuse."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

import aotato
from aotato.runtime_stub import cli
from mpi import run


@pytest.fixture(scope="module")
def ring(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("cli") / "ring.h5"
    aotato.build("ring", ranks=2, path=path)
    return path


def test_inspect_prints_tables(ring, capsys):
    assert cli.main(["inspect", str(ring)]) == 0
    out = capsys.readouterr().out
    assert "app ring for 2 ranks" in out and "img1  float32[100, 3]" in out and "3,624" in out and "floor" not in out
    assert cli.main(["inspect", str(ring), "--bandwidth", "1e9", "--flops", "1e12"]) == 0
    # (3624 + 2400) bytes at 1 GB/s
    assert "6.02 us" in capsys.readouterr().out


def test_inspect_prints_json_with_floors_on_demand(ring, capsys):
    assert cli.main(["inspect", str(ring), "--json"]) == 0
    plain = json.loads(capsys.readouterr().out)
    assert cli.main(["inspect", str(ring), "--json", "--bandwidth", "1e9", "--flops", "1e12"]) == 0
    row = json.loads(capsys.readouterr().out)["entries"]["step"]["per_rank"][0]
    assert row["kernels"][1]["floor_seconds"] == pytest.approx(6.024e-6)
    assert row["floor_seconds"] == pytest.approx(6.024e-6 + 3.624e-6)
    assert "floor_seconds" not in plain["entries"]["step"]["per_rank"][0]


def test_verify_says_what_it_proved(ring, capsys):
    assert cli.main(["verify", str(ring)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].endswith("and all schedules verified")


@pytest.mark.parametrize("args, sentence, code", [
    ([], "COMMAND", 2),
    (["inspect"], "FILE", 2),
    (["look", "x"], "invalid choice: 'look'", 2),
    (["inspect", "none.h5"], "there is no file 'none.h5'", 1),
    (["inspect", "RING", "--target", "tpu"], "found --target tpu", 1),
    (["inspect", "RING", "--flops", "1"], "found only one", 2),
    (["inspect", "RING", "--flops", "0", "--bandwidth", "1"], "expected positive numbers", 2),
    (["inspect", "RING", "--flops", "nan", "--bandwidth", "1"], "expected positive numbers", 2),
    (["verify", "none.h5"], "there is no file 'none.h5'", 1),
])
def test_bad_command_lines(ring, capsys, args, sentence, code):
    assert cli.main([str(ring) if a == "RING" else a for a in args]) == code
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("aotato: ") and err.count("\n") == 1 and sentence in err


def test_bundles_are_inspected_without_mpi_and_opencl(ring):
    code = ("import sys; sys.modules.update(mpi4py=None, pyopencl=None); from aotato.runtime_stub.cli import main; "
            "sys.exit(main(['inspect', sys.argv[1]]) or main(['verify', sys.argv[1]]))")
    done = run([sys.executable, "-c", code, ring])
    assert (done.returncode, done.stderr) == (0, "")


def test_a_reader_may_stop_reading(ring):
    done = run(["sh", "-c", '"$0" -m aotato.runtime_stub.cli inspect "$1" --json | true', sys.executable, ring])
    assert done.stderr == ""
