"""The table of docs/nodes.md: which node or function is tested with which dtypes, and where declared dtypes differ."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import numpy as np
import pytato as pt

from aotato.frontend.constants import digest
from aotato.frontend.ir import Program
from aotato.frontend.text import parse
from nodes import DTYPES
from nodes_cases import GROUPS

PROGRAMS = Path(__file__).with_name("programs")
DOCS = Path(__file__).parents[1] / "docs" / "nodes.md"
sys.path.insert(0, str(PROGRAMS))
from cases import CASES, path  # noqa: E402

OPERATOR = re.compile(
    r"__r?(add|sub|mul|truediv|floordiv|mod|pow|and|or|xor|lshift|rshift)__|__(matmul|neg|pos|abs|invert|getitem)__"
    r"|T|real|imag|conj|astype"
)
# Public classes whose arrays are made by the functions of another row
MADE_BY = {
    "AdvancedIndexInContiguousAxes": "Array.__getitem__ by arrays",
    "AdvancedIndexInNoncontiguousAxes": "Array.__getitem__ by arrays",
    "AxisPermutation": "pt.transpose",
    "BasicIndex": "Array.__getitem__",
    "CSRMatmul": "pt.sparse_matmul",
    "CSRMatrix": "pt.make_csr_matrix",
    "Concatenate": "pt.concatenate",
    "Einsum": "pt.einsum",
    "IndexBase": "Array.__getitem__",
    "IndexLambda": "converted to float64",
    "IndexRemappingBase": "pt.roll",
    "LoopyCall": "pytato.loopy.call_loopy",
    "Reshape": "pt.reshape",
    "Roll": "pt.roll",
    "SparseMatmul": "pt.sparse_matmul",
    "SparseMatrix": "pt.make_csr_matrix",
    "Stack": "pt.stack",
    "function": "pt.trace_call",
    "inline_calls": "pt.trace_call",
    "tag_all_calls_to_be_inlined": "pt.trace_call",
}
# Inputs and containers that every test uses; communication, which has its own tests; and what makes no array
ELSEWHERE = {
    *("Array", "AbstractResultWithNamedArrays", "DataWrapper", "DictOfNamedArrays", "InputArgumentBase", "NamedArray"),
    *("Placeholder", "make_data_wrapper", "make_dict_of_named_arrays", "make_placeholder", "Axis", "dtype"),
    *("DistributedGraphPart", "DistributedGraphPartition", "DistributedRecv", "DistributedSend"),
    *("DistributedSendRefHolder", "make_distributed_recv", "make_distributed_send", "staple_distributed_send"),
    *("make_distributed_send_ref_holder", "execute_distributed_partition", "find_distributed_partition"),
    *("generate_code_for_partition", "number_distributed_tags", "verify_distributed_partition"),
    *("LoopyPyOpenCLTarget", "Target", "generate_jax", "generate_loopy", "ReductionDescriptor", "analysis"),
    *("eliminate_dead_code", "get_dot_graph", "get_dot_graph_from_partition", "materialize_with_mpms", "tags"),
    *("rewrite_einsums_with_no_broadcasts", "set_traceback_tag_enabled", "show_dot_graph", "to_index_lambda"),
    *("show_fancy_placeholder_data_flow", "transform", "unify_axes_tags"),
}
# What one pytato itself cannot make
BROKEN = {"logical_not": lambda: pt.logical_not(pt.make_placeholder(name="x", shape=(3,), dtype=np.dtype("bool")))}
# Refused while building, with a sentence that names the node
REFUSED = {
    "SizeParam": "array sizes must be known at build time",
    "make_size_param": "array sizes must be known at build time",
}


def rows() -> dict[str, set[str]]:
    """Dtypes by row, from the tests themselves."""
    found: dict[str, set[str]] = {}
    for make, dtypes in GROUPS.values():
        for dtype in dtypes:
            for row, tested in make(dtype).rows.items():
                found.setdefault(row, set()).update(tested)
    for case in CASES.values():
        for dtype in case.dtypes:
            for row, _ in case.expected(dtype):
                found.setdefault(row, set()).add(dtype)
    return found


Differences = dict[tuple[str, str, str], set[str]]  # (row, numpy's dtype, pytato's) -> dtypes of the operands


def differences() -> dict[str, Differences]:
    """By pytato: of 2021.2, which is installed, and of main as `programs/write.py` found them."""
    kept = json.loads((PROGRAMS / "declared.json").read_text())
    main = {(row, numpy, declared): set(dtypes) for row, numpy, declared, dtypes in kept}
    for key, dtypes in _in_programs().items():
        main.setdefault(key, set()).update(dtypes)
    return {"2021.2": in_groups(), "main": main}


def in_groups() -> Differences:
    """Of the installed pytato."""
    found: Differences = {}
    for make, dtypes in GROUPS.values():
        for dtype in dtypes:
            for (row, _), (numpy, declared) in make(dtype).declared.items():
                found.setdefault((row, numpy, _shown(declared, dtype)), set()).add(dtype)
    return found


def _in_programs() -> Differences:
    found: Differences = {}
    for name, case in CASES.items():
        program = text_of(name)
        declared_as = {output.path: program.arrays[output.array].dtype.name for output in program.outputs}
        for dtype in case.dtypes:
            for (row, what), x in case.expected(dtype).items():
                numpy, declared = np.asarray(x).dtype.name, declared_as[path(row, dtype, what)]
                if numpy != declared:
                    found.setdefault((row, numpy, _shown(declared, dtype)), set()).add(dtype)
    return found


def _shown(declared: str, dtype: str) -> str:
    return "the operand's" if declared == dtype else declared


def constants() -> dict[str, np.ndarray]:
    """Of all programs that main traced, by digest."""
    kept = json.loads((PROGRAMS / "constants.json").read_text())
    found = {}
    for dtype, shape, values in kept.values():
        numbers = [complex(x) if isinstance(x, str) else x for x in values]
        array = np.array(numbers, dtype).reshape(shape)
        found[digest(array)] = array
    return found


def text_of(name: str) -> Program:
    """A program that main traced."""
    return parse((PROGRAMS / f"{name}.txt").read_text(), constants())


def public() -> list[str]:
    """The names that the installed pytato offers, operators of its arrays among them."""
    operators = [name for name in dir(pt.Array) if OPERATOR.fullmatch(name)]
    return sorted({*pt.__all__, *(f"Array.{name}" for name in operators)})


def public_names() -> dict[str, list[str]]:
    """Of the installed pytato, and of main as `programs/write.py` found them."""
    main = json.loads((PROGRAMS / "names.json").read_text())
    return {"installed": public(), "main": main}


def missing(found: dict[str, set[str]]) -> set[str]:
    """Public names of either pytato without a row."""
    names = {name for some in public_names().values() for name in some}
    covered = {row.removeprefix("pt.") for row in found if row.startswith("pt.")}
    operators = {row for row in found if row.startswith("Array.")}
    classes = {name for name, row in MADE_BY.items() if row in found}
    return names - covered - operators - classes - ELSEWHERE - REFUSED.keys() - broken()


def broken() -> set[str]:
    """Names of which the installed pytato makes no array: main's `logical_not` fails in an assertion of its own."""
    found = set()
    for name, make in BROKEN.items():
        try:
            make()
        except AssertionError:
            found.add(name)
    return found


