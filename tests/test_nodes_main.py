"""What only pytato main can express, run from the text of its programs: device, interpreter and numpy."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import aotato
from aotato.emit.build import assemble
from aotato.emit.rewritten import pruned
from aotato.emit.target import chosen
from aotato.frontend import ir
from aotato.frontend.adapter import compat
from aotato.frontend.adapter.trace import Traced
from aotato.frontend.interpret import run
from aotato.frontend.text import dumps
from nodes import HEAD, TARGET, declared, report
from nodes_cases import ALIKE, alike
from nodes_table import text_of

HERE = Path(__file__).with_name("programs")
sys.path.insert(0, str(HERE))
from cases import CASES, dtype_of, path  # noqa: E402


def chosen_dtypes(name: str) -> tuple[str, ...]:
    """Two of a case's dtypes, others for each case; all of them with AOTATO_ALL_NODES=1."""
    dtypes, turn = CASES[name].dtypes, list(CASES).index(name)
    if os.environ.get("AOTATO_ALL_NODES"):
        return dtypes
    return dtypes[turn % len(dtypes)], dtypes[(turn + len(dtypes) // 2) % len(dtypes)]


@pytest.mark.parametrize("name", CASES)
def test_program_of_main(name, tmp_path):
    case, dtypes, whole = CASES[name], chosen_dtypes(name), text_of(name)
    outputs = tuple(output for output in whole.outputs if dtype_of(output.path) in dtypes)
    programs = pruned(ir.Programs("step", (replace(whole, outputs=outputs),)))
    expected = {path(row, d, what): x for d in dtypes for (row, what), x in case.expected(d).items()}
    assert sorted(output.path for output in outputs) == sorted(expected)
    assemble({"step": Traced(programs, ({},))}, tmp_path / "main.h5", chosen(TARGET), HEAD)
    known = {name: x for dtype in case.dtypes for name, x in case.given(dtype).items()}
    given = {node.path: known[node.path] for _, node in programs.ranks[0].of_type(ir.Input)}
    values = run(programs, [given])[0]
    with aotato.load(tmp_path / "main.h5") as loaded:
        device = loaded(**given)
    types = {path: value.value.dtype for path, value in values.items()}
    report(values, device, {path: declared(np.asarray(x), types[path]) for path, x in expected.items()}, 0.75)


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
