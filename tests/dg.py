"""What tests of the discontinuous Galerkin rooms share: a smooth warp, scrambled meshes, operators run in numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import permutations
from typing import Any

import numpy as np

from aotato.frontend import interpret
from aotato.frontend.adapter.trace import trace
from aotato.frontend.apps._dg.domain import Domain
from aotato.frontend.apps._dg.elements import SIMPLICES
from aotato.frontend.apps._dg.mesh import Mesh
from aotato.frontend.apps._dg.operators import Operators

Array = np.ndarray[Any, Any]


def warp(points: Array) -> Array:
    """Points of the unit box moved by waves that are periodic in it."""
    dim = points.shape[-1]
    waves = [np.prod([np.sin(2 * np.pi * points[..., axis] + 0.3 * i + 0.2 * axis) for axis in range(dim)], axis=0)
             for i in range(dim)]
    return points + 0.04 * np.stack(waves, axis=-1)


def scrambled(mesh: Mesh, seed: int = 0) -> Mesh:
    """The same mesh with the corners of each cell in a random order that is one of the cell's symmetries, vertices and
    cells numbered at random."""
    rng = np.random.default_rng(seed)
    count = mesh.cells.shape[1]
    orders = np.array(list(permutations(range(count))) if mesh.cell in SIMPLICES else _cube_symmetries(mesh.dim))
    cells = np.take_along_axis(mesh.cells, orders[rng.integers(len(orders), size=len(mesh.cells))], axis=1)
    number = rng.permutation(len(mesh.vertices))
    vertices = np.empty_like(mesh.vertices)
    vertices[number] = mesh.vertices
    boundaries = {name: number[faces] for name, faces in mesh.boundaries.items()}
    return replace(mesh, vertices=vertices, cells=number[rng.permutation(cells)], boundaries=boundaries)


def _cube_symmetries(dim: int) -> list[list[int]]:
    """Corner by corner, for each order of the axes and each axis turned round or not."""
    return [[sum(((corner >> axis & 1) ^ (turned >> place & 1)) << place for axis, place in enumerate(axes))
             for corner in range(2**dim)]
            for axes in permutations(range(dim)) for turned in range(2**dim)]


def run(domains: Sequence[Domain], function: Callable[..., Any], *fields: Array) -> Any:
    """`function(operators, *arrays)` on all ranks, in numpy; fields and results are (variables, elements, nodes) of
    the whole mesh, other results are those of rank 0."""
    import pytato as pt

    shares = [[field[:, domain.elements] for field in fields] for domain in domains]

    def entry(rank: int) -> dict[str, Any]:
        inputs = [pt.make_placeholder(name=f"x{i}", shape=x.shape, dtype=x.dtype) for i, x in enumerate(shares[rank])]
        return {"out": function(Operators(domains[rank]), *inputs)}

    programs = trace("step", len(domains), entry).programs
    given = [{f"x{i}": x for i, x in enumerate(share)} for share in shares]
    found = [rank["out"].value for rank in interpret.run(programs, given)]
    elements = sum(len(domain.elements) for domain in domains)
    if found[0].ndim < 3:
        return found[0]
    result = np.full((*found[0].shape[:-2], elements, found[0].shape[-1]), np.nan)
    for domain, part in zip(domains, found, strict=True):
        result[..., domain.elements, :] = part
    return result


def nodes(domains: Sequence[Domain]) -> Array:
    """(elements, n, dim) of the whole mesh."""
    return np.concatenate([d.nodes for d in domains])[np.argsort(np.concatenate([d.elements for d in domains]))]
