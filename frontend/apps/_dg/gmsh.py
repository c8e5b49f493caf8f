"""Meshes from Gmsh files, formats 2.2 and 4.1, ascii and binary, read through meshio.

Physical groups of the cells' faces are boundaries, by name, or by number where a group has no name. Cells of first
order, of one kind; a file whose cells are triangles or quads is two-dimensional and lies in the plane of x and y.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from aotato.frontend import AppError
from aotato.frontend.apps._dg.mesh import Mesh

Array = np.ndarray[Any, Any]

# meshio's names: of our cells, with our order of its corners, and the kind of their faces
CELLS = {
    "triangle": ("tri", (0, 1, 2), "line"),
    "quad": ("quad", (0, 1, 3, 2), "line"),
    "tetra": ("tet", (0, 1, 2, 3), "triangle"),
    "hexahedron": ("hex", (0, 1, 3, 2, 4, 5, 7, 6), "quad"),
}
FLAT = 1e-10  # of the extent: how far the vertices of a plane mesh may lie apart


def read(path: str | Path) -> Mesh:
    """Raises AppError: a file that is none, cells of several kinds, of higher order, not in a plane, or none at all."""
    import meshio

    name = Path(path).name
    try:
        found = meshio.gmsh.read(str(path))
    except FileNotFoundError:
        raise AppError(f"there is no mesh file {str(path)!r}") from None
    except ValueError as error:
        if "gmsh:physical" not in str(error):
            raise AppError(f"{name} cannot be read as a Gmsh file: {error}") from error
        raise AppError(f"{name} has elements outside its physical groups beside those inside: save it without "
                       "Mesh.SaveAll, or put all cells and boundaries into physical groups") from error
    except Exception as error:  # of many kinds: a file that is cut off ends in whatever was to be read
        raise AppError(f"{name} cannot be read as a Gmsh file of format 2.2 or 4.1: "
                       f"{type(error).__name__} {error}".rstrip()) from error
    kind = _kind(name, found.cells)
    cell, corners, face = CELLS[kind]
    cells = np.concatenate([block.data for block in found.cells if block.type == kind]).astype(np.int64)
    cells = cells[_first_of_equal(cells)][:, corners]
    used, numbers = np.unique(cells, return_inverse=True)
    boundaries = _boundaries(found, face, used)
    vertices = found.points[used].astype(np.float64)
    if face == "line":
        vertices = _plane(name, vertices)
    return Mesh(cell, vertices, numbers.reshape(cells.shape), boundaries)


def _kind(name: str, blocks: Sequence[Any]) -> str:
    """meshio's name of the cells: those of the highest dimension in the file."""
    counts: dict[str, int] = {}
    for block in blocks:
        counts[block.type] = counts.get(block.type, 0) + len(block.data)
    dims = {block.type: block.dim for block in blocks}
    highest = max((dims[kind] for kind in counts), default=0)
    if highest < 2:
        raise AppError(f"{name} has no cells, only {_counted(counts) or 'nothing'}: put the domain itself into a "
                       "physical group, too")
    cells = {kind: count for kind, count in counts.items() if dims[kind] == highest}
    known = {kind: count for kind, count in cells.items() if kind in CELLS}
    curved = [kind for kind in cells if kind not in CELLS and kind.rstrip("0123456789") in CELLS]
    if curved:
        raise AppError(f"{name} has cells of higher order, {_counted(cells)}: save it with Mesh.ElementOrder = 1")
    if len(cells) > 1 or not known:
        raise AppError(f"expected cells of one kind, {', '.join(CELLS)}, in {name}, but found {_counted(cells)}")
    return next(iter(known))


def _counted(counts: dict[str, int]) -> str:
    return " and ".join(f"{count} of kind {kind!r}" for kind, count in sorted(counts.items()))


def _first_of_equal(cells: Array) -> Array:
    """Format 2.2 lists a cell once for each group that it is in."""
    _, first = np.unique(np.sort(cells, axis=1), axis=0, return_index=True)
    return np.sort(first)


def _boundaries(found: Any, face: str, used: Array) -> dict[str, Array]:
    """By name faces as numbers among the used vertices; faces of other vertices keep none, and are refused later."""
    rows: dict[str, list[Array]] = {}
    for name, faces in _groups(found, face):
        rows.setdefault(name, []).append(faces)
    place = np.full(len(found.points), -1, np.int64)
    place[used] = np.arange(len(used))
    boundaries = {name: np.unique(np.sort(place[np.concatenate(faces)], axis=1), axis=0)
                  for name, faces in rows.items()}
    for name, faces in boundaries.items():
        if (faces < 0).any():
            raise AppError(f"boundary {name!r} has a face with a vertex that is no cell's")
    return boundaries


def _groups(found: Any, face: str) -> Iterator[tuple[str, Array]]:
    """Names of groups and faces in them, in the file's order."""
    dim = 1 if face == "line" else 2
    names = {int(tag): name for name, (tag, of_dim) in found.field_data.items() if of_dim == dim}
    tags = found.cell_data.get("gmsh:physical", [np.zeros(len(block.data), int) for block in found.cells])
    for number, (block, tag) in enumerate(zip(found.cells, tags, strict=True)):
        if block.type != face:
            continue
        for value in np.unique(tag[tag != 0]).tolist():
            yield names.get(value, str(value)), block.data[tag == value]
        # Format 4.1: an element of several groups has the first one's tag, but is in the sets of all
        for name, members in found.cell_sets.items():
            if name in names.values() and len(members[number]):
                yield name, block.data[members[number]]


def _plane(name: str, vertices: Array) -> Array:
    extent = np.ptp(vertices, axis=0)
    if extent[2] > FLAT * extent.max():
        raise AppError(f"{name} is a surface in space: z goes from {vertices[:, 2].min():g} to "
                       f"{vertices[:, 2].max():g}; expected a mesh in a plane of constant z, or tets or hexes")
    return np.ascontiguousarray(vertices[:, :2])
