"""aotato-run and aotato.load on 2 ranks: what comes out, and what happens when one rank fails while it runs."""

from __future__ import annotations

import os
import re
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import aotato
from mpi import PERMISSIONS, command, gone, mpiexec, run, started

RUN = ("-m", "aotato.runtime_stub.run")
SECONDS = 10.0


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("run")
    for ranks in (1, 2, 3):
        aotato.build("ring", ranks=ranks, path=folder / f"ring{ranks}.h5")
    return folder


def _scale(bundle: Path) -> np.ndarray:
    """The bundle's only constant of shape (3,)."""
    with h5py.File(bundle) as file:
        return next(array[()] for array in file["arrays"].values() if array.shape == (3,))


@pytest.mark.parametrize("ranks", [2, 3])
def test_random_images_from_files_of_both_kinds(folder, tmp_path, ranks):
    images = [np.random.default_rng(50 + rank).random((100, 3), np.float32) for rank in range(ranks)]
    with h5py.File(tmp_path / "photos.h5", "w") as file:
        for rank, image in enumerate(images):
            file[f"photo/{rank}"] = image
            np.save(tmp_path / f"photo_{rank}.npy", image)
    bundle, scale = folder / f"ring{ranks}.h5", _scale(folder / f"ring{ranks}.h5")
    for source in ("photo_{rank}.npy", "photos.h5:photo/{rank}"):
        done = mpiexec(ranks, [*RUN, bundle, "--input", f"img1={tmp_path}/{source}", "--output", tmp_path / "out.h5"])
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.count("\n") == 2 and re.search(r"out  float64\[100, 3\]  min .* max .* mean", done.stdout)
        with h5py.File(tmp_path / "out.h5") as file:
            assert file.attrs["ranks"] == ranks
            for rank, image in enumerate(images):
                expected = image + images[(rank + 1) % ranks] * scale * scale
                bound = 8 * np.finfo(np.float64).eps * np.abs(expected)
                assert np.all(np.abs(file[f"rank/{rank}/out"][()] - expected) <= bound)


def test_one_rank_without_mpi(folder):
    done = run([sys.executable, *RUN, folder / "ring1.h5"], env={"MPI4PY_LIBMPI": "/none/libmpi.so"})
    assert (done.returncode, done.stderr) == (0, "") and "step on 1 rank" in done.stdout


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_the_selftest_passes_on_each_target(folder, target):
    done = mpiexec(2, [*RUN, folder / "ring2.h5", "--selftest", "--target", target])
    assert (done.returncode, done.stderr) == (0, "") and done.stdout.count("self-test passed") == 1


def test_quiet_is_quiet(folder):
    done = mpiexec(2, [*RUN, folder / "ring2.h5", "--quiet"])
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


# A rank fails where the other waits for its message: in the loader's own main ...
LOADER = """
import os, signal, sys
from aotato.runtime_stub import run
print(f"pid={os.getpid()}", flush=True)
real = run.execute
def execute(program, *rest):
    if program.world.rank == 1:
        WHAT
    return real(program, *rest)
run.execute = execute
sys.exit(run.main(sys.argv[1:]))
"""

# ... and in a user's script
SCRIPT = """
import os, signal, sys
import aotato
from mpi4py import MPI
print(f"pid={os.getpid()}", flush=True)
with aotato.load(sys.argv[1], comm=MPI.COMM_WORLD) as program:
    program()
    if MPI.COMM_WORLD.rank == 1:
        WHAT
    program()
"""


@pytest.mark.parametrize("text", [LOADER, SCRIPT], ids=["loader", "script"])
@pytest.mark.parametrize("what, sentence", [
    ("raise ValueError('boom')", "rank 1 failed with ValueError: boom ("),
    ("sys.exit(3)", "rank 1 left by sys.exit(3)"),
    ("os.kill(os.getpid(), signal.SIGKILL)", None),
    ("os._exit(3)", None),
], ids=["raise", "sys.exit", "SIGKILL", "os._exit"])
def test_a_rank_that_fails_while_it_runs_ends_all(folder, tmp_path, text, what, sentence):
    script = tmp_path / "script.py"
    script.write_text(text.replace("WHAT", what))
    begin = time.monotonic()  # the start of two ranks comes on top of the 10 s
    with started(command(2, [script, folder / "ring2.h5"]), PERMISSIONS) as process:
        out, err = process.communicate(timeout=2 * SECONDS)
        pids = [int(pid) for pid in re.findall(r"pid=(\d+)", out)]
        assert len(pids) == 2 and gone(pids, begin + 2 * SECONDS - time.monotonic())
    assert process.returncode != 0
    assert err.count("aotato: ") == (sentence is not None)
    assert sentence is None or f"aotato: {sentence}" in err
    assert ("Traceback" in err) == (text == SCRIPT and "raise" in what)


def test_a_full_disk_is_a_sentence_and_leaves_no_file(folder, tmp_path):
    script = tmp_path / "script.py"
    script.write_text("import sys, os\nfrom aotato.runtime_stub import output, run\n"
                      "def full(*_): raise OSError(28, os.strerror(28))\noutput._store = full\n"
                      "sys.exit(run.main(sys.argv[1:]))\n")
    done = mpiexec(2, [script, folder / "ring2.h5", "--output", tmp_path / "out.h5"])
    assert done.returncode != 0 and "Traceback" not in done.stderr
    assert done.stderr.count("aotato: ") == 1 and "No space left on device" in done.stderr
    assert os.listdir(tmp_path) == ["script.py"]


def test_the_selftest_covers_all_entries_without_a_choice(tmp_path):
    path = aotato.build("heat", ranks=2, options={"n": 8}, path=tmp_path / "heat.h5")
    result = mpiexec(2, ["-m", "aotato.runtime_stub.run", path, "--selftest"])
    assert result.returncode == 0, result.stderr
    assert "self-test passed" in result.stdout


def test_load_alone_stops_all_ranks_too(tmp_path):
    """Without `with`: the hook stands from load on."""
    path = aotato.build("ring", ranks=2, options={"n": 4}, path=tmp_path / "ring.h5")
    script = tmp_path / "script.py"
    script.write_text(
        "from mpi4py import MPI\n"
        "import aotato\n"
        f"program = aotato.load({str(path)!r}, comm=MPI.COMM_WORLD)\n"
        "if MPI.COMM_WORLD.rank == 1:\n"
        "    raise ValueError('went wrong')\n"
        "MPI.COMM_WORLD.Barrier()\n"
    )
    result = mpiexec(2, [script], timeout=40)
    assert result.returncode != 0
    assert result.stderr.count("aotato: rank 1") == 1, result.stderr
