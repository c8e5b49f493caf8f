"""Arrays as sums of a few terms, each the sum over a product: `s * (B x - y)` where B x and y are sums over products.

Expressions here read arrays by name.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import pymbolic.primitives as prim

from aotato.emit.moves import named
from aotato.emit.products import is_product, product
from aotato.frontend import dtypes, ir
from aotato.frontend import expr as ex

MOST = 8  # terms of an array


@dataclass(frozen=True)
class Term:
    """The sum of the product of `factors`, for every index `_0`, `_1` ... of the array, or whatever stands for them.

    Where an array on the way is read at a number, a variable stands for it in the factors.
    """

    reduced: Mapping[str, int]  # extents of indices that count from 0, outermost first
    factors: tuple[ex.Expr, ...]  # without reductions
    numbers: Mapping[str, tuple[int, int]]  # by variable: the number, and how many there could be
    through: frozenset[str]  # the array, and those that it reads the sum through

    def at(self, indices: Sequence[ex.Expr], shape: ir.Shape) -> Term:
        """The term at other indices of an array of `shape`."""
        numbers, places = dict(self.numbers), {}
        for axis, (index, extent) in enumerate(zip(indices, shape, strict=True)):
            places[f"_{axis}"] = index
            if type(index) is int:
                places[f"_{axis}"] = prim.Variable(name := f"_n{len(numbers)}")
                numbers[name] = index, extent
        return replace(self, factors=self._at(places), numbers=numbers)

    def renamed(self, fresh: Iterator[int]) -> Term:
        """The term with new names for its reduced indices."""
        names = {index: f"_r{next(fresh)}" for index in self.reduced}
        reduced = {names[index]: extent for index, extent in self.reduced.items()}
        return replace(self, reduced=reduced, factors=self._at({i: prim.Variable(name) for i, name in names.items()}))

    def _at(self, places: Mapping[str, ex.Expr]) -> tuple[ex.Expr, ...]:
        return tuple(ex.substitute(factor, places) for factor in self.factors)


def terms(program: ir.Program) -> dict[str, tuple[Term, ...]]:
    """The terms of every array that is such a sum, of one floating-point type throughout."""
    found: dict[str, tuple[Term, ...]] = {}
    for name, node in program.of_type(ir.Lambda):
        given = [program.arrays[operand].dtype for operand in node.operands]
        if dtypes.weak_type_of(node.expr, given) == node.dtype:
            own = _terms(program, node, node.expr, found)
            if 0 < len(own) <= MOST:
                found[name] = tuple(replace(term, through=term.through | {name}) for term in own)
    return found


def _terms(
    program: ir.Program, node: ir.Lambda, expr: ex.Expr, found: Mapping[str, tuple[Term, ...]]
) -> list[Term]:
    """No terms where any part is something else."""
    match expr:
        case prim.Sum():
            parts = [_terms(program, node, child, found) for child in expr.children]
            return [term for part in parts for term in part] if all(parts) else []
        case prim.Product():
            return _scaled(program, node, expr, found)
        case ex.Reduce() if is_product(program, node, expr):
            whole = product(program, node, expr, None)
            factors = tuple(named(factor, node.operands) for _, given in whole.factors for factor in given)
            fits = whole.dtype == node.dtype and not any(map(ex.has_reduce, factors))
            return [Term(whole.reduced, factors, {}, frozenset())] if fits else []
        case prim.Subscript():
            return _read(node.operands[ex.operand_position(expr)], node.dtype, expr.index_tuple, program, found)
    return []


def _scaled(
    program: ir.Program, node: ir.Lambda, expr: prim.Product, found: Mapping[str, tuple[Term, ...]]
) -> list[Term]:
    """One such sum times anything of its type."""
    given = [program.arrays[operand].dtype for operand in node.operands]
    parts = [_terms(program, node, child, found) for child in expr.children]
    others = [child for child, part in zip(expr.children, parts, strict=True) if not part]
    types = [dtypes.weak_type_of(other, given) for other in others]
    fits = all(isinstance(own, type) or own == node.dtype for own in types)
    if len(others) != len(parts) - 1 or not fits or any(map(ex.has_reduce, others)):
        return []
    factors = tuple(named(other, node.operands) for other in others)
    return [replace(term, factors=(*factors, *term.factors)) for part in parts for term in part]


def _read(
    name: str, dtype: ir.DType, indices: Sequence[ex.Expr], program: ir.Program,
    found: Mapping[str, tuple[Term, ...]],
) -> list[Term]:
    node = program.arrays[name]
    if node.dtype != dtype or not is_plain(indices):
        return []
    return [term.at(indices, node.shape) for term in found.get(name, ())]


def is_plain(indices: Sequence[ex.Expr]) -> bool:
    """Whether they read no tables: a table of a table is a new one, to be made by `tables.py`."""
    return not any(isinstance(node, prim.Subscript) for index in indices for node in ex.walk(index))
