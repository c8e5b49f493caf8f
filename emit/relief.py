"""Kernels over blocks whose arrays do not fit local memory: which of these are stored, so that the rest fits.

What an earlier kernel can store costs its bytes and no launch: such arrays go first, one by one. Where there are none,
what the results read last has a kernel of its own before theirs.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping

from aotato.emit.levels import Overflow, PartPlan
from aotato.emit.phases import planned
from aotato.frontend import ir


def relieved(program: ir.Program, batch: Mapping[str, int], plan: PartPlan, over: Overflow) -> PartPlan | None:
    """`plan` with more arrays in memory; None if `over` has none in local memory that could be stored."""
    phases = planned(program, batch, over.names, over.ready, staging=False)
    spare = [name for name in program.arrays if name in phases.phases and name not in over.names]
    earlier = [name for name in spare if plan.level[name] < over.level]
    if earlier:
        # Of equal ones the last: what it is computed from is then needed no more
        largest = max(reversed(earlier), key=lambda name: ir.nbytes(program.arrays[name]))
        return _storing(program, plan, [largest])
    if not spare:
        return None
    top = max(phases.level[name] for name in spare)
    last = [name for name in spare if phases.level[name] == top]
    # Room for a level in between
    level = {name: 2 * number + 1 for name, number in plan.level.items()} | dict.fromkeys(last, 2 * over.level)
    return _storing(program, dataclasses.replace(plan, level=level), last)


def _storing(program: ir.Program, plan: PartPlan, more: Iterable[str]) -> PartPlan:
    stored = {*plan.materialised, *more}
    return dataclasses.replace(plan, materialised=tuple(name for name in program.arrays if name in stored))
