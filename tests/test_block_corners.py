"""Kernels over blocks of elements at sizes that fill no group, vector or tile, in other dtypes; both mappings."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytato as pt
import pytest

import aotato
from aotato.emit import axes, nest_writer
from aotato.emit.small_matrices import FEWEST_ROWS
from aotato.frontend import array_input, interpret, take
from aotato.frontend.adapter.trace import trace
from aotato.runtime_stub.format import Bundle

Array = np.ndarray[Any, Any]
MAPPINGS = ("gpu", "cpu")


def drawn(shape: tuple[int, ...], dtype: str, seed: int = 0) -> Array:
    """Numbers without a pattern: small, positive and negative, so that sums of integers stay in range."""
    rng = np.random.default_rng(seed)
    whole = rng.integers(-9, 10, shape)
    part = rng.standard_normal(shape) if np.dtype(dtype).kind in "fc" else 0
    return np.asarray(whole + part * (1j if np.dtype(dtype).kind == "c" else 1)).astype(dtype)


def scheme(elements: int, nodes: int, faces: int, dtype: str) -> dict[str, Any]:
    """A sum over nodes, and one over values at face nodes of the element and of others; beside it, their extremes.

    Without extremes, all is a product of small matrices.
    """
    u, w = (array_input(name, (elements, nodes), dtype) for name in "uw")
    rng, wrap = np.random.default_rng(1), pt.make_data_wrapper
    volume, lift = (wrap(drawn(shape, dtype, 2)) for shape in ((nodes, nodes), (nodes, faces)))
    own = wrap(rng.integers(0, nodes, faces).astype(np.int32))
    other = wrap(rng.integers(0, max(1, elements * nodes), (elements, faces)).astype(np.int32))
    # Nothing cannot be reshaped
    outer = take(pt.reshape(u, (elements * nodes,)), other, axis=0) if elements else take(u, own, axis=1)
    jump = take(w, own, axis=1) - 2 * outer
    state = u * w - 3 * u * u + w * w * w
    new = pt.einsum("ij,ej->ei", volume, state) + pt.einsum("ik,ek->ei", lift, jump)
    if np.dtype(dtype).kind == "c" or nodes >= FEWEST_ROWS:
        return {"new": new}
    ones = wrap(np.ones(nodes, dtype))
    low, high = (pt.einsum("e,i->ei", reduce(jump, axis=1), ones) for reduce in (pt.amin, pt.amax))
    return {"new": new, "limited": low + w * high}


@pytest.fixture
def any_extent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few elements make blocks, too: a rank may have few where another one has many."""
    monkeypatch.setattr(axes, "FEWEST_ELEMENTS", 0)


@pytest.mark.parametrize(("elements", "nodes", "faces", "dtype"), [
    (0, 4, 4, "float64"),
    (1, 7, 12, "float64"),
    (7, 1, 3, "float64"),
    (29, 11, 13, "float64"),
    (15, 9, 7, "float32"),
    (31, 3, 5, "int32"),
    (33, 5, 1, "int64"),
    (17, 4, 6, "complex128"),
])
def test_odd_sizes(elements: int, nodes: int, faces: int, dtype: str, any_extent: None, tmp_path: Path) -> None:
    matrices = nodes >= FEWEST_ROWS and dtype == "float64"
    path = compare(elements, nodes, faces, dtype, matrices, tmp_path / "odd.h5")
    if elements > 1 < nodes:
        check_blocks(path, matrices)


def test_sums_too_long_to_be_written_out(
    any_extent: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(nest_writer, "MOST_UNROLLED", 100)
    path = compare(5, 67, 9, "float64", False, tmp_path / "long.h5")
    with Bundle.open(path) as bundle:
        (launch,) = bundle.schedule("step", "cpu", 0).launches
        source = bundle.kernel(launch.kernel)
    assert launch.local_size == (1,) and "for (long n" in source


def compare(elements: int, nodes: int, faces: int, dtype: str, contract: bool, path: Path) -> Path:
    """Both mappings with the interpreter."""
    outputs = scheme(elements, nodes, faces, dtype)
    inputs = {name: drawn((elements, nodes), dtype, seed) for seed, name in enumerate("uw", 3)}
    (expected,) = interpret.run(trace("step", 1, lambda rank: outputs).programs, [inputs])
    aotato.build(outputs, targets=",".join(MAPPINGS), contract=contract, path=path)
    for name in MAPPINGS:
        with aotato.load(path, target=name) as program:
            for output, found in program(**inputs).items():
                interpret.assert_agrees(output, expected[output], found)
                assert found.shape == (elements, nodes)
    return path


def check_blocks(path: Path, matrices: bool) -> None:
    """One launch of each mapping, over blocks; `matrices`: with products that units for them could compute."""
    with Bundle.open(path) as bundle:
        (gpu,), (cpu,) = (bundle.schedule("step", name, 0).launches for name in MAPPINGS)
        assert ("AOTATO_TENSOR_F64" in bundle.kernel(gpu.kernel)) == matrices
    assert gpu.local_bytes > 0 == cpu.local_bytes
    assert gpu.local_size[0] > 1 == cpu.local_size[0]
