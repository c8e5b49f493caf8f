"""Self-test many bundles in one MPI job: `mpiexec -n N run_bundles.py FOLDER [TARGET]`.

Every `FOLDER/*.h5` for at most N ranks runs on the first ranks of the job. Prints `passed NAME` or `failed NAME: why`.
"""

from __future__ import annotations

import sys
from pathlib import Path

from mpi4py import MPI

import aotato
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Bundle


def main() -> None:
    folder, target = Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else None
    world = MPI.COMM_WORLD
    for path in sorted(folder.glob("*.h5")):
        with Bundle.open(path) as bundle:
            ranks = bundle.ranks
        comm = world.Split(0 if world.rank < ranks else MPI.UNDEFINED, world.rank)
        if comm == MPI.COMM_NULL:
            continue
        try:
            with aotato.load(path, comm=comm, target=target) as program:
                program.selftest()
                program.selftest()
            said = f"passed {path.name}"
        except Refusal as error:
            said = f"failed {path.name}: {error}"
        if comm.rank == 0:
            print(said, flush=True)
        comm.Free()


if __name__ == "__main__":
    main()
