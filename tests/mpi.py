"""Run a command under the MPI launcher of this environment; nothing it starts outlives the call."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

# Open MPI refuses root and more ranks than cores by default
PERMISSIONS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
_LAUNCHER_PREFIXES = ("OMPI_", "PMIX_", "PMI_", "SLURM_", "PALS_", "FLUX_", "PRTE_", "MPI_LOCAL")


def environment(extra: Mapping[str, str | None] | None = None) -> dict[str, str]:
    """This process's environment as if no launcher had started it, plus `extra`, where None unsets."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(_LAUNCHER_PREFIXES)}
    env |= {k: v for k, v in (extra or {}).items() if v is not None}
    return {k: v for k, v in env.items() if (extra or {}).get(k, "") is not None}


def mpiexec(n: int, args: Sequence[str | Path], timeout: float = 60.0,
            env: Mapping[str, str | None] | None = None) -> subprocess.CompletedProcess[str]:
    """`mpiexec -n N python ARGS...`; its combined fate, output as text. Raises TimeoutExpired, all processes killed."""
    return run(command(n, args), timeout, PERMISSIONS | dict(env or {}))


def command(n: int, args: Sequence[str | Path]) -> list[str | Path]:
    """`mpiexec -n N python ARGS...` with the launcher beside this Python, else the one on the path."""
    beside = Path(sys.executable).with_name("mpiexec")
    launcher = beside if beside.exists() else shutil.which("mpiexec") or "mpiexec"
    return [launcher, "-n", str(n), sys.executable, *args]


def run(args: Sequence[str | Path], timeout: float = 60.0,
        env: Mapping[str, str | None] | None = None) -> subprocess.CompletedProcess[str]:
    """A command without launcher variables but those in `env`, under the same guarantees as `mpiexec`."""
    with started(args, env) as process:
        out, err = process.communicate(timeout=timeout)
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


@contextlib.contextmanager
def started(args: Sequence[str | Path],
            env: Mapping[str, str | None] | None = None) -> Iterator[subprocess.Popen[str]]:
    """A running command in a session of its own; what is left of the session is killed at the end."""
    with subprocess.Popen([str(a) for a in args], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                          env=environment(env), start_new_session=True) as process:
        try:
            yield process
        finally:
            _kill_session(process.pid)


def _kill_session(session: int) -> None:
    # Open MPI gives each rank a process group of its own, so that killing the launcher's group is not enough
    for pid in session_members(session):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def session_members(session: int) -> list[int]:
    """Processes of a session that are alive."""
    pids = [int(path.name) for path in Path("/proc").glob("[0-9]*")]
    return [pid for pid in pids if (stat := _stat(pid)) and stat[0] != "Z" and int(stat[3]) == session]


def alive(pid: int) -> bool:
    """Whether a process is there and no zombie (in a container nobody may collect the launcher's orphans)."""
    return bool((stat := _stat(pid)) and stat[0] != "Z")


def gone(pids: Sequence[int], seconds: float) -> bool:
    """Whether none of the processes is alive any more after at most so long."""
    end = time.monotonic() + seconds
    while any(map(alive, pids)) and time.monotonic() < end:
        time.sleep(0.05)
    return not any(map(alive, pids))


def _stat(pid: int) -> list[str]:
    """State, parent, group, session, ... of a process; empty if there is none."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
