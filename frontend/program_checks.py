"""Prove that a program is well formed: what stands in it is defined, read and typed as the IR says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.frontend.expr import FUNCTIONS, REDUCE_OPS, Cast, Expr, Reduce, children, operand_position
from aotato.frontend.ir import (
    ALLREDUCE_OPS,
    Allreduce,
    Const,
    Input,
    Lambda,
    LoopyCall,
    Node,
    Program,
    Recv,
    operands,
)

KINDS = "biufc"  # bool, integers, floating point numbers, complex numbers
LARGEST_ITEM = 16  # bytes, complex128


class InvalidProgram(AssertionError):
    """A program that breaks a rule of the IR: a mistake of aotato, not of the user."""


def check_program(program: Program, tags: int) -> None:
    """Raise InvalidProgram at the first broken rule. `tags` is the number of tags of all ranks."""
    rank = program.rank
    defined: dict[str, Node] = {}
    for name, node in program.arrays.items():
        place = f"rank {rank}: {name!r}"
        for operand in operands(node):
            _hold(operand in defined, f"{place} reads {operand!r}, which is not defined before it")
        _check_type(place, node)
        _check_node(place, node, defined, program, tags)
        defined[name] = node

    _check_unique(f"rank {rank}: input paths", [node.path for _, node in program.of_type(Input)])
    for send in program.sends:
        _hold(send.array in defined, f"rank {rank} sends {send.array!r}, which is not defined")
        _check_tag(f"rank {rank}: the send of {send.array!r}", send.tag, tags)
    paths = [output.path for output in program.outputs]
    _check_unique(f"rank {rank}: output paths", paths)
    _hold(paths == sorted(paths), f"rank {rank}: outputs are not sorted: {paths}")
    for output in program.outputs:
        _hold(output.array in defined, f"rank {rank}: output {output.path!r} is {output.array!r}, which is not defined")


def _check_type(place: str, node: Node) -> None:
    dtype: Any = node.dtype
    _hold(isinstance(dtype, np.dtype), f"{place} has {dtype!r} for a dtype")
    _hold(
        dtype.kind in KINDS and dtype.itemsize <= LARGEST_ITEM, f"{place} has dtype {dtype.str}, which is not supported"
    )
    _hold(dtype.isnative, f"{place} has dtype {dtype.str}, which is not in native byte order")
    sane = isinstance(node.shape, tuple) and all(type(extent) is int and extent >= 0 for extent in node.shape)
    _hold(sane, f"{place} has shape {node.shape!r}")


def _check_node(place: str, node: Node, defined: Mapping[str, Node], program: Program, tags: int) -> None:
    match node:
        case Input():
            return
        case Const():
            _hold(node.digest in program.constants, f"{place} has no data for digest {node.digest}")
            data = program.constants[node.digest]
            _hold(
                data.shape == node.shape and data.dtype == node.dtype,
                f"{place} is {node.dtype}{node.shape}, but its data are {data.dtype}{data.shape}",
            )
        case Recv():
            _check_tag(place, node.tag, tags)
        case Allreduce():
            _hold(node.op in ALLREDUCE_OPS, f"{place} reduces with {node.op!r}, not one of {ALLREDUCE_OPS}")
            below = defined[node.operand]
            same = (below.shape, below.dtype) == (node.shape, node.dtype)
            _hold(same, f"{place} is {node.dtype}{node.shape}, but reduces {below.dtype}{below.shape}")
            ordered = node.op == "sum" or node.dtype.kind != "c"
            _hold(ordered, f"{place} is the {node.op} of complex numbers, which have no order")
        case Lambda():
            _check_lambda(place, node, defined)
        case LoopyCall():
            _check_call(place, node, defined, program)
        case _:
            raise AssertionError(f"unknown node {type(node).__name__}")


def _check_call(place: str, node: LoopyCall, defined: Mapping[str, Node], program: Program) -> None:
    _hold(node.kernel in program.kernels, f"{place} calls kernel {node.kernel!r}, which is not there")
    kernel = program.kernels[node.kernel]
    given = [(defined[operand].shape, defined[operand].dtype) for operand in node.operands]
    wanted = [(argument.shape, argument.dtype) for argument in kernel.inputs]
    _hold(given == wanted, f"{place} gives kernel {kernel.name!r} {given}, expected {wanted}")
    made = {argument.name: (argument.shape, argument.dtype) for argument in kernel.results}
    _hold(made.get(node.result) == (node.shape, node.dtype), f"{place} is no result {node.result!r} of {kernel.name!r}")


def _check_lambda(place: str, node: Lambda, defined: Mapping[str, Node]) -> None:
    _check_unique(f"{place}: operands", list(node.operands))
    ndims = [len(defined[operand].shape) for operand in node.operands]
    axes = frozenset(f"_{axis}" for axis in range(len(node.shape)))
    seen: dict[int, None] = {}
    reduced: dict[str, None] = {}

    def check(expr: Expr, indices: frozenset[str]) -> None:
        match expr:
            case prim.Variable():
                _hold(expr.name in indices, f"{place} uses the index {expr.name!r}, which is not bound")
                return
            case prim.Subscript():
                position = operand_position(expr)
                _hold(position < len(ndims), f"{place} reads operand {position} of {len(ndims)}")
                arity = len(expr.index_tuple)
                _hold(
                    arity == ndims[position],
                    f"{place} reads {node.operands[position]!r} of {ndims[position]} axes with {arity} indices",
                )
                seen[position] = None
            case prim.Call():
                name = getattr(expr.function, "name", expr.function)
                _hold(name in FUNCTIONS, f"{place} calls {name!r}, which is not a function")
            case Reduce():
                _hold(expr.op in REDUCE_OPS, f"{place} reduces with {expr.op!r}, not one of {REDUCE_OPS}")
                for name, lower, upper in expr.bounds:
                    _hold(type(lower) is int and type(upper) is int, f"{place} has bounds {expr.bounds}")
                    _hold(name not in reduced, f"{place} has two reductions over {name!r}")
                    reduced[name] = None
                indices = indices | {name for name, _, _ in expr.bounds}
            case Cast():
                _hold(isinstance(expr.dtype, np.dtype), f"{place} casts to {expr.dtype!r}")
        for child in children(expr):
            check(child, indices)

    check(node.expr, axes)
    unread = [operand for position, operand in enumerate(node.operands) if position not in seen]
    _hold(not unread, f"{place} never reads its operands {unread}")


def _check_tag(place: str, tag: int, tags: int) -> None:
    _hold(0 <= tag < tags, f"{place} has tag number {tag} of {tags}")


def _check_unique(what: str, names: list[str]) -> None:
    _hold(len(names) == len(set(names)), f"{what} are not unique: {names}")


def _hold(condition: bool, otherwise: str) -> None:
    if not condition:
        raise InvalidProgram(otherwise)
