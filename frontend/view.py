"""What an app says about the mesh of its results: per rank points and cells, and which outputs are values on them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from aotato.frontend.app import AppError
from aotato.frontend.lattice import DIMENSIONS, node_count

Array = NDArray[Any]

LARGEST_ORDER = 10  # what VTK draws


@dataclass(frozen=True)
class Field:
    """An output as ParaView shows it: one value per point or per cell, after leading axes of components.

    With points (elements * nodes, dim), an output of shape (variables, elements, nodes) is `variables` values a point.
    `on` says where values lie; "" takes what leaves fewer components on all ranks, points before cells. `names`, one
    per component, make an array of each name: a name that is repeated makes a vector of its components. Without
    names, all components are one array named like the output. A 2-component array of a 2D view gets a third, zero:
    then ParaView draws it as vectors.
    """

    output: str  # path, as in `q.momentum`
    on: str = ""  # "points" or "cells"
    names: Sequence[str] = ()


@dataclass(frozen=True)
class View:
    """A rank's mesh, for drawing. What an app's `view(rank, size, opt, data)` returns, on every rank or none.

    Discontinuous fields need points of their own for each cell: cells = arange(elements * nodes).reshape(elements,
    nodes). `fields` empty means every real output that has one value (or vector) for each point or cell. Cells,
    order and fields are the same on all ranks.
    """

    points: ArrayLike  # (points, dim) coordinates; dim 1 to 3
    cells: ArrayLike  # (cells, nodes): indices of points, in the app's order of nodes
    cell: str  # "line", "triangle", "quad", "tet" or "hex"
    order: int = 1  # of the cells; above 1 they are VTK's Lagrange cells
    node_order: Sequence[int] | None = None  # the app's place of each of VTK's nodes: `vtk_node_order`; None: the same
    fields: Sequence[Field | str] = ()  # a text is Field(text)


@dataclass(frozen=True)
class Mesh:
    """A checked view of one rank: nodes of cells in VTK's order."""

    points: Array  # (points, dim) float32 or float64
    cells: Array  # (cells, nodes) int32, or int64 where there are that many points


@dataclass(frozen=True)
class Views:
    """The views of all ranks."""

    cell: str
    order: int
    dim: int
    meshes: tuple[Mesh, ...]  # by rank
    fields: tuple[Field, ...]


def views(function: Callable[[int], Any], ranks: int) -> Views | None:
    """Call `function(rank)` for every rank and check what it returns. Raises AppError; None where no rank has one."""
    found = [function(rank) for rank in range(ranks)]
    if all(view is None for view in found):
        return None
    for rank, view in enumerate(found):
        if not isinstance(view, View):
            raise AppError(f"view of rank {rank}: expected a View on every rank, but found {type(view).__name__}")
    meshes = tuple(_mesh(view, rank) for rank, view in enumerate(found))
    facts = [_facts(view, mesh) for view, mesh in zip(found, meshes, strict=True)]
    for rank, fact in enumerate(facts):
        for what, first, here in zip(("cell", "order", "dim", "fields"), facts[0], fact, strict=True):
            if first != here:
                raise AppError(f"view: {what} is {first!r} on rank 0, but {here!r} on rank {rank}")
    return Views(*facts[0][:3], meshes, facts[0][3])


def _facts(view: View, mesh: Mesh) -> tuple[str, int, int, tuple[Field, ...]]:
    fields = (Field(field) if isinstance(field, str) else field for field in view.fields)
    return view.cell, view.order, mesh.points.shape[1], tuple(fields)


def _mesh(view: View, rank: int) -> Mesh:
    _check_kind(view, rank)
    points = _points(view, rank)
    cells = np.asarray(view.cells)
    nodes = node_count(view.cell, view.order)
    if cells.dtype.kind not in "iu" or cells.ndim != 2 or cells.shape[1] != nodes:
        raise AppError(f"view of rank {rank}: expected cells as integers (cells, {nodes}) for a {view.cell} of order "
                       f"{view.order}, but found {_type(cells)}")
    wrong = np.argwhere((cells < 0) | (cells >= len(points)))
    if len(wrong):
        row, column = wrong[0]
        raise AppError(f"view of rank {rank}: node {column} of cell {row} is point {cells[row, column]}, but there "
                       f"are {len(points)} points")
    order = _node_order(view, nodes, rank)
    small = len(points) <= np.iinfo(np.int32).max
    return Mesh(points, np.ascontiguousarray(cells[:, order], np.int32 if small else np.int64))


def _check_kind(view: View, rank: int) -> None:
    if view.cell not in DIMENSIONS:
        raise AppError(f"view of rank {rank}: expected a cell of {', '.join(DIMENSIONS)}, but found {view.cell!r}")
    if not 1 <= view.order <= LARGEST_ORDER:
        raise AppError(f"view of rank {rank}: expected an order from 1 to {LARGEST_ORDER}, but found {view.order}")


def _points(view: View, rank: int) -> Array:
    points = np.asarray(view.points)
    least = DIMENSIONS[view.cell]
    if points.dtype.kind not in "fiu" or points.ndim != 2 or not least <= points.shape[1] <= 3:
        dims = f"{least}" if least == 3 else f"{least} to 3"
        raise AppError(f"view of rank {rank}: expected points as real numbers (points, {dims}) for a {view.cell}, but "
                       f"found {_type(points)}")
    points = np.ascontiguousarray(points, points.dtype if points.dtype in (np.float32, np.float64) else np.float64)
    if not np.isfinite(points).all():
        row = int(np.argwhere(~np.isfinite(points))[0, 0])
        raise AppError(f"view of rank {rank}: point {row} is {points[row].tolist()}")
    return points


def _node_order(view: View, nodes: int, rank: int) -> list[int]:
    if view.node_order is None:
        return list(range(nodes))
    order = [int(node) for node in view.node_order]
    if sorted(order) != list(range(nodes)):
        raise AppError(f"view of rank {rank}: expected node_order to be a permutation of 0..{nodes - 1}, but found "
                       f"{order}")
    return order


def _type(array: Array) -> str:
    return f"{array.dtype}[{', '.join(map(str, array.shape))}]"
