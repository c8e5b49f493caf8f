"""A case whose solution is chosen: density, velocity and temperature are waves, and the source keeps them so.

The source is derived by sympy from the compressible Navier-Stokes equations with constant viscosity: P. J. Roache,
J. Fluids Eng. 124 (2002) 4. For `scons app=cns case=benchmarks/manufactured.py`, and `cns_convergence.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import sympy as sp

from aotato.frontend.apps._flow import functions
from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.gas import State

DEFAULTS = {"mesh": "box:8", "lengths": "1", "re": 10.0, "mach": 0.5, "end": 0.5}

T = sp.Symbol("t")
X = sp.symbols("x0:3")
GAMMA, GAS, PRANDTL, RE, PRESSURE = sp.symbols("gamma gas prandtl re pressure")
FUNCTIONS = [{"sin": functions.sin, "cos": functions.cos}]
TURN = 2 * sp.pi


def waves(dim: int) -> tuple[Any, list[Any], Any]:
    """Density, velocity and temperature; of period 1 in space."""
    x = X[:dim]
    density = 1 + sp.Rational(1, 10) * sp.sin(TURN * sum(x) - 2 * T)
    mean = [sp.Rational(3, 5), sp.Rational(4, 5), sp.Rational(1, 5)]
    velocity = [mean[i] + sp.Rational(1, 5) * sp.sin(TURN * x[i] + i) * sp.cos(TURN * x[(i + 1) % dim] - T)
                for i in range(dim)]
    temperature = PRESSURE / GAS * (1 + sp.Rational(1, 10) * sp.cos(TURN * (x[0] - x[-1]) + T))
    return density, velocity, temperature


def derived(dim: int) -> list[Any]:
    """What the equations leave over, for each conserved variable."""
    x = X[:dim]
    density, u, temperature = waves(dim)
    pressure = density * GAS * temperature
    viscosity = 1 / RE
    conductivity = viscosity * GAMMA * GAS / (GAMMA - 1) / PRANDTL
    energy = pressure / (GAMMA - 1) + density * sum(c**2 for c in u) / 2
    divergence = sum(sp.diff(u[i], x[i]) for i in range(dim))
    stress = [[viscosity * (sp.diff(u[i], x[j]) + sp.diff(u[j], x[i]))
               - (sp.Rational(2, 3) * viscosity * divergence if i == j else 0) for j in range(dim)] for i in range(dim)]
    rows = [(density, [density * c for c in u])]
    rows += [(density * u[i], [density * u[i] * u[j] + (pressure if i == j else 0) - stress[i][j]
                               for j in range(dim)]) for i in range(dim)]
    rows += [(energy, [(energy + pressure) * u[j] - sum(stress[i][j] * u[i] for i in range(dim))
                       - conductivity * sp.diff(temperature, x[j]) for j in range(dim)])]
    return [sp.diff(kept, T) + sum(sp.diff(flux[j], x[j]) for j in range(dim)) for kept, flux in rows]


@functools.lru_cache
def compiled(dim: int) -> tuple[Any, Any]:
    """The waves and the source as functions of numpy or pytato arrays."""
    density, velocity, temperature = waves(dim)
    names = (*X[:dim], T, GAMMA, GAS, PRANDTL, RE, PRESSURE)
    return (sp.lambdify(names, [density, *velocity, temperature], FUNCTIONS, cse=True),
            sp.lambdify(names, derived(dim), FUNCTIONS, cse=True))


def _numbers(flow: Flow) -> tuple[Any, ...]:
    gas = flow.gas
    return gas.gamma, gas.gas_constant, gas.prandtl, 1 / gas.viscosity, flow.pressure


def exact(x: Sequence[Any], t: Any, flow: Flow) -> State:
    density, *velocity, temperature = compiled(len(x))[0](*x, t, *_numbers(flow))
    return State(density, tuple(velocity), density * flow.gas.gas_constant * temperature)


def source(x: Sequence[Any], t: Any, flow: Flow) -> Sequence[Any]:
    return compiled(len(x))[1](*x, t, *_numbers(flow))
