"""Poisson: solve -laplace(u) = b in a box with zero walls, by conjugate gradients without a matrix.

The loop of the plan is the iteration (Hestenes and Stiefel, 1952); it ends at a relative residual of 1e-10.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytato as pt

from aotato.frontend import Call, Plan, allreduce, array_input
from aotato.frontend.apps._grid import OPTIONS, Block, blocks, laplacian

__all__ = ("ENTRIES", "OPTIONS", "plan", "setup")


def setup(size: int, opt: Any) -> list[Block]:
    return blocks(size, opt)


def init(rank: int, size: int, opt: Any, data: list[Block]) -> dict[str, Any]:
    """Start from u = 0: residual and first direction are b."""
    block = data[rank]
    x = block.coordinates()
    b = array_input("b", block.shape, "float64", doc="right-hand side", default=block.field(1 + x[0] * np.exp(x[-1])))
    rr = allreduce(pt.sum(b * b))
    return {"u": pt.zeros(block.shape, "float64"), "r": b, "p": b, "rr": rr, "rr0": rr}


def step(rank: int, size: int, opt: Any, data: list[Block]) -> dict[str, Any]:
    """One iteration; `r` is the residual, `p` the direction, `rr` the square of the residual's norm."""
    block = data[rank]
    u, r, p = (array_input(name, block.shape, "float64") for name in "urp")
    rr = array_input("rr", (), "float64")
    ap = -((opt.n + 1) ** 2) * laplacian(p, block)
    alpha = rr / allreduce(pt.sum(p * ap))
    r_new = r - alpha * ap
    rr_new = allreduce(pt.sum(r_new * r_new))
    return {"u": u + alpha * p, "r": r_new, "p": r_new + rr_new / rr * p, "rr": rr_new}


ENTRIES = (init, step)


def plan(opt: Any) -> Plan:
    return Plan(
        init=(Call("init"),),
        step=(Call("step"),),
        carry={"u": "u", "r": "r", "p": "p", "rr": "rr"},
        until="rr <= 1e-20 * rr0",
        at_most=20 * opt.n,
    )
