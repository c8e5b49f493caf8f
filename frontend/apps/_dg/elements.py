"""Reference cells of order 1 to 7 with nodes, faces and matrices; bases and quadratures come from modepy.

Simplices have warp-and-blend nodes (Warburton 2006) and full matrices; quads and hexes have tensor products of
Gauss-Lobatto-Legendre nodes with the quadrature of those nodes as mass (Kopriva 2009), so that derivatives and lifts
act along one axis. In both, the nodes of a face are nodes of the cell.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np

from aotato.frontend import AppError

Array = np.ndarray[Any, Any]

DIMENSIONS = {"tri": 2, "quad": 2, "tet": 3, "hex": 3}
SIMPLICES = ("tri", "tet")
VTK_NAMES = {"tri": "triangle", "quad": "quad", "tet": "tet", "hex": "hex"}  # what `View` calls them
HIGHEST_ORDER = 7


@dataclass(frozen=True)
class Element:
    """A reference cell: the simplex or cube with corners at -1 and 1.

    All faces list their nodes in one order: node j of any face has place `face_lattice[j]` with respect to the face's
    corners. A face is the image of one reference face, the simplex or cube of one dimension less.
    """

    cell: str  # "tri", "quad", "tet" or "hex"
    order: int
    dim: int
    corners: Array  # (corners, dim) integers 0 and 1; those of quads and hexes count along the first axis first
    nodes: Array  # (n, dim)
    lattice: Array  # (n, dim) integer coordinates 0..order, as `vtk_node_order` takes them
    weights: Array  # (n,) of integrals over the cell: exact for polynomials of the order
    mass: Array  # (n, n)
    derivative: Array  # (dim, n, n)
    line_nodes: Array | None  # tensor cells: (dim, n, order + 1) nodes of the line through a node, for each axis
    line_weights: Array | None  # tensor cells: (dim, n, order + 1) derivative along it
    face_corners: Array  # (F, corners of a face); simplices: face f lies opposite to corner f; others: axis f // 2
    face_lattice: Array  # (m, dim - 1) integer coordinates on the reference face
    face_nodes: Array  # (F, m)
    face_normals: Array  # (F, dim) outward, times the ratio of surface to reference face
    face_mass: Array  # (m, m) of the reference face
    face_weights: Array  # (m,) of integrals over it
    lift: Array | None  # simplices: (n, K) inverse mass times masses of the faces
    lift_nodes: Array | None  # tensor cells: (n, dim) the face node at a node, for each axis; any in range elsewhere
    lift_weights: Array | None  # tensor cells: (n, dim) 1 / weight, zero where the node is on no face of the axis

    @property
    def simplex(self) -> bool:
        return self.cell in SIMPLICES


@functools.cache
def element(cell: str, order: int) -> Element:
    """Raises AppError: an unknown cell, an order out of range."""
    if cell not in DIMENSIONS:
        raise AppError(f"cells are one of {', '.join(DIMENSIONS)}, not {cell!r}")
    if not 1 <= order <= HIGHEST_ORDER:
        raise AppError(f"order must be from 1 to {HIGHEST_ORDER}, not {order}")
    return _simplex(cell, order) if cell in SIMPLICES else _cube(cell, order)


def face_corners(cell: str) -> Array:
    """(F, corners of a face): face f of a simplex lies opposite to corner f, of a cube at end f % 2 of axis f // 2."""
    dim = DIMENSIONS[cell]
    if cell in SIMPLICES:
        return np.array([[corner for corner in range(dim + 1) if corner != face] for face in range(dim + 1)])
    corners = _cube_corners(dim)
    return np.array([np.flatnonzero(corners[:, axis] == end) for axis, end in product(range(dim), (0, 1))])


def _cube_corners(dim: int) -> Array:
    return np.array(list(product((0, 1), repeat=dim)))[:, ::-1]


def interpolation(element: Element, points: Array) -> Array:
    """(points, n): values at `points` (points, dim) of the reference cell from nodal values."""
    import modepy

    functions = _basis(element.cell, element.order).functions
    result: Array = modepy.resampling_matrix(functions, points.T, element.nodes.T)
    return result


