"""Meshes of one kind of cell: vertices, cells, named boundary faces, periodic pairs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Periodic:
    """The faces of boundary `minus`, moved by `translation`, are those of `plus`."""

    minus: str
    plus: str
    translation: tuple[float, ...]


@dataclass(frozen=True)
class Mesh:
    """Corners of quads and hexes count along the first axis first: (-1,-1), (1,-1), (-1,1), (1,1)."""

    cell: str  # "tri", "quad", "tet" or "hex"
    vertices: Array  # (V, dim)
    cells: Array  # (E, corners) int64
    boundaries: Mapping[str, Array]  # name -> (faces, corners of a face) int64
    periodic: tuple[Periodic, ...] = ()
    warp: Callable[[Array], Array] | None = None  # moves points (..., dim) of quads and hexes
