"""What must be computed before what: one graph over the arrays and collectives of all ranks.

It holds no values, shapes or dtypes. Node numbers run over the ranks' arrays in program order; behind them stands
one node for each collective. A message is an edge from the array that is sent to the Recv; a collective is an edge
from every operand to its node, and from there to every result.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from aotato.frontend.ir import Allreduce, Programs, Recv, Send, operands

MessageKey = tuple[int, int, int]  # source, dest, tag number


@dataclass(frozen=True)
class Dependences:
    """`before[i]` are the nodes that node i waits for; it also waits for `rounds[i]` (0 or 1) round of its own."""

    arrays: tuple[tuple[int, str], ...]  # rank and name of nodes 0 .. len(arrays) - 1
    before: tuple[tuple[int, ...], ...]
    rounds: tuple[int, ...]
    starts: tuple[int, ...]  # the first node of each rank

    @property
    def collectives(self) -> range:
        """The nodes of the collectives, in order."""
        return range(len(self.arrays), len(self.before))


def sends_by_key(programs: Programs) -> dict[MessageKey, list[Send]]:
    """All sends of all ranks, by source, destination and tag, in program order."""
    found: dict[MessageKey, list[Send]] = {}
    for program in programs.ranks:
        for send in program.sends:
            found.setdefault((program.rank, send.dest, send.tag), []).append(send)
    return found


def receives_by_key(programs: Programs) -> dict[MessageKey, list[tuple[str, Recv]]]:
    """All receives of all ranks, by source, destination and tag, in program order."""
    found: dict[MessageKey, list[tuple[str, Recv]]] = {}
    for program in programs.ranks:
        for name, recv in program.of_type(Recv):
            found.setdefault((recv.source, program.rank, recv.tag), []).append((name, recv))
    return found


def allreduces(programs: Programs) -> list[list[tuple[str, Allreduce]]]:
    """Each rank's Allreduces in program order: number k of every rank is the same collective."""
    return [list(program.of_type(Allreduce)) for program in programs.ranks]


def dependences(programs: Programs) -> Dependences:
    """The graph of `programs`; what has no partner (a mistake that checks report) waits for nothing."""
    sends = sends_by_key(programs)
    reductions = allreduces(programs)
    arrays = tuple((program.rank, name) for program in programs.ranks for name in program.arrays)
    number = {array: i for i, array in enumerate(arrays)}
    collective = {
        (rank, name): len(arrays) + k for rank, calls in enumerate(reductions) for k, (name, _) in enumerate(calls)
    }

    before: list[tuple[int, ...]] = []
    rounds: list[int] = []
    for program in programs.ranks:
        rank = program.rank
        for name, node in program.arrays.items():
            if isinstance(node, Recv):
                sent = sends.get((node.source, rank, node.tag), ())
                before.append(tuple(number[node.source, send.array] for send in sent[:1]))
                rounds.append(int(node.source != rank))
            elif isinstance(node, Allreduce):
                before.append((collective[rank, name],))
                rounds.append(1)
            else:
                before.append(tuple(number[rank, operand] for operand in operands(node)))
                rounds.append(0)

    for k in range(max((len(calls) for calls in reductions), default=0)):
        before.append(
            tuple(number[rank, calls[k][1].operand] for rank, calls in enumerate(reductions) if k < len(calls))
        )
        rounds.append(0)

    starts = [0]
    for program in programs.ranks:
        starts.append(starts[-1] + len(program.arrays))
    return Dependences(arrays, tuple(before), tuple(rounds), tuple(starts[:-1]))


def order(graph: Dependences) -> list[int]:
    """The nodes, each after all that it waits for; nodes on a cycle and nodes behind one are missing."""
    after: list[list[int]] = [[] for _ in graph.before]
    missing = [len(nodes) for nodes in graph.before]
    for node, nodes in enumerate(graph.before):
        for earlier in nodes:
            after[earlier].append(node)

    ready = deque(node for node, count in enumerate(missing) if count == 0)
    done = []
    while ready:
        node = ready.popleft()
        done.append(node)
        for later in after[node]:
            missing[later] -= 1
            if missing[later] == 0:
                ready.append(later)
    return done
