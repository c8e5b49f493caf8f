"""Where arrays lie in memory, and the arguments through which a kernel reaches them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import loopy as lp
import numpy as np

from aotato.emit.parameters import Parameter
from aotato.frontend import ir


@dataclass(frozen=True)
class Place:
    """An array's first byte: `offset` bytes into `buffer`; or a scalar passed by value."""

    buffer: str
    offset: int = 0
    by_value: bool = False


def storage_dtype(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The dtype in which OpenCL keeps an array: booleans and half floats have none of their own in loopy."""
    return np.dtype({"bool": "uint8", "float16": "uint16"}.get(dtype.name, dtype.name))


class Arguments:
    """A kernel's arguments, one per buffer, dtype and direction, in order of first use."""

    def __init__(
        self, program: ir.Program, read_at: Mapping[str, Place], write_at: Mapping[str, tuple[Place, ...]]
    ) -> None:
        self.program, self.read_at, self.write_at = program, read_at, write_at
        self.names: dict[tuple[str, str, str, int], str] = {}  # buffer, dtype, r | w | v, element of a value
        self.sizes: dict[str, int] = {}

    def read(self, array: str) -> tuple[str, int, bool]:
        """(argument, first element, whether it is a value) for reading `array`."""
        place, node = self.read_at[array], self.program.arrays[array]
        if not place.by_value:
            return *self._argument(place, node.dtype, "r", ir.size(node.shape)), False
        kept = storage_dtype(node.dtype)
        key = (place.buffer, kept.name, "v", place.offset // kept.itemsize)
        return self.names.setdefault(key, f"a{len(self.names)}"), 0, True

    def written(self, place: Place, dtype: np.dtype[Any]) -> tuple[str, int]:
        return self._argument(place, dtype, "w", 0)

    def _argument(self, place: Place, dtype: np.dtype[Any], mode: str, size: int) -> tuple[str, int]:
        kept = storage_dtype(dtype)
        key = (place.buffer, kept.name, mode, 0)
        name = self.names.setdefault(key, f"a{len(self.names)}")
        offset, rest = divmod(place.offset, kept.itemsize)
        assert rest == 0, f"{place} is not aligned for {dtype}"
        self.sizes[name] = max(self.sizes.get(name, 0), offset + size)
        return name, offset

    def table(self) -> tuple[tuple[str, str, str, int], ...]:
        return tuple(self.names)


def loopy_arguments(table: Sequence[tuple[str, str, str, int]], parameters: Sequence[Parameter]) -> list[Any]:
    """Flat arrays of unstated size, in the order of `table`: indices are ours to keep in range."""
    found: list[Any] = []
    for number, (_, dtype, mode, _) in enumerate(table):
        if mode == "v":
            found.append(lp.ValueArg(f"a{number}", np.dtype(dtype)))
        else:
            access = {"is_input": mode == "r", "is_output": mode == "w"}
            found.append(lp.GlobalArg(f"a{number}", np.dtype(dtype), shape=None, strides=(1,), **access))
    return found + [lp.ValueArg(p.name, np.dtype(p.dtype)) for p in parameters]
