"""Over-integration, run in numpy: what is integrated is exact, and where nodes alone are asked it is not."""

from __future__ import annotations

import numpy as np
import pytato as pt
import pytest

from aotato.frontend.apps._dg import mesh
from aotato.frontend.apps._dg.domain import domains
from aotato.frontend.apps._dg.elements import element, interpolation, quadrature
from aotato.frontend.apps._dg.overintegration import Overintegration
from dg import nodes, run, scrambled, warp

COUNTS = {"tri": (2, 2), "quad": (2, 2), "tet": (1, 1, 2), "hex": (1, 1, 2)}
VELOCITY = (1.0, 0.5, 0.25)


@pytest.mark.parametrize("cell", COUNTS)
def test_the_square_of_a_polynomial_is_tested_exactly(cell):
    """The rate of u, du/dt = - div(v u^2), against all functions of the basis: - integral of them times div(v u^2)."""
    order = 2
    pieces = domains(scrambled(mesh.box(COUNTS[cell], cell=cell)), element(cell, order), 2)
    places = nodes(pieces)
    u = (places[..., 0] ** 2 - places[..., -1] * places[..., 1] + 1)[np.newaxis]

    def rate(ops, x, degree):
        fine = Overintegration(ops, degree)
        inside = fine.values(x)
        outer = fine.traces(ops.outside(x, ops.exchange(x, "x")))
        through = sum(v * n for v, n in zip(VELOCITY, fine.normal, strict=False)) * outer * outer
        return fine.rate(pt.stack([v * inside * inside for v in VELOCITY[: ops.dim]]), through)

    exact, rough = (run(pieces, lambda ops, x, degree=degree: rate(ops, x, degree), u)[0]
                    for degree in (3 * order, 2 * order - 1))
    points, weights = quadrature(cell, 4 * order)
    inside = interpolation(pieces[0].element, points)
    for piece in pieces:
        x = np.einsum("ai,eid->dea", inside, piece.nodes)
        slopes = [2 * x[0], *[0 * x[0]] * (len(x) - 1)]
        slopes[1] = slopes[1] - x[-1]
        slopes[-1] = slopes[-1] - x[1]
        value = x[0] ** 2 - x[-1] * x[1] + 1
        change = -2 * value * sum(v * slope for v, slope in zip(VELOCITY, slopes, strict=False))
        tested = np.einsum("ai,ea->ei", inside * weights[:, np.newaxis], change) * piece.jacobian[:, np.newaxis]
        found = exact[piece.elements] @ piece.element.mass * piece.jacobian[:, np.newaxis]
        np.testing.assert_allclose(found, tested, atol=1e-14)
        assert np.abs(rough[piece.elements] - exact[piece.elements]).max() > 1e-3


@pytest.mark.parametrize("cell", ["tri", "tet"])
def test_both_sides_of_a_face_have_the_same_points(cell):
    """Wherever the corners of cells are counted from: a function that is continuous has no jumps there."""
    pieces = domains(scrambled(mesh.box((3,) * (2 + (cell == "tet")), periodic=True, cell=cell)), element(cell, 3), 2)
    values = np.random.default_rng(1).random((1, *nodes(pieces).shape[:2]))

    def exchanged(ops, x):
        """What flows out of cells and into their neighbours, by a flux that both compute of what they see."""
        fine = Overintegration(ops, 8)
        inner, outer = (fine.traces(side) for side in (ops.inside(x), ops.outside(x, ops.exchange(x, "x"))))
        through = sum(v * n for v, n in zip(VELOCITY, fine.normal, strict=False)) * pt.exp(inner + outer)
        flux = pt.zeros((ops.dim, 1, x.shape[1], len(quadrature(cell, 8)[1])), "float64")
        return ops.integral(fine.rate(flux, through))

    assert np.abs(run(pieces, exchanged, values)).max() < 1e-13


def test_curved_cells_are_closed():
    """The integral of the normal over all faces of a cell is nothing."""
    (piece,) = pieces = domains(mesh.box((3, 3, 3), periodic=True, cell="hex", warp=warp), element("hex", 2), 1)
    assert not piece.affine

    def through(ops, x):
        fine = Overintegration(ops, 5)
        flux = pt.zeros((3, 3, x.shape[1], len(quadrature("hex", 5)[1])), "float64")
        return fine.rate(flux, pt.stack([n * fine.traces(ops.inside(x))[0] for n in fine.normal]))

    found = run(pieces, through, np.ones((1, *nodes(pieces).shape[:2])))[:, piece.elements]
    areas = piece.scale * piece.jacobian[:, piece.element.face_nodes.ravel()]
    assert np.abs(found).max() > 1
    assert np.abs((found * piece.mass).sum(axis=2)).max() < 1e-13 * areas.max()
