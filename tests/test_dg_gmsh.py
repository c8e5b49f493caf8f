"""Meshes that Gmsh itself wrote, in all its formats."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from aotato.frontend import AppError
from aotato.frontend.apps._dg import gmsh, mesh
from aotato.frontend.apps._dg.connectivity import connect
from aotato.frontend.apps._dg.domain import domains
from aotato.frontend.apps._dg.elements import element
from aotato.frontend.apps._dg.geometry import geometry

try:
    import gmsh as real_gmsh
except (ImportError, OSError) as missing:  # its wheel needs the machine's OpenGL and X libraries
    pytest.skip(f"gmsh cannot be loaded: {missing}", allow_module_level=True)

FORMATS = list(product((2.2, 4.1), (False, True)))  # version, binary


def write(path: Path, draw: Callable[[], None], version: float = 4.1, binary: bool = False, **options: float) -> Path:
    """What `draw` makes, meshed; options are Gmsh's of `Mesh`."""
    real_gmsh.initialize(["-nopopup"], readConfigFiles=False, interruptible=False)
    try:
        real_gmsh.option.setNumber("General.Terminal", 0)
        for name, value in ({"MshFileVersion": version, "Binary": binary} | options).items():
            real_gmsh.option.setNumber(f"Mesh.{name}", value)
        draw()
        real_gmsh.model.mesh.generate(real_gmsh.model.getDimension())
        real_gmsh.write(str(path))
    finally:
        real_gmsh.finalize()
    return path


def name_sides(dim: int, **groups: Callable[[float, float, float, float], bool]) -> None:
    """Put curves or surfaces into physical groups, by their bounding box, and the domain into "fluid"."""
    entities = real_gmsh.model.getEntities(dim)
    sides = real_gmsh.model.getBoundary(entities, oriented=False)
    for name, holds in groups.items():
        boxes = [(tag, real_gmsh.model.getBoundingBox(dim - 1, tag)) for _, tag in sides]
        own = [tag for tag, (x0, y0, _, x1, y1, _) in boxes if holds(x0, y0, x1, y1)]
        real_gmsh.model.addPhysicalGroup(dim - 1, own, name=name)
    real_gmsh.model.addPhysicalGroup(dim, [tag for _, tag in entities], name="fluid")


def channel() -> None:
    """A 2 x 1 rectangle with a hole."""
    shapes = real_gmsh.model.occ
    rectangle, disk = shapes.addRectangle(0, 0, 0, 2, 1), shapes.addDisk(0.5, 0.5, 0, 0.2, 0.2)
    shapes.cut([(2, rectangle)], [(2, disk)])
    shapes.synchronize()
    name_sides(2, inflow=lambda x0, y0, x1, y1: x1 < 0.1, outflow=lambda x0, y0, x1, y1: x0 > 1.9,
               cylinder=lambda x0, y0, x1, y1: x0 > 0.2 and x1 < 0.8,
               sides=lambda x0, y0, x1, y1: x1 - x0 > 1.9)


def blocks() -> None:
    """Two unit cubes side by side, so that format 4.1 has a block of cells for each."""
    shapes = real_gmsh.model.occ
    shapes.fragment([(3, shapes.addBox(0, 0, 0, 1, 1, 1))], [(3, shapes.addBox(1, 0, 0, 1, 1, 1))])
    shapes.synchronize()
    outer = real_gmsh.model.getBoundary(real_gmsh.model.getEntities(3), combined=True, oriented=False)
    real_gmsh.model.addPhysicalGroup(2, [tag for _, tag in outer], 17)  # without a name
    for name, (_, tag) in zip(("left", "right"), real_gmsh.model.getEntities(3), strict=True):
        real_gmsh.model.addPhysicalGroup(3, [tag], name=name)


def bricks() -> None:
    """A 2 x 1 x 1 box swept into hexes."""
    shapes = real_gmsh.model.occ
    shapes.extrude([(2, shapes.addRectangle(0, 0, 0, 2, 1))], 0, 0, 1, numElements=[2], recombine=True)
    shapes.synchronize()
    name_sides(3, ends=lambda x0, y0, x1, y1: x1 - x0 < 0.1, walls=lambda x0, y0, x1, y1: x1 - x0 > 1)
    real_gmsh.model.mesh.setTransfiniteAutomatic()


def square(z: str = "flat") -> Callable[[], None]:
    def draw() -> None:
        shapes = real_gmsh.model.occ
        rectangle = shapes.addRectangle(0, 0, 3, 1, 1)
        if z != "flat":
            shapes.rotate([(2, rectangle)], 0, 0, 3, 1, 0, 0, 0.5)
        shapes.synchronize()
        name_sides(2, wall=lambda *_: True)

    return draw


SHAPES = {  # cell -> what is drawn, options, volume, areas of boundaries
    "tri": (channel, {}, 2 - np.pi * 0.04, {"inflow": 1, "outflow": 1, "sides": 4, "cylinder": 0.4 * np.pi}),
    "quad": (channel, {"RecombineAll": 1, "RecombinationAlgorithm": 2, "RecombineMinimumQuality": 0.01},
             2 - np.pi * 0.04, {"inflow": 1, "outflow": 1, "sides": 4, "cylinder": 0.4 * np.pi}),
    "tet": (blocks, {}, 2, {"17": 10}),
    "hex": (bricks, {"RecombineAll": 1}, 2, {"ends": 2, "walls": 8}),
}


