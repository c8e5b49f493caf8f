"""Launcher variables, agreement on refusals, and the end of all ranks when one of them fails."""

from __future__ import annotations

import re
import signal
import sys
import textwrap
import time
from pathlib import Path

import pytest

from aotato.runtime_stub import launcher, world
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.launcher import Launch
from aotato.runtime_stub.world import World
from mpi import PERMISSIONS, command, gone, mpiexec, run, session_members, started

SECONDS = 10.0


@pytest.mark.parametrize("environ, expected", [
    ({}, None),
    ({"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "3", "OMPI_COMM_WORLD_LOCAL_RANK": "0", "PMIX_RANK": "1"},
     Launch("Open MPI", 1, 3, 0)),
    ({"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALRANKID": "1"}, Launch("MPICH", 1, 2, 1)),
    ({"PALS_RANKID": "5", "PMI_RANK": "5", "PMI_SIZE": "8", "PALS_LOCAL_RANKID": "1"}, Launch("PALS", 5, 8, 1)),
    ({"FLUX_TASK_RANK": "2", "FLUX_JOB_SIZE": "4", "FLUX_TASK_LOCAL_ID": "0"}, Launch("Flux", 2, 4, 0)),
    ({"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1", "SLURM_STEP_ID": "0"}, Launch("Slurm", 1, 2, 1)),
    ({"PMIX_RANK": "1"}, Launch("PMIx", 1, None, None)),
    ({"PMIX_RANK": "x"}, None),
])
def test_each_launcher_is_recognised(environ, expected):
    assert launcher.find(environ) == expected


def test_a_batch_script_is_not_a_launched_rank():
    assert launcher.find({"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0"}) is None


def test_slurm_tells_what_pmix_does_not():
    step = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "0", "SLURM_STEP_ID": "3", "PMIX_RANK": "1"}
    assert launcher.find(step) == Launch("PMIx", 1, 2, 0)


def test_the_outer_launcher_does_not_tell_about_other_ranks():
    nested = {"PMIX_RANK": "3", "SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0", "SLURM_LOCALID": "0"}
    assert launcher.find(nested) == Launch("PMIx", 3, None, None)


def test_wrong_number_of_ranks_names_both_and_the_command():
    with pytest.raises(Refusal, match=r"for 2 ranks, but found 1: start it with `mpiexec -n 2 aotato-run x.h5`"):
        World().expect(2, "x.h5")
    with pytest.raises(Refusal, match=r"x.h5 is for 1 rank, but found 3: start it with `aotato-run x.h5`"):
        World(comm=object(), size=3).expect(1, "x.h5")
    World().expect(1, "x.h5")


@pytest.mark.parametrize("launch", [Launch("Slurm", 0, 2, 0), Launch("Slurm", 1, 2, 1), Launch("PMIx", 1, None, None)])
@pytest.mark.parametrize("ranks", [1, 2])
def test_ranks_that_each_believe_to_be_alone_are_told_why(launch, ranks):
    alone = World(launch=launch)
    with pytest.raises(Refusal, match=r"finds itself alone.*srun --mpi=pmix -n"):
        alone.expect(ranks, "x.h5")
    assert alone.speaks == (launch.rank == 0)


def test_without_mpi_rank_0_speaks_first(capsys, monkeypatch):
    monkeypatch.setattr(world, "FIRST_WORD_SECONDS", 0.2)
    begin = time.monotonic()
    assert World(launch=Launch("Slurm", 0, 2, 0)).report(Refusal("no")) == 1
    assert World(launch=Launch("Slurm", 1, 2, 1)).report(Refusal("no", code=2)) == 2
    assert capsys.readouterr().err == "aotato: no\n"
    assert time.monotonic() - begin >= 0.2


