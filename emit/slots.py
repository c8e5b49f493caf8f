"""Arrays of a group in local memory: those whose lives do not meet share bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from aotato.emit.axes import lanes
from aotato.emit.nest import Local
from aotato.frontend import ir


def kept_dtype(dtype: ir.DType) -> ir.DType:
    """The dtype that values have in registers and local memory."""
    return np.dtype({"bool": "uint8", "float16": "float32"}.get(dtype.name, dtype.name))


def slots(
    program: ir.Program, batch: Mapping[str, int], lives: Mapping[str, tuple[int, int]]
) -> tuple[Local, ...]:
    """`lives`: the nests between whose barriers an array is first written and last read. First fit, largest first."""
    taken: list[tuple[ir.DType, list[tuple[int, int]]]] = []
    found: dict[str, Local] = {}
    for name in sorted(lives, key=lambda n: (-bytes_of_element(program, batch, n), n)):
        dtype, life = kept_dtype(program.arrays[name].dtype), lives[name]
        number = next((i for i, (kind, others) in enumerate(taken) if kind == dtype and _apart(life, others)), None)
        if number is None:
            number = len(taken)
            taken.append((dtype, []))
        taken[number][1].append(life)
        found[name] = Local(name, batch[name], number, stride(program, batch, name))
    return tuple(found[name] for name in lives)


def _apart(life: tuple[int, int], others: Sequence[tuple[int, int]]) -> bool:
    return all(life[0] > last or life[1] < first for first, last in others)


def stride(program: ir.Program, batch: Mapping[str, int], name: str) -> int:
    """Elements of the array from one element of the mesh to the next: odd, so that they lie in different banks."""
    shape = program.arrays[name].shape
    return ir.size(tuple(shape[a] for a in lanes(shape, batch[name]))) | 1


def bytes_of_element(program: ir.Program, batch: Mapping[str, int], name: str) -> int:
    """Bytes of local memory for one element of the mesh."""
    shape, axis = program.arrays[name].shape, batch[name]
    across = lanes(shape, axis)
    components = ir.size(tuple(shape[a] for a in range(len(shape)) if a != axis and a not in across))
    return components * stride(program, batch, name) * kept_dtype(program.arrays[name].dtype).itemsize


def per_element(program: ir.Program, batch: Mapping[str, int], local: Sequence[Local]) -> int:
    """Bytes of local memory for one element of the mesh, slots shared."""
    largest: dict[int, int] = {}
    for item in local:
        largest[item.slot] = max(largest.get(item.slot, 0), bytes_of_element(program, batch, item.array))
    return sum(largest.values())
