"""Write one nest for loopy: its inames carry the nest's number, its values too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import loopy as lp
import pymbolic.primitives as prim
from loopy.symbolic import SubstitutionMapper
from pymbolic.mapper.substitutor import make_subst_func

from aotato.emit import group_sums, space
from aotato.emit.nest import Accumulate, Assign, Loop, Nest, Store
from aotato.emit.scalars import Scalars
from aotato.frontend import expr as ex
from aotato.frontend import ir

MOST_UNROLLED = 1500  # terms of a nest that are written out where its loop over elements becomes vectors
# Terms of a sum over a block's elements that compilers are asked to write out: more take registers, which divisions
# need too
UNROLLED = 10
LONGEST_SUM = 64  # terms added in sequence before partial sums are joined: rounding stays near that of a tree


class NestWriter:
    """Adds the instructions of a nest to `out`, a kernel's writer."""

    part = ""  # in names, where a nest is written for several elements of a lane

    def __init__(self, out: Any, nest: Nest, program: ir.Program, number: int) -> None:
        self.out, self.spec, self.program, self.number = out, nest, program, number
        self.space = self._space()
        self.written: dict[str, frozenset[str]] = {}  # value -> instructions that complete it
        self.loops: dict[str, tuple[str, ...]] = {}  # loop -> itself and what it was split into, outermost first
        self.cells: dict[str, ex.Expr] = {}  # values that are no temporaries of their own name
        self.once = self.space.once
        self.scalars = Scalars(self, out, program)

    def _space(self) -> space.Space:
        lanes = self.out.mapping.lanes["l"]
        if self.out.block is not None and self.out.block.across:
            return space.across(self.spec, self.number, self.out.block)
        if self.out.block is not None:
            return space.in_block(self.spec, self.number, lanes, self.out.block)
        if self.out.mapping.share is not None:
            return space.shared(self.spec, self.out.mapping.share)
        return space.flat(self.spec, self.number, lanes)

    @property
    def position(self) -> ex.Expr:
        """The flat number of the lane's element."""
        if self.space.last is None:
            return self.space.position
        return self.scalars.least(self.space.position, self.space.last)

    def write(self) -> None:
        self.out.domains.extend(self.space.domains)
        if self.out.block is not None and self.out.block.across:
            self.out.priorities.append((self.space.turn, self.space.element.name))
        shared = {s.loop for s in self.spec.statements if isinstance(s, Accumulate) and s.grouped}
        # Loops over the lanes' shares first: loopy looks for the domain of the lane directly above theirs
        for loop in sorted(self.spec.loops, key=lambda loop: loop.name not in shared):
            self._split(loop, loop.name in shared)
        late = _late(self.spec) if self.out.block is not None else frozenset()
        sums: set[str] = set()
        for statement in self.spec.statements:
            if isinstance(statement, Assign):
                self._assign(statement, frozenset(sums) if statement.name in late else frozenset())
            else:
                self._accumulate(statement)
                sums |= self.written[statement.name] if not statement.loops else set()
        for index, store in enumerate(self.spec.stores):
            self._store(index, store)

    def name(self, value: str) -> str:
        return f"n{self.number}_{value}"

    def instruct(
        self,
        target: ex.Expr,
        expr: ex.Expr,
        loops: tuple[str, ...],
        after: frozenset[str],
        predicate: Any = None,
        before_slot: frozenset[str] = frozenset(),
    ) -> str:
        """`after`: instructions whose results it needs; `before_slot`: those that use what it overwrites."""
        inames = self.space.inames | self._inames(loops)
        if self.space.inner:
            # loopy enters a loop at one place only: every instruction has loops over the lane's elements of its own
            fresh = {name: f"{name}_{len(self.out.instructions)}" for name in self.space.inner}
            self.unrolled({fresh[name]: count for name, count in self.space.inner.items()})
            exchange = SubstitutionMapper(make_subst_func({old: prim.Variable(new) for old, new in fresh.items()}))
            target, expr = exchange(target), exchange(expr)
            predicate = predicate if predicate is None else exchange(predicate)
            inames = inames - set(fresh) | set(fresh.values())
        return self.outside(target, expr, inames, after, predicate, before_slot)

    def placed_all(self, sizes: Mapping[int, int], order: Sequence[int], number: ex.Expr) -> None:
        """Own indices from the `number` of a piece, of `sizes` along some axes; `order`: axes, fastest first."""
        shape, once = self.spec.shape, []
        left = math.prod(-(-shape[axis] // sizes.get(axis, 1)) for axis in order)
        for axis in order:
            size = sizes.get(axis, 1)
            count = -(-shape[axis] // size)
            own = number if left == count else prim.Remainder(number, count)
            begin, first = self.placed(axis, own if count > 1 else 0, size)
            number, left = prim.FloorDiv(number, count) if count > 1 else number, left // count
            mine = self.element(axis, begin)
            self.scalars.places[axis] = (mine, self.scalars.places[axis][1])
            once += [prim.Comparison(mine, ">=", first)] if first is not None else []
        self.once = prim.LogicalAnd(tuple(once)) if len(once) > 1 else once[0] if once else None

    def element(self, axis: int, begin: ex.Expr) -> ex.Expr:
        """The lane's element along an axis of a piece that begins at `begin`."""
        return begin

    def unrolled(self, counts: Mapping[str, int]) -> None:
        """Loops that are written out."""
        for name, count in counts.items():
            self.out.loop_domains.append(f"[] -> {{ [{name}] : 0 <= {name} < {count} }}")
            self.out.tags[name] = "unr"

    def outside(
        self,
        target: ex.Expr,
        expr: ex.Expr,
        inames: frozenset[str],
        after: frozenset[str],
        predicate: Any = None,
        before_slot: frozenset[str] = frozenset(),
    ) -> str:
        """An instruction inside `inames` only."""
        ident = f"i{len(self.out.instructions)}"
        for array, written in self.out.local_written.items():
            if array in self.out.local and not written.isdisjoint(after):
                self.out.use_slot(array, ident)
        self.out.instructions.append(
            lp.Assignment(
                target,
                expr,
                id=ident,
                within_inames=inames,
                within_inames_is_final=True,
                depends_on=after | before_slot,
                predicates=frozenset({predicate}) if predicate is not None else frozenset(),
            )
        )
        return ident

    def placed(self, axis: int, number: ex.Expr, size: int) -> tuple[ex.Expr, ex.Expr]:
        """Where piece `number` of an axis cut into pieces of `size` begins, in a variable of its own.

        The last piece reaches back into the one before; also the condition under which an index is not in that.
        """
        name = self.name(f"x{axis}")
        self.out.temporaries.append(lp.TemporaryVariable(name, self.out.index_dtype, shape=()))
        inames = self.space.inames - set(self.space.inner)
        extent = self.spec.shape[axis]
        first = prim.Product((size, number)) if size > 1 else number
        begin = self.scalars.least(first, extent - size) if extent % size else first
        ident = self.outside(prim.Variable(name), begin, inames, frozenset())
        self.scalars.places[axis] = (prim.Variable(name), frozenset({ident}))
        return prim.Variable(name), first if extent % size else None

    def _inames(self, loops: tuple[str, ...]) -> frozenset[str]:
        return frozenset(iname for loop in loops for iname in self.loops.get(loop, (loop,)))

    def declare(self, name: str, dtype: Any, **more: Any) -> None:
        """A temporary that every element of the lane has for itself."""
        shape = tuple(self.space.inner.values())
        self.out.temporaries.append(lp.TemporaryVariable(name, dtype, **{"shape": shape, **more}))

    def cell(self, name: str) -> ex.Expr:
        """The element's own part of such a temporary."""
        inner = tuple(map(prim.Variable, self.space.inner))
        return prim.Subscript(prim.Variable(name), inner) if inner else prim.Variable(name)

    def _assign(self, statement: Assign, before: frozenset[str] = frozenset()) -> None:
        """`before`: what comes first although the value does not need it."""
        expr, after = self.scalars.written(statement.expr)
        name = self.name(statement.name)
        self.declare(name, self.scalars.value_dtype(statement.dtype))
        self.written[statement.name] = frozenset(
            {self.instruct(self.cell(name), expr, statement.loops, after | before)}
        )
        self.scalars.dtypes[statement.name] = statement.dtype

    def _accumulate(self, statement: Accumulate) -> None:
        """Every split piece of the loop has an accumulator of its own."""
        self.scalars.dtypes[statement.name] = statement.dtype
        if statement.grouped:
            group_sums.accumulated(self, statement)
        else:
            self.sum_pieces(statement, self.name(statement.name), self.loops[statement.loop])

    def _split(self, loop: Loop, shared: bool) -> None:
        """Run over the loop with nested inames of at most LONGEST_SUM values; their weighted sum replaces its index.

        Partial sums then have at most LONGEST_SUM terms. Lanes that share a loop go through it side by side.
        """
        extent = loop.upper - loop.lower
        lanes = self.out.mapping.lanes["l"] if shared else 1
        weights = [lanes]  # of the inames, outermost first
        while -(-extent // weights[0]) > LONGEST_SUM:
            weights.insert(0, weights[0] * LONGEST_SUM)
        names = tuple(f"{self.name(loop.name)}_{depth}" for depth in reversed(range(len(weights))))
        lane = ["l"] if shared else []
        # Each iname has a domain of its own, which names all parameters of those inside it
        for depth, iname in enumerate(names):
            reached = " + ".join([*(f"{w}*{n}" for w, n in zip(weights, names[: depth + 1], strict=False)), *lane])
            most = f"{iname} < {LONGEST_SUM} and " if depth else ""
            outside = ", ".join([*lane, *names[:depth]])
            bounds = f"0 <= {iname} and {most}{reached} < {extent}"
            self.out.loop_domains.append(f"[{outside}] -> {{ [{iname}] : {bounds} }}")
            if self.out.block is not None and self.out.block.across and _terms(self.spec) <= MOST_UNROLLED:
                # Compilers make vectors of elements where no loop stands inside theirs
                self.out.tags[iname] = "unr"
            elif self.out.block is not None and self.out.target.lockstep and not self.out.target.approximate:
                self.out.tags[iname] = f"unr_hint.{UNROLLED}"
        outer = (*filter(None, (self.space.turn,)), *(i for parent in loop.parents for i in self.loops[parent]))
        self.loops[loop.name] = names
        if len(outer) + len(names) > 1:
            self.out.priorities.append((*outer, *names))
        terms = [prim.Variable(n) if w == 1 else prim.Product((w, prim.Variable(n)))
                 for w, n in zip(weights, names, strict=True)]
        terms += [prim.Variable("l")] if shared else []
        terms += [loop.lower] if loop.lower else []
        self.scalars.indices[loop.name] = terms[0] if len(terms) == 1 else prim.Sum(tuple(terms))

    def sum_pieces(self, statement: Accumulate, result: str, pieces: tuple[str, ...]) -> None:
        """One accumulator a piece, outermost last: `s += t` closes the loop inside."""
        expr, after = self.scalars.written(statement.expr)
        dtype = self.scalars.value_dtype(statement.dtype)
        names = [result if depth == 0 else f"{result}_{pieces[depth]}" for depth in range(len(pieces))]
        around = self._flat(statement.loops)
        done: frozenset[str] = frozenset()
        start: list[str] = []
        for depth, name in enumerate(names):
            self.declare(name, dtype)
            neutral = self.scalars.neutral(statement.op, statement.dtype)
            start.append(self.instruct(self.cell(name), neutral, (*around, *pieces[:depth]), frozenset()))
        for depth in reversed(range(len(pieces))):
            term = expr if depth == len(pieces) - 1 else self.cell(names[depth + 1])
            joined = self.scalars.join(statement.op, statement.dtype, self.cell(names[depth]), term)
            before = after | done | {start[depth]}
            done = frozenset(
                {self.instruct(self.cell(names[depth]), joined, (*around, *pieces[: depth + 1]), before)}
            )
        self.written[statement.name] = done | {start[0]}

    def _flat(self, loops: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(iname for loop in loops for iname in self.loops[loop])

    def _store(self, index: int, store: Store) -> None:
        expr, after = self.scalars.written(store.expr)
        places = self.out.arguments.write_at.get(store.array, ())
        dtype = self.program.arrays[store.array].dtype
        in_local = store.array in self.out.local_written
        if len(places) + in_local > 1 and not ex.is_leaf(expr):
            name = f"n{self.number}_s{index}"
            self.declare(name, self.scalars.value_dtype(dtype))
            after = frozenset({self.instruct(self.cell(name), expr, (), after)})
            expr = self.cell(name)
        if in_local:
            self._store_here(store, expr, after)
        before: set[str] = set()
        position = self.scalars.flat(self.program.arrays[store.array].shape, store.indices, before)
        after |= before
        for place in places:
            argument, offset = self.out.arguments.written(place, dtype)
            flat = position + offset if offset else position
            target = prim.Subscript(prim.Variable(argument), (flat,))
            self.instruct(target, self.scalars.stored(expr, dtype), (), after, self.once)

    def _store_here(self, store: Store, expr: ex.Expr, after: frozenset[str]) -> None:
        """Into local memory, or registers that a later nest of the same index space reads."""
        if store.array in self.out.local:
            before: set[str] = set()
            cell = self.scalars.local_cell(store.array, store.indices, before)
            ident = self.instruct(cell, expr, (), after | before, None, self.out.before_slot(store.array))
            self.out.use_slot(store.array, ident)
        else:
            name = self.out.kept.setdefault((store.array, store.indices, self.part), f"k{len(self.out.kept)}")
            assert self.space.work <= self.out.mapping.lanes["l"], "a work-item keeps the elements of one turn only"
            self.declare(name, self.scalars.value_dtype(self.program.arrays[store.array].dtype))
            ident = self.instruct(self.cell(name), expr, (), after)
        self.out.local_written[store.array].add(ident)


def _late(nest: Nest) -> frozenset[str]:
    """Values that no loop needs: loaded before the loops, they would occupy registers there."""
    needed: set[str] = set()
    found = set()
    for statement in reversed(nest.statements):
        looped = isinstance(statement, Accumulate) or bool(statement.loops)
        if looped or statement.name in needed:
            needed |= {node.name for node in ex.walk(statement.expr) if isinstance(node, prim.Variable)}
        if not looped and statement.name not in needed:
            found.add(statement.name)
    return frozenset(found)


def _terms(nest: Nest) -> int:
    """Of all sums of an element of the nest."""
    extents = {loop.name: loop.upper - loop.lower for loop in nest.loops}
    sums = (statement for statement in nest.statements if isinstance(statement, Accumulate))
    return sum(math.prod(extents[name] for name in (*one.loops, one.loop)) for one in sums)
