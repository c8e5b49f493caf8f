"""A rank's discontinuous Galerkin operators on pytato arrays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aotato.frontend.apps._dg.domain import Domain

Array = Any  # of pytato: nodal (..., E, n) or face (..., E, K)


@dataclass(frozen=True)
class Operators:
    """Made once in an entry; constants are shared by all its methods."""

    domain: Domain

    # Constants: coordinates[d] (E, n), face_coordinates[d] (E, K); normal[d], side, h_face (E, K)

    def inside(self, x: Array) -> Array:
        """Values of each face's own element: (..., E, n) -> (..., E, K)."""
        raise NotImplementedError

    def exchange(self, x: Array, tag: str) -> Array | None:
        """What `outside` needs of other ranks: (V, E, n) -> (G, V); one message a peer. None without peers."""
        raise NotImplementedError

    def outside(self, x: Array, ghost: Array | None) -> Array:
        """Values across each face: (V, E, n), ghost (G, V) -> (V, E, K). On boundaries: some value of `x`."""
        raise NotImplementedError

    def on(self, boundary: str) -> Array | None:
        """Which face nodes lie on it: bool (E, K). None where this rank has none."""
        raise NotImplementedError

    def select(self, values: Mapping[str, Array], otherwise: Array) -> Array:
        """`values[name]` (..., E, K) on boundary `name`, `otherwise` elsewhere."""
        raise NotImplementedError

    def gradient(self, x: Array) -> Array:
        """The gradient inside elements: (V, E, n) -> (dim, V, E, n)."""
        raise NotImplementedError

    def divergence(self, flux: Array) -> Array:
        """The divergence inside elements: (dim, V, E, n) -> (V, E, n), so that integrals are those over faces."""
        raise NotImplementedError

    def lift(self, face: Array) -> Array:
        """Integrals over element faces as nodal values: (..., E, K) -> (..., E, n), area over volume included.

        A conservation law dq/dt + div F = 0 is dq/dt = lift(F . normal - F*) - divergence(F); a gradient with a
        numerical value u* on faces is gradient(u)[d] + lift((u* - u) normal[d]).
        """
        raise NotImplementedError

    def integral(self, x: Array) -> Array:
        """Over the whole mesh, all ranks: (V, E, n) -> (V,); one allreduce."""
        raise NotImplementedError
