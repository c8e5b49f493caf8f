"""`verify` proves every entry and target of a bundle, or refuses with a sentence that says where."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Entry, Signature
from aotato.runtime_stub.schedule import Argument, Schedule, from_json, to_json
from aotato.runtime_stub.verify import verify
from schedules import alter, chain, edit, ring, schedules


@dataclass
class Stored:
    """What `verify` needs of a bundle; schedules pass through their stored form."""

    whole: dict[tuple[str, str], list[Schedule]]
    ranks: int = 2

    kernels: tuple[str, ...] = tuple(f"k{n}" for n in range(12))

    @property
    def entries(self) -> dict[str, Entry]:
        inputs = (Signature("x", "float64", ((12,),) * 2, (True, True)),)
        outputs = (Signature("out", "float64", ((4, 2),) * 2, (True, True)),)
        return {name: Entry(name, "", inputs, outputs, {}, {}) for name, _ in self.whole}

    @property
    def targets(self) -> dict[str, None]:
        return {target: None for _, target in self.whole}

    def schedule(self, entry: str, target: str, rank: int) -> Schedule:
        return from_json(to_json(self.whole[entry, target][rank]))

    def kernel(self, digest: str) -> str:
        return dict.fromkeys(self.kernels, "")[digest]


def bundle() -> Stored:
    whole = {}
    for target, staging in (("cpu", "mapped"), ("gpu", "copied")):
        for entry, rounds in (("init", [chain(2)]), ("step", [ring(2), "sum"])):
            whole[entry, target] = [replace(s, entry=entry, target=target) for s in schedules(2, rounds, staging)]
    return Stored(whole)


def test_a_sound_bundle_is_described() -> None:
    lines = verify(bundle())
    assert len(lines) == 4
    assert lines[0] == ("entry 'init' for target 'cpu': ranks 2, batches 1, launches 2 to 3 on a rank, "
                        "messages 1 with 96 bytes, collectives 0: matched; no stall with eager or rendezvous sends; "
                        "no hazard over two calls")
    assert "launches 5 on a rank, messages 2 with 192 bytes, collectives 1" in lines[3]


def test_a_broken_schedule_is_refused() -> None:
    broken = bundle()
    broken.whole["step", "gpu"] = alter(broken.whole["step", "gpu"], 1, edit("messages", 0, tag=3))
    with pytest.raises(Refusal, match=r"entry 'step' for target 'gpu': rank 1 sends .* must be built again"):
        verify(broken)


def test_a_schedule_in_the_wrong_place_is_refused() -> None:
    broken = bundle()
    broken.whole["init", "cpu"] = broken.whole["init", "gpu"]
    with pytest.raises(Refusal, match="rank 0 has a schedule of entry 'init' for target 'gpu'"):
        verify(broken)


def test_a_missing_schedule_is_refused() -> None:
    broken = bundle()
    del broken.whole["init", "cpu"]
    with pytest.raises(Refusal, match="rank 0 has no readable schedule"):
        verify(broken)


@pytest.mark.parametrize("change, words", (
    (edit("buffers", 0, source="y"), "rank 1: buffer 'x' holds 'y', no input of the entry"),
    (edit("outputs", 0, dtype="int64"), r"'out' is float64\[4, 2\] by the entry, but int64\[4, 2\] in the schedule"),
    (edit("outputs", 0, path="o"), "output 'o' is missing by the entry"),
))
def test_schedules_have_the_inputs_and_outputs_of_the_entry(change: Callable[[Schedule], Schedule], words: str) -> None:
    broken = bundle()
    broken.whole["step", "gpu"] = alter(broken.whole["step", "gpu"], 1, change)
    with pytest.raises(Refusal, match=words):
        verify(broken)


def test_kernels_are_in_the_bundle() -> None:
    broken = bundle()
    broken.kernels = ("k3",)
    with pytest.raises(Refusal, match=r"entry 'init' for target 'cpu', rank 0, launch 1: .* no kernel 'k2'"):
        verify(broken)


def test_launches_of_a_kernel_agree_on_its_arguments() -> None:
    broken = bundle()
    whole = broken.whole["step", "gpu"]
    arguments = tuple(replace(a, dtype="float32") for a in whole[1].launches[0].arguments)
    broken.whole["step", "gpu"] = alter(whole, 1, edit("launches", 0, arguments=arguments))
    with pytest.raises(Refusal, match=r"rank 1, launch 0 .*float32.* but the same kernel in entry 'init' for target"):
        verify(broken)


def test_carried_outputs_are_looked_at() -> None:
    whole = bundle()
    whole.whole["init", "cpu"] = alter(whole.whole["init", "cpu"], 1, edit("outputs", 0, buffer="recv0_0"))
    assert len(verify(whole)) == 4
    with pytest.raises(Refusal, match="carried input 'x'"):
        verify(whole, {"init": {"out": "x"}})
    assert Argument("x", "float64", "r") in whole.whole["init", "cpu"][1].launches[0].arguments
