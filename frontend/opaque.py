"""A loopy kernel as programs call it: its arguments are known, what it does is loopy's affair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from loopy.tools import LoopyKeyBuilder

from aotato.frontend.ir import DType, Shape


@dataclass(frozen=True)
class Argument:
    """An array in C order, or a scalar: then `shape` is ()."""

    name: str
    shape: Shape
    dtype: DType


@dataclass(frozen=True)
class Opaque:
    """A kernel that reads all of `inputs` and writes all of `results`; sizes and loop bounds are numbers."""

    unit: Any  # loopy.TranslationUnit with one entrypoint, typed, for loopy's own OpenCL target
    inputs: tuple[Argument, ...]
    results: tuple[Argument, ...]

    @property
    def name(self) -> str:
        """As the user called the kernel."""
        (entrypoint,) = self.unit.entrypoints
        return str(entrypoint)

    @property
    def digest(self) -> str:
        """Hexadecimal; the same for kernels that loopy takes for the same, in any process."""
        return str(LoopyKeyBuilder()(self.unit))
