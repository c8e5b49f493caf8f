"""Match outputs with the points and cells of a view, over all ranks at once."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from aotato.frontend.app import AppError
from aotato.frontend.ir import Programs
from aotato.frontend.view import Field, Views

Shape = tuple[int, ...]
PLACES = ("points", "cells")


@dataclass(frozen=True)
class Column:
    """One array of the drawn file: components of an output, and a name."""

    name: str
    components: tuple[int, ...]
    zeros: int = 0  # further components


@dataclass(frozen=True)
class Placed:
    """A field whose place is known: `count` components, each (points,) or (cells,) of the rank."""

    output: str
    on: str
    count: int
    columns: tuple[Column, ...]


def place(views: Views, entries: Mapping[str, Programs]) -> tuple[Placed, ...]:
    """Where each field lies. Raises AppError: an unknown output, of complex numbers, of no fitting shape."""
    outputs = _outputs(entries)
    if views.fields:
        placed = [_named(field, views, outputs) for field in views.fields]
    else:
        placed = [p for path in sorted(outputs) if (p := _fitting(Field(path), views, outputs[path])) is not None]
    if not placed:
        found = "; ".join(f"{path!r} is {_shapes(outputs[path])}" for path in sorted(outputs))
        raise AppError(f"view: expected an output with a value for each {_sizes(views)}, but {found}")
    for on in PLACES:
        names = [column.name for p in placed for column in p.columns if p.on == on]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise AppError(f"view: two fields on {on} are named {twice[0]!r}; give one of them other names")
    return tuple(placed)


@dataclass(frozen=True)
class _Output:
    """An output path of an entry: by rank its shape, None where the rank has no such output."""

    entry: str
    kind: str  # of its dtype
    shapes: tuple[Shape | None, ...]


def _outputs(entries: Mapping[str, Programs]) -> dict[str, list[_Output]]:
    found: dict[str, list[_Output]] = {}
    for entry, programs in entries.items():
        ranks = [{o.path: program.arrays[o.array] for o in program.outputs} for program in programs.ranks]
        for path in sorted({path for rank in ranks for path in rank}):
            nodes = [rank.get(path) for rank in ranks]
            kind = next(node.dtype.kind for node in nodes if node is not None)
            shapes = tuple(None if node is None else tuple(node.shape) for node in nodes)
            found.setdefault(path, []).append(_Output(entry, kind, shapes))
    return found


def _named(field: Field, views: Views, outputs: Mapping[str, Sequence[_Output]]) -> Placed:
    if field.on not in ("", *PLACES):
        raise AppError(f"view: expected field {field.output!r} on 'points' or 'cells', but found {field.on!r}")
    if field.output not in outputs:
        near = difflib.get_close_matches(field.output, outputs, 1)
        meant = f"; did you mean {near[0]!r}?" if near else f"; outputs are {', '.join(map(repr, sorted(outputs)))}"
        raise AppError(f"view: there is no output {field.output!r}{meant}")
    rows = outputs[field.output]
    for row in rows:
        if row.kind == "c":
            raise AppError(f"view: output {field.output!r} of entry {row.entry!r} is complex; return its parts instead")
        if None in row.shapes:
            raise AppError(f"view: rank {row.shapes.index(None)} has no output {field.output!r} in entry "
                           f"{row.entry!r}; a field is an output of every rank")
    placed = _fitting(field, views, rows)
    if placed is None:
        raise AppError(f"view: expected field {field.output!r} with a value for each {_sizes(views, field.on)} after "
                       f"axes of components that are the same on all ranks, but it is {_shapes(rows)}")
    return placed


def _fitting(field: Field, views: Views, rows: Sequence[_Output]) -> Placed | None:
    """The place with the fewest components in which the field fits on all ranks in all entries."""
    if any(row.kind == "c" or None in row.shapes for row in rows):
        return None
    shapes = [shape for row in rows for shape in row.shapes if shape is not None]
    options = []
    for on in (field.on,) if field.on else PLACES:
        sizes = [len(mesh.points if on == "points" else mesh.cells) for mesh in views.meshes] * len(rows)
        common = set.intersection(*(set(_leading(shape, size)) for shape, size in zip(shapes, sizes, strict=True)))
        options += [(math.prod(leading), PLACES.index(on), on) for leading in common]
    if not options:
        return None
    count, _, on = min(options)
    return Placed(field.output, on, count, _columns(field, count, views.dim))


def _leading(shape: Shape, size: int) -> Iterator[Shape]:
    """Leading axes after which an axis or more with `size` elements remain."""
    for axis in range(len(shape)):
        if math.prod(shape[axis:]) == size and 0 not in shape[:axis]:
            yield shape[:axis]


def _columns(field: Field, count: int, dim: int) -> tuple[Column, ...]:
    names = list(field.names) or [field.output] * count
    if len(names) != count:
        raise AppError(f"view: field {field.output!r} has {count} component{'s' * (count != 1)}, but {len(names)} "
                       f"names: {', '.join(names)}")
    columns = []
    for name in dict.fromkeys(names):
        components = tuple(int(i) for i in np.flatnonzero([other == name for other in names]))
        columns.append(Column(name, components, int(dim == 2 and len(components) == 2)))
    return tuple(columns)


def _sizes(views: Views, on: str = "") -> str:
    texts = []
    for place in (on,) if on else PLACES:
        sizes = {len(mesh.points if place == "points" else mesh.cells) for mesh in views.meshes}
        texts.append(f"{place[:-1]} ({', '.join(map(str, sorted(sizes)[:3]))}{', ...' * (len(sizes) > 3)})")
    return " or ".join(texts)


def _shapes(rows: Sequence[_Output]) -> str:
    shapes = dict.fromkeys(shape for row in rows for shape in row.shapes if shape is not None)
    return " and ".join(f"[{', '.join(map(str, shape))}]" for shape in list(shapes)[:3])
