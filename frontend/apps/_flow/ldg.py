"""Local discontinuous Galerkin: what two neighbours agree on for velocity, temperature and viscous flux.

B. Cockburn and C.-W. Shu, SIAM J. Numer. Anal. 35 (1998) 2440. On each face one side is the first (`side` 1) and the
other the second (-1). With beta = 1/2 values are taken from the second side and fluxes from the first one; with
beta = 0 both are means (F. Bassi and S. Rebay, J. Comput. Phys. 131 (1997) 267). A penalty on jumps, tau viscosity
(order + 1)^2 / height of the smaller cell, is added. On the boundary of the mesh the values are prescribed, the fluxes
are the cell's own, and the penalty is there for any tau.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotato.frontend.apps._flow.functions import Values, dot
from aotato.frontend.apps._flow.gas import Gas

Array = np.ndarray[Any, Any]

BOUNDARY_TAU = 1.0  # the least on boundaries: without a penalty prescribed values would not be felt


@dataclass(frozen=True)
class Weights:
    """Constant tables, of shape (elements, faces): how much of the neighbour enters, and the penalty's factor."""

    value: Array  # u* = u + value (u_outside - u)
    flux: Array  # F* = F + flux (F_outside - F)
    penalty: Array  # of the jump times the viscosity; 1 / length


def weights(side: Array, boundary: Array, height: Array, order: int, beta: float, tau: float) -> Weights:
    """`side` is 1 or -1, `boundary` true on the mesh's boundary, `height` that of the smaller cell at each face."""
    taken = np.where(boundary, max(tau, BOUNDARY_TAU), tau)
    return Weights(np.where(boundary, 1.0, 0.5 + beta * side), np.where(boundary, 0.0, 0.5 - beta * side),
                   taken * (order + 1) ** 2 / height)


def penalty(inner: Sequence[Values], outer: Sequence[Values], factor: Values, gas: Gas) -> list[Values]:
    """What jumps take from each row of the viscous flux through the face; velocity and temperature of both sides."""
    viscosity = 0.5 * (gas.dynamic_viscosity(inner[-1]) + gas.dynamic_viscosity(outer[-1]))
    jumps = [factor * (a - b) for a, b in zip(inner, outer, strict=True)]
    drag = [viscosity * jump for jump in jumps[:-1]]
    mean = [0.5 * (a + b) for a, b in zip(inner[:-1], outer[:-1], strict=True)]
    return [*drag, gas.conductivity(viscosity) * jumps[-1] + dot(drag, mean)]


def numerical_flux(own: Sequence[Values], theirs: Sequence[Values], weight: Values) -> list[Values]:
    """The viscous flux through the face, of each row, without the penalty."""
    return [a + weight * (b - a) for a, b in zip(own, theirs, strict=True)]
