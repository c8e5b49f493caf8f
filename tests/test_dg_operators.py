"""Operators of a rank, run in numpy on all ranks: exact on polynomials, conservative, convergent."""

from __future__ import annotations

import re
from itertools import product

import numpy as np
import pytato as pt
import pytest

import aotato
from aotato.frontend import array_input
from aotato.frontend.apps._dg import mesh
from aotato.frontend.apps._dg.domain import domains
from aotato.frontend.apps._dg.elements import element
from aotato.frontend.apps._dg.operators import Operators
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from conftest import ROOT
from dg import nodes, run, scrambled, warp

COUNTS = {"tri": (4, 3), "quad": (4, 3), "tet": (2, 2, 2), "hex": (3, 2, 3)}
VELOCITY = (1.0, 0.5, 0.25)
# Meshes with all kinds of neighbours: cells, whether curved, ranks
CASES = [("tri", False, 1), ("tri", False, 3), ("quad", False, 2), ("quad", True, 1), ("quad", True, 3),
         ("tet", False, 3), ("hex", False, 2), ("hex", True, 2)]
cases = pytest.mark.parametrize(("cell", "curved", "ranks"), CASES)


def parts(cell, curved, ranks, order=2, periodic=(True, False, True), counts=None):
    counts = counts or COUNTS[cell]
    made = mesh.box(counts, periodic=periodic[: len(counts)], cell=cell, warp=warp if curved else None)
    return domains(scrambled(made), element(cell, order), ranks)


def polynomials(places, order):
    """Values (2, E, n) and gradients (dim, 2, E, n) of two polynomials that all cells hold."""
    x = [places[..., axis] for axis in range(places.shape[-1])]
    values = np.stack([sum((axis + 1) * y**order for axis, y in enumerate(x)), 1 + x[0] ** (order - 1) * x[-1]])
    slopes = [np.stack([(axis + 1) * order * y ** (order - 1), np.zeros_like(y)]) for axis, y in enumerate(x)]
    slopes[0][1] += (order - 1) * x[0] ** max(order - 2, 0) * x[-1]
    slopes[-1][1] += x[0] ** (order - 1)
    return values, np.stack(slopes)


@pytest.mark.parametrize(("cell", "order"), list(product(COUNTS, (1, 3))))
def test_gradient_and_divergence_of_polynomials(cell, order):
    pieces = parts(cell, False, 1, order)
    values, slopes = polynomials(nodes(pieces), order)
    np.testing.assert_allclose(run(pieces, lambda ops, x: ops.gradient(x), values), slopes, atol=1e-11)
    found = run(pieces, lambda ops, x: ops.divergence(pt.stack([(d + 1.0) * x for d in range(ops.dim)])), values)
    np.testing.assert_allclose(found, sum((d + 1) * slope for d, slope in enumerate(slopes)), atol=1e-11)


@cases
def test_values_across_faces(cell, curved, ranks):
    """A function that is periodic and continuous has one value on both sides of a face, whoever owns them."""
    pieces = parts(cell, curved, ranks)
    places = nodes(pieces)
    values = np.stack([np.cos(2 * np.pi * places[..., 0]), places[..., 1]])

    def apart(ops, x):
        by_nodes = ops.outside(x, ops.exchange(x, "nodes"))
        by_faces = ops.outside_faces(ops.outside(x, None), ops.exchange_faces(ops.inside(x), "faces"))
        return pt.stack([by_nodes - ops.inside(x), by_faces - by_nodes])

    np.testing.assert_allclose(run(pieces, apart, values), 0, atol=1e-12)
    assert all((Operators(piece).exchange(pt.zeros((1, *piece.nodes.shape[:2])), "x") is None) == (ranks == 1)
               for piece in pieces)


@cases
def test_boundaries_are_selected(cell, curved, ranks):
    """y- is where y is 0, y+ where it is 1."""
    pieces = parts(cell, False, ranks)
    values = np.ones((1, *nodes(pieces).shape[:2]))

    def chosen(ops, x):
        inner = ops.inside(x)
        assert ops.on("y-") is None or ops.on("y-").shape == inner.shape[1:]
        found = ops.select({"y-": 2 * inner, "y+": 3 * inner}, inner)
        return pt.stack([found[0], ops.face_coordinates[1], ops.normal[1]])

    found, y, normal = run(pieces, chosen, values)
    flat = np.abs(normal) > 1 - 1e-12
    expected = np.where(flat & (np.abs(y) < 1e-12), 2, np.where(flat & (np.abs(y - 1) < 1e-12), 3, 1))
    np.testing.assert_array_equal(found, expected)


