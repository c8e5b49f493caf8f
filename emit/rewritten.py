"""From programs as traced to programs as kernels want them: passes over the IR, each with a dump.

A pass takes and returns Programs that mean the same. It rewrites the ranks of a class alike.
"""

from __future__ import annotations

from collections.abc import Callable

from aotato.emit import dump
from aotato.emit.factored import factored
from aotato.emit.guarded import guarded
from aotato.emit.premultiplied import premultiplied
from aotato.emit.pruned import pruned
from aotato.emit.stages import staged
from aotato.emit.tables import tables
from aotato.emit.transposed import transposed
from aotato.emit.unflattened import unflattened
from aotato.frontend import ir

PASSES: tuple[Callable[[ir.Programs], ir.Programs], ...] = (
    guarded,  # sums of terms under disjoint masks -> one term for all that are computed alike
    tables,  # gathers, reshapes, pick lists -> reads at canonical indices
    unflattened,  # arrays over joined axes -> arrays over both
    factored,  # sums over products -> partial sums
    transposed,  # constants -> constants in the order of their readers
    staged,  # long reductions -> reductions over blocks, and over the blocks
)

_PLANNED = PASSES.index(factored)
FAST = (*PASSES[:_PLANNED], premultiplied, *PASSES[_PLANNED:])  # where rounding may change (algebra=fast)

UNFUSED = (staged,)  # where every array has a kernel of its own

Passes = tuple[Callable[[ir.Programs], ir.Programs], ...]


def rewritten(programs: ir.Programs, passes: Passes = PASSES) -> ir.Programs:
    """`programs` after all passes."""
    for number, one in enumerate(passes, 1):
        programs = pruned(one(programs))
        dump.write(1, f"{programs.entry}-programs-{number}-{one.__name__}", dump.programs_text(programs))
    return programs
