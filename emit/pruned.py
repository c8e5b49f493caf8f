"""Programs without Lambdas and constants that nothing needs; what others see of them stays."""

from __future__ import annotations

import dataclasses

from aotato.frontend import ir


def pruned(programs: ir.Programs) -> ir.Programs:
    """`programs` without Lambdas and constants that nothing needs."""
    return dataclasses.replace(programs, ranks=tuple(map(_pruned, programs.ranks)))


def _pruned(program: ir.Program) -> ir.Program:
    needed = {output.array for output in program.outputs} | {send.array for send in program.sends}
    for name in reversed(list(program.arrays)):
        node = program.arrays[name]
        # Inputs are part of the signature, receives and allreduces have other ends
        if name in needed or isinstance(node, ir.Input | ir.Recv | ir.Allreduce):
            needed |= {name, *ir.operands(node)}
    arrays = {name: node for name, node in program.arrays.items() if name in needed}
    digests = {node.digest for node in arrays.values() if isinstance(node, ir.Const)}
    constants = {key: data for key, data in program.constants.items() if key in digests}
    return dataclasses.replace(program, arrays=arrays, constants=constants)
