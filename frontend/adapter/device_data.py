"""Constants that lie on a device: pyopencl arrays, of any memory order and with any strides, copied to the host."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def on_host(data: Any) -> Array:
    """`data` as a numpy array; what is none on a device is taken as it is."""
    return _copied(data) if hasattr(data, "base_data") and hasattr(data, "context") else np.asarray(data)


def _copied(data: Any) -> Array:
    """All memory from the first element to the last, and the array in it: pyopencl fetches contiguous ones only."""
    import pyopencl as cl

    if not data.size:
        return np.zeros(data.shape, data.dtype)
    reach = [(extent - 1) * stride for extent, stride in zip(data.shape, data.strides, strict=True)]
    before = -sum(step for step in reach if step < 0)
    memory = np.empty(before + sum(step for step in reach if step > 0) + data.dtype.itemsize, np.uint8)
    data.finish()
    queue = data.queue or cl.CommandQueue(data.context)
    cl.enqueue_copy(queue, memory, data.base_data, src_offset=data.offset - before)
    return np.ndarray(data.shape, data.dtype, memory, before, data.strides)
