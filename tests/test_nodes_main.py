"""What only pytato main can express, run from the text of its programs: device, interpreter and numpy."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import aotato
from aotato.emit.build import assemble
from aotato.emit.target import chosen
from aotato.frontend import ir
from aotato.frontend.adapter import compat
from aotato.frontend.adapter.trace import Traced
from aotato.frontend.constants import digest
from aotato.frontend.interpret import run
from aotato.frontend.text import dumps, parse
from nodes import HEAD, declared, report
from nodes_cases import ALIKE, alike

HERE = Path(__file__).with_name("programs")
sys.path.insert(0, str(HERE))
from cases import CASES  # noqa: E402


def constants() -> dict[str, np.ndarray]:
    kept = json.loads((HERE / "constants.json").read_text())
    arrays = [np.array(values, dtype).reshape(shape) for dtype, shape, values in kept.values()]
    return {digest(array): array for array in arrays}


def program(name: str) -> ir.Program:
    return parse((HERE / f"{name}.txt").read_text(), constants())


@pytest.mark.parametrize("name", CASES)
def test_program_of_main(name, tmp_path):
    case, traced = CASES[name], Traced(ir.Programs("step", (program(name),)), ({},))
    assemble({"step": traced}, tmp_path / "main.h5", chosen("cpu"), HEAD)
    used = {node.path: case.inputs[node.path] for _, node in traced.programs.ranks[0].of_type(ir.Input)}
    values = run(traced.programs, [used])[0]
    with aotato.load(tmp_path / "main.h5") as loaded:
        device = loaded(**used)
    expected = case.numpy(case.inputs)
    assert sorted(values) == sorted(expected)
    types = {path: value.value.dtype for path, value in values.items()}
    report(values, device, {path: declared(np.asarray(x), types[path]) for path, x in expected.items()}, 0.99)


@pytest.mark.skipif(not compat.HAS_LOWERING, reason="needs pytato main")
@pytest.mark.parametrize("name", CASES)
def test_text_is_what_main_gives(name):
    import write

    assert dumps(write.program(CASES[name])) == (HERE / f"{name}.txt").read_text()


def test_no_text_without_a_case():
    assert {path.stem for path in HERE.glob("*.txt")} == {*CASES, *(f"alike_{group}" for group in ALIKE)}


@pytest.mark.parametrize("group", ALIKE)
def test_both_pytatos_give_one_program(group):
    assert dumps(alike(group).traced().programs.ranks[0]) == (HERE / f"alike_{group}.txt").read_text()
