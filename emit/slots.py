"""Arrays of a group in local memory: those whose lives do not meet share bytes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from aotato.emit.axes import lanes
from aotato.emit.nest import Local
from aotato.frontend import ir

# How elements lie in local memory, so that neighbouring lanes read different banks. Lanes in turn read the same place
# of their elements: an odd stride from element to element. Matrix products read 4 places of 4 elements side by side,
# in 8-byte numbers: half an odd multiple of 8. A lane alone goes through all elements in vectors: side by side.
ROWS, COLUMNS, ACROSS = "rows", "columns", "across"


def kept_dtype(dtype: ir.DType) -> ir.DType:
    """The dtype that values have in registers and local memory."""
    return np.dtype({"bool": "uint8", "float16": "float32"}.get(dtype.name, dtype.name))


def slots(
    program: ir.Program, batch: Mapping[str, int], lives: Mapping[str, tuple[int, int]], layout: str
) -> tuple[Local, ...]:
    """`lives`: the nests between whose barriers an array is first written and last read. First fit, largest first.

    `layout`: ROWS, COLUMNS or ACROSS.
    """
    taken: list[tuple[ir.DType, list[tuple[int, int]]]] = []
    found: dict[str, Local] = {}
    for local in sorted((_local(program, batch, name, layout) for name in lives), key=_largest_first(program)):
        dtype, life = kept_dtype(program.arrays[local.array].dtype), lives[local.array]
        number = next((i for i, (kind, others) in enumerate(taken) if kind == dtype and _apart(life, others)), None)
        if number is None:
            number = len(taken)
            taken.append((dtype, []))
        taken[number][1].append(life)
        found[local.array] = replace(local, slot=number)
    return tuple(found[name] for name in lives)


def _largest_first(program: ir.Program) -> Callable[[Local], tuple[int, str]]:
    return lambda local: (-bytes_of_element(program, local), local.array)


def _apart(life: tuple[int, int], others: Sequence[tuple[int, int]]) -> bool:
    return all(life[0] > last or life[1] < first for first, last in others)


def _local(program: ir.Program, batch: Mapping[str, int], name: str, layout: str) -> Local:
    inner = ir.size(tuple(program.arrays[name].shape[a] for a in lanes(program.arrays[name].shape, batch[name])))
    stride = {ROWS: inner | 1, COLUMNS: inner + (4 - inner) % 8, ACROSS: inner}[layout]
    return Local(name, batch[name], 0, stride)


def bytes_of_element(program: ir.Program, local: Local) -> int:
    """Bytes of local memory for one element of the mesh."""
    shape = program.arrays[local.array].shape
    across = lanes(shape, local.axis)
    components = ir.size(tuple(shape[a] for a in range(len(shape)) if a != local.axis and a not in across))
    return components * local.stride * kept_dtype(program.arrays[local.array].dtype).itemsize


def per_element(program: ir.Program, local: Sequence[Local]) -> int:
    """Bytes of local memory for one element of the mesh, slots shared."""
    largest: dict[int, int] = {}
    for item in local:
        largest[item.slot] = max(largest.get(item.slot, 0), bytes_of_element(program, item))
    return sum(largest.values())
