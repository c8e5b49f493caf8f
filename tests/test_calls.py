"""Calls from Python: inputs that are pyopencl arrays, and calls that leave the state of the plan alone."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pyopencl.array as cla
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
