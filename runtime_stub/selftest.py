"""Compare a device with the interpreter, on the data that a bundle carries."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from aotato.runtime_stub.errors import Refusal

if TYPE_CHECKING:
    from aotato.runtime_stub.program import Program

Array = np.ndarray[Any, Any]


def compare(program: Program) -> str:
    """A sentence about what agreed. Collective; raises Refusal naming the first value outside its bound."""
    compared = 0
    for name, entry in program.bundle.entries.items():
        if entry.selftest:
            data = entry.selftest[program.world.rank]
            found = program.call(name, **{path: program.bundle.array(key) for path, key in data["inputs"].items()})
            program.world.agree(_difference(program, name, data, found))
            compared += sum(array.size for array in found.values())
    if not any(entry.selftest for entry in program.bundle.entries.values()):
        return "this bundle carries no self-test data: its arrays are too large"
    return f"self-test passed: {compared} values within their bounds"


def _difference(
    program: Program, entry: str, data: Mapping[str, Mapping[str, str]], found: Mapping[str, Array]
) -> Refusal | None:
    for path, array in found.items():
        expected = program.bundle.array(data["outputs"][path])
        wrong = np.argwhere(~np.atleast_1d(_agree(array, expected, program.bundle.array(data["bounds"][path]))))
        if len(wrong):
            at = tuple(int(i) for i in wrong[0])
            return Refusal(
                f"self-test of entry {entry!r}: {path}{list(at)} is {np.atleast_1d(array)[at]}, "
                f"expected {np.atleast_1d(expected)[at]}; the device or its compiler computes wrongly"
            )
    return None


def _agree(found: Array, expected: Array, bound: Array) -> Array:
    """Within the bound; equal; both NaN; or the bound is infinite."""
    wide = "complex128" if found.dtype.kind == "c" else "float64"
    with np.errstate(invalid="ignore", over="ignore"):
        near = np.abs(found.astype(wide) - expected.astype(wide)) <= bound
    same: Array = near | (found == expected) | ((found != found) & (expected != expected)) | np.isinf(bound)
    return same
