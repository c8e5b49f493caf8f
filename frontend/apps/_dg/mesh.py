"""Meshes of one kind of cell: vertices, cells, named boundary faces, periodic pairs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import permutations, product
from typing import Any

import numpy as np

from aotato.frontend import AppError
from aotato.frontend.apps._dg.elements import DIMENSIONS, SIMPLICES, face_corners

Array = np.ndarray[Any, Any]
AXES = "xyz"
CUTS = ("diagonal", "middle")


@dataclass(frozen=True)
class Periodic:
    """The faces of boundary `minus`, moved by `translation`, are those of `plus`."""

    minus: str
    plus: str
    translation: tuple[float, ...]


@dataclass(frozen=True)
class Mesh:
    """Cells of one kind. Corners of quads and hexes count along the first axis first: those at (-1, -1), (1, -1),
    (-1, 1), (1, 1) of the reference cell. Cells may be inside out: `oriented` turns them."""

    cell: str  # "tri", "quad", "tet" or "hex"
    vertices: Array  # (V, dim)
    cells: Array  # (E, corners) int64
    boundaries: Mapping[str, Array]  # name -> (faces, corners of a face) int64, corners in any order
    periodic: tuple[Periodic, ...] = ()
    warp: Callable[[Array], Array] | None = None  # moves points (..., dim) of quads and hexes, which makes them curved

    @property
    def dim(self) -> int:
        return DIMENSIONS[self.cell]


def box(
    counts: Sequence[int],
    lengths: Sequence[float] | float = 1.0,
    origin: Sequence[float] | float = 0.0,
    periodic: Sequence[bool] | bool = False,
    cell: str | None = None,
    warp: Callable[[Array], Array] | None = None,
    cut: str = "diagonal",
) -> Mesh:
    """A box of counts[0] x counts[1] (x counts[2]) blocks: quads or hexes, or each cut into simplices.

    These are 2 triangles or 6 tets along a diagonal of the block, or 4 or 24 around its `cut="middle"`, which prefer
    no direction. Sides are named x-, x+, y-, ...; those of a periodic axis are joined, however few blocks lie between
    them. The default cell is a simplex. Numbers given alone hold for all axes. Raises AppError.
    """
    dim = len(counts)
    cell = cell or {2: "tri", 3: "tet"}.get(dim, "tri")
    if DIMENSIONS.get(cell) != dim:
        known = ", ".join(f"{name} (dim {d})" for name, d in DIMENSIONS.items())
        raise AppError(f"expected a box of as many counts as cells have dimensions, but found {dim} counts "
                       f"({', '.join(map(str, counts))}) and cells {cell!r}; cells are {known}")
    sizes, start = (_by_axis(value, dim, name) for value, name in ((lengths, "lengths"), (origin, "origin")))
    for name, values in (("counts", counts), ("lengths", sizes)):
        if not all(value > 0 for value in values):
            raise AppError(f"expected positive {name} of a box, but found {', '.join(map(str, values))}")
    joined = [bool(flag) for flag in _by_axis(periodic, dim, "periodic flags")]
    if cut not in CUTS:
        raise AppError(f"expected a cut along the diagonal or around the middle, but found {cut!r}")
    shape = tuple(2 * int(count) + 1 for count in counts)
    blocks = np.stack(np.meshgrid(*map(np.arange, counts), indexing="ij"), -1).reshape(-1, 1, 1, dim)
    strides = np.array([math.prod(shape[axis + 1 :]) for axis in range(dim)])
    pattern = _pattern(cell, dim, cut)
    used, cells = np.unique((2 * blocks + pattern) @ strides, return_inverse=True)
    cells = cells.reshape(-1, pattern.shape[1])
    lattice = np.stack(np.unravel_index(used, shape), -1)
    vertices = np.asarray(start) + lattice / 2 * (np.asarray(sizes) / np.asarray(counts))
    pairs = tuple(Periodic(f"{AXES[axis]}-", f"{AXES[axis]}+", tuple(float(v) for v in np.eye(dim)[axis] * sizes[axis]))
                  for axis in range(dim) if joined[axis])
    return Mesh(cell, vertices, cells.astype(np.int64), _sides(cell, cells, lattice, counts), pairs, warp)


def _by_axis(value: Any, dim: int, name: str) -> list[Any]:
    if np.ndim(value) == 0:
        return [value] * dim
    if len(value) != dim:
        raise AppError(f"expected {name} for {dim} axes, but found {len(value)}: {', '.join(map(str, value))}")
    return list(value)


def _pattern(cell: str, dim: int, cut: str) -> Array:
    """(cells, corners, dim): the cells of one block, in halves of it; a diagonal's are Kuhn's, a path of edges each."""
    if cell not in SIMPLICES:
        return np.array([list(product((0, 2), repeat=dim))])[:, :, ::-1]
    if cut == "middle":
        return _around(dim)
    steps = 2 * np.eye(dim, dtype=int)
    return np.array([[np.zeros(dim, int), *np.cumsum(steps[list(path)], axis=0)] for path in permutations(range(dim))])


def _around(dim: int) -> Array:
    """From the middle to the middle of a face, and so on, to both ends of an edge."""
    if dim == 1:
        return np.array([[[0], [2]]])
    return np.array([[[1] * dim, *np.insert(lower, axis, end, axis=1)]
                     for axis, end, lower in product(range(dim), (0, 2), _around(dim - 1))])


def _sides(cell: str, cells: Array, lattice: Array, counts: Sequence[int]) -> dict[str, Array]:
    """`lattice` counts half blocks."""
    faces = cells[:, face_corners(cell)].reshape(-1, face_corners(cell).shape[1])
    places = lattice[faces]
    return {
        f"{AXES[axis]}{'-+'[end]}": faces[(places[:, :, axis] == 2 * end * count).all(axis=1)].astype(np.int64)
        for axis, count in enumerate(counts)
        for end in (0, 1)
    }


def join(mesh: Mesh, minus: str, plus: str) -> Mesh:
    """Make boundary `plus` the periodic image of `minus`, moved by the distance of their middles. Raises AppError."""
    for name in (minus, plus):
        if name not in mesh.boundaries:
            raise AppError(f"there is no boundary {name!r} to join; boundaries are {', '.join(mesh.boundaries)}")
    ends = [mesh.vertices[np.unique(mesh.boundaries[name])] for name in (minus, plus)]
    middles = [(points.min(axis=0) + points.max(axis=0)) / 2 for points in ends]
    translation = tuple(float(x) for x in middles[1] - middles[0])
    return replace(mesh, periodic=(*mesh.periodic, Periodic(minus, plus, translation)))


def oriented(mesh: Mesh) -> Mesh:
    """The mesh with all cells right side out: a cell of negative volume has two corners (or two faces) swapped."""
    dim, cells = mesh.dim, mesh.cells
    if mesh.cell in SIMPLICES:
        edges = mesh.vertices[cells[:, 1:]] - mesh.vertices[cells[:, :1]]
        swapped = [*range(dim - 1), dim, dim - 1]
    else:
        # The middle's tangents: means of the edges along each axis
        corner = np.arange(2**dim)
        tangents = [mesh.vertices[cells[:, corner & 1 << axis > 0]].mean(axis=1)
                    - mesh.vertices[cells[:, corner & 1 << axis == 0]].mean(axis=1) for axis in range(dim)]
        edges = np.stack(tangents, axis=1)
        swapped = [int(c) for c in corner ^ 1]
    inside_out = np.linalg.det(edges) < 0
    return replace(mesh, cells=np.where(inside_out[:, None], cells[:, swapped], cells))
