"""Calls from Python: inputs that are pyopencl arrays, and calls that leave the state of the plan alone."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
import pytato as pt
import pytest

import aotato
from aotato.runtime_stub.errors import Refusal

X = np.arange(24, dtype="float64").reshape(4, 6)


@pytest.fixture(scope="module")
def doubled(tmp_path_factory):
    def app(rank: int, size: int):
        scale = aotato.array_input("scale", (), "float64", default=2.0)
        return {"y": scale * aotato.array_input("x", X.shape, X.dtype)}

    return aotato.build(app, path=tmp_path_factory.mktemp("double") / "x.h5")


@pytest.fixture
def queue():
    return cl.CommandQueue(cl.create_some_context(interactive=False))


def test_arrays_of_the_same_context_stay_on_the_device(doubled, queue) -> None:
    with aotato.load(doubled, queue=queue) as program:
        assert np.array_equal(program(x=cla.to_device(queue, X))["y"], 2 * X)
        assert np.array_equal(program(x=cla.to_device(queue, np.vstack([X, X]))[4:])["y"], 2 * X)
        assert np.array_equal(program(x=cla.to_device(queue, X.T.copy()).T)["y"], 2 * X)
        assert np.array_equal(program(x=X, scale=cla.to_device(queue, np.array(3.0)))["y"], 3 * X)


def test_arrays_of_another_context_are_refused(doubled, queue) -> None:
    with aotato.load(doubled) as program, pytest.raises(Refusal, match="device array of another OpenCL context"):
        program(x=cla.to_device(queue, X))


def test_a_device_array_of_another_dtype_is_refused(doubled, queue) -> None:
    with aotato.load(doubled, queue=queue) as program, pytest.raises(Refusal, match=r"astype\(.float64.\)"):
        program(x=cla.to_device(queue, X.astype("float32")))


def test_a_call_leaves_the_state_of_the_plan_alone(tmp_path) -> None:
    path = aotato.build("poisson", options={"n": 8}, path=tmp_path / "poisson.h5")
    with aotato.load(path) as program:
        program.run(steps=3)
        first = program.runner.values["rr0"]
        before = program.state()
        other = {name: np.ones_like(value) for name, value in before.items()}
        program.call("step", **other)
        after = program.state()
        assert all(np.array_equal(before[name], after[name]) for name in before)
        program.run(steps=1)
    with aotato.load(path) as program:
        program.run(steps=4)
        straight = program.state()
    with aotato.load(path) as program:
        program.set_state(**before)
        program.run(steps=1, set={"rr0": first})
        assert all(np.array_equal(straight[name], value) for name, value in program.state().items())


@pytest.mark.parametrize("dtype", ["bool", "int8", "float16", "float64", "complex64"])
def test_device_arrays_are_constants(dtype, queue, tmp_path) -> None:
    """In any memory order, with strides, of no elements and of no axes."""
    x = (X - 7).astype(dtype)
    made = {
        "C": cla.to_device(queue, x),
        "F": cla.to_device(queue, np.asfortranarray(x)),
        "transposed": cla.to_device(queue, x).T,
        "part": cla.to_device(queue, np.vstack([x, x]))[2:6],
        "strided": cla.to_device(queue, np.vstack([x, x]))[::2],
        "reversed": cla.to_device(queue, x)[::-1],
        "empty": cla.zeros(queue, (0, 3), dtype),
        "number": cla.to_device(queue, x[0, 0].copy()),
    }
    expected = {"C": x, "F": x, "transposed": x.T, "part": np.vstack([x, x])[2:6], "strided": np.vstack([x, x])[::2],
                "reversed": x[::-1], "empty": np.zeros((0, 3), dtype), "number": x[0, 0]}
    arrays = {name: pt.make_data_wrapper(array) for name, array in made.items()}
    arrays |= {f"moved {name}": pt.transpose(array) for name, array in arrays.items()}
    aotato.build(arrays, path=tmp_path / "x.h5")
    with aotato.load(tmp_path / "x.h5", queue=queue) as program:
        found = program()
    for name, array in expected.items():
        assert found[name].dtype == array.dtype and np.array_equal(found[name], array), name
        assert np.array_equal(found[f"moved {name}"], array.T), name


@pytest.mark.skipif(not hasattr(pt, "make_csr_matrix"), reason="needs pytato main")
def test_sparse_matrices_lie_on_a_device(queue, tmp_path) -> None:
    matrix = np.array([[0, 2.0, 0], [1, 0, 3], [0, 0, 0]])
    rows, columns = np.nonzero(matrix)
    starts = np.concatenate([[0], np.cumsum((matrix != 0).sum(axis=1))]).astype("int32")
    parts = [cla.to_device(queue, part) for part in (matrix[rows, columns], columns.astype("int32"), starts)]
    sparse = pt.make_csr_matrix(matrix.shape, *map(pt.make_data_wrapper, parts))
    x = np.array([1.0, 2, 4])
    aotato.build({"out": sparse @ pt.make_data_wrapper(cla.to_device(queue, x))}, path=tmp_path / "x.h5")
    with aotato.load(tmp_path / "x.h5", queue=queue) as program:
        assert np.array_equal(program()["out"], matrix @ x)


def test_device_arrays_of_no_elements_cost_no_launch(queue, tmp_path) -> None:
    one, two = (pt.make_data_wrapper(cla.empty(queue, shape, "float64")) for shape in ((0, 17, 1), (0, 1, 20)))
    aotato.build({"out": one + two}, path=tmp_path / "x.h5")
    with aotato.load(tmp_path / "x.h5", queue=queue) as program:
        assert program()["out"].shape == (0, 17, 20)
        assert not program.schedules["step"].launches


def test_strided_device_arrays_are_inputs(doubled, queue) -> None:
    with aotato.load(doubled, queue=queue) as program:
        twice = cla.to_device(queue, np.repeat(X, 2, axis=0))
        assert np.array_equal(program(x=twice[::2])["y"], 2 * X)
        assert np.array_equal(program(x=cla.to_device(queue, X[::-1].copy())[::-1])["y"], 2 * X)
