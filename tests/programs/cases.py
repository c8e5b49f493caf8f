"""What only pytato main can express: arrays made with it, and what numpy makes of the same numbers.

`write.py` traces them with main, every dtype of a case into one text beside this file; the tests run those without it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from nodes import COMPLEX, DTYPES, INTEGERS, REALS, pairs, sample, specials

Arrays = dict[str, Any]
Outputs = dict[tuple[str, str], Any]  # by row of the table, and what
INEXACT = (*REALS, *COMPLEX)
NUMBERS = (*INTEGERS, *INEXACT)


@dataclass(frozen=True)
class Case:
    """`make(op, arrays, dtype)` gives outputs, with pytato or numpy as `op`; `inputs(dtype)` are its arrays' values."""

    inputs: Callable[[str], Arrays]
    make: Callable[[Any, Arrays, str], Outputs]
    dtypes: tuple[str, ...] = DTYPES
    numpy: Callable[[Any, Arrays, str], Outputs] | None = None  # where numpy has no functions of the same names

    def given(self, dtype: str) -> Arrays:
        """Inputs of the program by name."""
        return {f"{name}_{dtype}": np.asarray(array) for name, array in self.inputs(dtype).items()}

    def traced(self, pt: Any) -> Arrays:
        """Outputs of the program by path."""
        found: Arrays = {}
        for dtype in self.dtypes:
            placeholders = {
                name: pt.make_placeholder(f"{name}_{dtype}", np.shape(x), np.asarray(x).dtype)
                for name, x in self.inputs(dtype).items()
            }
            made = self.make(pt, placeholders, dtype)
            found |= {path(row, dtype, what): array for (row, what), array in made.items()}
        return found

    def expected(self, dtype: str) -> Outputs:
        with np.errstate(all="ignore"):
            return (self.numpy or self.make)(np, self.inputs(dtype), dtype)


def path(row: str, dtype: str, what: str) -> str:
    return f"{row}: {dtype} {what}".strip()


def dtype_of(path: str) -> str:
    return path.partition(": ")[2].partition(" ")[0]


def some(**shapes: tuple[int, ...]) -> Callable[[str], Arrays]:
    """Arrays of these shapes, each of other numbers."""
    return lambda dtype: {name: sample(dtype, shape, seed=n) for n, (name, shape) in enumerate(shapes.items())}


def division(op: Any, p: Arrays, dtype: str) -> Outputs:
    a, b = p["a"], p["b"]
    return {
        ("Array.__floordiv__", ""): a // b,
        ("Array.__floordiv__", "by a number"): a // 3,
        ("Array.__mod__", ""): a % b,
        ("Array.__mod__", "by a number"): a % (-3 if np.dtype(dtype).kind in "if" else 3),
        ("Array.__rfloordiv__", ""): 7 // b,
        ("Array.__rmod__", ""): 7 % b,
    }


def slices(op: Any, p: Arrays, dtype: str) -> Outputs:
    a = p["a"]
    found = {
        "step": a[::2, 1::3, ::-1],
        "negative": a[-2:, :-1, -1:0:-2],
        "numbers": a[1, ..., -2],
        "ellipsis": a[..., 1:3],
        "empty": a[2:1],
        "beyond": a[:100, 2:50],
    }
    return {("Array.__getitem__", what): array for what, array in found.items()}


def new_axes(op: Any, p: Arrays, dtype: str) -> Outputs:
    return {
        ("pt.expand_dims", ""): op.expand_dims(p["a"], (0, 2)),
        ("pt.squeeze", ""): op.squeeze(op.expand_dims(p["a"], (1,))),
    }


I2, J2 = np.array([[0, -1], [2, 1]]), np.array([[3, 1], [-4, 0]])
BY_ARRAYS = "Array.__getitem__ by arrays"


def gathers(op: Any, p: Arrays, dtype: str) -> Outputs:
    a, i, j = p["a"], p["i"], p["j"]
    constant = J2 if op is np else op.make_data_wrapper(J2)
    found = {
        "contiguous": a[:, i, j],
        "first": a[i, j],
        "apart": a[i, :, j],
        "with a number": a[i, 1, ::2],
        "constant": a[:, :, constant],
    }
    return {(BY_ARRAYS, what): array for what, array in found.items()}


