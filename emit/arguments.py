"""Kernels with few enough arguments for a target: results go to several kernels, arrays in between are stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from aotato.emit.draft import POINTER
from aotato.emit.nest import Kernel
from aotato.frontend import ir

Places = Mapping[str, int]  # array -> places in messages and reductions that it is written to


def read(program: ir.Program, name: str) -> int:
    """Bytes at most: a scalar is passed by value, or is in memory as all else."""
    node = program.arrays[name]
    return POINTER if node.shape else max(POINTER, node.dtype.itemsize)


def written(name: str, places: Places) -> int:
    """Bytes at most: beside the places, memory of its own."""
    return POINTER * (1 + places.get(name, 0))


def fits(program: ir.Program, kernel: Kernel, places: Places, limit: int) -> bool:
    needed = sum(read(program, name) for name in kernel.reads) + sum(written(name, places) for name in kernel.writes)
    return needed <= limit


def split(
    names: tuple[str, ...], made: Callable[[tuple[str, ...]], Sequence[Kernel] | None], fit: Callable[[Kernel], bool]
) -> list[Kernel] | None:
    """The kernels that `made` makes for arrays, or for halves of them; None where it makes none.

    What one array needs is not split here: arrays in between must have been stored.
    """
    kernels = made(names)
    if kernels is None or len(names) == 1 or all(map(fit, kernels)):
        return None if kernels is None else list(kernels)
    half = len(names) // 2
    first, second = (split(part, made, fit) for part in (names[:half], names[half:]))
    return None if first is None or second is None else first + second


def between(program: ir.Program, known: set[str], name: str, reads: dict[str, frozenset[str]], limit: int) -> set[str]:
    """Operands of an array to store so that it is computed from few enough arrays; sets its entry of `reads`.

    `reads`: arrays in memory that an array not in `known` is computed from; others are in memory themselves.
    """
    operands, chosen = tuple(dict.fromkeys(ir.operands(program.arrays[name]))), set[str]()

    def below(operand: str) -> frozenset[str]:
        return frozenset({operand}) if operand in known | chosen else reads.get(operand, frozenset({operand}))

    while True:
        found = frozenset[str]().union(*map(below, operands))
        largest = max(operands, key=lambda operand: len(below(operand)), default=None)
        if largest is None or sum(read(program, one) for one in found) <= limit or len(below(largest)) < 2:
            reads[name] = found
            return chosen
        chosen.add(largest)
