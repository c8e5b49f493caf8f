"""Bad input on 2 ranks: one sentence, printed once, ordinary non-zero exit on every rank within 10 s."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path

import h5py
import numpy as np
import pytest

import aotato
from mpi import mpiexec, run

SECONDS = 10.0

# What a rank does before the loader's main, then which rank left with what
SCRIPT = """
import os, sys
rank = int(os.environ.get("OMPI_COMM_WORLD_RANK", 0))
{before}
from aotato.runtime_stub.run import main
code = main(sys.argv[1:])
print("left", rank, code, flush=True)
sys.exit(code)
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    """Bundles for 2 ranks, files that fit and files that do not."""
    folder = tmp_path_factory.mktemp("bad")
    aotato.build("ring", ranks=2, path=folder / "ring.h5")
    aotato.build("ring", ranks=2, options={"n": 7}, path=folder / "other.h5")
    aotato.build(_open_ended, ranks=2, path=folder / "open.h5")
    whole = (folder / "ring.h5").read_bytes()
    (folder / "cut.h5").write_bytes(whole[:len(whole) // 2])
    (folder / "text.h5").write_text("not a bundle")
    (folder / "secret").mkdir()
    with h5py.File(folder / "foreign.h5", "w") as file:
        file["x"] = np.arange(3)
    _damage(folder / "ring.h5", folder / "damaged.h5")
    for name, array in {"good": np.ones((100, 3), np.float32), "shape": np.ones((3, 100), np.float32),
                        "dtype": np.ones((100, 3))}.items():
        np.save(folder / f"{name}.npy", array)
    np.save(folder / "photo_0.npy", np.ones((100, 3), np.float32))  # and none for rank 1
    return folder


def _open_ended(rank, size):
    import pytato as pt

    x = pt.make_placeholder(name="x", shape=(4,), dtype=np.float64)
    dt = pt.make_placeholder(name="dt", shape=(), dtype=np.float64)
    return {"out": x * dt}


def _damage(source: Path, target: Path) -> None:
    """A copy with one bit of a kernel changed."""
    shutil.copy(source, target)
    with h5py.File(target, "r+") as file:
        kernel = next(iter(file["kernels"].values()))
        kernel[5] ^= 1


BAD = [
    ("wrong number of ranks", 3, ["ring.h5"], "is for 2 ranks, but found 3: start it with `mpiexec -n 2 aotato-run", 1),
    ("too few ranks", 1, ["ring.h5"], "is for 2 ranks, but found 1: start it with `mpiexec -n 2 aotato-run", 1),
    ("missing input", 2, ["open.h5", "--set", "dt=1"], "input 'x' (float64[4]) has no default, but found no value", 1),
    ("missing number", 2, ["open.h5"], "has no default, but found no value", 1),
    ("unknown input", 2, ["ring.h5", "--input", "img2=good.npy"], "found 'img2': did you mean 'img1'?", 1),
    ("unknown number", 2, ["open.h5", "--set", "dtt=1"], "found 'dtt': did you mean 'dt'?", 1),
    ("no number", 2, ["open.h5", "--set", "dt=fast"], "found --set dt=fast: give a number", 1),
    ("number for an array", 2, ["ring.h5", "--set", "img1=1"], "use --input img1=FILE", 1),
    ("mis-shaped input", 2, ["ring.h5", "--input", "img1=shape.npy"], "holds float32[3, 100]: give an array", 1),
    ("mis-typed input", 2, ["ring.h5", "--input", "img1=dtype.npy"], 'convert it with `.astype("float32")`', 1),
    ("no such input file", 2, ["ring.h5", "--input", "img1=none.npy"], "found none.npy: No such file or directory", 1),
    ("input file of one rank", 2, ["ring.h5", "--input", "img1=photo_{rank}.npy"], "rank 1: expected a readable", 1),
    ("input is a folder", 2, ["ring.h5", "--input", "img1=secret"], "Is a directory", 1),
    ("unreadable input file", 2, ["ring.h5", "--input", "img1=text.h5"], "expected an .npy or HDF5 file", 1),
    ("no such bundle", 2, ["none.h5"], "there is no file 'none.h5'", 1),
    ("text as a bundle", 2, ["text.h5"], "is not a readable HDF5 file", 1),
    ("half a bundle", 2, ["cut.h5"], "is not a readable HDF5 file", 1),
    ("another HDF5 file", 2, ["foreign.h5"], "is no aotato bundle", 1),
    ("damaged bundle", 2, ["damaged.h5"], "does not match its digest", 1),
    ("unknown entry", 2, ["ring.h5", "--entry", "stage"], "entries (step), but found --entry stage", 1),
    ("unknown target", 2, ["ring.h5", "--target", "tpu"], "found --target tpu", 1),
    ("unknown device", 2, ["ring.h5", "--device", "quantum"], "found 'quantum': choose one of: 0  ", 1),
    ("no place for output", 2, ["ring.h5", "--output", "none/out.h5"], "none/out.h5, a folder that does not exist", 1),
    ("steps without a loop", 2, ["ring.h5", "--steps", "3"], "a loop for --steps, but ring.h5 has none", 1),
    ("no bundle", 2, [], "expected a bundle, but found no FILE", 2),
    ("unknown option", 2, ["ring.h5", "--fast"], "unrecognized arguments: --fast", 2),
    ("malformed input", 2, ["ring.h5", "--input", "img1"], "expected --input NAME=FILE", 2),
    ("malformed count", 2, ["ring.h5", "--steps", "-1"], "argument --steps", 2),
]


@pytest.mark.parametrize("ranks, args, sentence, code", [row[1:] for row in BAD], ids=[row[0] for row in BAD])
def test_bad_input_is_refused_once(folder, tmp_path, monkeypatch, ranks, args, sentence, code):
    monkeypatch.chdir(folder)
    _refused(tmp_path, ranks, args, sentence, code)


def test_a_rank_without_the_bundle_stops_all(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    for rank in (0, 1):
        _refused(tmp_path, 2, ["ring.h5"], f"rank {rank}: there is no file 'none.h5'", 1,
                 before=f"if rank == {rank}: sys.argv[1] = 'none.h5'")


def test_ranks_with_different_bundles_are_stopped(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    _refused(tmp_path, 2, ["ring.h5"], "rank 1: expected the same bundle as rank 0's", 1,
             before="if rank == 1: sys.argv[1] = 'other.h5'")


def test_an_unexpected_exception_on_one_rank_stops_all(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    before = "from aotato.runtime_stub import device\nif rank == 1: device.facts = lambda _: 1 // 0"
    _refused(tmp_path, 2, ["ring.h5"], "rank 1: ZeroDivisionError", 1, before=before)


def test_no_opencl_device(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    _refused(tmp_path, 2, ["ring.h5"], "expected an OpenCL device, but found no platform", 1,
             env={"OCL_ICD_VENDORS": str(tmp_path / "none")})


def test_no_opencl_library(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    _refused(tmp_path, 2, ["ring.h5"], "expected pyopencl and an OpenCL library, but found none", 1,
             before="sys.modules['pyopencl'] = None")


@pytest.mark.parametrize("change, sentence", [
    ("fp64=False", "has no double precision (fp64)"),
    ("memory=5000", "has 5000 bytes of memory, but this rank needs"),
    ("local_bytes=1024", "offers 1024 bytes of local memory"),
])
def test_a_device_below_the_minimum(folder, tmp_path, monkeypatch, change, sentence):
    monkeypatch.chdir(folder)
    before = ("from dataclasses import replace\nfrom aotato.runtime_stub import device\nreal = device.facts\n"
              f"device.facts = lambda found: replace(real(found), {change})")
    _refused(tmp_path, 2, ["ring.h5"], sentence, 1, before=before)


def test_no_mpi_library(folder, tmp_path, monkeypatch):
    monkeypatch.chdir(folder)
    done = _refused(tmp_path, 2, ["ring.h5"], "expected an MPI library for mpi4py, but found none", 1,
                    env={"MPI4PY_LIBMPI": str(tmp_path / "libmpi.so")}, leavers=False)
    assert "pip install 'aotato[local]'" in done.stderr


def test_no_mpi_library_and_no_launcher(folder, monkeypatch):
    monkeypatch.chdir(folder)
    done = run([sys.executable, "-m", "aotato.runtime_stub.run", "ring.h5"], env={"MPI4PY_LIBMPI": "/none/libmpi.so"})
    assert done.returncode == 1
    assert done.stderr.startswith("aotato: ring.h5 is for 2 ranks, but found 1: start it with `mpiexec -n 2 aotato-run")


@pytest.mark.parametrize("launch", [{"SLURM_PROCID": "R", "SLURM_NTASKS": "2", "SLURM_STEP_ID": "0"},
                                    {"PMI_RANK": "R", "PMI_SIZE": "2"}])
def test_ranks_that_each_believe_to_be_alone(folder, monkeypatch, launch):
    monkeypatch.chdir(folder)
    # Without a server to talk to, MPI starts as a single process although the launcher's variables say 2
    done = [run([sys.executable, "-m", "aotato.runtime_stub.run", "ring.h5"],
                env={k: v.replace("R", rank) for k, v in launch.items()}) for rank in "01"]
    assert [one.returncode for one in done] == [1, 1]
    assert "finds itself alone" in done[0].stderr and "srun --mpi=pmix -n 2 aotato-run ring.h5" in done[0].stderr
    assert done[1].stderr == ""


def test_help_is_printed_once(tmp_path):
    done = mpiexec(2, ["-m", "aotato.runtime_stub.run", "--help"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("usage: aotato-run") == 1 and "srun --mpi=pmix" in done.stdout


def test_devices_are_listed_once(tmp_path):
    done = mpiexec(2, ["-m", "aotato.runtime_stub.run", "--list-devices"])
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.count("0  ") == 1


def _refused(tmp_path, ranks, args, sentence, code, before="", env=None, leavers=True):
    """Run the loader; the sentence must come exactly once, and every rank must leave by itself with `code`."""
    script = tmp_path / "script.py"
    script.write_text(SCRIPT.format(before=before))
    begin = time.monotonic()
    done = mpiexec(ranks, [script, *args], timeout=30, env=env)
    assert time.monotonic() - begin < SECONDS
    assert done.returncode == code, done.stderr
    lines = [line for line in done.stderr.splitlines() if line.startswith("aotato: ")]
    assert len(lines) == 1 and sentence in lines[0], done.stderr
    assert done.stderr.count(sentence) == 1
    assert "Traceback" not in done.stderr and "MPI_ABORT" not in done.stderr
    if leavers:
        assert sorted(done.stdout.splitlines()) == [f"left {rank} {code}" for rank in range(ranks)]
    return done
