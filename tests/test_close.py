"""Closing a program: its device objects are gone at once, and none are left to Python's collector of cycles."""

from __future__ import annotations

import gc
from collections import Counter

import pyopencl as cl
import pytest

import aotato
from aotato.runtime_stub.errors import Refusal


@pytest.fixture(scope="module")
def bundle(tmp_path_factory):
    return aotato.build("poisson", options={"n": 8}, path=tmp_path_factory.mktemp("close") / "poisson.h5")


@pytest.fixture(autouse=True)
def without_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def alive() -> Counter[str]:
    kinds = (cl.Buffer, cl.Kernel, cl.Program, cl.CommandQueue, cl.Context)
    return Counter(type(one).__name__ for one in gc.get_objects() if isinstance(one, kinds))


@pytest.mark.parametrize("target", ["cpu", "gpu"])
@pytest.mark.parametrize("closed", [True, False], ids=["closed", "forgotten"])
def test_nothing_is_left(bundle, target, closed):
    before = alive()
    program = aotato.load(bundle, target=target)
    program.run(steps=3)
    assert alive()["Kernel"] > before["Kernel"] and alive()["Buffer"] > before["Buffer"]
    if closed:
        program.close()
        assert alive()["Kernel"] == before["Kernel"] and alive()["Buffer"] == before["Buffer"]
        program.close()
    del program
    if not closed:  # the collector finds it, and the program itself gives back what it has
        gc.collect()
    assert alive() == before


def test_a_closed_program_refuses_calls(bundle):
    program = aotato.load(bundle)
    program.close()
    with pytest.raises(Refusal, match="this program is closed"):
        program.call("step")
    with pytest.raises(Refusal, match="this program is closed"):
        program.run(steps=1)
