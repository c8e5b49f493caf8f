"""`aotato plot`: a picture of a field in 2D, or curves of what a loop observed; needs matplotlib, h5py and numpy.

A field is drawn as the polynomial that it is: each cell is cut into small triangles and evaluated at their corners.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.names import decode_name

Array = NDArray[Any]

AXES = "xyz"
PIXELS = 1200  # along the longer side
FINEST = 24  # pieces of a cell's edge
TRIANGLES, QUADS, SOLIDS = (5, 69), (9, 70), (10, 71, 12, 72)  # VTK's numbers of cells, of order 1 and above


def plot(path: str, field: str | None, out: str) -> str:
    """Draw one file; returns what was drawn. Raises Refusal: one sentence."""
    if not h5py.is_hdf5(path):
        raise Refusal(f"expected an HDF5 file that a run has written, but found {path}: give --vtk FILE to the run")
    pyplot = _pyplot()
    with h5py.File(path) as file:
        if "VTKHDF" in file:
            return _draw_field(pyplot, file, field, out)
        if "observed" in file:
            return _draw_curves(pyplot, file["observed"], field, out)
    raise Refusal(f"{path} holds neither fields on a mesh nor observed values: a run writes the former with --vtk "
                  "FILE, the latter with --output FILE")


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError:
        raise Refusal("expected matplotlib for pictures, but it is not installed: pip install 'aotato[plot]'") from None
    matplotlib.use("Agg")
    import matplotlib.pyplot

    return matplotlib.pyplot


def _draw_field(pyplot: Any, file: h5py.File, field: str | None, out: str) -> str:
    root = file["VTKHDF"]
    name, values, on_points = _values(root, field)
    x, corners, colours = _mesh(root, values, on_points)
    width, height = np.ptp(x, axis=0) + 1e-300
    longest = max(width, height)
    figure, axes = pyplot.subplots(figsize=(1.5 + 6 * width / longest, 0.7 + 6 * height / longest), dpi=PIXELS / 8,
                                   layout="constrained")
    how: dict[str, Any] = {"shading": "gouraud"} if on_points else {}
    drawn = axes.tripcolor(x[:, 0], x[:, 1], corners, colours, cmap="viridis", rasterized=True, **how)
    figure.colorbar(drawn, ax=axes, shrink=0.9)
    axes.set_aspect("equal")
    axes.margins(0)
    axes.set_title(f"{name}, t = {file.attrs['time']:.4g}" if "time" in file.attrs else name)
    _save(pyplot, figure, out)
    return f"{name} from {colours.min():.6g} to {colours.max():.6g}, step {file.attrs.get('step', 0)}"


def _draw_curves(pyplot: Any, observed: h5py.Group, field: str | None, out: str) -> str:
    """A panel for each column, over the time or the steps."""
    columns = {decode_name(name): table for entry in observed.values() for name, table in entry.items()}
    against = "t" if "t" in columns else "step"
    known = [name for name in columns if name not in ("t", "step")]
    wanted = known if field is None else [_known(name, known) for name in field.split(",")]
    across = math.ceil(math.sqrt(len(wanted)))
    figure, panels = pyplot.subplots(-(-len(wanted) // across), across, squeeze=False, layout="constrained",
                                     figsize=(3 + 2.5 * across, 3 + 2 * (-(-len(wanted) // across) - 1)))
    for panel in panels.flat[len(wanted):]:
        panel.set_visible(False)
    for panel, name in zip(panels.flat, wanted, strict=False):
        panel.plot(columns[name].parent[against][()], columns[name][()])
        panel.set_title(name)
        panel.set_xlabel(against)
    _save(pyplot, figure, out)
    return f"{', '.join(wanted)} over {against}"


def _save(pyplot: Any, figure: Any, out: str) -> None:
    try:
        figure.savefig(out)
    except (OSError, ValueError) as error:
        raise Refusal(f"the picture {out} cannot be written: {error}") from None
    finally:
        pyplot.close(figure)


def _known(name: str, names: Sequence[str]) -> str:
    if name in names:
        return name
    near = difflib.get_close_matches(name, names, 1)
    meant = f"did you mean {near[0]!r}?" if near else "choose one of them"
    raise Refusal(f"expected a field of {', '.join(names)}, but found {name!r}: {meant}")


def _values(root: h5py.Group, field: str | None) -> tuple[str, Array, bool]:
    """Name, one value for each point or cell, and whether they are on points; a vector is drawn as its length."""
    tables: dict[str, tuple[h5py.Dataset, bool]] = {}
    for group, on_points in (("CellData", False), ("PointData", True)):
        tables |= {decode_name(name): (table, on_points) for name, table in root.get(group, {}).items()}
    if not tables:
        raise Refusal("expected fields to draw, but the file has none: the app's view names them")
    wanted = field or min(tables, key=lambda name: (not tables[name][1], name))
    name, _, axis = wanted.rpartition(".") if wanted not in tables and wanted[-2:-1] == "." else (wanted, "", "")
    table, on_points = tables[_known(name, list(tables))]
    values = np.asarray(table[()], float)
    if axis:
        if axis not in AXES or values.ndim == 1:
            raise Refusal(f"expected a component x, y or z of a vector, but found {wanted!r}")
        return wanted, values[:, AXES.index(axis)], on_points
    if values.ndim == 2:
        return f"|{name}|", np.sqrt((values**2).sum(axis=1)), on_points
    return name, values, on_points


@dataclass(frozen=True)
class _Pieces:
    """Small triangles of a reference cell: values at their corners are `matrix` times the cell's nodal ones."""

    matrix: Array  # (points, nodes)
    triangles: Array  # (triangles, 3)


