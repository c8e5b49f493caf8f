"""Inputs that are on the device already: pyopencl arrays, copied there without passing through the host."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.values import Wanted


def is_on_device(value: Any) -> bool:
    """Whether it is a pyopencl array, told by what is used of one."""
    return hasattr(value, "base_data") and hasattr(value, "context")


def split(context: Any, signature: Iterable[Wanted], given: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """`given` as (what is on the host, what is on the device). Raises Refusal for a device array that does not fit.

    Arrays that are not contiguous, and those whose name is unknown, count as host arrays, to be checked there.
    """
    wanted = {one.name: one for one in signature}
    host: dict[str, Any] = {}
    device: dict[str, Any] = {}
    for name, value in given.items():
        if not is_on_device(value):
            host[name] = value
            continue
        if value.context != context:
            raise Refusal(f"input {name!r} is a device array of another OpenCL context: make it with the queue that "
                          "was given to aotato.load(..., queue=queue), or pass a numpy array")
        fits = name in wanted and value.shape == wanted[name].shape and value.dtype == np.dtype(wanted[name].dtype)
        if fits and value.flags.c_contiguous:
            device[name] = value
        else:
            host[name] = on_host(value)
    return host, device


def on_host(value: Any) -> np.ndarray[Any, Any]:
    """All memory from the first element to the last, and the array in it: pyopencl fetches contiguous ones only."""
    import pyopencl as cl

    if not value.size:
        return np.zeros(value.shape, value.dtype)
    reach = [(extent - 1) * stride for extent, stride in zip(value.shape, value.strides, strict=True)]
    before = -sum(step for step in reach if step < 0)
    memory = np.empty(before + sum(step for step in reach if step > 0) + value.dtype.itemsize, np.uint8)
    value.finish()
    queue = value.queue or cl.CommandQueue(value.context)
    cl.enqueue_copy(queue, memory, value.base_data, src_offset=value.offset - before)
    return np.ndarray(value.shape, value.dtype, memory, before, value.strides)


def copy(queue: Any, buffer: Any, value: Any) -> None:
    """Copy a contiguous device array into `buffer`, after all that was done to it."""
    import pyopencl as cl

    value.finish()
    cl.enqueue_copy(queue, buffer, value.base_data, byte_count=value.nbytes, src_offset=value.offset)
