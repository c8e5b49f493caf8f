"""Coordinates and metric terms of all elements: one matrix a cell that is a parallelepiped, else one a node.

On curved cells the metric terms are discrete curls, so that sums of their discrete derivatives vanish and a uniform
state stays uniform: Kopriva, "Metric identities and the discontinuous spectral element method on curvilinear meshes"
(2006), invariant form in 3D, cross product form in 2D. Those of a face depend on the face's nodes alone, so that both
its cells have the same normals.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotato.frontend import AppError
from aotato.frontend.apps._dg.elements import Element
from aotato.frontend.apps._dg.mesh import Mesh

Array = np.ndarray[Any, Any]

STRAIGHT = 1e-10  # of a cell's size: how far a corner may lie off a parallelepiped's


@dataclass(frozen=True)
class Geometry:
    """Of all elements of a mesh. J is the determinant of d x / d r."""

    nodes: Array  # (E, n, dim)
    affine: bool
    metric: Array  # affine: (E, dim, dim) d r_i / d x_j; curved: (E, n, dim, dim) J d r_i / d x_j
    jacobian: Array  # affine: (E,) J; curved: (E, n)
    normals: Array  # unit outward, affine: (E, F, dim); curved: (E, K, dim)
    scale: Array  # area element over volume element, affine: (E, F); curved: (E, K)
    mass: Array  # (E, n) weights of integrals over the mesh
    areas: Array  # (E, F)
    heights: Array  # (E, F) of the cell above each face
    mean_normals: Array  # (E, F, dim) unit


def geometry(mesh: Mesh, element: Element) -> Geometry:
    """Raises AppError: a cell without volume or folded, a warped simplex."""
    corners = mesh.vertices[mesh.cells]
    if mesh.warp is None and (element.simplex or _parallel(corners)):
        return _affine(mesh, element, corners)
    if element.simplex:
        raise AppError(f"only quads and hexes can be curved, not cells of kind {element.cell!r}")
    return _curved(mesh, element, corners)


def _parallel(corners: Array) -> bool:
    """Whether all corners follow from the first and the ones along its axes."""
    count, dim = corners.shape[1:]
    edges = corners[:, [1 << axis for axis in range(dim)]] - corners[:, :1]
    bits = np.array([[corner >> axis & 1 for axis in range(dim)] for corner in range(count)])
    off = np.abs(corners - corners[:, :1] - bits @ edges).max(axis=(1, 2))
    return bool((off <= STRAIGHT * np.abs(edges).max(axis=(1, 2))).all())


def _affine(mesh: Mesh, element: Element, corners: Array) -> Geometry:
    dim = element.dim
    # Corner 1 << axis of a cube, axis + 1 of a simplex, is the first one's neighbour along an axis
    ends = [axis + 1 if element.simplex else 1 << axis for axis in range(dim)]
    tangents = (corners[:, ends] - corners[:, :1]) / 2  # (E, r, x)
    jacobian = np.linalg.det(tangents)
    _check_volume(mesh, jacobian)
    metric = np.linalg.inv(tangents).transpose(0, 2, 1)
    nodes = corners[:, :1] + (element.nodes + 1) @ tangents
    scaled = np.einsum("fr,erd->efd", element.face_normals, metric)
    scale = np.linalg.norm(scaled, axis=2)
    normals = scaled / scale[:, :, None]
    areas = scale * jacobian[:, None] * element.face_weights.sum()
    # The reference cell is 2 high
    return Geometry(nodes, True, metric, jacobian, normals, scale, jacobian[:, None] * element.weights, areas,
                    2 / scale, normals)


def _curved(mesh: Mesh, element: Element, corners: Array) -> Geometry:
    shares = np.stack([np.where(corner, 1 + element.nodes, 1 - element.nodes).prod(axis=1) / 2**element.dim
                       for corner in element.corners], axis=1)
    nodes = shares @ corners
    if mesh.warp is not None:
        nodes = np.asarray(mesh.warp(nodes), np.float64)
        if nodes.shape != (len(corners), *element.nodes.shape):
            raise AppError(f"expected a warp to return points of the shape it gets, (..., {element.dim}), but found "
                           f"{nodes.shape} of {(len(corners), *element.nodes.shape)}")

    def along(x: Array, axis: int) -> Array:
        return _along(element, x, axis)

    tangents = np.stack([along(nodes, axis) for axis in range(element.dim)], axis=2)  # (E, n, r, x)
    jacobian = np.linalg.det(tangents)
    _check_volume(mesh, jacobian.min(axis=1))
    metric = _cross(tangents) if element.dim == 2 else _curl(nodes, tangents, along)
    at_faces = metric[:, element.face_nodes]  # (E, F, m, r, x)
    oriented = np.einsum("fr,efmrd->efmd", element.face_normals, at_faces)
    sizes = np.linalg.norm(oriented, axis=3)
    elements = len(nodes)
    mass = jacobian * element.weights
    areas = sizes @ element.face_weights
    total = np.einsum("efmd,m->efd", oriented, element.face_weights)
    return Geometry(
        nodes, False, metric, jacobian,
        (oriented / sizes[..., None]).reshape(elements, -1, element.dim),
        (sizes / jacobian[:, element.face_nodes]).reshape(elements, -1), mass, areas,
        mass.sum(axis=1)[:, None] / areas, total / np.linalg.norm(total, axis=2, keepdims=True),
    )


def _along(element: Element, x: Array, axis: int) -> Array:
    """The derivative of (E, n, ...) along an axis of the reference cube, whose first axis runs fastest."""
    assert element.line_nodes is not None and element.line_weights is not None
    line = element.line_weights[axis, element.line_nodes[axis, 0]]
    size = len(line)
    result: Array = line @ x.reshape(len(x) * size ** (element.dim - 1 - axis), size, -1)
    return result.reshape(x.shape)


def _cross(tangents: Array) -> Array:
    """(E, n, 2, 2) J d r / d x from the tangents (E, n, r, x)."""
    (xr, yr), (xs, ys) = (tangents[:, :, r].transpose(2, 0, 1) for r in range(2))
    return np.stack([np.stack([ys, -xs], -1), np.stack([-yr, xr], -1)], axis=2)


def _curl(nodes: Array, tangents: Array, along: Callable[[Array, int], Array]) -> Array:
    """(E, n, 3, 3) J d r_i / d x_n = (d_j t_k - d_k t_j) / 2 with t = x_m grad x_l - x_l grad x_m.

    (i, j, k) and (n, m, l) are cyclic. Coordinates are counted from each cell's middle, which loses fewer digits.
    """
    nodes = nodes - nodes.mean(axis=1, keepdims=True)
    result = np.empty_like(tangents)
    for n in range(3):
        m, l_ = (n + 1) % 3, (n + 2) % 3
        turning = nodes[:, :, None, m] * tangents[..., l_] - nodes[:, :, None, l_] * tangents[..., m]  # (E, n, r)
        for i in range(3):
            j, k = (i + 1) % 3, (i + 2) % 3
            result[:, :, i, n] = (along(turning[..., k], j) - along(turning[..., j], k)) / 2
    return result


def _check_volume(mesh: Mesh, jacobian: Array) -> None:
    wrong = np.flatnonzero(~(jacobian > 0))
    if len(wrong):
        point = ", ".join(f"{x:g}" for x in mesh.vertices[mesh.cells[wrong[0]]].mean(axis=0))
        raise AppError(f"{len(wrong)} cells have no volume or are folded, the first, cell {wrong[0]}, around ({point})")