def _mesh(root: h5py.Group, values: Array, on_points: bool) -> tuple[Array, Array, Array]:
    """Points (count, 2), triangles (count, 3), and colours of points or triangles."""
    kind, nodes = _kind(root)
    sizes = root["NumberOfPoints"][()]
    first = np.repeat(np.cumsum(sizes) - sizes, root["NumberOfConnectivityIds"][()])
    cells = (root["Connectivity"][()] + first).reshape(-1, nodes)
    pieces = _pieces(kind, nodes, len(cells))
    points = root["Points"][()]
    if np.ptp(points[:, 2]) > 1e-12 * np.ptp(points, axis=0).max():
        raise Refusal("expected a plane z = constant, but the mesh is bent out of it: open it in ParaView")
    x = np.einsum("pn,cnd->cpd", pieces.matrix, points[cells][:, :, :2]).reshape(-1, 2)
    count = len(pieces.matrix)
    triangles = (np.arange(len(cells))[:, None, None] * count + pieces.triangles).reshape(-1, 3)
    if on_points:
        return x, triangles, (values[cells] @ pieces.matrix.T).ravel()
    return x, triangles, np.repeat(values, len(pieces.triangles))


def _kind(root: h5py.Group) -> tuple[str, int]:
    """Kind and nodes of the file's cells."""
    types = set(root["Types"][()].tolist())
    if types <= {*SOLIDS}:
        raise Refusal("expected fields in 2D, but the file's cells are solids: open it in ParaView, which cuts them")
    kind = "triangle" if types <= {*TRIANGLES} else "quad" if types <= {*QUADS} else ""
    if not kind:
        raise Refusal("expected triangles or quads alone, but the file has other cells: open it in ParaView")
    return kind, int(root["Offsets"][1])


def _pieces(kind: str, nodes: int, cells: int) -> _Pieces:
    order = round(math.sqrt(nodes)) - 1 if kind == "quad" else round((math.sqrt(8 * nodes + 1) - 3) / 2)
    # Enough for a smooth picture, not more than pixels
    cut = 1 if order == 1 and kind == "triangle" else min(FINEST, max(2 * order, round(PIXELS / 2 / math.sqrt(cells))))
    where = _grid(kind, cut) / cut
    own = np.array(_lattice(kind, order)) / order
    matrix = np.linalg.solve(_monomials(kind, order, own).T, _monomials(kind, order, where).T).T
    return _Pieces(matrix, _small_triangles(kind, cut))


def _lattice(kind: str, order: int) -> list[tuple[int, ...]]:
    """Integer coordinates of the nodes of VTK's Lagrange cells: corners, inner nodes of edges, inner ones."""
    inner = range(1, order)
    if kind == "quad":
        ends = [*((i, 0) for i in inner), *((order, i) for i in inner)]
        ends += [*((i, order) for i in inner), *((0, i) for i in inner)]
        return [(0, 0), (order, 0), (order, order), (0, order), *ends, *((i, j) for j in inner for i in inner)]
    if order <= 0:
        return [(0, 0)] if order == 0 else []
    sides = [*((i, 0) for i in inner), *((order - i, i) for i in inner), *((0, order - i) for i in inner)]
    nested = ((i + 1, j + 1) for i, j in _lattice(kind, order - 3))
    return [(0, 0), (order, 0), (0, order), *sides, *nested]


def _grid(kind: str, cut: int) -> Array:
    return np.array([(i, j) for j in range(cut + 1) for i in range(cut + 1 - (j if kind == "triangle" else 0))])


def _monomials(kind: str, order: int, x: Array) -> Array:
    """Products of Legendre polynomials at points (count, 2) of the unit cell: (count, nodes)."""
    along = [np.polynomial.legendre.legvander(2 * x[:, axis] - 1, order) for axis in (0, 1)]
    pairs = [(i, j) for j in range(order + 1) for i in range(order + 1 - (j if kind == "triangle" else 0))]
    return np.stack([along[0][:, i] * along[1][:, j] for i, j in pairs], axis=1)


def _small_triangles(kind: str, cut: int) -> Array:
    number = {tuple(node): place for place, node in enumerate(_grid(kind, cut).tolist())}
    found = []
    for i, j in number:
        if (i + 1, j) in number and (i, j + 1) in number:
            found.append((number[i, j], number[i + 1, j], number[i, j + 1]))
        if (i + 1, j + 1) in number:
            found.append((number[i + 1, j], number[i + 1, j + 1], number[i, j + 1]))
    return np.array(found)


def default_picture(path: str) -> str:
    """`out.vtkhdf` -> `out.png`."""
    return str(Path(path).with_suffix(".png"))