@cases
def test_a_uniform_state_is_kept_and_faces_are_closed(cell, curved, ranks):
    """The integral of the normal over each cell's faces is nothing; nor is the divergence of a constant."""
    pieces = parts(cell, curved, ranks, 3)
    ones = np.ones((1, *nodes(pieces).shape[:2]))

    def residue(ops, x):
        flux = pt.stack([speed * x for speed in VELOCITY[: ops.dim]])
        through = sum(speed * n for speed, n in zip(VELOCITY, ops.normal, strict=False))
        outer = ops.outside(x, ops.exchange(x, "x"))
        return ops.lift(through * (ops.inside(x) - outer)) - ops.divergence(flux)

    assert np.abs(run(pieces, residue, ones)).max() < 1e-12
    for axis in range(pieces[0].element.dim):
        closed = run(pieces, lambda ops, x, axis=axis: ops.integral(ops.lift(ops.normal[axis] * ops.inside(x))), ones)
        assert np.abs(closed).max() < 1e-13


@cases
def test_what_leaves_a_cell_enters_its_neighbour(cell, curved, ranks):
    """The divergence theorem in each cell, and conservation in the whole mesh, for arbitrary values."""
    pieces = parts(cell, curved, ranks, 2, periodic=(True, True, True))
    rng = np.random.default_rng(3)
    values = rng.random((2, *nodes(pieces).shape[:2]))

    def change(ops, x):
        factors = [speed * x * (1 + x) for speed in VELOCITY[: ops.dim]]
        outer, inner = ops.outside(x, ops.exchange(x, "x")), ops.inside(x)
        speed = sum(v * n for v, n in zip(VELOCITY, ops.normal, strict=False))
        own, other = speed * inner * (1 + inner), speed * outer * (1 + outer)
        common = 0.5 * (own + other) + 0.5 * abs(speed) * (inner - outer)
        return ops.integral(ops.lift(own - common) - ops.divergence(pt.stack(factors)))

    def theorem(ops, x):
        """(integral over faces) - (integral of the divergence), of the flux x along each axis, in each cell."""
        volume = ops.divergence(pt.stack([x] * ops.dim))
        faces = ops.lift(sum(ops.normal) * ops.inside(x))
        return faces - volume

    assert np.abs(run(pieces, change, values)).max() < 1e-13
    mass = np.empty(nodes(pieces).shape[:2])
    for piece in pieces:
        mass[piece.elements] = piece.mass
    found = (run(pieces, theorem, values) * mass).sum(axis=2)
    assert np.abs(found).max() < 1e-13


@pytest.mark.parametrize(("cell", "curved"), [("tri", False), ("quad", True), ("tet", False), ("hex", True)])
def test_ranks_agree(cell, curved):
    """The rate of change by upwind fluxes, with walls, is the same on any number of ranks."""
    rng = np.random.default_rng(5)
    found = []
    values = None
    for ranks in (1, 2, 4):
        pieces = parts(cell, curved, ranks)
        values = rng.random((2, *nodes(pieces).shape[:2])) if values is None else values
        found.append(run(pieces, lambda ops, x: advection(ops, x, walls=True), values))
    for other in found[1:]:
        np.testing.assert_allclose(other, found[0], rtol=1e-13, atol=1e-12)


def advection(ops, x, walls=False):
    """- velocity . grad x with upwind fluxes; what flows in through walls is 2."""
    speed = sum(v * n for v, n in zip(VELOCITY, ops.normal, strict=False))
    inner, outer = ops.inside(x), ops.outside(x, ops.exchange(x, "x"))
    if walls:
        outer = ops.select({"y-": 2 + 0 * inner}, outer)
    common = 0.5 * speed * (inner + outer) + 0.5 * abs(speed) * (inner - outer)
    return ops.lift(speed * inner - common) - ops.divergence(pt.stack([v * x for v in VELOCITY[: ops.dim]]))


@pytest.mark.parametrize(("cell", "order", "coarse", "curved"), [
    ("tri", 1, 8, False), ("tri", 2, 6, False), ("tri", 3, 4, False), ("quad", 1, 8, False), ("quad", 2, 8, False),
    ("quad", 3, 6, False), ("quad", 2, 8, True), ("tet", 1, 8, False), ("tet", 2, 4, False), ("hex", 1, 8, False),
    ("hex", 2, 6, True),
])
def test_waves_travel_with_order_p_plus_1(cell, order, coarse, curved):
    """The exact solution of the discrete equations, by a power series in time, against a wave along the first axis."""
    errors = [travelled(*channel(cell, order, count, curved)) for count in (coarse, 2 * coarse)]
    assert np.log2(errors[0] / errors[1]) > order + 0.7, errors


