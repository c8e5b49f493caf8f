"""C functions of complex numbers, with numpy's meaning, on the types of pyopencl's complex header.

In the texts T is the real type, C the complex one, `new` makes one from its parts and F is the function's suffix.
Inverse functions are Kahan's ("Branch cuts for complex elementary functions", 1987), as is the tangent.
"""

from __future__ import annotations

import re
from typing import Any

import numpy as np

PARTS = {"complex64": ("float", "cfloat"), "complex128": ("double", "cdouble")}
_SATURATED = {"complex64": "11", "complex128": "22"}  # beyond it, tanh of a real number is 1

_UNARY = {
    "abs": "T: return hypot(a.real, a.imag);",
    "real": "T: return a.real;",
    "imag": "T: return a.imag;",
    "isnan": "uchar: return isnan(a.real) || isnan(a.imag);",
    "neg": "C: return new(-a.real, -a.imag);",
    "conj": "C: return new(a.real, -a.imag);",
    "sqrt": "C: T m = hypot(a.real, a.imag); if (m == 0) return new(0, a.imag); "
    "if (isinf(a.imag)) return new(fabs(a.imag), a.imag); "
    "if (a.real >= 0) { T t = sqrt(a.real / 2 + m / 2); return new(t, a.imag / (2 * t)); } "
    "T t = sqrt(m / 2 - a.real / 2); return new(fabs(a.imag) / (2 * t), copysign(t, a.imag));",
    "exp": "C: T c, s = sincos(a.imag, &c), e = exp(a.real); return a.imag == 0 ? new(e, a.imag) : new(e * c, e * s);",
    "log": "C: T m = hypot(a.real, a.imag); "
    "T g = fmax(fabs(a.real), fabs(a.imag)), l = fmin(fabs(a.real), fabs(a.imag)); "
    "T r = m > (T)0.5 && m < 2 ? log1p((g - 1) * (g + 1) + l * l) / 2 : log(m); "
    "return new(r, atan2(a.imag, a.real));",
    "log10": "C: C l = aot_log_F(a); T k = (T)0.43429448190325182765; return new(l.real * k, l.imag * k);",
    "sinh": "C: T c, s = sincos(a.imag, &c); return new(sinh(a.real) * c, cosh(a.real) * s);",
    "cosh": "C: T c, s = sincos(a.imag, &c); return new(cosh(a.real) * c, sinh(a.real) * s);",
    "sin": "C: T c, s = sincos(a.real, &c); return new(s * cosh(a.imag), c * sinh(a.imag));",
    "cos": "C: T c, s = sincos(a.real, &c); return new(c * cosh(a.imag), -s * sinh(a.imag));",
    "tanh": "C: if (fabs(a.real) > SATURATED) { T c, s = sincos(a.imag, &c); "
    "return new(copysign((T)1, a.real), 4 * s * c * exp(-2 * fabs(a.real))); } "
    "T t = tan(a.imag), b = 1 + t * t, s = sinh(a.real), r = sqrt(1 + s * s); "
    "if (isinf(t)) return new(r / s, 1 / t); T d = 1 + b * s * s; return new(b * r * s / d, t / d);",
    "tan": "C: C t = aot_tanh_F(new(-a.imag, a.real)); return new(t.imag, -t.real);",
    "asin": "C: C p = aot_sqrt_F(new(1 + a.real, a.imag)), m = aot_sqrt_F(new(1 - a.real, -a.imag)); "
    "return new(atan2(a.real, m.real * p.real - m.imag * p.imag), asinh(m.real * p.imag - m.imag * p.real));",
    "acos": "C: C p = aot_sqrt_F(new(1 + a.real, a.imag)), m = aot_sqrt_F(new(1 - a.real, -a.imag)); "
    "return new(2 * atan2(m.real, p.real), asinh(p.real * m.imag - p.imag * m.real));",
    "atan": "C: T x = a.real, y = a.imag, l = fabs(y); "
    "T im = x * x + (1 - l) * (1 - l) == 0 ? (T)INFINITY : log1p(4 * l / (x * x + (1 - l) * (1 - l))) / 4; "
    "return new(atan2(2 * x, (1 - l) * (1 + l) - x * x) / 2, copysign(im, y));",
}
_NEEDS = {"log10": ("log",), "tan": ("tanh",), "asin": ("sqrt",), "acos": ("sqrt",), "pow": ("log", "exp")}

