"""Nodes of VTK's Lagrange cells, as integer coordinates 0..order on the reference cell, in VTK's order.

Corners come first, then inner nodes of edges, of faces, of the volume: VTK 9.1 and later (before, two edges of the
hexahedron were swapped), `Common/DataModel/vtkHigherOrder*.cxx` there. The reference cell is the unit simplex or
cube, scaled by the order; corners of simplices: the origin, then one on each axis.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

Node = tuple[int, ...]
Path = tuple[Node, Node]  # an edge, in the direction in which its inner nodes are counted

DIMENSIONS = {"line": 1, "triangle": 2, "quad": 2, "tet": 3, "hex": 3}

_TRIANGLE = ((0, 0), (1, 0), (0, 1))
_TRIANGLE_EDGES = ((0, 1), (1, 2), (2, 0))
_TET = ((0, 0, 0), (1, 0, 0), (0, 1, 0), (0, 0, 1))
_TET_EDGES = ((0, 1), (1, 2), (2, 0), (0, 3), (1, 3), (2, 3))
_TET_FACES = ((0, 1, 3), (2, 3, 1), (0, 3, 2), (0, 2, 1))
_QUAD = ((0, 0), (1, 0), (1, 1), (0, 1))
_QUAD_EDGES = ((0, 1), (1, 2), (3, 2), (0, 3))


def node_count(cell: str, order: int) -> int:
    """Nodes of a cell of that order."""
    if cell in ("line", "quad", "hex"):
        return int((order + 1) ** DIMENSIONS[cell])
    return (order + 1) * (order + 2) // 2 if cell == "triangle" else (order + 1) * (order + 2) * (order + 3) // 6


def vtk_nodes(cell: str, order: int) -> list[Node]:
    """Integer coordinates of all nodes of "line", "triangle", "quad", "tet" or "hex", in VTK's order."""
    return {"line": _line, "triangle": _triangle, "quad": _quad, "tet": _tet, "hex": _hex}[cell](order)


def vtk_node_order(cell: str, nodes: Iterable[Sequence[int]]) -> list[int]:
    """The `View.node_order` of an app whose nodes have these integer coordinates, in the app's order.

    They are what `modepy.node_tuples_for_space` gives, and (i, j, k) of tensor-product nodes. Raises ValueError.
    """
    given = [tuple(int(i) for i in node) for node in nodes]
    order = max(map(max, given))
    place = {node: i for i, node in enumerate(given)}
    wanted = vtk_nodes(cell, order)
    if sorted(given) != sorted(wanted):
        raise ValueError(f"expected the {len(wanted)} nodes of a {cell} of order {order}, but found {len(given)} "
                         f"others, such as {next((n for n in given if n not in wanted), given[0])}")
    return [place[node] for node in wanted]


def _line(order: int) -> list[Node]:
    return [(0,), (order,), *_inner(((0,), (order,)), order)]


def _triangle(order: int) -> list[Node]:
    if order <= 0:
        return [(0, 0)] if order == 0 else []
    corners = _scaled(_TRIANGLE, order)
    edges = [node for a, b in _TRIANGLE_EDGES for node in _inner((corners[a], corners[b]), order)]
    return [*corners, *edges, *((i + 1, j + 1) for i, j in _triangle(order - 3))]


def _quad(order: int) -> list[Node]:
    corners = _scaled(_QUAD, order)
    edges = [node for a, b in _QUAD_EDGES for node in _inner((corners[a], corners[b]), order)]
    inner = range(1, order)
    return [*corners, *edges, *((i, j) for j in inner for i in inner)]


def _tet(order: int) -> list[Node]:
    if order <= 0:
        return [(0, 0, 0)] if order == 0 else []
    corners = _scaled(_TET, order)
    edges = [node for a, b in _TET_EDGES for node in _inner((corners[a], corners[b]), order)]
    faces = [node for face in _TET_FACES for node in _face([_TET[corner] for corner in face], order)]
    return [*corners, *edges, *faces, *((i + 1, j + 1, k + 1) for i, j, k in _tet(order - 4))]


def _face(corners: Sequence[Node], order: int) -> list[Node]:
    """Inner nodes of a triangle, from weights of its corners that sum to the order."""
    weights = [(order - i - j - 2, i + 1, j + 1) for i, j in _triangle(order - 3)]
    return [tuple(map(int, np.asarray(weight) @ np.asarray(corners))) for weight in weights]


def _hex(order: int) -> list[Node]:
    corners = [(*corner, k) for k in (0, order) for corner in _scaled(_QUAD, order)]
    level = [(corners[a], corners[b]) for a, b in _QUAD_EDGES]
    upper = [(corners[a + 4], corners[b + 4]) for a, b in _QUAD_EDGES]
    pillars = [(corners[a], corners[a + 4]) for a in range(4)]
    edges = [node for path in (*level, *upper, *pillars) for node in _inner(path, order)]
    inner, ends = range(1, order), (0, order)
    faces = [
        *((end, j, k) for end in ends for k in inner for j in inner),
        *((i, end, k) for end in ends for k in inner for i in inner),
        *((i, j, end) for end in ends for j in inner for i in inner),
    ]
    return [*corners, *edges, *faces, *((i, j, k) for k in inner for j in inner for i in inner)]


def _inner(path: Path, order: int) -> list[Node]:
    """Nodes strictly between the ends of an edge."""
    begin, end = np.asarray(path)
    return [tuple(map(int, begin + (end - begin) // order * i)) for i in range(1, order)]


def _scaled(corners: Sequence[Node], order: int) -> list[Node]:
    return [tuple(order * i for i in corner) for corner in corners]
