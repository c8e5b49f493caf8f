"""Heat: explicit steps of du/dt = laplace(u) in a box whose walls are kept at zero.

Sine modes are eigenvectors of the discrete operator: with the default start, the sum of two of them, `observe` gives
the distance to the exact solution of the discrete equations, which is rounding.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytato as pt

from aotato.frontend import Call, Every, Plan, Scalar, allreduce, array_input
from aotato.frontend.apps._grid import OPTIONS, Block, Field, blocks, laplacian

__all__ = ("ENTRIES", "OPTIONS", "plan", "setup")

WAVES = (1, 2)  # half waves along the first axis; two more along each further one


def setup(size: int, opt: Any) -> list[Block]:
    return blocks(size, opt)


def step(rank: int, size: int, opt: Any, data: list[Block]) -> dict[str, Any]:
    """One explicit Euler step."""
    u = _temperature(data[rank])
    dt = array_input("dt", (), "float64", doc="time step; stable up to 1/(2 dim (n+1)^2)", default=time_step(opt))
    return {"u": u + dt * (opt.n + 1) ** 2 * laplacian(u, data[rank])}


def observe(rank: int, size: int, opt: Any, data: list[Block]) -> dict[str, Any]:
    """Heat content, largest temperature, and largest distance to the exact solution."""
    block = data[rank]
    u, exact = _temperature(block), 0
    for k, waves in enumerate(WAVES):
        amplitude = array_input(f"amplitude{k}", (), "float64", doc=f"what is left of mode {k}", default=1.0)
        exact = exact + amplitude * pt.make_data_wrapper(mode(block, waves))
    return {
        "heat": allreduce(pt.sum(u) / (opt.n + 1) ** opt.dim),
        "hottest": allreduce(pt.amax(u), "max"),
        "error": allreduce(pt.amax(pt.abs(u - exact)), "max"),
    }


ENTRIES = (step, observe)


def plan(opt: Any) -> Plan:
    amplitudes = {f"amplitude{k}": f"amplitude{k}" for k in range(len(WAVES))}
    decay = {f"amplitude{k}": f"amplitude{k} * (1 - dt * {rate(opt, w)!r})" for k, w in enumerate(WAVES)}
    return Plan(
        step=(Call("step", set={"dt": "dt"}),),
        carry={"u": "u"},
        scalars=(
            Scalar("t", 0.0, doc="time"),
            Scalar("dt", time_step(opt), doc="time step"),
            *(Scalar(name, 1.0, doc="what is left of a mode") for name in amplitudes),
        ),
        update={**decay, "t": "t + dt"},
        every=(Every("observe", 10, set=amplitudes),),
    )


def time_step(opt: Any) -> float:
    """Half the largest stable one."""
    return float(0.25 / (opt.dim * (opt.n + 1) ** 2))


def rate(opt: Any, waves: int) -> float:
    """The decay rate of a mode: the eigenvalue of the discrete operator."""
    angles = [(waves + 2 * axis) * np.pi / (2 * (opt.n + 1)) for axis in range(opt.dim)]
    return float(sum(4 * (opt.n + 1) ** 2 * np.sin(angle) ** 2 for angle in angles))


def mode(block: Block, waves: int) -> Field:
    """A product of sines at the block's points, with `waves` half waves along the first axis."""
    return block.field(math.prod(np.sin((waves + 2 * a) * np.pi * x) for a, x in enumerate(block.coordinates())))


def _temperature(block: Block) -> Any:
    start = sum(mode(block, waves) for waves in WAVES)
    return array_input("u", block.shape, "float64", doc="temperature", default=start)
