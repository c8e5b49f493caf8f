"""`aotato plot`: cells cut into triangles as VTK would draw them, pictures, curves, and what is refused."""

from __future__ import annotations

import subprocess
import sys

import h5py
import numpy as np
import pytest

from aotato.frontend.lattice import vtk_nodes
from aotato.runtime_stub import cli, plot
from aotato.runtime_stub.errors import Refusal

pyplot = pytest.importorskip("matplotlib.pyplot", reason="matplotlib is not installed: `pip install 'aotato[plot]'`")

TYPES = {"triangle": (5, 69), "quad": (9, 70), "hex": (12, 72)}


def write(path, kind="triangle", order=3, **fields):
    """Two partitions of one cell each, side by side; a field is a function of the points, or one number a cell."""
    lattice = np.array(vtk_nodes(kind, order)) / order
    x = np.zeros((2, len(lattice), 3))
    x[..., : lattice.shape[1]] = lattice + np.eye(lattice.shape[1])[0] * np.arange(2)[:, None, None]
    with h5py.File(path, "w") as file:
        root = file.create_group("VTKHDF")
        root["Points"] = x.reshape(-1, 3)
        root["Connectivity"] = np.tile(np.arange(len(lattice)), 2)
        root["Offsets"] = [0, len(lattice), 0, len(lattice)]
        root["NumberOfPoints"] = root["NumberOfConnectivityIds"] = [len(lattice)] * 2
        root["Types"] = np.full(2, TYPES[kind][order > 1], np.uint8)
        for name, values in fields.items():
            if callable(values):
                root[f"PointData/{name}"] = values(x.reshape(-1, 3))
            else:
                root[f"CellData/{name}"] = values
        file.attrs["time"], file.attrs["step"] = 0.5, 7
    return str(path)


@pytest.mark.parametrize("kind", ["triangle", "quad"])
@pytest.mark.parametrize("order", range(1, 8))
def test_nodes_are_counted_as_vtk_does(kind, order):
    assert plot._lattice(kind, order) == vtk_nodes(kind, order)


@pytest.mark.parametrize("kind", ["triangle", "quad"])
@pytest.mark.parametrize("order", [1, 2, 5])
def test_a_polynomial_is_drawn_as_it_is(tmp_path, kind, order):
    """Values at the corners of the small triangles, which cover the cells once."""

    def polynomial(x):
        return (x[:, 0] - 2 * x[:, 1] + 0.3) ** order

    with h5py.File(write(tmp_path / "a.vtkhdf", kind, order, p=polynomial, c=[1.0, 2.0])) as file:
        root = file["VTKHDF"]
        name, values, on_points = plot._values(root, "p")
        x, triangles, colours = plot._mesh(root, values, on_points)
        _, flat, _ = plot._mesh(root, *plot._values(root, "c")[1:])
    assert (name, on_points) == ("p", True)
    np.testing.assert_allclose(colours, polynomial(x), atol=1e-11 * np.abs(values).max())
    a, b, c = (x[triangles[:, i]] for i in range(3))
    areas = np.linalg.det(np.stack([b - a, c - a], axis=1)) / 2
    assert (areas > 0).all() and areas.sum() == pytest.approx(1.0 if kind == "triangle" else 2.0)
    assert len(flat) == len(triangles)


def test_a_picture_has_the_fields_colours(tmp_path):
    """A field that is low on the left and high on the right."""
    path = write(tmp_path / "a.vtkhdf", "quad", 2, low=lambda x: x[:, 0])
    assert cli.main(["plot", path, "--field", "low", "-o", str(tmp_path / "a.png")]) == 0
    image = pyplot.imread(tmp_path / "a.png")
    middle = image[image.shape[0] // 2]
    dark, bright = np.array(pyplot.get_cmap("viridis")([0.0, 1.0]))[:, :3]
    where = [np.abs(middle[:, :3] - colour).sum(axis=1) < 0.1 for colour in (dark, bright)]
    assert where[0].any() and where[1].any() and where[0].argmax() < where[1].argmax()


def test_fields_and_components(tmp_path, capsys):
    path = write(tmp_path / "a.vtkhdf", rho=lambda x: 1 + x[:, 0], u=lambda x: 3 * x + [1, 4, 0], mean=[1.0, 5.0])
    for words, said in (([], "rho from 1 to 3, step 7"), (["--field", "u.x"], "u.x from 1 to 7"),
                        (["--field", "u"], "|u| from 4.12311 to 8.06"), (["--field", "mean"], "mean from 1 to 5")):
        assert cli.main(["plot", path, *words]) == 0
        assert said in capsys.readouterr().out and (tmp_path / "a.png").exists()


def test_curves_of_observed_values(tmp_path, capsys):
    with h5py.File(tmp_path / "out.h5", "w") as file:
        for name, values in (("step", [1, 2]), ("t", [0.1, 0.2]), ("mass", [1.0, 1.0]), ("energy", [3.0, 2.0])):
            file[f"observed/observe/{name}"] = values
    path = str(tmp_path / "out.h5")
    assert cli.main(["plot", path, "-o", str(tmp_path / "all.svg")]) == 0
    assert "energy, mass over t" in capsys.readouterr().out
    assert (tmp_path / "all.svg").read_text().count('id="axes_') == 2
    assert cli.main(["plot", path, "--field", "mass", "-o", str(tmp_path / "one.svg")]) == 0
    with pytest.raises(Refusal, match=r"expected a field of energy, mass, but found 'mas': did you mean 'mass'[?]"):
        plot.plot(path, "mas", "x.png")


def test_what_cannot_be_drawn_is_refused(tmp_path):
    solid = write(tmp_path / "solid.vtkhdf", "hex", 2, p=lambda x: x[:, 0])
    flat = write(tmp_path / "flat.vtkhdf", p=lambda x: x[:, 0])
    with h5py.File(tmp_path / "empty.h5", "w"):
        pass
    for path, field, out, sentence in (
        (solid, None, "x.png", "expected fields in 2D, but the file's cells are solids: open it in ParaView"),
        (flat, "q", "x.png", "expected a field of p, but found 'q'"),
        (flat, "p.x", "x.png", "expected a component x, y or z of a vector, but found 'p.x'"),
        (flat, None, "nowhere/x.png", "the picture nowhere/x.png cannot be written"),
        (flat, None, "x.pgn", "the picture x.pgn cannot be written"),
        (write(tmp_path / "bare.vtkhdf"), None, "x.png", "expected fields to draw, but the file has none"),
        (str(tmp_path / "empty.h5"), None, "x.png", "holds neither fields on a mesh nor observed values"),
        (__file__, None, "x.png", "expected an HDF5 file that a run has written"),
    ):
        with pytest.raises(Refusal, match=sentence.replace("(", r"\(")):
            plot.plot(path, field, out)


def test_without_matplotlib_it_is_a_sentence(tmp_path):
    path = write(tmp_path / "flat.vtkhdf", p=lambda x: x[:, 0])
    code = ("import sys; sys.modules['matplotlib'] = None\n"
            f"from aotato.runtime_stub import cli; sys.exit(cli.main(['plot', {path!r}]))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and "pip install 'aotato[plot]'" in done.stderr
