"""Write fields on a bundle's mesh as VTKHDF, ParaView's HDF5 format: an UnstructuredGrid, one partition a rank.

Points and cells come from the bundle, on rank 0; fields are gathered in pieces as results are (see `output`). A file
holds one step. A series is a file a step (`{step:06d}` in the name) and `NAME.vtkhdf.series`, their list with times, to
be opened in their place: each is whole when it appears, whereas a run that dies while it extends a file would lose it.
The format: docs.vtk.org, "VTKHDF format specification", version 2.0, without the group Steps.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from aotato.runtime_stub import output
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.names import encode_name
from aotato.runtime_stub.output import About
from aotato.runtime_stub.values import expand
from aotato.runtime_stub.view_data import Column, Field, Views
from aotato.runtime_stub.world import World

Array = NDArray[Any]

OPTION = "--vtk"
VERSION = (2, 0)
# By cell: VTK's number at order 1, and of its Lagrange cell (vtkCellType.h)
CELL_TYPES = {"line": (3, 68), "triangle": (5, 69), "quad": (9, 70), "tet": (10, 71), "hex": (12, 72)}
_GROUPS = {"points": "PointData", "cells": "CellData"}
# What VTK has no arrays of
_STORED = {"bool": "uint8", "float16": "float32"}


def check(bundle: Bundle, entries: Sequence[str]) -> None:
    """Refuse, before anything runs, a bundle without a view, or entries whose outputs are no fields."""
    views = bundle.views
    if views is None:
        raise Refusal(f"expected a bundle with a view for {OPTION}, but app {bundle.app!r} gives none: add a function "
                      "view(rank, size, opt, data) to it and build again, or leave the option out")
    known = [field.output for field in views.fields]
    outputs = {output.name for entry in entries for output in bundle.entries[entry].outputs}
    if not outputs.intersection(known):
        raise Refusal(f"expected outputs to draw for {OPTION} ({', '.join(map(repr, known))}), but found "
                      f"{', '.join(map(repr, sorted(outputs)))}: choose another entry, or leave the option out")


def write(path: str | Path, world: World, bundle: Bundle, arrays: Mapping[str, Array], about: About) -> None:
    """Collective: the fields that are in `arrays` (the same names on all ranks), as one file at `path`.

    The file appears under its name when it is complete. Raises Refusal on rank 0 if it cannot.
    """
    views = bundle.views
    assert views is not None, "check() was not called"
    present = [field for field in views.fields if field.output in arrays]
    if world.rank != 0:
        for field, column in _columns(present):
            output.send(world.comm, values(arrays[field.output], field, column))
        return
    with output.appearing(path, OPTION) as file:
        file.attrs.update(about.attributes() | {"ranks": world.size})
        root = file.create_group("VTKHDF")
        root.attrs["Version"] = np.array(VERSION, np.int64)
        # The reader wants ASCII of fixed length
        root.attrs["Type"] = np.bytes_("UnstructuredGrid")
        sizes = _sizes(bundle, views)
        _write_mesh(root, bundle, views, sizes)
        for field, column in _columns(present):
            _write_field(root, world, sizes[field.on], arrays[field.output], field, column)


class Series:
    """The files of one run, `{step}` in their name; their list is written anew with each."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.times: dict[str, float] = {}  # by file

    @property
    def list_path(self) -> Path:
        """`out_{step:06d}.vtkhdf` -> `out.vtkhdf.series`."""
        return Path(re.sub(r"[-_.]?\{step(:[^{}]*)?\}", "", self.name) + ".series")

    def write(self, world: World, bundle: Bundle, arrays: Mapping[str, Array], about: About) -> None:
        """Collective, as `write`. Without `{step}` in the name each file replaces the one before it, without a list."""
        path = expand(self.name, about.step, "step")
        write(path, world, bundle, arrays, about)
        if world.rank == 0 and path != self.name:
            self.times[os.path.relpath(path, self.list_path.parent)] = about.time
            rows = [{"name": name, "time": time} for name, time in self.times.items()]
            part = self.list_path.with_name(f"{self.list_path.name}.part")
            part.write_text(json.dumps({"file-series-version": "1.0", "files": rows}, indent=1))
            os.replace(part, self.list_path)


