"""Time per step of a tiny exchange on 2 ranks: a bundle beside the same written by hand, in one run.

Each rank sends y = 2x + 1 (16 doubles) to the other and adds what it receives to x: 2 launches, 1 message each way.
`python benchmarks/step_time.py` prints the medians over alternating blocks and writes results/step_time.json.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RANKS, N = 2, 16
RESULT = Path(__file__).with_name("results") / "step_time.json"

SOURCE = """
kernel void pack(global const double *restrict x, global double *restrict y)
{ int i = get_global_id(0); y[i] = 2 * x[i] + 1; }
kernel void add(global const double *restrict x, global const double *restrict received, global double *restrict out)
{ int i = get_global_id(0); out[i] = received[i] + x[i]; }
"""


def exchange(rank: int, size: int) -> dict[str, Any]:
    """The app: x, 16 doubles a rank, to out = (2x + 1 of the other rank) + x."""
    from aotato import array_input, make_distributed_recv, staple_distributed_send

    x = array_input("x", (N,), "float64", default=image(rank))
    received = make_distributed_recv(1 - rank, "y", (N,), "float64")
    return {"out": staple_distributed_send(2 * x + 1, 1 - rank, "y", stapled_to=received + x)}


def image(rank: int) -> np.ndarray[Any, Any]:
    return np.random.default_rng(rank).random(N)


class ByHand:
    """The exchange with preset arguments, host memory that the device maps, and persistent messages."""

    def __init__(self, device: Any, comm: Any) -> None:
        import pyopencl as cl

        self.context = cl.Context([device])
        self.queue = cl.CommandQueue(self.context)
        flags = cl.mem_flags
        program = cl.Program(self.context, SOURCE).build()
        self.x = cl.Buffer(self.context, flags.READ_WRITE | flags.COPY_HOST_PTR, hostbuf=image(comm.rank))
        self.out = cl.Buffer(self.context, flags.READ_WRITE, 8 * N)
        self.staged = [_page() for _ in range(2)]
        mapped = flags.READ_WRITE | flags.USE_HOST_PTR
        sent, received = (cl.Buffer(self.context, mapped, hostbuf=array) for array in self.staged)
        pack, add = program.pack, program.add
        pack.set_args(self.x, sent)
        add.set_args(self.x, received, self.out)
        from mpi4py import MPI

        requests = [comm.Recv_init(self.staged[1], 1 - comm.rank), comm.Send_init(self.staged[0], 1 - comm.rank)]
        self.step = _step(cl, MPI, self.queue, pack, add, sent, received, requests)

    def result(self) -> np.ndarray[Any, Any]:
        import pyopencl as cl

        out = np.empty(N)
        cl.enqueue_copy(self.queue, out, self.out)
        return out


def _step(cl: Any, MPI: Any, queue: Any, pack: Any, add: Any, sent: Any, received: Any, requests: list[Any]) -> Any:
    launch, map_buffer = cl.enqueue_nd_range_kernel, cl.enqueue_map_buffer
    read, write = cl.map_flags.READ, cl.map_flags.WRITE_INVALIDATE_REGION
    size, shape, dtype = (N,), (N,), np.dtype(np.float64)
    start, wait = MPI.Prequest.Startall, MPI.Request.Waitall

    def step() -> None:
        launch(queue, pack, size, None)
        # The queue is in order: waiting for the second map includes the first
        from_host, _ = map_buffer(queue, received, write, 0, shape, dtype, is_blocking=False)
        to_host, _ = map_buffer(queue, sent, read, 0, shape, dtype, is_blocking=True)
        start(requests)
        wait(requests)
        to_host.base.release(queue)
        from_host.base.release(queue)
        launch(queue, add, size, None)

    return step


def _page() -> np.ndarray[Any, Any]:
    raw = np.zeros(4096 + 8 * N, np.uint8)
    start = -raw.ctypes.data % 4096
    return raw[start : start + 8 * N].view(np.float64)


def work(bundle: str, blocks: int, steps: int) -> None:
    """On each rank: check both against numpy, then time blocks of steps in turn. Rank 0 prints the result."""
    import mpi4py
    import pyopencl as cl
    from mpi4py import MPI

    import aotato

    comm = MPI.COMM_WORLD
    with aotato.load(bundle, comm=comm) as program:
        hand = ByHand(program.device, comm)
        expected = image(1 - comm.rank) * 2 + 1 + image(comm.rank)
        hand.step()
        assert np.array_equal(program()["out"], expected) and np.array_equal(hand.result(), expected)
        ours, theirs = functools.partial(program.perform, "step"), hand.step
        times: dict[str, list[float]] = {"aotato": [], "by_hand": []}
        for block in range(-2, blocks):
            for name, step, queue in (("aotato", ours, program.queue), ("by_hand", theirs, hand.queue)):
                seconds = _block(comm, step, queue, steps)
                if block >= 0:
                    times[name].append(seconds * 1e6)
        found = {
            "device": f"{program.device.name.strip()} ({program.device.platform.name.strip()}"
            f" {program.device.driver_version.strip()})",
            "mpi": MPI.Get_library_version().partition(",")[0].strip(),
            "versions": {"python": platform.python_version(), "numpy": np.__version__,
                         "pyopencl": cl.VERSION_TEXT, "mpi4py": mpi4py.__version__},
        }
    if comm.rank == 0:
        print(json.dumps(found | {"us_per_step": {name: _spread(t) for name, t in times.items()}}))


def _block(comm: Any, step: Callable[[], None], queue: Any, steps: int) -> float:
    """Seconds a step, of the slower rank."""
    from mpi4py import MPI

    queue.finish()
    comm.Barrier()
    begin = time.perf_counter()
    for _ in range(steps):
        step()
    queue.finish()
    return float(comm.allreduce(time.perf_counter() - begin, MPI.MAX)) / steps


def _spread(times: list[float]) -> dict[str, float]:
    low, median, high = statistics.quantiles(times, n=4)
    return {"median": round(median, 2), "quartile_1": round(low, 2), "quartile_3": round(high, 2)}


def main() -> int:
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--blocks", type=int, default=50, help="of each of the two, in turn")
    p.add_argument("--steps", type=int, default=400, help="in a block")
    p.add_argument("--result", type=Path, default=RESULT, help="the file to write")
    p.add_argument("--bundle", help=argparse.SUPPRESS)  # set in the processes that mpiexec starts
    given = p.parse_args()
    if given.bundle:
        work(given.bundle, given.blocks, given.steps)
        return 0
    import aotato
    from aotato.emit import launch

    with tempfile.TemporaryDirectory() as folder:
        bundle = aotato.build(exchange, ranks=RANKS, path=Path(folder) / "exchange.h5", targets="cpu")
        arguments = [__file__, "--bundle", str(bundle), "--blocks", str(given.blocks), "--steps", str(given.steps)]
        command = [launch.mpiexec(), "-n", str(RANKS), sys.executable, *arguments]
        environment = launch.environment(RANKS, os.geteuid() == 0, launch.cores())
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        return done.returncode
    found = json.loads(done.stdout)
    medians = {name: spread["median"] for name, spread in found["us_per_step"].items()}
    found["ratio"] = round(medians["aotato"] / medians["by_hand"], 3)
    found["command"] = f"python benchmarks/step_time.py --blocks {given.blocks} --steps {given.steps}"
    found["machine"] = {"processor": _processor(), "cpus": os.cpu_count()}
    given.result.parent.mkdir(exist_ok=True)
    given.result.write_text(json.dumps(found, indent=1) + "\n")
    print(f"aotato {medians['aotato']} us, by hand {medians['by_hand']} us a step: ratio {found['ratio']}")
    return 0


def _processor() -> str:
    facts = Path("/proc/cpuinfo")
    lines = facts.read_text().splitlines() if facts.exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


if __name__ == "__main__":
    sys.exit(main())
