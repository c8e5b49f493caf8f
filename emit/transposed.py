"""Lay constants out for the lanes that read them: neighbours in a group read neighbours in memory.

A matrix read as `D[i, j]` by the work-item of node i, in a loop over j, is stored with i last. The values stay; a
constant read in both ways exists twice.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.constants import digest

LARGEST = 1 << 20  # elements: larger ones are data of elements, read once


def transposed(programs: ir.Programs) -> ir.Programs:
    """`programs` with every small constant matrix read along the last axis of its readers."""
    return dataclasses.replace(programs, ranks=tuple(map(_program, programs.ranks)))


def _program(program: ir.Program) -> ir.Program:
    arrays: dict[str, ir.Node] = {}
    constants: dict[str, np.ndarray[Any, Any]] = dict(program.constants)
    for name, node in program.arrays.items():
        if isinstance(node, ir.Lambda):
            node = _reader(program, node, arrays, constants)
        arrays[name] = node
    return dataclasses.replace(program, arrays=arrays, constants=constants)


def _reader(program: ir.Program, node: ir.Lambda, arrays: dict[str, ir.Node], constants: Any) -> ir.Lambda:
    """`node` reading transposed constants, which are added to `arrays`."""
    last = f"_{len(node.shape) - 1}"
    operands = list(node.operands)

    def rule(read: ex.Expr) -> ex.Expr:
        if not isinstance(read, prim.Subscript):
            return read
        source = node.operands[ex.operand_position(read)]
        constant = program.arrays[source]
        if not isinstance(constant, ir.Const) or len(constant.shape) < 2 or ir.size(constant.shape) > LARGEST:
            return read
        along = [axis for axis, index in enumerate(read.index_tuple) if _is(index, last)]
        if len(along) != 1 or along[0] == len(constant.shape) - 1:
            return read
        order = (*(axis for axis in range(len(constant.shape)) if axis != along[0]), along[0])
        name = _transposed(source, constant, order, arrays, constants)
        if name not in operands:
            operands.append(name)
        return ex.read(operands.index(name), tuple(read.index_tuple[axis] for axis in order))

    expr = ex.rewrite(node.expr, rule)
    read = sorted({position for position, _ in ex.reads(expr)})
    renumbered = ex.rewrite(expr, lambda e: _renumbered(e, read))
    return dataclasses.replace(node, expr=renumbered, operands=tuple(operands[position] for position in read))


def _is(index: ex.Expr, name: str) -> bool:
    return isinstance(index, prim.Variable) and index.name == name


def _renumbered(node: ex.Expr, read: list[int]) -> ex.Expr:
    if isinstance(node, prim.Subscript):
        return ex.read(read.index(ex.operand_position(node)), node.index_tuple)
    return node


def _transposed(source: str, constant: ir.Const, order: tuple[int, ...], arrays: Any, constants: Any) -> str:
    name = f"{source}_{''.join(map(str, order))}"
    if name not in arrays:
        data = np.ascontiguousarray(constants[constant.digest].transpose(order))
        key = digest(data)
        constants[key] = data
        arrays[name] = ir.Const(key, data.shape, constant.dtype)
    return name
