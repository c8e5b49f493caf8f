"""Double shear layer that rolls up into vortices, in a periodic box of edge 1.

D. L. Brown and M. L. Minion, J. Comput. Phys. 122 (1995) 165.
"""

from collections.abc import Sequence

from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.functions import Values, sin, tanh
from aotato.frontend.apps._flow.gas import State

DIM = (2, 3)
DEFAULTS = {"mesh": "box:24", "lengths": "1", "re": 10000.0, "mach": 0.2, "end": 1.0}
PARAMETERS = {"steepness": 30.0, "strength": 0.05}  # of the layers, over the box's edge; of what disturbs them

WAVE = 6.283185307179586


def initial(x: Sequence[Values], flow: Flow) -> State:
    # One formula for both layers, at y = 1/4 and 3/4, that is smooth and periodic
    along = tanh(flow["steepness"] / WAVE * sin(WAVE * (x[1] - 0.25)))
    across = flow["strength"] * sin(WAVE * (x[0] + 0.25))
    return flow.gas.at(flow.temperature, (along, across, *[0.0] * len(x[2:])), flow.pressure)
