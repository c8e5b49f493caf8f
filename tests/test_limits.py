"""Each limit of a target, through declared minima: kernels are split to fit, and what cannot fit is refused."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytato as pt
import pytest

import aotato
from aotato.emit import target
from aotato.emit.target import TargetError
from aotato.frontend import array_input, make_distributed_recv, staple_distributed_send, take
from aotato.runtime_stub import schedule as sch
from aotato.runtime_stub.format import Bundle

MANY = 20
each_target = pytest.mark.parametrize("name", ["cpu", "gpu"])


@pytest.fixture
def declare(monkeypatch: pytest.MonkeyPatch) -> Any:
    def changed(name: str, **minima: int) -> None:
        monkeypatch.setitem(target.TARGETS, name, dataclasses.replace(target.TARGETS[name], **minima))

    return changed


def launches(path: Path, name: str) -> list[tuple[sch.Launch, ...]]:
    with Bundle.open(path) as bundle:
        return [bundle.schedule("step", name, rank).launches for rank in range(bundle.ranks)]


def passed(launch: sch.Launch) -> int:
    """Bytes of arguments."""
    values = [a.dtype for a in launch.arguments if a.by_value] + [dtype for dtype, _ in launch.parameters]
    return 8 * sum(not a.by_value for a in launch.arguments) + sum(np.dtype(dtype).itemsize for dtype in values)


def inputs(shape: tuple[int, ...], count: int = MANY) -> list[Any]:
    data = np.random.default_rng(0).random((count, *shape))
    return [array_input(f"x{i}", shape, "float64", default=data[i]) for i in range(count)]


def chained() -> dict[str, Any]:
    """Many arrays in one long sum, and results with little in common."""
    xs = inputs((50,))
    total = xs[0]
    for x in xs[1:]:
        total = total + 2 * x
    return {"total": total, "moved": pt.roll(total, 1), **{f"y{i}": 3 * x for i, x in enumerate(xs)}}


def blocks() -> dict[str, Any]:
    """Many results over blocks of elements: values at nodes through a matrix, read at face nodes."""
    matrix, faces = np.random.default_rng(1).random((6, 6)), np.array([0, 5, 3, 3], np.int32)
    first, *others = inputs((70, 6), 6)
    results = {}
    for i, x in enumerate(others):
        y = pt.einsum("ij,ej->ei", pt.make_data_wrapper(matrix), first * x)
        results[f"sum{i}"] = pt.einsum("ik,ek->ei", pt.make_data_wrapper(matrix[:, :4]), take(y, faces, axis=1))
    return results


@each_target
@pytest.mark.parametrize("program", [chained, blocks])
def test_kernels_pass_no_more_arguments_than_a_target_promises(
    program: Any, name: str, declare: Any, tmp_path: Path
) -> None:
    path = tmp_path / "many.h5"
    aotato.build(program(), targets=name, path=path)
    (whole,) = launches(path, name)
    declare(name, parameter_bytes=64)
    aotato.build(program(), targets=name, path=path)
    (found,) = launches(path, name)
    assert max(map(passed, whole)) > 64 >= max(map(passed, found))
    assert len(found) > len(whole)
    assert ("blocks" in program.__name__) == any(launch.local_bytes or launch.local_size == (1,) for launch in found)
    with aotato.load(path) as loaded:
        assert "passed" in loaded.selftest()


def test_one_operation_on_too_many_arrays_is_refused(declare: Any, tmp_path: Path) -> None:
    declare("cpu", parameter_bytes=64)
    with pytest.raises(TargetError, match=r"output 'all' is computed from 20 arrays at once.* 168 bytes .* has 64"):
        aotato.build({"all": pt.stack(inputs((3,)), axis=0)}, targets="cpu", path=tmp_path / "stack.h5")


def test_ranks_share_no_kernel_whose_parameters_do_not_fit(declare: Any, tmp_path: Path) -> None:
    def entry(rank: int, size: int) -> dict[str, Any]:
        return {"y": pt.roll(array_input("x", (50 + rank, 3), "float64"), 1, 0)}

    def build() -> list[sch.Launch]:
        path = aotato.build(entry, ranks=2, targets="cpu", path=tmp_path / "ranks.h5")
        return [launch for row in launches(path, "cpu") for launch in row]

    shared = build()
    assert len({launch.kernel for launch in shared}) == 1
    declare("cpu", parameter_bytes=max(map(passed, shared)) - 1)
    apart = build()
    assert len({launch.kernel for launch in apart}) == 2
    assert not any(launch.parameters for launch in apart)


def computed(rank: int, size: int) -> dict[str, Any]:
    x = array_input("x", (10,), "float64")
    return {"y": pt.einsum("i,j->ij", x, x)}


def sent(rank: int, size: int) -> dict[str, Any]:
    x = array_input("x", (10,), "float64")
    block = pt.einsum("i,j->ij", x, x)
    received = make_distributed_recv(1 - rank, "block", (10, 10), "float64")
    return {"y": staple_distributed_send(block, 1 - rank, "block", stapled_to=pt.sum(received))}


def constant(rank: int, size: int) -> dict[str, Any]:
    return {"y": pt.sum(pt.make_data_wrapper(np.arange(100.0)))}


def temporaries(rank: int, size: int) -> dict[str, Any]:
    """Two sums that are read at other indices than their own: stored, beside each other."""
    x = array_input("x", (60,), "float64")
    sums = [pt.einsum("ij,i->j", pt.make_data_wrapper(np.random.default_rng(k).random((60, 8))), x) for k in (0, 1)]
    return {"y": pt.roll(sums[0], 1, 0) + pt.roll(sums[1], 2, 0)}


@pytest.mark.parametrize(("entry", "ranks", "most", "words"), [
    (computed, 1, 799, r"output 'y' is float64\[10,10\].* needs 800 bytes, but target 'cpu' has at most 799"),
    (sent, 2, 700, r"rank 0: array '\w+' is float64\[10,10\] \(.*test_limits.py:\d+\) and needs 800 bytes"),
    (constant, 1, 700, r"constant '\w+' is float64\[100\].* needs 800 bytes"),
    (temporaries, 1, 4100, r"the temporaries of entry 'step' need 4160 bytes together.* at most 4100"),
    (computed, 1, 79, r"input 'x' is float64\[10\] and needs 80 bytes"),
])
def test_an_array_larger_than_an_allocation_is_refused(
    entry: Any, ranks: int, most: int, words: str, declare: Any, tmp_path: Path
) -> None:
    declare("cpu", largest_allocation=most)
    with pytest.raises(TargetError, match=words):
        aotato.build(entry, ranks=ranks, targets="cpu", path=tmp_path / "large.h5")


def test_a_bundle_needs_no_larger_allocation_than_it_makes(declare: Any, tmp_path: Path) -> None:
    declare("cpu", largest_allocation=800)
    path = aotato.build(computed, targets="cpu", path=tmp_path / "exact.h5")
    with Bundle.open(path) as bundle:
        assert bundle.targets["cpu"]["largest_allocation"] == 800
