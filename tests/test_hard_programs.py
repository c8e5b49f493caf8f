"""Programs made to break the kernels: numpy, the interpreter and devices agree on them."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytato as pt
import pytest

import aotato
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from hard_programs import ALONE, TOGETHER
from mpi import mpiexec
from patterns import Array, given

RUNNER = Path(__file__).with_name("run_bundles.py")
# Relative to the largest element: rounding of what is computed on the way, 20 to 1000 units in the last place
CLOSE = {"float16": 2e-2, "float32": 1e-5, "complex64": 1e-5}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("hard")
    for name, (function, inputs) in ALONE.items():
        aotato.build(functools.partial(_traced, function, inputs), path=folder / f"{name}.h5")
    for name, (function, ranks) in TOGETHER.items():
        aotato.build(function, ranks=ranks, path=folder / f"{name}.h5")
    return folder


def _traced(function: Any, inputs: Mapping[str, Array], rank: int, size: int) -> dict[str, Any]:
    result: dict[str, Any] = function(pt, **{name: given(name, value) for name, value in inputs.items()})
    return result


@pytest.mark.parametrize("name", ALONE)
def test_the_interpreter_gives_what_numpy_gives(name: str, folder: Path):
    function, inputs = ALONE[name]
    with Bundle.open(folder / f"{name}.h5") as bundle:
        outputs = bundle.entries["step"].selftest[0]["outputs"]
        found = {path: bundle.array(key) for path, key in outputs.items()}
    answer = function(np, **inputs)
    assert found.keys() == answer.keys()
    for path, array in found.items():
        expected = np.asarray(answer[path])
        assert array.shape == expected.shape
        atol = CLOSE.get(array.dtype.name, 1e-12) * np.max(np.abs(expected), initial=0)
        np.testing.assert_allclose(array, expected.astype(array.dtype), rtol=0, atol=atol, err_msg=path)


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_nothing_is_copied(target: str, folder: Path):
    for path in folder.glob("*.h5"):
        with Bundle.open(path) as bundle:
            rows = report(bundle, target)["entries"]["step"]["per_rank"]
        assert [row["identity_copies"] for row in rows] == [0] * len(rows), path.name


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_real_ranks_agree_with_the_interpreter(target: str, folder: Path):
    done = mpiexec(4, [RUNNER, folder, target], timeout=240)
    assert [line for line in done.stdout.splitlines() if not line.startswith("passed ")] == []
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == sorted(f"passed {name}.h5" for name in (*ALONE, *TOGETHER))
