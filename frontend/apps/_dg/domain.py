"""A rank's share of a discretised mesh: tables in numpy from which operators are made."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from aotato.frontend.apps._dg.elements import Element

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Peer:
    """Another rank with which faces are shared."""

    rank: int
    sends: Array  # (S,) int32 flat numbers element*n + node that it needs of us, in its order
    receives: int  # nodes that we need of it


@dataclass(frozen=True)
class Domain:
    """The elements of one rank, the ones that touch other ranks last. Every value is one of the whole mesh's."""

    element: Element
    rank: int
    elements: Array  # (E,) int64 numbers in the mesh
    nodes: Array  # (E, n, dim) coordinates
    affine: bool  # metric is constant in each element
    metric: Array  # affine: (E, dim, dim) d r_i / d x_j; curved: (E, n, dim, dim) J d r_i / d x_j
    jacobian: Array  # affine: (E,) determinant J of d x / d r; curved: (E, n)
    normals: Array  # unit outward, affine: (E, F, dim); curved: (E, K, dim)
    scale: Array  # area over volume element, affine: (E, F); curved: (E, K)
    mass: Array  # (E, n) weights of integrals over the mesh
    outside: Array  # (E, K) int32 flat number element*n + node across the face; any in range where it is not here
    ghost: Array  # (E, K) int32 place among all received nodes, peer after peer; any in range elsewhere
    is_ghost: Array  # (E, F) bool: the neighbour is another rank's
    boundary: Array  # (E, F) int32 number of the boundary's name, -1 inside the mesh
    boundaries: tuple[str, ...]  # names, the same on all ranks
    side: Array  # (E, F) float64 1 or -1, opposite on the two sides of a face, independent of ranks
    h_face: Array  # (E, F) the smaller height of both cells above the face
    height: Array  # (E,) smallest height of the cell
    peers: tuple[Peer, ...]  # by rank
