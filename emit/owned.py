"""Give carried outputs memory of their own where they would otherwise lie in a message or a collective's buffer.

Such a buffer is filled anew while the next call still reads the carried value. The copy is counted as one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection

from aotato.frontend import expr as ex
from aotato.frontend import ir


def owned(programs: ir.Programs, carried: Collection[str]) -> ir.Programs:
    """`programs` with every output in `carried` that is a received or reduced array copied into a new array."""
    return dataclasses.replace(programs, ranks=tuple(_owned(program, carried) for program in programs.ranks))


def _owned(program: ir.Program, carried: Collection[str]) -> ir.Program:
    arrays = dict(program.arrays)
    copies: dict[str, str] = {}
    for output in program.outputs:
        node = arrays[output.array]
        shared = isinstance(node, ir.Recv) or (isinstance(node, ir.Allreduce) and node.shape)
        if output.path in carried and shared and output.array not in copies:
            copy = ir.Lambda(ex.read(0, ex.own_index(len(node.shape))), (output.array,), node.shape, node.dtype)
            copies[output.array] = f"{output.array}_carried"
            arrays[copies[output.array]] = copy
    outputs = tuple(
        dataclasses.replace(o, array=copies.get(o.array, o.array)) if o.path in carried else o
        for o in program.outputs
    )
    return dataclasses.replace(program, arrays=arrays, outputs=outputs)