def indices(op: Any, p: Arrays, dtype: str) -> Outputs:
    """The dtype is that of the index."""
    return {
        (BY_ARRAYS, "one"): p["a"][:, p["k"]],
        (BY_ARRAYS, "broadcast"): p["a"][p["k"], :, 2],
        ("aotato.take", "by main's index"): p["a"][p["k"]],
    }


def reshapes(op: Any, p: Arrays, dtype: str) -> Outputs:
    a = p["a"]
    return {
        ("pt.reshape", "F"): op.reshape(a, (5, 12), order="F"),
        ("pt.reshape", "F flat"): op.reshape(a, (-1,), order="F"),
        ("pt.reshape", "C"): op.reshape(a, (2, 6, 5)),
        ("pt.reshape", "ones"): op.reshape(a, (1, 12, 1, 5)),
    }


def padded(op: Any, p: Arrays, dtype: str) -> Outputs:
    a = p["a"]
    return {
        ("pt.pad", "one"): op.pad(a, 1),
        ("pt.pad", "sides"): op.pad(a, ((1, 2), (0, 0), (3, 0)), constant_values=1),
        ("pt.pad", "values"): op.pad(a[0], ((1, 0), (0, 2)), constant_values=((1, 0), (0, 1))),
    }


def products(op: Any, p: Arrays, dtype: str) -> Outputs:
    x, y = p["x"], p["y"]
    return {
        ("pt.dot", "of matrices"): op.dot(x[0], y[0].T),
        ("pt.dot", "of vectors"): op.dot(x[0, 0], y[0, 0]),
        ("pt.vdot", ""): op.vdot(x[0, 0], y[0, 0]),
        ("pt.matmul", "of stacks"): op.matmul(x, op.transpose(y, (0, 2, 1))),
        ("pt.einsum", "broadcasting"): op.einsum("ij,ij->ij", x[0], x[0, :1]),
        ("Array.conj", ""): x.conj(),
    }


def converts(dtype: str, to: str) -> bool:
    """Whether pytato allows it: no number may lose its kind."""
    return np.can_cast(dtype, to, "same_kind")


def conversions(op: Any, p: Arrays, dtype: str) -> Outputs:
    return {("Array.astype", f"to {to}"): p["a"].astype(to) for to in DTYPES if converts(dtype, to)}


def reductions(op: Any, p: Arrays, dtype: str) -> Outputs:
    a = p["a"]
    found = {
        ("pt.any", ""): op.any(a, axis=1),
        ("pt.all", ""): op.all(a, axis=(0, 2)),
        ("pt.any", "of all"): op.any(a),
        ("pt.all", "of all"): op.all(a),
        ("pt.amin", ""): op.amin(a, axis=(0, 2)),
        ("pt.amax", ""): op.amax(a, axis=1),
        ("pt.sum", "of nothing"): op.sum(a[:0], axis=0),
        ("pt.prod", "of nothing"): op.prod(a[:0], axis=0),
    }
    if np.dtype(dtype).kind == "f":
        found[("pt.amax", "of nothing")] = op.amax(a[:0], axis=0, initial=-np.inf)
        found[("pt.amin", "of nothing")] = op.amin(a[:0], axis=0, initial=np.inf)
    return found


def with_a_nan(dtype: str) -> Arrays:
    a = sample(dtype, (3, 4, 5))
    if np.dtype(dtype).kind in "fc":
        a[0, 1, 2] = np.nan
    return {"a": a}


def makers(op: Any, p: Arrays, dtype: str) -> Outputs:
    x, y, kind = p["x"], p["y"], np.dtype(dtype).kind
    found = {
        ("pt.eye", ""): op.eye(4, 5, 1, dtype=dtype),
        ("pt.broadcast_to", ""): op.broadcast_to(x[0], (3, 5)),
        ("pt.where", "with a number"): op.where(op.equal(x, y), x, y.dtype.type(1)),
    }
    if kind in "fc":
        found[("pt.zeros_like", "")] = op.zeros_like(x)
        found[("pt.ones_like", "")] = op.ones_like(x)
    if kind in "iuf":
        found[("pt.arange", "")] = op.arange(2, 11, 3, dtype=dtype)
    if kind == "f":
        found[("pt.arange", "by parts")] = op.arange(0.0, 1.0, 0.25, dtype=dtype)
    if kind in "biuf":
        found[("pt.maximum", "")] = op.maximum(x, y)
        found[("pt.minimum", "")] = op.minimum(x, y)
    return found


