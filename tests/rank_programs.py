"""Write programs of several ranks directly as IR, for tests."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.frontend.expr import Expr, Reduce, own_index, read
from aotato.frontend.ir import (
    Allreduce,
    Const,
    Input,
    Lambda,
    LoopyCall,
    Node,
    Output,
    Program,
    Programs,
    Recv,
    Send,
    Where,
)
from aotato.frontend.opaque import Opaque


class Ranks:
    """Programs under construction; arrays are named by their rank and number."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.arrays: list[dict[str, Node]] = [{} for _ in range(size)]
        self.sends: list[list[Send]] = [[] for _ in range(size)]
        self.outputs: list[list[Output]] = [[] for _ in range(size)]
        self.constants: list[dict[str, np.ndarray[Any, Any]]] = [{} for _ in range(size)]
        self.kernels: dict[str, Opaque] = {}  # of all ranks
        self.tags: dict[Any, int] = {}

    def add(self, rank: int, node: Node, name: str | None = None) -> str:
        name = name or f"t{len(self.arrays[rank])}"
        assert name not in self.arrays[rank]
        self.arrays[rank][name] = node
        return name

    def input(self, rank: int, shape: Sequence[int] = (4,), dtype: str = "float64", name: str | None = None) -> str:
        path = name or f"in{len(self.arrays[rank])}"
        return self.add(rank, Input(path, tuple(shape), np.dtype(dtype)), name)

    def const(self, rank: int, data: np.ndarray[Any, Any], name: str | None = None) -> str:
        digest = hashlib.sha256(repr((data.dtype.str, data.shape)).encode() + data.tobytes()).hexdigest()
        self.constants[rank][digest] = data
        return self.add(rank, Const(digest, data.shape, data.dtype), name)

    def compute(
        self,
        rank: int,
        operands: Sequence[str],
        expr: Expr,
        shape: Sequence[int],
        dtype: Any,
        name: str | None = None,
        stored: bool = False,
    ) -> str:
        return self.add(rank, Lambda(expr, tuple(operands), tuple(shape), np.dtype(dtype), stored), name)

    def map(self, rank: int, function: Callable[..., Expr], *operands: str, **options: Any) -> str:
        """`function` of elements of equal index; the result is like the first operand."""
        first = self.arrays[rank][operands[0]]
        own = own_index(len(first.shape))
        distinct = tuple(dict.fromkeys(operands))
        expr = function(*(read(distinct.index(operand), own) for operand in operands))
        return self.compute(rank, distinct, expr, first.shape, first.dtype, **options)

    def total(self, rank: int, operand: str, keep: bool = False, **options: Any) -> str:
        """The sum of all elements; with `keep`, as each element of an array like the operand."""
        node = self.arrays[rank][operand]
        indices = tuple(prim.Variable(f"_r{axis}") for axis in range(len(node.shape)))
        bounds = tuple((f"_r{axis}", 0, extent) for axis, extent in enumerate(node.shape))
        expr = Reduce("sum", bounds, read(0, indices))
        return self.compute(rank, (operand,), expr, node.shape if keep else (), node.dtype, **options)

    def call(self, rank: int, kernel: Opaque, operands: Sequence[str], result: str) -> str:
        self.kernels[kernel.digest] = kernel
        made = next(argument for argument in kernel.results if argument.name == result)
        return self.add(rank, LoopyCall(kernel.digest, result, tuple(operands), made.shape, made.dtype))

    def send(self, source: int, array: str, dest: int, tag: Any, line: int | None = None) -> None:
        where = Where("solver.py", line) if line else None
        self.sends[source].append(Send(array, dest, self.tags.setdefault(tag, len(self.tags)), where))

    def recv(
        self,
        rank: int,
        source: int,
        tag: Any,
        shape: Sequence[int] = (4,),
        dtype: Any = "float64",
        name: str | None = None,
        line: int | None = None,
    ) -> str:
        where = Where("solver.py", line) if line else None
        number = self.tags.setdefault(tag, len(self.tags))
        return self.add(rank, Recv(source, number, tuple(shape), np.dtype(dtype), where), name)

    def move(self, source: int, array: str, dest: int, tag: Any = None, name: str | None = None) -> str:
        """Send `array` and receive it under a fresh tag, unless one is given."""
        node = self.arrays[source][array]
        tag = len(self.tags) if tag is None else tag
        self.send(source, array, dest, tag)
        return self.recv(dest, source, tag, node.shape, node.dtype, name)

    def allreduce(self, rank: int, operand: str, op: str = "sum", name: str | None = None) -> str:
        node = self.arrays[rank][operand]
        return self.add(rank, Allreduce(operand, op, node.shape, node.dtype), name)

    def output(self, rank: int, path: str, array: str) -> None:
        self.outputs[rank].append(Output(path, array))

    def programs(self, recvs_first: bool = False) -> Programs:
        """The programs; with `recvs_first`, every Recv stands before all that does not receive."""
        ranks = []
        for rank in range(self.size):
            arrays = self.arrays[rank]
            if recvs_first:
                names = sorted(arrays, key=lambda name: not isinstance(arrays[name], Recv))
                arrays = {name: arrays[name] for name in names}
            outputs = tuple(sorted(self.outputs[rank], key=lambda output: output.path))
            called = {node.kernel for node in arrays.values() if isinstance(node, LoopyCall)}
            kernels = {digest: kernel for digest, kernel in self.kernels.items() if digest in called}
            ranks.append(
                Program("step", rank, dict(arrays), tuple(self.sends[rank]), outputs, self.constants[rank], kernels)
            )
        return Programs("step", tuple(ranks), tuple(repr(tag) for tag in self.tags))


def with_rank(programs: Programs, rank: int, **changes: Any) -> Programs:
    """`programs` with some fields of one rank's program replaced."""
    ranks = list(programs.ranks)
    ranks[rank] = replace(ranks[rank], **changes)
    return replace(programs, ranks=tuple(ranks))


def values(programs: Programs, seed: int = 0) -> list[dict[str, np.ndarray[Any, Any]]]:
    """Small random input values of every rank, by path."""
    result = []
    for program in programs.ranks:
        rng = np.random.default_rng((seed, program.rank))
        nodes = [node for _, node in program.of_type(Input)]
        result.append({node.path: data(rng, node.shape, node.dtype) for node in nodes})
    return result


def data(rng: np.random.Generator, shape: Sequence[int], dtype: np.dtype[Any]) -> np.ndarray[Any, Any]:
    numbers = rng.integers(-3, 4, size=tuple(shape))
    if dtype.kind == "c":
        return np.asarray(numbers + 1j * rng.integers(-3, 4, size=tuple(shape))).astype(dtype)
    if dtype.kind == "f":
        return np.asarray(numbers + rng.random(tuple(shape))).astype(dtype)
    return np.asarray(numbers % 2 if dtype.kind in "bu" else numbers).astype(dtype)
