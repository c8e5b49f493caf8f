"""Box: fields on a row of unit boxes, one a rank, in cells of any kind and order with nodes of their own."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytato as pt

from aotato import Field, Option, View, array_input, vtk_node_order
from aotato.frontend.lattice import DIMENSIONS

OPTIONS = (
    Option("cell", str, "hex", doc="line, triangle, quad, tet or hex"),
    Option("order", int, 2, doc="of the cells"),
    Option("n", int, 2, doc="boxes along each edge"),
)
NAMES = {1: ("density", "u"), 2: ("density", "momentum", "momentum"), 3: ("density", *["momentum"] * 3)}


def tuples(opt):
    """Integer coordinates of a cell's nodes, in this app's order: the last coordinate fastest."""
    every = itertools.product(range(opt.order + 1), repeat=DIMENSIONS[opt.cell])
    return [node for node in every if opt.cell in ("line", "quad", "hex") or sum(node) <= opt.order]


def points(rank, opt):
    """(cells, nodes, dim)."""
    dim = DIMENSIONS[opt.cell]
    simplex = opt.cell in ("triangle", "tet")
    maps = [_simplex(axes) for axes in itertools.permutations(range(dim))] if simplex else [np.eye(dim)]
    nodes = np.array(tuples(opt)) / opt.order
    cells = [nodes @ edges + corner for corner in itertools.product(range(opt.n), repeat=dim) for edges in maps]
    return np.array(cells) / opt.n + np.eye(dim)[0] * rank


def _simplex(axes):
    """Edges from the origin to the other corners, which lie on a path along the axes: all paths make the cube."""
    edges = np.cumsum(np.eye(len(axes))[list(axes)], axis=0)
    return edges if np.linalg.det(edges) > 0 else edges[[1, 0, *range(2, len(axes))]]


def step(rank, size, opt, data):
    """A linear density and a momentum that is its gradient times the point."""
    x = points(rank, opt)
    scale = array_input("scale", (), "float64", unit="", doc="of everything", default=np.array(1.0))
    nodes = pt.make_data_wrapper(np.ascontiguousarray(np.moveaxis(x, -1, 0)))
    density = sum((i + 1) * nodes[i] for i in range(x.shape[-1]))
    q = pt.stack([density, *((i + 1) * nodes[i] for i in range(x.shape[-1]))])
    mean = pt.make_data_wrapper(x.mean(axis=(1, 2)))
    return {"q": scale * q, "mean": scale * mean}


def view(rank, size, opt, data):
    x = points(rank, opt)
    dim = x.shape[-1]
    return View(
        x.reshape(-1, dim),
        np.arange(math.prod(x.shape[:2])).reshape(x.shape[:2]),
        opt.cell,
        opt.order,
        vtk_node_order(opt.cell, tuples(opt)),
        (Field("q", names=NAMES[dim]), "mean"),
    )


ENTRIES = (step,)
