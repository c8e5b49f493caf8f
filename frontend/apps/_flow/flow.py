"""What a case is computed with: the gas, the reference state and the case's parameters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from aotato.frontend.apps._flow.functions import Values
from aotato.frontend.apps._flow.gas import Gas


@dataclass(frozen=True)
class Flow:
    """Reference density, velocity and length are 1; the reference pressure follows from the Mach number.

    `flow["strength"]` is the parameter `strength` of the case. Numbers are numpy's or, within an entry, pytato's.
    """

    gas: Gas
    mach: Values
    lengths: tuple[float, ...]  # of the box; () for a mesh from a file
    parameters: Mapping[str, Values]

    def __getitem__(self, name: str) -> Values:
        return self.parameters[name]

    @property
    def pressure(self) -> Values:
        """Of the reference state: the speed of sound there is 1 / mach."""
        return reference_pressure(self.gas.gamma, self.mach)

    @property
    def temperature(self) -> Values:
        """Of the reference state, whose density is 1."""
        return self.pressure / self.gas.gas_constant


def reference_pressure(gamma: float, mach: Values) -> Values:
    return 1 / (gamma * mach * mach)
