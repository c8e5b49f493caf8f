"""App cns: what its options mean, what is refused and with which words."""

from __future__ import annotations

import math

import pytest

import cns
from aotato.frontend import AppError, app
from aotato.frontend.apps import cns as cns_app
from aotato.frontend.apps._flow import case
from aotato.frontend.apps._flow.options import OPTIONS, settle


def settled(**given):
    return settle(cns.options(**given))


def test_the_default_is_a_taylor_green_vortex_in_2d_on_triangles():
    found = settled()
    assert (found.case.name, found.dim, found.cell, found.counts) == ("tgv", 2, "tri", (16, 16))
    assert found.lengths == pytest.approx((2 * math.pi,) * 2) and found.periodic == (True, True) and found.viscous


def test_the_mesh_gives_the_dimension():
    found = settled(mesh="box:4,5,6", order="1")
    assert (found.dim, found.cell, found.counts) == (3, "tet", (4, 5, 6))
    assert settled(dim="3", mesh="box:4").counts == (4, 4, 4)
    assert settled(cells="hex").dim == 3 and settled(cells="quad").dim == 2
    assert settled(mesh="box:4,4", lengths="2pi,1", origin="-pi,0").lengths == pytest.approx((2 * math.pi, 1.0))
    assert settled(case="couette").periodic == (True, False)
    assert settled(periodic="none", case="pulse").periodic == (False, False)


def test_options_of_the_command_line_win_over_the_cases():
    found = settled(case="vortex", physics="ns", re="50", mach="0.2", end="3")
    assert (found.viscous, found.re, found.mach, found.end) == (True, 50.0, 0.2, 3.0)


REFUSED = {
    "option case=tvg of app 'cns' is neither a case nor a file ending in .py; did you mean 'tgv'?": {"case": "tvg"},
    "option cells=hexx of app 'cns' is none of tri, quad, tet, hex; did you mean 'hex'?": {"cells": "hexx"},
    "option order=8 of app 'cns' must lie between 1 and 7": {"order": "8"},
    "option flux=roe of app 'cns' is none of llf, hllc": {"flux": "roe"},
    "app 'cns' has no option 'ordr'; did you mean 'order'?": {"ordr": "3"},
    "option lengths=1;2 of app 'cns': expected numbers separated by commas, such as 1,0.5 or 2pi": {"lengths": "1;2"},
    "option re=-1.0 of app 'cns' must be positive, not -1.0": {"re": "-1"},
    "option mesh=wing.msh of app 'cns': there is no such file": {"mesh": "wing.msh"},
    "option case=mine.py of app 'cns': there is no such file": {"case": "mine.py"},
    "expected mesh=box:16,16,16 (cells along each axis) or a file, but found mesh=box:4,x": {"mesh": "box:4,x"},
    "dim=3, but mesh=box:4,4 has 2 axes: leave dim out": {"dim": "3", "mesh": "box:4,4"},
    "cells=quad have 2 dimensions, but the mesh has 3; did you mean cells=hex?": {"dim": "3", "cells": "quad"},
    "case cylinder is for 2 dimensions, but the mesh or dim has 3": {"case": "cylinder", "mesh": "box:2,2,2"},
    "case cylinder has no mesh of its own: give mesh=FILE": {"case": "cylinder"},
    "lengths has 3 numbers, but the mesh has 2 axes: give one number, or one an axis": {"lengths": "1,2,3"},
    "expected periodic=none or axes such as x,y, but found periodic=x,z": {"periodic": "x,z"},
    "option quadrature=-1 of app 'cns' must lie between 0 and 21": {"quadrature": "-1"},
    "option cut=centre of app 'cns' is none of diagonal, middle": {"cut": "centre"},
    "option cut is for the simplices of a box, but the cells are quad: leave it out":
        {"cut": "middle", "cells": "quad"},
    "option re is for physics=ns, but the physics is euler (physics=ns turns friction on)":
        {"physics": "euler", "re": "10"},
    "option sutherland is for viscosity=sutherland, but the viscosity is constant": {"sutherland": "0.5"},
    "options dt and cfl were both given: a fixed time step knows no CFL number; keep one of them":
        {"dt": "0.1", "cfl": "0.5"},
}


