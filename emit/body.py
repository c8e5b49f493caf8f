"""From arrays that a kernel must produce to the scalar statements that produce them.

Every array between a result and the arrays in memory is inlined: read at an index, it becomes a value of its own,
computed once per distinct index. A value used once is written where it is used; a value that does not depend on a
loop stands outside it; every reduction is an accumulation of its own. Reads that cannot be proved to lie inside
their array (they stand under a condition) are clamped, so any value may be computed whether or not it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import ranges
from aotato.emit.nest import Accumulate, Assign, Loop, Nest, Statement, Store
from aotato.frontend import dtypes, ir
from aotato.frontend import expr as ex
from aotato.frontend.text import expr_text

GROUPED_TERMS = 256  # a reduction of at least so many terms over few results is shared by a work-group
GROUPED_RESULTS = 4096
DEEPEST = 24  # nesting of an expression that is still written in one piece; compilers bound it (clang: 256)


@dataclass
class _Value:
    """A scalar of the nest: a Lambda's element at an index, or a reduction."""

    name: str
    dtype: ir.DType
    expr: ex.Expr
    free: frozenset[str]  # loop indices it depends on
    reduce: ex.Reduce | None = None
    uses: int = 0


@dataclass
class _Builder:
    program: ir.Program
    in_memory: Callable[[str], bool]
    shape: ir.Shape
    values: dict[str, _Value] = field(default_factory=dict)  # by name, in dependency order
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    extents: dict[str, ranges.Range] = field(default_factory=dict)
    loops: dict[str, Loop] = field(default_factory=dict)
    reductions: int = 0


def nest(program: ir.Program, results: tuple[str, ...], in_memory: Callable[[str], bool]) -> Nest:
    """The nest that computes `results`, arrays of one shape, from arrays that are `in_memory`."""
    shape = program.arrays[results[0]].shape
    builder = _Builder(program, in_memory, shape)
    builder.extents.update({f"_{axis}": (0, extent - 1) for axis, extent in enumerate(shape)})
    stores = tuple(Store(name, _result(builder, name)) for name in results)
    return _finished(builder, stores)


def _result(b: _Builder, name: str) -> ex.Expr:
    own = ex.own_index(len(b.shape))
    if b.in_memory(name):
        return prim.Subscript(prim.Variable(name), own)
    return _element(b, name, own)


def _element(b: _Builder, name: str, indices: tuple[ex.Expr, ...]) -> ex.Expr:
    """Array `name` at `indices`: a read, or the value computed for that index."""
    node = b.program.arrays[name]
    if b.in_memory(name) or not isinstance(node, ir.Lambda):
        return prim.Subscript(prim.Variable(name), tuple(map(_clamped(b, node), range(len(indices)), indices)))
    key = (name, " ".join(expr_text(index) for index in indices))
    if key not in b.known:
        own = {f"_{axis}": index for axis, index in enumerate(indices)}
        expr = _inlined(b, ex.Cast(node.dtype, node.expr) if _weak(node.expr) else node.expr, node, own)
        b.known[key] = _new(b, node.dtype, expr).name
    value = b.values[b.known[key]]
    value.uses += 1
    return prim.Variable(value.name)


def _weak(expr: ex.Expr) -> bool:
    return isinstance(expr, bool | int | float | complex)


def _clamped(b: _Builder, node: ir.Node) -> Callable[[int, ex.Expr], ex.Expr]:
    def one(axis: int, index: ex.Expr) -> ex.Expr:
        extent = node.shape[axis]
        found = ranges.range_of(index, b.extents, lambda array: _elements(b.program, array))
        if found is not None and found[0] >= 0 and found[1] < extent:
            return index
        return prim.Min((prim.Max((index, 0)), max(0, extent - 1)))

    return one


def _elements(program: ir.Program, array: str) -> ranges.Range | None:
    node = program.arrays.get(array)
    if not isinstance(node, ir.Const) or node.dtype.kind not in "iu":
        return None
    data = program.constants[node.digest]
    return (int(data.min()), int(data.max())) if data.size else (0, 0)


def _inlined(b: _Builder, expr: ex.Expr, node: ir.Lambda, own: dict[str, ex.Expr]) -> ex.Expr:
    """`expr` of `node` with its own indices replaced and its operands' elements put in."""
    if isinstance(expr, prim.Variable):
        return own.get(expr.name, expr)
    if isinstance(expr, prim.Subscript):
        indices = tuple(_inlined(b, index, node, own) for index in expr.index_tuple)
        return _element(b, node.operands[ex.operand_position(expr)], indices)
    if isinstance(expr, ex.Reduce):
        return _reduction(b, expr, node, own)
    return ex.with_children(expr, tuple(_inlined(b, child, node, own) for child in ex.children(expr)))


