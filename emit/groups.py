"""How the lanes of a group share a long reduction: several of them add up one result's terms, and a tree joins them.

Neighbouring lanes read neighbouring elements: `rows` if terms of one result lie side by side, `columns` if terms
of neighbouring results do.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pymbolic.primitives as prim

from aotato.emit.linear import place
from aotato.emit.nest import Accumulate, Nest
from aotato.frontend import expr as ex
from aotato.frontend import ir

LONG = 256  # terms that are shared, however few elements all results have
SHORT = 16  # terms of a row that are shared, if there are many rows
SHORT_COLUMN = 64
MANY = 1 << 16  # elements, of all results together
ENOUGH = 1 << 17  # columns: with so many lanes a device is busy
ACROSS = 32  # columns of a group: neighbouring lanes read so many neighbouring elements
TERMS = 4  # at least so many for a lane


@dataclass(frozen=True)
class Share:
    """A group computes `results` neighbouring results, each with `lanes` lanes: powers of two."""

    kind: str  # rows | columns
    results: int
    lanes: int

    def sides(self) -> dict[str, int]:
        """Inames of a group: `l` for the lanes of a result, `p` for results, if several; neighbouring lanes first."""
        if self.results == 1:
            return {"l": self.lanes}
        if self.kind == "rows":
            return {"l": self.lanes, "p": self.results}
        return {"p": self.results, "l": self.lanes}

    def cell(self, lane: ex.Expr, lanes: int) -> ex.Expr:
        """Where lane number `lane` of the `lanes` of a result has its place in local memory."""
        result = prim.Variable("p")
        if self.results == 1:
            return lane
        if self.kind == "rows":
            return prim.Sum((prim.Product((lanes, result)), lane))
        return prim.Sum((result, prim.Product((self.results, lane))))


def kind(nest: Nest, program: ir.Program) -> str:
    """`rows`, `columns`, or nothing where a lane for each result does as well. No loop of `nest` is shared yet."""
    found = _longest(nest)
    if found is None:
        return ""
    loop, terms = found
    results = ir.size(nest.shape)
    rows = results == 1 or _along_terms(nest, program, loop)
    if terms < (SHORT if rows else SHORT_COLUMN) or (terms < LONG and results * terms < MANY):
        return ""
    if rows:
        return "rows"
    return "columns" if results < ENOUGH else ""


def share(nest: Nest, group_size: int) -> Share:
    """The lanes of a nest that shares its reductions."""
    results = ir.size(nest.shape)
    terms = max(_extent(nest, s.loop) for s in nest.statements if isinstance(s, Accumulate) and s.grouped)
    whole, useful = _power(group_size), _power(max(1, terms // TERMS))
    if nest.share == "rows":
        lanes = min(whole, useful)
        return Share("rows", min(whole // lanes, _above(results)), lanes)
    across = _across(results, whole)
    return Share("columns", across, min(whole // across, useful))


def _across(results: int, most: int) -> int:
    """As many columns as leave few of the last group's lanes without one."""
    across = min(ACROSS, most, _above(results))
    while across > 4 and -(-results // across) * across > 1.15 * results:
        across //= 2
    return across


def _power(number: int) -> int:
    """The largest power of two that is not above `number`."""
    return 1 << (number.bit_length() - 1)


def _above(number: int) -> int:
    return 1 << (number - 1).bit_length()


def _extent(nest: Nest, loop: str) -> int:
    return next(found.upper - found.lower for found in nest.loops if found.name == loop)


def _longest(nest: Nest) -> tuple[str, int] | None:
    """The outermost loop of the reduction with most terms, and their number."""
    made = {s.name: s for s in nest.statements if isinstance(s, Accumulate)}
    found: dict[str, int] = {}
    for outer in made.values():
        if outer.loops:
            continue
        terms, last = _extent(nest, outer.loop), outer
        # Further axes of the same reduction
        while isinstance(last.expr, prim.Variable) and last.expr.name in made:
            last = made[last.expr.name]
            terms *= _extent(nest, last.loop)
        found[outer.loop] = max(terms, found.get(outer.loop, 0))
    return max(found.items(), key=lambda item: item[1]) if found else None


def _along_terms(nest: Nest, program: ir.Program, loop: str) -> bool:
    """Whether most of what the loop reads lies closer together for neighbouring terms than for neighbouring results."""
    last = f"_{max(axis for axis, extent in enumerate(nest.shape) if extent > 1)}"
    votes = {True: 0, False: 0}
    seen: set[tuple[str, bool]] = set()
    for read in _reads(nest, loop):
        shape = program.arrays[read.aggregate.name].shape
        steps: dict[str, int] = {}
        for term, factor in place([ir.size(shape[a + 1 :]) for a in range(len(shape))], read.index_tuple).items():
            step = ir.size(shape) if isinstance(term, prim.Subscript) else abs(factor)
            for name in _variables(term):
                steps[name] = max(steps.get(name, 0), step)
        across, along = steps.pop(last, 0), [step for name, step in steps.items() if name.startswith("r")]
        vote = (read.aggregate.name, bool(along) and min(along) < across)
        if across and vote not in seen:
            seen.add(vote)
            votes[vote[1]] += ir.nbytes(program.arrays[vote[0]])
    return votes[True] > votes[False]


def _reads(nest: Nest, loop: str) -> Iterator[prim.Subscript]:
    for statement in nest.statements:
        inside = (*statement.loops, statement.loop) if isinstance(statement, Accumulate) else statement.loops
        if loop in inside:
            yield from (node for node in ex.walk(statement.expr) if isinstance(node, prim.Subscript))


def _variables(term: ex.Expr) -> list[str]:
    """Indices that move `term` by their own steps, about: a quotient moves rarely, a loaded index anywhere."""
    if isinstance(term, prim.FloorDiv) or not isinstance(term, prim.ExpressionNode):
        return []
    return [node.name for node in ex.walk(term) if isinstance(node, prim.Variable)]
