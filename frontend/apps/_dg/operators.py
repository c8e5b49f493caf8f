"""A rank's discontinuous Galerkin operators on pytato arrays.

The formulation is the strong form with nodal fluxes: with summation by parts of its matrices it conserves what the
weak form does. Everything is einsums with constant matrices, and gathers by constant tables, which the fusion passes
look through.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pytato as pt

from aotato.frontend import allreduce, make_distributed_recv, staple_distributed_send, take
from aotato.frontend.apps._dg.domain import Domain

Array = Any  # of pytato: nodal (..., E, n) or face (..., E, K)
Table = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Operators:
    """Made once in an entry; its constants are shared by all its methods."""

    domain: Domain

    @property
    def dim(self) -> int:
        return self.domain.element.dim

    @cached_property
    def coordinates(self) -> tuple[Array, ...]:
        """By axis (E, n)."""
        return tuple(constant(self.domain.nodes[:, :, axis]) for axis in range(self.dim))

    @cached_property
    def face_coordinates(self) -> tuple[Array, ...]:
        """By axis (E, K)."""
        return tuple(constant(self.domain.face_nodes[:, :, axis]) for axis in range(self.dim))

    @cached_property
    def normal(self) -> tuple[Array, ...]:
        """Of unit length, outward; by axis (E, K)."""
        if self.domain.affine:
            return tuple(self.faces(self.domain.normals[:, :, axis]) for axis in range(self.dim))
        return tuple(constant(self.domain.normals[:, :, axis]) for axis in range(self.dim))

    @cached_property
    def scale(self) -> Array:
        """Area element over volume element: (E, K)."""
        return self.faces(self.domain.scale) if self.domain.affine else constant(self.domain.scale)

    @cached_property
    def side(self) -> Array:
        """1.0 or -1.0, opposite on the two sides of a face: (E, K)."""
        return self.faces(self.domain.side)

    @cached_property
    def h_face(self) -> Array:
        """Height of the flatter of both cells above the face: (E, K)."""
        return self.faces(self.domain.h_face)

    def faces(self, values: Table) -> Array:
        """Constants by face, (E, F) of numpy, as (E, K) by face node."""
        return take(constant(values), self._face, axis=1)

    def inside(self, x: Array) -> Array:
        """Values of each face's own element: (..., E, n) -> (..., E, K)."""
        return take(x, self._inner, axis=x.ndim - 1)

    def outside(self, x: Array, ghost: Array | None) -> Array:
        """Values across each face: (V, E, n), ghost (G, V) -> (V, E, K). On boundaries: the own value.

        Without a ghost, faces that another rank lies across have the own value too.
        """
        return self.outside_faces(take(_flat(x), self._outer, axis=1), ghost)

    def outside_faces(self, local: Array, ghost: Array | None) -> Array:
        """`local` (V, E, K), but what other ranks sent, (G, V), where they lie across the face."""
        if ghost is None:
            return local
        return pt.where(self._is_ghost, take(pt.transpose(ghost, (1, 0)), self._ghost, axis=1), local)

    def exchange(self, x: Array, tag: str) -> Array | None:
        """What `outside` needs of other ranks: (V, E, n) -> (G, V); one message a peer. None without peers."""
        return self._exchanged(x, [peer.sends for peer in self.domain.peers], tag)

    def exchange_faces(self, x: Array, tag: str) -> Array | None:
        """The other ranks' own values on common faces: (V, E, K) -> (G, V), for `outside_faces`. None without peers."""
        return self._exchanged(x, [peer.face_sends for peer in self.domain.peers], tag)

    def _exchanged(self, x: Array, sends: Sequence[Table], tag: str) -> Array | None:
        received = []
        for peer, numbers in zip(self.domain.peers, sends, strict=True):
            sent = pt.transpose(take(_flat(x), constant(numbers), axis=1), (1, 0))
            ghost = make_distributed_recv(peer.rank, tag, (peer.receives, x.shape[0]), x.dtype)
            received.append(staple_distributed_send(sent, peer.rank, tag, stapled_to=ghost))
        if len(received) < 2:
            return received[0] if received else None
        return pt.concatenate(received, axis=0)

    def on(self, boundary: str) -> Array | None:
        """Which face nodes lie on it: bool (E, K). None where this rank has none. Raises ValueError: no such name."""
        mask = self._mask(boundary)
        return self.faces(mask) if mask.any() else None

    def select(self, values: Mapping[str, Array], otherwise: Array, spread: Callable[[Table], Array] | None = None
               ) -> Array:
        """`values[name]` (..., E, K) on boundary `name`, `otherwise` elsewhere; `spread` is `faces` of other points."""
        for name, value in values.items():
            mask = self._mask(name)
            if mask.any():
                otherwise = pt.where((spread or self.faces)(mask), value, otherwise)
        return otherwise

    def _mask(self, boundary: str) -> Table:
        found: Table = self.domain.boundary == self.domain.boundaries.index(boundary)
        return found

    def gradient(self, x: Array) -> Array:
        """The gradient inside elements: (V, E, n) -> (dim, V, E, n)."""
        if self.domain.affine:
            return pt.einsum("erd,rvei->dvei", self.metric, self._reference_gradient(x))
        reference = self._reference_gradient(x)
        return pt.einsum("eird,rvei->dvei", self.metric, reference) * self.inverse_jacobian

    def divergence(self, flux: Array) -> Array:
        """The divergence inside elements: (dim, V, E, n) -> (V, E, n), so that integrals are those over faces."""
        if self.domain.affine:
            return self._reference_divergence(pt.einsum("erd,dvei->rvei", self.metric, flux))
        contravariant = pt.einsum("eird,dvei->rvei", self.metric, flux)
        return self._reference_divergence(contravariant) * self.inverse_jacobian

    def lift(self, face: Array) -> Array:
        """Integrals over element faces as nodal values: (..., E, K) -> (..., E, n), area over volume included.

        A conservation law dq/dt + div F = 0 is dq/dt = lift(F . normal - F*) - divergence(F); a gradient with a
        numerical value u* on faces is gradient(u)[d] + lift((u* - u) normal[d]).
        """
        element, scaled = self.domain.element, face * self.scale
        if element.lift is not None:
            axes = "abcd"[: face.ndim - 2]
            return pt.einsum(f"ik,{axes}ek->{axes}ei", self._lift, scaled)
        return _sum(take(scaled, nodes, axis=face.ndim - 1) * weights for nodes, weights in self._lift_along)

    def integral(self, x: Array) -> Array:
        """Over the whole mesh, all ranks: (V, E, n) -> (V,); one allreduce."""
        return allreduce(pt.einsum("ei,vei->v", self._mass, x))

    def _reference_gradient(self, x: Array) -> Array:
        """(dim, V, E, n) derivatives along the reference cell's axes."""
        if self.domain.element.line_nodes is None:
            return pt.einsum("rij,vej->rvei", self._derivative, x)
        return pt.stack([self._along(x, axis) for axis in range(self.dim)], axis=0)

    def _reference_divergence(self, flux: Array) -> Array:
        if self.domain.element.line_nodes is None:
            return pt.einsum("rij,rvej->vei", self._derivative, flux)
        return _sum(self._along(flux[axis], axis) for axis in range(self.dim))

    def _along(self, x: Array, axis: int) -> Array:
        """The derivative of (V, E, n) along one axis of tensor cells.

        A gather of the nodes of each line, rather than a reshape into lines, keeps the element an axis of its own.
        """
        nodes, weights = self._lines[axis]
        return pt.einsum("ib,veib->vei", weights, take(x, nodes, axis=2))

    @cached_property
    def _face(self) -> Array:
        faces, size = self.domain.element.face_nodes.shape
        return constant(np.repeat(np.arange(faces, dtype=np.int32), size))

    @cached_property
    def _inner(self) -> Array:
        return constant(self.domain.element.face_nodes.ravel().astype(np.int32))

    @cached_property
    def _outer(self) -> Array:
        return constant(self.domain.outside)

    @cached_property
    def _ghost(self) -> Array:
        return constant(self.domain.ghost)

    @cached_property
    def _is_ghost(self) -> Array:
        return self.faces(self.domain.is_ghost)

    @cached_property
    def metric(self) -> Array:
        """Affine: (E, dim, dim) d r_i / d x_j; curved: (E, n, dim, dim) J d r_i / d x_j."""
        return constant(self.domain.metric)

    @cached_property
    def inverse_jacobian(self) -> Array:
        """1 / J, (E, n); of curved cells."""
        return constant(1 / self.domain.jacobian)

    @cached_property
    def _mass(self) -> Array:
        return constant(self.domain.mass)

    @cached_property
    def _derivative(self) -> Array:
        return constant(self.domain.element.derivative)

    @cached_property
    def _lines(self) -> list[tuple[Array, Array]]:
        nodes, weights = self.domain.element.line_nodes, self.domain.element.line_weights
        assert nodes is not None and weights is not None
        return [(constant(nodes[axis].astype(np.int32)), constant(weights[axis])) for axis in range(self.dim)]

    @cached_property
    def _lift(self) -> Array:
        return constant(self.domain.element.lift)

    @cached_property
    def _lift_along(self) -> list[tuple[Array, Array]]:
        nodes, weights = self.domain.element.lift_nodes, self.domain.element.lift_weights
        assert nodes is not None and weights is not None
        return [(constant(nodes[:, axis].astype(np.int32)), constant(weights[:, axis])) for axis in range(self.dim)]


def constant(array: Table | None) -> Array:
    """A table as an array of pytato."""
    assert array is not None
    return pt.make_data_wrapper(np.ascontiguousarray(array))


def _flat(x: Array) -> Array:
    """(V, E, n) -> (V, E*n)."""
    return pt.reshape(x, (x.shape[0], x.shape[1] * x.shape[2]))


def _sum(terms: Any) -> Array:
    first, *rest = terms
    for term in rest:
        first = first + term
    return first
