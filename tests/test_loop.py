"""aotato-run of a bundle with a loop: steps, times, settings, observed values, result files, ends and refusals."""

from __future__ import annotations

import json
import re
from pathlib import Path

import h5py
import numpy as np
import pytest

import aotato
from aotato.runtime_stub import loop
from aotato.runtime_stub import run as loader
from aotato.runtime_stub.format import Bundle
from mpi import mpiexec

RUN = ("-m", "aotato.runtime_stub.run")

# x' = k x by Euler's method, (1 + dt k)^n
APP = '''"""Growth."""
import numpy as np
import pytato as pt
from aotato.frontend import Call, Every, Option, Plan, Scalar, allreduce, array_input

OPTIONS = (Option("n", int, 4), Option("end", str, ""))

def init(rank, size, opt, data):
    x = array_input("seed", (opt.n,), "float64", default=np.full(opt.n, rank + 1.0))
    return {"x": 1*x, "sum0": allreduce(pt.sum(x), "sum")}

def step(rank, size, opt, data):
    x = array_input("x", (opt.n,), "float64")
    dt, k = array_input("dt", (), "float64"), array_input("k", (), "float64", default=1.0)
    total = array_input("size", (), "float64", default=0.0)
    return {"x_new": x + dt*k*x, "size_new": total + pt.sum(x), "rs": allreduce(pt.sum(x), "sum")}

def observe(rank, size, opt, data):
    x = array_input("x", (opt.n,), "float64")
    return {"mass": allreduce(pt.sum(x), "sum"), "top": allreduce(pt.amax(x), "max"), "twice": 2*x}

ENTRIES = (init, step, observe)

def plan(opt):
    end = {"until": opt.end, "at_most": 40} if opt.end else {}
    return Plan(init=(Call("init"),), step=(Call("step", {"dt": "dt"}),), carry={"x_new": "x", "size_new": "size"},
                scalars=(Scalar("t", 0.0, "s"), Scalar("dt", 0.1, "s")), update={"t": "t + dt"},
                every=(Every("observe", 10),), **end)
'''


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("loop")
    (folder / "growth.py").write_text(APP)
    aotato.build(str(folder / "growth.py"), ranks=2, path=folder / "free.h5")
    aotato.build(str(folder / "growth.py"), ranks=2, path=folder / "ending.h5", options={"end": "rs > 20*sum0"})
    aotato.build(str(folder / "growth.py"), path=folder / "alone.h5")
    return folder


def run(bundle, *arguments, code=0):
    done = mpiexec(2, [*RUN, bundle, *arguments])
    assert done.returncode == code, (done.stdout, done.stderr)
    return done


@pytest.fixture
def alone(capsys):
    """The same without mpiexec, on 1 rank in this process: what it printed on both streams."""

    def obey(*arguments, code=0):
        assert loader.main([str(word) for word in arguments]) == code
        return capsys.readouterr()

    return obey


def test_the_bundle_says_which_scalars_are_passed_by_value(folder):
    with Bundle.open(folder / "free.h5") as bundle:
        signature = {s.name: s.by_value for s in bundle.entries["step"].inputs}
    assert signature == {"x": False, "dt": True, "k": True, "size": False}


def test_steps_and_their_result_file(folder, tmp_path):
    done = run(folder / "free.h5", "--steps", 20, "--output", tmp_path / "out.h5", "--every", "observe=5")
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["observe", "step", "t", "mass", "top"] and done.stderr == ""
    assert [line.split()[1] for line in lines if line.startswith("observe ")] == ["step", "5", "10", "15", "20"]
    assert ": 20 steps on 2 ranks" in done.stdout and re.search(r"  step 20  t 2  dt 0.1  ", done.stdout)
    with h5py.File(tmp_path / "out.h5") as file:
        assert file.attrs["step"] == 20 and file.attrs["time"] == pytest.approx(2.0) and file.attrs["digest"]
        assert json.loads(file.attrs["scalars"]) == pytest.approx({"t": 2.0, "dt": 0.1})
        for rank in range(2):
            x = np.full(4, (rank + 1) * 1.1**20)
            np.testing.assert_allclose(file[f"rank/{rank}/x_new"], x, rtol=1e-13)
            np.testing.assert_allclose(file[f"rank/{rank}/twice"], 2 * x, rtol=1e-13)
        observed = {name: array[()] for name, array in file["observed/observe"].items()}
    assert observed["step"].tolist() == [5, 10, 15, 20] and observed["step"].dtype == np.int64
    np.testing.assert_allclose(observed["mass"], 12 * 1.1 ** observed["step"], rtol=1e-13)
    np.testing.assert_allclose(observed["t"], 0.1 * observed["step"], rtol=1e-13)


