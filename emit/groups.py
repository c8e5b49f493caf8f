"""How the lanes of a group share a long reduction: several of them add up one result's terms, and a tree joins them.

Neighbouring lanes read neighbouring elements: `rows` if terms of one result lie side by side, `columns` if terms
of neighbouring results do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

import pymbolic.primitives as prim

from aotato.emit.linear import steps
from aotato.emit.matrix import matrix
from aotato.emit.nest import Accumulate, Loop, Nest, Statement, inside
from aotato.frontend import expr as ex
from aotato.frontend import ir

LONG = 256  # terms that are shared, however few elements all results have
FEW = 4096  # results
SHORT = 16  # terms of a row that are shared, if there are many rows
SHORT_COLUMN = 64
MANY = 1 << 16  # elements, of all results together
ENOUGH = 1 << 17  # columns: with so many lanes a device is busy
ACROSS = 32  # columns of a group: neighbouring lanes read so many neighbouring elements
TERMS = 8  # at least so many for a lane
MANY_ROWS = 64  # and columns, of a matrix that is larger than an element's
PATCH_ROWS, PATCH_COLUMNS = 4, 8  # results of a work-item where these run one after another


@dataclass(frozen=True)
class Share:
    """A group computes `results` neighbouring results, each with `lanes` lanes, a power of two."""

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


@dataclass(frozen=True)
class _Chain:
    """A reduction that no other loop stands around: one accumulation for each of its axes, outermost first."""

    steps: tuple[Accumulate, ...]
    loops: tuple[str, ...]
    terms: int


def kind(nest: Nest, program: ir.Program) -> str:
    """`rows`, `columns`, `product` of matrices, or nothing where a lane for each result does as well."""
    chains = _chains(nest)
    if not chains:
        return ""
    if matrix(shared(nest)) is not None:
        return "product"
    longest = max(chains, key=lambda chain: chain.terms)
    results, terms = ir.size(nest.shape), longest.terms
    rows = results == 1 or _along_terms(nest, program, longest.loops[0])
    if terms < (SHORT if rows else SHORT_COLUMN) or (terms < LONG and results * terms < MANY):
        return ""
    if rows:
        return "rows"
    return "columns" if results < ENOUGH else ""


def large(nest: Nest) -> bool:
    """Whether it is a matrix product with many rows and columns."""
    found = matrix(shared(nest)) if nest.share == "product" else None
    return found is not None and min(nest.shape[found.row], nest.shape[found.column]) >= MANY_ROWS


def shared(nest: Nest) -> Nest:
    """`nest` with one loop over all terms of every long reduction, for lanes to go through side by side."""
    for chain in _chains(nest):
        if chain.terms >= SHORT and _alone(nest, chain):
            nest = _flattened(nest, chain)
    return nest


def share(nest: Nest, group_size: int) -> Share:
    """The lanes of a nest whose loops are `shared`."""
    extents = {loop.name: loop.upper - loop.lower for loop in nest.loops}
    terms = max((extents[s.loop] for s in nest.statements if isinstance(s, Accumulate) and s.grouped), default=1)
    return split(nest.share, nest.shape, terms, group_size)


def split(kind: str, shape: ir.Shape, terms: int, group_size: int) -> Share:
    """A group of at most `group_size` lanes, shared out to results and terms."""
    if kind == "rows":
        lanes = _power(min(group_size, max(1, terms // TERMS)))
        return Share(kind, min(group_size // lanes, ir.size(shape)), lanes)
    row = next((extent for extent in reversed(shape) if extent > 1), 1)
    across = min(ACROSS, group_size, row)
    return Share(kind, across, _power(min(group_size // across, max(1, terms // TERMS))))


def patch(nest: Nest) -> dict[int, int]:
    """Neighbouring results that a work-item computes where these run one after another: axis -> how many along it."""
    long = [axis for axis, extent in enumerate(nest.shape) if extent > 1]
    wanted: dict[int, int] = {}
    if nest.share == "product":
        found = matrix(shared(nest))
        assert found is not None
        wanted = {found.row: PATCH_ROWS, found.column: PATCH_COLUMNS}
    elif nest.share == "columns":
        wanted = {long[-1]: PATCH_COLUMNS}
    elif long and max(chain.terms for chain in _chains(nest)) >= LONG:
        wanted = {long[-1]: PATCH_ROWS}  # sums are sequences, but four of them overlap
    return {axis: min(count, _power(nest.shape[axis])) for axis, count in wanted.items()}


def patches(shape: ir.Shape, patch: dict[int, int]) -> ir.Shape:
    """How many patches there are along each axis; the last may reach back into the one before it."""
    return tuple(-(-extent // patch.get(axis, 1)) for axis, extent in enumerate(shape))


def _power(number: int) -> int:
    """The largest power of two that is not above `number`."""
    return 1 << (number.bit_length() - 1)


def _chains(nest: Nest) -> list[_Chain]:
    made = {s.name: s for s in nest.statements if isinstance(s, Accumulate)}
    extents = {loop.name: loop.upper - loop.lower for loop in nest.loops}
    found = []
    for outer in made.values():
        steps = [outer]
        while isinstance(steps[-1].expr, prim.Variable) and steps[-1].expr.name in made:
            steps.append(made[steps[-1].expr.name])
        loops = tuple(step.loop for step in steps)
        # A value that is itself a reduction of another operator is no further axis of this one
        if not outer.loops and len({step.op for step in steps}) == 1:
            terms = 1
            for loop in loops:
                terms *= extents[loop]
            found.append(_Chain(tuple(steps), loops, terms))
    return found


def _alone(nest: Nest, chain: _Chain) -> bool:
    """Whether all that stands inside the first loop stands inside them all, or joins what does."""
    length = len(chain.loops)
    joining = {step.name for other in _chains(nest) if other.loops == chain.loops for step in other.steps}
    return all(
        inside(s)[:length] == chain.loops or s.name in joining
        for s in nest.statements
        if chain.loops[0] in inside(s)
    )


def _flattened(nest: Nest, chain: _Chain) -> Nest:
    bounds = {loop.name: loop for loop in nest.loops}
    whole = Loop(f"{chain.loops[0]}f", 0, chain.terms, ()) if len(chain.loops) > 1 else bounds[chain.loops[0]]
    values = _axes(whole, [bounds[name] for name in chain.loops]) if len(chain.loops) > 1 else {}
    dropped = {step.name for step in chain.steps[1:]}

    def outside(loops: tuple[str, ...]) -> tuple[str, ...]:
        return (whole.name, *loops[len(chain.loops) :]) if loops[: len(chain.loops)] == chain.loops else loops

    statements: list[Statement] = []
    for s in nest.statements:
        if s.name == chain.steps[0].name:
            last = chain.steps[-1]
            expr = ex.substitute(last.expr, values)
            statements.append(Accumulate(s.name, s.dtype, last.op, expr, whole.name, (), True))
        elif s.name not in dropped:
            expr = ex.substitute(s.expr, values)
            statements.append(replace(s, expr=expr, loops=outside(s.loops)))
    used = {name for s in statements for name in inside(s)}
    kept = (replace(loop, parents=outside(loop.parents)) for loop in nest.loops if loop.name in used - {whole.name})
    return replace(nest, loops=(whole, *kept), statements=tuple(statements))


def _axes(whole: Loop, loops: list[Loop]) -> dict[str, ex.Expr]:
    """The indices of several loops in terms of one over all their terms."""
    found: dict[str, ex.Expr] = {}
    stride = 1
    for number, loop in reversed(list(enumerate(loops))):
        extent = loop.upper - loop.lower
        index = prim.FloorDiv(prim.Variable(whole.name), stride) if stride > 1 else prim.Variable(whole.name)
        index = prim.Remainder(index, extent) if number else index
        found[loop.name] = prim.Sum((index, loop.lower)) if loop.lower else index
        stride *= extent
    return found


def _along_terms(nest: Nest, program: ir.Program, loop: str) -> bool:
    last = max(axis for axis, extent in enumerate(nest.shape) if extent > 1)
    return along_terms(
        ((program.arrays[read.aggregate.name], read.index_tuple) for read in _reads(nest, loop)), f"_{last}"
    )


def along_terms(reads: Iterable[tuple[ir.Node, tuple[ex.Expr, ...]]], own: str) -> bool:
    """Whether most of what is read lies closer together for neighbouring terms than for neighbouring results.

    `own` is the index that neighbouring results differ in; terms differ in the indices of loops.
    """
    votes = {True: 0, False: 0}
    seen: set[tuple[int, bool]] = set()
    for node, indices in reads:
        found = steps(node.shape, indices)
        across, along = found.pop(own, 0), [step for name, step in found.items() if not name[1:].isdigit()]
        vote = bool(along) and min(along) < across
        if across and (id(node), vote) not in seen:
            seen.add((id(node), vote))
            votes[vote] += ir.nbytes(node)
    return votes[True] > votes[False]


def _reads(nest: Nest, loop: str) -> Iterator[prim.Subscript]:
    for statement in nest.statements:
        if loop in inside(statement):
            yield from (node for node in ex.walk(statement.expr) if isinstance(node, prim.Subscript))
