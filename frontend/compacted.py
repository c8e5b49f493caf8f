"""Programs without what nothing needs, their arrays numbered anew."""

from __future__ import annotations

import dataclasses

from aotato.frontend import ir


def compacted(program: ir.Program) -> ir.Program:
    """Only what outputs and sends need, numbered anew: what a DAG binds and never reads leaves no trace."""
    needed = {output.array for output in program.outputs} | {send.array for send in program.sends}
    for name in reversed(list(program.arrays)):
        if name in needed:
            needed.update(ir.operands(program.arrays[name]))
    new = {old: f"v{i}" for i, old in enumerate(name for name in program.arrays if name in needed)}
    arrays = {new[name]: ir.renamed(program.arrays[name], new) for name in new}
    digests = {node.digest for node in arrays.values() if isinstance(node, ir.Const)}
    called = {node.kernel for node in arrays.values() if isinstance(node, ir.LoopyCall)}
    return ir.Program(
        program.entry,
        program.rank,
        arrays,
        tuple(dataclasses.replace(send, array=new[send.array]) for send in program.sends),
        tuple(dataclasses.replace(output, array=new[output.array]) for output in program.outputs),
        {key: array for key, array in program.constants.items() if key in digests},
        {key: kernel for key, kernel in program.kernels.items() if key in called},
    )