def test_until_a_time_with_settings(alone, folder, tmp_path):
    np.save(tmp_path / "seed.npy", np.full(4, 3.0))
    arguments = ("--until", 1.0, "--set", "dt=0.25", "--set", "k=2", "--input", f"seed={tmp_path}/seed.npy")
    done = alone(folder / "alone.h5", *arguments, "--output", tmp_path / "out.h5")
    assert "observe" not in done.out
    with h5py.File(tmp_path / "out.h5") as file:
        assert file.attrs["step"] == 4
        np.testing.assert_allclose(file["rank/0/x_new"], np.full(4, 3.0 * 1.5**4), rtol=1e-13)
        assert "twice" not in file["rank/0"] and file["observed/observe/mass"].shape == (0,)


def test_a_file_each_few_steps(alone, folder, tmp_path):
    alone(folder / "alone.h5", "--steps", 5, "--every", "output=2", "--output", tmp_path / "o{step:03d}.h5", "--quiet")
    assert sorted(file.name for file in tmp_path.iterdir()) == ["o002.h5", "o004.h5", "o005.h5"]
    with h5py.File(tmp_path / "o004.h5") as file:
        np.testing.assert_allclose(file["rank/0/x_new"], np.full(4, 1.1**4), rtol=1e-13)


def test_no_step_leaves_what_init_made(alone, folder, tmp_path):
    alone(folder / "alone.h5", "--steps", 0, "--output", tmp_path / "out.h5")
    with h5py.File(tmp_path / "out.h5") as file:
        np.testing.assert_array_equal(file["rank/0/x"], np.ones(4))


def test_the_end_that_the_plan_gives(folder):
    done = run(folder / "ending.h5")
    assert " 33 steps on 2 ranks" in done.stdout  # the first n with 1.1**(n - 1) > 20


def test_an_end_that_is_not_reached_is_a_sentence_after_the_results(folder, tmp_path):
    done = run(folder / "ending.h5", "--set", "dt=0", "--output", tmp_path / "out.h5", code=1)
    assert done.stderr.count("aotato: ") == 1 and "has done 40 steps, the most it may do" in done.stderr
    with h5py.File(tmp_path / "out.h5") as file:
        assert file.attrs["step"] == 40


def test_progress(alone, folder, monkeypatch):
    monkeypatch.setattr(loop, "PROGRESS_SECONDS", 0.0)
    assert alone(folder / "alone.h5", "--steps", 3).err == ""
    lines = alone(folder / "alone.h5", "--steps", 3, "--progress").err.splitlines()
    assert len(lines) == 3 and re.fullmatch(r"aotato: step 2 of 3, t = 0.2, [\d.e+]+ steps/s", lines[1])
    assert alone(folder / "alone.h5", "--steps", 3, "--progress", "--quiet") == ("", "")


@pytest.mark.parametrize("sentence, arguments", [
    ("no end of its own", ()),
    ("expected --until or --entry, but found both", ("--until", "1", "--entry", "step")),
    ("expected --steps or --selftest, but found both", ("--steps", "1", "--selftest")),
    ("found obsrve=3; did you mean 'observe'", ("--steps", "1", "--every", "obsrve=3")),
    ("found --every observe: write", ("--steps", "1", "--every", "observe")),
    ("found --every observe=0: write", ("--steps", "1", "--every", "observe=0")),
    ("expected --output FILE beside --every output=2", ("--steps", "1", "--every", "output=2")),
    ("'dtt' is no number of this bundle's loop; did you mean 'dt'", ("--steps", "1", "--set", "dtt=2")),
    ("'x' is an input that output 'x_new' of entry 'step' feeds", ("--steps", "1", "--set", "x=2")),
    ("expected a number for 'dt'", ("--steps", "1", "--set", "dt=x")),
    ("expected one of t, dt, k to be set, but 'sum0'", ("--steps", "1", "--set", "sum0=2")),
    ("expected one value for 'dt', but found two", ("--steps", "1", "--set", "dt=1", "--set", "dt=1")),
    ("input 'size' is float64, but", ("--steps", "1", "--set", "size=x")),
    ("expected a number format", ("--steps", "1", "--output", "x{step:q}.h5")),
])
def test_refusals_before_the_run(folder, capsys, sentence, arguments):
    assert loader.main([str(folder / "alone.h5"), *arguments]) in (1, 2)
    found = capsys.readouterr()
    assert found.out == "" and found.err.count("\n") == 1 and sentence in found.err


def test_a_call_after_the_run_reads_the_state_that_init_began(folder):
    with aotato.load(folder / "alone.h5") as program:
        program.run(steps=3)
        observed = program.call("observe")
        np.testing.assert_array_equal(observed["twice"], 2 * program.state()["x"])


def test_a_bundle_without_a_loop_refuses_one(alone, tmp_path):
    aotato.build("ring", path=tmp_path / "ring.h5")
    for arguments in (("--steps", "3"), ("--until", "1"), ("--every", "x=1")):
        error = alone(tmp_path / "ring.h5", *arguments, code=1).err
        assert f"expected a bundle with a loop for {arguments[0]}, but" in error and "has none" in error