PLACES = np.random.default_rng(5).random((6, 7)) < 0.3
PLACES[2] = False


def sparse_inputs(dtype: str) -> Arrays:
    values = sample(dtype, (int(PLACES.sum()),), seed=3)
    return {"v": values, "u": sample(dtype, (7,), seed=1), "w": sample(dtype, (7, 2), seed=2)}


def sparse(pt: Any, p: Arrays, dtype: str) -> Outputs:
    starts = pt.make_data_wrapper(np.concatenate([[0], np.cumsum(PLACES.sum(axis=1))]).astype("int32"))
    columns = pt.make_data_wrapper(np.nonzero(PLACES)[1].astype("int32"))
    constant = pt.make_csr_matrix(PLACES.shape, pt.make_data_wrapper(sparse_inputs(dtype)["v"]), columns, starts)
    changing = pt.make_csr_matrix(PLACES.shape, p["v"], columns, starts)
    return {
        ("pt.sparse_matmul", "vector"): constant @ p["u"],
        ("pt.sparse_matmul", "matrix"): constant @ p["w"],
        ("pt.make_csr_matrix", "values given"): changing @ p["u"],
    }


def sparse_numpy(op: Any, x: Arrays, dtype: str) -> Outputs:
    matrix = np.zeros(PLACES.shape, dtype)
    matrix[PLACES] = x["v"]
    return {
        ("pt.sparse_matmul", "vector"): matrix @ x["u"],
        ("pt.sparse_matmul", "matrix"): matrix @ x["w"],
        ("pt.make_csr_matrix", "values given"): matrix @ x["u"],
    }


def square_and_sum(x: Any, y: Any) -> Arrays:
    return {"square": x * x + y, "both": x + y * y}


def called(pt: Any, p: Arrays, dtype: str) -> Outputs:
    def outer(x: Any, y: Any) -> Any:
        inner = pt.trace_call(square_and_sum, x, y)
        return inner["square"] + inner["both"]

    first = pt.trace_call(square_and_sum, p["x"], p["y"])
    second = pt.trace_call(square_and_sum, first["both"], first["square"])
    found = {**second, "nested": pt.trace_call(outer, p["y"], p["x"])}
    return {("pt.trace_call", what): array for what, array in found.items()}


def called_numpy(op: Any, x: Arrays, dtype: str) -> Outputs:
    first = square_and_sum(x["x"], x["y"])
    inner = square_and_sum(x["y"], x["x"])
    found = {**square_and_sum(first["both"], first["square"]), "nested": inner["square"] + inner["both"]}
    return {("pt.trace_call", what): array for what, array in found.items()}


def _pairs(dtype: str) -> Arrays:
    special, easy = pairs(specials(dtype), specials(dtype)), (sample(dtype, (99,), seed=n) for n in range(2))
    return {name: np.concatenate(both) for name, both in zip("ab", zip(special, easy, strict=True), strict=True)}


def _indexed(dtype: str) -> Arrays:
    first = [2, 0, 1] if dtype.startswith("u") else [2, 0, -1]
    return {"a": sample("int32", (3, 4, 5)), "k": np.array(first, dtype)}


CASES: dict[str, Case] = {
    "division": Case(_pairs, division, (*INTEGERS, *REALS)),
    "slices": Case(some(a=(3, 4, 5)), slices),
    "new_axes": Case(some(a=(3, 4)), new_axes),
    "gathers": Case(lambda dtype: {"a": sample(dtype, (3, 4, 5)), "i": I2, "j": J2}, gathers),
    "indices": Case(_indexed, indices, INTEGERS),
    "reshapes": Case(some(a=(3, 4, 5)), reshapes),
    "padded": Case(some(a=(3, 4, 5)), padded),
    "products": Case(some(x=(2, 3, 4), y=(2, 3, 4)), products),
    "conversions": Case(some(a=(6,)), conversions),
    "reductions": Case(with_a_nan, reductions),
    "makers": Case(some(x=(3, 5), y=(3, 5)), makers),
    "sparse": Case(sparse_inputs, sparse, NUMBERS, sparse_numpy),
    "called": Case(some(x=(3, 4), y=(3, 4)), called, DTYPES, called_numpy),
}