def test_an_unexpected_exception_becomes_a_sentence():
    error, result = world.attempt(lambda: 1 // 0)
    assert result is None
    assert "ZeroDivisionError" in str(error) and "test_world.py:" in str(error) and "\n" not in str(error)


def test_alone_everything_is_agreed():
    with pytest.raises(Refusal, match=r"^no$") as caught:
        World().agree(Refusal("no", code=2))
    assert caught.value.agreed and caught.value.code == 2
    assert World().together(lambda: 5) == 5


def test_one_process_without_a_launcher_does_without_mpi(tmp_path):
    done = run([sys.executable, "-c", "import sys; from aotato.runtime_stub.world import World; "
                "print(World.find(1).size, 'mpi4py.MPI' in sys.modules)"])
    assert done.stdout == "1 False\n"


def test_a_missing_mpi_library_is_a_sentence_with_a_remedy(tmp_path):
    script = _script(tmp_path, """
        try:
            World.find(2)
        except Refusal as refusal:
            sys.exit(World.alone().report(refusal))
        """)
    done = mpiexec(2, [script], timeout=30, env={"MPI4PY_LIBMPI": "/nonexistent/libmpi.so"})
    assert done.returncode == 1
    assert done.stderr.count("pip install 'aotato[local]'") == 1
    assert "Traceback" not in done.stderr


AGREE = """
    w = World.find(2)
    error = Refusal("bad luck", code=3) if w.rank in FAILING else None
    try:
        w.agree(error)
        print("went on")
    except Refusal as refusal:
        assert refusal.agreed
        sys.exit(w.report(refusal))
    """


@pytest.mark.parametrize("failing, sentence", [((0, 1), "aotato: bad luck\n"), ((1,), "aotato: rank 1: bad luck\n"),
                                               ((0,), "aotato: rank 0: bad luck\n")])
def test_ranks_agree_on_a_refusal(tmp_path, failing, sentence):
    done = mpiexec(2, [_script(tmp_path, AGREE.replace("FAILING", repr(failing)))])
    assert done.returncode == 3
    assert done.stderr.count("bad luck") == done.stderr.count(sentence) == 1
    assert "Traceback" not in done.stderr and "abort" not in done.stderr.lower().replace("aborted", "")
    assert done.stdout == ""


def test_ranks_go_on_when_none_fails(tmp_path):
    done = mpiexec(2, [_script(tmp_path, AGREE.replace("FAILING", "()"))])
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\nwent on\n", "")


HOOK = """
    w = World.find(2)
    print(f"pid={os.getpid()}", flush=True)
    with w.abort_hook(script=SCRIPT):
        w.comm.Barrier()
        if w.rank in FAILING:
            WHAT
        w.comm.Barrier()
        time.sleep(60 if FAILING else 0)
    """


def _hook(tmp_path: Path, what: str, failing: tuple[int, ...] = (1,), script: bool = True) -> Path:
    body = HOOK.replace("SCRIPT", str(script)).replace("FAILING", repr(failing)).replace("WHAT", what)
    return _script(tmp_path, body)


ENDS = [
    ("raise ValueError('boom')", "rank 1 failed with ValueError: boom ("),
    ("raise Refusal('no such luck')", "rank 1: no such luck"),
    ("raise KeyboardInterrupt", "rank 1 interrupted"),
    ("sys.exit(3)", "rank 1 left by sys.exit(3)"),
    ("sys.exit('given up')", "rank 1 left by sys.exit('given up')"),
    ("sys.exit()", "rank 1 left by sys.exit(None)"),
    ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)", "stopped by SIGTERM"),
    ("os.kill(os.getpid(), signal.SIGKILL)", None),
    ("os._exit(0)", None),
    ("os._exit(3)", None),
]


@pytest.mark.parametrize("what, sentence, script", [(*row, True) for row in ENDS] + [(*row, False) for row in ENDS[:4]])
def test_whatever_ends_one_rank_ends_all(tmp_path, what, sentence, script):
    begin = time.monotonic()
    with started(command(2, [_hook(tmp_path, what, script=script)]), PERMISSIONS) as process:
        out, err = process.communicate(timeout=SECONDS)
        pids = [int(pid) for pid in re.findall(r"pid=(\d+)", out)]
        assert len(pids) == 2 and gone(pids, begin + SECONDS - time.monotonic())
    assert time.monotonic() - begin < SECONDS
    assert process.returncode != 0
    assert err.count("aotato: ") == (sentence is not None)
    assert sentence is None or f"aotato: {sentence}" in err
    assert ("Traceback" in err) == (script and "ValueError" in what)


