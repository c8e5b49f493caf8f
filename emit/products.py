"""A reduction as a sum over a product of factors, each known by the indices that it depends on."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pymbolic.primitives as prim

from aotato.emit import integers
from aotato.emit.runs import Runs
from aotato.frontend import dtypes, ir
from aotato.frontend import expr as ex

Axes = frozenset[str]


@dataclass(frozen=True)
class Cut:
    """A reduced index that becomes two: `run` times an outer one, plus an inner one below `run`."""

    index: str
    run: int
    varies: tuple[bool, ...]  # whether each factor varies within a run


@dataclass(frozen=True)
class Product:
    """The sum, for every index `_0`, `_1` ... of `shape`, over `reduced` indices that count from 0.

    Factors of the same indices are one; so are all that depend on no reduced index.
    """

    dtype: ir.DType
    shape: ir.Shape
    reduced: Mapping[str, int]  # extents, outermost first
    factors: tuple[tuple[Axes, tuple[ex.Expr, ...]], ...]

    @property
    def extents(self) -> dict[str, int]:
        return {f"_{axis}": extent for axis, extent in enumerate(self.shape)} | dict(self.reduced)

    @property
    def own(self) -> list[str]:
        return [f"_{axis}" for axis in range(len(self.shape))]


def is_product(program: ir.Program, node: ir.Lambda, reduce: ex.Reduce) -> bool:
    """Whether it sums products of one floating-point type, and has something to sum."""
    given = [program.arrays[operand].dtype for operand in node.operands]
    dtype = dtypes.dtype_of(reduce, given)
    types = [dtypes.weak_type_of(factor, given) for factor in _factors(reduce.body)]
    terms = math.prod(max(0, upper - lower) for _, lower, upper in reduce.bounds)
    fits = all(isinstance(own, type) or own == dtype for own in types)
    return reduce.op == "sum" and dtype.kind in "fc" and fits and bool(reduce.bounds and terms and ir.size(node.shape))


def lengths(runs: Runs, node: ir.Lambda, reduce: ex.Reduce) -> list[list[int]]:
    """For each reduced index and factor the length of runs on which the factor is constant; 0 if it is everywhere."""
    return [
        # Runs count from 0
        [runs.of(factor, node.operands, index, upper) if lower == 0 else 1 for factor in _factors(reduce.body)]
        for index, lower, upper in reduce.bounds
    ]


def product(program: ir.Program, node: ir.Lambda, reduce: ex.Reduce, cut: Cut | None) -> Product:
    """The sum that `reduce` is; the index of `cut` becomes two."""
    factors = _factors(reduce.body)
    reduced: dict[str, int] = {}
    for index, lower, upper in reduce.bounds:
        if cut is not None and cut.index == index:
            outer = f"{index}o"
            factors = [_cut(factor, cut, outer, varies) for factor, varies in zip(factors, cut.varies, strict=True)]
            reduced |= {outer: upper // cut.run, index: cut.run}
        else:
            if lower:
                place = prim.Sum((lower, prim.Variable(index)))
                factors = [ex.substitute(factor, {index: place}) for factor in factors]
            reduced[index] = upper - lower
    given = [program.arrays[operand].dtype for operand in node.operands]
    own = {f"_{axis}" for axis in range(len(node.shape))}
    return Product(dtypes.dtype_of(reduce, given), node.shape, reduced, _grouped(factors, own, set(reduced)))


def _factors(expr: ex.Expr) -> list[ex.Expr]:
    if isinstance(expr, prim.Product):
        return [factor for child in expr.children for factor in _factors(child)]
    return [expr]


def _cut(factor: ex.Expr, cut: Cut, outer: str, varies: bool) -> ex.Expr:
    """`factor` at index `run * outer + index`, or at `run * outer` where it does not vary within a run."""
    first = prim.Product((cut.run, prim.Variable(outer)))
    place = prim.Sum((first, prim.Variable(cut.index))) if varies else first

    def rule(node: ex.Expr) -> ex.Expr:
        match node:
            case prim.Variable() if node.name == cut.index:
                return place
            case prim.FloorDiv() if node.numerator == place and node.denominator == cut.run:
                return prim.Variable(outer)
            case prim.Remainder() if node.numerator == place and node.denominator == cut.run:
                return prim.Variable(cut.index) if varies else 0
        return node

    return ex.rewrite(factor, rule)


def _grouped(
    factors: Sequence[ex.Expr], own: set[str], reduced: set[str]
) -> tuple[tuple[Axes, tuple[ex.Expr, ...]], ...]:
    groups: dict[Axes, list[ex.Expr]] = {}
    axes: dict[Axes, Axes] = {}
    each = [frozenset(integers.variables(factor)) & (own | reduced) for factor in factors]
    # An index on which nothing depends repeats a factor
    each[0] |= reduced.difference(*each)
    for factor, mine in zip(factors, each, strict=True):
        key = mine if mine & reduced else frozenset()
        axes[key] = axes.get(key, mine) | mine
        groups.setdefault(key, []).append(factor)
    return tuple((axes[key], tuple(given)) for key, given in groups.items())
