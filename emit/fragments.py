"""C functions by which 32 lanes multiply 8 rows of a matrix by 8 columns, 4 terms at a time; a lane has two results.

Where the loader finds units for it (`AOTATO_TENSOR_F64`: NVIDIA devices of compute capability 8.0 and later), a lane
holds one number of the matrix and one of the columns, in the layout of PTX's `mma.m8n8k4`: row lane/4 and term lane%4;
term lane%4 and column lane/4; results in row lane/4, columns 2*(lane%4) and the next. Elsewhere each lane takes the 4
terms of its two results one by one.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from loopy.target.opencl import vec

from aotato.emit.functions import CFunction, either

TERMS = 4
_VECTORS: Any = vec  # loopy fills it
PAIR = _VECTORS.types[np.dtype(np.float64), 2]  # the two results of a lane

_ASM = "mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0,%1},{%2},{%3},{%0,%1};"


def _either(head: str, tensor: str, plain: str) -> str:
    one, other = (f"static inline {head} {{ {body} }}" for body in (tensor, plain))
    return either("#ifdef AOTATO_TENSOR_F64", one, other)


def product() -> CFunction:
    """The results so far and a lane's number of the matrix, its number of the columns, its own two columns' numbers.

    Units take all 4 terms in step 0.
    """
    text = _either(
        "double2 aot_tile_product(double2 c, double a, double b, double x, double y, int step)",
        f'if (step) return c; double p = c.x, q = c.y; asm("{_ASM}" : "+d"(p), "+d"(q) : "d"(a), "d"(b)); '
        "return (double2)(p, q);",
        "return c + a * (double2)(x, y);",
    )
    return CFunction("aot_tile_product", (PAIR, *["float64"] * 4, "int32"), PAIR, text)


def term() -> CFunction:
    """Which of the 4 terms a lane takes in a step."""
    text = _either("int aot_tile_term(int lane, int step)", f"return lane % {TERMS};", "return step;")
    return CFunction("aot_tile_term", ("int32", "int32"), "int32", text)


def nothing() -> CFunction:
    return CFunction("aot_tile_zero", (), PAIR, "static inline double2 aot_tile_zero(void) { return (double2)(0); }")


def result(which: int) -> CFunction:
    name, part = f"aot_tile_result{which}", "xy"[which]
    return CFunction(name, (PAIR,), "float64", f"static inline double {name}(double2 c) {{ return c.{part}; }}")


def added() -> CFunction:
    text = "static inline double2 aot_tile_added(double2 a, double2 b) { return a + b; }"
    return CFunction("aot_tile_added", (PAIR, PAIR), PAIR, text)
