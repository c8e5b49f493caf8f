"""Numbers about a flow: integrals and extremes over the whole mesh, and the time step that it allows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytato as pt

from aotato.frontend import allreduce
from aotato.frontend.apps._flow import stability
from aotato.frontend.apps._flow.equations import Equations
from aotato.frontend.apps._flow.functions import Values, dot, sqrt

Array = Any  # of pytato

AXES = "xyz"
FIELDS = ("density", "velocity", "pressure", "temperature", "vorticity")


def observed(equations: Equations, q: Array, t: Values) -> dict[str, Any]:
    """Integrals and extremes by name, each a number that the host gets.

    Kinetic energy is the integral of rho |u|^2 / 2, enstrophy that of rho |vorticity|^2 / 2; `error2` is that of the
    square of the density's error, where the case knows an exact solution; `bad` counts nodes that are not finite.
    """
    gas, dim = equations.flow.gas, equations.ops.domain.element.dim
    state = gas.state([q[v] for v in range(q.shape[0])])
    vorticity = curl(equations.gradient(q, t), dim)
    rows = {
        "mass": q[0],
        **{f"momentum.{axis}": q[1 + d] for d, axis in enumerate(AXES[:dim])},
        "energy": q[dim + 1],
        "kinetic": 0.5 * state.density * dot(state.velocity, state.velocity),
        "enstrophy": 0.5 * state.density * dot(vorticity, vorticity),
    }
    if equations.case.exact is not None:
        wrong = state.density - equations.case.exact(equations.ops.coordinates, t, equations.flow).density
        rows["error2"] = wrong * wrong
    mass = pt.make_data_wrapper(equations.ops.domain.mass)
    found = {name: allreduce(pt.sum(mass * row)) for name, row in rows.items()}
    # A number that is not finite differs from itself, or does when it is taken from itself
    wrong = q[dim + 1] - q[dim + 1]
    found["bad"] = allreduce(pt.sum(pt.where(pt.equal(wrong, wrong), 0.0, 1.0)))
    for name, values in (("rho", state.density), ("p", state.pressure)):
        found[f"{name}.min"] = allreduce(pt.amin(values), "min")
        found[f"{name}.max"] = allreduce(pt.amax(values), "max")
    return found


def drawn(equations: Equations, q: Array, t: Values) -> dict[str, Array]:
    """Fields by name, each (E, n) or (components, E, n); the vorticity has one component in 2D."""
    gas, dim = equations.flow.gas, equations.ops.domain.element.dim
    state = gas.state([q[v] for v in range(q.shape[0])])
    vorticity = curl(equations.gradient(q, t), dim)
    values = (state.density, pt.stack(state.velocity), state.pressure, gas.temperature(state),
              pt.stack(vorticity) if dim == 3 else vorticity[0])
    return dict(zip(FIELDS, values, strict=True))


def curl(gradient: list[list[Array]], dim: int) -> list[Array]:
    """The vorticity, one component in 2D, from derivatives [axis][velocity]."""
    pairs = [(1, 2), (2, 0), (0, 1)][3 - dim * (dim - 1) // 2:]
    return [gradient[i][j] - gradient[j][i] for i, j in pairs]


def time_step(equations: Equations, q: Array) -> Array:
    """The longest step at CFL number 1: the least over all nodes, from waves and friction together.

    Diffusivities are 4/3 mu / rho of stress and gamma / Pr mu / rho of heat, the larger one.
    """
    gas, domain = equations.flow.gas, equations.ops.domain
    cell, order, nodes = domain.element.cell, domain.element.order, domain.nodes.shape[1]
    state = gas.state([q[v] for v in range(q.shape[0])])
    inverse = pt.make_data_wrapper(np.repeat(1 / domain.height[:, np.newaxis], nodes, 1))
    speed = sqrt(dot(state.velocity, state.velocity)) + gas.sound_speed(state)
    steps = stability.waves(cell, order) * inverse * speed
    if equations.viscous:
        viscosity = gas.dynamic_viscosity(gas.temperature(state))
        diffusivity = max(4 / 3, gas.gamma / gas.prandtl) * viscosity / state.density
        steps = steps + stability.friction(cell, order, equations.beta, equations.tau) * inverse * inverse * diffusivity
    return allreduce(pt.amin(1 / steps), "min")
