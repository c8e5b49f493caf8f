"""Kernels over blocks of elements: few launches whatever the order, the right values, and limits respected."""

from __future__ import annotations

import dataclasses
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytato as pt
import pytest

import aotato
from aotato.emit import target
from aotato.frontend import array_input, interpret, take
from aotato.frontend.adapter.trace import trace
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
from dg_mesh import box, lattice
from dg_stage import stage


def row(path: Path) -> dict[str, Any]:
    with Bundle.open(path) as bundle:
        found: dict[str, Any] = report(bundle)["entries"]["step"]["per_rank"][0]
    return found


@pytest.mark.parametrize(("order", "shuffled", "name"), [(1, False, "gpu"), (2, True, "cpu"), (3, False, "cpu")])
def test_a_viscous_stage_is_two_launches(order: int, shuffled: bool, name: str, tmp_path: Path) -> None:
    mesh = box(3, order, shuffled)
    path = aotato.build(stage(mesh, order), targets=name, path=tmp_path / "stage.h5")
    found = row(path)
    assert (found["launches"], found["identity_copies"], found["stored_untagged"]) == (2, 0, 9)
    nodes = len(lattice(order))
    assert found["stored_untagged_bytes"] == 9 * 8 * nodes * len(mesh.outside)  # viscous fluxes, not gradients
    assert all((kernel["local_bytes"] > 0) == (name == "gpu") for kernel in found["kernels"])


def viscous() -> tuple[dict[str, Any], dict[str, Any]]:
    """Outputs of a viscous stage of order 1, and inputs."""
    mesh = box(3, 1, shuffled=True)
    shape = (5, len(mesh.outside), len(lattice(1)))
    q = 1 + 0.1 * np.random.default_rng(1).random(shape)
    q[1] += 2
    numbers = {"dt": np.float64(1e-3), "a": np.float64(0.5), "b": np.float64(0.1)}
    return stage(mesh, 1), {"q": q, "residual": np.zeros(shape), **numbers}


def test_its_values_are_the_interpreters(tmp_path: Path) -> None:
    outputs, inputs = viscous()
    (expected,) = interpret.run(trace("step", 1, lambda rank: outputs).programs, [inputs])
    path = aotato.build(outputs, targets="cpu", path=tmp_path / "stage.h5")
    with aotato.load(path) as program:
        for name, found in program(**inputs).items():
            interpret.assert_agrees(name, expected[name], found)
            assert np.isfinite(expected[name].bound).all()


@pytest.mark.parametrize("name", sorted(target.TARGETS))
def test_values_that_differ_deep_inside_are_two(name: str, tmp_path: Path) -> None:
    """Each is read at all nodes of its element, and so kept in local memory; equal ones would share it."""
    q = array_input("q", (100, 5), "float64")
    weights = np.random.default_rng(0).random((5, 5))

    def deep(x: Any) -> Any:
        for step in range(20):
            x = (x + q * (step + 1)) / (2 + q)
        return pt.einsum("ij,ej->ei", pt.make_data_wrapper(weights), x)

    outputs = {"one": deep(q * q), "two": deep(q * q * q), "again": deep(q * q)}
    values = np.random.default_rng(1).random((100, 5))
    (expected,) = interpret.run(trace("step", 1, lambda rank: outputs).programs, [{"q": values}])
    path = aotato.build(outputs, targets=name, path=tmp_path / "deep.h5")
    with aotato.load(path, target=name) as program:
        for path_, found in program(q=values).items():
            interpret.assert_agrees(path_, expected[path_], found)


def test_a_compiler_says_nothing(tmp_path: Path) -> None:
    """Its remarks on loops that it does not turn into vectors would reach the user."""
    mesh = box(2, 2)
    path = aotato.build(stage(mesh, 2), targets="cpu", path=tmp_path / "stage.h5")
    context = cl.create_some_context(interactive=False)
    with Bundle.open(path) as bundle:
        for launch in bundle.schedule("step", "cpu", 0).launches:
            # PoCL keeps what it has compiled, by text
            program = cl.Program(context, f"{bundle.kernel(launch.kernel)}// {time.time_ns()}\n")
            program.build([], cache_dir=False)
            assert program.get_build_info(context.devices[0], cl.program_build_info.LOG).strip() == ""


