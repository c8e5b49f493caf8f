"""Make pytato 2021.2 usable with today's numpy, and tell by feature what this pytato offers."""

from __future__ import annotations

import types
from typing import Any

import islpy as isl
import numpy as np
import pytato as pt
import pytato.array

HAS_DISTRIBUTED = hasattr(pt, "make_distributed_recv")
HAS_LOWERING = hasattr(pt, "transform") and hasattr(pt, "pad")  # main: to_index_lambda, one node at a time


def _find_common_type(array_types: list[Any], scalar_types: list[Any]) -> np.dtype[Any]:
    """numpy 1's function of this name for the calls pytato makes: arrays only, or scalars only."""
    return np.result_type(*(array_types or scalar_types))


_MARK = "pytato.bool8"


class _Numpy(types.ModuleType):
    """numpy as `pytato.array` of 2021.2 expects it; names that numpy 2 removed are added here alone."""

    NaN = np.nan
    find_common_type = staticmethod(_find_common_type)

    @property
    def bool8(self) -> np.dtype[Any]:
        """A dtype object of its own each time, by which `says_bool8` knows it again."""
        return np.dtype(np.bool_, metadata={_MARK: True})

    def __getattr__(self, name: str) -> Any:
        return getattr(np, name)


def says_bool8(dtype: Any) -> bool:
    """Whether pytato 2021.2 wrote `np.bool8` where this dtype of an index lambda comes from."""
    return dtype is np.bool_ or _MARK in (getattr(dtype, "metadata", None) or {})


def _einsum_shape(self: Any) -> tuple[Any, ...]:
    """The shape of an Einsum. pytato 2021.2 compares an axis with another axis of its operand where two share it."""
    extents: dict[int, Any] = {}
    for operand, descriptors in zip(self.args, self.access_descriptors, strict=True):
        for extent, axis in zip(operand.shape, descriptors, strict=True):
            own = isinstance(axis, pytato.array.ElementwiseAxis)
            if own and extents.setdefault(axis.dim, extent) != extent:
                raise ValueError(f"einsum: an axis has extents {extents[axis.dim]} and {extent}")
    return tuple(extents[dim] for dim in range(len(extents)))


def install() -> None:
    """Mend `pytato.array` of 2021.2: a numpy with the removed names, and the shape of an Einsum; numpy is left alone.

    pytato main asks a BasicSet of islpy for what islpy 2026 knows of Sets only.
    """
    basic: Any = isl.BasicSet
    if not hasattr(basic, "dim_max"):
        basic.dim_max = lambda self, axis: isl.Set.from_basic_set(self).dim_max(axis)
        basic.dim_min = lambda self, axis: isl.Set.from_basic_set(self).dim_min(axis)
    if not HAS_DISTRIBUTED:
        pytato.array.np = _Numpy("numpy")
        pytato.array.Einsum.shape = property(_einsum_shape)
