"""Sums over products in the cheapest order: factors are pulled out of the sums that they do not depend on.

Partial sums that depend on fewer axes than their reader become arrays of their own, shared between its elements. A
factor that is constant on runs of a reduced index, as a normal of a face is at all nodes of the face, cuts that index
in two and leaves the inner sum. Sums of floating-point numbers are reassociated; operations never become more. All
ranks of a class are rewritten alike.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pymbolic.primitives as prim

from aotato.emit.axes import LONGEST_UNROLLED, batch_axes
from aotato.emit.classes import classes
from aotato.emit.contraction import LARGEST, Factor, Problem, Sum, cheapest
from aotato.emit.groups import FEW, LONG
from aotato.emit.moves import named, normal
from aotato.emit.products import Axes, Cut, Product, is_product, lengths, product
from aotato.emit.runs import Runs
from aotato.emit.unguarded import exchanged, unguarded
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.text_expr import expr_text

LAUNCH_FLOPS = 1 << 28  # what a device computes while another kernel is launched
BYTE_FLOPS = 8  # and while it moves a byte


@dataclass
class _Rank:
    """One rank's program while it is rewritten."""

    program: ir.Program
    runs: Runs
    batch: dict[str, int]
    arrays: dict[str, ir.Node] = field(default_factory=dict)


@dataclass
class _Class:
    ranks: list[_Rank]
    made: dict[object, str] = field(default_factory=dict)  # partial sums that are there, by what they are on all ranks


def factored(programs: ir.Programs) -> ir.Programs:
    """`programs` with planned sums."""
    ranks = list(programs.ranks)
    for members in classes(programs):
        done = _class([programs.ranks[number] for number in members])
        for number, program in zip(members, done, strict=True):
            ranks[number] = program
    return dataclasses.replace(programs, ranks=tuple(ranks))


def _class(programs: Sequence[ir.Program]) -> list[ir.Program]:
    batches = batch_axes(programs)
    found = _Class([_Rank(p, Runs(p), batch) for p, batch in zip(programs, batches, strict=True)])
    for name in programs[0].arrays:
        for rank, node in zip(found.ranks, _nodes(found, name), strict=True):
            rank.arrays[name] = node
    return [dataclasses.replace(rank.program, arrays=rank.arrays) for rank in found.ranks]


def _nodes(found: _Class, name: str) -> Sequence[ir.Node]:
    """The array `name` of every rank, reading partial sums."""
    nodes = [rank.program.arrays[name] for rank in found.ranks]
    lambdas = [node for node in nodes if isinstance(node, ir.Lambda)]
    if not lambdas:
        return nodes
    operands = [list(node.operands) for node in lambdas]
    old = list(zip(*(unguarded(node.expr) for node in lambdas), strict=True))
    new = [_planned(found, name, lambdas, reduces, operands) for reduces in old]
    if all(a is b for a, b in zip(old, new, strict=True)):
        return nodes
    exprs = [exchanged(node.expr, iter([each[rank] for each in new])) for rank, node in enumerate(lambdas)]
    written = normal(list(map(named, exprs, operands)), [node.shape for node in lambdas])
    each = zip(lambdas, written, strict=True)
    return [dataclasses.replace(node, expr=expr, operands=names) for node, (expr, names) in each]


def _planned(
    found: _Class, name: str, nodes: Sequence[ir.Lambda], reduces: Sequence[ex.Reduce], operands: Sequence[list[str]]
) -> Sequence[ex.Expr]:
    """What stands for the reduction on every rank; `operands` grow by the partial sums."""
    fewest = sum(ex.flops(reduce) * ir.size(node.shape) for reduce, node in zip(reduces, nodes, strict=True))
    best: tuple[list[Product], Sum] | None = None
    for products in _ways(found, nodes, reduces):
        plan = cheapest(_problem(found, name, products))
        if plan.flops < fewest:
            fewest, best = plan.flops, (products, plan.tree)
    if best is None:
        return reduces
    return _Writer(found, name, best[0], operands).written(best[1])


def _ways(
    found: _Class, nodes: Sequence[ir.Lambda], reduces: Sequence[ex.Reduce]
) -> Iterator[list[Product]]:
    """The sum as it is, and with one index cut by the runs of a factor; nothing where it is no sum of products."""
    each = list(zip(found.ranks, nodes, reduces, strict=True))
    if not all(is_product(rank.program, node, reduce) for rank, node, reduce in each):
        return
    for cut in (None, *_cuts(found, nodes, reduces)):
        products = [product(rank.program, node, reduce, cut) for rank, node, reduce in each]
        alike = len({tuple(axes for axes, _ in one.factors) for one in products}) == 1
        if alike and 1 < len(products[0].factors) <= LARGEST:
            yield products


