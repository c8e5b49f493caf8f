"""The processes that run one bundle together: who they are, and how they agree that something is wrong."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from aotato.runtime_stub import launcher
from aotato.runtime_stub.errors import Refusal

if TYPE_CHECKING:
    from aotato.runtime_stub.abort import AbortHook

T = TypeVar("T")

# A launcher kills all as soon as one process has left with an error: without MPI, the others let rank 0 print first.
FIRST_WORD_SECONDS = 3.0


@dataclass(frozen=True)
class World:
    """`comm` is an mpi4py communicator, or None for one process without MPI."""

    comm: Any = None
    rank: int = 0
    size: int = 1
    local_rank: int = 0  # among the processes of this node
    launch: launcher.Launch | None = None

    @classmethod
    def alone(cls) -> World:
        launch = launcher.find()
        return cls(local_rank=(launch and launch.local_rank) or 0, launch=launch)

    @classmethod
    def of(cls, comm: Any) -> World:
        """The world of an mpi4py communicator (collective), or of this process alone (None)."""
        alone = cls.alone()
        if comm is None:
            return alone
        told = alone.launch is not None and alone.launch.local_rank is not None
        return cls(comm, comm.rank, comm.size, alone.local_rank if told else _local_rank(comm), alone.launch)

    @classmethod
    def find(cls, ranks: int | None) -> World:
        """All processes of this job; `ranks` is what the bundle was built for (None: it could not be read).

        MPI is not touched where one process suffices and no launcher was seen. Raises Refusal without an MPI library.
        """
        alone = cls.alone()
        if alone.launch is None and ranks in (None, 1):
            return alone
        try:
            return cls.of(import_mpi().COMM_WORLD)
        except Refusal:
            if alone.launch is None or alone.launch.size == 1:
                return alone
            raise

    @property
    def speaks(self) -> bool:
        """Whether this process prints for all; one of several that each believe to be alone asks the launcher."""
        return self.rank == 0 and (self.size > 1 or self.launch is None or self.launch.rank == 0)

    def agree(self, error: Refusal | None) -> None:
        """Raise on every rank the `Refusal` of the lowest rank that has one. One reduction when there is none."""
        if self.comm is None or self.size == 1:
            if error is not None:
                raise Refusal(str(error), code=error.code, agreed=True) from error
            return
        found = np.array([self.size if error is None else self.rank, -int(error is None)], dtype=np.int64)
        self.comm.Allreduce(import_mpi().IN_PLACE, found, op=import_mpi().MIN)
        first, everywhere = int(found[0]), found[1] == 0
        if first == self.size:
            return
        text, code = self.comm.bcast((str(error), error.code if error else 1), root=first)
        raise Refusal(text if everywhere else f"rank {first}: {text}", code=code, agreed=True) from error

    def together(self, work: Callable[[], T]) -> T:
        """`work()` of this rank, once it has succeeded on all. `work` must not communicate."""
        error, result = attempt(work)
        self.agree(error)
        return result  # type: ignore[return-value]

    def first(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        return value if self.comm is None else self.comm.bcast(value, root=0)

    def each(self, value: T) -> list[T]:
        """Every rank's value, on every rank."""
        return [value] if self.comm is None else self.comm.allgather(value)

    def expect(self, ranks: int, file: str) -> None:
        """Refuse a number of processes that the bundle `file` was not built for."""
        started = max(self.size, (self.launch and self.launch.size) or 1)
        strangers = self.size == 1 and self.launch is not None and (started > 1 or self.launch.rank > 0)
        if self.size == ranks and not strangers:
            return
        command = f"mpiexec -n {ranks} aotato-run {file}" if ranks > 1 else f"aotato-run {file}"
        if not strangers:
            raise Refusal(f"{file} is for {_ranks(ranks)}, but found {self.size}: start it with `{command}`, "
                          f"or build it with ranks={self.size}")
        raise Refusal(
            f"{file} is for {_ranks(ranks)}, but each of the {started} started processes finds itself alone, because "
            f"this launcher and the MPI library of mpi4py do not know each other: use that library's own mpiexec "
            f"(`{command}`) or, under Slurm, `srun --mpi=pmix -n {ranks} aotato-run {file}` (pmi2 for MPICH)")

    def report(self, refusal: Refusal) -> int:
        """Print what all ranks agreed on, once, before any of them leaves; the exit status for all."""
        if self.speaks:
            say(str(refusal))
        if self.comm is not None and self.size > 1:
            self.comm.Barrier()
        elif not self.speaks:
            time.sleep(FIRST_WORD_SECONDS)
        return refusal.code

    def abort_hook(self, *, script: bool = False) -> AbortHook:
        """A context whose failures stop all ranks: see `abort.AbortHook`. Entering it is collective."""
        from aotato.runtime_stub.abort import AbortHook

        return AbortHook(self, script=script)


def attempt(work: Callable[[], T]) -> tuple[Refusal | None, T | None]:
    """What went wrong (an unexpected exception too, so that nobody waits for this rank in vain), or what came out."""
    try:
        return None, work()
    except Refusal as refusal:
        return refusal, None
    except BrokenPipeError:
        raise
    except Exception as error:
        unexpected = Refusal(f"{describe(error)}; this is a defect of aotato: please report it")
        unexpected.__cause__ = error
        return unexpected, None


def import_mpi() -> Any:
    """mpi4py.MPI, which initialises MPI on its first import. Raises Refusal where there is no MPI library."""
    try:
        from mpi4py import MPI
    except (ImportError, RuntimeError) as error:
        raise Refusal(
            f"expected an MPI library for mpi4py, but found none ({_first_line(error)}): install one with "
            "`pip install 'aotato[local]'`, or load the system's MPI module") from error
    return MPI


def say(sentence: str) -> None:
    """Print the sentence to standard error in one write, so that no other rank's output divides it."""
    sys.stderr.write(f"aotato: {sentence}\n")
    sys.stderr.flush()


def describe(error: BaseException) -> str:
    """Class, first line and place of an exception, as part of a sentence."""
    if isinstance(error, Refusal):
        return str(error)
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({os.path.basename(frames[-1].filename)}:{frames[-1].lineno})" if frames else ""
    text = _first_line(error)
    return f"{type(error).__name__}{': ' if text else ''}{text}{place}"


def _local_rank(comm: Any) -> int:
    node = comm.Split_type(import_mpi().COMM_TYPE_SHARED)
    try:
        return int(node.rank)
    finally:
        node.Free()


def _first_line(error: BaseException) -> str:
    return next(iter(str(error).splitlines()), "").rstrip(".")


def _ranks(count: int) -> str:
    return "1 rank" if count == 1 else f"{count} ranks"