def values(array: Array, field: Field, column: Column) -> Array:
    """A rank's values of one column, (points,) or (points, components), as VTK stores them."""
    array = np.asarray(array)
    dtype = _STORED.get(array.dtype.name, array.dtype)
    rows = array.reshape(field.count, array.size // field.count)
    if len(column.components) == 1 and not column.zeros:
        return np.ascontiguousarray(rows[column.components[0]], dtype)
    found = np.zeros((rows.shape[1], len(column.components) + column.zeros), dtype)
    for place, component in enumerate(column.components):
        found[:, place] = rows[component]
    return found


@dataclass(frozen=True)
class _Sizes:
    """How many rows each rank adds to a dataset."""

    counts: tuple[int, ...]

    @property
    def total(self) -> int:
        return sum(self.counts)

    def parts(self) -> Iterator[tuple[int, int, int]]:
        """Rank, its first row, its number of rows."""
        first = 0
        for rank, count in enumerate(self.counts):
            yield rank, first, count
            first += count


def _sizes(bundle: Bundle, views: Views) -> dict[str, _Sizes]:
    return {
        "points": _Sizes(tuple(len(bundle.stored_array(mesh.points)) for mesh in views.ranks)),
        "cells": _Sizes(tuple(len(bundle.stored_array(mesh.cells)) for mesh in views.ranks)),
    }


def _columns(fields: list[Field]) -> Iterator[tuple[Field, Column]]:
    return ((field, column) for field in fields for column in field.columns)


def _write_mesh(root: h5py.Group, bundle: Bundle, views: Views, sizes: Mapping[str, _Sizes]) -> None:
    points, cells = sizes["points"], sizes["cells"]
    nodes = bundle.stored_array(views.ranks[0].cells).shape[1]
    kinds = {bundle.stored_array(mesh.points).dtype for mesh in views.ranks}
    root["NumberOfPoints"] = np.array(points.counts, np.int64)
    root["NumberOfCells"] = np.array(cells.counts, np.int64)
    root["NumberOfConnectivityIds"] = np.array(cells.counts, np.int64) * nodes
    root["Types"] = np.full(cells.total, CELL_TYPES[views.cell][views.order > 1], np.uint8)
    # Each partition counts from zero, and its offsets have one entry more than cells
    root["Offsets"] = np.concatenate([np.arange(count + 1, dtype=np.int64) * nodes for count in cells.counts])
    coordinates = root.create_dataset("Points", (points.total, 3), np.result_type(*kinds))
    for rank, first, count in points.parts():
        _copy(bundle.stored_array(views.ranks[rank].points), count, coordinates, first, views.dim)
    connectivity = root.create_dataset("Connectivity", (cells.total * nodes,), np.int64)
    for rank, first, count in cells.parts():
        source = bundle.stored_array(views.ranks[rank].cells)
        for begin, end in _ranges(count, 8 * nodes):
            connectivity[(first + begin) * nodes:(first + end) * nodes] = source[begin:end].reshape(-1)


def _copy(source: Any, count: int, target: Any, first: int, columns: int) -> None:
    for begin, end in _ranges(count, 8 * columns):
        target[first + begin:first + end, :columns] = source[begin:end]


def _ranges(count: int, row_bytes: int) -> Iterator[tuple[int, int]]:
    rows = max(1, output.PIECE_BYTES // row_bytes)
    return ((begin, min(begin + rows, count)) for begin in range(0, count, rows))


def _write_field(root: h5py.Group, world: World, sizes: _Sizes, array: Array, field: Field, column: Column) -> None:
    own = values(array, field, column)
    group = root.require_group(_GROUPS[field.on])
    dataset = group.create_dataset(encode_name(column.name), (sizes.total, *own.shape[1:]), own.dtype)
    for rank, first, count in sizes.parts():
        if rank == 0:
            dataset[first:first + count] = own
            continue
        shape = (count, *own.shape[1:])
        for box, piece in output.received(world.comm, rank, shape, own.dtype):
            dataset[_moved(box, count, first)] = piece


def _moved(box: tuple[int | slice, ...], count: int, first: int) -> tuple[int | slice, ...]:
    """A box of one rank's rows as a box of all."""
    head, *rest = box or (slice(0, count),)
    moved = head + first if isinstance(head, int) else slice(head.start + first, head.stop + first)
    return (moved, *rest)
