"""What a target promises beside local memory, compared with what a rank needs: arguments, sizes of allocations."""

from __future__ import annotations

from collections.abc import Sequence

from aotato.emit.draft import argument_bytes
from aotato.emit.layout import Layout
from aotato.emit.nest import Kernel
from aotato.emit.sharing import Source
from aotato.emit.target import Target, TargetError
from aotato.frontend import ir


def check(program: ir.Program, target: Target, kernels: Sequence[Kernel], sources: Sequence[Source]) -> None:
    """Raise TargetError for a launch that needs more bytes of arguments than the target promises."""
    for kernel, source in zip(kernels, sources, strict=True):
        needed = argument_bytes(source.arguments, [dtype for dtype, _ in source.parameters])
        if needed > target.parameter_bytes:
            name = kernel.writes[0]
            raise TargetError(
                f"rank {program.rank}: {_named(program, name)} is computed from {len(kernel.reads)} arrays "
                f"at once{_line(program, name)}, which takes {needed} bytes of kernel parameters, but target "
                f"{target.name!r} has {target.parameter_bytes}; combine fewer arrays in one operation"
            )


def check_memory(program: ir.Program, target: Target, layout: Layout, temporaries: int) -> None:
    """Raise TargetError for an array that needs more memory in one piece than the target promises.

    `temporaries`: bytes of all that share one allocation.
    """
    most = target.largest_allocation
    for buffer in layout.buffers:
        if buffer.nbytes > most:
            name = _largest(program, layout, buffer.name)
            node = program.arrays[name]
            raise TargetError(
                f"rank {program.rank}: {_named(program, name)} is {ir.type_text(node)}{_line(program, name)} and needs "
                f"{buffer.nbytes} bytes, but target {target.name!r} has at most {most} in one allocation; "
                "use more ranks"
            )
    if temporaries > most:
        raise TargetError(
            f"rank {program.rank}: the temporaries of entry {program.entry!r} need {temporaries} bytes together, but "
            f"target {target.name!r} has at most {most} in one allocation; use more ranks"
        )


def _largest(program: ir.Program, layout: Layout, buffer: str) -> str:
    """Of the arrays that lie in a buffer."""
    names = [name for name, place in layout.home.items() if place.buffer == buffer]
    names += [name for (_, name), places in layout.packed.items() for place in places if place.buffer == buffer]
    return max(names, key=lambda name: ir.nbytes(program.arrays[name]))


def _named(program: ir.Program, name: str) -> str:
    """The array as its user knows it."""
    node = program.arrays[name]
    if isinstance(node, ir.Input):
        return f"input {node.path!r}"
    path = next((output.path for output in program.outputs if output.array == name), None)
    return f"{'constant' if isinstance(node, ir.Const) else 'array'} {name!r}" if path is None else f"output {path!r}"


def _line(program: ir.Program, name: str) -> str:
    """The user's line that made or sends the array, where it is known."""
    lines = [getattr(program.arrays[name], "where", None), *(s.where for s in program.sends if s.array == name)]
    return next((f" ({where})" for where in lines if where), "")
