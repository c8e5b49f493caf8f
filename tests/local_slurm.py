"""A Slurm cluster of this one machine, with a munge of its own, for the time of a `with`: loopback, one folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from mpi import gone, run, session_members

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "sinfo", "scancel")
PACKAGES = ("slurmctld", "slurmd", "slurm-client", "munge", "libpmix-dev")
PATH = os.pathsep.join((os.environ.get("PATH", ""), "/usr/sbin", "/sbin"))
SECONDS = 30.0  # for the node to come up, and for daemons to end

CONF = """\
ClusterName=local
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
{binding}
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
KillWait=1
NodeName={host} NodeAddr=127.0.0.1 CPUs={cpus} State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP OverSubscribe=FORCE:4
"""


def missing() -> str | None:
    """Why no cluster can be started here, as a sentence; None if one can."""
    if os.geteuid() != 0:
        return "a Slurm cluster is started by root only"
    lacking = [name for name in PROGRAMS if shutil.which(name, path=PATH) is None]
    if not any(Path("/usr/lib").glob("*/slurm-wlm/mpi_pmix.so")):
        lacking.append("Slurm's mpi_pmix.so")
    if not lacking:
        return None
    return f"no {', '.join(lacking)}: `apt-get install -y --no-install-recommends {' '.join(PACKAGES)}` (Debian)"


@contextlib.contextmanager
def cluster(folder: Path) -> Iterator[Mapping[str, str]]:
    """The variables that make `srun` use a cluster whose files lie in `folder`; its processes end with the context.

    Raises RuntimeError with the end of a log if a daemon does not come up.
    """
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key, conf = folder / "munge.key", folder / "slurm.conf"
    key.touch(0o600)
    key.write_bytes(secrets.token_bytes(128))
    controller, node = _free_ports(2)
    host = socket.gethostname().partition(".")[0]
    conf.write_text(CONF.format(host=host, folder=folder, controller=controller, node=node, cpus=os.cpu_count(),
                                binding=_binding(host)))
    # Where the system's munge runs, Slurm's PMIx offers it too, and a client without that plugin says so at length
    variables = {"SLURM_CONF": str(conf), "PATH": PATH, "PMIX_MCA_psec": "native"}
    with contextlib.ExitStack() as daemons:
        _daemon(daemons, folder, variables, "munged", "--foreground", "--force", f"--key-file={key}",
                f"--socket={folder}/munge.socket", f"--pid-file={folder}/munged.pid",
                f"--log-file={folder}/munged.log", f"--seed-file={folder}/munged.seed")
        _await(folder, "munged", (folder / "munge.socket").exists)
        _daemon(daemons, folder, variables, "slurmctld", "-D", "-f", str(conf))
        _await(folder, "slurmctld", lambda: _answers(controller))
        _daemon(daemons, folder, variables, "slurmd", "-D", "-f", str(conf))
        _await(folder, "slurmd", lambda: _state(variables) == "idle")
        try:
            yield variables
        finally:
            run(["scancel", "--quiet", "--partition=all"], env=variables)
            _until(lambda: _state(variables) == "idle")  # the steps' own daemons have ended


def _daemon(stack: contextlib.ExitStack, folder: Path, variables: Mapping[str, str], name: str, *args: str) -> None:
    """Start a daemon as a child in a session of its own, which ends with `stack`; what it says goes to a log."""
    with open(folder / f"{name}.out", "wb") as log:
        child = subprocess.Popen([name, *args], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                                 env=os.environ | variables, start_new_session=True)
    stack.callback(_end, child)


def _end(child: subprocess.Popen[bytes]) -> None:
    child.terminate()
    try:
        child.wait(SECONDS)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()
    left = session_members(child.pid)
    for pid in left:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    gone(left, SECONDS)


def _await(folder: Path, name: str, ready: Callable[[], bool]) -> None:
    if not _until(ready):
        words = (folder / f"{name}.out").read_text(errors="replace")[-2000:]
        raise RuntimeError(f"{name} did not come up within {SECONDS:.0f} s: {words}")


def _until(ready: Callable[[], bool]) -> bool:
    """Whether it became true in time."""
    end = time.monotonic() + SECONDS
    while not (done := ready()) and time.monotonic() < end:
        time.sleep(0.1)
    return bool(done)


def _state(variables: Mapping[str, str]) -> str:
    """The state of the only node: `idle` when it is up and nothing runs on it."""
    return run(["sinfo", "--noheader", "--format=%T"], env=variables).stdout.strip()


def _answers(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _binding(host: str) -> str:
    """Listen on loopback alone; only where this host's name is loopback, since Slurm binds to the name's address."""
    try:
        loopback = socket.gethostbyname(host).startswith("127.")
    except OSError:
        loopback = False
    return "CommunicationParameters=NoCtldInAddrAny,NoInAddrAny" if loopback else ""


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        sockets = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in sockets]
