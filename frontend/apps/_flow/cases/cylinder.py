"""Flow past a cylinder of diameter 1 on a mesh from Gmsh, with the physical curves `cylinder` and `farfield`."""

from collections.abc import Mapping, Sequence

from aotato.frontend.apps._flow.boundaries import Boundary, farfield, no_slip
from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.functions import Values
from aotato.frontend.apps._flow.gas import State

DIM = 2
DEFAULTS = {"mesh": "", "re": 100.0, "mach": 0.2, "end": 20.0}


def initial(x: Sequence[Values], flow: Flow) -> State:
    return State(1.0, (1.0, 0.0), flow.pressure)


def boundaries(flow: Flow) -> Mapping[str, Boundary]:
    return {"cylinder": no_slip(), "farfield": farfield(lambda x, t, flow: initial(x, flow))}
