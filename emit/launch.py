"""Start a bundle on this machine: under mpiexec, or alone when it is for one rank."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# Open MPI refuses root, and more ranks than it counts cores; other MPIs do not read these
AS_ROOT = {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
CROWDED = {
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",  # Open MPI 5
    "OMPI_MCA_rmaps_base_oversubscribe": "1",  # Open MPI 4
}


class LaunchError(Exception):
    """There is no MPI launcher: one sentence with a remedy."""


def command(bundle: str, ranks: int, arguments: Sequence[str]) -> list[str]:
    """What to execute. Raises LaunchError."""
    loader = [sys.executable, "-m", "aotato.runtime_stub.run", bundle, *arguments]
    return loader if ranks == 1 else [mpiexec(), "-n", str(ranks), *loader]


def mpiexec() -> str:
    """The launcher of this Python's environment before any other: it belongs to the MPI that mpi4py finds there."""
    beside = Path(sys.executable).with_name("mpiexec")
    found = str(beside) if beside.exists() else shutil.which("mpiexec")
    if found is None:
        raise LaunchError("expected mpiexec beside Python or on the PATH, but found none: install an MPI, "
                          "for instance with `pip install '.[local]'`")
    return found


def environment(ranks: int, root: bool, cores: int, outer: Mapping[str, str] = os.environ) -> dict[str, str]:
    """`outer` with what Open MPI needs, only where it would refuse; what the user has set stays."""
    needed = (AS_ROOT if root else {}) | (CROWDED if ranks > cores else {})
    return needed | dict(outer)


def cores() -> int:
    """Cores that this process may use, hardware threads of one core counted once: Open MPI's slots."""
    if not hasattr(os, "sched_getaffinity"):
        return os.cpu_count() or 1
    return len({_siblings(cpu) for cpu in os.sched_getaffinity(0)})


def _siblings(cpu: int) -> str:
    """Text that the hardware threads of one core share."""
    try:
        return Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list").read_text()
    except OSError:
        return str(cpu)
