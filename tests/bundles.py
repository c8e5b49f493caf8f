"""Turn IR programs into bundles, for tests that run them."""

from __future__ import annotations

import dataclasses
from pathlib import Path

from aotato.emit.build import assemble
from aotato.emit.target import chosen
from aotato.frontend import ir
from aotato.frontend.adapter.trace import Traced
from aotato.frontend.dtypes import make_explicit


def write(programs: ir.Programs, path: Path, targets: str = "gpu,cpu", fuse: bool = True) -> Path:
    """A bundle with the one entry `programs`; inputs without defaults, self-test with random ones."""
    traced = Traced(_named_by_dtype(programs), tuple({} for _ in programs.ranks))
    head = {"app": "random", "doc": "", "options": {}, "plan": None}
    assemble({programs.entry: traced}, path, chosen(targets), head, fuse=fuse)
    return path


def _named_by_dtype(programs: ir.Programs) -> ir.Programs:
    """Paths that carry their dtype: random programs give one path different dtypes on different ranks."""
    return dataclasses.replace(programs, ranks=tuple(map(_renamed, programs.ranks)))


def _renamed(program: ir.Program) -> ir.Program:
    arrays = {name: _written(program, node) for name, node in program.arrays.items()}
    outputs = [ir.Output(f"{o.path}_{arrays[o.array].dtype.name}", o.array) for o in program.outputs]
    return dataclasses.replace(program, arrays=arrays, outputs=tuple(sorted(outputs, key=lambda o: o.path)))


def _written(program: ir.Program, node: ir.Node) -> ir.Node:
    """As tracing leaves nodes: every conversion of a Lambda is written out."""
    match node:
        case ir.Input():
            return dataclasses.replace(node, path=f"{node.path}_{node.dtype.name}")
        case ir.Lambda():
            dtypes = [program.arrays[operand].dtype for operand in node.operands]
            return dataclasses.replace(node, expr=make_explicit(node.expr, dtypes, node.dtype))
    return node
