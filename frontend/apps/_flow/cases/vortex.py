"""Isentropic vortex that is carried across a periodic box: an exact solution of the Euler equations.

C.-W. Shu, in: Advanced Numerical Approximation of Nonlinear Hyperbolic Equations (1998), p. 325; the mean flow has
speed 1 along the diagonal.
"""

from collections.abc import Sequence

from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.functions import Values, arctan2, cos, exp, sin
from aotato.frontend.apps._flow.gas import State

DIM = (2, 3)
DEFAULTS = {"mesh": "box:16", "lengths": "16", "origin": "-8", "physics": "euler", "mach": 0.5, "end": 4.0}
PARAMETERS = {"strength": 0.5}  # the largest swirl, at a distance of 1


def exact(x: Sequence[Values], t: Values, flow: Flow) -> State:
    drift = [0.8, 0.6, 0.0][: len(x)]
    # In a frame that moves along, the vortex stands in the middle of the box and its nearest image counts
    place = [_nearest(a - u * t, length) for a, u, length in zip(x, drift, flow.lengths, strict=True)]
    bell = exp(0.5 * (1 - place[0] * place[0] - place[1] * place[1]))
    swirl = flow["strength"] * bell
    # T falls inside so that the pressure gradient holds the swirl, at constant p / density^gamma
    heat = flow.gas.heat_capacity
    temperature = flow.temperature - 0.5 * swirl * swirl / heat
    ratio = temperature / flow.temperature
    density = ratio ** (1 / (flow.gas.gamma - 1))
    velocity = (drift[0] - swirl * place[1], drift[1] + swirl * place[0], *[0.0] * len(x[2:]))
    return State(density, velocity, density * flow.gas.gas_constant * temperature)


def _nearest(distance: Values, length: float) -> Values:
    """To the nearest of periodic images."""
    turn = 6.283185307179586 / length
    return arctan2(sin(turn * distance), cos(turn * distance)) / turn
