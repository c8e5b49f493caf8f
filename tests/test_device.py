"""Device choice by node-local rank, and the comparison of a device with a target's minimum."""

from __future__ import annotations

import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

import aotato
from aotato.frontend import array_input
from aotato.runtime_stub import device
from aotato.runtime_stub.device import Facts
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.schedule import Buffer, Schedule
from aotato.runtime_stub.world import World
from mpi import run

GPU = Facts("Fast 9000", "Vendor CL", "gpu", "1.2", True, 8 << 30, 49152, 4096, 2 << 30, 512, 1024)
TARGET = {"name": "gpu", "fp64": True, "local_bytes": 32768, "largest_allocation": 1 << 30, "parameter_bytes": 1024,
          "alignment": 4096, "group_size": 128}


def test_a_device_at_the_minimum_suffices():
    found = replace(GPU, local_bytes=32768, largest_allocation=1 << 30, parameter_bytes=1024, alignment=4096,
                    group_size=128, memory=1000)
    device.check(found, TARGET, need=1000)


@pytest.mark.parametrize("change, words", [
    ({"fp64": False}, ("no double precision (fp64)", "target 'gpu'")),
    ({"local_bytes": 16384}, ("16384 bytes of local memory", "32768")),
    ({"largest_allocation": 1 << 28}, (f"{1 << 28} bytes of memory in one allocation", f"{1 << 30}")),
    ({"parameter_bytes": 256}, ("256 bytes of kernel parameters", "1024")),
    ({"group_size": 64}, ("64 work-items of work-groups", "128")),
    ({"alignment": 8192}, ("8192 bytes", "4096")),
    ({"memory": 4095}, ("4095 bytes of memory", "needs 4096")),
])
def test_a_device_below_the_minimum_is_refused_with_both_numbers(change, words):
    with pytest.raises(Refusal) as caught:
        device.check(replace(GPU, **change), TARGET, need=4096)
    text = str(caught.value)
    assert all(word in text for word in words) and "'Fast 9000'" in text and "--device" in text and "\n" not in text


def test_a_float32_bundle_runs_without_fp64():
    device.check(replace(GPU, fp64=False), TARGET | {"fp64": False})


@pytest.fixture
def machine(monkeypatch):
    """Two GPUs and a CPU, each standing for itself."""
    found = [replace(GPU, name="A"), replace(GPU, name="Pthread", kind="cpu", platform="PoCL"), replace(GPU, name="B")]
    monkeypatch.setattr(device, "visible", lambda: found)
    monkeypatch.setattr(device, "facts", lambda one: one)
    return found


@pytest.mark.parametrize("local_rank, name", [(0, "A"), (1, "B"), (2, "A")])
def test_ranks_of_a_node_share_out_the_gpus(machine, local_rank, name):
    assert device.pick(World(local_rank=local_rank)).name == name


@pytest.mark.parametrize("wanted, name", [(1, "Pthread"), ("2", "B"), ("pocl", "Pthread"), ("GPU", "A"),
                                          ("cpu", "Pthread")])
def test_a_device_is_chosen_by_number_or_text(machine, wanted, name):
    assert device.pick(World(), wanted).name == name


def test_a_target_prefers_its_own_kind(machine):
    assert device.pick(World(), kind="cpu").name == "Pthread"
    assert device.choose(World(), {"name": "cpu"}).name == "Pthread"


@pytest.mark.parametrize("wanted", ["7", "quantum"])
def test_an_unknown_device_is_refused_with_the_list(machine, wanted):
    with pytest.raises(Refusal, match=rf"found '{wanted}'.*0  gpu  A .*; 1  cpu  Pthread"):
        device.pick(World(), wanted)


def test_the_target_is_the_wanted_one_or_the_devices_kind_or_the_first():
    assert device.target_for(GPU, ["cpu", "gpu"]) == "gpu"
    assert device.target_for(GPU, ["cpu"]) == "cpu"
    assert device.target_for(GPU, ["cpu", "gpu"], "cpu") == "cpu"
    with pytest.raises(Refusal, match=r"\(cpu\), but found --target gpu"):
        device.target_for(GPU, ["cpu"], "gpu")


def test_memory_counts_a_shared_constant_once():
    buffers = (Buffer("a", "input", 10), Buffer("c", "const", 100, source="digest"), Buffer("t", "temporary", 5))
    one = Schedule("step", 0, 1, "cpu", "mapped", 1, 0, 1000, 5, buffers, (), (), (), (), ())
    assert device.memory_needed([one, one]) == 2 * (10 + 1000) + 100


def test_this_machine_has_a_device_with_facts():
    found = device.facts(device.choose(World(), {"name": "cpu", "alignment": 4096}))
    assert found.memory > 0 and found.kind in ("cpu", "gpu")
    assert device.list_devices().splitlines()[0].startswith("0  ")


def test_a_bundle_holds_a_mapping_for_either_kind_of_device(tmp_path):
    path = aotato.build({"y": 2 * array_input("x", (3,), "float64")}, path=tmp_path / "both.h5")
    with aotato.load(path) as program:
        assert program.bundle.meta["target_order"] == ["gpu", "cpu"]
        assert program.target == device.facts(program.device).kind


def test_without_a_platform_the_remedy_is_named(tmp_path):
    code = "import aotato.runtime_stub.device as d\ntry: d.visible()\nexcept d.Refusal as r: print(r)"
    done = run([sys.executable, "-c", code], env={"OCL_ICD_VENDORS": str(tmp_path / "none")})
    assert done.stdout.startswith("expected an OpenCL device, but found no platform (")
    assert f"OCL_ICD_VENDORS={tmp_path}/none" in done.stdout and "pip install 'aotato[local]'" in done.stdout


def test_without_a_library_the_remedy_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pyopencl", None)
    with pytest.raises(Refusal, match=r"pyopencl and an OpenCL library, but found none.*pip install"):
        device.visible()


def test_platforms_without_devices_are_passed_over(monkeypatch):
    class Error(Exception):
        pass

    def none():
        raise Error("DEVICE_NOT_FOUND")

    empty = SimpleNamespace(name="Empty", get_devices=none)
    cl = SimpleNamespace(Error=Error, get_platforms=lambda: [empty])
    monkeypatch.setattr(device, "import_opencl", lambda: cl)
    with pytest.raises(Refusal, match="found none on platform Empty"):
        device.visible()
    full = SimpleNamespace(name="Full", get_devices=lambda: ["dev"])
    monkeypatch.setattr(cl, "get_platforms", lambda: [empty, full])
    assert device.visible() == ["dev"]
