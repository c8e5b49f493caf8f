"""C functions for operations where C and numpy differ, or that loopy would print its own way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import loopy as lp
import numpy as np
from constantdict import constantdict
from loopy.types import NumpyType

from aotato.emit import complex_functions

CTYPES = {
    "bool": "uchar",
    "int8": "char",
    "int16": "short",
    "int32": "int",
    "int64": "long",
    "uint8": "uchar",
    "uint16": "ushort",
    "uint32": "uint",
    "uint64": "ulong",
    "float32": "float",
    "float64": "double",
}

LARGEST_POWER = 16

# Python's // and % round towards minus infinity, C's towards zero; numpy gives 0 for division by zero
_SIGNED = {
    "floordiv": "if (b == 0) return 0; if (b == -1) return (T)(0 - (U)a); T q = a / b; "
    "return q - ((a % b != 0) && ((a < 0) != (b < 0)));",
    "mod": "if (b == 0 || b == -1) return 0; T m = a % b; return (m != 0 && ((m < 0) != (b < 0))) ? m + b : m;",
    "pow": "W x = (W)a, r = 1; if (b < 0) return a == 1 ? 1 : a == -1 ? ((b & 1) ? -1 : 1) : 0; "
    "while (b) { if (b & 1) r *= x; x *= x; b >>= 1; } return (T)r;",
}
_UNSIGNED = {
    "floordiv": "return b == 0 ? 0 : a / b;",
    "mod": "return b == 0 ? 0 : a % b;",
    "pow": "W x = a, r = 1; while (b) { if (b & 1) r *= x; x *= x; b >>= 1; } return (T)r;",
}
_FLOAT = {
    "floordiv": "if (b == 0) return a / b; T m = fmod(a, b); T d = (a - m) / b; "
    "if (m != 0) { if ((b < 0) != (m < 0)) d -= 1; } if (d == 0) return copysign((T)0, a / b); "
    "T f = floor(d); return d - f > (T)0.5 ? f + 1 : f;",
    "mod": "T m = fmod(a, b); if (b == 0) return m; "
    "if (m != 0) { if ((b < 0) != (m < 0)) m += b; } else m = copysign((T)0, b); return m;",
    "pow": "return pow(a, b);",
}
_BOTH = {
    "div": "return a / b;",  # of operands known to be non-negative and positive
    "rem": "return a % b;",
    "raised": "return a < 0 ? a + b : a;",  # the remainder of an index at most b outside on one side
    "lowered": "return a >= b ? a - b : a;",
}
# numpy's integers wrap around; in C the overflow of signed ones is undefined, and short ones become int
_WRAPPING = {
    "add": "return (T)((W)a + (W)b);",
    "mul": "return (T)((W)a * (W)b);",
    "shl": "return (U)b < 8 * sizeof(T) ? (T)((W)a << b) : 0;",
    "shr": "return (U)b < 8 * sizeof(T) ? a >> b : a < 0 ? -1 : 0;",
}
# As numpy: a NaN on either side is the result
_MINMAX = {
    "min": {"f": "return (a <= b || a != a) ? a : b;", "i": "return a <= b ? a : b;"},
    "max": {"f": "return (a >= b || a != a) ? a : b;", "i": "return a >= b ? a : b;"},
}

_BUILTIN = {"sqrt": "__builtin_sqrt", "abs": "__builtin_fabs"}  # of clang; one instruction on processors

_UNARY = {
    "abs": {"f": "fabs(a)", "i": "(T)(a < 0 ? 0 - (U)a : (U)a)", "u": "a", "b": "a"},
    "isnan": {"f": "(uchar)(a != a)", "i": "(uchar)0", "u": "(uchar)0", "b": "(uchar)0"},
    "real": {"f": "a", "i": "a", "u": "a", "b": "a"},
    "imag": {"f": "(T)0", "i": "(T)0", "u": "(T)0", "b": "(T)0"},
    "conj": {"f": "a", "i": "a", "u": "a", "b": "a"},
}


@dataclass(frozen=True, init=False)
class CFunction(lp.ScalarCallable):
    """A function of scalars with fixed dtypes, whose definition travels with it."""

    arguments: tuple[Any, ...]
    result: Any
    definition: str

    def __init__(
        self,
        name: str,
        arguments: tuple[Any, ...],
        result: Any,
        definition: str,
        arg_id_to_dtype: Any = None,
        arg_id_to_descr: Any = None,
        name_in_target: str | None = None,
    ) -> None:
        super().__init__(name, arg_id_to_dtype, arg_id_to_descr, name_in_target)
        object.__setattr__(self, "arguments", arguments)
        object.__setattr__(self, "result", result)
        object.__setattr__(self, "definition", definition)

    def with_types(self, arg_id_to_dtype: Any, clbl_inf_ctx: Any) -> tuple[CFunction, Any]:
        types = {index: NumpyType(np.dtype(dtype)) for index, dtype in enumerate(self.arguments)}
        types[-1] = NumpyType(np.dtype(self.result))
        return self.copy(name_in_target=self.name, arg_id_to_dtype=constantdict(types)), clbl_inf_ctx

    def generate_preambles(self, target: Any) -> Iterator[tuple[str, str]]:
        yield "50_" + self.name, self.definition


def binary(op: str, dtype: np.dtype[Any]) -> CFunction:
    """floordiv, mod, pow, min, max, or of `_BOTH` or `_WRAPPING`, of two values; complex: see `complex_functions`."""
    if dtype.kind == "c":
        name, result, definition = complex_functions.binary(op, dtype)
        return CFunction(name, (dtype.name, dtype.name), result, definition)
    if op in _MINMAX:
        text = _MINMAX[op]["f" if dtype.kind == "f" else "i"]
    else:
        text = _BOTH.get(op) or _WRAPPING.get(op) or {"i": _SIGNED, "u": _UNSIGNED, "f": _FLOAT}[dtype.kind][op]
    name = f"aot_{op}_{dtype.name}"
    c = CTYPES[dtype.name]
    return CFunction(name, (dtype.name, dtype.name), dtype.name, _definition(name, c, c, "T a, T b", text))


def unary(op: str, dtype: np.dtype[Any]) -> CFunction:
    """A function of `frontend.expr.FUNCTIONS` of one argument."""
    if dtype.kind == "c":
        name, result, definition = complex_functions.unary(op, dtype)
        return CFunction(name, (dtype.name,), result, definition)
    name, c = f"aot_{op}_{dtype.name}", CTYPES[dtype.name]
    kinds = _UNARY.get(op)
    body = kinds[dtype.kind] if kinds else f"{op}(a)"
    result = "uint8" if op == "isnan" else dtype.name
    definition = _definition(name, c, CTYPES[result], "T a", f"return {body};")
    if dtype.kind == "f" and op in _BUILTIN:
        builtin = f"return {_BUILTIN[op]}{'f' if dtype.itemsize == 4 else ''}(a);"
        inline = _definition(name, c, CTYPES[result], "T a", builtin)
        # PoCL calls its own functions, around which a compiler makes no vectors
        definition = either("#if defined(__x86_64__) || defined(__aarch64__)", inline, definition)
    return CFunction(name, (dtype.name,), result, definition)


def power(dtype: np.dtype[Any], exponent: int) -> CFunction:
    """A real or integer number to a fixed power, from 1 to LARGEST_POWER, by multiplication."""
    name, c = f"aot_pow{exponent}_{dtype.name}", CTYPES[dtype.name]
    steps = "".join("r *= r; " + ("r *= b; " if bit == "1" else "") for bit in f"{exponent:b}"[1:])
    body = f"{'T' if dtype.kind == 'f' else 'W'} b = a, r = b; {steps}return (T)r;"
    return CFunction(name, (dtype.name,), dtype.name, _definition(name, c, c, "T a", body))


def complex_number(dtype: np.dtype[Any]) -> CFunction:
    """A complex number of its two parts."""
    name, result, definition = complex_functions.number(dtype)
    part = np.zeros((), dtype).real.dtype.name
    return CFunction(name, (part, part), result, definition)


def atan2(dtype: np.dtype[Any]) -> CFunction:
    name, c = f"aot_atan2_{dtype.name}", CTYPES[dtype.name]
    definition = _definition(name, c, c, "T a, T b", "return atan2(a, b);")
    return CFunction(name, (dtype.name, dtype.name), dtype.name, definition)


def converted(source: np.dtype[Any], to: np.dtype[Any]) -> CFunction:
    """An integer as one of another dtype."""
    name, a, b = f"aot_{to.name}_of_{source.name}", CTYPES[source.name], CTYPES[to.name]
    return CFunction(name, (source.name,), to.name, f"static inline {b} {name}({a} a) {{ return ({b})a; }}")


def from_half() -> CFunction:
    """float from the 16 bits of a half; needs no half arithmetic in the device, and no pointer to private memory."""
    body = (
        "uint s = (uint)(a & 0x8000) << 16, e = a & 0x7c00, m = a & 0x3ff; "
        "if (e == 0x7c00) return as_float(s | 0x7f800000 | m << 13); "
        "if (e == 0) return as_float(s | as_uint(m * 0x1p-24f)); "
        "return as_float(s | (e + (112 << 10) | m) << 13);"
    )
    text = f"static inline float aot_from_half(ushort a) {{ {body} }}"
    return CFunction("aot_from_half", ("uint16",), "float32", text)


def to_half() -> CFunction:
    """The 16 bits of the half nearest to a float, ties to even."""
    body = (
        "uint s = as_uint(a) >> 16 & 0x8000, m = as_uint(a) & 0x7fffffff; "
        "if (m > 0x7f800000) return s | 0x7e00; "
        "if (m >= 0x477ff000) return s | 0x7c00; "
        "if (m < 0x38800000) return s | (uint)rint(as_float(m) * 0x1p24f); "
        "return s | (m - 0x38000000 + 0xfff + (m >> 13 & 1)) >> 13;"
    )
    text = f"static inline ushort aot_to_half(float a) {{ {body} }}"
    return CFunction("aot_to_half", ("float32",), "uint16", text)


def double_to_half() -> CFunction:
    """The same from a double: by way of a float it would be rounded twice."""
    body = (
        "ulong b = as_ulong(a), s = b >> 48 & 0x8000, m = b & 0x7fffffffffffffff; "
        "if (m > 0x7ff0000000000000) return s | 0x7e00; "
        "if (m >= 0x40effe0000000000) return s | 0x7c00; "
        "if (m < 0x3f10000000000000) return s | (ulong)rint(as_double(m) * 0x1p24); "
        "return s | (m - 0x3f00000000000000 + 0x1ffffffffff + (m >> 42 & 1)) >> 42;"
    )
    text = f"static inline ushort aot_double_to_half(double a) {{ {body} }}"
    return CFunction("aot_double_to_half", ("float64",), "uint16", text)


def either(directive: str, one: str, other: str) -> str:
    """The text `one` where the preprocessor finds the directive true, `other` elsewhere."""
    return f"{directive}\n{one}\n#else\n{other}\n#endif"


def _definition(name: str, ctype: str, result: str, parameters: str, body: str) -> str:
    unsigned = ctype if ctype.startswith("u") else "u" + ctype
    text = f"inline {result} {name}({parameters}) {{ {body} }}"
    # W wraps around without C's promotion of short operands to int, whose overflow is undefined
    wrapping = "uint" if ctype in ("char", "uchar", "short", "ushort") else unsigned
    for short, full in (("T", ctype), ("U", unsigned), ("W", wrapping)):
        text = _word(text, short, full)
    return "static " + text


def _word(text: str, word: str, replacement: str) -> str:
    return re.sub(rf"\b{word}\b", replacement, text)