def advection(mesh: Any, order: int) -> dict[str, Any]:
    """A first-order scheme: upwind fluxes of one variable."""
    elements, n, m = len(mesh.outside), len(lattice(order)), len(mesh.face_nodes)
    rng, wrap = np.random.default_rng(0), pt.make_data_wrapper
    velocity = np.array([1.0, 0.5, 0.25])
    q = array_input("q", (elements, n), "float64", default=rng.random((elements, n)))
    along = wrap(np.einsum("erd,d->er", mesh.inverse_metric, velocity))
    volume = pt.einsum("rij,rej->ei", wrap(rng.random((3, n, n))), pt.einsum("er,ej->rej", along, q))
    speed = wrap(np.repeat(mesh.scaled_normals @ velocity, m // 4, axis=1))
    inner = take(q, wrap(mesh.face_nodes), axis=1)
    outer = take(pt.reshape(q, (elements * n,)), wrap(mesh.outside), axis=0)
    flux = 0.5 * (speed * (inner + outer) + abs(speed) * (inner - outer))
    rhs = volume - pt.einsum("ik,ek->ei", wrap(rng.random((n, m))), flux)
    return {"rhs": rhs, "q_new": q + 0.1 * rhs}


@pytest.mark.parametrize("order", [1, 3])
def test_a_first_order_scheme_is_one_launch(order: int, tmp_path: Path) -> None:
    path = aotato.build(advection(box(3, order), order), targets="cpu", path=tmp_path / "advection.h5")
    assert row(path)["launches"] == 1
    with aotato.load(path) as program:
        assert "passed" in program.selftest()


@pytest.mark.parametrize("name", ["cpu", "gpu"])
def test_a_kernel_that_does_not_fit_is_split(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    small = dataclasses.replace(target.TARGETS[name], local_bytes=64, private_bytes=64)
    monkeypatch.setitem(target.TARGETS, name, small)
    path = aotato.build(advection(box(3, 1), 1), targets=name, path=tmp_path / "advection.h5")
    found = row(path)
    assert found["launches"] > 1
    assert all(kernel["local_bytes"] <= 64 for kernel in found["kernels"])
    with aotato.load(path) as program:
        assert "passed" in program.selftest()


@pytest.mark.parametrize(("name", "room", "launches"), [("gpu", 800, 2), ("cpu", 200, 4)])
def test_arrays_are_stored_so_that_a_kernel_fits(
    name: str, room: int, launches: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = dataclasses.replace(target.TARGETS[name], local_bytes=room, private_bytes=room)
    monkeypatch.setitem(target.TARGETS, name, small)
    outputs, inputs = viscous()
    path = aotato.build(outputs, targets=name, path=tmp_path / "stage.h5")
    found = row(path)
    assert (found["launches"], found["stored_untagged"] > 9) == (launches, True)
    assert all(kernel["local_bytes"] <= room for kernel in found["kernels"])
    (expected,) = interpret.run(trace("step", 1, lambda rank: outputs).programs, [inputs])
    with aotato.load(path) as program:
        for key, values in program(**inputs).items():
            interpret.assert_agrees(key, expected[key], values)


def test_reads_that_are_local_along_neither_axis(tmp_path: Path) -> None:
    x = np.random.default_rng(0).random((80, 80))
    a = np.random.default_rng(1).random((80, 80))

    def app(rank: int, size: int) -> dict[str, Any]:
        y = pt.make_data_wrapper(a) @ array_input("x", x.shape, "float64", default=x)
        return {"sum": y + y.T, "diagonal": pt.einsum("ij,ji->i", y, y)}

    path = aotato.build(app, targets="cpu", path=tmp_path / "both.h5")
    with aotato.load(path) as program:
        assert "passed" in program.selftest()
        found = program()
    y = a @ x
    np.testing.assert_allclose(found["sum"], y + y.T, rtol=1e-13)
    np.testing.assert_allclose(found["diagonal"], np.einsum("ij,ji->i", y, y), rtol=1e-13)
