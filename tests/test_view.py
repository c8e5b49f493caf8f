"""Views: what an app may say, what the bundle keeps, and the VTKHDF files that real runs write."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import textwrap
from types import ModuleType

import h5py
import numpy as np
import pytato as pt
import pytest

import aotato
import box_app
from aotato.frontend import AppError, Field, View, vtk_node_order, vtk_nodes
from aotato.frontend.lattice import DIMENSIONS, node_count
from aotato.runtime_stub import vtkhdf
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.view_data import Column
from aotato.runtime_stub.view_data import Field as Placed
from mpi import mpiexec

RUN = ("-m", "aotato.runtime_stub.run")
KINDS = [("triangle", 1), ("hex", 1), *((cell, 3) for cell in DIMENSIONS)]


def drawn(folder, ranks, *args, **options):
    """The file of a real run of the box."""
    aotato.build(box_app, ranks=ranks, options=options, path=folder / "box.h5", targets="cpu")
    done = mpiexec(ranks, [*RUN, folder / "box.h5", "--quiet", "--vtk", folder / "box.vtkhdf", *args])
    assert (done.returncode, done.stderr) == (0, "")
    assert not list(folder.glob("*.part"))
    return folder / "box.vtkhdf"


def test_the_file_has_the_structure_that_the_format_asks_for(tmp_path):
    with h5py.File(drawn(tmp_path, 2, cell="quad", order=2)) as file:
        root = file["VTKHDF"]
        assert root.attrs["Type"] == b"UnstructuredGrid" and list(root.attrs["Version"]) == [2, 0]
        kind = root.attrs.get_id("Type").get_type()
        assert not kind.is_variable_str() and kind.get_cset() == h5py.h5t.CSET_ASCII
        assert list(root["NumberOfPoints"]) == [36, 36] and list(root["NumberOfCells"]) == [4, 4]
        assert list(root["NumberOfConnectivityIds"]) == [36, 36]
        assert root["Types"].dtype == np.uint8 and set(root["Types"]) == {70} and len(root["Types"]) == 8
        assert list(root["Offsets"]) == [0, 9, 18, 27, 36] * 2
        assert root["Points"].shape == (72, 3) and not root["Points"][:, 2].any()
        assert root["Connectivity"].dtype == np.int64 and sorted(root["Connectivity"]) == sorted([*range(36)] * 2)
        assert root["PointData/momentum"].shape == (72, 3) and root["PointData/density"].shape == (72,)
        assert root["CellData/mean"].shape == (8,)
        assert set(root["PointData"]) == {"density", "momentum"} and set(root["CellData"]) == {"mean"}
        assert file.attrs["ranks"] == 2


@pytest.mark.parametrize("ranks", [1, 2])
def test_values_lie_at_their_points(tmp_path, ranks):
    with h5py.File(drawn(tmp_path, ranks, "--set", "scale=2", cell="tet", order=2)) as file:
        root = file["VTKHDF"]
        x = root["Points"][()]
        assert x.max(axis=0).tolist() == [ranks, 1, 1] and x.min(axis=0).tolist() == [0, 0, 0]
        np.testing.assert_allclose(root["PointData/density"][()], 2 * x @ [1, 2, 3], atol=1e-14)
        np.testing.assert_allclose(root["PointData/momentum"][()], 2 * x * [1, 2, 3], atol=1e-14)
        first = np.repeat(np.arange(ranks) * len(x) // ranks, root["NumberOfConnectivityIds"][()])
        cells = x[root["Connectivity"][()] + first].reshape(-1, 10, 3)
        np.testing.assert_allclose(root["CellData/mean"][()], 2 * cells.mean(axis=(1, 2)), atol=1e-14)
        edges = cells[:, 1:4] - cells[:, :1]
        assert np.linalg.det(edges).sum() / 6 == pytest.approx(ranks) and (np.linalg.det(edges) > 0).all()
        np.testing.assert_allclose(cells[:, 4], (cells[:, 0] + cells[:, 1]) / 2)


@pytest.mark.parametrize("cell, order", KINDS)
def test_vtk_reads_it(tmp_path, cell, order):
    vtk = pytest.importorskip("vtk", reason="the vtk wheel is not installed: `pip install vtk` (110 MB)")
    from vtk.util.numpy_support import vtk_to_numpy

    grid = _read(vtk, drawn(tmp_path, 2, cell=cell, order=order))
    x = vtk_to_numpy(grid.GetPoints().GetData())
    dim = DIMENSIONS[cell]
    assert {grid.GetCellType(i) for i in range(grid.GetNumberOfCells())} == {vtkhdf.CELL_TYPES[cell][order > 1]}
    density = vtk_to_numpy(grid.GetPointData().GetArray("density"))
    np.testing.assert_allclose(density, x @ [1, 2, 3], atol=1e-14)
    assert grid.GetCellData().GetArray("mean").GetNumberOfTuples() == grid.GetNumberOfCells()
    # Each cell maps reference nodes to its points: with a wrong order of nodes it would fold, or have another size
    assert _volume(vtk, grid) == pytest.approx(2.0)
    assert dim == 1 or grid.GetPointData().GetArray("momentum").GetNumberOfComponents() == 3


def _read(vtk, path):
    """All partitions as one grid."""
    reader = vtk.vtkHDFReader()
    assert reader.CanReadFile(str(path))
    reader.SetFileName(str(path))
    reader.Update()
    found = reader.GetOutputDataObject(0)
    if not found.IsA("vtkPartitionedDataSet"):
        return found
    together = vtk.vtkAppendFilter()
    for part in range(found.GetNumberOfPartitions()):
        together.AddInputData(found.GetPartition(part))
    together.Update()
    return together.GetOutput()


def _volume(vtk, grid):
    """Integral of the Jacobian of VTK's own maps, by differences, on a Gauss grid of the reference cell."""
    nodes, weights = np.polynomial.legendre.leggauss(4)
    nodes, weights = (nodes + 1) / 2, weights / 2
    total = 0.0
    for number in range(grid.GetNumberOfCells()):
        cell = grid.GetCell(number)
        dim = cell.GetCellDimension()
        simplex = cell.GetNumberOfFaces() == 4 or (dim == 2 and cell.GetNumberOfEdges() == 3)
        for index in itertools.product(range(4), repeat=dim):
            at, weight = nodes[list(index)], weights[list(index)].prod()
            if simplex:  # Duffy: the cube folded onto the simplex
                rest = np.cumprod([1.0, *(1 - at[:-1])])
                at, weight = at * rest, weight * rest.prod()
            sides = np.array([[_location(vtk, cell, at + h * axis) for axis in np.eye(dim)] for h in (-1e-3, 1e-3)])
            jacobian = np.linalg.det((sides[1] - sides[0])[:, :dim] / 2e-3)
            assert jacobian > 0
            total += weight * jacobian
    return total


