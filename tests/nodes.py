"""Many arrays as outputs of one program: device, interpreter and numpy must give the same."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytato as pt

import aotato
from aotato.emit.build import assemble
from aotato.emit.target import chosen
from aotato.frontend.adapter import compat
from aotato.frontend.adapter.trace import Traced, trace
from aotato.frontend.interpret import Value, assert_agrees, run
from aotato.frontend.ir import Input

compat.install()
Array = np.ndarray[Any, Any]
HEAD = {"app": "nodes", "doc": "", "options": {}, "plan": None}

TARGET = os.environ.get("AOTATO_TARGET", "cpu")  # of the tests of nodes: gpu where the device is one
INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
REALS = ("float16", "float32", "float64")
COMPLEX = ("complex64", "complex128")
DTYPES = ("bool", *INTEGERS, *REALS, *COMPLEX)


def placeholder(name: str, shape: tuple[int, ...], dtype: Any) -> Any:
    """Both pytatos' `make_placeholder`, whose arguments come in different orders."""
    return pt.make_placeholder(name=name, shape=shape, dtype=dtype)


class Batch:
    """Inputs and outputs of one program.

    With `computed`, the arrays that `input` gives are computed from what the program is given: the elements moved by
    one along the first axis, and back.
    """

    computed = False

    def __init__(self) -> None:
        self.inputs: dict[str, Array] = {}
        self.outputs: dict[str, Any] = {}
        self.expected: dict[str, Array | None] = {}

    def input(self, array: Any) -> Any:
        """An array of the values of `array`."""
        name, values = f"in{len(self.inputs)}", np.asarray(array)
        moved = self.computed and values.ndim > 0
        self.inputs[name] = np.roll(values, 1, 0) if moved else values
        made = placeholder(name, values.shape, values.dtype.name)
        return pt.roll(made, -1, 0) if moved else made

    def add(self, path: str, array: Any, expected: Any) -> None:
        """`array` must have the values of `expected` in its declared dtype."""
        assert path not in self.outputs, path
        self.outputs[path] = array
        self.expected[path] = None if expected is None else declared(np.asarray(expected), array.dtype)

    def traced(self) -> Traced:
        return trace("step", 1, lambda rank: self.outputs)

    def check(
        self, path: Path, known: float = 0.9, target: str = TARGET, fuse: bool = True, algebra: str = "exact"
    ) -> None:
        """Raise AssertionError naming every output that differs; `known` is the share of elements with a bound."""
        traced = self.traced()
        assemble({"step": traced}, path, chosen(target), HEAD, fuse=fuse, algebra=algebra)
        inputs = {node.path: self.inputs[node.path] for _, node in traced.programs.ranks[0].of_type(Input)}
        native = {name: x.astype(x.dtype.newbyteorder("=")) for name, x in inputs.items()}
        values = run(traced.programs, [native])[0]
        with aotato.load(path) as program:
            device = program(**inputs)
        report(values, device, self.expected, known)


def report(
    values: dict[str, Value], device: dict[str, Array], expected: dict[str, Array | None], known: float
) -> None:
    """Compare the device with the interpreter, and the interpreter with numpy."""
    wrong: list[str] = []
    total = bounded = 0
    for path, value in values.items():
        total += value.value.size
        bounded += int(np.isfinite(value.bound).sum())
        for source, other in (("device", device[path]), ("numpy", expected[path])):
            if other is not None:
                try:
                    assert_agrees(path, value, other)
                except AssertionError as error:
                    wrong.append(f"{source}: {error}")
    assert not wrong, f"{len(wrong)} of {2 * len(values)} differ:\n" + "\n".join(wrong)
    assert bounded >= known * total, f"only {bounded} of {total} elements have a bound"


def declared(array: Array, dtype: Any) -> Array:
    """`array` cast to the dtype that the pytato array declares."""
    with np.errstate(all="ignore"):
        return (array.real if array.dtype.kind == "c" and np.dtype(dtype).kind != "c" else array).astype(dtype)


def sample(dtype: Any, shape: tuple[int, ...], seed: int = 0, low: float = -4, high: float = 4) -> Array:
    """Random numbers in [low, high], the special ones of the dtype not among them."""
    rng, dtype = np.random.default_rng((seed, len(shape))), np.dtype(dtype)
    if dtype.kind == "b":
        return rng.random(shape) < 0.5
    if dtype.kind in "iu":
        return rng.integers(0 if dtype.kind == "u" else int(low), int(high) + 1, shape).astype(dtype)
    real = rng.uniform(low, high, shape)
    if dtype.kind == "c":
        return np.asarray(real + 1j * rng.uniform(low, high, shape)).astype(dtype)
    return np.asarray(real).astype(dtype)


def specials(dtype: Any) -> Array:
    """Numbers of the dtype that are easily got wrong."""
    dtype = np.dtype(dtype)
    match dtype.kind:
        case "b":
            return np.array([False, True])
        case "i" | "u":
            info = np.iinfo(dtype)
            return np.array(sorted({info.min, info.min + 1, 0, 1, 2, 7, info.max - 1, info.max}), dtype)
        case "f":
            info = np.finfo(dtype)
            some = [0.0, -0.0, 1.0, -1.5, 2.5, 7.0, np.inf, -np.inf, np.nan, info.max, -info.max, info.tiny, info.eps]
            return np.array(some, dtype)
    return np.array([0, 1, 1j, -2.5 + 0.5j, 3 - 4j, 1e-3 + 1e3j], dtype)


def pairs(a: Array, b: Array) -> tuple[Array, Array]:
    """Every element of `a` with every one of `b`."""
    return tuple(np.ascontiguousarray(x.ravel()) for x in np.meshgrid(a, b, indexing="ij"))  # type: ignore[return-value]
