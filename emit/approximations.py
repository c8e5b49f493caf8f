"""C functions for reciprocals and square roots of doubles that start from a device's approximation (`algebra=fast`).

Where the loader finds NVIDIA's instructions for it (`AOTATO_PTX`), some 20 bits are refined by polynomials of the
residual, which a multiplication and addition with one rounding gives exactly: results are within 2 eps. A reciprocal
beyond 2^1019 is infinite or as inexact as the approximation, below 2^-1019 zero or the same; the root of a subnormal
number is that number. Other devices take the language's own.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aotato.emit.functions import CFunction, either

# The upper half of a double, without its sign: the exponent begins at bit 21
_SIZE = "uint size = as_uint2(a).y << 1;"
_RECIPROCAL = (
    'double y; asm("rcp.approx.ftz.f64 %0,%1;" : "=d"(y) : "d"(a)); double e = fma(-a, y, 1.0); '
    f"{_SIZE} return size - (4u << 21) < (2038u << 21) ? fma(y, fma(e, e, e), y) : y;"
)
_ROOT = (
    'double y; asm("rsqrt.approx.ftz.f64 %0,%1;" : "=d"(y) : "d"(a)); double s = a * y, h = 0.5 * y; '
    "double e = fma(-s, h, 0.5); s = fma(s, e, s); h = fma(h, e, h); s = fma(fma(-s, s, a), h, s); "
    f"{_SIZE} return size - (1u << 21) < (2046u << 21) ? s : a < 0 ? NAN : a;"
)


def reciprocal() -> CFunction:
    return _function("aot_reciprocal", _RECIPROCAL, "1.0 / a")


def root() -> CFunction:
    return _function("aot_root", _ROOT, "sqrt(a)")


def applies(dtype: np.dtype[Any]) -> bool:
    return dtype == np.float64


def _function(name: str, refined: str, plain: str) -> CFunction:
    head = f"static inline double {name}(double a)"
    text = either("#ifdef AOTATO_PTX", f"{head} {{ {refined} }}", f"{head} {{ return {plain}; }}")
    return CFunction(name, ("float64",), "float64", text)
