"""Reference cells with nodes, faces and matrices."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Element:
    """A reference cell: the simplex or cube with corners at -1 and 1."""

    cell: str  # "tri", "quad", "tet" or "hex"
    order: int
    dim: int
    nodes: Array  # (n, dim)
    lattice: Array  # (n, dim) integer coordinates 0..order, as `vtk_node_order` takes them
    face_corners: tuple[tuple[int, ...], ...]  # corners of each face
    face_nodes: Array  # (F, m) nodes of each face
    derivative: Array  # (dim, n, n)
    line: Array | None  # tensor cells: (order + 1, order + 1) derivative along an axis
    lift: Array | None  # simplices: (n, K)
    lift_nodes: Array | None  # tensor cells: (n, dim) the face node at a node, for each axis; any in range elsewhere
    lift_weights: Array | None  # tensor cells: (n, dim) 1 / weight, zero where the node is on no face of the axis
    weights: Array  # (n,) of integrals over the cell
    face_weights: Array  # (m,) of integrals over a face
