"""What a kernel must read, write and compute: each distinct element once, each operation once per element."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import integers
from aotato.emit.names import Place
from aotato.emit.nest import Accumulate, Block, Kernel, Nest, array_of, is_local
from aotato.frontend import expr as ex
from aotato.frontend import ir

CHUNK = 1 << 22  # elements whose indices are evaluated at a time


@dataclass(frozen=True)
class Account:
    bytes_read: int
    bytes_written: int
    flops: int
    identity_copies: int  # results that only duplicate an input, constant or received array


def account(
    kernel: Kernel,
    program: ir.Program,
    read_at: Mapping[str, Place],
    write_at: Mapping[str, tuple[Place, ...]],
    packed: frozenset[str],
    travelling: frozenset[str] = frozenset(),
) -> Account:
    """`packed` are the results that go into messages or reductions: duplicating there is not a copy.

    `travelling` are the buffers that an early launch leaves alone.
    """
    touched: dict[str, np.ndarray | None] = {}
    for nest in kernel.nests:
        _touch(nest, program, touched, kernel.block)
    read = sum(
        ir.nbytes(program.arrays[name]) if mask is None else int(mask.sum()) * program.arrays[name].dtype.itemsize
        for name, mask in touched.items()
        if not read_at[name].by_value and read_at[name].buffer not in travelling
    )
    whole = kernel.nests[0].shape[0] if kernel.block else 1
    part = kernel.block.elements if kernel.block else 1
    written = sum(ir.nbytes(program.arrays[name]) * len(write_at[name]) for name in kernel.writes) * part // whole
    copies = sum(
        1
        for nest in kernel.nests
        for store in nest.stores
        if store.array in kernel.writes and store.array not in packed and isinstance(store.expr, prim.Subscript)
        and store.expr.index_tuple == store.indices
        and program.arrays[store.expr.aggregate.name].shape == program.arrays[store.array].shape
    )
    return Account(read, written, sum(map(_flops, kernel.nests)) * part // whole, copies)


def _flops(nest: Nest) -> int:
    """Operations of one element times elements; a statement inside loops counts once per iteration."""
    loops = {loop.name: loop.upper - loop.lower for loop in nest.loops}
    total = 0
    for statement in nest.statements:
        inside = (*statement.loops, statement.loop) if isinstance(statement, Accumulate) else statement.loops
        times = int(np.prod([loops[name] for name in inside], dtype=np.int64))
        total += times * (ex.flops(statement.expr) + isinstance(statement, Accumulate))
    return ir.size(nest.shape) * (total + sum(ex.flops(store.expr) for store in nest.stores))


def _touch(nest: Nest, program: ir.Program, touched: dict[str, np.ndarray | None], block: Block | None) -> None:
    """Mark the elements that the nest reads; None marks a whole array."""
    extents = {f"_{axis}": (0, extent) for axis, extent in enumerate(nest.shape)}
    if block is not None and block.first is not None:
        extents["_0"] = (block.first, block.first + block.elements)
    extents |= {loop.name: (loop.lower, loop.upper) for loop in nest.loops}
    for item in (*nest.statements, *nest.stores):
        for node in ex.walk(item.expr):
            if isinstance(node, prim.Subscript) and not is_local(node.aggregate.name):
                _touch_read(node, nest, program, extents, touched)


def _touch_read(
    node: prim.Subscript,
    nest: Nest,
    program: ir.Program,
    extents: Mapping[str, tuple[int, int]],
    touched: dict[str, np.ndarray | None],
) -> None:
    name = node.aggregate.name
    shape = program.arrays[name].shape
    if (name in touched and touched[name] is None) or not ir.size(shape):
        return
    whole = all(extents[f"_{axis}"] == (0, extent) for axis, extent in enumerate(nest.shape))
    if not shape or (whole and shape == nest.shape and node.index_tuple == ex.own_index(len(shape))):
        touched[name] = None
        return
    variables = {v.name for i in node.index_tuple for v in ex.walk(i) if isinstance(v, prim.Variable)}
    names = sorted(variables & set(extents))
    count = int(np.prod([extents[n][1] - extents[n][0] for n in names], dtype=np.int64))
    known = all(integers.is_known(i, extents, _table(program)) for i in node.index_tuple)
    if not known or count > 64 * CHUNK:
        touched[name] = None  # indices known only at run time, or too many to list: at most the whole array
        return
    mask = touched.get(name)
    if mask is None:
        mask = touched[name] = np.zeros(ir.size(shape), bool)
    for flat in _flat_indices(node, names, extents, shape, program):
        mask[flat] = True


def _flat_indices(node: Any, names: Any, extents: Any, shape: ir.Shape, program: ir.Program) -> Iterator[Any]:
    """Flat positions read, in chunks along the first index variable."""
    if not names:
        yield _evaluate(node, {}, shape, program)
        return
    lower, upper = extents[names[0]]
    rest = int(np.prod([extents[n][1] - extents[n][0] for n in names[1:]], dtype=np.int64))
    step = max(1, CHUNK // max(1, rest))
    for start in range(lower, upper, step):
        grids = [np.arange(start, min(upper, start + step))] + [np.arange(*extents[n]) for n in names[1:]]
        mesh = np.meshgrid(*grids, indexing="ij", sparse=True)
        yield _evaluate(node, dict(zip(names, mesh, strict=True)), shape, program)


def _evaluate(node: Any, values: Mapping[str, Any], shape: ir.Shape, program: ir.Program) -> Any:
    flat: Any = 0
    for index, extent in zip(node.index_tuple, shape, strict=True):
        found = np.asarray(integers.evaluate(index, values, _table(program)), np.int64)
        flat = flat * extent + np.clip(found, 0, max(0, extent - 1))
    return np.asarray(flat)


def _table(program: ir.Program) -> integers.Table:
    """What a read of the kernel reads, where it is a constant."""

    def one(node: prim.Subscript) -> np.ndarray[Any, Any] | None:
        source = program.arrays[array_of(node.aggregate.name)]
        return program.constants[source.digest] if isinstance(source, ir.Const) else None

    return one