def face_interpolation(element: Element, points: Array) -> Array:
    """(points, m): values at `points` (points, dim - 1) of the reference face from those at a face's nodes."""
    import modepy

    functions = _basis(element.cell, element.order, 1).functions
    result: Array = modepy.resampling_matrix(functions, points.T, _face_places(element).T)
    return result


def quadrature(cell: str, degree: int, faces: int = 0) -> tuple[Array, Array]:
    """Points (points, dim) and weights (points,) of the reference cell, exact for polynomials of the degree.

    With `faces` 1 they are those of the reference face, in no direction preferred to another.
    """
    import modepy

    dim = DIMENSIONS[cell] - faces
    if cell in SIMPLICES and dim > 1:
        rule = modepy.quadrature_for_space(modepy.PN(dim, degree), modepy.Simplex(dim))
    else:
        rule = modepy.LegendreGaussTensorProductQuadrature(degree // 2, dim)
    return np.ascontiguousarray(rule.nodes.T), rule.weights


def _basis(cell: str, order: int, faces: int = 0) -> Any:
    """An orthonormal basis of modepy; with `faces` 1 on the reference face."""
    import modepy

    dim = DIMENSIONS[cell] - faces
    shape = modepy.Simplex(dim) if cell in SIMPLICES else modepy.Hypercube(dim)
    return modepy.orthonormal_basis_for_space(modepy.space_for_shape(shape, order), shape)


def _face_places(element: Element) -> Array:
    """(m, dim - 1) the places of any face's nodes on the reference face."""
    # The first face of a cube is across its first axis; that of a simplex opposite to its first corner
    places: Array = element.nodes[element.face_nodes[0]][:, 1:]
    return places


def _simplex(cell: str, order: int) -> Element:
    import modepy

    dim = DIMENSIONS[cell]
    basis = _basis(cell, order)
    lattice = np.array(modepy.node_tuples_for_space(modepy.PN(dim, order)))
    nodes = modepy.warp_and_blend_nodes(dim, order, [tuple(row) for row in lattice.tolist()]).T
    corners = np.vstack([np.zeros((1, dim), int), np.eye(dim, dtype=int)])
    faces = face_corners(cell)
    # Barycentric integers; node j of every face has the same ones with respect to the face's corners
    shares = np.column_stack([order - lattice.sum(axis=1), lattice])
    places = [tuple(shares[node, faces[0]][1:]) for node in np.flatnonzero(shares[:, 0] == 0)]
    place_of = [{tuple(shares[node, own][1:]): node for node in np.flatnonzero(shares[:, face] == 0)}
                for face, own in enumerate(faces)]
    face_nodes = np.array([[known[place] for place in places] for known in place_of])
    vandermonde = modepy.vandermonde(basis.functions, nodes.T)
    inverse_mass = vandermonde @ vandermonde.T
    mass = np.linalg.inv(inverse_mass)
    derivative = modepy.differentiation_matrices(basis.functions, basis.gradients, nodes.T)
    face_mass = _face_mass(order, nodes, faces, face_nodes)
    lift = np.concatenate([inverse_mass[:, on] @ face for on, face in zip(face_nodes, face_mass, strict=True)], axis=1)
    return Element(
        cell, order, dim, corners, np.ascontiguousarray(nodes), lattice, mass.sum(axis=1), mass,
        np.stack([_derivative(matrix) for matrix in derivative]), None, None, faces,
        np.array(places).reshape(-1, dim - 1), face_nodes, np.vstack([np.ones((1, dim)), -np.eye(dim)]),
        face_mass[0], face_mass[0].sum(axis=1), lift, None, None,
    )


def _face_mass(order: int, nodes: Array, faces: Array, face_nodes: Array) -> Array:
    """(F, m, m) mass matrices of the reference face at the places of each face's nodes."""
    import modepy

    dim = nodes.shape[1]
    space = modepy.PN(dim - 1, order)
    basis = modepy.orthonormal_basis_for_space(space, modepy.Simplex(dim - 1))
    shares = np.column_stack([1 - (1 + nodes).sum(axis=1) / 2, (1 + nodes) / 2])  # barycentric
    masses = []
    for own, on in zip(faces, face_nodes, strict=True):
        places = 2 * shares[np.ix_(on, own[1:])] - 1
        vandermonde = modepy.vandermonde(basis.functions, places.T)
        masses.append(np.linalg.inv(vandermonde @ vandermonde.T))
    return np.stack(masses)


def _cube(cell: str, order: int) -> Element:
    dim = DIMENSIONS[cell]
    places, weights, line = _lobatto(order)
    lattice = np.array(list(product(range(order + 1), repeat=dim)))[:, ::-1]  # the first axis runs fastest
    faces = list(product(range(dim), (0, 1)))
    face_nodes = np.array([np.flatnonzero(lattice[:, axis] == end * order) for axis, end in faces])
    volume = weights[lattice].prod(axis=1)
    face_lattice = lattice[face_nodes[0]][:, 1:]
    line_nodes = np.stack([_lines(lattice, axis) for axis in range(dim)])
    line_weights = np.stack([line[lattice[:, axis]] for axis in range(dim)])
    derivative = np.zeros((dim, len(lattice), len(lattice)))
    np.put_along_axis(derivative, line_nodes, line_weights, axis=2)
    lift_nodes, lift_weights = _sparse_lift(lattice, face_nodes, weights[0])
    face_weights = weights[face_lattice].prod(axis=1)
    return Element(
        cell, order, dim, _cube_corners(dim), places[lattice], lattice, volume, np.diag(volume), derivative,
        line_nodes, line_weights, face_corners(cell), face_lattice, face_nodes,
        np.array([(2 * end - 1) * np.eye(dim)[axis] for axis, end in faces]), np.diag(face_weights), face_weights,
        None, lift_nodes, lift_weights,
    )


def _lobatto(order: int) -> tuple[Array, Array, Array]:
    """Gauss-Lobatto-Legendre nodes, weights and derivative matrix, odd and even to the last bit."""
    import modepy
    from modepy.quadrature.jacobi_gauss import legendre_gauss_lobatto_nodes

    nodes = np.asarray(legendre_gauss_lobatto_nodes(order)).ravel()
    nodes = (nodes - nodes[::-1]) / 2
    legendre = np.polynomial.legendre.legval(nodes, np.eye(order + 1)[order])
    weights = 2 / (order * (order + 1) * legendre**2)
    weights = (weights + weights[::-1]) / 2
    basis = modepy.orthonormal_basis_for_space(modepy.PN(1, order), modepy.Simplex(1))
    (line,) = modepy.differentiation_matrices(basis.functions, basis.gradients, nodes.reshape(1, -1))
    return nodes, weights, _derivative((line - line[::-1, ::-1]) / 2)


def _derivative(matrix: Array) -> Array:
    """Rows that sum to zero: a constant has no derivative, whatever rounding made of the matrix."""
    result: Array = matrix - np.diag(matrix.sum(axis=1))
    return result


def _number(lattice: Array, order: int) -> Array:
    """The node at an integer place (..., dim); the first axis runs fastest."""
    result: Array = (lattice * (order + 1) ** np.arange(lattice.shape[-1])).sum(axis=-1)
    return result


def _lines(lattice: Array, axis: int) -> Array:
    """(n, order + 1) the nodes of the line through each node along an axis."""
    order = int(lattice.max())
    places = np.repeat(lattice[:, None], order + 1, axis=1)
    places[..., axis] = np.arange(order + 1)
    return _number(places, order)


def _sparse_lift(lattice: Array, face_nodes: Array, end_weight: float) -> tuple[Array, Array]:
    order, dim = int(lattice.max()), lattice.shape[1]
    faces, size = face_nodes.shape
    on_face = np.full((faces, len(lattice)), -1)
    for face, nodes in enumerate(face_nodes):
        on_face[face, nodes] = face * size + np.arange(size)
    lift_nodes, lift_weights = np.empty((len(lattice), dim), int), np.zeros((len(lattice), dim))
    for axis in range(dim):
        # Off the faces, the node that the line through it has on the nearer one
        near = 2 * axis + (2 * lattice[:, axis] > order)
        foot = lattice.copy()
        foot[:, axis] = np.where(near % 2, order, 0)
        lift_nodes[:, axis] = on_face[near, _number(foot, order)]
        lift_weights[:, axis] = np.where((lattice[:, axis] == 0) | (lattice[:, axis] == order), 1 / end_weight, 0)
    return lift_nodes, lift_weights
