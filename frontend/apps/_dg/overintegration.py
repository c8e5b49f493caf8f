"""Fluxes integrated by more points than a cell has nodes, so that products of polynomials do not alias.

States are interpolated to quadrature points of cells and faces, fluxes are computed there and tested with the basis:
the weak form, dq/dt = inverse mass (integral of F . gradient of the basis - integral over faces of F* times the basis);
R. M. Kirby and G. E. Karniadakis, J. Comput. Phys. 191 (2003) 249. On curved cells metric terms are those of the nodes,
interpolated: as polynomials they have no divergence either, so that a uniform state stays uniform.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytato as pt

from aotato.frontend import take
from aotato.frontend.apps._dg import elements
from aotato.frontend.apps._dg.operators import Operators, constant

Array = Any  # of pytato
Table = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Rule:
    """Of a reference cell with n nodes, m a face: a points of the cell, b of each face, ordered as the face's nodes."""

    values: Table  # (a, n) from nodal values
    tests: Table  # (dim, n, a) inverse mass times derivatives of the basis times weights
    traces: Table  # (b, m) from a face's nodal values
    projection: Table  # (m, b) to the face's nodal values that the nodes' own mass tests alike


@functools.cache
def rule(cell: str, order: int, degree: int) -> Rule:
    """Exact for polynomials of the degree."""
    element = elements.element(cell, order)
    points, weights = elements.quadrature(cell, degree)
    values = elements.interpolation(element, points)
    weighted = values @ element.derivative * weights[:, np.newaxis]
    face_points, face_weights = elements.quadrature(cell, degree, faces=1)
    traces = elements.face_interpolation(element, face_points)
    return Rule(values, np.stack([np.linalg.solve(element.mass, slope.T) for slope in weighted]), traces,
                np.linalg.solve(element.face_mass, traces.T * face_weights))


@dataclass(frozen=True)
class Overintegration:
    """Operators with L = F b face points instead of K face nodes, a points instead of n nodes an element."""

    ops: Operators
    degree: int

    @cached_property
    def normal(self) -> tuple[Array, ...]:
        """Of unit length, outward; by axis (E, L)."""
        domain = self.ops.domain
        if domain.affine:
            return tuple(self.faces(domain.normals[:, :, axis]) for axis in range(self.ops.dim))
        return tuple(constant(normal) for normal in np.moveaxis(self._area / self._size[..., np.newaxis], 2, 0))

    @cached_property
    def face_coordinates(self) -> tuple[Array, ...]:
        """By axis (E, L)."""
        return tuple(constant(x) for x in np.moveaxis(self._interpolated(self.ops.domain.face_nodes), 2, 0))

    def faces(self, values: Table) -> Array:
        """Constants by face, (E, F) of numpy, as (E, L) by face point."""
        return take(constant(values), self._face, axis=1)

    def select(self, values: Mapping[str, Array], otherwise: Array) -> Array:
        """`values[name]` (..., E, L) on boundary `name`, `otherwise` elsewhere."""
        return self.ops.select(values, otherwise, self.faces)

    def values(self, x: Array) -> Array:
        """At the points of cells: (V, E, n) -> (V, E, a)."""
        return pt.einsum("ai,vei->vea", self._values, x)

    def traces(self, face: Array) -> Array:
        """At the points of faces: (V, E, K) -> (V, E, L)."""
        nodes, weights = self._traces
        return pt.einsum("lj,velj->vel", weights, take(face, nodes, axis=2))

    def rate(self, flux: Array, through: Array) -> Array:
        """What a flux (dim, V, E, a) in cells and its numerical one through faces, (V, E, L), change: (V, E, n)."""
        points, weights = self._projection
        domain = self.ops.domain
        if domain.affine:
            contravariant = pt.einsum("erd,dvea->rvea", self.ops.metric, flux)
            inside = pt.einsum("ria,rvea->vei", self._tests, contravariant)
            return inside - self.ops.lift(pt.einsum("kb,vekb->vek", weights, take(through, points, axis=2)))
        contravariant = pt.einsum("eard,dvea->rvea", self._metric, flux)
        inside = pt.einsum("ria,rvea->vei", self._tests, contravariant) * self.ops.inverse_jacobian
        scaled = take(through * constant(self._size), points, axis=2)
        return inside - self.ops.lift(pt.einsum("kb,vekb->vek", weights, scaled) * constant(1 / self._node_size))

    @cached_property
    def _rule(self) -> Rule:
        element = self.ops.domain.element
        return rule(element.cell, element.order, self.degree)

    @cached_property
    def _face(self) -> Array:
        count, points = len(self.ops.domain.element.face_nodes), len(self._rule.traces)
        return constant(np.repeat(np.arange(count, dtype=np.int32), points))

    @cached_property
    def _values(self) -> Array:
        return constant(self._rule.values)

    @cached_property
    def _tests(self) -> Array:
        return constant(self._rule.tests)

    @cached_property
    def _traces(self) -> tuple[Array, Array]:
        """(L, m) face nodes, and weights."""
        return self._by_face(self._rule.traces)

    @cached_property
    def _projection(self) -> tuple[Array, Array]:
        """(K, b) face points, and weights."""
        return self._by_face(self._rule.projection)

    def _by_face(self, matrix: Table) -> tuple[Array, Array]:
        count = len(self.ops.domain.element.face_nodes)
        rows, columns = matrix.shape
        places = np.repeat(np.arange(count * columns, dtype=np.int32).reshape(count, 1, columns), rows, axis=1)
        return constant(places.reshape(-1, columns)), constant(np.tile(matrix, (count, 1)))

    def _interpolated(self, values: Table) -> Table:
        """Tables (E, K, d) at face nodes as (E, L, d) at face points."""
        count, nodes, width = len(self.ops.domain.element.face_nodes), self._rule.traces.shape[1], values.shape[2]
        found = self._rule.traces @ values.reshape(len(values), count, nodes, width)
        return found.reshape(len(values), -1, width)

    @cached_property
    def _metric(self) -> Array:
        """Curved: (E, a, dim, dim) J d r_i / d x_j."""
        return constant(np.einsum("ai,eird->eard", self._rule.values, self.ops.domain.metric))

    @cached_property
    def _node_size(self) -> Table:
        """Curved: (E, K) area element at face nodes."""
        domain = self.ops.domain
        jacobian = domain.jacobian[:, domain.element.face_nodes.ravel()]
        size: Table = domain.scale * jacobian
        return size

    @cached_property
    def _area(self) -> Table:
        """Curved: (E, L, dim) normals as long as the area element."""
        return self._interpolated(self.ops.domain.normals * self._node_size[..., np.newaxis])

    @cached_property
    def _size(self) -> Table:
        """Curved: (E, L) area element."""
        size: Table = np.linalg.norm(self._area, axis=2)
        return size
