"""The inputs of a program's entries on this rank: what they must be, which are in place, and how they are written."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from aotato.runtime_stub import device_arrays
from aotato.runtime_stub import values as given_values
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.schedule import Schedule
from aotato.runtime_stub.state import Node, State

Array = np.ndarray[Any, Any]


class Inputs:
    """Inputs lie on the device, in the buffers of `machine`'s nodes, or on the host: 0-dimensional ones by value.

    `values`: the latter by buffer name, arrays of one number. `initialised`: the carried inputs are a state.
    """

    machine: State  # set once all buffers are made

    def __init__(self, bundle: Bundle, rank: int, schedules: Mapping[str, Schedule], queue: Any) -> None:
        import pyopencl as cl

        self.cl, self.bundle, self.rank, self.queue = cl, bundle, rank, queue
        self.values: dict[str, Array] = {}
        self.current: dict[str, str | None] = {}  # input path -> "default", "given", or not yet written
        self.initialised = False
        for name, schedule in schedules.items():
            self._on_host(name, schedule)

    def _on_host(self, name: str, schedule: Schedule) -> None:
        passed = {a.buffer for launch in schedule.launches for a in launch.arguments if a.by_value}
        by_value = {s.name for s in self.bundle.entries[name].inputs if s.by_value}
        wanted = {one.name: one for one in self.wanted(name)}
        for buffer in schedule.buffers:
            if buffer.kind == "input" and (buffer.name in passed or buffer.source in by_value):
                self.values.setdefault(buffer.name, np.zeros(1, wanted[buffer.source].dtype))

    def wanted(self, entry: str) -> list[given_values.Wanted]:
        """The inputs of `entry` on this rank, as `values` checks them."""
        return [
            given_values.Wanted(s.name, s.shapes[self.rank], s.dtype, s.has_default(self.rank))
            for s in self.bundle.entries[entry].inputs
            if s.present[self.rank]
        ]

    def carried(self) -> list[str]:
        """The inputs that entries feed back."""
        return sorted({carry.path for rows in self.machine.carries.values() for carry in rows})

    def given(self, entry: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
        """All inputs of a call: checked host arrays, and device arrays as they are."""
        # What is in place, as the state that init has made, needs no default
        wanted = [replace(one, has_default=one.has_default or not self._stale(one.name)) for one in self.wanted(entry)]
        host, device = device_arrays.split(self.queue.context, wanted, inputs)
        rest = [one for one in wanted if one.name not in device]
        return {**given_values.check_all(rest, host, lambda path: self._missing(entry, path)), **device}

    def kept(self, inputs: Collection[str]) -> dict[str, tuple[Array, str | None]]:
        """Carried values on the host that a call overwrites, for `put_back`: they belong to the plan's state."""
        carried = [path for path in self.carried() if path in inputs and f"input:{path}" in self.values]
        return {path: (self.values[f"input:{path}"].copy(), self.current.get(path)) for path in carried}

    def put_back(self, kept: Mapping[str, tuple[Array, str | None]]) -> None:
        for path, (value, standing) in kept.items():
            self.values[f"input:{path}"][...] = value
            self.current[path] = standing

    def placed(self, arrays: Mapping[str, Any], given: Collection[str]) -> Node:
        """Write inputs. Carried ones that are given go into spare buffers: the state stays as it is."""
        carried = self.carried()
        beside = [path for path in arrays if path in carried and path in given and f"input:{path}" not in self.values]
        node = self.machine.aside(beside)
        for path, array in arrays.items():
            if path in beside:
                self._upload(node.holds[path], array)
            elif path in given or self._stale(path):
                self._put(path, array, path in given)
        return node

    def put_scalar(self, path: str, value: float) -> None:
        """Set a 0-dimensional input that is passed by value; a rank that has none of that path passes it over."""
        if f"input:{path}" in self.values:
            self.values[f"input:{path}"][0] = value

    def held(self, path: str) -> Array:
        """A copy of an input as it is now."""
        wanted = next(one for name in self.bundle.entries for one in self.wanted(name) if one.name == path)
        result = np.empty(wanted.shape, wanted.dtype)
        if f"input:{path}" in self.values:
            result[...] = self.values[f"input:{path}"].reshape(wanted.shape)
        elif result.nbytes:
            self.cl.enqueue_copy(self.queue, result, self.machine.node.holds[path])
        return result

    def state(self, arrays: Mapping[str, Any]) -> dict[str, Array]:
        """All carried inputs, checked: of `arrays`, and the rest as they are. Raises Refusal."""
        carried = self.carried()
        wanted = {w.name: w for name in self.bundle.entries for w in self.wanted(name) if w.name in carried}
        return given_values.check_all([replace(w, has_default=True) for w in wanted.values()], arrays, self.held)

    def set_state(self, arrays: Mapping[str, Array]) -> None:
        for path, array in arrays.items():
            self._put(path, array, False)
        self.initialised = True

    def start(self, given: Mapping[str, Array]) -> None:
        """Write all inputs of all entries before a loop: those given, else their defaults. Raises Refusal."""
        made = self.carried()
        for name in self.bundle.entries:
            wanted = [w for w in self.wanted(name) if w.name in given or w.has_default or w.name not in made]
            wanted = [w for w in wanted if f"input:{w.name}" not in self.values or w.has_default or w.name in given]
            mine = {w.name: given[w.name] for w in wanted if w.name in given}
            arrays = given_values.check_all(wanted, mine, functools.partial(self._default, name))
            for path, array in arrays.items():
                if not (self.initialised and path in made):
                    self._put(path, array, path in given)

    def _missing(self, entry: str, path: str) -> Array:
        """The default of an input that must be written now; an empty array for one that is in place."""
        return self._default(entry, path) if self._stale(path) else np.empty(0)

    def _stale(self, path: str) -> bool:
        """Whether an input must be written: not a carried one once there is a state, as init or steps have made it."""
        in_state = self.initialised and path in self.carried()
        return self.current.get(path) in (None, "given") and not in_state

    def _default(self, entry: str, path: str) -> Array:
        return self.bundle.default(entry, path, self.rank)

    def _put(self, path: str, array: Any, given: bool) -> None:
        name = f"input:{path}"
        self.current[path] = "given" if given else "default"
        if name in self.values:
            self.values[name][...] = array.get() if device_arrays.is_on_device(array) else array
        elif path in self.machine.node.holds:
            self._upload(self.machine.node.holds[path], array)

    def _upload(self, buffer: Any, array: Any) -> None:
        if not array.nbytes:
            return
        if device_arrays.is_on_device(array):
            device_arrays.copy(self.queue, buffer, array)
        else:
            self.cl.enqueue_copy(self.queue, buffer, np.ascontiguousarray(array))
