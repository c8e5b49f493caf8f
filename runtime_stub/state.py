"""Which device buffer holds which input: carried outputs become inputs by exchanging buffers, never by copying.

A `Node` is one assignment of buffers to inputs. Performing an entry at a node writes its carried outputs into buffers
that no input holds, and leads to the node in which they are inputs. There are finitely many nodes, and a loop soon
goes round in a circle of them; each has its own kernel objects, so that nothing is set or allocated in the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from aotato.runtime_stub.memory import Memory
from aotato.runtime_stub.schedule import Schedule


@dataclass(frozen=True)
class Carry:
    """After `entry`, its output (in buffer `source`) is the input `path`."""

    entry: str
    output: str
    source: str
    path: str


@dataclass
class Transition:
    """Performing an entry at a node: the bound call, where its buffers lie, and the node after it."""

    call: Callable[[], None]
    resolve: Callable[[str], Any]
    after: Node


@dataclass
class Node:
    """Device buffers by input path. What is performed at an `aside` node leaves the buffers of all others alone."""

    holds: Mapping[str, Any]
    aside: bool = False
    transitions: dict[str, Transition] = field(default_factory=dict)


class State:
    """All nodes of a program on one rank. `bind(entry, resolve)` makes the call of an entry with given buffers."""

    def __init__(
        self,
        memory: Memory,
        schedules: Mapping[str, Schedule],
        carries: Sequence[Carry],
        bind: Callable[[str, Callable[[str], Any]], Callable[[], None]],
    ) -> None:
        self.memory, self.schedules, self.bind = memory, schedules, bind
        self.carries = {name: [c for c in carries if c.entry == name] for name in schedules}
        inputs = {b.source: b for s in schedules.values() for b in s.buffers if b.kind == "input"}
        self.sizes = {path: buffer.nbytes for path, buffer in inputs.items()}
        self.pool: list[tuple[int, Any]] = []
        for path, buffer in inputs.items():
            self.pool.append((buffer.nbytes, memory.buffer("", f"input:{path}")))
        for carry in carries:
            if carry.source.startswith("output:"):
                size = next(b.nbytes for b in schedules[carry.entry].buffers if b.name == carry.source)
                known = memory.buffer(carry.entry, carry.source)
                if all(known is not buffer for _, buffer in self.pool):
                    self.pool.append((size, known))
        self.nodes: dict[tuple[int, ...], Node] = {}
        self.spares: dict[tuple[str, str], Any] = {}
        self.node = self.at({path: memory.buffer("", f"input:{path}") for path in inputs})

    def clear(self) -> None:
        """Forget all buffers and calls: nodes lead to each other, and calls to whoever binds them."""
        for node in self.nodes.values():
            node.transitions.clear()
        for kept in (self.nodes, self.pool, self.spares):
            kept.clear()
        self.node = Node({})
        del self.bind

    def at(self, holds: Mapping[str, Any]) -> Node:
        """The node of this assignment."""
        key = tuple(id(holds[path]) for path in sorted(holds))
        return self.nodes.setdefault(key, Node(dict(holds)))

    def aside(self, paths: Sequence[str]) -> Node:
        """The present node with buffers of their own for the inputs `paths`, to be written for a single call."""
        if not paths:
            return self.node
        holds = {**self.node.holds, **{path: self.spare("", path, self.sizes[path]) for path in paths}}
        key = tuple(id(holds[path]) for path in sorted(holds))
        return self.nodes.setdefault(key, Node(holds, aside=True))

    def spare(self, entry: str, name: str, nbytes: int) -> Any:
        """A buffer that is never part of the state."""
        if (entry, name) not in self.spares:
            self.spares[entry, name] = self.memory.allocate(nbytes)
        return self.spares[entry, name]

    def free(self, nbytes: int, taken: Sequence[Any]) -> Any:
        """A buffer of that size that is not among `taken`; a new one only where all are."""
        for size, buffer in self.pool:
            if size == nbytes and all(buffer is not other for other in taken):
                return buffer
        buffer = self.memory.allocate(nbytes)
        self.pool.append((nbytes, buffer))
        return buffer

    def transition(self, entry: str, node: Node) -> Transition:
        """What performing `entry` at `node` does; bound on first use."""
        if entry not in node.transitions:
            node.transitions[entry] = self._bound(entry, node)
        return node.transitions[entry]

    def _bound(self, entry: str, node: Node) -> Transition:
        placed = self._targets(entry, node)

        def resolve(name: str) -> Any:
            kind, _, path = name.partition(":")
            if kind == "input":
                return node.holds[path]
            return placed[name] if name in placed else self.memory.buffer(entry, name)

        holds = dict(node.holds)
        for carry in self.carries[entry]:
            if carry.path in holds and not carry.source.startswith("reduce:"):
                holds[carry.path] = resolve(carry.source)
        return Transition(self.bind(entry, resolve), resolve, node if node.aside else self.at(holds))

    def _targets(self, entry: str, node: Node) -> dict[str, Any]:
        """Buffers for the carried outputs of `entry`: none that an input holds, none twice."""
        taken, placed = list(node.holds.values()), {}
        for carry in self.carries[entry]:
            if carry.source.startswith("output:") and carry.source not in placed:
                size = self.sizes[carry.path]
                placed[carry.source] = self.spare(entry, carry.source, size) if node.aside else self.free(size, taken)
                taken.append(placed[carry.source])
        return placed