def text() -> str:
    """The tables as Markdown."""
    found = rows()
    short = {dtype: re.sub(r"(u?)([a-z])[a-z]*(?=\d)", r"\1\2", dtype) for dtype in DTYPES}
    lines = [
        f"| node or function | {' | '.join(short[dtype] for dtype in DTYPES)} |",
        f"|---|{'---|' * len(DTYPES)}",
        *(
            f"| `{row}` | {' | '.join('x' if dtype in found[row] else '' for dtype in DTYPES)} |"
            for row in sorted(found, key=str.lower)
        ),
    ]
    known = differences()
    keys = sorted(key for key in set().union(*known.values())
                  if not key[0].startswith(("converted", "prim.", "index", "read")))
    differ = [
        f"| node or function | numpy gives | pytato declares | {' | '.join(f'of, in {which}' for which in known)} |",
        f"|---|---|---|{'---|' * len(known)}",
        *(
            f"| `{key[0]}` | {key[1]} | {key[2]} | "
            f"{' | '.join(', '.join(short[d] for d in DTYPES if d in some.get(key, ())) for some in known.values())} |"
            for key in keys
        ),
    ]
    made = [f"- `{name}`: {row}" for name, row in sorted(MADE_BY.items())]
    refused = [f"- `{name}`: {why}" for name, why in sorted(REFUSED.items())]
    return "\n".join(
        (
            "# Nodes",
            "",
            "Every element is what numpy's operation gives, cast to the dtype that the pytato array declares; anything",
            "else is an error while building that names the node. The tables are written by the tests",
            "(`python tests/nodes_table.py`): an `x` runs on a device, in the interpreter and in numpy. Where there is",
            "none, pytato or numpy refuses.",
            "",
            *lines,
            "",
            "Classes, and the row whose arrays are of them:",
            "",
            *made,
            "",
            "Refused:",
            "",
            *refused,
            "",
            "## Declared dtypes that differ from numpy's",
            "",
            *differ,
            "",
        )
    )


if __name__ == "__main__":
    DOCS.write_text(text())
