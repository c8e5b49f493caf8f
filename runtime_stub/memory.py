"""Device memory of a rank: one buffer per name, one arena for temporaries, host memory beside what travels."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Any

import numpy as np

from aotato.runtime_stub.schedule import Buffer, Schedule

Array = np.ndarray[Any, Any]
PAGE = 4096  # bytes; host memory that a device maps starts at a page

_STAGED = ("send", "recv", "reduce", "joint")


class Memory:
    """Buffers of all entries of a program on one rank. Inputs and constants of one name are one buffer.

    `host[key]` is the host's view of a staged buffer: the same memory with staging "mapped", pinned memory with
    "copied". Messages belong to their entry; everything else is shared, since entries run one after another.
    """

    def __init__(self, context: Any, queue: Any, schedules: Iterable[Schedule], bundle: Any) -> None:
        import pyopencl as cl

        self.cl, self.context, self.queue = cl, context, queue
        self.buffers: dict[tuple[str, str], Any] = {}
        self.host: dict[tuple[str, str], Array] = {}
        self.offsets: dict[tuple[str, str], int] = {}
        self.allocated = 0
        self._pinned: list[Any] = []  # buffers and how they are mapped
        self._parts: list[Any] = []  # of the arena, in the order in which they were made
        # At the latest before the interpreter ends: a driver may be gone when what is left is collected
        self.release = weakref.finalize(self, _release, queue, self._pinned, self._parts)
        schedules = tuple(schedules)
        self.arena = self.allocate(max((s.arena_nbytes for s in schedules), default=0))
        for schedule in schedules:
            for buffer in sorted(schedule.buffers, key=lambda b: bool(b.inside)):
                self._make(schedule, buffer, bundle)

    def key(self, entry: str, name: str) -> tuple[str, str]:
        shared = name.partition(":")[0] in ("input", "const")
        return ("" if shared else entry, name)

    def buffer(self, entry: str, name: str) -> Any:
        return self.buffers[self.key(entry, name)]

    def staged(self, entry: str, name: str) -> Array:
        return self.host[self.key(entry, name)]

    def offset(self, entry: str, name: str) -> int:
        """The first byte of a message in its buffer."""
        return self.offsets.get(self.key(entry, name), 0)

    def allocate(self, nbytes: int) -> Any:
        """Device memory; OpenCL has no buffers of no bytes."""
        self.allocated += max(1, nbytes)
        return self.cl.Buffer(self.context, self.cl.mem_flags.READ_WRITE, max(1, nbytes))

    def clear(self) -> None:
        """Give all memory back, parts of the arena before the arena."""
        self.release()
        self.host.clear()
        self.buffers.clear()
        del self.arena

    def _make(self, schedule: Schedule, buffer: Buffer, bundle: Any) -> None:
        key = self.key(schedule.entry, buffer.name)
        if key in self.buffers:
            return
        if buffer.kind == "temporary":
            self.buffers[key] = self.arena.get_sub_region(buffer.offset, max(1, buffer.nbytes))
            self._parts.append(self.buffers[key])
        elif buffer.inside:
            whole = self.key(schedule.entry, buffer.inside)
            self.buffers[key], self.offsets[key] = self.buffers[whole], buffer.offset
            self.host[key] = self.host[whole][buffer.offset : buffer.offset + buffer.nbytes]
        elif buffer.kind in _STAGED:
            self._make_staged(key, buffer.nbytes, schedule.staging)
        else:
            self.buffers[key] = self.allocate(buffer.nbytes)
            if buffer.kind == "const" and buffer.nbytes:
                data = np.ascontiguousarray(bundle.array(buffer.source))
                self.cl.enqueue_copy(self.queue, self.buffers[key], data)

    def _make_staged(self, key: tuple[str, str], nbytes: int, staging: str) -> None:
        flags = self.cl.mem_flags
        if staging == "mapped":
            host = _page_aligned(max(1, nbytes))
            self.allocated += max(1, nbytes)
            self.buffers[key] = self.cl.Buffer(self.context, flags.READ_WRITE | flags.USE_HOST_PTR, hostbuf=host)
        else:
            self.buffers[key] = self.allocate(nbytes)
            pinned = self.cl.Buffer(self.context, flags.READ_WRITE | flags.ALLOC_HOST_PTR, max(1, nbytes))
            access: Any = self.cl.map_flags.READ | self.cl.map_flags.WRITE
            host, _ = self.cl.enqueue_map_buffer(self.queue, pinned, access, 0, (max(1, nbytes),), np.dtype("uint8"))
            self._pinned.append((pinned, host.base))
        self.host[key] = host[:nbytes]


def _release(queue: Any, pinned: list[Any], parts: list[Any]) -> None:
    """The last part first: NVIDIA's driver (580) crashes where a part goes before one that was made in it later."""
    for _, mapped in pinned:
        mapped.release(queue)
    queue.finish()
    pinned.clear()
    while parts:
        parts.pop().release()


def _page_aligned(nbytes: int) -> Array:
    raw = np.zeros(nbytes + PAGE, np.uint8)
    start = -raw.ctypes.data % PAGE
    return raw[start : start + nbytes]