def _reduction(b: _Builder, expr: ex.Reduce, node: ir.Lambda, own: dict[str, ex.Expr]) -> ex.Expr:
    if not _terms(expr):
        # Without its body, whose values would have no loop; the minimum of nothing is needed nowhere, or it is refused
        dtype = dtypes.dtype_of(expr, [b.program.arrays[operand].dtype for operand in node.operands])
        return dtype.type(1 if expr.op in ("product", "all") else 0)
    bounds = []
    inner = dict(own)
    for name, lower, upper in expr.bounds:
        fresh = f"r{b.reductions}"
        b.reductions += 1
        b.extents[fresh] = (lower, max(lower, upper - 1))
        inner[name] = prim.Variable(fresh)
        bounds.append((fresh, lower, upper))
    body = _inlined(b, expr.body, node, inner)
    if expr.op in ("any", "all"):
        body = ex.Cast(np.dtype(bool), body)
    if not bounds:
        return body
    value = _new(b, dtype_of(b, body), body, ex.Reduce(expr.op, tuple(bounds), body))
    value.uses += 1
    return prim.Variable(value.name)


def _new(b: _Builder, dtype: ir.DType, expr: ex.Expr, reduce: ex.Reduce | None = None) -> _Value:
    free = _free(b, expr)
    if reduce is not None:
        free -= {name for name, _, _ in reduce.bounds}
    value = _Value(f"t{len(b.values)}", dtype, expr, free, reduce)
    b.values[value.name] = value
    return value


def _free(b: _Builder, expr: ex.Expr) -> frozenset[str]:
    """Loop indices that `expr` depends on, through the values it uses too."""
    found: set[str] = set()
    for node in ex.walk(expr):
        if isinstance(node, prim.Variable):
            if node.name in b.values:
                found |= b.values[node.name].free
            elif node.name.startswith("r"):
                found.add(node.name)
    return frozenset(found)


def dtype_of(b: _Builder, expr: ex.Expr) -> ir.DType:
    return explicit_dtype(expr, b.program, lambda name: b.values[name].dtype if name in b.values else None)


def _finished(b: _Builder, stores: tuple[Store, ...]) -> Nest:
    """Write values used once where they are used, order loops, and split long reductions."""
    results = ir.size(b.shape)
    big = any(_terms(value.reduce) >= GROUPED_TERMS and not value.free for value in b.values.values() if value.reduce)
    grouped = big and results <= GROUPED_RESULTS
    return _Writer(b, grouped).nest(stores)


def _terms(reduce: ex.Reduce) -> int:
    total = 1
    for _, lower, upper in reduce.bounds:
        total *= max(0, upper - lower)
    return total


