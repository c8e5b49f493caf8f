"""DG advection on tetrahedra as discretisations of groups of faces write it: a flux for each group, added up.

Interior faces and the faces of a wall are arrays of their own; what they give is brought to all faces of all elements
by gathers under a mask.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytato as pt

from aotato.frontend import array_input, take

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from dg_mesh import Mesh, box, lattice

Array = np.ndarray[Any, Any]
VELOCITY = (1.0, 0.5, 0.25)


def advection(mesh: Mesh, order: int, wall: Array) -> dict[str, Any]:
    """`rhs` of q (elements, nodes), `energy`; faces where `wall` (elements, 4) is true have a fixed state outside."""
    elements, n, m = len(mesh.outside), len(lattice(order)), mesh.outside.shape[1] // 4
    rng, wrap = np.random.default_rng(0), pt.make_data_wrapper
    q = array_input("q", (elements, n), "float64", default=rng.random((elements, n)))
    flat = pt.reshape(q, (elements * n,))
    speed = np.dot(mesh.scaled_normals, VELOCITY)
    own = (mesh.face_nodes + n * np.arange(elements)[:, None]).reshape(elements, 4, m)
    outside = mesh.outside.reshape(elements, 4, m)
    states = {"interior": (~wall, take(flat, wrap(outside[~wall]), axis=0)),
              "wall": (wall, wrap(rng.random((int(wall.sum()), m))))}
    fluxes = []
    for faces, other in states.values():
        inside, along = take(flat, wrap(own[faces]), axis=0), wrap(speed[faces][:, None])
        upwind = 0.5 * (along * (inside + other) + abs(along) * (inside - other))
        fluxes.append(_everywhere(upwind, faces, m))
    face = pt.reshape(fluxes[0] + fluxes[1], (elements, 4 * m))
    direction = np.dot(mesh.inverse_metric, VELOCITY)
    volume = pt.einsum("rij,er,ej->ei", wrap(rng.random((3, n, n))), wrap(direction), q)
    rhs = volume - pt.einsum("ik,ek->ei", wrap(rng.random((n, 4 * m))), face)
    return {"rhs": rhs, "energy": pt.sum(q * q)}


def _everywhere(flux: Any, faces: Array, m: int) -> Any:
    """`flux` of the chosen faces, at m nodes each, for all faces (elements, 4, m); zero at others."""
    number = np.full(faces.shape, -1)
    number[faces] = np.arange(faces.sum())
    index = np.where(faces[:, :, None], number[:, :, None] * m + np.arange(m), -1)
    mask = np.broadcast_to(faces[:, :, None], index.shape).copy()
    picked = take(pt.reshape(flux, (int(np.prod(flux.shape)),)), pt.make_data_wrapper(index), axis=0)
    return pt.where(pt.make_data_wrapper(mask), picked, 0.0)


def app(cells: int = 7, order: int = 1) -> dict[str, Any]:
    """In a periodic box a fifth of whose faces are walls, seen from one side."""
    mesh = box(cells, order)
    return advection(mesh, order, np.random.default_rng(1).random((len(mesh.outside), 4)) < 0.2)
