"""Time the kernels of the DG stage one by one under changed targets: `python kernel_times.py --cells 56 --target gpu`.

Every variant is fields of the target, comma-separated, and what the compiler is to be told: `registers=96` caps the
registers of a work-item (the group size is then no longer stated in the source), `verbose=1` prints NVIDIA's account
of registers and spills. One line of JSON a variant: ms of the stage, of each kernel, group sizes, local memory.

    python benchmarks/kernel_times.py --cells 56 --target gpu "" accumulators=30,lanes=160 accumulators=60,registers=128
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
from dg_mesh import box, lattice
from dg_stage import VARIABLES, stage

import aotato
from aotato.emit import target
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.kernels import Kernels, options

_enqueue = cl.enqueue_nd_range_kernel


class Compiler:
    """Compiles the bundle's kernels as a variant wants them, and keeps the launches of a stage."""

    def __init__(self) -> None:
        self.registers, self.verbose = 0, False
        self.launches: list[tuple[Any, Any, Any]] = []

    def compiled(self, kernels: Any, digest: str) -> Any:
        source, told = kernels.bundle.kernel(digest), list(options(kernels.device))
        if self.registers:
            begin = source.index("__attribute__ ((reqd_work_group_size")
            source = source[:begin] + source[source.index(")))", begin) + 3 :]
            told.append(f"-cl-nv-maxrregcount={self.registers}")
        if self.verbose:
            told.append("-cl-nv-verbose")
        program = cl.Program(kernels.context, source).build(told, [kernels.device])
        if self.verbose:
            log = program.get_build_info(kernels.device, cl.program_build_info.LOG)
            print("\n".join(line for line in log.splitlines() if "regis" in line or "spill" in line), flush=True)
        return program

    def enqueue(self, queue: Any, kernel: Any, whole: Any, local: Any, **more: Any) -> Any:
        self.launches.append((kernel, whole, local))
        return _enqueue(queue, kernel, whole, local, **more)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cells", type=int, default=8)
    parser.add_argument("--order", type=int, default=3)
    parser.add_argument("--target", default="gpu")
    parser.add_argument("--exact", action="store_true", help="no fused multiplications and additions, no reciprocals")
    parser.add_argument("variants", nargs="*", default=[""])
    chosen = parser.parse_args()
    outputs = stage(box(chosen.cells, chosen.order), chosen.order)
    shape = (VARIABLES, 6 * chosen.cells**3, len(lattice(chosen.order)))
    compiler, plain = Compiler(), target.TARGETS[chosen.target]
    Kernels._compiled = lambda self, digest: compiler.compiled(self, digest)  # type: ignore[method-assign]
    cl.enqueue_nd_range_kernel = compiler.enqueue
    for variant in chosen.variants or [""]:
        fields = {name: int(number) for name, number in (item.split("=") for item in variant.split(",") if item)}
        compiler.registers, compiler.verbose = fields.pop("registers", 0), bool(fields.pop("verbose", 0))
        target.TARGETS[chosen.target] = dataclasses.replace(plain, **fields)
        try:
            found = measured(outputs, shape, chosen, compiler)
        except Exception as error:  # one variant that fails is no reason to lose the others
            found = {"failed": f"{type(error).__name__}: {error}"[:300]}
        print(json.dumps({"variant": variant, **found}), flush=True)


def measured(outputs: Any, shape: tuple[int, ...], chosen: Any, compiler: Compiler) -> dict[str, Any]:
    q = 1 + 0.1 * np.random.default_rng(1).random(shape)
    q[1] += 2
    with tempfile.TemporaryDirectory() as folder:
        path = aotato.build(outputs, path=Path(folder, "s.h5"), targets=chosen.target, contract=not chosen.exact,
                            algebra="exact" if chosen.exact else "fast")
        with Bundle.open(path) as bundle:
            rows = bundle.schedule("step", chosen.target, 0).launches
        with aotato.load(path, target=chosen.target) as program:
            compiler.launches.clear()
            program.call("step", q=q, residual=np.zeros(shape), dt=np.float64(1e-6), b=np.float64(0.1))
            launches = list(compiler.launches)
            whole = _timed(program, lambda: program.perform("step"))
            each = [_timed(program, lambda one=one: _enqueue(program.queue, *one)) for one in launches]
    dof = int(np.prod(shape))
    return {"ms": round(1e3 * whole, 4), "GDOF/s": round(dof / whole / 1e9, 3),
            "kernels_ms": [round(1e3 * t, 4) for t in each], "lanes": [row.local_size[0] for row in rows],
            "local_bytes": [row.local_bytes for row in rows]}


def _timed(program: Any, step: Any) -> float:
    """Median seconds over blocks of calls that last about a tenth of a second."""
    step()
    program.queue.finish()
    begin = time.monotonic()
    step()
    program.queue.finish()
    calls = max(1, int(0.1 / max(1e-6, time.monotonic() - begin)))
    times = []
    for _ in range(5):
        begin = time.monotonic()
        for _ in range(calls):
            step()
        program.queue.finish()
        times.append((time.monotonic() - begin) / calls)
    return statistics.median(times)


if __name__ == "__main__":
    main()
