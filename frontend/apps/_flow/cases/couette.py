"""Couette flow between a wall at rest and one that moves with speed 1, both of the reference temperature: exact.

Velocity is linear and temperature a parabola, from friction: F. M. White, Viscous Fluid Flow (1991), section 3-2.
"""

from collections.abc import Mapping, Sequence

from aotato.frontend.apps._flow.boundaries import Boundary, no_slip
from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.functions import Values
from aotato.frontend.apps._flow.gas import State

DIM = (2, 3)
DEFAULTS = {"mesh": "box:4", "lengths": "1", "periodic": "x,z", "re": 10.0, "mach": 0.5, "end": 1.0}


def exact(x: Sequence[Values], t: Values, flow: Flow) -> State:
    height = x[1] / flow.lengths[1]
    heated = 0.5 * flow.gas.prandtl / flow.gas.heat_capacity * height * (1 - height)
    velocity = (height, *[0.0] * len(x[1:]))
    return flow.gas.at(flow.temperature + heated, velocity, flow.pressure)


def boundaries(flow: Flow) -> Mapping[str, Boundary]:
    moving = (1.0, *[0.0] * (len(flow.lengths) - 1))
    return {"y-": no_slip(flow.temperature), "y+": no_slip(flow.temperature, moving)}