@pytest.mark.parametrize("sentence", REFUSED)
def test_what_does_not_fit_is_refused(sentence):
    with pytest.raises(AppError) as refusal:
        settled(**REFUSED[sentence])
    assert str(refusal.value) == sentence


def test_a_boundary_without_a_condition_is_refused():
    with pytest.raises(AppError, match="the mesh has a boundary 'x-', but case tgv says nothing of one; it has none"):
        cns.made(mesh="box:2,2", periodic="y")


def test_every_option_has_words_and_a_default():
    for option in OPTIONS:
        assert option.doc and (option.default is not None or "default" in option.doc.lower() or option.name == "dt")


@pytest.mark.parametrize("name", case.names())
def test_cases_say_what_they_are(name):
    found = case.find(name)
    assert found.doc and set(found.dim) <= {2, 3} and set(found.defaults) <= {option.name for option in OPTIONS}


@pytest.mark.parametrize(("source", "sentence"), [
    ("initial = 1 +", "cannot be imported: SyntaxError"),
    ("DIM = 2", "says nothing of the start: define initial(x, flow), or exact(x, t, flow)"),
    ("def inital(x, flow): ...", "defines 'inital'; did you mean 'initial'?"),
    ("def initial(x, flow): ...\nDEFAULTS = {'macch': 1}", "gives a default to 'macch'; did you mean 'mach'?"),
])
def test_mistakes_in_a_case_of_ones_own(tmp_path, source, sentence):
    (tmp_path / "mine.py").write_text(source)
    with pytest.raises(AppError) as refusal:
        settled(case=str(tmp_path / "mine.py"))
    assert sentence in str(refusal.value)


def test_the_plan_is_five_stages_a_step():
    plan = cns_app.plan(cns.options(dt="0.01"))
    assert [call.entry for call in plan.step] == ["stage"] * 5 and [e.entry for e in plan.every] == ["observe"]
    assert [e.entry for e in cns_app.plan(cns.options()).every] == ["timestep", "observe"]


def test_a_file_is_recorded_by_its_contents(tmp_path):
    (tmp_path / "mine.py").write_text("def initial(x, flow): ...")
    kept = app.recorded(app.find("cns"), cns.options(case=str(tmp_path / "mine.py")))
    assert kept["case"]["file"] == "mine.py" and kept["mesh"] is None
    assert app.recorded(app.find("cns"), cns.options(mesh="box:4,4"))["mesh"] == "box:4,4"


SQUARE = """$MeshFormat
2.2 0 8
$EndMeshFormat
$PhysicalNames
5
1 1 "bottom"
1 2 "right"
1 3 "top"
1 4 "left"
2 5 "fluid"
$EndPhysicalNames
$Nodes
4
1 0 0 0
2 1 0 0
3 1 1 0
4 0 1 0
$EndNodes
$Elements
6
1 1 2 1 1 1 2
2 1 2 2 2 2 3
3 1 2 3 3 3 4
4 1 2 4 4 4 1
5 2 2 5 1 1 2 3
6 2 2 5 1 1 3 4
$EndElements
"""


def test_boundaries_of_a_file_become_periodic(tmp_path):
    (tmp_path / "square.msh").write_text(SQUARE)
    square = str(tmp_path / "square.msh")
    _, found = cns.made(mesh=square, case="tgv", periodic="bottom:top,left:right")
    assert found.domains[0].boundaries == () and (found.domains[0].boundary == -1).all()
    with pytest.raises(AppError, match="the mesh has a boundary 'right', but case tgv says nothing of one"):
        cns.made(mesh=square, case="tgv", periodic="bottom:top")
    with pytest.raises(AppError, match="there is no boundary 'up' to join; boundaries are bottom, right, top, left"):
        cns.made(mesh=square, case="tgv", periodic="bottom:up")
    with pytest.raises(AppError, match=r"file square.msh: expected periodic=none or pairs of its boundaries such as "
                                       r"bottom:top, but found periodic=x,y"):
        cns.made(mesh=square, case="tgv", periodic="x,y")
