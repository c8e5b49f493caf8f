"""A bundle loaded onto a device: call its entries with arrays, get arrays back."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from aotato.runtime_stub import plan_data
from aotato.runtime_stub.binding import Binding, Queues
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Bundle, Entry
from aotato.runtime_stub.inputs import Inputs
from aotato.runtime_stub.kernels import Kernels
from aotato.runtime_stub.memory import Memory
from aotato.runtime_stub.plan import Runner
from aotato.runtime_stub.schedule import Output, Schedule
from aotato.runtime_stub.state import Carry, Node, State, Transition
from aotato.runtime_stub.values import Wanted
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
        self.inputs = Inputs(bundle, self.world.rank, self.schedules, self.queue)
        self.memory = self.world.together(self._memory)
        self.kernels = Kernels(self.context, device, bundle)
        self.drivers: dict[str, Callable[[Binding], Callable[[], None]]] = {}
        self.bindings: dict[str, Binding] = {}
        self.world.together(self._compile)
        for name in bundle.entries:
            self._prepare(name)
        self.inputs.machine = self.state_machine = State(self.memory, self.schedules, self._carries(), self._bind)
        self.last: dict[str, Transition] = {}
        self.passed = {name: self._passed(name) for name in bundle.entries}
        self.host_carries = {name: self._host_carries(name) for name in bundle.entries}
        self.reduced_values = {name: self._reduced_values(name) for name in bundle.entries}
        self.started = False
        self.closed = False

    def _memory(self) -> Memory:
        try:
            return Memory(self.context, self.queue, self.schedules.values(), self.bundle)
        except self.cl.MemoryError:
            need = sum(b.own_nbytes for s in self.schedules.values() for b in s.buffers)
            need += max(s.arena_nbytes for s in self.schedules.values())
            raise Refusal(
                f"device {self.device.name.strip()!r} has no room for the {need} bytes of this bundle's buffers; "
                "use more ranks or a larger device"
            ) from None

    def _compile(self) -> None:
        for schedule in self.schedules.values():
            for launch in schedule.launches:
                self.kernels.new(launch.kernel)

    def _prepare(self, name: str) -> None:
        """The entry's binding and driver."""
        schedule = self.schedules[name]
        transfer = self.queue
        if schedule.staging == "copied" and schedule.messages:
            transfer = self.cl.CommandQueue(self.context, self.device)
        queues = Queues(self.queue, transfer)
        self.bindings[name] = Binding(schedule, self.memory, self.kernels, queues, self.world, self.inputs.values)
        namespace: dict[str, Any] = {}
        exec(compile(self.bundle.driver(name, self.target, self.world.rank), f"<driver of {name}>", "exec"), namespace)
        self.drivers[name] = namespace["bind"]

    def _bind(self, name: str, resolve: Callable[[str], Any]) -> Callable[[], None]:
        return self.drivers[name](self.bindings[name].at(resolve))

    def _carries(self) -> list[Carry]:
        """The plan's carries whose output and input this rank has."""
        found = []
        for row in (self.bundle.meta["plan"] or {}).get("carry", ()):
            schedule = self.schedules[row["entry"]]
            outputs = {output.path: output for output in schedule.outputs}
            if row["output"] in outputs:
                found.append(Carry(row["entry"], row["output"], outputs[row["output"]].buffer, row["input"]))
        return found

    def entry(self, name: str) -> Entry:
        self._expect_open()
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

        Inputs are numpy arrays, or pyopencl arrays of the queue given to `load`. The plan's state stays as it is.
        All ranks must call the same entries in the same order. Raises Refusal for a wrong or missing input.
        """
        self.entry(entry)
        arrays = self.world.together(lambda: self.inputs.given(entry, inputs))
        kept = self.inputs.kept(inputs)
        self._perform(entry, self.inputs.placed(arrays, inputs))
        results = self.outputs(entry)
        self.inputs.put_back(kept)
        return results

    def perform(self, entry: str) -> None:
        """Run `entry` once on the present state and feed its carried outputs back."""
        machine = self.state_machine
        machine.node = self._perform(entry, machine.node)
        for source, _, between in self.host_carries[entry]:
            between[...] = source
        for _, target, between in self.host_carries[entry]:
            target[...] = between

    def _passed(self, entry: str) -> dict[str, tuple[Array, Array]]:
        """Outputs that are inputs passed by value: (the input, what it was in the last call)."""
        rows = [output for output in self.schedules[entry].outputs if output.buffer in self.inputs.values]
        return {o.path: (self.inputs.values[o.buffer], np.zeros_like(self.inputs.values[o.buffer])) for o in rows}

    def _host_carries(self, entry: str) -> list[tuple[Array, Array, Array]]:
        """Carried values on the host: (where the entry leaves them, the input, a place between: inputs may swap)."""
        schedule, found = self.schedules[entry], []
        for carry in self.state_machine.carries[entry]:
            target = self.inputs.values.get(f"input:{carry.path}")
            if target is not None:
                output = next(o for o in schedule.outputs if o.path == carry.output)
                found.append((self._host_value(schedule, output), target, np.zeros_like(target)))
        return found

    def _host_value(self, schedule: Schedule, output: Output) -> Array:
        """The host memory of a 0-dimensional output that is a reduced value or an input passed by value."""
        if output.buffer in self.inputs.values:
            return self.inputs.values[output.buffer]
        host = self.memory.staged(schedule.entry, output.buffer)
        size = np.dtype(output.dtype).itemsize
        found: Array = host[output.offset : output.offset + size].view(output.dtype)
        return found

    def reduced(self, entry: str) -> dict[str, Any]:
        """The 0-dimensional reduced outputs of the last call of `entry`, as Python numbers."""
        return {path: value[0].item() for path, value in self.reduced_values[entry]}

    def _reduced_values(self, entry: str) -> list[tuple[str, Array]]:
        schedule = self.schedules[entry]
        rows = [o for o in schedule.outputs if o.buffer.startswith("reduce:") and o.shape == ()]
        return [(output.path, self._host_value(schedule, output)) for output in rows]

    @functools.cached_property
    def runner(self) -> Runner:
        """The loop of this program, which knows how far the state has come. Raises Refusal without a plan."""
        plan = plan_data.of(self.bundle.meta)
        if plan is None:
            raise Refusal("this bundle has no loop; call its entries: program.call(NAME, ...)")
        return Runner(self, plan)

    def run(
        self,
        steps: int | None = None,
        until: float | None = None,
        set: Mapping[str, float] | None = None,
        every: Mapping[str, int] | None = None,
    ) -> dict[str, float]:
        """Do `steps` further steps of the plan, or go on until the scalar t reaches `until`; returns its scalars.

        `set` gives scalars and free 0-dimensional inputs, `every` intervals by entry. The state stays on the device:
        see `state` and `outputs`. `init` runs before the first step unless `set_state` was called. All ranks must give
        the same arguments. Raises Refusal, for instance if the bundle has no loop.
        """
        self._expect_open()
        runner = self.world.together(lambda: self.runner)
        if not self.started:
            self.world.together(lambda: self.start({}))
        plan = runner.plan
        self.bind_ahead(*([call.entry for call in calls] for calls in (plan.init, plan.step, plan.every)))
        return runner.run(steps, until, set, every)

    def state(self) -> dict[str, Array]:
        """Copies of all carried inputs, by path. Raises Refusal before the first step and before `set_state`."""
        if self.inputs.carried() and not (self.started or self.inputs.initialised):
            raise Refusal("there is no state yet: take a step with program.run, or give one with program.set_state")
        return {path: self.inputs.held(path) for path in self.inputs.carried()}

    def not_finite(self) -> str:
        """Where the state holds values that are not finite: words, or none. Collective."""
        for path in sorted({carry["input"] for carry in (self.bundle.meta["plan"] or {}).get("carry", ())}):
            wrong = ~np.isfinite(self.inputs.held(path)) if path in self.inputs.carried() else np.zeros(0, bool)
            count = int(np.count_nonzero(wrong))
            first = np.unravel_index(int(wrong.argmax()), wrong.shape) if count else ()
            found = self.world.each((count, [int(i) for i in first]))
            total = sum(number for number, _ in found)
            if total:
                rank = next(rank for rank, (number, _) in enumerate(found) if number)
                return (f"{path!r} holds {total} values that are not finite, the first on rank {rank} at "
                        f"{found[rank][1]}")
        return ""

    def set_state(self, **arrays: Any) -> None:
        """Write carried inputs (names with dots: pass `**{"q.mass": array}`); `init` will not run any more."""
        checked = self.world.together(lambda: self.inputs.state(arrays))
        self.inputs.set_state({path: checked[path] for path in arrays})

    @property
    def initialised(self) -> bool:
        """Whether the carried inputs are a state."""
        return self.inputs.initialised

    @initialised.setter
    def initialised(self, value: bool) -> None:
        self.inputs.initialised = value

    def put_scalar(self, path: str, value: float) -> None:
        """Set a 0-dimensional input that is passed by value; a rank that has none of that path passes it over."""
        self.inputs.put_scalar(path, value)

    def wanted(self, entry: str) -> list[Wanted]:
        """The inputs of `entry` on this rank."""
        return self.inputs.wanted(entry)

    def start(self, given: Mapping[str, Array]) -> None:
        """Write all inputs of all entries before a loop: those given, else their defaults. Raises Refusal."""
        self.inputs.start(given)
        self.started = True

    def bind_ahead(self, init: Sequence[str], step: Sequence[str], beside: Sequence[str]) -> None:
        """Bind everything that a loop will perform, so that the loop itself allocates nothing.

        `init` once, then `step` again and again; `beside` are entries called between steps.
        """
        node = self.state_machine.node
        for entry in () if self.inputs.initialised else init:
            node = self.state_machine.transition(entry, node).after
        seen: list[Node] = []
        while all(node is not other for other in seen):
            seen.append(node)
            for entry in beside:
                node = self.state_machine.transition(entry, node).after
            for entry in step:
                node = self.state_machine.transition(entry, node).after

    def _perform(self, entry: str, node: Node) -> Node:
        transition = node.transitions.get(entry) or self.state_machine.transition(entry, node)
        self.last[entry] = transition
        transition.call()
        for source, kept in self.passed[entry].values():
            kept[...] = source
        return transition.after

    def outputs(self, entry: str) -> dict[str, Array]:
        """The outputs of the last call of `entry`, copied to the host."""
        schedule = self.schedules[entry]
        return {output.path: self._output(schedule, output) for output in schedule.outputs}

    def _output(self, schedule: Schedule, output: Output) -> Array:
        result = np.empty(output.shape, output.dtype)
        if output.path in self.passed[schedule.entry]:
            result[...] = self.passed[schedule.entry][output.path][1].reshape(output.shape)
        elif output.buffer.startswith("reduce:"):
            host = self.memory.staged(schedule.entry, output.buffer)
            result[...] = host[output.offset : output.offset + result.nbytes].view(output.dtype).reshape(output.shape)
        elif result.nbytes:
            source = self.last[schedule.entry].resolve(output.buffer)
            # What lies in a message may still be on its way up, on the other queue
            moved = self.bindings[schedule.entry].events.moved.get(output.buffer)
            waits = [moved] if moved is not None else None
            self.cl.enqueue_copy(self.queue, result, source, src_offset=output.offset, wait_for=waits)
        return result

    def selftest(self) -> str:
        """Call every entry with the data that the bundle carries; see `selftest.compare`."""
        from aotato.runtime_stub.selftest import compare

        return compare(self)

    def close(self) -> None:
        """Give everything back; collective. The program cannot be called any more."""
        if self.closed:
            return
        self._release()
        if self.world.comm is not None:
            self.world.comm.Free()

    def _expect_open(self) -> None:
        if self.closed:
            raise Refusal("this program is closed: load the bundle again")

    def _release(self) -> None:
        """Objects of the device go now and in order, kernels first.

        NVIDIA's driver does not survive what Python's collector of cycles does, which knows no order.
        """
        self.closed = True
        self.queue.finish()
        for binding in self.bindings.values():
            binding.free()
        for kept in (self.bindings, self.drivers, self.last, self.kernels.programs):
            kept.clear()
        self.state_machine.clear()
        self.memory.clear()
        self.__dict__.pop("runner", None)

    def __del__(self) -> None:
        if not self.__dict__.get("closed", True):  # it has no such attribute where its construction failed
            self._release()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