_BINARY = {
    "pow": "C: T n = b.real; if (b.real == 0 && b.imag == 0) return new(1, 0); "
    "if (a.real == 0 && a.imag == 0) return b.real > 0 ? new(0, 0) : new(NAN, NAN); "
    "if (b.imag == 0 && n == trunc(n) && fabs(n) < 100) { C r = new(1, 0); C x = a; "
    "for (int k = (int)fabs(n); k; k >>= 1) { "
    "if (k & 1) r = new(r.real * x.real - r.imag * x.imag, r.real * x.imag + r.imag * x.real); "
    "x = new(x.real * x.real - x.imag * x.imag, 2 * x.real * x.imag); } return n < 0 ? one_over(r) : r; } "
    "C l = aot_log_F(a); return aot_exp_F(new(b.real * l.real - b.imag * l.imag, b.real * l.imag + b.imag * l.real));",
    "div": "C: T p, q; if (fabs(b.real) >= fabs(b.imag)) { "
    "if (b.real == 0 && b.imag == 0) return new(a.real / fabs(b.real), a.imag / fabs(b.real)); "
    "p = b.imag / b.real; q = 1 / (b.real + b.imag * p); "
    "return new((a.real + a.imag * p) * q, (a.imag - a.real * p) * q); } "
    "p = b.real / b.imag; q = 1 / (b.imag + b.real * p); "
    "return new((a.real * p + a.imag) * q, (a.imag * p - a.real) * q);",
    "eq": "uchar: return a.real == b.real && a.imag == b.imag;",
    "ne": "uchar: return a.real != b.real || a.imag != b.imag;",
    "lt": "uchar: return ORDERED(<, <);",
    "le": "uchar: return ORDERED(<, <=);",
    "gt": "uchar: return ORDERED(>, >);",
    "ge": "uchar: return ORDERED(>, >=);",
    "min": "C: return isnan(a.real) || isnan(a.imag) || ORDERED(<, <=) ? a : b;",
    "max": "C: return isnan(a.real) || isnan(a.imag) || ORDERED(>, >=) ? a : b;",
    "add": "C: return new(a.real + b.real, a.imag + b.imag);",
    "mul": "C: return new(a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real);",
}
COMPARISONS = {"==": "eq", "!=": "ne", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def unary(op: str, dtype: np.dtype[Any]) -> tuple[str, str, str]:
    """(name, result dtype, definition) of a function of `frontend.expr.FUNCTIONS` of one complex number."""
    return _function(op, _UNARY[op], "C a", dtype)


def binary(op: str, dtype: np.dtype[Any]) -> tuple[str, str, str]:
    """(name, result dtype, definition) of pow, div, a comparison, min, max, add or mul of two complex numbers."""
    return _function(op, _BINARY[op], "C a, C b", dtype)


def _function(op: str, text: str, parameters: str, dtype: np.dtype[Any]) -> tuple[str, str, str]:
    real = np.dtype(f"f{dtype.itemsize // 2}").name
    kind, _, body = text.partition(": ")
    result = {"T": real, "C": dtype.name, "uchar": "uint8"}[kind]
    below = "\n".join(unary(name, dtype)[2] for name in _NEEDS.get(op, ()))
    return f"aot_{op}_{dtype.name}", result, f"{below}\n{_c(op, kind, parameters, body, dtype)}".strip()


def _c(op: str, kind: str, parameters: str, body: str, dtype: np.dtype[Any]) -> str:
    """A definition that may stand in the program more than once, for functions share what they call."""
    real, prefix = PARTS[dtype.name]
    name = f"aot_{op}_{dtype.name}"
    body = re.sub(r"ORDERED\((\S+), (\S+)\)", _ordered, body)
    body = body.replace("one_over(r)", f"{prefix}_rdivide(1, r)").replace("SATURATED", _SATURATED[dtype.name])
    text = f"static inline {kind} {name}({parameters}) {{ {body} }}"
    text = re.sub(r"\baot_(\w+)_F\b", rf"aot_\1_{dtype.name}", text)
    for short, full in (("T", real), ("C", f"{prefix}_t"), ("new", f"{prefix}_new")):
        text = re.sub(rf"\b{short}\b", full, text)
    guard = f"HAVE_{name}"
    return f"#ifndef {guard}\n#define {guard}\n{text}\n#endif"


def _ordered(found: re.Match[str]) -> str:
    """numpy's order: real parts first, then imaginary ones."""
    strict, last = found.groups()
    return (
        f"((a.real {strict} b.real && !isnan(a.imag) && !isnan(b.imag)) "
        f"|| (a.real == b.real && a.imag {last} b.imag))"
    )
