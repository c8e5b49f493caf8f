"""Write a nest of matrix sums: 32 lanes compute 8 nodes of 8 elements, each lane two elements of one node."""

from __future__ import annotations

from typing import Any

import pymbolic.primitives as prim

from aotato.emit import fragments, space
from aotato.emit.nest import Accumulate, Assign, Block, Loop, Nest
from aotato.emit.nest_writer import NestWriter
from aotato.emit.scalars import Scalars
from aotato.emit.small_matrices import MatrixSum, matrix_sums
from aotato.frontend import expr as ex
from aotato.frontend import ir

_STEP = "s"
MOST_TOGETHER = 16  # sums of a lane's two elements; more would not leave registers for anything else


class _View:
    """The nest as `Scalars` sees it when it writes indices for other elements or nodes than the lane's own."""

    def __init__(self, writer: FragmentWriter, part: str, own: space.Space) -> None:
        self.writer, self.spec, self.space, self.part = writer, writer.spec, own, f"{writer.number}{part}"
        self.written: dict[str, frozenset[str]] = {}
        self.declare, self.instruct = writer.declare, writer.instruct

    def name(self, value: str) -> str:
        return f"n{self.part}_{value}"


class FragmentWriter(NestWriter):
    """The sums once for both elements of a lane, all else for one after the other."""

    def __init__(self, out: Any, nest: Nest, program: ir.Program, number: int) -> None:
        self.part = ""
        super().__init__(out, nest, program, number)
        found = matrix_sums(nest)
        assert found is not None
        self.sums = {one.name: one for one in found}
        self.group = _groups(found)
        self.summed = _summed(nest)
        self.closed: dict[str, frozenset[str]] = {}  # sum -> instructions that complete it
        self.fragments: dict[Any, tuple[ex.Expr, frozenset[str]]] = {}  # numbers loaded, and the loading instruction
        spaces = {"m": self.space, "b": space.column(*self._where()), "x": self.space, "y": self._space(1)}
        self.views = {part: Scalars(_View(self, part, own), out, program) for part, own in spaces.items()}

    def _space(self, copy: int = 0) -> space.Space:
        return space.matrix(*self._where(), copy)

    def _where(self) -> tuple[Nest, int, int, Block]:
        return self.spec, self.number, self.out.mapping.lanes["l"], self.out.block

    def name(self, value: str) -> str:
        return f"n{self.number}{self.part}_{value}"

    def write(self) -> None:
        self.out.domains.extend(self.space.domains)
        for loop in self.spec.loops:
            if not any(one.loop == loop for one in self.sums.values()):
                self._split(loop, False)
        for loop, group in dict.fromkeys((one.loop, self.group[one.name]) for one in self.sums.values()):
            self._tile_loop(loop, group)
        sums = [statement for statement in self.spec.statements if isinstance(statement, Accumulate)]
        for one in sorted(sums, key=lambda s: self.group.get(s.name, 0)):
            self._sum(one)
        for copy in (0, 1):
            self._begin(f"_{copy}", self._space(copy))
            for statement in self.spec.statements:
                if isinstance(statement, Assign):
                    late = statement.name not in self.summed
                    self._assign(statement, frozenset(i for done in self.closed.values() for i in done if late))
                elif not statement.loops:
                    self._take(statement, copy)
            for index, store in enumerate(self.spec.stores):
                self._store(index, store)

    def _begin(self, part: str, own: space.Space) -> None:
        """From here on, indices of the nest are those of `own`, and values have names of their own."""
        self.part, self.space, self.written = part, own, {}
        self.scalars = Scalars(self, self.out, self.program)

    def _tile_loop(self, loop: Loop, group: int) -> None:
        """A loop over tiles of terms, and one inside over the terms that a lane takes of a tile."""
        name = f"n{self.number}_{loop.name}_{group}"
        tiles = -(-(loop.upper - loop.lower) // fragments.TERMS)
        inames = (name, name + _STEP)
        for iname, extent in zip(inames, (tiles, fragments.TERMS), strict=True):
            self.out.loop_domains.append(f"{{ [{iname}] : 0 <= {iname} < {extent} }}")
        self.loops[_key(loop, group)] = inames
        self.out.tags[name + _STEP] = "unr"
        outer = (i for parent in loop.parents for i in self.loops[parent])
        self.out.priorities.append((self.space.turn, *outer, *inames))

    def _sum(self, statement: Accumulate) -> None:
        """Into a pair `c_name`; loops around it close their pairs after it."""
        pair = prim.Variable(f"n{self.number}_c{statement.name}")
        self.declare(pair.name, fragments.PAIR)
        earlier = frozenset(i for name, done in self.closed.items() for i in done
                            if self.group.get(name, 0) < self.group.get(statement.name, 0))
        start = self.instruct(pair, self._call(fragments.nothing()), statement.loops, earlier)
        if statement.name in self.sums:
            done = self._tile(self.sums[statement.name], pair, start)
        else:
            inner = prim.Variable(f"n{self.number}_c{statement.expr.name}")
            total = self._call(fragments.added(), pair, inner)
            inside = (*statement.loops, statement.loop)
            done = self.instruct(pair, total, inside, self.closed[statement.expr.name] | {start})
        self.closed[statement.name] = frozenset({start, done})

    def _tile(self, one: MatrixSum, pair: ex.Expr, start: str) -> str:
        loop = _key(one.loop, self.group[one.name])
        inside = (*self._flat(one.loops), *self.loops[loop])
        numbers: list[ex.Expr] = []
        after = {start}
        for part, expr in (("m", one.matrix), ("b", one.column), ("x", one.column), ("y", one.column)):
            value, loaded = self._loaded(part, expr, one, inside)
            numbers.append(value)
            after |= loaded
        total = self._call(fragments.product(), pair, *numbers, prim.Variable(inside[-1]))
        return self.instruct(pair, total, (*one.loops, loop), frozenset(after))

    def _loaded(
        self, part: str, expr: Any, one: MatrixSum, inside: tuple[str, ...]
    ) -> tuple[ex.Expr, frozenset[str]]:
        """The lane's number of a fragment, loaded once for all sums of the loop that use it."""
        loop = _key(one.loop, self.group[one.name])
        key = (part, expr, loop, one.loops)
        if key not in self.fragments:
            term, extent = self._term(inside), one.loop.upper - one.loop.lower
            whole = extent % fragments.TERMS == 0
            scalars = self.views[part]
            inside_it = prim.Comparison(term, "<", extent)
            at = term if whole else prim.If(inside_it, term, extent - 1)
            scalars.indices = self.scalars.indices | {one.loop.name: prim.Sum((one.loop.lower, at))}
            value, after = scalars.written(expr)
            name = f"n{self.number}_f{len(self.fragments)}"
            self.declare(name, "float64")
            value = value if whole else prim.If(inside_it, value, 0.0)
            ident = self.instruct(prim.Variable(name), value, (*one.loops, loop), after)
            self.fragments[key] = (prim.Variable(name), frozenset({ident}))
        return self.fragments[key]

    def _term(self, inside: tuple[str, ...]) -> ex.Expr:
        tile, step = (prim.Variable(name) for name in inside[-2:])
        return prim.Sum((fragments.TERMS * tile, self._call(fragments.term(), prim.Variable("l"), step)))

    def _take(self, statement: Accumulate, copy: int) -> None:
        name = self.name(statement.name)
        self.declare(name, "float64")
        pair = prim.Variable(f"n{self.number}_c{statement.name}")
        value = self._call(fragments.result(copy), pair)
        ident = self.instruct(prim.Variable(name), value, (), self.closed[statement.name])
        self.written[statement.name] = frozenset({ident})
        self.scalars.dtypes[statement.name] = statement.dtype

    def _call(self, function: Any, *arguments: ex.Expr) -> ex.Expr:
        return self.scalars.call(function, *arguments)


def _key(loop: Loop, group: int) -> str:
    return f"{loop.name}_{group}"


def _groups(sums: tuple[MatrixSum, ...]) -> dict[str, int]:
    """Sums that are taken together: all, or where these are many, those of one component after the other."""
    if len(sums) <= MOST_TOGETHER or any(one.loops for one in sums):
        return {one.name: 0 for one in sums}
    components = {one.name: tuple(i for i in one.column.index_tuple if isinstance(i, int)) for one in sums}
    numbers = {key: number for number, key in enumerate(dict.fromkeys(components.values()))}
    return {name: numbers[key] for name, key in components.items()}


def _summed(nest: Nest) -> frozenset[str]:
    """Values that sums lead to; others are computed after all sums, not to occupy registers."""
    found: set[str] = set()
    for statement in nest.statements:
        used = {node.name for node in ex.walk(statement.expr) if isinstance(node, prim.Variable)}
        if isinstance(statement, Accumulate) or used & found:
            found.add(statement.name)
    return frozenset(found)
