"""Compressible Navier-Stokes and Euler equations by discontinuous Galerkin methods, on triangles, quads, tets, hexes.

The state `q` is one array (variables, elements, nodes): density, momentum along each axis, total energy per volume.
A step is five calls of `stage`. What the entries share is in `_dg` (elements, meshes, operators on a rank's piece) and
`_flow` (gas, fluxes, boundaries, cases); docs/cns.md tells how to use the app and how to write a case.
"""

from __future__ import annotations

from typing import Any

import pytato as pt

from aotato.frontend import Call, Every, Plan, Scalar, View, array_input
from aotato.frontend.apps._flow import measures, problem
from aotato.frontend.apps._flow.boundaries import (
    Boundary,
    farfield,
    no_slip,
    prescribed,
    slip,
    subsonic_inflow,
    subsonic_outflow,
    supersonic_inflow,
    supersonic_outflow,
)
from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.functions import (
    absolute,
    arctan2,
    cos,
    dot,
    exp,
    log,
    maximum,
    minimum,
    sin,
    sqrt,
    tanh,
)
from aotato.frontend.apps._flow.gas import State
from aotato.frontend.apps._flow.options import OPTIONS, settle
from aotato.frontend.apps._flow.problem import Problem
from aotato.frontend.apps._flow.runge_kutta import STAGES

# The app, and the words that cases are written with
__all__ = (
    "ENTRIES",
    "OPTIONS",
    "Boundary",
    "Flow",
    "State",
    "absolute",
    "arctan2",
    "cos",
    "dot",
    "exp",
    "farfield",
    "log",
    "maximum",
    "minimum",
    "no_slip",
    "plan",
    "prescribed",
    "setup",
    "sin",
    "slip",
    "sqrt",
    "subsonic_inflow",
    "subsonic_outflow",
    "supersonic_inflow",
    "supersonic_outflow",
    "tanh",
    "view",
)


# What a run says that has lost its solution
UNSTABLE = "the flow is no longer finite (steps too long? cells too large for what flows?)"


def setup(size: int, opt: Any) -> Problem:
    return problem.make(size, opt)


def init(rank: int, size: int, opt: Any, data: Problem) -> dict[str, Any]:
    """The case's initial state."""
    equations = data.equations(rank, opt)
    return {"q": equations.initial(), "residual": pt.zeros(data.shape(rank), "float64")}


def stage(rank: int, size: int, opt: Any, data: Problem) -> dict[str, Any]:
    """One stage of a Runge-Kutta step in two arrays of storage."""
    residual = array_input("residual", data.shape(rank), "float64", doc="what the scheme keeps besides q")
    a, b, dt = (array_input(name, (), "float64", doc=doc, default=0.0) for name, doc in (
        ("a", "share of the residual that is kept"), ("b", "share of it that q gets"), ("dt", "time step")))
    q, t = _state(rank, data), _time()
    residual = a * residual + dt * data.equations(rank, opt).rate(q, t)
    return {"q": q + b * residual, "residual": residual, "time": t}


def timestep(rank: int, size: int, opt: Any, data: Problem) -> dict[str, Any]:
    """The time step at CFL number 1."""
    return {"longest": measures.time_step(data.equations(rank, opt), _state(rank, data))}


def observe(rank: int, size: int, opt: Any, data: Problem) -> dict[str, Any]:
    """Integrals and extremes."""
    t = _time()
    return {**measures.observed(data.equations(rank, opt), _state(rank, data), t), "time": t}


def fields(rank: int, size: int, opt: Any, data: Problem) -> dict[str, Any]:
    """What pictures show."""
    t = _time()
    return {**measures.drawn(data.equations(rank, opt), _state(rank, data), t), "time": t}


ENTRIES = (init, stage, timestep, observe, fields)


def plan(opt: Any) -> Plan:
    settings = settle(opt)
    # The last step ends where the run does
    dt = "min(dt, end - t)"
    return Plan(
        init=(Call("init"),),
        step=tuple(Call("stage", {"a": a, "b": b, "dt": dt, "t": f"t + {c!r} * {dt}"}) for a, b, c in STAGES),
        carry={"q": "q", "residual": "residual"},
        scalars=(Scalar("t", 0.0, "time"), Scalar("dt", opt.dt or 0.0, "time", "time step"),
                 Scalar("end", settings.end, "time", "where the run ends"), Scalar("cfl", opt.cfl)),
        update={"t": f"t + {dt}"},
        every=(
            *([] if opt.dt else [Every("timestep", opt.dt_every, before=True, update={"dt": "cfl * longest"},
                                       check={"longest > 0": UNSTABLE})]),
            Every("observe", opt.observe_every, set={"t": "t"}, check={"bad == 0": UNSTABLE},
                  show=("energy", "kinetic", "enstrophy", *(["error2"] if settings.case.exact else ["mass"]),
                        "rho.min", "p.min", "bad")),
        ),
        until="not t < end * (1 - 1e-12)",  # also where the time is no number any more
        at_most=10**9,
        draw=(Call("fields", {"t": "t"}),),
    )


def view(rank: int, size: int, opt: Any, data: Problem) -> View:
    return problem.view(data.domains[rank], measures.FIELDS)


def _state(rank: int, data: Problem) -> Any:
    return array_input("q", data.shape(rank), "float64", doc="density, momentum, energy")


def _time() -> Any:
    """Also an output of each entry that has it, so that the plan may set it whether the case depends on it or not."""
    return array_input("t", (), "float64", doc="time", default=0.0)
