"""Trace `cases.py` with pytato main and write the programs as text beside it: `python tests/programs/write.py`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytato as pt

from aotato.frontend.adapter import compat
from aotato.frontend.adapter.trace import trace
from aotato.frontend.text import dumps

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from cases import CASES, Case  # noqa: E402

from nodes_cases import ALIKE, alike  # noqa: E402
from nodes_table import in_groups, public  # noqa: E402


def program(case: Case) -> Any:
    """The traced program of one rank."""
    return trace("step", 1, lambda rank: case.traced(pt)).programs.ranks[0]


def main() -> None:
    if not compat.HAS_LOWERING:
        sys.exit(f"expected pytato main, but found {pt.__file__}: install it in an environment of its own")
    constants: dict[str, Any] = {}
    for name, case in CASES.items():
        traced = program(case)
        (HERE / f"{name}.txt").write_text(dumps(traced))
        for digest, array in traced.constants.items():
            values = [str(x) if isinstance(x, complex) else x for x in array.ravel().tolist()]
            constants[digest] = [np.asarray(array).dtype.name, list(array.shape), values]
    for group in ALIKE:
        (HERE / f"alike_{group}.txt").write_text(dumps(alike(group).traced().programs.ranks[0]))
    declared = [[*key, sorted(dtypes)] for key, dtypes in sorted(in_groups().items())]
    (HERE / "declared.json").write_text("[\n" + ",\n".join(map(json.dumps, declared)) + "\n]\n")
    (HERE / "names.json").write_text(json.dumps(public(), indent=1) + "\n")
    lines = (f"{json.dumps(key)}: {json.dumps(constants[key])}" for key in sorted(constants))
    (HERE / "constants.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
