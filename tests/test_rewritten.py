"""A small DG operator, pass by pass: what a build prints stays as it is, and what the kernels count."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import advection
import aotato
from aotato.frontend.adapter import compat
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report

GOLDEN = Path(__file__).with_name("rewritten")


def texts(folder: Path) -> dict[str, str]:
    """By file name what AOTATO_DUMP prints, without digests of data, which depends on the machine's rounding."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AOTATO_DUMP", str(folder))
        path = aotato.build(advection.app(), path=folder / "advection.h5", targets="cpu")
    found = {file.name: file.read_text() for file in folder.glob("*.txt")}
    with Bundle.open(path) as bundle:
        found["account.txt"] = "\n".join(_account(report(bundle)["entries"]["step"]["per_rank"][0])) + "\n"
    return {name: re.sub(r"(const \S+) [0-9a-f]{64}.*", r"\1", text) for name, text in found.items()}


def _account(row: dict[str, Any]) -> Iterator[str]:
    """What a call launches, reads and computes, kernel by kernel."""
    yield ", ".join(f"{name} {row[name]}" for name in ("launches", "parts", "data_bytes", "arena_bytes"))
    for kernel in row["kernels"]:
        counts = ", ".join(f"{name} {kernel[name]}" for name in ("bytes_read", "bytes_written", "flops", "local_bytes"))
        yield f"{kernel['name']}: {counts}"


@pytest.mark.skipif(compat.HAS_LOWERING, reason="the texts are of what pytato 2021.2 traces")
def test_an_advection_operator_pass_by_pass(tmp_path: Path) -> None:
    known = {file.name: file.read_text() for file in GOLDEN.glob("*.txt")}
    found, hint = texts(tmp_path), "if this is meant, run `python tests/rewritten/write.py`"
    assert sorted(found) == sorted(known), hint
    for name, text in found.items():
        assert text == known[name], f"{name}: {hint}"
