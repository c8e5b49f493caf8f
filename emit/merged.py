"""Sums over products that read such sums, as sums that read what those read: constants between them become a matrix.

`sum over j of A[i, j] * y[e, j]`, where y is `sum over k of B[j, k] * x[e, k]`, is `sum over k of C[i, k] * x[e, k]`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pymbolic.primitives as prim

from aotato.emit.contracted import Array, Constants
from aotato.emit.integers import variables
from aotato.emit.moves import named
from aotato.emit.products import Product, is_product, product
from aotato.emit.terms import Term, is_plain, terms
from aotato.frontend import expr as ex
from aotato.frontend import ir

MATRIX = "#"


@dataclass(frozen=True)
class Part:
    """A new array: `matrix`, or the sum `expr` that reads it as `#`. Other arrays are read by name."""

    matrix: Array
    expr: ex.Expr | None
    shape: ir.Shape


@dataclass(frozen=True)
class Merged:
    """What stands for a sum; `parts[k]` is read as array `#k`."""

    expr: ex.Expr
    parts: tuple[Part, ...]
    through: frozenset[str]  # arrays that it no longer reads


class Merger:
    """One rank's program, and its batch axes."""

    def __init__(self, program: ir.Program, batch: Mapping[str, int]) -> None:
        self.program, self.batch = program, batch
        self.terms, self.constants = terms(program), Constants(program)

    def merged(self, name: str, reduce: ex.Reduce, fresh: Iterator[int]) -> Merged | None:
        """`reduce` of array `name` without one of its factors, the first for which that works.

        `fresh` are numbers of indices that the array does not use.
        """
        node = self.program.arrays[name]
        assert isinstance(node, ir.Lambda)
        if not is_product(self.program, node, reduce):
            return None
        whole = product(self.program, node, reduce, None)
        factors = [named(factor, node.operands) for _, given in whole.factors for factor in given]
        for place, factor in enumerate(factors):
            others = factors[:place] + factors[place + 1 :]
            found = self._without(name, whole, factor, others, node.expr is reduce, fresh)
            if found is not None:
                return found
        return None

    def _without(
        self, name: str, whole: Product, factor: ex.Expr, others: Sequence[ex.Expr], alone: bool, fresh: Iterator[int]
    ) -> Merged | None:
        """`whole`, which is all that its array is if `alone`, by the terms of `factor`."""
        if not isinstance(factor, prim.Subscript) or not is_plain(factor.index_tuple):
            return None
        array = factor.aggregate.name
        # Their own indices get new names first, for the reader's are put into the factors
        own = [term.renamed(fresh).at(factor.index_tuple, self.program.arrays[array].shape)
               for term in self.terms.get(array, ())]
        outside = [other for other in others if whole.reduced.keys().isdisjoint(variables(other))]
        inside = [other for other in others if other not in outside]
        # Any other sum becomes an array, which other readers may read at other numbers
        in_place = alone and len(own) == 1 and not own[0].numbers
        found = []
        for number, term in enumerate(own):
            part = self._term(whole, self.batch.get(name), inside, term, f"{MATRIX}{number}", in_place)
            if part is None:
                return None
            found.append(part)
        if not found:
            return None
        total = found[0][0] if len(found) == 1 else prim.Sum(tuple(expr for expr, _ in found))
        expr = prim.Product((*outside, total)) if outside else total
        return Merged(expr, tuple(part for _, part in found), frozenset().union(*(term.through for term in own)))

    def _term(
        self, whole: Product, batch: int | None, inside: Sequence[ex.Expr], term: Term, name: str, in_place: bool
    ) -> tuple[ex.Expr, Part] | None:
        """The sum of `inside` times a term, without indices that only constants depend on."""
        extents = whole.extents | {variable: extent for variable, (_, extent) in term.numbers.items()}
        extents |= term.reduced
        factors = [(factor, frozenset(variables(factor))) for factor in (*inside, *term.factors)]
        between = {index for index in whole.reduced if any(index in own for _, own in factors)}
        for factor, own in factors:
            if own & between and not self.constants.decide(factor, extents):
                between -= own
        known = [factor for factor, own in factors if own & between]
        rest = [factor for factor, own in factors if not own & between]
        axes = [axis for axis in extents if axis not in between and axis in _variables(known)]
        # A matrix for each element is data
        if not between or (f"_{batch}" in axes and f"_{batch}" in _variables(rest)):
            return None
        matrix = self.constants.contracted(known, sorted(between), axes, extents, whole.dtype)
        if matrix is None:
            return None
        kept = [index for index in whole.reduced if index not in between]
        read = tuple(map(prim.Variable, axes))
        if kept or in_place:
            expr = _summed([*kept, *term.reduced], extents, prim.Subscript(prim.Variable(name), read), rest)
            return _at_numbers(expr, term), Part(matrix, None, matrix.shape)
        return _apart(whole, extents, prim.Subscript(prim.Variable(MATRIX), read), rest, term, name, matrix)


def _summed(
    indices: Sequence[str], extents: Mapping[str, int], read: prim.Subscript, rest: Sequence[ex.Expr]
) -> ex.Expr:
    """All in one sum, for its factors can be summed in any order; numbers before it."""
    numbers = [factor for factor in rest if not isinstance(factor, prim.ExpressionNode)]
    varied = [factor for factor in rest if isinstance(factor, prim.ExpressionNode)]
    bounds = tuple((index, 0, extents[index]) for index in indices)
    return _product([*numbers, ex.Reduce("sum", bounds, _product([read, *varied]))])


def _apart(
    whole: Product, extents: Mapping[str, int], read: ex.Expr, rest: Sequence[ex.Expr], term: Term, name: str,
    matrix: Array,
) -> tuple[ex.Expr, Part]:
    """The read of an array that holds the sum, times what does not depend on its indices."""
    scales = [factor for factor in rest if term.reduced.keys().isdisjoint(variables(factor))]
    body = _product([read, *(factor for factor in rest if factor not in scales)])
    own = [axis for axis in (*term.numbers, *whole.own) if axis in _variables([body])]
    loops = {index: f"_r{number}" for number, index in enumerate(term.reduced)}
    places = {axis: prim.Variable(f"_{place}") for place, axis in enumerate(own)}
    places |= {index: prim.Variable(loop) for index, loop in loops.items()}
    bounds = tuple((loops[index], 0, extent) for index, extent in term.reduced.items())
    expr = ex.Reduce("sum", bounds, ex.substitute(body, places))
    element = prim.Subscript(prim.Variable(name), tuple(map(prim.Variable, own)))
    part = Part(matrix, expr, tuple(extents[axis] for axis in own))
    return _at_numbers(_product([*scales, element]), term), part


def _at_numbers(expr: ex.Expr, term: Term) -> ex.Expr:
    return ex.substitute(expr, {variable: number for variable, (number, _) in term.numbers.items()})


def _product(factors: Sequence[ex.Expr]) -> ex.Expr:
    return factors[0] if len(factors) == 1 else prim.Product(tuple(factors))


def _variables(exprs: Sequence[ex.Expr]) -> set[str]:
    return {name for expr in exprs for name in variables(expr)}
