"""Run a bundle's entries on real devices and MPI, counting every command: `mpiexec -n N count_calls.py FILE TARGET`.

Prints one JSON line per rank: entry -> counts of one call inside the loop, named as in the report.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from typing import Any

import numpy as np
import pyopencl as cl

import aotato

COUNTS: Counter[str] = Counter()


def count(name: str, nbytes: int = 0) -> None:
    COUNTS[name] += 1
    if nbytes:
        COUNTS[{"uploads": "upload_bytes", "downloads": "download_bytes", "messages": "bytes_sent"}[name]] += nbytes


def wrap_opencl() -> None:
    launch, copy = cl.enqueue_nd_range_kernel, cl.enqueue_copy

    def counted_launch(*args: Any, **kwargs: Any) -> Any:
        count("launches")
        return launch(*args, **kwargs)

    def counted_copy(queue: Any, dest: Any, src: Any, **kwargs: Any) -> Any:
        host = [isinstance(x, np.ndarray) for x in (dest, src)]
        if any(host):
            count("downloads" if host[0] else "uploads", (dest if host[0] else src).nbytes)
        else:
            count("copies")
        return copy(queue, dest, src, **kwargs)

    cl.enqueue_nd_range_kernel, cl.enqueue_copy = counted_launch, counted_copy
    for name in ("Buffer", "SVM"):
        original = getattr(cl, name)
        setattr(cl, name, _counted_class(original))


def _counted_class(original: Any) -> Any:
    class Counted(original):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            COUNTS["allocations"] += 1
            super().__init__(*args, **kwargs)

    return Counted


class Request:
    """A persistent request that counts its starts."""

    def __init__(self, request: Any, nbytes: int | None) -> None:
        self.request, self.nbytes = request, nbytes

    def Start(self) -> None:
        if self.nbytes is not None:
            count("messages")
            COUNTS["bytes_sent"] += self.nbytes
        else:
            COUNTS["receives"] += 1
        self.request.Start()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.request, name)


class Comm:
    """A communicator that counts what is started on it."""

    def __init__(self, comm: Any) -> None:
        self.comm = comm

    def Dup(self) -> Comm:
        return Comm(self.comm.Dup())

    def Send_init(self, buffer: Any, dest: int, tag: int) -> Request:
        return Request(self.comm.Send_init(buffer, dest, tag), buffer[0].nbytes)

    def Recv_init(self, buffer: Any, source: int, tag: int) -> Request:
        return Request(self.comm.Recv_init(buffer, source, tag), None)

    def Allreduce(self, *args: Any, **kwargs: Any) -> None:
        count("collectives")
        self.comm.Allreduce(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.comm, name)


def main() -> None:
    from mpi4py import MPI

    wrap_opencl()
    found = {}
    with aotato.load(sys.argv[1], comm=Comm(MPI.COMM_WORLD), target=sys.argv[2]) as program:
        for entry in program.bundle.entries:
            # Inputs that the plan would make are zeros here: commands do not depend on values
            missing = [w for w in program.wanted(entry) if not w.has_default]
            program.call(entry, **{w.name: np.zeros(w.shape, w.dtype) for w in missing})
            program.perform(entry)
            program.perform(entry)
            COUNTS.clear()
            program.perform(entry)
            found[entry] = dict(COUNTS)
    for rank in range(MPI.COMM_WORLD.size):
        MPI.COMM_WORLD.Barrier()
        if rank == MPI.COMM_WORLD.rank:
            sys.stdout.write(json.dumps({"rank": rank, "counts": found}) + "\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
