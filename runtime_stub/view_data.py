"""A view as the bundle holds it: one mesh per rank by digest, fields with their places, JSON both ways."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from aotato.runtime_stub.errors import Refusal


@dataclass(frozen=True)
class Column:
    """One array of the drawn file: components of an output, and a name."""

    name: str
    components: tuple[int, ...]
    zeros: int = 0  # further components


@dataclass(frozen=True)
class Field:
    """An output whose `count` components each have one value per point, or per cell, of the rank."""

    output: str
    on: str  # "points" or "cells"
    count: int
    columns: tuple[Column, ...]


@dataclass(frozen=True)
class Mesh:
    """Digests of a rank's points (points, dim) and cells (cells, nodes), nodes in VTK's order."""

    points: str
    cells: str


@dataclass(frozen=True)
class Views:
    """The meshes of all ranks, of one kind of cell."""

    cell: str  # "line", "triangle", "quad", "tet" or "hex"
    order: int
    dim: int
    fields: tuple[Field, ...]
    ranks: tuple[Mesh, ...]


def to_json(views: Views) -> dict[str, Any]:
    return asdict(views)


def of(meta: Mapping[str, Any]) -> Views | None:
    """The views in a bundle's `meta`, if it has any. Raises Refusal where they are of another form."""
    data = meta.get("views")
    if not data:
        return None
    try:
        fields = tuple(_field(row) for row in data["fields"])
        return Views(data["cell"], data["order"], data["dim"], fields, tuple(Mesh(**row) for row in data["ranks"]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refusal(f"the bundle's view is damaged ({error}); build it again") from None


def _field(row: Mapping[str, Any]) -> Field:
    columns = (Column(c["name"], tuple(c["components"]), c["zeros"]) for c in row["columns"])
    return Field(row["output"], row["on"], row["count"], tuple(columns))
