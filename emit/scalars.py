"""Scalar expressions in loopy's terms: what they read from memory, and index arithmetic."""

from __future__ import annotations

from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import functions, linear
from aotato.emit.axes import lanes
from aotato.emit.nest import Block, array_of, is_local
from aotato.emit.operators import Operators, literal
from aotato.frontend import expr as ex
from aotato.frontend import ir

IN_BLOCK = -1  # the axis of an element's number within its block


class Scalars(Operators):
    """Expressions of one nest. Says with each which instructions it depends on."""

    def __init__(self, nest: Any, out: Any, program: ir.Program) -> None:
        super().__init__(nest, out, program)
        self.indices: dict[str, ex.Expr] = {}  # loop index -> loopy's inames
        self.own: dict[int, tuple[str, str]] = {}  # axis -> (variable, instruction) of an own index
        self.places: dict[int, tuple[ex.Expr, frozenset[str]]] = {}  # own indices that the nest has placed itself

    def written(self, expr: ex.Expr) -> tuple[ex.Expr, frozenset[str]]:
        """`expr` for loopy, and the instructions it must come after."""
        after: set[str] = set()
        return self._value(expr, after), frozenset(after)

    def least(self, a: ex.Expr, b: ex.Expr) -> ex.Expr:
        """The smaller of two indices."""
        return self.call(functions.binary("min", np.dtype(self.out.index_dtype)), a, b)

    def _value(self, expr: ex.Expr, after: set[str]) -> ex.Expr:
        if isinstance(expr, prim.Variable):
            return self._variable(expr.name, after)
        if isinstance(expr, np.complexfloating) and not np.isfinite(expr):
            # loopy's literal would be `real + imag * I`, in which an infinity makes NaNs
            return self.call(functions.complex_number(expr.dtype), literal(expr.real), literal(expr.imag))
        if ex.is_leaf(expr):
            return literal(expr)
        if isinstance(expr, prim.Subscript):
            return self._read(expr, after)
        if isinstance(expr, prim.Call):
            arguments = [self._value(parameter, after) for parameter in expr.parameters]
            return self._called(expr.function.name, self.dtype(expr.parameters[0]), arguments)
        if isinstance(expr, ex.Cast):
            return self._cast(expr, self._value(expr.body, after))
        parts = tuple(self._value(child, after) for child in ex.children(expr))
        return self._operator(expr, parts)

    def _variable(self, name: str, after: set[str]) -> ex.Expr:
        if name in self.nest.written:
            after |= self.nest.written[name]
            return self.nest.cell(self.nest.name(name)) if name not in self.nest.cells else self.nest.cells[name]
        if name in self.indices:
            return self.indices[name]
        return self._own(int(name[1:]), after)

    def _own(self, axis: int, after: set[str]) -> ex.Expr:
        """The nest's own index along an axis, computed once."""
        shape = self.nest.spec.shape
        if axis in self.places:
            place, made = self.places[axis]
            after |= made
            return place
        if len(shape) == 1 and not self.out.block:
            return self.nest.position
        if axis == IN_BLOCK and self.out.block.across:
            return self.nest.space.element
        if axis not in self.own:
            before: set[str] = set()
            if self.out.block:
                space = self.nest.space
                value = space.nodes[axis - 1] if axis > 0 else space.element
                value = value if axis else self._in_mesh(self._own(IN_BLOCK, before))
            else:
                stride = ir.size(shape[axis + 1 :])
                value = prim.FloorDiv(self.nest.position, stride) if stride > 1 else self.nest.position
                value = prim.Remainder(value, shape[axis]) if axis else value
            name = self.nest.name(f"x{axis}" if axis >= 0 else "e")
            self.nest.declare(name, self.out.index_dtype)
            instruction = self.nest.instruct(prim.Variable(name), value, (), frozenset(before))
            self.own[axis] = (name, instruction)
        name, instruction = self.own[axis]
        after.add(instruction)
        return prim.Variable(name)

    def _in_mesh(self, in_block: ex.Expr) -> ex.Expr:
        """The number of an element of the group's block. Lanes beyond the last element compute that one again.

        They write what another one writes there too; no loop or barrier stands under a condition.
        """
        block: Block = self.out.block
        own, last = prim.Variable("g") * block.size + in_block, block.elements - 1
        value = own if block.across else prim.If(prim.Comparison(own, "<", last), own, last)
        # Added where it is 0, too: both halves of a kernel then differ in numbers only
        return value if block.first is None else prim.Sum((block.first, value))

    def _read(self, expr: prim.Subscript, after: set[str]) -> ex.Expr:
        array = array_of(expr.aggregate.name)
        if is_local(expr.aggregate.name):
            after |= self.out.local_written[array]
            if array not in self.out.local:
                return prim.Variable(self.out.kept[array, expr.index_tuple, self.nest.part])
            return self.local_cell(array, expr.index_tuple, after)
        argument, first, by_value = self.out.arguments.read(array)
        if by_value:
            half = self.program.arrays[array].dtype == np.float16
            return self.call(functions.from_half(), prim.Variable(argument)) if half else prim.Variable(argument)
        flat = self.flat(self.program.arrays[array].shape, expr.index_tuple, after)
        value = prim.Subscript(prim.Variable(argument), (flat + first if first else flat,))
        half = self.program.arrays[array].dtype == np.float16
        return self.call(functions.from_half(), value) if half else value

    def flat(self, shape: ir.Shape, indices: tuple[ex.Expr, ...], after: set[str]) -> ex.Expr:
        """The number of an element in C order. Without a block, trailing own indices are the nest's position."""
        own = len(self.nest.spec.shape)
        first = len(shape) - own
        same = first >= 0 and shape[first:] == self.nest.spec.shape and indices[first:] == ex.own_index(own)
        if same and not self.out.block and not self.places:
            terms = self._terms(shape, indices[:first], after)
            terms.append(self.nest.position)
        else:
            terms = self._terms(shape, indices, after)
        return 0 if not terms else terms[0] if len(terms) == 1 else prim.Sum(tuple(terms))

    def local_cell(self, array: str, indices: tuple[ex.Expr, ...], after: set[str]) -> ex.Expr:
        """An element of the group's own block in local memory: components, elements, lanes; or elements last."""
        local, shape, block = self.out.local[array], self.program.arrays[array].shape, self.out.block
        across = lanes(shape, local.axis)
        short = tuple(a for a in range(len(shape)) if a != local.axis and a not in across)
        element = self._own(IN_BLOCK, after)
        if block.across:
            axes = (*short, *across)
            terms = self._terms((*(shape[a] for a in axes), block.size), (*(indices[a] for a in axes), 0), after)
            terms.append(element)
        else:
            whole = (*(shape[a] for a in short), block.size * local.stride)
            terms = self._terms(whole, (*(indices[a] for a in short), 0), after)
            terms.append(element if local.stride == 1 else prim.Product((local.stride, element)))
            terms += self._terms(tuple(shape[a] for a in across), tuple(indices[a] for a in across), after)
        flat = terms[0] if len(terms) == 1 else prim.Sum(tuple(terms))
        return prim.Subscript(prim.Variable(f"s{local.slot}"), (flat,))

    def _terms(self, shape: ir.Shape, indices: tuple[ex.Expr, ...], after: set[str]) -> list[ex.Expr]:
        long = [axis for axis in range(len(indices)) if shape[axis] != 1]
        form = linear.place([ir.size(shape[axis + 1 :]) for axis in long], [indices[axis] for axis in long])
        constant, terms = form.pop(1, 0), []
        for term, factor in form.items():
            value = self._index(term, after)
            terms.append(value if factor == 1 else prim.Product((factor, value)))
        return [constant, *terms] if constant else terms

    def _index(self, expr: ex.Expr, after: set[str]) -> ex.Expr:
        """A term of an index: loopy can look into neither casts nor, as it adds them as doubles, unsigned longs."""
        before, self.indexing = self.indexing, True
        value = self._value(expr, after)
        self.indexing = before
        if self.dtype(expr) == np.uint64:
            value = self.call(functions.converted(np.dtype(np.uint64), np.dtype(np.int64)), value)
        return value
