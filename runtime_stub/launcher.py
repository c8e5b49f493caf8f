"""Which process of how many a launcher says this is: read from environment variables, without MPI."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Launch:
    """What the launcher said; `None` where its variables do not tell."""

    launcher: str
    rank: int
    size: int | None
    local_rank: int | None  # among the processes of this node


@dataclass(frozen=True)
class _Variables:
    launcher: str
    rank: str
    size: tuple[str, ...] = ()
    local_rank: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()  # at least one of them must be set as well


# Innermost first: a launcher started inside another one's job inherits the outer one's variables.
_LAUNCHERS = (
    _Variables("Open MPI", "OMPI_COMM_WORLD_RANK", ("OMPI_COMM_WORLD_SIZE",), ("OMPI_COMM_WORLD_LOCAL_RANK",)),
    _Variables("Flux", "FLUX_TASK_RANK", ("FLUX_JOB_SIZE",), ("FLUX_TASK_LOCAL_ID",)),
    _Variables("PALS", "PALS_RANKID", ("PALS_SIZE", "PMI_SIZE"), ("PALS_LOCAL_RANKID",)),
    _Variables("MPICH", "PMI_RANK", ("PMI_SIZE",), ("MPI_LOCALRANKID", "PMI_LOCAL_RANK")),
    _Variables("PMIx", "PMIX_RANK"),
    # A batch script sees SLURM_PROCID=0 and the job's SLURM_NTASKS too; only what srun starts belongs to a step.
    _Variables("Slurm", "SLURM_PROCID", ("SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"), ("SLURM_LOCALID",),
               needs=("SLURM_STEP_ID", "SLURM_STEPID")),
)


def find(environ: Mapping[str, str] = os.environ) -> Launch | None:
    """What the innermost launcher says, its gaps filled by those that agree on the rank (srun sets PMIx's as well)."""
    said = list(_read(environ))
    if not said:
        return None
    first, *outer = said
    same = [first, *(launch for launch in outer if launch.rank == first.rank)]
    return Launch(first.launcher, first.rank, _known(launch.size for launch in same),
                  _known(launch.local_rank for launch in same))


def _read(environ: Mapping[str, str]) -> Iterator[Launch]:
    for row in _LAUNCHERS:
        rank = _number(environ, (row.rank,))
        if rank is not None and (not row.needs or _number(environ, row.needs) is not None):
            yield Launch(row.launcher, rank, _number(environ, row.size), _number(environ, row.local_rank))


def _number(environ: Mapping[str, str], names: tuple[str, ...]) -> int | None:
    return _known(int(text) if (text := environ.get(name, "")).isdecimal() else None for name in names)


def _known(values: Iterator[int | None]) -> int | None:
    return next((value for value in values if value is not None), None)