def channel(cell, order, count, curved):
    """A periodic row of cells along the first axis."""
    counts = (count, 1, 1)[: len(COUNTS[cell])]
    made = mesh.box(counts, lengths=np.array(counts) / count, periodic=True, cell=cell, warp=bent if curved else None)
    pieces = domains(made, element(cell, order), 1)
    mass = np.empty(nodes(pieces).shape[:2])
    mass[pieces[0].elements] = pieces[0].mass
    return pieces, nodes(pieces)[..., 0], np.abs(mass)


def bent(points):
    """Moved along all axes, by waves along the first."""
    axes = np.arange(points.shape[-1])
    return points + 0.03 * np.sin(2 * np.pi * points[..., :1] + axes)


def travelled(pieces, x, mass, end=0.25):
    """The error in the mean square."""
    operator = run(pieces, advection, np.eye(x.size).reshape(x.size, *x.shape)).reshape(x.size, x.size).T
    steps = int(np.ceil(end * np.abs(operator).sum(axis=1).max() / 4))
    state = np.sin(2 * np.pi * x).ravel()
    for _ in range(steps):
        term, power = state, 0
        while np.abs(term).max() > 1e-13:
            power += 1
            term = operator @ term * (end / steps / power)
            state = state + term
    return np.sqrt((mass * (state.reshape(x.shape) - np.sin(2 * np.pi * (x - VELOCITY[0] * end))) ** 2).sum())


@pytest.mark.parametrize(("cell", "curved", "counts"), [
    ("tri", False, (3, 2)), ("quad", False, (3, 3)), ("quad", True, (3, 3)), ("tet", False, (1, 2, 1)),
    ("hex", True, (2, 2, 2)),
])
def test_diffusion_is_symmetric_and_keeps_constants_alone(cell, curved, counts):
    """Local discontinuous Galerkin without penalty, which `side` must suffice for: all other modes decay."""
    (piece,) = pieces = parts(cell, curved, 1, 1, (True, True, True), counts)
    shape = nodes(pieces).shape[:2]
    size = shape[0] * shape[1]

    def diffusion(ops, x):
        inner, outer = ops.inside(x), ops.outside(x, None)
        taken = 0.5 * (inner + outer) + 0.5 * ops.side * (inner - outer)
        slope = [ops.gradient(x)[d] + ops.lift((taken - inner) * n) for d, n in enumerate(ops.normal)]
        own = sum(ops.inside(g) * n for g, n in zip(slope, ops.normal, strict=True))
        theirs = sum(ops.outside(g, None) * n for g, n in zip(slope, ops.normal, strict=True))
        return ops.divergence(pt.stack(slope)) - ops.lift(own - 0.5 * (own + theirs) + 0.5 * ops.side * (own - theirs))

    operator = run(pieces, diffusion, np.eye(size).reshape(size, *shape)).reshape(size, size).T
    masses = np.zeros((*shape, *shape))
    for row, element_ in enumerate(piece.elements):
        masses[element_, :, element_] = (piece.element.mass * piece.jacobian[row] if piece.affine
                                         else np.diag(piece.mass[row]))
    energy = masses.reshape(size, size) @ operator
    scale = np.abs(energy).max()
    assert np.abs(energy - energy.T).max() < 1e-12 * scale
    modes = np.linalg.eigvalsh(energy + energy.T) / scale
    assert (modes < -1e-4).sum() == size - 1 and abs(modes[-1]) < 1e-12


@pytest.mark.parametrize("cell", COUNTS)
def test_an_advection_stage_is_one_launch(cell, tmp_path):
    counts = {"tri": (6, 6), "quad": (8, 9), "tet": (3, 3, 3), "hex": (4, 4, 5)}[cell]
    pieces = parts(cell, False, 1, 2, (True, True, True), counts)

    def step(rank, size):
        shape = (2, *pieces[0].nodes.shape[:2])
        x, kept = (array_input(name, shape, "float64") for name in ("x", "kept"))
        kept = 0.5 * kept + 0.1 * advection(Operators(pieces[0]), x)
        return {"x": x + 0.3 * kept, "kept": kept}

    path = aotato.build(step, path=tmp_path / "advection.h5", targets="gpu")
    with Bundle.open(path) as bundle:
        assert report(bundle)["entries"]["step"]["per_rank"][0]["launches"] == 1


def test_the_solver_of_the_docs_runs(tmp_path):
    (code,) = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "dg.md").read_text(), re.DOTALL)
    (tmp_path / "drift.py").write_text(code)
    path = aotato.build(str(tmp_path / "drift.py"), path=tmp_path / "drift.h5", targets="cpu")
    with aotato.load(path) as program:
        u = program.call("step", dt=1e-3)["u"]
    # What flows in at y- has come into the lowest cells alone
    assert 0 < u.max() < 1
    assert (u[0].max(axis=1) > 1e-3).sum() == 16