@pytest.mark.parametrize("what", ["raise ValueError('boom')", "os.kill(os.getpid(), signal.SIGTERM); time.sleep(60)"])
@pytest.mark.parametrize("script", [True, False])
def test_ranks_that_fail_together_print_one_sentence(tmp_path, what, script):
    done = mpiexec(4, [_hook(tmp_path, what, failing=(0, 1, 3), script=script)], timeout=30)
    assert done.returncode != 0
    assert done.stderr.count("aotato: ") == 1


def test_all_ranks_may_leave_by_sys_exit(tmp_path):
    done = mpiexec(2, [_hook(tmp_path, "sys.exit(0)", failing=(0, 1))], timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_rank_may_leave_by_sys_exit_while_another_has_closed_and_works_on(tmp_path):
    script = _script(tmp_path, """
        w = World.find(2)
        with w.abort_hook(script=True):
            if w.rank == 1:
                sys.exit(0)
        time.sleep(5)
        """)
    done = mpiexec(2, [script], timeout=30)
    assert (done.returncode, done.stderr) == (0, "")


def test_an_exception_may_be_caught_outside_and_the_hook_is_gone(tmp_path):
    script = _script(tmp_path, """
        w = World.find(2)
        before = sys.excepthook
        for _ in range(3):
            with w.abort_hook(script=True):
                assert sys.excepthook != before
            assert sys.excepthook is before and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
        try:
            with w.abort_hook(script=True):
                if w.rank == 1:
                    raise ValueError("boom")
        except ValueError:
            pass
        w.comm.Barrier()
        print("went on")
        """)
    done = mpiexec(2, [script], timeout=30)
    assert (done.returncode, done.stdout, done.stderr) == (0, "went on\nwent on\n", "")


def test_an_agreed_refusal_leaves_in_the_ordinary_way(tmp_path):
    script = _script(tmp_path, """
        w = World.find(2)
        try:
            with w.abort_hook():
                w.agree(Refusal("no such device") if w.rank == 1 else None)
        except Refusal as refusal:
            sys.exit(w.report(refusal))
        """)
    done = mpiexec(2, [script], timeout=30)
    assert done.returncode == 1 and done.stderr.count("aotato: rank 1: no such device\n") == 1
    assert "MPI_ABORT" not in done.stderr


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_stopping_the_launcher_stops_all_ranks(tmp_path, number):
    script = _hook(tmp_path, "time.sleep(60)", failing=(0,), script=False)
    with started(command(2, [script]), PERMISSIONS) as process:
        lines = [process.stdout.readline(), process.stdout.readline()]
        time.sleep(0.5)
        process.send_signal(number)
        _, err = process.communicate(timeout=SECONDS)
        time.sleep(0.2)
        assert session_members(process.pid) == []
    assert len(lines) == 2 and process.returncode != 0
    assert err.count("aotato: ") <= 1 and "Traceback" not in err


@pytest.mark.parametrize("number, code", [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_single_process_with_a_sentence(tmp_path, number, code):
    script = _script(tmp_path, """
        with World.alone().abort_hook():
            print("ready", flush=True)
            time.sleep(60)
        """)
    with started([sys.executable, script]) as process:
        assert process.stdout.readline() == "ready\n"
        process.send_signal(number)
        _, err = process.communicate(timeout=SECONDS)
    assert (process.returncode, err) == (code, f"aotato: stopped by {number.name}\n")


def _script(tmp_path: Path, body: str) -> Path:
    path = tmp_path / "script.py"
    path.write_text("import os, signal, sys, time\nfrom aotato.runtime_stub.errors import Refusal\n"
                    "from aotato.runtime_stub.world import World\n" + textwrap.dedent(body))
    return path
