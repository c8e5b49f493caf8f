"""Find where ranks wait for each other in a circle, and say so rank by rank."""

from __future__ import annotations

from collections.abc import Iterator

import networkx as nx

from aotato.frontend.dependences import Dependences, order, sends_by_key
from aotato.frontend.ir import Allreduce, Programs, Recv


def cycles(programs: Programs, graph: Dependences) -> Iterator[str]:
    """One sentence for each set of arrays that wait for each other, in order of their first rank and array."""
    blocked = set(range(len(graph.before))) - set(order(graph))
    if not blocked:
        return
    waits = nx.DiGraph()
    waits.add_nodes_from(sorted(blocked))
    waits.add_edges_from(
        (before, node) for node in sorted(blocked) for before in graph.before[node] if before in blocked
    )
    together = [component for component in nx.strongly_connected_components(waits) if len(component) > 1]
    for component in sorted(together, key=min):
        yield _sentence(programs, graph, _circle(graph, component))


def _circle(graph: Dependences, component: set[int]) -> list[int]:
    """Nodes of one cycle, each computed from the one before it and the first from the last."""
    path: list[int] = []
    at: dict[int, int] = {}
    node = min(component)
    while node not in at:
        at[node] = len(path)
        path.append(node)
        node = next(before for before in graph.before[node] if before in component)
    return path[at[node] :][::-1]


def _sentence(programs: Programs, graph: Dependences, circle: list[int]) -> str:
    hops = _hops(programs, graph, circle)
    return f"ranks wait for each other: {'; '.join(hops)}; so none can be first"


def _hops(programs: Programs, graph: Dependences, circle: list[int]) -> list[str]:
    """What each rank on the cycle does with what it gets before the next rank gets something from it."""
    # Start where something arrives on the smallest rank, so that each hop lies on one rank
    arrivals = [i for i, node in enumerate(circle) if _arrives(programs, graph, node)]
    first = min(arrivals, key=lambda i: graph.arrays[circle[i]])
    circle = circle[first:] + circle[:first]
    arrivals = [i for i, node in enumerate(circle) if _arrives(programs, graph, node)]

    hops = []
    for start, stop in zip(arrivals, [*arrivals[1:], len(circle)], strict=True):
        inner = [node for node in circle[start:stop] if node < len(graph.arrays)]
        rank, entered = graph.arrays[inner[0]]
        _, left = graph.arrays[inner[-1]]
        target, gets = graph.arrays[circle[stop % len(circle)]]
        made = (
            f"rank {rank} computes {left!r} from {entered!r}" if entered != left else f"rank {rank} passes {left!r} on"
        )
        hops.append(f"{made} and {_leaves(programs, rank, target, gets)}")
    return hops


def _arrives(programs: Programs, graph: Dependences, node: int) -> bool:
    if node >= len(graph.arrays):
        return False
    rank, name = graph.arrays[node]
    return isinstance(programs.ranks[rank].arrays[name], Recv | Allreduce)


def _leaves(programs: Programs, source: int, dest: int, received: str) -> str:
    node = programs.ranks[dest].arrays[received]
    if isinstance(node, Recv):
        send = sends_by_key(programs)[source, dest, node.tag][0]
        at = f" ({send.where})" if send.where else ""
        return f"sends it to rank {dest} as {received!r} with tag {programs.tags[node.tag]}{at}"
    assert isinstance(node, Allreduce)
    at = f" ({node.where})" if node.where else ""
    return f"reduces it over all ranks, which gives rank {dest} {received!r}{at}"
