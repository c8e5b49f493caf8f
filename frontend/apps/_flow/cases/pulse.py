"""Acoustic pulse: a round bump of pressure in a gas at rest, which spreads at the speed of sound."""

from collections.abc import Sequence

from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.functions import Values, dot, exp
from aotato.frontend.apps._flow.gas import State

DIM = (2, 3)
DEFAULTS = {"mesh": "box:16", "lengths": "2", "origin": "-1", "physics": "euler", "mach": 1.0, "end": 0.5}
PARAMETERS = {"strength": 0.01, "width": 0.15}  # of the bump, over the pressure at rest; its radius


def initial(x: Sequence[Values], flow: Flow) -> State:
    bump = flow["strength"] * exp(-dot(x, x) / (flow["width"] * flow["width"]))
    pressure = flow.pressure * (1 + bump)
    density = (1 + bump) ** (1 / flow.gas.gamma)
    return State(density, (0.0,) * len(x), pressure)
