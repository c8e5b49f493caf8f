"""Look for copies in device memory: `mpiexec -n N count_copies.py FOLDER`, one JSON line per bundle and rank.

Every bundle is called with random inputs; an array that a launch has written outside of messages counts as a copy if
its bytes are those of an input, a constant or a received array. Arrays of less than 8 bytes are left out.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
from mpi4py import MPI

import aotato
from aotato.runtime_stub.format import Bundle


def main() -> None:
    world = MPI.COMM_WORLD
    for path in sorted(Path(sys.argv[1]).glob("*.h5")):
        with Bundle.open(path) as bundle:
            ranks = bundle.ranks
        comm = world.Split(0 if world.rank < ranks else MPI.UNDEFINED, world.rank)
        if comm == MPI.COMM_NULL:
            continue
        with aotato.load(path, comm=comm, target="cpu") as program:
            copies, temporaries = _counts(program, comm.rank)
        line = {"name": path.stem, "rank": comm.rank, "copies": copies, "temporaries": temporaries}
        print(json.dumps(line) + "\n", end="", flush=True)
        comm.Free()


def _counts(program: Any, rank: int) -> tuple[int, int]:
    """Written arrays that are copies, and written arrays that live only inside a call."""
    rng = np.random.default_rng(rank)
    given = {w.name: (rng.random(w.shape) * 100 + 1).astype(w.dtype) for w in program.wanted("step")}
    program.call("step", **given)
    schedule = program.schedules["step"]
    kinds = {b.name: b for b in schedule.buffers}

    def contents(name: str) -> bytes:
        array = np.empty(kinds[name].nbytes, "uint8")
        if array.nbytes:
            program.cl.enqueue_copy(program.queue, array, program.last["step"].resolve(name))
        return array.tobytes()

    known = {array.tobytes() for array in given.values()}
    known |= {contents(name) for name, b in kinds.items() if b.kind == "const"}
    for message in schedule.messages:
        if not message.outgoing:
            whole = contents(message.buffer)
            ends = [p.offset + int(np.prod(p.shape, dtype=int)) * np.dtype(p.dtype).itemsize for p in message.parcels]
            known |= {whole[p.offset : end] for p, end in zip(message.parcels, ends, strict=True)}
    arguments = [a for launch in schedule.launches for a in launch.arguments]
    written = {a.buffer for a in arguments if a.mode == "w" and kinds[a.buffer].kind in ("output", "temporary")}
    copies = sum(kinds[name].nbytes >= 8 and contents(name) in known for name in written)
    return copies, sum(kinds[name].kind == "temporary" for name in written)


if __name__ == "__main__":
    main()
