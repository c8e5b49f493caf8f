"""Run a loopy kernel with loopy's own OpenCL target on this machine, and bound what another device may give.

Nothing is known of the kernel, so the bound is measured: CALL_EPS eps of the largest result for its own rounding, and
for errors of its operands SAFETY times the largest change of a result element that moving all operands by their
bounds, in MOVES directions, makes.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from aotato.frontend.opaque import Argument, Opaque
from aotato.frontend.values import Value, eps, is_exact, wide

CALL_EPS = 64
SAFETY = 8
MOVES = 4

Array = np.ndarray[Any, Any]


class CallError(RuntimeError):
    """loopy cannot write or run the kernel."""


class NoDevice(RuntimeError):
    """This machine has no OpenCL device to run a loopy kernel on."""


def call(kernel: Opaque, operands: Sequence[Value]) -> dict[str, Value]:
    """The results by name. Raises NoDevice and CallError."""
    values = run(kernel, [operand.value for operand in operands])
    if not all(map(_movable, operands)):
        return {name: Value(value, np.full(value.shape, np.inf)) for name, value in values.items()}
    exact = all(map(is_exact, operands))
    moved = [run(kernel, _moved(operands, seed)) for seed in range(0 if exact else MOVES)]
    return {name: Value(value, _bound(value, [m[name] for m in moved])) for name, value in values.items()}


def run(kernel: Opaque, arrays: Sequence[Array]) -> dict[str, Array]:
    """Results by name for `arrays`, one for each input."""
    if not any(_count(result) for result in kernel.results):
        return {result.name: np.zeros(result.shape, result.dtype) for result in kernel.results}
    given = {argument.name: _given(array) for argument, array in zip(kernel.inputs, arrays, strict=True)}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # loopy's remarks are for the kernel's author, in the author's own session
            context, queue = _device()
            _, results = _executor(kernel, context)(queue, **given, out_host=True)
    except NoDevice:
        raise
    except Exception as error:
        raise CallError(f"loopy kernel {kernel.name!r} does not run: {type(error).__name__}: {error}") from error
    return {result.name: np.asarray(results[result.name]).reshape(result.shape) for result in kernel.results}


@functools.lru_cache(maxsize=64)
def _executor(kernel: Opaque, context: Any) -> Any:
    import loopy as lp

    return lp.set_options(kernel.unit, return_dict=True).executor(context)


@functools.lru_cache(maxsize=1)
def _device() -> tuple[Any, Any]:
    """Context and queue of a CPU if there is one: a build should leave accelerators to those who run."""
    import pyopencl as cl

    try:
        devices = [device for platform in cl.get_platforms() for device in platform.get_devices()]
    except cl.Error:
        devices = []
    if not devices:
        raise NoDevice("the program calls a loopy kernel, which needs an OpenCL device to run, and there is none: "
                       "install one, for instance with `pip install '.[local]'`")
    first = min(devices, key=lambda device: not device.type & cl.device_type.CPU)
    context = cl.Context([first])
    return context, cl.CommandQueue(context)


def _count(argument: Argument) -> int:
    return int(np.prod(argument.shape, dtype=np.int64))


def _given(array: Array) -> Any:
    """loopy takes scalars as numpy scalars, or as arrays if the kernel wants 0-dimensional ones: both are this."""
    return np.ascontiguousarray(array).reshape(array.shape)


def _movable(operand: Value) -> bool:
    inexact = operand.value.dtype.kind in "fc"
    return bool(np.isfinite(operand.bound).all()) and (inexact or is_exact(operand))


def _moved(operands: Sequence[Value], seed: int) -> list[Array]:
    """All operands moved by their bounds: up, down, and in two random patterns."""
    rng = np.random.default_rng(seed)
    moved = []
    for operand in operands:
        sign = rng.choice((-1.0, 1.0), operand.value.shape) if seed > 1 else (1.0, -1.0)[seed]
        moved.append(np.asarray(operand.value + sign * operand.bound).astype(operand.value.dtype))
    return moved


def _bound(value: Array, moved: Sequence[Array]) -> Array:
    """Infinite where a moved operand makes a NaN or infinity of a number, or the other way round."""
    with np.errstate(all="ignore"):
        finite = np.isfinite(value)
        largest = np.abs(wide(value[finite])).max(initial=0.0)
        bound = np.full(value.shape, CALL_EPS * eps(value.dtype) * largest)
        for other in moved:
            same = (value == other) | ((value != value) & (other != other))
            change = np.where(same, 0.0, SAFETY * np.abs(wide(other) - wide(value)))
            bound += np.where(np.isfinite(change), change, np.inf)
        return np.where(finite | np.isinf(bound), bound, 0.0)


