"""App cns on a mesh of Gmsh: flow past a cylinder on two ranks, and its picture."""

from __future__ import annotations

import subprocess
import sys

import h5py
import numpy as np
import pytest

import aotato
import cns
from aotato.runtime_stub import cli
from mpi import mpiexec

MESH = """
import sys
import gmsh

gmsh.initialize(["-nopopup"], readConfigFiles=False)
gmsh.option.setNumber("General.Terminal", 0)
shapes = gmsh.model.occ
shapes.cut([(2, shapes.addRectangle(-4, -4, 0, 12, 8))], [(2, shapes.addDisk(0, 0, 0, 0.5, 0.5))])
shapes.synchronize()
curves = gmsh.model.getEntities(1)
round_ = [tag for _, tag in curves if gmsh.model.getType(1, tag) != "Line"]
gmsh.model.addPhysicalGroup(1, round_, name="cylinder")
gmsh.model.addPhysicalGroup(1, [tag for _, tag in curves if tag not in round_], name="farfield")
gmsh.model.addPhysicalGroup(2, [1], name="fluid")
distance = gmsh.model.mesh.field.add("Distance")
gmsh.model.mesh.field.setNumbers(distance, "CurvesList", round_)
size = gmsh.model.mesh.field.add("Threshold")
for name, value in (("InField", distance), ("SizeMin", 0.25), ("SizeMax", 1.6), ("DistMax", 4)):
    gmsh.model.mesh.field.setNumber(size, name, value)
gmsh.model.mesh.field.setAsBackgroundMesh(size)
gmsh.option.setNumber("Mesh.MeshSizeExtendFromBoundary", 0)
gmsh.model.mesh.generate(2)
gmsh.write(sys.argv[1])
gmsh.finalize()
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A mesh, and the fields and observed values after 200 steps."""
    pytest.importorskip("gmsh", reason="gmsh is not installed: `pip install gmsh`")
    folder = tmp_path_factory.mktemp("cylinder")
    # A process of its own: gmsh leaves signal handlers behind
    subprocess.run([sys.executable, "-c", MESH, folder / "cylinder.msh"], check=True)
    options = {"case": "cylinder", "mesh": str(folder / "cylinder.msh"), "order": "2", "observe_every": "50"}
    aotato.build("cns", ranks=2, options=options, path=folder / "cns.h5", targets="cpu")
    words = ["--steps", "200", "--quiet", "--output", folder / "out.h5", "--vtk", folder / "out.vtkhdf"]
    done = mpiexec(2, ["-m", "aotato.runtime_stub.run", folder / "cns.h5", *words], timeout=200, env=cns.CROWDED)
    assert (done.returncode, done.stderr) == (0, "")
    return folder


def test_two_hundred_steps(folder):
    with h5py.File(folder / "out.h5") as file:
        seen = {name: table[()] for name, table in file["observed/observe"].items()}
        assert all(np.isfinite(table).all() for table in seen.values()) and (seen["bad"] == 0).all()
        assert file.attrs["step"] == 200 and file.attrs["time"] > 0.5
        assert 0.9 < seen["rho.min"][-1] < 1.0 < seen["rho.max"][-1] < 1.1


def test_the_flow_runs_round_the_cylinder(folder):
    with h5py.File(folder / "out.vtkhdf") as file:
        x, points = file["VTKHDF/Points"][()], file["VTKHDF/PointData"]
        velocity, pressure = points["velocity"][()], points["pressure"][()]
    radius, angle = np.hypot(x[:, 0], x[:, 1]), np.arctan2(x[:, 1], x[:, 0])
    beside = (radius > 0.7) & (radius < 1.2) & (np.abs(np.abs(angle) - np.pi / 2) < 0.3)
    behind = (radius < 1.0) & (np.abs(angle) < 0.2)
    ahead = (radius < 0.7) & (np.abs(angle) > np.pi - 0.3)
    assert velocity[beside, 0].mean() > 1.1 > 0.6 > velocity[behind, 0].mean()
    far = np.median(pressure)
    assert pressure[ahead].mean() > far > pressure[beside].mean()


def test_a_picture_of_it(folder, capsys):
    pytest.importorskip("matplotlib", reason="matplotlib is not installed: `pip install 'aotato[plot]'`")
    out = folder / "vorticity.png"
    assert cli.main(["plot", str(folder / "out.vtkhdf"), "--field", "vorticity", "-o", str(out)]) == 0
    assert "vorticity from -" in capsys.readouterr().out
    assert out.read_bytes().startswith(b"\x89PNG") and out.stat().st_size > 20_000
