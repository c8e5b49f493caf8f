"""A build depends on its source, options and package versions, and on nothing else around it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from aotato.runtime_stub.format import Bundle

APP = Path(__file__).parents[1] / "frontend" / "apps"
BUILD = "import sys, aotato; aotato.build(sys.argv[1], ranks=2, options={'n': 12}, path=sys.argv[2])"


def build(app: str, path: Path, **environment: str) -> Path:
    """The bundle that another process builds from `app`, in the folder of `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-W", "ignore", "-c", BUILD, app, str(path)]
    done = subprocess.run(command, cwd=path.parent, env={**os.environ, **environment}, capture_output=True, text=True,
                          check=False)
    assert done.returncode == 0, done.stderr
    return path


@pytest.mark.parametrize("app", ["ring", "poisson"])
def test_paths_homes_dates_and_hash_seeds_leave_no_trace(app: str, tmp_path: Path) -> None:
    first = build(app, tmp_path / "one" / "x.h5", HOME=str(tmp_path), PYTHONHASHSEED="1", TZ="UTC")
    other = tmp_path / "another" / "place"
    second = build(app, other / "y.h5", HOME="/", PYTHONHASHSEED="2", TZ="Asia/Tokyo", LC_ALL="C")
    assert first.read_bytes() == second.read_bytes()


def test_an_app_file_may_lie_anywhere(tmp_path: Path) -> None:
    bundles = []
    for folder in ("here", "there"):
        (tmp_path / folder).mkdir()
        shutil.copy(APP / "ring.py", tmp_path / folder / "my_ring.py")
        bundles.append(build(str(tmp_path / folder / "my_ring.py"), tmp_path / folder / "out.h5"))
    assert bundles[0].read_bytes() == bundles[1].read_bytes()


def test_the_processor_changes_no_kernel_driver_or_schedule(tmp_path: Path) -> None:
    plain = build("heat", tmp_path / "plain.h5")
    other = build("heat", tmp_path / "other.h5", NPY_DISABLE_CPU_FEATURES="AVX2 FMA3 AVX512F",
                  OPENBLAS_CORETYPE="Prescott")
    with Bundle.open(plain) as a, Bundle.open(other) as b:
        kinds = ("kernels/", "drivers/", "schedules/")
        mine, theirs = (
            {name: key for name, key in bundle.meta["datasets"].items() if name.startswith(kinds)} for bundle in (a, b)
        )
    assert mine
    assert mine == theirs
