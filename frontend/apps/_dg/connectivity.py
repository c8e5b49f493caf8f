"""Which face and node of which element lies across each face, whatever the order of vertices in cells."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotato.frontend import AppError
from aotato.frontend.apps._dg.elements import Element
from aotato.frontend.apps._dg.mesh import Mesh, Periodic

Array = np.ndarray[Any, Any]

NEAR = 1e-8  # of the mesh's extent: how far a periodic vertex may lie from its image


@dataclass(frozen=True)
class Connectivity:
    """Faces are (element, face) of the whole mesh."""

    neighbour: Array  # (E, F) int64 element across the face, -1 on boundaries
    neighbour_face: Array  # (E, F) int64 its face, -1 on boundaries
    places: Array  # (E, F, m) int64 which of its K face nodes meets each of ours; the own one on boundaries
    boundary: Array  # (E, F) int32 number of the boundary's name, -1 elsewhere
    names: tuple[str, ...]  # of boundaries that are not periodic


def connect(mesh: Mesh, element: Element) -> Connectivity:
    """Raises AppError: faces that nothing continues, or too much, or that have several names; each names one face."""
    faces, corners = element.face_corners.shape
    elements = len(mesh.cells)
    facets = mesh.cells[:, element.face_corners].reshape(-1, corners)
    _check_cells(mesh)
    names = tuple(mesh.boundaries)
    name_of, inner = _named_and_paired(mesh, facets, names)
    pairs, joined, labels = [inner], list[int](), facets.copy()
    for periodic in mesh.periodic:
        pairs.append(_periodic_pairs(mesh, periodic, facets, labels, name_of, names))
        joined += [names.index(periodic.minus), names.index(periodic.plus)]
    first, second = np.concatenate(pairs).T
    across = np.full(elements * faces, -1)
    across[first], across[second] = second, first
    places = _partners(mesh, element, facets, labels, np.stack([first, second], axis=1))
    kept = [k for k in range(len(names)) if k not in joined]
    renumbered = np.full(len(names) + 1, -1)
    renumbered[kept] = np.arange(len(kept))
    return Connectivity(
        np.where(across < 0, -1, across // faces).reshape(elements, faces),
        np.where(across < 0, -1, across % faces).reshape(elements, faces),
        places.reshape(elements, faces, -1),
        renumbered[name_of].astype(np.int32).reshape(elements, faces),
        tuple(names[k] for k in kept),
    )


def _check_cells(mesh: Mesh) -> None:
    ordered = np.sort(mesh.cells, axis=1)
    wrong = np.flatnonzero((ordered[:, 1:] == ordered[:, :-1]).any(axis=1))
    if len(wrong):
        raise AppError(f"cell {wrong[0]} of the mesh has a corner twice: vertices "
                       f"{', '.join(map(str, mesh.cells[wrong[0]]))}")


def _named_and_paired(mesh: Mesh, facets: Array, names: Sequence[str]) -> tuple[Array, Array]:
    """For each facet the number of its name or -1, and the pairs of facets inside the mesh."""
    given = [np.asarray(mesh.boundaries[name], np.int64).reshape(-1, facets.shape[1]) for name in names]
    groups = _groups(np.sort(np.concatenate([facets, *given]), axis=1))
    group, *named = np.split(groups, np.cumsum([len(facets), *map(len, given)])[:-1])
    cells = np.bincount(group, minlength=groups.max() + 1)
    if (cells > 2).any():
        shared = facets[group == np.flatnonzero(cells > 2)[0]]
        raise AppError(f"{len(shared)} cells share the face {_place(mesh, shared[0])}; a face has one cell or two")
    name_of = np.full(len(cells), -1)
    for number, (name, rows, own) in enumerate(zip(names, given, named, strict=True)):
        for count, what in ((0, "is no cell's"), (2, "lies between two cells")):
            if (cells[own] == count).any():
                raise AppError(f"boundary {name!r} has the face {_place(mesh, rows[cells[own] == count][0])}, which "
                               f"{what}")
        if (name_of[own] >= 0).any():
            taken = np.flatnonzero(name_of[own] >= 0)[0]
            raise AppError(f"boundaries {names[name_of[own[taken]]]!r} and {name!r} both have the face "
                           f"{_place(mesh, rows[taken])}")
        name_of[own] = number
    lone = (cells[group] == 1) & (name_of[group] < 0)
    if lone.any():
        raise AppError(f"{lone.sum()} faces have a cell on one side alone and no boundary's name, the first "
                       f"{_place(mesh, facets[lone][0])}: name all boundaries (physical groups of a Gmsh file), and "
                       "see that no vertex of one cell lies on the edge of another")
    order = np.argsort(group, kind="stable")
    return name_of[group], order[cells[group[order]] == 2].reshape(-1, 2)


def _groups(rows: Array) -> Array:
    """Equal numbers for equal rows, counted from 0."""
    order = np.lexsort(rows.T[::-1])
    ordered = rows[order]
    new = np.concatenate([[False], (ordered[1:] != ordered[:-1]).any(axis=1)])
    result = np.empty(len(rows), np.int64)
    result[order] = np.cumsum(new)
    return result


def _place(mesh: Mesh, corners: Array) -> str:
    points = ", ".join(f"({', '.join(f'{x:g}' for x in mesh.vertices[corner])})" for corner in corners)
    return f"with corners {points}"


def _periodic_pairs(
    mesh: Mesh, periodic: Periodic, facets: Array, labels: Array, name_of: Array, names: Sequence[str]
) -> Array:
    """Pairs of facets; those of `plus` get the vertices of `minus` as labels."""
    for name in (periodic.minus, periodic.plus):
        if name not in names:
            raise AppError(f"periodic boundary {name!r} is not among the mesh's: {', '.join(names) or 'it has none'}")
    minus, plus = (np.flatnonzero(name_of == names.index(name)) for name in (periodic.minus, periodic.plus))
    both = f"periodic boundaries {periodic.minus!r} and {periodic.plus!r}"
    if len(minus) != len(plus):
        raise AppError(f"{both} have {len(minus)} and {len(plus)} faces; they must be equal but for a translation")
    from_minus, from_plus = np.unique(facets[minus]), np.unique(facets[plus])
    image = _images(mesh, from_minus, from_plus, np.asarray(periodic.translation), both)
    labels[plus] = image[np.searchsorted(from_plus, facets[plus])]
    keys = [np.sort(labels[side], axis=1) for side in (minus, plus)]
    orders = [np.lexsort(key.T[::-1]) for key in keys]
    wrong = np.flatnonzero((keys[0][orders[0]] != keys[1][orders[1]]).any(axis=1))
    if len(wrong):
        raise AppError(f"{both} are cut into different faces, for example at that "
                       f"{_place(mesh, facets[minus[orders[0][wrong[0]]]])}")
    return np.stack([minus[orders[0]], plus[orders[1]]], axis=1)


def _images(mesh: Mesh, minus: Array, plus: Array, translation: Array, both: str) -> Array:
    """For each vertex of `plus` the vertex of `minus` that the translation takes there."""
    near = NEAR * float(np.ptp(mesh.vertices, axis=0).max())
    # Sorted along a line that no mesh is aligned with, few vertices are candidates of each
    line = np.array([0.6180339887, 0.5436890127, 0.5671432904])[: mesh.dim]
    moved = mesh.vertices[minus] + translation
    order = np.argsort(moved @ line, kind="stable")
    along = (moved @ line)[order]
    points = mesh.vertices[plus]
    begin = np.searchsorted(along, points @ line - near * mesh.dim)
    end = np.searchsorted(along, points @ line + near * mesh.dim)
    found = np.full(len(plus), -1)
    for step in range(int((end - begin).max())):
        candidate = order[np.minimum(begin + step, len(order) - 1)]
        hit = (begin + step < end) & (np.abs(moved[candidate] - points).max(axis=1) <= near)
        found[hit] = candidate[hit]
    if (found < 0).any():
        point = ", ".join(f"{x:g}" for x in points[np.flatnonzero(found < 0)[0]])
        raise AppError(f"{both}: no vertex of the first, moved by ({', '.join(f'{x:g}' for x in translation)}), lies "
                       f"at vertex ({point}) of the second")
    return np.asarray(minus[found])


def _partners(mesh: Mesh, element: Element, facets: Array, labels: Array, pairs: Array) -> Array:
    """(faces, m) which of its element's face nodes the neighbour has at each face node; the own one on boundaries."""
    turns = _turns(labels)
    known, code = np.unique(turns, axis=0, return_inverse=True)
    turned = np.array([_turned(element, turn) for turn in known])[code.ravel()]
    seen = np.take_along_axis(labels, turns, axis=1)
    wrong = np.flatnonzero((seen[pairs[:, 0]] != seen[pairs[:, 1]]).any(axis=1))
    if len(wrong):
        raise AppError(f"two cells order the corners of their common face {_place(mesh, facets[pairs[wrong[0], 0]])} "
                       "differently around it")
    faces, size = element.face_nodes.shape
    begins = np.arange(len(facets))[:, None] % faces * size
    result: Array = begins + np.arange(size)
    for a, b in (pairs.T, pairs.T[::-1]):
        result[a[:, None], turned[a]] = begins[b] + turned[b]
    return result


