"""Every node and function of pytato that this installation offers, each with what numpy makes of the same numbers."""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

import loopy as lp
import numpy as np
import pymbolic.primitives as prim
import pytato as pt
from pytato.loopy import call_loopy

import aotato
from aotato.frontend.adapter import compat
from nodes import COMPLEX, DTYPES, INTEGERS, REALS, Batch, pairs, sample, specials

INEXACT = (*REALS, *COMPLEX)
MATH = {
    **{name: name for name in ("sqrt", "sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "log", "log10")},
    **{name: name for name in ("arcsin", "arccos", "arctan")},
}
PARTS = ("abs", "isnan", "real", "imag", "conj")
COMPARE = ("equal", "not_equal", "less", "less_equal", "greater", "greater_equal")
LOGICAL = ("logical_and", "logical_or")
ARITHMETIC = {"__add__": "add", "__sub__": "sub", "__mul__": "mul", "__truediv__": "truediv", "__pow__": "pow"}
BITWISE = {"__and__": "and_", "__or__": "or_", "__xor__": "xor"}


class Cases(Batch):
    """A batch that counts which dtypes of which row of the table it has."""

    def __init__(self) -> None:
        super().__init__()
        self.rows: dict[str, set[str]] = {}
        self.declared: dict[tuple[str, str], tuple[str, str]] = {}  # row, dtype -> numpy's dtype, pytato's other one

    def case(self, row: str, dtype: str, array: Any, expected: Any, what: str = "", numpy: Any = None) -> None:
        """An output for the table's row and column; `numpy` is numpy's dtype if not that of `expected`."""
        self.rows.setdefault(row, set()).add(dtype)
        with np.errstate(all="ignore"):
            values = np.asarray(expected() if callable(expected) else expected)
        natural = np.dtype(numpy if numpy is not None else values.dtype)
        if natural != array.dtype:
            self.declared[row, dtype] = natural.name, np.dtype(array.dtype).name
        self.add(f"{row} {dtype} {what}".strip(), array, values)


def unary(dtype: str) -> Cases:
    """Functions of one number."""
    b = Cases()
    inexact = np.dtype(dtype).kind in "fc"
    x = sample(dtype, (9,), high=2, low=-2)
    x = x if np.dtype(dtype).kind == "c" else np.concatenate([x, specials(dtype)])
    p = b.input(x)
    for name, numpy in MATH.items() if inexact else ():
        b.case(f"pt.{name}", dtype, getattr(pt, name)(p), lambda n=numpy: getattr(np, n)(x))
    for name in PARTS if inexact else ("real", "conj", "imag"):
        b.case(f"pt.{name}", dtype, getattr(pt, name)(p), lambda n=name: getattr(np, n)(x))
    if inexact:
        b.case("Array.__abs__", dtype, abs(p), lambda: np.abs(x))
    b.case("Array.real", dtype, p.real, lambda: x.real)
    b.case("Array.imag", dtype, p.imag, lambda: x.imag)
    b.case("Array.__pos__", dtype, +p, lambda: x)
    if not compat.HAS_LOWERING:  # main's fails in an assertion
        b.case("pt.logical_not", dtype, pt.logical_not(p), lambda: np.logical_not(x))
    if dtype != "bool":
        b.case("Array.__neg__", dtype, -p, lambda: -x)
    return b


def binary(dtype: str) -> Cases:
    """Operators and functions of two numbers, special ones with special ones."""
    b, kind = Cases(), np.dtype(dtype).kind
    x, y = pairs(specials(dtype), specials(dtype))
    p, q = b.input(x), b.input(y)
    for method, name in ARITHMETIC.items():
        op = getattr(operator, name)
        if (dtype == "bool" and name == "sub") or (kind == "i" and name == "pow"):
            continue
        b.case(f"Array.{method}", dtype, op(p, q), lambda o=op: o(x, y))
        reverse = method.replace("__", "__r", 1)
        if not (dtype == "bool" and name == "pow"):
            b.case(f"Array.{reverse}", dtype, op(2, q), lambda o=op: o(2, y))
    for method, name in BITWISE.items() if kind in "biu" else ():
        op = getattr(operator, name)
        b.case(f"Array.{method}", dtype, op(p, q), lambda o=op: o(x, y))
        b.case(f"Array.{method.replace('__', '__r', 1)}", dtype, op(True, q), lambda o=op: o(True, y))
    for name in (*COMPARE, *LOGICAL):
        b.case(f"pt.{name}", dtype, getattr(pt, name)(p, q), lambda n=name: getattr(np, n)(x, y))
        b.case(f"pt.{name}", dtype, getattr(pt, name)(p, 1), lambda n=name: getattr(np, n)(x, 1), "with 1")
    for name in ("maximum", "minimum") if kind in "fc" else ():
        b.case(f"pt.{name}", dtype, getattr(pt, name)(p, q), lambda n=name: getattr(np, n)(x, y))
    if kind == "f":
        b.case("pt.arctan2", dtype, pt.arctan2(p, q), lambda: np.arctan2(x, y))
    for exponent in (0, 1, 2, 3, 7, 16, 17):
        b.case("Array.__pow__", dtype, p**exponent, lambda k=exponent: x**k, f"to {exponent}")
    if kind in "fc":
        for exponent in (-1, -2, 0.5, 1.5):
            b.case("Array.__pow__", dtype, p**exponent, lambda k=exponent: x**k, f"to {exponent}")
    b.case("pt.where", dtype, pt.where(pt.equal(p, q), p, q), lambda: np.where(x == y, x, y))
    b.case("pt.where", dtype, pt.where(p, q, p), lambda: np.where(x, y, x), "with numbers as condition")
    return b


def reductions(dtype: str) -> Cases:
    """Over every set of axes, of arrays with axes of length 0 and 1 too."""
    b, kind = Cases(), np.dtype(dtype).kind
    functions: dict[str, Any] = {"sum": np.sum, "prod": np.prod, "amax": np.amax, "amin": np.amin}
    if hasattr(pt, "any"):
        functions |= {"any": np.any, "all": np.all}
    for number, shape in enumerate([(3, 4, 2), (5,), (1, 3), (2, 0), (0, 2), ()]):
        x = sample(dtype, shape, seed=number, low=0.5 if kind in "fc" else -2, high=2)
        p = b.input(x)
        for axis in (None, *{(0,): (0,), (0, 1): (0, 1, (0, 1)), (0, 1, 2): (0, 1, 2, (0, 2), (1, 2))}.get(
            tuple(range(len(shape))), ()
        )):
            for name, function in functions.items():
                taken = range(len(shape)) if axis is None else (axis,) if isinstance(axis, int) else axis
                if not all(shape[k] for k in taken) and name not in ("sum", "prod"):
                    continue  # numpy and both pytatos refuse
                more = {} if name in ("amax", "amin", "any", "all") or kind in "fc" else {"dtype": _accumulated(dtype)}
                array = getattr(pt, name)(p, axis=axis)
                what = f"of {list(shape)} over {axis}"
                plain = function(x, axis=axis).dtype
                b.case(f"pt.{name}", dtype, array, function(x, axis=axis, **more), what, plain)
    if kind in "fc":
        x = sample(dtype, (4, 3))
        x[1, 2] = np.nan
        p = b.input(x)
        for name, function in functions.items():
            b.case(f"pt.{name}", dtype, getattr(pt, name)(p, axis=0), lambda f=function: f(x, axis=0), "with a NaN")
    long = sample(dtype, (2, 700), low=0.9 if kind == "f" else 0, high=1.1)
    p = b.input(long)
    for axis in (None, 0, 1):
        more = {} if kind in "fc" else {"dtype": _accumulated(dtype)}
        what, plain = f"long over {axis}", long.sum(axis=axis).dtype
        b.case("pt.sum", dtype, pt.sum(p, axis=axis), lambda a=axis, m=more: _sum(long, a, m), what, plain)
        b.case("pt.amax", dtype, pt.amax(p, axis=axis), lambda a=axis: np.amax(long, axis=a), f"long over {axis}")
    return b


def _accumulated(dtype: str) -> str:
    return "int64" if dtype == "bool" else dtype


def _sum(x: Any, axis: Any, more: dict[str, Any]) -> Any:
    wide = {"float16": "float64", "float32": "float64", "complex64": "complex128"}.get(x.dtype.name)
    return np.sum(x if wide is None else x.astype(wide), axis=axis, **more)


def products(dtype: str) -> Cases:
    """einsum and matmul."""
    b = Cases()
    sizes = {"i": 3, "j": 4, "k": 2, "l": 5}
    for text in ("ij->ji", "ii->i", "ij,jk->ik", "ij,ij->ij", "ij,ij->", "ij->", "i,j->ij", "ijk,jl,kl->il", "ii->"):
        left = text.partition("->")[0].split(",")
        square = len(set("".join(left))) == 1
        shapes = [(3, 3)] if square else [tuple(sizes[c] for c in term) for term in left]
        arrays = [sample(dtype, shape, seed=k) for k, shape in enumerate(shapes)]
        expected = _exact_einsum(text, arrays)
        plain = np.einsum(text, *arrays).dtype
        b.case("pt.einsum", dtype, pt.einsum(text, *map(b.input, arrays)), expected, text, plain)
    pairs = (((3, 4), (4, 2)), ((4,), (4, 2)), ((3, 4), (4,)), ((4,), (4,)), ((1, 1), (1, 1)), ((20, 33), (33, 18)))
    for one, two in pairs:
        x, y = sample(dtype, one, seed=1), sample(dtype, two, seed=2)
        p, q = b.input(x), b.input(y)
        b.case("pt.matmul", dtype, pt.matmul(p, q), lambda x=x, y=y: x @ y, f"{list(one)} {list(two)}")
        b.case("Array.__matmul__", dtype, p @ q, lambda x=x, y=y: x @ y, f"{list(one)} {list(two)}")
    return b


def _exact_einsum(text: str, arrays: list[Any]) -> Any:
    wide = {"f": np.float64, "c": np.complex128}.get(arrays[0].dtype.kind)
    if arrays[0].dtype == bool:
        return np.einsum(text, *[x.astype(int) for x in arrays]) != 0
    return np.einsum(text, *[x if wide is None else x.astype(wide) for x in arrays])


def shapes(dtype: str) -> Cases:
    """Nodes that move elements, on shapes with 0 and 1."""
    b = Cases()
    for number, shape in enumerate([(3, 4, 2), (6,), (1, 5), (0, 3), ()]):
        x = sample(dtype, shape, seed=number)
        p, name = b.input(x), str(list(shape))
        for axis in range(len(shape)):
            for shift in (1, -2, 7):
                rolled = pt.roll(p, shift, axis)
                b.case("pt.roll", dtype, rolled, lambda x=x, s=shift, a=axis: np.roll(x, s, a),
                       f"{name} {shift} {axis}")
            if x.size:
                before = (slice(None),) * axis
                picks: dict[str, Any] = {"first": (*before, 0), "rest": (*before, slice(1, shape[axis]))}
                for what, pick in picks.items():
                    if not (what == "rest" and shape[axis] == 1):
                        b.case("Array.__getitem__", dtype, p[pick], lambda x=x, k=pick: x[k], f"{name} {what} {axis}")
                index = np.array([[0, shape[axis] - 1], [-1, -shape[axis]]], "int32")
                b.case("aotato.take", dtype, aotato.take(p, b.input(index), axis), np.take(x, index, axis),
                       f"{name} {axis}")
                last = np.array(-1, "int8")
                taken = aotato.take(p, last, axis)
                b.case("aotato.take", dtype, taken, np.take(x, last, axis), f"{name} {axis} one")
        b.case("pt.transpose", dtype, pt.transpose(p), x.T, name)
        b.case("Array.T", dtype, p.T, x.T, name)
        if x.size:
            flat = pt.reshape(p, (-1,)) if shape else pt.reshape(p, (1,))
            b.case("pt.reshape", dtype, flat, x.reshape(-1), f"{name} flat")
            b.case("pt.reshape", dtype, pt.reshape(p, (1, x.size, 1)), x.reshape(1, -1, 1), f"{name} with ones")
            if x.size % 2 == 0:
                b.case("pt.reshape", dtype, pt.reshape(p, (2, x.size // 2)), x.reshape(2, -1), f"{name} in two")
        y = sample(dtype, shape, seed=number + 10)
        q = b.input(y)
        for axis in range(len(shape) + 1):
            b.case("pt.stack", dtype, pt.stack([p, q, p], axis), np.stack([x, y, x], axis), f"{name} {axis}")
        for axis in range(len(shape)):
            joined = pt.concatenate([p, q, p], axis)
            b.case("pt.concatenate", dtype, joined, np.concatenate([x, y, x], axis), f"{name} {axis}")
        if shape:
            b.case("broadcasting", dtype, pt.where(True, p, p[0]) if x.size else p, x, f"{name}")
            b.case("pt.transpose", dtype, pt.transpose(p, _turned(len(shape))), x.transpose(_turned(len(shape))),
                   f"{name} turned")
        b.case("pt.full", dtype, pt.full(shape, 1, dtype), np.full(shape, 1, dtype), name)
        b.case("pt.zeros", dtype, pt.zeros(shape, dtype), np.zeros(shape, dtype), name)
        b.case("pt.ones", dtype, pt.ones(shape, dtype), np.ones(shape, dtype), name)
    return b


def _turned(ndim: int) -> tuple[int, ...]:
    return (*range(1, ndim), 0)


def lambdas(dtype: str) -> Cases:
    """Index lambdas with what no function of pytato writes."""
    b, kind = Cases(), np.dtype(dtype).kind
    x, y = pairs(specials(dtype), specials(dtype))
    p, q = b.input(x), b.input(y)
    i, u, v = prim.Variable("_0"), prim.Variable("u")[prim.Variable("_0")], prim.Variable("v")[prim.Variable("_0")]

    def case(row: str, expr: Any, expected: Any, to: Any = None) -> None:
        array = index_lambda(expr, {"u": p, "v": q}, x.shape, to or dtype)
        b.case(row, dtype, array, expected)

    number = np.arange(x.size)
    if kind != "c":
        case("prim.Min", prim.Min((u, v)), lambda: np.minimum(x, y))
        case("prim.Max", prim.Max((u, v, u)), lambda: np.maximum(x, y))
    if kind in "iuf":
        case("prim.FloorDiv", prim.FloorDiv(u, v), lambda: x // y)
        case("prim.Remainder", prim.Remainder(u, v), lambda: x % y)
        case("prim.FloorDiv by a number", prim.FloorDiv(u, 3), lambda: x // 3)
        case("prim.Remainder by a number", prim.Remainder(u, 3), lambda: x % 3)
    if kind in "iu":
        bits = np.dtype(dtype).itemsize * 8
        few = np.dtype(dtype).type(bits - 1)
        case("prim.LeftShift", prim.LeftShift(u, v & few), lambda: x << (y & few))
        case("prim.RightShift", prim.RightShift(u, v & few), lambda: x >> (y & few))
    if kind in "biu":
        case("prim.BitwiseNot", prim.BitwiseNot(u), lambda: ~x)
    case("prim.LogicalNot", prim.LogicalNot(u), lambda: np.logical_not(x), "bool")
    case("index as a value", u * 0 + i if kind == "c" else prim.If(prim.Comparison(i % 3, "<", 1), u, v), lambda: (
        x * 0 + number if kind == "c" else np.where(number % 3 < 1, x, y)))
    case("read at computed indices", prim.Variable("u")[(i * 7 + 3) % x.size], lambda: x[(number * 7 + 3) % x.size])
    case("read under a condition", prim.If(prim.Comparison(i, "<", x.size - 1), prim.Variable("u")[i + 1], 0),
         lambda: np.append(x[1:], x.dtype.type(0)))
    for to in DTYPES:
        case(f"converted to {to}", u, lambda t=to: _converted(x, t), to)
    return b


def _converted(x: Any, to: str) -> Any:
    return (x.real if x.dtype.kind == "c" and np.dtype(to).kind not in "cb" else x).astype(to)


def calls(dtype: str) -> Cases:
    """A loopy kernel of computed arrays, whose results are read and returned."""
    b = Cases()
    x, y = sample(dtype, (5, 3)), sample(dtype, (5,), seed=1)
    p, q = b.input(x), b.input(y)
    arguments = [lp.GlobalArg(name, None, shape=shape) for name, shape in
                 (("x", ("n", 3)), ("y", ("n",)), ("sum", ("n", 3)), ("copy", ("n",)))]
    text = "sum[i, j] = x[i, j] + y[i] {id=first}\ncopy[i] = y[i]"
    kernel = lp.make_kernel("{[i, j]: 0 <= i < n and 0 <= j < 3}", text, [*arguments, lp.ValueArg("n", None)],
                            lang_version=(2018, 2))
    call = call_loopy(kernel, {"x": p + p, "y": q, "n": 5})
    row = "pytato.loopy.call_loopy"
    b.case(row, dtype, call["sum"], x + x + y[:, np.newaxis], "sum")
    b.case(row, dtype, call["copy"] + q, y + y, "copy")
    return b


def index_lambda(expr: Any, bindings: dict[str, Any], shape: tuple[int, ...], dtype: Any) -> Any:
    """Both pytatos' IndexLambda."""
    if compat.HAS_LOWERING:
        return pt.array.make_index_lambda(expr, bindings, shape, np.dtype(dtype))
    return pt.IndexLambda(expr, shape, np.dtype(dtype), bindings)


GROUPS: dict[str, tuple[Callable[[str], Cases], tuple[str, ...]]] = {
    "unary": (unary, DTYPES),
    "binary": (binary, DTYPES),
    "reductions": (reductions, DTYPES),
    "products": (products, DTYPES),
    "shapes": (shapes, DTYPES),
    "lambdas": (lambdas, DTYPES),
    "calls": (calls, (*INTEGERS, "float32", "float64", *COMPLEX)),
}
# Outputs that one pytato alone can make, and those for which one writes two nodes and the other one
_OF_ONE = ("pt.logical_not", "pt.any", "pt.all", "Array.__getitem__", "broadcasting")
_TWO_NODES = ("pt.matmul", "Array.__matmul__")  # of vectors: main multiplies first
ALIKE = {
    **{"unary": "float32", "binary": "int32", "reductions": "float64", "shapes": "int8", "lambdas": "float32"},
    **{"products": "float64"},
}


def alike(group: str) -> Cases:
    """What both pytatos must trace to one program."""
    cases = GROUPS[group][0](ALIKE[group])
    cases.outputs = {
        path: x
        for path, x in cases.outputs.items()
        if not path.startswith(_OF_ONE) and not (path.startswith(_TWO_NODES) and not x.shape)
    }
    return cases
