"""A bundle loaded onto a device: call its entries with arrays, get arrays back."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from aotato.runtime_stub import values as given_values
from aotato.runtime_stub.binding import Binding, Queues
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Bundle, Entry
from aotato.runtime_stub.kernels import Kernels
from aotato.runtime_stub.memory import Memory
from aotato.runtime_stub.schedule import Schedule
from aotato.runtime_stub.world import World

Array = np.ndarray[Any, Any]


class Program:
    """The entries of a bundle on this rank. Use as a context manager, or call `close`.

    `device` is a pyopencl device; `queue` may be given instead of making one. Construction compiles the kernels,
    allocates all memory and is collective; it raises Refusal.
    """

    def __init__(self, bundle: Bundle, world: World, device: Any, target: str, queue: Any = None) -> None:
        import pyopencl as cl

        self.cl, self.bundle, self.target, self.device = cl, bundle, target, device
        self.world = replace(world, comm=world.comm.Dup()) if world.comm is not None else world
        self.context = queue.context if queue is not None else cl.Context([device])
        self.queue = queue if queue is not None else cl.CommandQueue(self.context, device)
        self.schedules = {name: bundle.schedule(name, target, self.world.rank) for name in bundle.entries}
        self.values: dict[str, Array] = {}
        self.current: dict[str, str] = {}  # input path -> "default" or "given"
        self.memory = self.world.together(self._memory)
        self.kernels = Kernels(self.context, device, bundle)
        self.calls: dict[str, Callable[[], None]] = {}
        self.bindings: list[Binding] = []
        self.world.together(self._compile)
        for name in bundle.entries:
            self._bind(name)

    def _memory(self) -> Memory:
        try:
            return Memory(self.context, self.queue, self.schedules.values(), self.bundle)
        except self.cl.MemoryError:
            need = sum(b.nbytes for s in self.schedules.values() for b in s.buffers)
            raise Refusal(
                f"device {self.device.name.strip()!r} has no room for the {need} bytes of this bundle's buffers; "
                "use more ranks or a larger device"
            ) from None

    def _compile(self) -> None:
        for schedule in self.schedules.values():
            for launch in schedule.launches:
                self.kernels.new(launch.kernel)

    def _bind(self, name: str) -> None:
        schedule = self.schedules[name]
        for buffer in schedule.buffers:
            by_value = any(a.by_value and a.buffer == buffer.name for la in schedule.launches for a in la.arguments)
            if buffer.kind == "input" and (by_value or self._is_value(name, buffer.source)):
                self.values.setdefault(buffer.name, np.zeros(1, self._input(name, buffer.source).dtype))
        transfer = self.queue
        if schedule.staging == "copied" and schedule.messages:
            transfer = self.cl.CommandQueue(self.context, self.device)
        binding = Binding(schedule, self.memory, self.kernels, Queues(self.queue, transfer), self.world, self.values)
        namespace: dict[str, Any] = {}
        exec(compile(self.bundle.driver(name, self.target, self.world.rank), f"<driver of {name}>", "exec"), namespace)
        self.calls[name] = namespace["bind"](binding)
        self.bindings.append(binding)

    def _input(self, entry: str, path: str) -> given_values.Wanted:
        return next(wanted for wanted in self.wanted(entry) if wanted.name == path)

    def _is_value(self, entry: str, path: str) -> bool:
        return any(s.name == path and s.by_value for s in self.bundle.entries[entry].inputs)

    def wanted(self, entry: str) -> list[given_values.Wanted]:
        """The inputs of `entry` on this rank, as `values` checks them."""
        rank = self.world.rank
        return [
            given_values.Wanted(s.name, s.shapes[rank], s.dtype, s.has_default(rank))
            for s in self.bundle.entries[entry].inputs
            if s.present[rank]
        ]

    def entry(self, name: str) -> Entry:
        if name not in self.bundle.entries:
            raise Refusal(f"the bundle has no entry {name!r}; it has {', '.join(sorted(self.bundle.entries))}")
        return self.bundle.entries[name]

    def __call__(self, **inputs: Any) -> dict[str, Array]:
        """Call the only entry. Raises Refusal where there are several."""
        names = sorted(self.bundle.entries)
        if len(names) > 1:
            raise Refusal(f"the bundle has entries {', '.join(names)}: use program.call(NAME, ...)")
        return self.call(names[0], **inputs)

    def call(self, entry: str, /, **inputs: Any) -> dict[str, Array]:
        """Run `entry` once and return its outputs as numpy arrays by path; an input not given has its default.

        All ranks must call the same entries in the same order. Raises Refusal for a wrong or missing input.
        """
        self.entry(entry)
        arrays = self.world.together(
            lambda: given_values.check_all(self.wanted(entry), inputs, lambda path: self._default(entry, path))
        )
        for path, array in arrays.items():
            self._set(entry, path, array, path in inputs)
        self.calls[entry]()
        return self.outputs(entry)

    def _default(self, entry: str, path: str) -> Array:
        return self.bundle.default(entry, path, self.world.rank)

    def _set(self, entry: str, path: str, array: Array, given: bool) -> None:
        """Write an input; a default that is in place already is not written again."""
        if not given and self.current.get(path) == "default":
            return
        self.current[path] = "given" if given else "default"
        name = f"input:{path}"
        if name in self.values:
            self.values[name][...] = array
        elif array.nbytes and name in {b.name for b in self.schedules[entry].buffers}:
            self.cl.enqueue_copy(self.queue, self.memory.buffer(entry, name), np.ascontiguousarray(array))

    def outputs(self, entry: str) -> dict[str, Array]:
        """The outputs of the last call of `entry`, copied to the host."""
        schedule = self.schedules[entry]
        return {output.path: self._output(schedule, output) for output in schedule.outputs}

    def _output(self, schedule: Schedule, output: Any) -> Array:
        result = np.empty(output.shape, output.dtype)
        if output.buffer in self.values:
            result[...] = self.values[output.buffer].reshape(output.shape)
        elif output.buffer.startswith("reduce:"):
            host = self.memory.staged(schedule.entry, output.buffer)
            result[...] = host[output.offset : output.offset + result.nbytes].view(output.dtype).reshape(output.shape)
        elif result.nbytes:
            source = self.memory.buffer(schedule.entry, output.buffer)
            self.cl.enqueue_copy(self.queue, result, source, src_offset=output.offset)
        return result

    def selftest(self) -> str:
        """Call every entry with the data that the bundle carries, and compare with the interpreter's results.

        Returns a sentence about what was compared. Raises Refusal naming the first difference.
        """
        compared = 0
        for name, entry in self.bundle.entries.items():
            if entry.selftest:
                compared += self._selftest(name, entry.selftest[self.world.rank])
        if not compared:
            return "this bundle carries no self-test data: its arrays are too large"
        return f"self-test passed: {compared} values within their bounds"

    def _selftest(self, name: str, data: Mapping[str, Mapping[str, str]]) -> int:
        inputs = {path: self.bundle.array(digest) for path, digest in data["inputs"].items()}
        found = self.call(name, **inputs)
        self.world.agree(self._difference(name, data, found))
        return sum(array.size for array in found.values())

    def _difference(
        self, name: str, data: Mapping[str, Mapping[str, str]], found: Mapping[str, Array]
    ) -> Refusal | None:
        for path, array in found.items():
            expected = self.bundle.array(data["outputs"][path])
            bound = self.bundle.array(data["bounds"][path])
            with np.errstate(invalid="ignore", over="ignore"):
                right = np.abs(array.astype(_wide(array)) - expected.astype(_wide(array))) <= bound
            right |= (array == expected) | ((array != array) & (expected != expected)) | np.isinf(bound)
            if not np.all(right):
                at = tuple(int(i) for i in np.argwhere(~np.atleast_1d(right))[0])
                return Refusal(
                    f"self-test of entry {name!r}: {path}{list(at)} is {np.atleast_1d(array)[at]}, "
                    f"expected {np.atleast_1d(expected)[at]}; the device or its compiler computes wrongly"
                )
        return None

    def close(self) -> None:
        self.queue.finish()
        for binding in self.bindings:
            binding.free()
        self.bindings.clear()
        if self.world.comm is not None:
            self.world.comm.Free()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _wide(array: Array) -> str:
    return "complex128" if array.dtype.kind == "c" else "float64"
