"""Viscous stress and heat flux of a Newtonian gas without bulk viscosity (Stokes), after Fourier's law.

What is differentiated is velocity and temperature: `gradient[d]` holds their derivatives along axis d, velocity first.
Viscous fluxes have a row for each component of momentum and one for the energy; mass has none.
"""

from __future__ import annotations

from collections.abc import Sequence

from aotato.frontend.apps._flow.functions import Values, dot
from aotato.frontend.apps._flow.gas import Gas, State


def differentiated(state: State, gas: Gas) -> list[Values]:
    """Velocity and temperature."""
    return [*state.velocity, gas.temperature(state)]


def viscous_flux(state: State, gradient: Sequence[Sequence[Values]], gas: Gas) -> list[list[Values]]:
    """What stress and heat flux bring along each axis: [axis][row]."""
    dim = len(state.velocity)
    viscosity = gas.dynamic_viscosity(gas.temperature(state))
    conductivity = gas.conductivity(viscosity)
    dilatation = dot([gradient[d][d] for d in range(dim)], [2 / 3] * dim)
    rows = []
    for d in range(dim):
        stress = [viscosity * (gradient[d][i] + gradient[i][d]) if i != d else
                  viscosity * (2 * gradient[d][d] - dilatation) for i in range(dim)]
        rows.append([*stress, dot(stress, state.velocity) + conductivity * gradient[d][dim]])
    return rows
