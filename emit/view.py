"""Turn an app's views into what the bundle stores of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotato.frontend import fields
from aotato.frontend import view as app_view
from aotato.frontend.constants import digest
from aotato.frontend.ir import Programs
from aotato.runtime_stub import view_data

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Drawn:
    """The views of all ranks, and their arrays by digest."""

    views: view_data.Views
    arrays: Mapping[str, Array]


def drawn(function: Callable[[int], Any], ranks: int, entries: Mapping[str, Programs]) -> Drawn | None:
    """Call the app's view for every rank, check it and match it with the outputs. Raises AppError."""
    views = app_view.views(function, ranks)
    if views is None:
        return None
    arrays = {digest(array): array for mesh in views.meshes for array in (mesh.points, mesh.cells)}
    meshes = tuple(view_data.Mesh(digest(mesh.points), digest(mesh.cells)) for mesh in views.meshes)
    placed = tuple(_field(field) for field in fields.place(views, entries))
    return Drawn(view_data.Views(views.cell, views.order, views.dim, placed, meshes), arrays)


def _field(field: fields.Placed) -> view_data.Field:
    columns = (view_data.Column(column.name, column.components, column.zeros) for column in field.columns)
    return view_data.Field(field.output, field.on, field.count, tuple(columns))
