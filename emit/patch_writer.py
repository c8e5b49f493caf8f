"""Write a nest whose work-items compute patches of neighbouring results, for devices that run them one after another.

Compilers make vectors of the neighbours. Patches at the edge reach back into others, so that all are whole; each
element is stored once.
"""

from __future__ import annotations

import pymbolic.primitives as prim

from aotato.emit.groups import patches
from aotato.emit.nest_writer import NestWriter
from aotato.emit.space import Space
from aotato.frontend import expr as ex
from aotato.frontend import ir


class PatchWriter(NestWriter):
    """Adds the instructions of such a nest to `out`. `u0`, `u1` ... number the patch's elements along its axes."""

    def _space(self) -> Space:
        patch = self.out.mapping.patch
        items = ir.size(patches(self.spec.shape, patch))
        inner = {f"u{axis}": count for axis, count in patch.items() if count > 1}
        lanes, turn = self.out.mapping.lanes["l"], f"i{self.number}"
        domain = f"[g, l] -> {{ [{turn}] : 0 <= {turn} < 1 and {lanes}*g + l < {items} }}"
        return Space(frozenset({"g", "l", turn, *inner}), (domain,), None, turn, inner=inner)

    def write(self) -> None:
        number = prim.Variable("g") * self.out.mapping.lanes["l"] + prim.Variable("l")
        self.placed_all(self.out.mapping.patch, list(reversed(range(len(self.spec.shape)))), number)
        super().write()

    def element(self, axis: int, begin: ex.Expr) -> ex.Expr:
        return begin + prim.Variable(f"u{axis}") if f"u{axis}" in self.space.inner else begin