def _cuts(found: _Class, nodes: Sequence[ir.Lambda], reduces: Sequence[ex.Reduce]) -> Iterator[Cut]:
    """Cuts into runs that a factor has on all ranks."""
    each = zip(found.ranks, nodes, reduces, strict=True)
    ranks = [lengths(rank.runs, node, reduce) for rank, node, reduce in each]
    for number, (index, _, _) in enumerate(reduces[0].bounds):
        common = [math.gcd(*those) for those in zip(*(rank[number] for rank in ranks), strict=True)]
        extents = [upper - lower for _, lower, upper in (reduce.bounds[number] for reduce in reduces)]
        for run in sorted({math.gcd(length, *extents) for length in common if length}):
            if 1 < run < min(extents):
                yield Cut(index, run, tuple(length % run > 0 for length in common))


def _problem(found: _Class, name: str, products: Sequence[Product]) -> Problem:
    first, extents = products[0], [one.extents for one in products]
    batches = {rank.batch.get(name) for rank in found.ranks}
    batch = batches.pop() if len(batches) == 1 else None

    def apart(axes: Axes) -> int | None:
        if batch is not None:
            return 0 if f"_{batch}" in axes else None  # it lives inside the kernels of its reader
        elements = sum(math.prod(each[axis] for axis in axes) for each in extents)
        return len(products) * LAUNCH_FLOPS + 2 * BYTE_FLOPS * first.dtype.itemsize * elements

    factors = [Factor(sum(map(ex.flops, given)) + len(given) - 1, axes) for axes, given in first.factors]
    grouped = any(
        math.prod(one.reduced.values()) >= LONG and ir.size(one.shape) <= FEW for one in products
    )
    nested = batch is not None or not grouped  # a work-group shares the terms of one loop
    return Problem(factors, frozenset(first.own), frozenset(first.reduced), extents, apart, nested)


class _Writer:
    """Writes a tree of sums for all ranks, with the arrays that it needs."""

    def __init__(
        self, found: _Class, reader: str, products: Sequence[Product], operands: Sequence[list[str]]
    ) -> None:
        self.found, self.reader, self.products, self.operands = found, reader, products, operands

    def written(self, tree: Sum) -> list[ex.Expr]:
        """The sum in terms of the reader's own indices and those of sums around it."""
        parts = [self._part(part) for part in tree.parts]
        return [_sum(tree, one, [part[rank] for part in parts]) for rank, one in enumerate(self.products)]

    def _part(self, part: int | Sum) -> list[list[ex.Expr]]:
        """The factors that a part of a product is, on every rank."""
        if isinstance(part, int):
            return [list(one.factors[part][1]) for one in self.products]
        return [[expr] for expr in (self._read(part) if part.apart else self.written(part))]

    def _read(self, tree: Sum) -> list[ex.Expr]:
        """A read of the array that holds a partial sum."""
        axes = self._axes(tree)
        nodes = self._nodes(axes, self.written(tree))
        key = tuple((node.operands, node.shape, expr_text(node.expr)) for node in nodes)
        if key not in self.found.made:
            self.found.made[key] = self._fresh()
        name, index = self.found.made[key], tuple(map(prim.Variable, axes))
        for rank, node, operands in zip(self.found.ranks, nodes, self.operands, strict=True):
            rank.arrays.setdefault(name, node)
            if name not in operands:
                operands.append(name)
        return [ex.read(operands.index(name), index) for operands in self.operands]

    def _axes(self, tree: Sum) -> list[str]:
        """Short reduced axes, which are written out, then the reader's own, then long reduced ones."""
        kept = [index for index in self.products[0].reduced if index in tree.axes]
        short = [index for index in kept if all(one.reduced[index] <= LONGEST_UNROLLED for one in self.products)]
        own = [axis for axis in self.products[0].own if axis in tree.axes]
        return [*short, *own, *(index for index in kept if index not in short)]

    def _nodes(self, axes: Sequence[str], exprs: Sequence[ex.Expr]) -> list[ir.Lambda]:
        places = {axis: prim.Variable(f"_{place}") for place, axis in enumerate(axes)}
        shapes = [tuple(one.extents[axis] for axis in axes) for one in self.products]
        each = zip(exprs, self.operands, strict=True)
        found = normal([named(ex.substitute(expr, places), operands) for expr, operands in each], shapes)
        dtype = self.products[0].dtype
        return [ir.Lambda(expr, names, shape, dtype) for (expr, names), shape in zip(found, shapes, strict=True)]

    def _fresh(self) -> str:
        """A name that follows from the reader's."""
        taken = {name for rank in self.found.ranks for name in (*rank.program.arrays, *rank.arrays)}
        return next(name for number in range(len(taken) + 1) if (name := f"{self.reader}_s{number}") not in taken)


def _sum(tree: Sum, one: Product, parts: Sequence[list[ex.Expr]]) -> ex.Expr:
    factors = [factor for part in parts for factor in part]
    body = factors[0] if len(factors) == 1 else prim.Product(tuple(factors))
    bounds = tuple((index, 0, extent) for index, extent in one.reduced.items() if index in tree.over)
    return ex.Reduce("sum", bounds, body) if bounds else body
