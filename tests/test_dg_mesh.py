"""Meshes, who meets whom, metric terms, and the tables of ranks."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from aotato.frontend import AppError
from aotato.frontend.apps._dg import mesh
from aotato.frontend.apps._dg.connectivity import connect
from aotato.frontend.apps._dg.domain import domains
from aotato.frontend.apps._dg.elements import element
from aotato.frontend.apps._dg.geometry import geometry
from conftest import ROOT
from dg import scrambled, warp

COUNTS = {"tri": (4, 3), "quad": (4, 3), "tet": (2, 3, 2), "hex": (3, 2, 3)}
CELLS_OF_A_BLOCK = {"diagonal": {"tri": 2, "quad": 1, "tet": 6, "hex": 1}, "middle": {"tri": 4, "tet": 24}}
TABLES = ("nodes", "metric", "jacobian", "normals", "scale", "mass", "side", "h_face", "height", "boundary")
# What is periodic; 2D takes the first two
PERIODIC = [(False, False, False), (True, False, False), (False, True, True), (True, True, True)]


def box(cell, counts=None, periodic=True, **words):
    counts = counts or COUNTS[cell]
    flags = periodic if isinstance(periodic, bool) else periodic[: len(counts)]
    return mesh.box(counts, periodic=flags, cell=cell, **words)


@pytest.mark.parametrize(("cell", "periodic", "cut"), [
    *((*pair, "diagonal") for pair in product(COUNTS, PERIODIC)),
    ("tri", PERIODIC[1], "middle"), ("tet", PERIODIC[2], "middle"), ("tet", PERIODIC[3], "middle"),
])
def test_a_box_is_filled_and_closed(cell, periodic, cut):
    counts, flags = COUNTS[cell], periodic[: len(COUNTS[cell])]
    lengths, origin = (2.0, 3.0, 0.5)[: len(counts)], (-1.0, 0.0, 7.0)[: len(counts)]
    made = box(cell, periodic=periodic, lengths=lengths, origin=origin, cut=cut)
    el = element(cell, 1)
    assert len(made.cells) == CELLS_OF_A_BLOCK[cut][cell] * np.prod(counts)
    whole = geometry(mesh.oriented(made), el)
    assert whole.affine
    np.testing.assert_allclose(whole.mass.sum(), np.prod(lengths), rtol=1e-14)
    connectivity = connect(mesh.oriented(made), el)
    assert connectivity.names == tuple(f"{'xyz'[a]}{end}" for a, flag in enumerate(flags) if not flag for end in "-+")
    for number, name in enumerate(connectivity.names):
        axis, end = "xyz".index(name[0]), "-+".index(name[1])
        on = connectivity.boundary == number
        area = np.prod([length for a, length in enumerate(lengths) if a != axis])
        np.testing.assert_allclose(whole.areas[on].sum(), area, rtol=1e-14)
        expected = np.broadcast_to((2 * end - 1) * np.eye(len(counts))[axis], whole.normals[on].shape)
        np.testing.assert_allclose(whole.normals[on], expected, atol=1e-14)
        corners = whole.nodes[np.nonzero(on)[0][:, None], el.face_nodes[np.nonzero(on)[1]]]
        np.testing.assert_allclose(corners[..., axis], origin[axis] + end * lengths[axis], atol=1e-14)


@pytest.mark.parametrize("cell", COUNTS)
@pytest.mark.parametrize("thin", [(1, 1, 1), (1, 3, 2), (2, 1, 2), (2, 2, 2)])
def test_nodes_meet_across_faces_however_thin_the_box(cell, thin):
    """Independent of how neighbours were found: coordinates agree, but for a period of the box."""
    made = box(cell, counts=thin[: len(COUNTS[cell])])
    (domain,) = domains(made, element(cell, 3), 1)
    places = domain.nodes.reshape(-1, domain.element.dim)
    apart = domain.face_nodes - places[domain.outside]
    np.testing.assert_allclose(apart, np.rint(apart), atol=1e-13)
    # A face's neighbour lies one period away exactly where the face lies on the box's side
    on_side = np.abs(domain.face_nodes - np.rint(domain.face_nodes)) < 1e-12
    crossing = np.repeat(on_side.reshape(*domain.is_ghost.shape, -1, domain.element.dim).all(axis=2),
                         domain.element.face_nodes.shape[1], axis=1)
    np.testing.assert_array_equal(np.rint(np.abs(apart)).astype(int), crossing.astype(int))
    # Neighbours are mutual, node by node
    inner = np.arange(len(domain.nodes))[:, None] * len(domain.element.nodes) + domain.element.face_nodes.ravel()
    assert Counter(zip(inner.ravel(), domain.outside.ravel(), strict=True)) == Counter(
        zip(domain.outside.ravel(), inner.ravel(), strict=True))


@pytest.mark.parametrize(("cell", "turns"), [("tri", 2), ("quad", 2), ("tet", 6), ("hex", 8)])
def test_every_orientation_of_faces_is_matched(cell, turns):
    made = scrambled(box(cell, counts=(4, 4, 4)[: len(COUNTS[cell])], periodic=(True, False, False)))
    el = element(cell, 3)
    found = connect(mesh.oriented(made), el)
    whole = geometry(mesh.oriented(made), el)
    inside = found.neighbour >= 0
    theirs = whole.nodes[found.neighbour[inside][:, None], el.face_nodes.ravel()[found.places[inside]]]
    apart = whole.nodes[:, el.face_nodes][inside] - theirs
    np.testing.assert_allclose(apart, np.rint(apart), atol=1e-13)
    assert len(np.unique(found.places[inside] % el.face_nodes.shape[1], axis=0)) == turns
    assert (whole.jacobian > 0).all()


@pytest.mark.parametrize("cell", COUNTS)
def test_the_order_of_vertices_changes_nothing_but_numbers(cell):
    el, made = element(cell, 2), box(cell, periodic=(True, False, False))
    plain, turned = (domains(m, el, 1)[0] for m in (made, scrambled(made)))
    for table in ("mass", "height", "h_face", "scale"):
        np.testing.assert_allclose(*(np.sort(getattr(d, table), axis=None) for d in (plain, turned)), rtol=1e-12)
    # A face's side depends on where it is
    for domain in (plain, turned):
        assert set(np.unique(domain.side)) == {-1.0, 1.0}
        across = domain.side.ravel()[_across(domain)]
        assert (across == -domain.side)[domain.boundary < 0].all()
        assert (domain.side[domain.boundary >= 0] == 1).all()
    assert plain.boundaries == turned.boundaries
    for number in range(len(plain.boundaries)):
        areas = [domain.scale[domain.boundary == number] for domain in (plain, turned)]
        np.testing.assert_allclose(*(np.sort(area) for area in areas), rtol=1e-12)


@pytest.mark.parametrize("cell", COUNTS)
def test_no_cell_of_a_periodic_box_has_all_its_faces_on_one_side(cell):
    (domain,) = domains(scrambled(box(cell)), element(cell, 1), 1)
    assert (np.abs(domain.side.sum(axis=1)) < domain.side.shape[1]).all()


def _across(domain):
    """(E, F) flat number of the face across each face of a domain without peers; the own one on boundaries."""
    size = domain.element.face_nodes.shape[1]
    faces = len(domain.element.face_nodes)
    inner = np.arange(len(domain.nodes))[:, None] * len(domain.element.nodes) + domain.element.face_nodes.ravel()
    owners = {}
    for number, key in enumerate(map(tuple, np.sort(inner.reshape(-1, size), axis=1).tolist())):
        owners[key] = number
    keys = map(tuple, np.sort(domain.outside.reshape(-1, size), axis=1).tolist())
    return np.array([owners[key] for key in keys]).reshape(-1, faces)


@pytest.mark.parametrize(("cell", "order"), [("quad", 2), ("quad", 5), ("hex", 2), ("hex", 3)])
def test_curved_cells_are_closed_and_keep_a_uniform_state(cell, order):
    made, el = scrambled(box(cell, warp=warp)), element(cell, order)
    whole = geometry(mesh.oriented(made), el)
    assert not whole.affine
    size = el.face_nodes.shape[1]
    at_faces = whole.normals * (whole.scale * whole.jacobian[:, el.face_nodes.ravel()])[..., None]
    weights = np.tile(el.face_weights, len(el.face_nodes))
    assert np.abs(np.einsum("ekd,k->ed", at_faces, weights)).max() < 1e-13
    assert np.abs(sum(np.einsum("ij,ejd->eid", el.derivative[r], whole.metric[:, :, r])
                      for r in range(el.dim))).max() < 1e-13
    # Both sides of a face have the same area elements and opposite normals
    found = connect(mesh.oriented(made), el)
    theirs = at_faces[np.repeat(found.neighbour, size, axis=1), found.places.reshape(len(made.cells), -1)]
    np.testing.assert_allclose(at_faces, -theirs, atol=1e-14)
    # The exact volume is the box's; the mapping is a polynomial
    np.testing.assert_allclose(whole.mass.sum(), 1, atol=10.0 ** -(order + 1))
    np.testing.assert_allclose(np.linalg.norm(whole.normals, axis=2), 1, atol=1e-14)


@pytest.mark.parametrize("cell", ["quad", "hex"])
def test_both_ways_to_a_straight_geometry_agree(cell):
    made, el = box(cell, lengths=3.0), element(cell, 3)
    straight, curved = (geometry(mesh.oriented(m), el) for m in (made, replace(made, warp=lambda x: x)))
    assert straight.affine and not curved.affine
    size = el.face_nodes.shape[1]
    for name in ("nodes", "mass", "areas", "heights", "mean_normals"):
        np.testing.assert_allclose(getattr(straight, name), getattr(curved, name), rtol=1e-12, atol=1e-14)
    np.testing.assert_allclose(straight.metric[:, None] * curved.jacobian[..., None, None], curved.metric, atol=1e-13)
    np.testing.assert_allclose(np.repeat(straight.scale, size, axis=1), curved.scale, rtol=1e-12)
    np.testing.assert_allclose(np.repeat(straight.normals, size, axis=1), curved.normals, atol=1e-13)


@pytest.mark.parametrize("ranks", [2, 4, 8])
@pytest.mark.parametrize(("cell", "warped"), [("tri", False), ("quad", True), ("tet", False), ("hex", False)])
def test_ranks_hold_the_tables_of_one(cell, warped, ranks):
    """Local and received neighbours together are the neighbours of the whole mesh; all else is a share of it."""
    made = scrambled(box(cell, counts=(4, 5, 2)[: len(COUNTS[cell])], periodic=(True, False, True),
                         warp=warp if warped else None))
    el = element(cell, 2)
    (one,) = domains(made, el, 1)
    parts = domains(made, el, ranks)
    place = np.empty(len(one.elements), int)
    place[one.elements] = np.arange(len(one.elements))
    values = np.random.default_rng(0).random(one.nodes.shape[:2])
    expected = values.ravel()[one.outside]
    for part in parts:
        rows = place[part.elements]
        for table in TABLES:
            np.testing.assert_array_equal(getattr(part, table), getattr(one, table)[rows])
        sent = [next(p for p in parts[peer.rank].peers if p.rank == part.rank) for peer in part.peers]
        theirs = [values[place[parts[peer.rank].elements]] for peer in part.peers]
        ghost = np.concatenate([v.ravel()[s.sends] for v, s in zip(theirs, sent, strict=True)])
        as_faces = np.concatenate([v[:, el.face_nodes.ravel()].ravel()[s.face_sends]
                                   for v, s in zip(theirs, sent, strict=True)])
        np.testing.assert_array_equal(ghost, as_faces)
        assert [p.receives for p in part.peers] == [len(s.sends) for s in sent]
        away = np.repeat(part.is_ghost, el.face_nodes.shape[1], axis=1)
        found = np.where(away, ghost[part.ghost], values[rows].ravel()[part.outside])
        np.testing.assert_array_equal(found, expected[rows])
        # Elements that touch other ranks come last
        touching = part.is_ghost.any(axis=1)
        assert (np.sort(touching) == touching).all()
    assert sorted(np.concatenate([part.elements for part in parts]).tolist()) == list(range(len(one.elements)))
    sizes = [len(part.elements) for part in parts]
    assert max(sizes) <= 1.1 * np.mean(sizes) + 1


def test_neighbours_in_the_order_are_neighbours_in_space():
    (domain,) = domains(scrambled(box("hex", counts=(8, 8, 8))), element("hex", 1), 1)
    middles = domain.nodes.mean(axis=1)
    steps = np.linalg.norm(np.diff(middles, axis=0), axis=1)
    assert np.mean(steps) < 2 / 8


def test_tables_are_the_same_in_every_process(tmp_path):
    program = """
