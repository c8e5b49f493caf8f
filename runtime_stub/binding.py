"""What a driver's steps do on a real device and network: the runtime's side of `schedule.OPS`.

Every method takes the number that a step names and returns a function without arguments that performs the step; all
objects it needs are made here, so that a call allocates nothing. Which waits each step includes is what
`simulate` proves schedules with:

- post: the host waits for the commands that read the buffer in the last call, then starts the receive
- launch: the compute queue waits for the last upload of what it reads
- fetch, send: the copy down (or map) follows its producers; the host waits for it before the send starts
- put: the upload follows the last launch that reads the buffer
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from aotato.runtime_stub.kernels import Kernels
from aotato.runtime_stub.memory import Memory
from aotato.runtime_stub.schedule import Argument, Launch, Schedule, members
from aotato.runtime_stub.world import World, import_mpi

Step = Callable[[], Any]
STORAGE = {"bool": "uint8", "float16": "uint16"}  # how kernels see what OpenCL has no scalar for


@dataclass
class Queues:
    """`transfer` is a second in-order queue for copies of "copied" staging; the same queue otherwise."""

    compute: Any
    transfer: Any


@dataclass
class Events:
    """The last command on each buffer, by buffer name: what a later step has to wait for."""

    written: dict[str, Any] = field(default_factory=dict)  # last launch that wrote it
    read: dict[str, Any] = field(default_factory=dict)  # last launch that read it
    moved: dict[str, Any] = field(default_factory=dict)  # last upload


class Binding:
    """One entry on one rank, bound to device, memory and communicator."""

    def __init__(
        self, schedule: Schedule, memory: Memory, kernels: Kernels, queues: Queues, world: World, values: dict[str, Any]
    ) -> None:
        import pyopencl as cl

        self.cl, self.schedule, self.memory, self.kernels = cl, schedule, memory, kernels
        self.queues, self.world = queues, world
        self.values = values  # buffer name -> host array of one input that is passed by value
        self.mapped = schedule.staging == "mapped"
        self.events = Events()
        self.requests: dict[int, Any] = {}
        self.maps: dict[str, Any] = {}
        self.resolve: Callable[[str], Any] = lambda name: memory.buffer(schedule.entry, name)

    def at(self, resolve: Callable[[str], Any]) -> Binding:
        """This binding with inputs and outputs in the buffers that `resolve` gives; messages stay where they are."""
        other = copy.copy(self)
        other.resolve = resolve
        return other

    def _buffer(self, name: str) -> Any:
        return self.memory.buffer(self.schedule.entry, name)

    def _host(self, name: str) -> Any:
        return self.memory.staged(self.schedule.entry, name)

    # launches

    def launch(self, index: int) -> Step:
        row = self.schedule.launches[index]
        kernel = self.kernels.new(row.kernel)
        setters = []
        for position, argument in enumerate(row.arguments):
            if argument.by_value:
                setters.append(self._setter(kernel, position, argument))
            else:
                kernel.set_arg(position, self.resolve(argument.buffer))
        for position, (dtype, value) in enumerate(row.parameters, len(row.arguments)):
            kernel.set_arg(position, np.dtype(dtype).type(value))
        return self._enqueue(row, kernel, tuple(setters))

    def _setter(self, kernel: Any, position: int, argument: Argument) -> Step:
        """Pass the value anew at every launch: the host array changes in place."""
        dtype = np.dtype(STORAGE.get(argument.dtype, argument.dtype))
        if argument.buffer in self.values:
            source = self.values[argument.buffer].reshape(-1).view(dtype)
        else:
            source = self._host(argument.buffer).view(dtype)
        cell = source[argument.element : argument.element + 1]
        return lambda: kernel.set_arg(position, cell)

    def _enqueue(self, row: Launch, kernel: Any, setters: tuple[Step, ...]) -> Step:
        queue, events = self.queues.compute, self.events
        enqueue, whole, local = self.cl.enqueue_nd_range_kernel, row.global_size, row.local_size
        staged = ("recv", "reduce", "send")
        inside = members(self.schedule)
        kinds = {b.name: b.kind for b in self.schedule.buffers}
        # Mapped buffers are awaited by mapping them on this queue, which is in order
        names = [
            (name, a.mode)
            for a in row.arguments
            for name in ([b.name for b in inside[a.buffer]] if a.buffer in inside else [a.buffer])
            if not (self.mapped or a.by_value or a.mode == "n") and kinds[name] in staged
        ]
        reads = tuple(name for name, mode in names if mode == "r")
        writes = tuple(name for name, mode in names if mode == "w")
        if not names and not setters:
            return lambda: enqueue(queue, kernel, whole, local)
        touched = tuple(dict.fromkeys(reads + writes))

        def step() -> None:
            for setter in setters:
                setter()
            waits = [events.moved[name] for name in touched if name in events.moved]
            event = enqueue(queue, kernel, whole, local, wait_for=waits or None)
            for name in reads:
                events.read[name] = event
            for name in writes:
                events.written[name] = event

        return step

    # messages

    def _request(self, index: int) -> Any:
        """A persistent request on the message's host memory, one for all bindings of the entry."""
        if index in self.requests:
            return self.requests[index]
        message = self.schedule.messages[index]
        start = self.world.comm.Send_init if message.outgoing else self.world.comm.Recv_init
        mpi = import_mpi()
        self.requests[index] = start([self._host(message.buffer), mpi.BYTE], message.peer, message.tag)
        return self.requests[index]

    def _map(self, name: str, flags: Any) -> Step:
        """A function that lets the host have a mapped buffer once all commands before have ended, without waiting."""
        nbytes = self._host(name).nbytes
        if not nbytes:
            return lambda: None
        enqueue, queue, buffer, shape = self.cl.enqueue_map_buffer, self.queues.compute, self._buffer(name), (nbytes,)
        maps, byte, offset = self.maps, np.dtype(np.uint8), self.memory.offset(self.schedule.entry, name)

        def step() -> None:
            maps[name] = enqueue(queue, buffer, flags, offset, shape, byte, is_blocking=False)

        return step

    def _mapped(self, name: str) -> None:
        """Wait until the host has it."""
        found = self.maps.get(name)
        if found is not None:
            found[1].wait()

    def _unmap(self, name: str) -> None:
        """Give it back to kernels."""
        found = self.maps.pop(name, None)
        if found is not None:
            found[0].base.release(self.queues.compute)

    def post(self, index: int) -> Step:
        request, name = self._request(index), self.schedule.messages[index].buffer
        if self.mapped:
            take = self._map(name, self.cl.map_flags.WRITE_INVALIDATE_REGION)

            def mapped() -> None:
                take()
                self._mapped(name)
                request.Start()

            return mapped
        moved = self.events.moved

        def copied() -> None:
            if name in moved:
                moved[name].wait()
            request.Start()

        return copied

    def fetch(self, index: int) -> Step:
        name = self.schedule.messages[index].buffer
        if self.mapped:
            return self._map(name, self.cl.map_flags.READ)
        return lambda: self._download(name)

    def _download(self, name: str) -> None:
        host = self._host(name)
        if host.nbytes:
            # The other queue's event is awaited: it must be on its way
            self.queues.compute.flush()
            produced = self.events.written.get(name)
            self.events.moved[name] = self.cl.enqueue_copy(
                self.queues.transfer, host, self._buffer(name), is_blocking=False,
                src_offset=self.memory.offset(self.schedule.entry, name),
                wait_for=[produced] if produced is not None else None,
            )
            self.queues.transfer.flush()

    def send(self, index: int) -> Step:
        request, name = self._request(index), self.schedule.messages[index].buffer
        moved = self.events.moved

        def mapped() -> None:
            self._mapped(name)
            request.Start()

        def copied() -> None:
            if name in moved:
                moved[name].wait()
            request.Start()

        return mapped if self.mapped else copied

    def wait(self, index: int) -> Step:
        complete: Step = self._request(index).Wait
        return complete

    def put(self, index: int) -> Step:
        name = self.schedule.messages[index].buffer
        if self.mapped:
            return lambda: self._unmap(name)
        return lambda: self._upload(name)

    def _upload(self, name: str) -> None:
        host = self._host(name)
        if host.nbytes:
            self.queues.compute.flush()
            last = self.events.read.get(name)
            self.events.moved[name] = self.cl.enqueue_copy(
                self.queues.transfer, self._buffer(name), host, is_blocking=False,
                dst_offset=self.memory.offset(self.schedule.entry, name),
                wait_for=[last] if last is not None else None,
            )
            self.queues.transfer.flush()

    def settle(self, index: int) -> Step:
        name = self.schedule.messages[index].buffer

        def step() -> None:
            self.requests[index].Wait()
            if self.mapped:
                self._unmap(name)

        return step

    # reductions

    def reduce(self, index: int) -> Step:
        row = self.schedule.reductions[index]
        values = self._host(row.buffer).view(row.dtype)
        on_device = any(shape for _, _, shape in row.values)
        collective = self._collective(row.op, values)
        take = self._map(row.buffer, self.cl.map_flags.READ | self.cl.map_flags.WRITE) if self.mapped else None

        def mapped() -> None:
            assert take is not None
            take()
            self._mapped(row.buffer)
            collective()
            self._unmap(row.buffer)

        def copied() -> None:
            self._download(row.buffer)
            if row.buffer in self.events.moved:
                self.events.moved[row.buffer].wait()
            collective()
            if on_device:
                self._upload(row.buffer)

        return mapped if self.mapped else copied

    def _collective(self, op: str, values: Any) -> Step:
        comm = self.world.comm
        if comm is None or comm.size == 1 or not values.size:
            return lambda: None
        mpi = import_mpi()
        operation = {"sum": mpi.SUM, "min": mpi.MIN, "max": mpi.MAX}[op]
        return lambda: comm.Allreduce(mpi.IN_PLACE, values, operation)

    def free(self) -> None:
        for request in self.requests.values():
            request.Free()
        self.requests.clear()
