"""aotato-run many times in one MPI job: `mpiexec -n N run_many.py FILE`, a command line without its name a line.

A bundle for fewer than N ranks runs on the first ranks. A refusal ends the job with its sentence.
"""

from __future__ import annotations

import shlex
import sys
import time
from dataclasses import replace
from pathlib import Path

from mpi4py import MPI

from aotato.runtime_stub import options
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.run import run
from aotato.runtime_stub.world import World


def main() -> None:
    everyone = MPI.COMM_WORLD
    for line in Path(sys.argv[1]).read_text().splitlines():
        chosen = options.parse(shlex.split(line))
        with Bundle.open(chosen.file) as bundle:
            _meet(everyone)
            comm = everyone.Split(0 if everyone.rank < bundle.ranks else MPI.UNDEFINED, everyone.rank)
            if comm == MPI.COMM_NULL:
                continue
            world = replace(World.of(comm), launch=None)  # the launcher has started more processes than these
            try:
                run(world, bundle, chosen)
            except Refusal as refusal:
                world.report(refusal)
                everyone.Abort(1)
            comm.Free()


def _meet(everyone: MPI.Comm) -> None:
    """A barrier that leaves the cores to those who are not there yet."""
    request = everyone.Ibarrier()
    while not request.Test():
        time.sleep(0.01)


if __name__ == "__main__":
    main()
