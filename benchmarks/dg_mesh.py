"""A periodic box of tetrahedra with the tables that a nodal DG operator gathers through."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Mesh:
    """E elements with n nodes and 4 faces of m nodes; nodes are equispaced of order p."""

    face_nodes: Array  # (4 m,) node of each face node, face by face
    outside: Array  # (E, 4 m) flat number element*n + node of the neighbour's node at the same place
    inverse_metric: Array  # (E, 3, 3) d r / d x
    scaled_normals: Array  # (E, 4, 3) outward normal times face area over volume


def lattice(order: int) -> Array:
    """(n, 4) barycentric integer coordinates that sum to the order."""
    rows = [(order - i - j - k, i, j, k) for i, j, k in itertools.product(range(order + 1), repeat=3)
            if i + j + k <= order]
    return np.array(rows)


def box(cells: int, order: int, shuffled: bool = False) -> Mesh:
    """`cells`^3 cubes of six tetrahedra each. Neighbours are cubes in blocks unless `shuffled`."""
    corners = np.array(list(itertools.product((0, 1), repeat=3)))
    tets = np.array([[(0, 0, 0), *np.cumsum(np.eye(3, dtype=int)[list(path)], axis=0)]
                     for path in itertools.permutations(range(3))])  # Kuhn: along the edges of a path
    assert len(corners) == 8
    origin = np.stack(np.meshgrid(*(np.arange(cells),) * 3, indexing="ij"), -1).reshape(-1, 1, 1, 3)
    vertices = (origin + tets[None]).reshape(-1, 4, 3)
    if shuffled:
        vertices = np.random.default_rng(0).permutation(vertices)
    nodes = lattice(order)
    face_nodes = np.stack([np.flatnonzero(nodes[:, face] == 0) for face in range(4)])
    # Integer coordinates in units of h / order, wrapped: equal exactly where nodes coincide
    place = np.einsum("nv,evd->end", nodes, vertices) % (cells * order)
    numbers = (place @ np.array([(cells * order) ** 2, cells * order, 1])).astype(np.int64)
    outside = _partners(numbers[:, face_nodes], face_nodes, len(nodes))
    edges = (vertices[:, 1:] - vertices[:, :1]).astype(float) / cells
    inverse = np.linalg.inv(edges.transpose(0, 2, 1))
    gradients = np.concatenate([-inverse.sum(axis=1, keepdims=True), inverse], axis=1)  # of barycentrics
    return Mesh(face_nodes.ravel(), outside.reshape(len(vertices), -1), inverse, -gradients)


def _partners(numbers: Array, face_nodes: Array, count: int) -> Array:
    """For each face node the flat number of the node at the same place on the neighbour's face."""
    elements, faces, size = numbers.shape
    order = np.argsort(numbers, axis=2, kind="stable")
    ordered = np.take_along_axis(numbers, order, 2).reshape(elements * faces, size)
    _, face = np.unique(ordered, axis=0, return_inverse=True)
    pairs = np.argsort(face.ravel(), kind="stable").reshape(-1, 2)
    other = np.empty(elements * faces, np.int64)
    other[pairs[:, 0]], other[pairs[:, 1]] = pairs[:, 1], pairs[:, 0]
    element, side = np.divmod(other, faces)
    theirs = face_nodes[side[:, None], order.reshape(elements * faces, size)[other]] + element[:, None] * count
    result = np.empty_like(theirs)
    np.put_along_axis(result, order.reshape(elements * faces, size), theirs, 1)
    return result.reshape(elements, faces, size)


@dataclass(frozen=True)
class Piece:
    """A rank's elements, those that touch other ranks last, and what they exchange.

    Where `ghosts` is true the partner lies on another rank: at `ghost` of all that is received, in the order of
    `peers`; elsewhere at `outside`. `sends[p]` are the flat numbers of the nodes that peer p reads, in its order,
    `face_sends[p]` those of the face nodes at the same places.
    """

    mesh: Mesh
    numbers: Array  # (E,) of its elements in the whole mesh
    ghosts: Array  # (E, 4 m) bool
    ghost: Array  # (E, 4 m), 0 where the partner is local
    peers: dict[int, int]  # rank -> nodes received from it
    sends: dict[int, Array]
    face_sends: dict[int, Array]


def pieces(mesh: Mesh, nodes: int, ranks: int) -> list[Piece]:
    """`mesh` in `ranks` runs of elements; `nodes` in an element."""
    elements = len(mesh.outside)
    rank = np.arange(elements) * ranks // elements
    partner, node = np.divmod(mesh.outside, nodes)
    touching = (rank[partner] != rank[:, None]).any(axis=1)
    mine = [np.concatenate([np.flatnonzero((rank == r) & ~touching), np.flatnonzero((rank == r) & touching)])
            for r in range(ranks)]
    local = np.empty(elements, np.int64)
    for numbers in mine:
        local[numbers] = np.arange(len(numbers))
    flat, beside = local[partner] * nodes + node, _beside(mesh, nodes)
    width = mesh.outside.shape[1]
    faces = local[beside // width] * width + beside % width
    found = []
    for r, numbers in enumerate(mine):
        theirs = rank[partner[numbers]]
        ghosts, ghost, count = theirs != r, np.zeros_like(flat[numbers]), 0
        peers = [int(p) for p in np.unique(theirs) if p != r]
        sizes = {p: int((theirs == p).sum()) for p in peers}
        for p in peers:
            ghost[theirs == p] = count + np.arange(sizes[p])
            count += sizes[p]
        wanted = {p: rank[partner[mine[p]]] == r for p in peers}
        sends = {p: flat[mine[p]][wanted[p]] for p in peers}
        face_sends = {p: faces[mine[p]][wanted[p]] for p in peers}
        own = Mesh(mesh.face_nodes, np.where(ghosts, 0, flat[numbers]), mesh.inverse_metric[numbers],
                   mesh.scaled_normals[numbers])
        found.append(Piece(own, numbers, ghosts, ghost, sizes, sends, face_sends))
    return found


def _beside(mesh: Mesh, nodes: int) -> Array:
    """For each face node the flat number element*4m + k of its neighbour's face node at the same place."""
    elements, width = mesh.outside.shape
    own = mesh.face_nodes[None, :] + nodes * np.arange(elements)[:, None]
    # A pair of nodes meets in one pair of faces only: the faces share no edge twice
    key = np.stack([own.ravel(), mesh.outside.ravel()], axis=1)
    order = np.lexsort((key[:, 1], key[:, 0]))
    back = np.lexsort((key[:, 0], key[:, 1]))
    found = np.empty(elements * width, np.int64)
    found[order] = back
    return found.reshape(elements, width)
