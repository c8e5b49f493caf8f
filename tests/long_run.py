"""Run 1,000 steps of a bundle's plan and say what grew: `mpiexec -n N long_run.py FILE`. One JSON line per rank."""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc

from mpi4py import MPI

import aotato
import count_calls


def main() -> None:
    count_calls.wrap_opencl()
    with aotato.load(sys.argv[1], comm=count_calls.Comm(MPI.COMM_WORLD)) as program:
        program.run(steps=50)
        tracemalloc.start()
        program.run(steps=50)
        gc.collect()
        before, _ = tracemalloc.get_traced_memory()
        count_calls.COUNTS.clear()
        program.run(steps=1000)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        row = {"grown": after - before, "allocations": count_calls.COUNTS["allocations"],
               "launches": count_calls.COUNTS["launches"]}
    sys.stdout.write(json.dumps(row) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
