"""A rank's share of a discretised mesh: tables in numpy from which operators are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aotato.frontend import AppError
from aotato.frontend.apps._dg.connectivity import Connectivity, connect
from aotato.frontend.apps._dg.elements import Element
from aotato.frontend.apps._dg.geometry import Geometry, geometry
from aotato.frontend.apps._dg.mesh import Mesh, oriented
from aotato.frontend.apps._dg.partition import ordered, owners

Array = np.ndarray[Any, Any]

# A direction that faces are hardly ever parallel to
ACROSS = np.array([0.8090169943749475, 0.4877099268270497, 0.3282174812561493])
TIE = 1e-6
NEAR = 1e-8  # of the mesh's extent: how far nodes that meet may lie apart


@dataclass(frozen=True)
class Peer:
    """Another rank with which faces are shared."""

    rank: int
    sends: Array  # (S,) int32 flat numbers element*n + node of what it needs of us, in its order
    face_sends: Array  # (S,) int32 the same as face nodes: element*K + face node
    receives: int  # nodes that we need of it


@dataclass(frozen=True)
class Domain:
    """The elements of one rank, the ones that touch other ranks last. Every value is one of the whole mesh's.

    K = F m face nodes of an element, face by face.
    """

    element: Element
    rank: int
    elements: Array  # (E,) int64 numbers in the mesh
    nodes: Array  # (E, n, dim) coordinates
    affine: bool  # cells are parallelepipeds or simplices: metric terms are constant in each
    metric: Array  # affine: (E, dim, dim) d r_i / d x_j; curved: (E, n, dim, dim) J d r_i / d x_j
    jacobian: Array  # J, the determinant of d x / d r; affine: (E,); curved: (E, n)
    normals: Array  # unit outward, affine: (E, F, dim); curved: (E, K, dim)
    scale: Array  # area element over volume element, affine: (E, F); curved: (E, K)
    mass: Array  # (E, n) weights of integrals over the mesh
    outside: Array  # (E, K) int32 flat number element*n + node across the face; the own node where it is not here
    ghost: Array  # (E, K) int32 place among all received nodes, peer after peer; 0 elsewhere
    is_ghost: Array  # (E, F) bool: the neighbour is another rank's
    boundary: Array  # (E, F) int32 number of the boundary's name, -1 inside the mesh
    boundaries: tuple[str, ...]  # names, the same on all ranks
    side: Array  # (E, F) float64 1 or -1, opposite on the two sides of a face, the same for any number of ranks
    h_face: Array  # (E, F) height of the flatter of both cells above the face
    height: Array  # (E,) smallest height of the cell
    peers: tuple[Peer, ...]  # by rank

    @property
    def face_nodes(self) -> Array:
        """(E, K, dim) coordinates of the face nodes."""
        return self.nodes[:, self.element.face_nodes.ravel()]


def domains(mesh: Mesh, element: Element, ranks: int) -> tuple[Domain, ...]:
    """A domain for each rank. Raises AppError: what `connect`, `geometry` and `owners` refuse, cells of another kind,
    periodic sides that a warp has torn apart."""
    if mesh.cell != element.cell:
        raise AppError(f"expected a mesh of {element.cell!r} cells, but found {mesh.cell!r}")
    mesh = oriented(mesh)
    connectivity, shape = connect(mesh, element), geometry(mesh, element)
    _check_meeting(mesh, element, connectivity, shape)
    owner = owners(connectivity, ranks)
    shares = ordered(connectivity, owner, shape.nodes.mean(axis=1))
    local = np.empty(len(owner), np.int64)
    for share in shares:
        local[share] = np.arange(len(share))
    whole = _Whole(element, connectivity, shape, _side(connectivity, shape), _flatter(connectivity, shape.heights),
                   owner, tuple(shares), local)
    exchanges = _exchanges(whole)
    return tuple(_domain(whole, rank, *exchanges[rank]) for rank in range(ranks))


@dataclass(frozen=True)
class _Whole:
    """The mesh of all ranks; arrays by its elements."""

    element: Element
    connectivity: Connectivity
    geometry: Geometry
    side: Array  # (E, F)
    h_face: Array  # (E, F)
    owner: Array  # (E,) rank
    shares: tuple[Array, ...]  # by rank its elements, in its order
    local: Array  # (E,) place in the owner's order


def _check_meeting(mesh: Mesh, element: Element, connectivity: Connectivity, shape: Geometry) -> None:
    """Nodes that meet lie at one place, but for a translation between periodic sides."""
    element_of, face = np.nonzero(connectivity.neighbour >= 0)
    own_nodes = element.face_nodes[face]
    their_nodes = element.face_nodes.ravel()[connectivity.places[element_of, face]]
    own = shape.nodes[element_of[:, None], own_nodes]
    theirs = shape.nodes[connectivity.neighbour[element_of, face][:, None], their_nodes]
    near = NEAR * float(np.ptp(mesh.vertices, axis=0).max())
    meets = np.abs(own - theirs).max(axis=(1, 2)) <= near
    for periodic in mesh.periodic:
        for sign in (1, -1):
            rest = np.flatnonzero(~meets)
            apart = own[rest] - theirs[rest] - sign * np.asarray(periodic.translation)
            meets[rest] = np.abs(apart).max(axis=(1, 2)) <= near
    if not meets.all():
        first = np.flatnonzero(~meets)[0]
        a, b = (", ".join(f"{x:g}" for x in points[first, 0]) for points in (own, theirs))
        raise AppError(f"{(~meets).sum()} faces do not meet their neighbour's, for example at ({a}) and ({b}): a warp "
                       "must move periodic sides alike")


def _side(connectivity: Connectivity, shape: Geometry) -> Array:
    """1 where the face looks along a fixed direction, -1 where against it: no cell has all its faces on one side.

    A consistent switch, as Cockburn and Dong (2007) use; faces along the direction go by (element, face) numbers.
    """
    along = shape.mean_normals @ ACROSS[: shape.nodes.shape[2]]
    elements, faces = along.shape
    number = np.arange(elements * faces).reshape(elements, faces)
    other = np.where(connectivity.neighbour < 0, number, connectivity.neighbour * faces + connectivity.neighbour_face)
    # Both sides of a face decide by the same number, that of its first one
    decided = np.where(number <= other, along, -along.ravel()[other])
    result: Array = np.where(np.abs(decided) > TIE, np.sign(decided), np.where(number <= other, 1.0, -1.0))
    return np.where(connectivity.neighbour < 0, 1.0, result)


def _flatter(connectivity: Connectivity, heights: Array) -> Array:
    """The smaller of the heights on both sides of each face."""
    theirs = heights[np.maximum(connectivity.neighbour, 0), np.maximum(connectivity.neighbour_face, 0)]
    return np.where(connectivity.neighbour < 0, heights, np.minimum(heights, theirs))


def _exchanges(whole: _Whole) -> list[tuple[Array, tuple[Peer, ...]]]:
    """By rank the places of its face nodes among received ones, and its peers.

    A rank receives, peer after peer, a node for each of its face nodes with a neighbour there, in its own order.
    """
    places, wanted = [], list[dict[int, tuple[Array, Array]]]()  # by receiver: elements and face nodes of each sender
    for rank, share in enumerate(whole.shares):
        across, across_nodes = whole.connectivity.neighbour[share], whole.connectivity.places[share]
        source = np.where(across < 0, rank, whole.owner[across])
        place: Array = np.zeros(across_nodes.shape, np.int32)
        begin, needs = 0, {}
        for peer in np.unique(source[source != rank]).tolist():
            of_peer = source == peer
            needs[peer] = whole.local[across[of_peer]][:, None], across_nodes[of_peer]
            count = needs[peer][1].size
            place[of_peer] = np.arange(begin, begin + count).reshape(-1, place.shape[2])
            begin += count
        places.append(place.reshape(len(share), -1))
        wanted.append(needs)
    return [
        (place, tuple(_peer(whole.element, peer, *wanted[peer][rank], needs[peer][1].size) for peer in sorted(needs)))
        for rank, (place, needs) in enumerate(zip(places, wanted, strict=True))
    ]


def _peer(element: Element, rank: int, elements: Array, places: Array, receives: int) -> Peer:
    nodes = elements * len(element.nodes) + element.face_nodes.ravel()[places]
    face_nodes = elements * element.face_nodes.size + places
    return Peer(rank, nodes.ravel().astype(np.int32), face_nodes.ravel().astype(np.int32), receives)


def _domain(whole: _Whole, rank: int, ghost: Array, peers: tuple[Peer, ...]) -> Domain:
    element, shape, share = whole.element, whole.geometry, whole.shares[rank]
    across, size = whole.connectivity.neighbour[share], len(element.nodes)
    is_ghost = (across >= 0) & (whole.owner[across] != rank)
    here = (across >= 0) & ~is_ghost
    own = (np.arange(len(share)) * size)[:, None, None] + element.face_nodes
    theirs = element.face_nodes.ravel()[whole.connectivity.places[share]] + (whole.local[across] * size)[..., None]
    outside = np.where(here[..., None], theirs, own).reshape(len(share), -1).astype(np.int32)
    return Domain(
        element, rank, share, shape.nodes[share], shape.affine, shape.metric[share], shape.jacobian[share],
        shape.normals[share], shape.scale[share], shape.mass[share], outside, ghost, is_ghost,
        whole.connectivity.boundary[share], whole.connectivity.names, whole.side[share], whole.h_face[share],
        shape.heights[share].min(axis=1), peers,
    )
