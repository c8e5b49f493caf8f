"""Choose the cheapest arrays that separate those which are costly to compute from those that are read later.

This is a minimum vertex cut; networkx finds it as a maximum flow with exact integer capacities.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import networkx as nx


@dataclass(frozen=True)
class Weight:
    """What it costs to cut at an array: fewest bytes first, then arrays that the user asked to store."""

    nbytes: int
    hinted: bool


def cut(
    weights: Mapping[str, Weight],
    readers: Mapping[str, Sequence[str]],
    costly: Sequence[str],
    needed: Sequence[str],
    late: bool = False,
) -> tuple[str, ...]:
    """The arrays, in the order of `weights`, without which no path leads from a costly array to a needed one.

    Paths follow `readers`, which maps an array to the arrays computed from it. A costly or needed array may itself be
    in the cut. Of all cuts with the fewest bytes, then the fewest arrays without a hint, then the fewest arrays, the
    one nearest to the costly arrays is taken, or if `late` to the needed ones. Minimum cuts form a lattice, so there
    is exactly one, and it depends neither on names nor on any order.
    """
    # What is both costly and needed is in every cut, and no path needs to be looked at beyond it
    forced = set(costly).intersection(needed)
    above = {name: [reader for reader in readers[name] if reader not in forced] for name in weights}
    below: dict[str, list[str]] = {name: [] for name in weights}
    for name in weights:
        for reader in above[name]:
            if name not in forced:
                below[reader].append(name)
    sources, sinks = ([name for name in names if name not in forced] for names in (costly, needed))
    between = _reached(sources, above) & _reached(sinks, below)
    weighed = {name: weights[name] for name in weights if name in between}
    chosen = forced | _cheapest(weighed, above, sources, sinks, late)
    return tuple(name for name in weights if name in chosen)


def _cheapest(
    weights: Mapping[str, Weight],
    readers: Mapping[str, Sequence[str]],
    costly: Sequence[str],
    needed: Sequence[str],
    late: bool,
) -> set[str]:
    """The same for arrays that all lie on paths from a costly to a needed one, of which none is both."""
    if not weights:
        return set()
    # networkx returns the cut nearest to the sink, so flow runs towards the arrays that the cut is to be near
    graph = nx.DiGraph()
    base = len(weights) + 1
    for name, weight in weights.items():
        capacity = (weight.nbytes * base + (not weight.hinted)) * base + 1
        graph.add_edge((name, "above"), (name, "below"), capacity=capacity)
        graph.add_edges_from(((reader, "below"), (name, "above")) for reader in readers[name] if reader in weights)
    graph.add_edges_from(("needed", (name, "above")) for name in needed if name in weights)
    graph.add_edges_from(((name, "below"), "costly") for name in costly if name in weights)
    if late:
        _, (far, _) = nx.minimum_cut(graph.reverse(), "costly", "needed")
        return {name for name in weights if (name, "below") in far and (name, "above") not in far}
    _, (far, _) = nx.minimum_cut(graph, "needed", "costly")
    return {name for name in weights if (name, "above") in far and (name, "below") not in far}


def _reached(starts: Sequence[str], edges: Mapping[str, Sequence[str]]) -> set[str]:
    found = set(starts)
    stack = list(starts)
    while stack:
        for name in edges[stack.pop()]:
            if name not in found:
                found.add(name)
                stack.append(name)
    return found
