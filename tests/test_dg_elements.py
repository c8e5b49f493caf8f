"""Reference cells: nodes, derivatives, masses, lifts of every kind and order."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from aotato.frontend import vtk_node_order
from aotato.frontend.apps._dg.elements import (
    DIMENSIONS,
    HIGHEST_ORDER,
    VTK_NAMES,
    Element,
    element,
    interpolation,
    quadrature,
)

Array = np.ndarray[Any, Any]
ALL = list(product(DIMENSIONS, range(1, HIGHEST_ORDER + 1)))
pytestmark = pytest.mark.parametrize(("cell", "order"), ALL)


def monomials(el: Element, points: Array, degree: int) -> tuple[Array, Array]:
    """(points, k) values and (points, k, dim) gradients of all monomials that the cell's polynomials hold."""
    powers = np.array([p for p in product(range(degree + 1), repeat=el.dim) if not el.simplex or sum(p) <= degree])
    values = (points[:, None] ** powers).prod(axis=2)
    gradients = []
    for axis in range(el.dim):
        lowered = np.maximum(powers - np.eye(el.dim, dtype=int)[axis], 0)
        gradients.append(powers[:, axis] * (points[:, None] ** lowered).prod(axis=2))
    return values, np.stack(gradients, axis=-1)


def exact_integrals(el: Element, degree: int) -> Array:
    points, weights = quadrature(el.cell, degree)
    return np.asarray(weights @ monomials(el, points, degree)[0])


def lift_matrix(el: Element) -> Array:
    """(n, K), also of tensor cells."""
    if el.lift is not None:
        return el.lift
    full = np.zeros((len(el.nodes), el.face_nodes.size))
    for axis in range(el.dim):
        full[np.arange(len(el.nodes)), el.lift_nodes[:, axis]] += el.lift_weights[:, axis]
    return full


def test_derivatives_of_polynomials_are_exact(cell, order):
    el = element(cell, order)
    values, gradients = monomials(el, el.nodes, order)
    for axis in range(el.dim):
        assert np.abs(el.derivative[axis] @ values - gradients[..., axis]).max() < 1e-12
        assert np.abs(el.derivative[axis].sum(axis=1)).max() < 1e-14


def test_weights_integrate_polynomials(cell, order):
    el = element(cell, order)
    assert np.abs(el.weights @ monomials(el, el.nodes, order)[0] - exact_integrals(el, order)).max() < 1e-13
    np.testing.assert_allclose(el.mass.sum(axis=1), el.weights, atol=1e-14)


def test_interpolation_meets_polynomials(cell, order):
    el = element(cell, order)
    points = np.random.default_rng(0).uniform(-1, 0, (9, el.dim))
    values = interpolation(el, points) @ monomials(el, el.nodes, order)[0]
    assert np.abs(values - monomials(el, points, order)[0]).max() < 1e-12


def test_parts_are_summed(cell, order):
    """Mass times derivative plus its transpose is the integral over faces: conservation and stability rest on it."""
    el = element(cell, order)
    size = el.face_nodes.shape[1]
    restriction = np.eye(len(el.nodes))[el.face_nodes.ravel()]
    for axis in range(el.dim):
        volume = el.mass @ el.derivative[axis]
        faces = el.mass @ lift_matrix(el) @ (np.repeat(el.face_normals[:, axis], size)[:, None] * restriction)
        assert np.abs(volume + volume.T - faces).max() < 1e-13


def test_faces_are_images_of_one_reference_face(cell, order):
    """Node j of a face has the same place between the face's corners on all faces, and lies on the face."""
    el = element(cell, order)
    corners = 2.0 * el.corners - 1
    reference = el.nodes[el.face_nodes[0]]
    own = corners[el.face_corners[0]]
    steps = 2 if el.dim == 3 else 1
    places = np.linalg.lstsq((own[1 : steps + 1] - own[0]).T, (reference - own[0]).T, rcond=None)[0].T
    for face, nodes in enumerate(el.face_nodes):
        ends = corners[el.face_corners[face]]
        np.testing.assert_allclose(el.nodes[nodes], ends[0] + places @ (ends[1 : steps + 1] - ends[0]), atol=1e-14)
        assert len(set(nodes.tolist())) == len(nodes)


def test_normals_point_outward(cell, order):
    el = element(cell, order)
    middle = el.nodes.mean(axis=0)
    for normal, nodes in zip(el.face_normals, el.face_nodes, strict=True):
        along = (el.nodes[nodes] - middle) @ normal
        assert along.min() > 0.1
        np.testing.assert_allclose(along, along[0], atol=1e-13)


def test_the_drawing_knows_the_nodes(cell, order):
    el = element(cell, order)
    assert len(vtk_node_order(VTK_NAMES[cell], el.lattice)) == len(el.nodes)