import hashlib, sys
from aotato.frontend.apps._dg import domain, elements, mesh
made = mesh.box((3, 4, 3), periodic=(True, False, True), cell=sys.argv[1])
digest = hashlib.sha256()
for part in domain.domains(made, elements.element(sys.argv[1], 2), 3):
    for name, value in vars(part).items():
        if hasattr(value, "tobytes"):
            digest.update(name.encode() + value.tobytes())
    for peer in part.peers:
        digest.update(bytes([peer.rank]) + peer.sends.tobytes() + peer.face_sends.tobytes())
print(digest.hexdigest())
"""
    found = {subprocess.run([sys.executable, "-c", program, "tet"], env={"PYTHONHASHSEED": seed}, cwd=folder, text=True,
                            capture_output=True, check=True).stdout for seed, folder in (("1", tmp_path), ("2", ROOT))}
    assert len(found) == 1 and len(found.pop()) == 65


def test_a_boundary_may_be_joined_with_its_image():
    walled, joined = box("tri", periodic=False), box("tri", periodic=(False, True))
    found = mesh.join(walled, "y-", "y+")
    assert found.periodic == joined.periodic
    with pytest.raises(AppError, match="there is no boundary 'top' to join; boundaries are x-, x\\+, y-, y\\+"):
        mesh.join(walled, "top", "y+")


def two_triangles(**changed):
    words = {"cell": "tri", "vertices": np.array([(0, 0), (1, 0), (1, 1), (0, 1.0)]),
             "cells": np.array([(0, 1, 2), (0, 2, 3)]),
             "boundaries": {"wall": np.array([(0, 1), (1, 2), (2, 3), (3, 0)])}}
    return mesh.Mesh(**{**words, **changed})


def hanging():
    """The lower side of the upper cell has a vertex of two lower cells in its middle."""
    made = two_triangles()
    vertices = np.vstack([made.vertices, [(0.5, 0.5)]])
    return replace(made, vertices=vertices, cells=np.array([(0, 1, 4), (1, 2, 4), (0, 2, 3)]))


REFUSED = {
    "unnamed": (two_triangles(boundaries={"wall": np.array([(0, 1), (1, 2), (2, 3)])}),
                r"1 faces have a cell on one side alone and no boundary's name, the first with corners .*\(0, 1\)"),
    "hanging": (hanging(), r"3 faces have a cell on one side alone .* no vertex of one cell lies on the edge of ano"),
    "two names": (two_triangles(boundaries={"a": np.array([(0, 1), (1, 2), (2, 3)]), "b": np.array([(3, 0), (1, 0)])}),
                  r"boundaries 'a' and 'b' both have the face with corners \(1, 0\), \(0, 0\)"),
    "inside": (two_triangles(boundaries={"wall": np.array([(0, 2)])}),
               r"boundary 'wall' has the face with corners \(0, 0\), \(1, 1\), which lies between two cells"),
    "nowhere": (two_triangles(boundaries={"wall": np.array([(1, 3)])}),
                r"boundary 'wall' has the face with corners \(1, 0\), \(0, 1\), which is no cell's"),
    "shared": (two_triangles(cells=np.array([(0, 1, 2), (0, 2, 3), (0, 2, 3)])),
               r"3 cells share the face with corners \(\d, \d\), \(\d, \d\); a face has one cell or two"),
    "degenerate": (two_triangles(cells=np.array([(0, 1, 2), (0, 2, 2)])),
                   "cell 1 of the mesh has a corner twice: vertices 0, 2, 2"),
    "flat": (two_triangles(vertices=np.array([(0, 0), (1, 0), (2, 0), (0, 1.0)])),
             r"1 cells have no volume or are folded, the first, cell 0, around \(1, 0\)"),
    "crossed": (mesh.Mesh("quad", np.array([(0, 0), (1, 0), (1, 1), (0, 1.0)]), np.array([(0, 1, 2, 3)]),
                          {"wall": np.array([(0, 1), (1, 3), (3, 2), (2, 0)])}),
                "1 cells have no volume or are folded"),
    "not alike": (replace(box("tri", periodic=False), periodic=(mesh.Periodic("x-", "y+", (1.0, 0.0)),)),
                  "periodic boundaries 'x-' and 'y\\+' have 3 and 4 faces"),
    "too far": (replace(box("quad", periodic=False), periodic=(mesh.Periodic("x-", "x+", (1.1, 0.0)),)),
                r"no vertex of the first, moved by \(1.1, 0\), lies at vertex \(1, 0\) of the second"),
    "unknown": (replace(box("tri", periodic=False), periodic=(mesh.Periodic("x-", "left", (1.0, 0.0)),)),
                "periodic boundary 'left' is not among the mesh's: x-, x\\+, y-, y\\+"),
    "torn": (box("quad", warp=lambda x: x + 0.1 * x**2),
             r"14 faces do not meet their neighbour's, for example at \(\S+, \S+\) and \("),
    "curved simplex": (box("tri", warp=warp), "only quads and hexes can be curved, not cells of kind 'tri'"),
    "shape": (box("quad", warp=lambda x: x[..., 0]), "expected a warp to return points of the shape it gets"),
    "folded": (box("quad", warp=lambda x: x + 0.2 * np.sin(2 * np.pi * 3 * x)), "cells have no volume or are folded"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_mesh_is_refused_with_a_place(name):
    made, message = REFUSED[name]
    with pytest.raises(AppError, match=message):
        domains(made, element(made.cell, 2), 1)


@pytest.mark.parametrize(("act", "message"), [
    (lambda: mesh.box((4, 4), cell="hex"), r"found 2 counts \(4, 4\) and cells 'hex'; cells are tri \(dim 2\)"),
    (lambda: mesh.box((4, 4, 4, 4)), "found 4 counts"),
    (lambda: mesh.box((4, 0)), "expected positive counts of a box, but found 4, 0"),
    (lambda: mesh.box((4, 4), lengths=(1, -1)), "expected positive lengths of a box, but found 1, -1"),
    (lambda: mesh.box((4, 4), lengths=(1, 1, 1)), "expected lengths for 2 axes, but found 3: 1, 1, 1"),
    (lambda: mesh.box((4, 4), cut="centre"), "a cut along the diagonal or around the middle, but found 'centre'"),
    (lambda: mesh.box((4, 4), periodic=(True,)), "expected periodic flags for 2 axes, but found 1"),
    (lambda: element("wedge", 2), "cells are one of tri, quad, tet, hex, not 'wedge'"),
    (lambda: element("tri", 8), "order must be from 1 to 7, not 8"),
    (lambda: domains(box("tri"), element("quad", 2), 1), "expected a mesh of 'quad' cells, but found 'tri'"),
    (lambda: domains(box("quad"), element("quad", 2), 13), "the mesh has 12 cells, too few for 13 ranks"),
])
def test_wrong_wishes_are_refused(act, message):
    with pytest.raises(AppError, match=message):
        act()
