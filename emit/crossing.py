"""Storage between kernels over blocks of elements: the cheapest cut below every read of another element.

A kernel computes what it needs at its own elements. What costs a reduction and is read at other elements must have
been stored by an earlier kernel: either the reduction itself, or anything elementwise above it, whichever is least; of
equal ones the last, so that the kernel that stores computes once what others would compute at each read.
"""

from __future__ import annotations

from collections.abc import Mapping

from aotato.emit.axes import is_local
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.cut import Weight, cut


def storage(
    program: ir.Program,
    closure: frozenset[str],
    roots: tuple[str, ...],
    stores: tuple[str, ...],
    batch: Mapping[str, int],
) -> tuple[tuple[str, ...], dict[str, int]]:
    """Arrays to store beside `stores`, and each array's level: the number of kernels that must come before its own."""
    names = [name for name in program.arrays if name in closure]
    readers: dict[str, list[str]] = {name: [] for name in names}
    needed: dict[str, None] = {}
    for reader in names:
        node = program.arrays[reader]
        assert isinstance(node, ir.Lambda)
        for position, indices in ex.reads(node.expr):
            operand = node.operands[position]
            if operand in readers:
                readers[operand].append(reader)
                if not _local(batch, reader, operand, indices):
                    needed[operand] = None
    # Roots without a batch axis are packed by kernels of their own
    needed |= {name: None for name in roots if name not in stores and name in readers and name not in batch}
    lambdas = {name: node for name, node in program.of_type(ir.Lambda) if name in closure}
    weights = {n: Weight(ir.nbytes(lambdas[n]), lambdas[n].stored) for n in names if n not in stores}
    kept = {name: [reader for reader in readers[name] if reader in weights] for name in weights}
    costly = [name for name in weights if ex.has_reduce(lambdas[name].expr)]
    found = cut(weights, kept, costly, [name for name in needed if name in weights], late=True)
    return found, _levels(program, names, {*found, *stores}, stores, batch)


def _local(batch: Mapping[str, int], reader: str, operand: str, indices: tuple[ex.Expr, ...]) -> bool:
    return reader in batch and operand in batch and is_local(indices, batch[operand], batch[reader])


def _levels(
    program: ir.Program, names: list[str], in_memory: set[str], stores: tuple[str, ...], batch: Mapping[str, int]
) -> dict[str, int]:
    """A read of another element comes after the kernels of all stored arrays that it is computed from."""
    level: dict[str, int] = {}
    below: dict[str, int] = {}  # the highest level of the stored arrays that an array is or is computed from
    crossed: set[str] = set()
    for name in names:
        node = program.arrays[name]
        assert isinstance(node, ir.Lambda)
        level[name], below[name] = 0, -1
        for position, indices in ex.reads(node.expr):
            operand = node.operands[position]
            if operand in level:
                local = _local(batch, name, operand, indices)
                level[name] = max(level[name], level[operand] if local else below[operand] + 1)
                below[name] = max(below[name], below[operand])
                if not local:
                    crossed.add(operand)
        if name in in_memory:
            below[name] = level[name]
    # Results that nobody reads at other elements come as late as possible: they share values with the last kernel
    top = max((level[name] for name in stores), default=0)
    return {n: top if n in stores and n not in crossed else level[n] for n in level}
