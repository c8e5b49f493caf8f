"""An ideal gas: states, and what follows from them.

Conserved variables are, in this order, density, momentum (one an axis), total energy per volume. All functions are
pointwise, on arrays of one shape or on numbers, of numpy or pytato.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aotato.frontend.apps._flow.functions import Values, dot, sqrt


@dataclass(frozen=True)
class State:
    """Density, velocity (one an axis) and pressure."""

    density: Values
    velocity: tuple[Values, ...]
    pressure: Values


@dataclass(frozen=True)
class Gas:
    """p = density gas_constant T, with constant ratio of specific heats and Prandtl number.

    The viscosity is constant, or follows Sutherland (Phil. Mag. 36, 1893): mu = viscosity (T/T0)^1.5 (T0 + S)/(T + S).
    """

    gamma: float
    gas_constant: float
    prandtl: float
    viscosity: Values  # at the temperature T0 = `reference`
    reference: Values = 1.0
    sutherland: Values | None = None  # S; None: constant viscosity

    @property
    def heat_capacity(self) -> float:
        """At constant pressure, per mass."""
        return self.gamma * self.gas_constant / (self.gamma - 1)

    def state(self, conserved: Sequence[Values]) -> State:
        density, *momentum, energy = conserved
        velocity = tuple(m / density for m in momentum)
        return State(density, velocity, (self.gamma - 1) * (energy - 0.5 * dot(momentum, velocity)))

    def conserved(self, state: State) -> list[Values]:
        momentum = [state.density * u for u in state.velocity]
        return [state.density, *momentum, self.energy(state)]

    def energy(self, state: State) -> Values:
        """Internal and kinetic, per volume."""
        kinetic = 0.5 * state.density * dot(state.velocity, state.velocity)
        return state.pressure / (self.gamma - 1) + kinetic

    def temperature(self, state: State) -> Values:
        return state.pressure / (self.gas_constant * state.density)

    def at(self, temperature: Values, velocity: Sequence[Values], pressure: Values) -> State:
        """The state of that temperature and pressure."""
        return State(pressure / (self.gas_constant * temperature), tuple(velocity), pressure)

    def sound_speed(self, state: State) -> Values:
        return sqrt(self.gamma * state.pressure / state.density)

    def dynamic_viscosity(self, temperature: Values) -> Values:
        if self.sutherland is None:
            return self.viscosity
        ratio = temperature / self.reference
        at_reference = self.reference + self.sutherland
        return self.viscosity * ratio * sqrt(ratio) * at_reference / (temperature + self.sutherland)

    def conductivity(self, viscosity: Values) -> Values:
        """Of heat, where the dynamic viscosity is that."""
        return viscosity * (self.heat_capacity / self.prandtl)
