"""What only pytato main can express: arrays made with it, and what numpy makes of the same numbers.

`write.py` traces them with main into the texts beside this file; the tests run those without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

Arrays = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """`make(pt, inputs)` gives outputs from placeholders, `numpy(inputs)` from numbers; rows are those of the table."""

    inputs: Arrays
    make: Callable[[Any, Arrays], Arrays]
    numpy: Callable[[Arrays], Arrays]
    rows: tuple[str, ...]


def numbers(dtype: str, shape: tuple[int, ...], seed: int = 0) -> Any:
    rng = np.random.default_rng(seed)
    if np.dtype(dtype).kind in "iu":
        return rng.integers(0 if dtype.startswith("u") else -9, 9, shape).astype(dtype)
    if np.dtype(dtype).kind == "b":
        return rng.random(shape) < 0.5
    return rng.uniform(-4, 4, shape).astype(dtype)


A, B = numbers("int32", (3, 4, 5)), numbers("int32", (3, 4, 5), 1)
B[B == 0] = 3
X, Y = numbers("float64", (3, 4, 5), 2), numbers("float64", (3, 4, 5), 3)
I2, J2 = np.array([[0, -1], [2, 1]]), np.array([[3, 1], [-4, 0]])
I1 = np.array([2, 0, -1], "int8")
SPARSE = np.where(np.random.default_rng(5).random((6, 7)) < 0.3, numbers("float64", (6, 7), 6), 0.0)
SPARSE[2] = 0


def division(op: Any, p: Arrays) -> Arrays:
    return {
        "floor of integers": p["a"] // p["b"],
        "rest of integers": p["a"] % p["b"],
        "floor": p["x"] // p["y"],
        "rest": p["x"] % p["y"],
        "by a number": p["a"] // 3,
        "rest by a number": p["a"] % -3,
        "of a number": 7 // p["b"],
        "rest of a number": 7 % p["y"],
    }


def slices(op: Any, p: Arrays) -> Arrays:
    a = p["a"]
    return {
        "step": a[::2, 1::3, ::-1],
        "negative": a[-2:, :-1, -1:0:-2],
        "numbers": a[1, ..., -2],
        "ellipsis": a[..., 1:3],
        "empty": a[2:1],
        "beyond": a[:100, 2:50],
    }


def new_axes(op: Any, p: Arrays) -> Arrays:
    return {"new axis": op.expand_dims(p["a"], (0, 2)), "squeezed": op.squeeze(op.expand_dims(p["a"], (1,)))}


def gathers(op: Any, p: Arrays) -> Arrays:
    a, i, j = p["a"], p["i"], p["j"]
    return {
        "contiguous": a[:, i, j],
        "first": a[i, j],
        "apart": a[i, :, j],
        "with a number": a[i, 1, ::2],
        "one": a[:, i],
        "broadcast": a[p["k"], :, 2],
        "constant": a[:, :, op_array(op, J2)],
    }


def op_array(op: Any, array: Any) -> Any:
    return array if op is np else op.make_data_wrapper(array)


def reshapes(op: Any, p: Arrays) -> Arrays:
    a = p["a"]
    return {
        "F": op.reshape(a, (5, 12), order="F"),
        "F flat": op.reshape(a, (-1,), order="F"),
        "C": op.reshape(a, (2, 6, 5)),
        "ones": op.reshape(a, (1, 12, 1, 5)),
    }


def padded(op: Any, p: Arrays) -> Arrays:
    return {
        "one": op.pad(p["a"], 1),
        "sides": op.pad(p["x"], ((1, 2), (0, 0), (3, 0)), constant_values=2),
        "values": op.pad(p["x"][0], ((1, 0), (0, 2)), constant_values=((1, 0), (0, 4))),
    }


def products(op: Any, p: Arrays) -> Arrays:
    return {
        "dot": op.dot(p["x"][0], p["y"][0].T),
        "conj": p["z"].conj(),
        "vdot": op.vdot(p["z"], p["z"] + 1j),
        "matmul of stacks": op.matmul(p["x"], op.transpose(p["y"], (0, 2, 1))),
        "einsum broadcasting": op.einsum("ij,ij->ij", p["x"][0], p["x"][0, :1]),
    }


def conversions(op: Any, p: Arrays) -> Arrays:
    inexact = ("float16", "float32", "complex64")  # pytato refuses float to int
    found = {f"x to {dtype}": p["x"].astype(dtype) for dtype in inexact}
    return found | {f"a to {dtype}": (p["a"] + 9).astype(dtype) for dtype in ("int8", "uint16", "int64", *inexact)}


def reductions(op: Any, p: Arrays) -> Arrays:
    b, n = op.greater(p["a"], 3), p["n"]
    return {
        "any": op.any(b, axis=1),
        "all": op.all(b, axis=(0, 2)),
        "any of all": op.any(b),
        "all of all": op.all(b),
        "max with NaN": op.amax(n, axis=0),
        "min with NaN": op.amin(n, axis=1),
        "min": op.amin(p["a"], axis=(0, 2)),
        "prod": op.prod(p["x"], axis=2),
        "sum": op.sum(p["x"]),
        "sum of nothing": op.sum(p["x"][:0], axis=0),
        "max of nothing": op.amax(p["x"][:0], axis=0, initial=-np.inf),
        "min of nothing": op.amin(p["x"][:0], axis=0, initial=np.inf),
    }


def makers(op: Any, p: Arrays) -> Arrays:
    return {
        "arange": op.arange(2, 11, 3, dtype="int64"),
        "arange of floats": op.arange(0.0, 1.0, 0.25, dtype="float64"),
        "eye": op.eye(4, 5, 1),
        "zeros_like": op.zeros_like(p["x"]),
        "ones_like": op.ones_like(p["y"]),
        "broadcast_to": op.broadcast_to(p["a"][0, 0], (3, 5)),
        "maximum": op.maximum(p["n"], 1.0),
        "minimum": op.minimum(p["x"], p["n"]),
        "where": op.where(op.greater(p["a"], p["b"]), p["x"], np.float32(1)),
    }


def sparse(pt: Any, p: Arrays) -> Arrays:
    starts = np.concatenate([[0], np.cumsum((SPARSE != 0).sum(axis=1))]).astype("int32")
    columns = np.nonzero(SPARSE)[1].astype("int32")
    values = SPARSE[SPARSE != 0]
    constants = [pt.make_data_wrapper(data) for data in (values, columns, starts)]
    constant = pt.make_csr_matrix(SPARSE.shape, *constants)
    changing = pt.make_csr_matrix(SPARSE.shape, p["v"], *constants[1:])
    return {"vector": constant @ p["u"], "matrix": constant @ p["w"], "values given": changing @ p["u"]}


def sparse_numpy(x: Arrays) -> Arrays:
    other = np.zeros_like(SPARSE)
    other[SPARSE != 0] = x["v"]
    return {"vector": SPARSE @ x["u"], "matrix": SPARSE @ x["w"], "values given": other @ x["u"]}


def square_and_sum(x: Any, y: Any) -> Arrays:
    return {"square": x * x + y, "both": x + 2 * y}


def called(pt: Any, p: Arrays) -> Arrays:
    def outer(x: Any, y: Any) -> Any:
        inner = pt.trace_call(square_and_sum, x, y)
        return inner["square"] - inner["both"]

    first = pt.trace_call(square_and_sum, p["x"], p["y"])
    second = pt.trace_call(square_and_sum, first["both"], first["square"])
    return {**second, "nested": pt.trace_call(outer, p["y"], p["x"])}


def called_numpy(x: Arrays) -> Arrays:
    first = square_and_sum(x["x"], x["y"])
    inner = square_and_sum(x["y"], x["x"])
    return {**square_and_sum(first["both"], first["square"]), "nested": inner["square"] - inner["both"]}


def same(make: Callable[[Any, Arrays], Arrays]) -> Callable[[Arrays], Arrays]:
    """numpy has the same functions."""
    return lambda x: make(np, x)


N = X.copy()
N[0, 1] = np.nan
AB, XY = {"a": A, "b": B}, {"x": X, "y": Y}
Z = numbers("float64", (6,), 8) + 1j * numbers("float64", (6,), 9)
CASES: dict[str, Case] = {
    "division": Case(
        {**AB, **XY},
        division,
        same(division),
        ("Array.__floordiv__", "Array.__mod__", "Array.__rfloordiv__", "Array.__rmod__"),
    ),
    "slices": Case({"a": A}, slices, same(slices), ("Array.__getitem__",)),
    "new_axes": Case({"a": A}, new_axes, same(new_axes), ("pt.expand_dims", "pt.squeeze")),
    "gathers": Case(
        {"a": A, "i": I2, "j": J2, "k": I1},
        gathers,
        same(gathers),
        ("Array.__getitem__ by arrays",),
    ),
    "reshapes": Case({"a": A}, reshapes, same(reshapes), ("pt.reshape",)),
    "padded": Case({"a": A, "x": X}, padded, same(padded), ("pt.pad",)),
    "products": Case(
        {**XY, "z": Z},
        products,
        same(products),
        ("Array.conj", "pt.dot", "pt.vdot", "pt.matmul", "pt.einsum"),
    ),
    "conversions": Case({"a": A, "x": X}, conversions, same(conversions), ("Array.astype",)),
    "reductions": Case(
        {"a": A, "x": X, "n": N},
        reductions,
        same(reductions),
        ("pt.any", "pt.all", "pt.amax", "pt.amin", "pt.sum", "pt.prod"),
    ),
    "makers": Case(
        {**AB, **XY, "n": N},
        makers,
        same(makers),
        ("pt.arange", "pt.eye", "pt.zeros_like", "pt.ones_like", "pt.broadcast_to", "pt.maximum", "pt.minimum"),
    ),
    "sparse": Case(
        {
            "u": numbers("float64", (7,), 3),
            "w": numbers("float64", (7, 2), 4),
            "v": np.arange(1.0, 1 + (SPARSE != 0).sum()),
        },
        sparse,
        sparse_numpy,
        ("pt.make_csr_matrix", "pt.sparse_matmul"),
    ),
    "called": Case({"x": X, "y": Y}, called, called_numpy, ("pt.trace_call",)),
}