@pytest.mark.parametrize("cell", SHAPES)
def test_all_formats_hold_the_same_mesh(cell, tmp_path):
    draw, options, volume, areas = SHAPES[cell]
    found = []
    for version, binary in FORMATS:
        path = write(tmp_path / f"{version}{binary}.msh", draw, version, binary, MeshSizeMax=0.4, **options)
        read = gmsh.read(path)
        assert read.cell == cell
        whole = geometry(mesh.oriented(read), element(cell, 2))
        connectivity = connect(mesh.oriented(read), element(cell, 2))
        # The cylinder is a polygon
        np.testing.assert_allclose(whole.mass.sum(), volume, rtol=2e-2 if draw is channel else 1e-12)
        assert sorted(connectivity.names) == sorted(areas)
        for number, name in enumerate(connectivity.names):
            area = whole.areas[connectivity.boundary == number].sum()
            np.testing.assert_allclose(area, areas[name], rtol=5e-2 if name == "cylinder" else 1e-12)
        by_name = {name: sorted(map(sorted, read.vertices[faces].round(9).tolist()))
                   for name, faces in read.boundaries.items()}
        found.append((sorted(map(sorted, read.vertices[read.cells].round(9).tolist())), by_name))
    assert all(other == found[0] for other in found)


def test_walls_of_a_file_can_be_joined(tmp_path):
    read = gmsh.read(write(tmp_path / "brick.msh", _periodic_square, MeshSizeMax=0.3))
    joined = mesh.join(read, "bottom", "top")
    (domain,) = domains(joined, element("tri", 2), 1)
    assert domain.boundaries == ("ends",)
    assert (domain.boundary >= 0).sum() == len(read.boundaries["ends"])


def _periodic_square() -> None:
    shapes = real_gmsh.model.occ
    shapes.addRectangle(0, 0, 0, 1, 1)
    shapes.synchronize()
    name_sides(2, bottom=lambda x0, y0, x1, y1: y1 < 0.1, top=lambda x0, y0, x1, y1: y0 > 0.9,
               ends=lambda x0, y0, x1, y1: x1 - x0 < 0.1)
    bottom, top = (real_gmsh.model.getEntitiesForPhysicalName(name)[0][1] for name in ("bottom", "top"))
    real_gmsh.model.mesh.setPeriodic(1, [top], [bottom], [1, 0, 0, 0, 0, 1, 0, 1, 0, 0, 1, 0, 0, 0, 0, 1])


def test_a_plane_may_lie_at_any_height(tmp_path):
    read = gmsh.read(write(tmp_path / "square.msh", square(), MeshSizeMax=0.5))
    assert read.vertices.shape[1] == 2


def _mixed() -> None:
    """A square of triangles beside one of quads."""
    shapes = real_gmsh.model.occ
    shapes.fragment([(2, shapes.addRectangle(0, 0, 0, 1, 1))], [(2, shapes.addRectangle(1, 0, 0, 1, 1))])
    shapes.synchronize()
    name_sides(2)
    real_gmsh.model.mesh.setTransfiniteSurface(1)
    real_gmsh.model.mesh.setRecombine(2, 1)


def _boundaries_only() -> None:
    square()()
    real_gmsh.model.removePhysicalGroups([(2, tag) for _, tag in real_gmsh.model.getPhysicalGroups(2)])


def _twice_named() -> None:
    square()()
    real_gmsh.model.addPhysicalGroup(1, [1], name="again")


def _unnamed() -> None:
    square()()
    real_gmsh.model.removePhysicalGroups(real_gmsh.model.getPhysicalGroups(1))


REFUSED = {
    "higher order": (square(), {"ElementOrder": 2}, "has cells of higher order, .* 'triangle6': save it with Mesh"),
    "mixed": (_mixed, {}, r"expected cells of one kind, .*, but found \d+ of kind 'quad' and \d+ of kind 'triangle'"),
    "surface": (square("turned"), {}, r"is a surface in space: z goes from 3 to 3\.4794"),
    "no cells": (_boundaries_only, {}, r"has no cells, only \d+ of kind 'line': put the domain itself into a physical"),
    "partly": (_boundaries_only, {"SaveAll": 1}, "has elements outside its physical groups .* without Mesh.SaveAll"),
    "two names": (_twice_named, {}, "boundaries 'wall' and 'again' both have the face"),
    "no names": (_unnamed, {}, r"\d+ faces have a cell on one side alone and no boundary's name"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_used_is_refused(name, tmp_path):
    draw, options, message = REFUSED[name]
    path = write(tmp_path / "mesh.msh", draw, MeshSizeMax=0.5, **options)
    with pytest.raises(AppError, match=message):
        read = gmsh.read(path)
        domains(read, element(read.cell, 1), 1)


def test_a_file_that_is_none_is_refused(tmp_path):
    with pytest.raises(AppError, match=r"there is no mesh file '.*wing.msh'"):
        gmsh.read(tmp_path / "wing.msh")
    (tmp_path / "text.msh").write_text("a wing\n")
    with pytest.raises(AppError, match=r"text.msh cannot be read as a Gmsh file of format 2.2 or 4.1: ReadError"):
        gmsh.read(tmp_path / "text.msh")
    whole = write(tmp_path / "whole.msh", square(), binary=True).read_bytes()
    (tmp_path / "cut.msh").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(AppError, match=r"cut.msh cannot be read as a Gmsh file"):
        gmsh.read(tmp_path / "cut.msh")