def _turns(labels: Array) -> Array:
    """(faces, corners) the corners of each face in an order that both its cells agree on.

    Simplices: by label. Quadrilaterals: from the smallest label, first towards the smaller of the two next to it.
    """
    if labels.shape[1] < 4:
        return np.argsort(labels, axis=1, kind="stable")
    start = labels.argmin(axis=1)
    one, other = start ^ 1, start ^ 2
    rows = np.arange(len(labels))
    swap = labels[rows, one] > labels[rows, other]
    return np.stack([start, np.where(swap, other, one), np.where(swap, one, other), start ^ 3], axis=1)


def _turned(element: Element, turn: Sequence[int]) -> list[int]:
    """Where among a face's nodes lies each node of a face whose corners are these of its own."""
    order, lattice = element.order, element.face_lattice
    axes = lattice.shape[1]
    if element.simplex or axes == 1:
        corners = np.vstack([np.zeros((1, axes), int), np.eye(axes, dtype=int)])
    else:
        corners = np.array([(0, 0), (1, 0), (0, 1), (1, 1)])
    steps = corners[list(turn[1 : axes + 1])] - corners[turn[0]]
    places = order * corners[turn[0]] + lattice @ steps
    known = {tuple(row): place for place, row in enumerate(lattice.tolist())}
    return [known[tuple(row)] for row in places.tolist()]