def _location(vtk, cell, at):
    x = [0.0] * 3
    cell.EvaluateLocation(vtk.reference(0), [*at, *[0.0] * (3 - len(at))], x, [0.0] * cell.GetNumberOfPoints())
    return x


@pytest.mark.parametrize("order", range(1, 8))
def test_node_orders_are_vtks(order):
    vtk = pytest.importorskip("vtk", reason="the vtk wheel is not installed: `pip install vtk` (110 MB)")

    def barycentric(cls, index, count):
        weights = [0] * count
        cls.BarycentricIndex(index, weights, order)
        return tuple(weights[:-1])

    for cell, cls in (("triangle", vtk.vtkHigherOrderTriangle), ("tet", vtk.vtkHigherOrderTetra)):
        count = node_count(cell, order)
        assert vtk_nodes(cell, order) == [barycentric(cls, i, DIMENSIONS[cell] + 1) for i in range(count)]
    for cell, cls in (("quad", vtk.vtkHigherOrderQuadrilateral), ("hex", vtk.vtkHigherOrderHexahedron)):
        for i, node in enumerate(vtk_nodes(cell, order)):
            assert cls.PointIndexFromIJK(*node, [order] * len(node) + [(order + 1) ** len(node)]) == i


@pytest.mark.parametrize("cell, order", [(cell, order) for cell in DIMENSIONS for order in range(1, 8)])
def test_node_orders_name_every_node_once(cell, order):
    nodes = vtk_nodes(cell, order)
    assert len(set(nodes)) == len(nodes) == node_count(cell, order)
    given = sorted(nodes, reverse=True)
    assert [given[i] for i in vtk_node_order(cell, given)] == nodes
    with pytest.raises(ValueError, match=f"nodes of a {cell} of order"):
        vtk_node_order(cell, given[:-1])


def test_quadratic_cells_as_vtk_draws_them():
    assert vtk_nodes("triangle", 2) == [(0, 0), (2, 0), (0, 2), (1, 0), (1, 1), (0, 1)]
    assert vtk_nodes("quad", 2) == [(0, 0), (2, 0), (2, 2), (0, 2), (1, 0), (2, 1), (1, 2), (0, 1), (1, 1)]


