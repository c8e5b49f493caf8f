"""Taylor-Green vortex in a periodic box of edge 2 pi: in 2D it decays, in 3D it breaks up.

G. I. Taylor and A. E. Green, Proc. R. Soc. A 158 (1937) 499; compressible as in the International Workshops on
High-Order CFD Methods (case C3.5), with uniform temperature.
"""

from collections.abc import Sequence

from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.functions import Values, cos, sin
from aotato.frontend.apps._flow.gas import State

DIM = (2, 3)
DEFAULTS = {"mesh": "box:16", "lengths": "2pi", "re": 100.0, "mach": 0.1, "end": 1.0}


def initial(x: Sequence[Values], flow: Flow) -> State:
    if len(x) == 2:
        velocity = [sin(x[0]) * cos(x[1]), -cos(x[0]) * sin(x[1])]
        pressure = flow.pressure + (cos(2 * x[0]) + cos(2 * x[1])) / 4
    else:
        velocity = [sin(x[0]) * cos(x[1]) * cos(x[2]), -cos(x[0]) * sin(x[1]) * cos(x[2]), 0.0]
        pressure = flow.pressure + (cos(2 * x[0]) + cos(2 * x[1])) * (cos(2 * x[2]) + 2) / 16
    return flow.gas.at(flow.temperature, velocity, pressure)
