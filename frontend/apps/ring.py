"""Ring: every rank adds its right neighbour's scaled image to its own.

Rank r sends `img1*scl` to rank r-1, receives its neighbour's from rank r+1 (both modulo the number of ranks) and
returns `out = img1 + received*scl`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytato as pt

from aotato.frontend import Option, array_input, make_distributed_recv, positive, staple_distributed_send

OPTIONS = (Option("n", int, 100, unit="rows", doc="rows of the image", check=positive),)

SCALE = np.array([0.5, 1.0, 2.0])


def step(rank: int, size: int, opt: Any, data: Any) -> dict[str, Any]:
    default = np.random.default_rng(rank).random((opt.n, 3), np.float32)
    img1 = array_input("img1", (opt.n, 3), "float32", doc="image, a colour a column", default=default)
    scl = pt.make_data_wrapper(SCALE)
    received = make_distributed_recv((rank + 1) % size, "image", (opt.n, 3), "float64")
    out = staple_distributed_send(img1 * scl, (rank - 1) % size, "image", stapled_to=img1 + received * scl)
    return {"out": out}


ENTRIES = (step,)
