"""Loopy kernels for tests that write programs as IR."""

from __future__ import annotations

import functools

import loopy as lp
import numpy as np

from aotato.frontend.opaque import Argument, Opaque


@functools.cache
def twice_and_shifted(shape: tuple[int, ...], dtype: str) -> Opaque:
    """Of an array x and a number s: `twice` is x + x, `shifted` is x + s."""
    names = [f"i{axis}" for axis in range(len(shape))]
    index = f"[{', '.join(names)}]" if shape else ""
    bounds = " and ".join(f"0 <= {name} < {extent}" for name, extent in zip(names, shape, strict=True))
    domain = f"{{ [{', '.join(names)}] : {bounds} }}" if shape else "{ : }"
    unit = lp.make_kernel(
        domain,
        f"twice{index} = x{index} + x{index}\nshifted{index} = x{index} + s",
        [
            lp.GlobalArg("x", dtype, shape=shape, is_output=False),
            lp.ValueArg("s", dtype),
            *(lp.GlobalArg(name, dtype, shape=shape, is_input=False) for name in ("twice", "shifted")),
        ],
        name="twice_and_shifted",
        lang_version=(2018, 2),
    )
    kind = np.dtype(dtype)
    results = (Argument("twice", shape, kind), Argument("shifted", shape, kind))
    return Opaque(unit, (Argument("x", shape, kind), Argument("s", (), kind)), results)