class _Writer:
    """Turns values into statements; a value used once, in the same loops, is substituted instead."""

    def __init__(self, b: _Builder, grouped: bool) -> None:
        self.b, self.grouped = b, grouped
        self.inline: dict[str, ex.Expr] = {}
        self.loops: dict[str, Loop] = {}
        self.indices: dict[str, ex.Expr] = {}  # a split loop index in terms of the loops that replace it
        self.statements: list[Statement] = []

    def nest(self, stores: tuple[Store, ...]) -> Nest:
        # Outer reductions were numbered before the ones inside them
        reductions = [value for value in self.b.values.values() if value.reduce is not None]
        for value in sorted(reductions, key=lambda v: int(v.reduce.bounds[0][0][1:]) if v.reduce else 0):
            assert value.reduce is not None
            self._declare(value, value.reduce)
        used_in = self._users(stores)
        for value in self.b.values.values():
            if value.reduce is not None:
                self._accumulate(value, value.reduce)
            else:
                self._assign(value, used_in)
        done = tuple(Store(store.array, self._written(store.expr)) for store in stores)
        loops = tuple(dict.fromkeys(self.loops.values()))
        return Nest(self.b.shape, loops, tuple(self.statements), done, self.grouped)

    def _assign(self, value: _Value, used_in: dict[str, tuple[str, ...]]) -> None:
        expr, loops = self._written(value.expr), self._closed(value.free)
        if value.uses == 1 and used_in[value.name] == loops and _depth(expr) <= DEEPEST:
            self.inline[value.name] = expr
        else:
            self.statements.append(Assign(value.name, value.dtype, expr, loops))

    def _users(self, stores: tuple[Store, ...]) -> dict[str, tuple[str, ...]]:
        """The loops around the last user of each value."""
        found: dict[str, tuple[str, ...]] = {}
        for value in self.b.values.values():
            own = {name for name, _, _ in value.reduce.bounds} if value.reduce else set()
            inside = self._closed(value.free | own)
            for name in _variables(value.expr):
                found[name] = inside
        for store in stores:
            for name in _variables(store.expr):
                found[name] = ()
        return found

    def _declare(self, value: _Value, reduce: ex.Reduce) -> None:
        """The loops of a reduction, each inside the one before, inside those it depends on."""
        parents = self._closed(value.free)
        shared = self.grouped and not value.free and _terms(reduce) >= GROUPED_TERMS
        if shared and len(reduce.bounds) > 1:
            self._flatten(value, reduce)
            return
        for name, lower, upper in reduce.bounds:
            self.loops[name] = Loop(name, lower, upper, parents)
            parents = (*parents, name)

    def _flatten(self, value: _Value, reduce: ex.Reduce) -> None:
        """One loop over all terms, for the work-items of a group to share."""
        flat = prim.Variable(f"{reduce.bounds[0][0]}f")
        self.loops[flat.name] = Loop(flat.name, 0, _terms(reduce), ())
        stride = 1
        for name, lower, upper in reversed(reduce.bounds):
            extent = upper - lower
            index = flat if stride == 1 else prim.FloorDiv(flat, stride)
            index = index if name == reduce.bounds[0][0] else prim.Remainder(index, extent)
            self.indices[name] = index if lower == 0 else prim.Sum((index, lower))
            self.loops[name] = Loop(flat.name, 0, _terms(reduce), ())
            stride *= extent
        value.reduce = ex.Reduce(reduce.op, ((flat.name, 0, _terms(reduce)),), reduce.body)

    def _closed(self, free: frozenset[str]) -> tuple[str, ...]:
        """The loops that must stand around something that depends on the indices `free`, outermost first."""
        found: list[str] = []

        def add(name: str) -> None:
            loop = self.loops[name]
            for parent in loop.parents:
                add(parent)
            if loop.name not in found:
                found.append(loop.name)

        for name in sorted(free, key=lambda name: int(name.strip("rf"))):
            add(name)
        return tuple(found)

    def _written(self, expr: ex.Expr) -> ex.Expr:
        return ex.substitute(expr, {**self.inline, **self.indices})

    def _accumulate(self, value: _Value, reduce: ex.Reduce) -> None:
        """Innermost axis first: each axis accumulates the result of the one inside it."""
        expr = self._written(value.expr)
        outer = self._closed(value.free)
        names = [name for name, _, _ in reduce.bounds]
        for depth in reversed(range(len(names))):
            last = depth == 0
            name = value.name if last else f"{value.name}_{depth}"
            shared = self.grouped and last and not value.free and _terms(reduce) >= GROUPED_TERMS
            inside = (*outer, *names[:depth])
            self.statements.append(Accumulate(name, value.dtype, reduce.op, expr, names[depth], inside, shared))
            expr = prim.Variable(name)


def arrays_read(nest: Nest) -> list[str]:
    """Arrays in memory that the nest reads, in order of first appearance."""
    found: dict[str, None] = {}
    for item in (*nest.statements, *nest.stores):
        for node in ex.walk(item.expr):
            if isinstance(node, prim.Subscript):
                found[node.aggregate.name] = None
    return list(found)


def _depth(expr: ex.Expr) -> int:
    return 1 + max((_depth(child) for child in ex.children(expr)), default=0)


def _variables(expr: ex.Expr) -> list[str]:
    return [node.name for node in ex.walk(expr) if isinstance(node, prim.Variable)]


def explicit_dtype(expr: ex.Expr, program: ir.Program, value: Callable[[str], ir.DType | None]) -> ir.DType:
    """The dtype of an expression in explicit form (see `frontend.dtypes.make_explicit`).

    `value(name)` is the dtype of a value of the nest; index variables, for which it gives None, are int64. A value may
    have the name of an array: only arrays are read through a Subscript.
    """
    if isinstance(expr, bool | np.bool_):
        return np.dtype(bool)
    if isinstance(expr, np.generic):
        return expr.dtype
    if ex.is_leaf(expr) and not isinstance(expr, prim.Variable):
        return np.dtype({int: "int64", float: "float64", complex: "complex128"}[type(expr)])
    match expr:
        case prim.Variable():
            return value(expr.name) or np.dtype("int64")
        case prim.Subscript():
            return program.arrays[expr.aggregate.name].dtype
        case prim.Comparison() | prim.LogicalAnd() | prim.LogicalOr() | prim.LogicalNot():
            return np.dtype(bool)
        case ex.Cast():
            return expr.dtype
        case prim.If():
            return explicit_dtype(expr.then, program, value)
        case ex.Reduce() if expr.op in ("any", "all"):
            return np.dtype(bool)
        case prim.Call():
            argument = explicit_dtype(expr.parameters[0], program, value)
            if expr.function.name == "isnan":
                return np.dtype(bool)
            if expr.function.name in ("abs", "real", "imag") and argument.kind == "c":
                return np.dtype(f"f{argument.itemsize // 2}")
            return argument
    return explicit_dtype(ex.children(expr)[0], program, value)
