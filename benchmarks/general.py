"""Time general kernels: `python benchmarks/general.py --target gpu`.

Elementwise chains, sums over either axis and over all elements, a 5-point stencil by rolls, a random gather, and a
matrix product, each in a bundle of its own with all arrays on the device. Prints JSON: median, seconds; the floor,
which is the compulsory bytes over the bandwidth of a copy kernel measured in the same run; and the share of it.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import importlib
import importlib.metadata
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytato as pt

import aotato
from aotato.emit import target as targets
from aotato.frontend import take
from aotato.runtime_stub import device as devices
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report

Array = np.ndarray[Any, Any]

COPY = """
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
kernel void copy(global const double *restrict x, global double *restrict y)
{ size_t i = get_global_id(0); y[i] = x[i]; }
"""


@dataclasses.dataclass(frozen=True)
class Case:
    """`make` of placeholders is what is timed, `numpy` of arrays what must come out."""

    make: Callable[..., Any]
    numpy: Callable[..., Any]
    inputs: dict[str, Array]
    flops: int = 0  # where they, not bytes, are the measure


def cases(chosen: argparse.Namespace) -> dict[str, Case]:
    rng = np.random.default_rng(0)
    rows, columns = chosen.rows, chosen.columns
    x, y, z = (rng.random((rows, columns)) for _ in range(3))
    m = chosen.product
    a, b = rng.random((m, m)), rng.random((m, m))
    places = rng.integers(0, chosen.gather, chosen.gather, np.int32)

    def chain(x: Any, y: Any, z: Any) -> Any:
        return (x + y) * z - 0.5 * x / (1.0 + y * y)

    def stencil(x: Any) -> Any:
        roll = np.roll if isinstance(x, np.ndarray) else pt.roll
        return roll(x, 1, 0) + roll(x, -1, 0) + roll(x, 1, 1) + roll(x, -1, 1) - 4.0 * x

    def single(*arrays: Array) -> dict[str, Array]:
        return {name: array.astype("float32") for name, array in zip("xyz", arrays, strict=False)}

    wide, tall = x.reshape(-1)[: 1000 * (x.size // 1000)].reshape(1000, -1), x.reshape(-1)[: x.size // 3 * 3]
    return {
        "chain": Case(chain, chain, {"x": x, "y": y, "z": z}),
        "chain_float32": Case(chain, chain, single(x, y, z)),
        "sum_axis_0": Case(lambda x: pt.sum(x, axis=0), lambda x: x.sum(0), {"x": x}),
        "sum_axis_1": Case(lambda x: pt.sum(x, axis=1), lambda x: x.sum(1), {"x": x}),
        "sum_axis_0_of_1000": Case(lambda x: pt.sum(x, axis=0), lambda x: x.sum(0), {"x": wide}),
        "sum_axis_1_of_1000": Case(lambda x: pt.sum(x, axis=1), lambda x: x.sum(1), {"x": wide.reshape(-1, 1000)}),
        "sum_axis_0_by_3": Case(lambda x: pt.sum(x, axis=0), lambda x: x.sum(0), {"x": tall.reshape(-1, 3)}),
        "sum_axis_1_by_100": Case(lambda x: pt.sum(x, axis=1), lambda x: x.sum(1), {"x": wide.reshape(-1, 100)}),
        "sum": Case(pt.sum, np.sum, {"x": x.reshape(-1)}),
        "sum_of_matrix": Case(pt.sum, np.sum, {"x": x}),
        "max_float32": Case(pt.amax, np.max, single(x.reshape(-1))),
        "stencil": Case(stencil, stencil, {"x": x}),
        "transpose": Case(lambda x: x.T + 0.0, lambda x: x.T + 0.0, {"x": x}),
        "gather": Case(lambda x, i: take(x, i), lambda x, i: x[i], {"x": rng.random(chosen.gather), "i": places}),
        "product": Case(lambda x, y: x @ y, lambda x, y: x @ y, {"x": a, "y": b}, 2 * m**3),
        "product_float32": Case(lambda x, y: x @ y, lambda x, y: x @ y, single(a, b), 2 * m**3),
    }


def measured(case: Case, chosen: argparse.Namespace, settings: dict[str, int]) -> dict[str, Any]:
    """Build, check and time one case, with `settings` instead of what the mapping has."""
    with changed(chosen.target, settings), tempfile.TemporaryDirectory() as folder:
        arrays = [pt.make_placeholder(name=name, shape=array.shape, dtype=array.dtype.name)
                  for name, array in case.inputs.items()]
        begin = time.monotonic()
        path = aotato.build({"out": case.make(*arrays)}, path=Path(folder, "case.h5"), targets=chosen.target,
                            contract=chosen.contract)
        build = time.monotonic() - begin
        with Bundle.open(path) as bundle:
            row = report(bundle)["entries"]["step"]["per_rank"][0]
        with aotato.load(path, target=chosen.target, device=chosen.device) as program:
            result = program.call("step", **case.inputs)["out"]
            error = _error(result, case) if chosen.check else None
            seconds = timed(lambda: program.perform("step"), program.queue, chosen)
    moved = sum(k["bytes_read"] + k["bytes_written"] for k in row["kernels"])
    return {"seconds": seconds, "launches": row["launches"], "bytes": moved, "build_s": round(build, 2),
            "local_bytes": [k["local_bytes"] for k in row["kernels"]], "relative_error": error}


def _error(found: Array, case: Case) -> float:
    """The largest difference from numpy, over the largest element. Raises AssertionError if it is no rounding."""
    expected = np.asarray(case.numpy(*case.inputs.values()))
    error = float(np.max(np.abs(found - expected)) / np.max(np.abs(expected)))
    # numpy adds along axis 0 in sequence: its own error grows with the square root of the number of terms, or worse
    terms = max(array.size for array in case.inputs.values())
    assert error < 8 * np.finfo(expected.dtype).eps * terms**0.5, f"off by {error}"
    return error


def timed(call: Callable[[], Any], queue: Any, chosen: argparse.Namespace) -> float:
    """Median seconds of a call over blocks of calls, after one that does not count."""
    times = []
    calls = 1
    for block in range(-1, chosen.blocks):
        queue.finish()
        begin = time.monotonic()
        for _ in range(calls):
            call()
        queue.finish()
        seconds = (time.monotonic() - begin) / calls
        if block >= 0:
            times.append(seconds)
        else:
            calls = max(1, min(chosen.calls, int(chosen.longest / max(seconds, 1e-9))))
    return statistics.median(times)


def copied(chosen: argparse.Namespace) -> tuple[float, dict[str, Any]]:
    """Bytes a second, read and written, of a kernel that copies the largest array, and the device."""
    import pyopencl as cl

    world = devices.World.of(None)
    device = devices.pick(world, chosen.device, chosen.target)
    context = cl.Context([device])
    queue = cl.CommandQueue(context)
    count = chosen.rows * chosen.columns // 256 * 256 or 256
    data = np.random.default_rng(0).random(count)
    source = cl.Buffer(context, cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR, hostbuf=data)
    to = cl.Buffer(context, cl.mem_flags.WRITE_ONLY, 8 * count)
    kernel = cl.Program(context, COPY).build().copy
    kernel.set_args(source, to)
    seconds = timed(lambda: cl.enqueue_nd_range_kernel(queue, kernel, (count,), (256,)), queue, chosen)
    facts = devices.facts(device)
    return 16 * count / seconds, {"name": facts.name, "platform": facts.platform, "driver": facts.driver}


def in_numpy(case: Case, chosen: argparse.Namespace) -> float:
    times = []
    for _ in range(max(1, chosen.blocks // 2)):
        begin = time.monotonic()
        case.numpy(*case.inputs.values())
        times.append(time.monotonic() - begin)
    return statistics.median(times)


def variants(texts: list[str], case: str) -> dict[str, dict[str, int]]:
    """The settings to time a case with, by their text: none, and those of `texts` that are for the case.

    `sum,product:group_size=64,matrix.ROWS=8` is for two cases; without a colon, for all. A name is a field of the
    target or a constant of a module of `aotato.emit`.
    """
    found: dict[str, dict[str, int]] = {"": {}}
    for text in texts:
        before, colon, rest = text.partition(":")
        if not colon or case in before.split(","):
            assigned = rest if colon else text
            found[assigned] = {name: int(value) for name, _, value in (a.partition("=") for a in assigned.split(","))}
    return found


@contextlib.contextmanager
def changed(target: str, settings: dict[str, int]) -> Iterator[None]:
    known = targets.TARGETS[target]
    constants = [(importlib.import_module(f"aotato.emit.{module}"), constant, value)
                 for name, value in settings.items() for module, dot, constant in [name.partition(".")] if dot]
    before = [getattr(module, constant) for module, constant, _ in constants]
    fields = {name: value for name, value in settings.items() if "." not in name}
    try:
        for module, constant, value in constants:
            setattr(module, constant, value)
        targets.TARGETS[target] = dataclasses.replace(known, **fields)
        yield
    finally:
        targets.TARGETS[target] = known
        for (module, constant, _), value in zip(constants, before, strict=True):
            setattr(module, constant, value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="cpu")
    parser.add_argument("--device", help="as aotato-run's")
    parser.add_argument("--rows", type=int, default=2000)
    parser.add_argument("--columns", type=int, default=2000)
    parser.add_argument("--product", type=int, default=512, help="rows and columns of the factors of the product")
    parser.add_argument("--gather", type=int, default=1 << 20, help="elements gathered from as many")
    parser.add_argument("--only", default="", help="comma-separated cases; all without")
    parser.add_argument("--variants", action="append", default=[], metavar="[CASE,...:]NAME=N,...",
                        help="time cases with other sizes, too: `product:matrix.ROWS=8`; may be repeated")
    parser.add_argument("--contract", action="store_true", help="let the device fuse multiplications and additions")
    parser.add_argument("--numpy", action="store_true", help="time numpy, too")
    parser.add_argument("--no-check", dest="check", action="store_false", help="do not compare with numpy")
    parser.add_argument("--calls", type=int, default=20, help="most calls in a timed block")
    parser.add_argument("--longest", type=float, default=0.5, help="seconds of a timed block, about")
    parser.add_argument("--blocks", type=int, default=5, help="timed blocks; the median counts")
    parser.add_argument("--output", type=Path, help="write the JSON here instead of to stdout")
    chosen = parser.parse_args()
    bandwidth, device = copied(chosen)
    found: dict[str, Any] = {
        "command": " ".join(["python", *sys.argv]), "device": device, "copy_bytes_per_second": round(bandwidth),
        "versions": {p: importlib.metadata.version(p) for p in ("aotato", "pytato", "loopy", "numpy", "pyopencl")}
        | {"python": platform.python_version()},
        "cases": {},
    }
    for name, case in cases(chosen).items():
        if chosen.only and name not in chosen.only.split(","):
            continue
        for variant, settings in variants(chosen.variants, name).items():
            row = measured(case, chosen, settings)
            if case.flops:
                row["GFLOP/s"] = round(case.flops / row["seconds"] / 1e9, 1)
            row["floor_seconds"] = row["bytes"] / bandwidth
            row["of_copy_bandwidth"] = round(row["bytes"] / row["seconds"] / bandwidth, 3)
            if chosen.numpy and not variant:
                row["numpy_seconds"] = in_numpy(case, chosen)
            key = f"{name} {variant}".strip()
            found["cases"][key] = row
            print(f"{key}: {1e3 * row['seconds']:.3f} ms, {row['of_copy_bandwidth']} of copy bandwidth, built in "
                  f"{row['build_s']} s", file=sys.stderr)
    text = json.dumps(found, indent=1) + "\n"
    if chosen.output:
        chosen.output.write_text(text)
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
