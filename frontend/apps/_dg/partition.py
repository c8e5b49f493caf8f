"""Which rank has which elements, and in which order."""

from __future__ import annotations

from typing import Any

import numpy as np

from aotato.frontend import AppError
from aotato.frontend.apps._dg.connectivity import Connectivity

Array = np.ndarray[Any, Any]

SEED = 1
FINEST = 20  # bits of a coordinate in the order of elements


def owners(connectivity: Connectivity, ranks: int) -> Array:
    """(E,) the rank of each element: METIS over the graph of elements joined by faces, with a fixed seed.

    Karypis and Kumar (1998). Raises AppError where there are fewer elements than ranks.
    """
    elements = len(connectivity.neighbour)
    if elements < ranks:
        raise AppError(f"the mesh has {elements} cells, too few for {ranks} ranks")
    if ranks == 1:
        return np.zeros(elements, np.int64)
    import pymetis

    graph = pymetis.CSRAdjacency(*_graph(connectivity.neighbour))
    _, owner = pymetis.part_graph(ranks, graph, options=pymetis.Options(seed=SEED))
    return _filled(np.asarray(owner, np.int64), ranks)


def _graph(neighbour: Array) -> tuple[Array, Array]:
    """Compressed rows of an undirected graph: two elements are joined once, however many faces they share."""
    elements = len(neighbour)
    ends = np.stack([np.repeat(np.arange(elements), neighbour.shape[1]), neighbour.ravel()], axis=1)
    ends = np.unique(ends[(ends[:, 1] >= 0) & (ends[:, 0] != ends[:, 1])] @ [elements, 1])
    begins = np.concatenate([[0], np.cumsum(np.bincount(ends // elements, minlength=elements))])
    return begins, ends % elements


def _filled(owner: Array, ranks: int) -> Array:
    """A rank that METIS left without elements, as it may in tiny meshes, gets one of the largest rank's."""
    owner = owner.copy()
    for rank in range(ranks):
        if not (owner == rank).any():
            largest = np.bincount(owner, minlength=ranks).argmax()
            owner[np.flatnonzero(owner == largest)[-1]] = rank
    return owner


def ordered(connectivity: Connectivity, owner: Array, centroids: Array) -> list[Array]:
    """By rank its elements: those without a neighbour of another rank first, both groups along a Morton curve.

    Elements near in the order are near in space (Morton 1966), so that the values that a work-group reads of
    neighbours are few others than its own.
    """
    foreign = (connectivity.neighbour >= 0) & (owner[connectivity.neighbour] != owner[:, None])
    order = np.lexsort((_morton(centroids), foreign.any(axis=1), owner))
    return np.split(order, np.cumsum(np.bincount(owner))[:-1])


def _morton(points: Array) -> Array:
    """The bits of all coordinates interleaved; one scale for all axes, so that a cell of the curve is a cube."""
    dim = points.shape[1]
    extent = float(np.ptp(points, axis=0).max()) or 1.0
    places = ((points - points.min(axis=0)) / extent * (2**FINEST - 1)).astype(np.uint64)
    key = np.zeros(len(points), np.uint64)
    for bit, axis in np.ndindex(FINEST, dim):
        key |= (places[:, axis] >> np.uint64(bit) & np.uint64(1)) << np.uint64(bit * dim + axis)
    return key