def test_a_long_field_is_gathered_in_pieces(tmp_path):
    aotato.build(box_app, ranks=3, options={"cell": "quad", "n": 4}, path=tmp_path / "box.h5", targets="cpu")
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import sys
        import numpy as np
        from aotato.runtime_stub import output, vtkhdf
        from aotato.runtime_stub.format import Bundle
        from aotato.runtime_stub.world import World
        output.PIECE_BYTES = 100
        output.boxes.__defaults__ = (100,)
        w = World.find(3)
        q = np.arange(3 * 144.0).reshape(3, 16, 9) + 1000 * w.rank
        with Bundle.open(sys.argv[1]) as bundle:
            vtkhdf.write(sys.argv[2], w, bundle, {"q": q}, output.About("d", 3, 0.5))
        """))
    done = mpiexec(3, [script, tmp_path / "box.h5", tmp_path / "out.vtkhdf"])
    assert (done.returncode, done.stderr) == (0, "")
    with h5py.File(tmp_path / "out.vtkhdf") as file, Bundle.open(tmp_path / "box.h5") as bundle:
        root = file["VTKHDF"]
        expected = np.concatenate([np.arange(144.0) + 1000 * rank for rank in range(3)])
        np.testing.assert_array_equal(root["PointData/density"][()], expected)
        np.testing.assert_array_equal(root["PointData/momentum"][:, 1], expected + 288)
        assert (file.attrs["step"], file.attrs["time"]) == (3, 0.5) and "CellData" not in root
        meshes = [(bundle.array(m.points), bundle.array(m.cells)) for m in bundle.views.ranks]
        np.testing.assert_array_equal(root["Points"][:, :2], np.concatenate([points for points, _ in meshes]))
        np.testing.assert_array_equal(root["Connectivity"][()], np.concatenate([c.ravel() for _, c in meshes]))


def test_a_loop_draws_a_series(tmp_path):
    def step(rank, size, opt, data):
        u = aotato.array_input("u", (4,), "float64", unit="", doc="", default=np.zeros(4))
        return {"u_new": u + rank + 1}

    def doubled(rank, size, opt, data):
        u = aotato.array_input("u", (4,), "float64", unit="", doc="", default=np.zeros(4))
        return {"twice": 2 * u}

    app = ModuleType("counter")
    app.ENTRIES, app.view = (step, doubled), lambda rank, size, opt, data: square(fields=["u_new", "twice"])
    app.plan = lambda opt: aotato.Plan((aotato.Call("step"),), carry={"u_new": "u"}, draw=(aotato.Call("doubled"),),
                                       scalars=(aotato.Scalar("t", 0.0),), update={"t": "t + 0.5"})
    aotato.build(app, ranks=2, path=tmp_path / "counter.h5", targets="cpu")
    command = [*RUN, tmp_path / "counter.h5", "--quiet", "--steps", "5", "--every", "vtk=2"]
    done = mpiexec(2, [*command, "--vtk", tmp_path / "u_{step:03d}.vtkhdf"])
    assert (done.returncode, done.stderr) == (0, "")
    names = ["u_002.vtkhdf", "u_004.vtkhdf", "u_005.vtkhdf"]
    assert sorted(os.listdir(tmp_path)) == ["counter.h5", "u.vtkhdf.series", *names]
    series = json.loads((tmp_path / "u.vtkhdf.series").read_text())
    assert series["file-series-version"] == "1.0"
    assert [(row["name"], row["time"]) for row in series["files"]] == list(zip(names, [1.0, 2.0, 2.5], strict=True))
    for name, step in zip(names, (2, 4, 5), strict=True):
        with h5py.File(tmp_path / name) as file:
            assert list(file["VTKHDF/PointData/u_new"]) == [step] * 4 + [2 * step] * 4
            assert list(file["VTKHDF/PointData/twice"]) == [2 * step] * 4 + [4 * step] * 4
    done = mpiexec(2, command)
    assert done.returncode == 1 and "expected --vtk FILE beside --every vtk=2" in done.stderr


def test_a_run_without_a_view_is_refused(tmp_path):
    aotato.build({"a": pt.make_data_wrapper(np.zeros(3))}, path=tmp_path / "a.h5", targets="cpu")
    done = subprocess.run([sys.executable, *RUN, tmp_path / "a.h5", "--vtk", tmp_path / "a.vtkhdf"],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "expected a bundle with a view for --vtk" in done.stderr
    with Bundle.open(tmp_path / "a.h5") as bundle, pytest.raises(Refusal, match="add a function view"):
        vtkhdf.check(bundle, ["step"])
    assert os.listdir(tmp_path) == ["a.h5"]


# Two triangles of a square, on every rank
POINTS, CELLS = np.array([[0.0, 0], [1, 0], [1, 1], [0, 1]]), np.array([[0, 1, 2], [0, 2, 3]])


def square(**changes):
    return View(**({"points": POINTS, "cells": CELLS, "cell": "triangle"} | changes))


def build(path, view, ranks=1, **outputs):
    """An app whose entry returns zeros of the given shapes (or, by a function, of each rank)."""

    def step(rank, size, opt, data):
        return {name: pt.make_data_wrapper(np.zeros(*(o(rank) if callable(o) else o))) for name, o in outputs.items()}

    app = ModuleType("square")
    app.ENTRIES, app.view = (step,), view if callable(view) else lambda rank, size, opt, data: view
    aotato.build(app, ranks=ranks, path=path / "square.h5", targets="cpu")
    with Bundle.open(path / "square.h5") as bundle:
        return bundle.views


def test_outputs_that_fit_are_fields(tmp_path):
    views = build(tmp_path, square(), p=[(4,)], v=[(2, 4)], c=[(2,)], none=[(5,)], vp=[(2, 2, 2)], z=[(4,), complex])
    found = {field.output: (field.on, field.count) for field in views.fields}
    assert found == {"p": ("points", 1), "v": ("points", 2), "c": ("cells", 1), "vp": ("points", 2)}
    assert views.fields[2].columns[0].zeros == 1


def test_a_place_holds_for_all_ranks(tmp_path):
    def view(rank, size, opt, data):  # rank 1 has no cells
        return square() if rank == 0 else square(points=POINTS[:0], cells=CELLS[:0])

    views = build(tmp_path, view, 2, q=lambda rank: [(3, 4 * (1 - rank))], c=lambda rank: [(2 * (1 - rank),)])
    assert [(f.output, f.on, f.count) for f in views.fields] == [("c", "cells", 1), ("q", "points", 3)]


def test_no_view_on_any_rank_is_no_view(tmp_path):
    assert build(tmp_path, lambda rank, size, opt, data: None, a=[(4,)]) is None


WRONG = {
    "expected a cell of line, triangle, quad, tet, hex, but found 'tri'": {"cell": "tri"},
    "expected an order from 1 to 10, but found 0": {"order": 0},
    r"expected cells as integers \(cells, 6\) for a triangle of order 2, but found int64\[2, 3\]": {"order": 2},
    r"expected cells as integers .* but found float64\[2, 3\]": {"cells": CELLS * 1.0},
    "node 2 of cell 1 is point 4, but there are 4 points": {"cells": [[0, 1, 2], [0, 2, 4]]},
    r"points as real numbers \(points, 2 to 3\) for a triangle, but found float64\[4, 1\]": {"points": POINTS[:, :1]},
    r"point 0 is \[nan, 0.0\]": {"points": np.where(POINTS == [0, 0], [np.nan, 0], POINTS)},
    r"expected node_order to be a permutation of 0..2, but found \[0, 1, 1\]": {"node_order": [0, 1, 1]},
    "there is no output 'o'; did you mean 'p'|there is no output 'o'; outputs are 'p', 'v', 'z'": {"fields": ["o"]},
    "output 'z' of entry 'step' is complex": {"fields": ["z"]},
    r"expected field 'p' with a value for each cell \(2\) after axes .* but it is \[4\]":
        {"fields": [Field("p", on="cells")]},
    "expected field 'p' on 'points' or 'cells', but found 'nodes'": {"fields": [Field("p", on="nodes")]},
    "field 'v' has 2 components, but 1 names: a": {"fields": [Field("v", names=["a"])]},
    "two fields on points are named 'p'": {"fields": ["p", Field("v", names=["p", "q"])]},
}


@pytest.mark.parametrize("sentence", WRONG)
def test_mistakes_are_named(tmp_path, sentence):
    with pytest.raises(AppError, match=sentence):
        build(tmp_path, square(**WRONG[sentence]), p=[(4,)], v=[(2, 4)], z=[(4,), complex])


def test_ranks_that_differ_are_named(tmp_path):
    def other(change):
        return lambda rank, size, opt, data: square(**change) if rank else square()

    with pytest.raises(AppError, match="view of rank 1: expected a View on every rank, but found NoneType"):
        build(tmp_path, lambda rank, size, opt, data: None if rank else square(), 2, p=[(4,)])
    with pytest.raises(AppError, match="view: dim is 2 on rank 0, but 3 on rank 1"):
        build(tmp_path, other({"points": np.zeros((4, 3))}), 2, p=[(4,)])
    with pytest.raises(AppError, match=r"expected an output with a value for each point \(4\) or cell \(2\), but 'p'"):
        build(tmp_path, square(), 2, p=lambda rank: [(4 + rank,)])


def test_what_vtk_has_no_arrays_of_is_converted():
    one = Placed("b", "points", 1, (Column("b", (0,)),))
    assert vtkhdf.values(np.array([True, False]), one, one.columns[0]).dtype == np.uint8
    assert vtkhdf.values(np.zeros(2, np.float16), one, one.columns[0]).dtype == np.float32
    two = Placed("v", "points", 2, (Column("v", (1, 0), 1),))
    np.testing.assert_array_equal(vtkhdf.values(np.arange(6).reshape(2, 3), two, two.columns[0]),
                                  [[3, 0, 0], [4, 1, 0], [5, 2, 0]])
