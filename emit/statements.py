"""Write the values of a nest as statements.

A value used once is written where it is used; a value that does not depend on a loop stands outside it; every
reduction is an accumulation of its own.
"""

from __future__ import annotations

import pymbolic.primitives as prim

from aotato.emit.nest import Accumulate, Assign, Loop, Nest, Statement, Store, is_local
from aotato.emit.values import Value, Values, variables
from aotato.frontend import expr as ex

FEW_SUMS = 3  # reductions that an expression may use and still be written where it is used
DEEPEST = 24  # nesting of an expression that is still written in one piece; compilers bound it (clang: 256)


def statements(values: Values, stores: tuple[Store, ...]) -> Nest:
    """The nest of all values that the stores need, in order."""
    return _Writer(values).nest(stores)


class _Writer:
    """Turns values into statements; a value used once, in the same loops, is substituted instead."""

    def __init__(self, b: Values) -> None:
        self.b = b
        self.inline: dict[str, ex.Expr] = {}
        self.loops: dict[str, Loop] = {}
        self.statements: list[Statement] = []

    def nest(self, stores: tuple[Store, ...]) -> Nest:
        # Outer reductions were numbered before the ones inside them
        reductions = [value for value in self.b.values.values() if value.reduce is not None]
        for value in sorted(reductions, key=lambda v: _nesting(v.reduce)):
            assert value.reduce is not None
            self._declare(value, value.reduce)
        used_in = self._users(stores)
        for value in self.b.values.values():
            if value.name not in used_in:
                continue  # only an empty reduction would have used it
            if value.reduce is not None:
                self._accumulate(value, value.reduce)
            else:
                self._assign(value, used_in)
        done = tuple(Store(store.array, store.indices, self._written(store.expr)) for store in stores)
        loops = tuple(dict.fromkeys(self.loops.values()))
        return Nest(self.b.shape, loops, tuple(self.statements), done)

    def _assign(self, value: Value, used_in: dict[str, tuple[str, ...]]) -> None:
        expr, loops = self._written(value.expr), self._closed(value.free)
        once = value.uses == 1 and used_in[value.name] == loops and _depth(expr) <= DEEPEST
        if self._is_copy(value, expr, loops) or (once and self._sums(expr) < FEW_SUMS):
            self.inline[value.name] = expr
        else:
            self.statements.append(Assign(value.name, value.dtype, expr, loops))

    def _is_copy(self, value: Value, expr: ex.Expr, loops: tuple[str, ...]) -> bool:
        if not isinstance(expr, prim.Variable) or expr.name not in self.b.values:
            return False
        original = self.b.values[expr.name]
        return original.dtype == value.dtype and self._closed(original.free) == loops

    def _sums(self, expr: ex.Expr) -> int:
        """How many reductions' results are in `expr`: taken together early, they free registers for others."""
        names = set(variables(expr))
        return sum(1 for name in names if name in self.b.values and self.b.values[name].reduce is not None)

    def _users(self, stores: tuple[Store, ...]) -> dict[str, tuple[str, ...]]:
        """The loops around the last user of each value."""
        found: dict[str, tuple[str, ...]] = {}
        for value in self.b.values.values():
            own = {name for name, _, _ in value.reduce.bounds} if value.reduce else set()
            inside = self._closed(value.free | own)
            for name in variables(value.expr):
                found[name] = inside
        for store in stores:
            for name in variables(store.expr):
                found[name] = ()
        return found

    def _declare(self, value: Value, reduce: ex.Reduce) -> None:
        """The loops of a reduction, each inside the one before, inside those it depends on."""
        parents = self._closed(value.free)
        for name, lower, upper in reduce.bounds:
            self.loops[name] = Loop(name, lower, upper, parents)
            parents = (*parents, name)

    def _closed(self, free: frozenset[str]) -> tuple[str, ...]:
        """The loops that must stand around something that depends on the indices `free`, outermost first."""
        found: list[str] = []

        def add(name: str) -> None:
            loop = self.loops[name]
            for parent in loop.parents:
                add(parent)
            if loop.name not in found:
                found.append(loop.name)

        for name in sorted(free):
            add(name)
        return tuple(found)

    def _written(self, expr: ex.Expr) -> ex.Expr:
        return ex.substitute(expr, self.inline)

    def _accumulate(self, value: Value, reduce: ex.Reduce) -> None:
        """Innermost axis first: each axis accumulates the result of the one inside it."""
        expr = self._written(value.expr)
        outer = self._closed(value.free)
        names = [name for name, _, _ in reduce.bounds]
        for depth in reversed(range(len(names))):
            last = depth == 0
            name = value.name if last else f"{value.name}_{depth}"
            inside = (*outer, *names[:depth])
            self.statements.append(Accumulate(name, value.dtype, reduce.op, expr, names[depth], inside))
            expr = prim.Variable(name)


def arrays_read(nest: Nest) -> list[str]:
    """Arrays in memory that the nest reads, in order of first appearance."""
    found: dict[str, None] = {}
    for item in (*nest.statements, *nest.stores):
        for node in ex.walk(item.expr):
            if isinstance(node, prim.Subscript) and not is_local(node.aggregate.name):
                found[node.aggregate.name] = None
    return list(found)


def _nesting(reduce: ex.Reduce | None) -> tuple[int, str]:
    """Outer reductions before those inside them: a loop's name begins with the number of loops around it."""
    assert reduce is not None
    name = reduce.bounds[0][0]
    return int(name[1:].partition("_")[0]), name


def _depth(expr: ex.Expr) -> int:
    return 1 + max((_depth(child) for child in ex.children(expr)), default=0)
