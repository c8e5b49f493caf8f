"""From arrays that a kernel must produce to the scalar statements that produce them.

Every array between a result and the arrays in memory is inlined: read at an index, it becomes a value of its own,
computed once per distinct index. A value used once is written where it is used; a value that does not depend on a
loop stands outside it; every reduction is an accumulation of its own. Reads that cannot be proved to lie inside
their array (they stand under a condition) are clamped, so any value may be computed whether or not it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import groups, ranges
from aotato.emit.nest import Accumulate, Assign, Loop, Nest, Statement, Store, array_of, is_local
from aotato.frontend import dtypes, ir
from aotato.frontend import expr as ex
from aotato.frontend.text import expr_text

_RANGES: dict[str, ranges.Range] = {}  # of constants, by digest
UNROLLED = 6  # terms of a reduction that is written out
FEW_SUMS = 3  # reductions that an expression may use and still be written where it is used
DEEPEST = 24  # nesting of an expression that is still written in one piece; compilers bound it (clang: 256)


_JOINED: dict[str, type] = {
    "sum": prim.Sum,
    "product": prim.Product,
    "min": prim.Min,
    "max": prim.Max,
    "any": prim.LogicalOr,
    "all": prim.LogicalAnd,
}


Where = Callable[[str, tuple[ex.Expr, ...]], str | None]  # how to name an element that is read; None: it is computed


@dataclass
class _Value:
    """A scalar of the nest: a Lambda's element at an index, or a reduction."""

    name: str
    dtype: ir.DType
    expr: ex.Expr
    free: frozenset[str]  # loop indices it depends on
    over: frozenset[str]  # loop indices that it, or a value it uses, was reduced over
    reduce: ex.Reduce | None = None
    uses: int = 0


@dataclass
class _Builder:
    program: ir.Program
    where: Where
    shape: ir.Shape
    values: dict[str, _Value] = field(default_factory=dict)  # by name, in dependency order
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    extents: dict[str, ranges.Range] = field(default_factory=dict)
    loops: dict[str, frozenset[str]] = field(default_factory=dict)  # loop index -> loop indices it stands inside
    around: tuple[str, ...] = ()  # loop indices of the reductions being built


def nest(program: ir.Program, results: tuple[str, ...], in_memory: Callable[[str], bool]) -> Nest:
    """The nest that computes `results`, arrays of one shape, from arrays that are `in_memory`."""
    shape = program.arrays[results[0]].shape
    own = ex.own_index(len(shape))

    def where(name: str, indices: tuple[ex.Expr, ...]) -> str | None:
        return name if in_memory(name) else None

    return nest_of(program, shape, tuple((name, own) for name in results), where)


def nest_of(
    program: ir.Program,
    shape: ir.Shape,
    results: tuple[tuple[str, tuple[ex.Expr, ...]], ...],
    where: Where,
    shared: bool = True,
) -> Nest:
    """The nest over `shape` that computes elements of arrays, each given by indices in terms of the nest's own.

    `where(array, indices)` names the memory from which that element is read rather than computed; a result never is,
    unless it was computed before: `where(array, ())`. `shared` allows a group to share a long reduction.
    """
    builder = _Builder(program, where, shape)
    builder.extents.update({f"_{axis}": (0, max(0, extent - 1)) for axis, extent in enumerate(shape)})
    stores = tuple(Store(name, indices, _result(builder, name, indices)) for name, indices in results)
    return _finished(builder, stores, shared)


def _result(b: _Builder, name: str, indices: tuple[ex.Expr, ...]) -> ex.Expr:
    memory = b.where(name, ())
    return _value(b, name, indices) if memory is None else prim.Subscript(prim.Variable(memory), indices)


def _element(b: _Builder, name: str, indices: tuple[ex.Expr, ...]) -> ex.Expr:
    """Array `name` at `indices`: a read, or the value computed for that index."""
    node, memory = b.program.arrays[name], b.where(name, indices)
    if memory is None and isinstance(node, ir.Lambda):
        return _value(b, name, indices)
    if isinstance(node, ir.Const) and node.dtype.kind in "iu" and all(type(index) is int for index in indices):
        return _number(b.program, node, indices)
    return prim.Subscript(prim.Variable(memory or name), tuple(map(_clamped(b, node), range(len(indices)), indices)))


def _number(program: ir.Program, node: ir.Const, indices: tuple[ex.Expr, ...]) -> ex.Expr:
    """An element of a table of integers, known now; indices that no one will need may lie outside."""
    data = program.constants[node.digest]
    inside = tuple(min(max(int(i), 0), extent - 1) for i, extent in zip(indices, data.shape, strict=True))
    return data[inside]


def _value(b: _Builder, name: str, indices: tuple[ex.Expr, ...]) -> ex.Expr:
    """The element of a Lambda, computed here."""
    node = b.program.arrays[name]
    assert isinstance(node, ir.Lambda)
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
        found = ranges.range_of(index, b.extents, lambda array: elements(b.program, array))
        if found is not None and found[0] >= 0 and found[1] < extent:
            return index
        return prim.Min((prim.Max((index, 0)), max(0, extent - 1)))

    return one


def elements(program: ir.Program, array: str) -> ranges.Range | None:
    """The smallest and largest element of an integer constant."""
    node = program.arrays.get(array_of(array))
    if not isinstance(node, ir.Const) or node.dtype.kind not in "iu":
        return None
    if node.digest not in _RANGES:
        data = program.constants[node.digest]
        _RANGES[node.digest] = (int(data.min()), int(data.max())) if data.size else (0, 0)
    return _RANGES[node.digest]


def _inlined(b: _Builder, expr: ex.Expr, node: ir.Lambda, own: dict[str, ex.Expr]) -> ex.Expr:
    """`expr` of `node` with its own indices replaced and its operands' elements put in."""
    if isinstance(expr, prim.Variable):
        return own.get(expr.name, expr)
    if isinstance(expr, prim.Subscript):
        indices = tuple(_inlined(b, index, node, own) for index in expr.index_tuple)
        return _element(b, node.operands[ex.operand_position(expr)], indices)
    if isinstance(expr, ex.Reduce):
        return _reduction(b, expr, node, own)
    if isinstance(expr, prim.If):
        condition = _inlined(b, expr.condition, node, own)
        if isinstance(condition, bool):
            return _inlined(b, expr.then if condition else expr.else_, node, own)
        return prim.If(condition, _inlined(b, expr.then, node, own), _inlined(b, expr.else_, node, own))
    new = ex.with_children(expr, tuple(_inlined(b, child, node, own) for child in ex.children(expr)))
    return folded(new, b)


def _reduction(b: _Builder, expr: ex.Reduce, node: ir.Lambda, own: dict[str, ex.Expr]) -> ex.Expr:
    if _terms(expr) <= UNROLLED and expr.bounds and _terms(expr):
        return _unrolled(b, expr, node, own)
    if not expr.bounds:
        return _reduced_body(b, expr, node, own)
    if not _terms(expr):
        # Without its body, whose values would have no loop; the minimum of nothing is needed nowhere, or it is refused
        dtype = dtypes.dtype_of(expr, [b.program.arrays[operand].dtype for operand in node.operands])
        return dtype.type(1 if expr.op in ("product", "all") else 0)
    # Reductions over the same range share a loop, unless one needs the other's result
    attempt = 0
    while True:
        names = tuple(f"r{len(b.around)}_{attempt}_{axis}" for axis in range(len(expr.bounds)))
        saved = _saved(b)
        found = _attempted(b, expr, node, own, names)
        if found is not None:
            return found
        _restore(b, saved)
        attempt += 1


def _attempted(
    b: _Builder, expr: ex.Reduce, node: ir.Lambda, own: dict[str, ex.Expr], names: tuple[str, ...]
) -> ex.Expr | None:
    """The reduction over loops `names`, or None if these have another range, place, or depend on their own result."""
    ranges_ = {name: (lower, max(lower, upper - 1)) for name, (_, lower, upper) in zip(names, expr.bounds, strict=True)}
    bounds = tuple((name, lower, upper) for name, (_, lower, upper) in zip(names, expr.bounds, strict=True))
    if any(b.extents.get(name, found) != found for name, found in ranges_.items()) or any(n in b.around for n in names):
        return None
    b.extents |= ranges_
    outside, b.around = b.around, (*b.around, *names)
    inner = {**own, **{old: prim.Variable(new) for new, (old, _, _) in zip(names, expr.bounds, strict=True)}}
    body = _reduced_body(b, expr, node, inner)
    b.around = outside
    value = _new(b, dtype_of(b, body), body, ex.Reduce(expr.op, bounds, body))
    inside = _over(b, body)
    if any(name in inside for name in names) or any(b.loops.get(n, value.free) != value.free for n in names):
        return None
    b.loops |= dict.fromkeys(names, value.free)
    value.uses += 1
    return prim.Variable(value.name)


def _reduced_body(b: _Builder, expr: ex.Reduce, node: ir.Lambda, inner: dict[str, ex.Expr]) -> ex.Expr:
    body = _inlined(b, expr.body, node, inner)
    return ex.Cast(np.dtype(bool), body) if expr.op in ("any", "all") else body


def _unrolled(b: _Builder, expr: ex.Reduce, node: ir.Lambda, own: dict[str, ex.Expr]) -> ex.Expr:
    """A short reduction, term by term in order."""
    terms = []
    for index in np.ndindex(*(upper - lower for _, lower, upper in expr.bounds)):
        at = {name: lower + int(i) for (name, lower, _), i in zip(expr.bounds, index, strict=True)}
        terms.append(_reduced_body(b, expr, node, {**own, **at}))
    if len(terms) == 1:
        return terms[0]
    return _JOINED[expr.op](tuple(terms))


_Saved = tuple[
    dict[str, "_Value"], dict[str, int], dict[tuple[str, str], str], dict[str, ranges.Range], tuple[str, ...]
]


def _saved(b: _Builder) -> _Saved:
    uses = {name: value.uses for name, value in b.values.items()}
    return dict(b.values), uses, dict(b.known), dict(b.extents), b.around


def _restore(b: _Builder, saved: _Saved) -> None:
    b.values, uses, b.known, b.extents, b.around = saved
    for name, count in uses.items():
        b.values[name].uses = count


def folded(expr: ex.Expr, b: _Builder) -> ex.Expr:
    """Integer arithmetic on numbers, and comparisons and remainders that known ranges decide."""
    parts = ex.children(expr)

    def known(part: ex.Expr) -> ranges.Range | None:
        return ranges.range_of(part, b.extents, lambda array: elements(b.program, array))

    if isinstance(expr, ex.Cast) and expr.dtype.kind == "i" and type(parts[0]) is int:
        return parts[0]
    if isinstance(expr, prim.Comparison):
        return _decided(expr, known(parts[0]), known(parts[1]))
    if isinstance(expr, prim.Remainder) and type(parts[1]) is int and parts[1] > 0:
        top = known(parts[0])
        if top is not None and top[0] >= 0 and top[1] < parts[1]:
            return parts[0]
    if not parts or not all(type(part) is int or isinstance(part, bool) for part in parts):
        return expr
    match expr:
        case prim.Sum() if not any(isinstance(part, bool) for part in parts):
            return sum(parts)
        case prim.Product() if not any(isinstance(part, bool) for part in parts):
            return int(np.prod(parts, dtype=object))
        case prim.FloorDiv() if parts[1]:
            return parts[0] // parts[1]
        case prim.Remainder() if parts[1]:
            return parts[0] % parts[1]
        case prim.LogicalAnd():
            return all(parts)
        case prim.LogicalOr():
            return any(parts)
        case prim.LogicalNot():
            return not parts[0]
    return expr


def _decided(expr: prim.Comparison, left: ranges.Range | None, right: ranges.Range | None) -> ex.Expr:
    if left is None or right is None:
        return expr
    below, above = left[1] < right[0], left[0] > right[1]
    not_above, not_below = left[1] <= right[0], left[0] >= right[1]
    same = left == right and left[0] == left[1]
    yes, no = {
        "<": (below, not_below),
        "<=": (not_above, above),
        ">": (above, not_above),
        ">=": (not_below, below),
        "==": (same, below or above),
        "!=": (below or above, same),
    }[expr.operator]
    return True if yes else False if no else expr


def _new(b: _Builder, dtype: ir.DType, expr: ex.Expr, reduce: ex.Reduce | None = None) -> _Value:
    free, over = _free(b, expr), _over(b, expr)
    if reduce is not None:
        own = frozenset(name for name, _, _ in reduce.bounds)
        free, over = free - own, over | own
    value = _Value(f"t{len(b.values)}", dtype, expr, free, over, reduce)
    b.values[value.name] = value
    return value


def _free(b: _Builder, expr: ex.Expr) -> frozenset[str]:
    """Loop indices that `expr` depends on, through the values it uses and the loops these stand in too."""
    found: set[str] = set()
    for name in _variables(expr):
        if name in b.values:
            found |= b.values[name].free
        elif name.startswith("r"):
            found |= {name, *b.loops.get(name, ())}
    return frozenset(found)


def _over(b: _Builder, expr: ex.Expr) -> frozenset[str]:
    found: set[str] = set()
    for name in _variables(expr):
        if name in b.values:
            found |= b.values[name].over
    return frozenset(found)


def dtype_of(b: _Builder, expr: ex.Expr) -> ir.DType:
    return explicit_dtype(expr, b.program, lambda name: b.values[name].dtype if name in b.values else None)


def _finished(b: _Builder, stores: tuple[Store, ...], shared: bool) -> Nest:
    """Write values used once where they are used, order loops, and say how lanes share long reductions."""
    nest = _Writer(b).nest(stores)
    return replace(nest, share=groups.kind(nest, b.program)) if shared else nest


def _terms(reduce: ex.Reduce) -> int:
    total = 1
    for _, lower, upper in reduce.bounds:
        total *= max(0, upper - lower)
    return total


def _nesting(reduce: ex.Reduce | None) -> tuple[int, str]:
    """Outer reductions before those inside them: a loop's name begins with the number of loops around it."""
    assert reduce is not None
    name = reduce.bounds[0][0]
    return int(name[1:].partition("_")[0]), name


class _Writer:
    """Turns values into statements; a value used once, in the same loops, is substituted instead."""

    def __init__(self, b: _Builder) -> None:
        self.b = b
        self.inline: dict[str, ex.Expr] = {}
        self.loops: dict[str, Loop] = {}
        self.statements: list[Statement] = []

    def nest(self, stores: tuple[Store, ...]) -> Nest:
        # Outer reductions were numbered before the ones inside them
        reductions = [value for value in self.b.values.values() if value.reduce is not None]
        for value in sorted(reductions, key=lambda v: _nesting(v.reduce)):
            assert value.reduce is not None
            self._declare(value, value.reduce)
        used_in = self._users(stores)
        for value in self.b.values.values():
            if value.name not in used_in:
                continue  # only an empty reduction would have used it
            if value.reduce is not None:
                self._accumulate(value, value.reduce)
            else:
                self._assign(value, used_in)
        done = tuple(Store(store.array, store.indices, self._written(store.expr)) for store in stores)
        loops = tuple(dict.fromkeys(self.loops.values()))
        return Nest(self.b.shape, loops, tuple(self.statements), done)

    def _assign(self, value: _Value, used_in: dict[str, tuple[str, ...]]) -> None:
        expr, loops = self._written(value.expr), self._closed(value.free)
        once = value.uses == 1 and used_in[value.name] == loops and _depth(expr) <= DEEPEST
        if self._is_copy(value, expr, loops) or (once and self._sums(expr) < FEW_SUMS):
            self.inline[value.name] = expr
        else:
            self.statements.append(Assign(value.name, value.dtype, expr, loops))

    def _is_copy(self, value: _Value, expr: ex.Expr, loops: tuple[str, ...]) -> bool:
        if not isinstance(expr, prim.Variable) or expr.name not in self.b.values:
            return False
        original = self.b.values[expr.name]
        return original.dtype == value.dtype and self._closed(original.free) == loops

    def _sums(self, expr: ex.Expr) -> int:
        """How many reductions' results are in `expr`: taken together early, they free registers for others."""
        names = set(_variables(expr))
        return sum(1 for name in names if name in self.b.values and self.b.values[name].reduce is not None)

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
        for name, lower, upper in reduce.bounds:
            self.loops[name] = Loop(name, lower, upper, parents)
            parents = (*parents, name)

    def _closed(self, free: frozenset[str]) -> tuple[str, ...]:
        """The loops that must stand around something that depends on the indices `free`, outermost first."""
        found: list[str] = []

        def add(name: str) -> None:
            loop = self.loops[name]
            for parent in loop.parents:
                add(parent)
            if loop.name not in found:
                found.append(loop.name)

        for name in sorted(free):
            add(name)
        return tuple(found)

    def _written(self, expr: ex.Expr) -> ex.Expr:
        return ex.substitute(expr, self.inline)

    def _accumulate(self, value: _Value, reduce: ex.Reduce) -> None:
        """Innermost axis first: each axis accumulates the result of the one inside it."""
        expr = self._written(value.expr)
        outer = self._closed(value.free)
        names = [name for name, _, _ in reduce.bounds]
        for depth in reversed(range(len(names))):
            last = depth == 0
            name = value.name if last else f"{value.name}_{depth}"
            inside = (*outer, *names[:depth])
            self.statements.append(Accumulate(name, value.dtype, reduce.op, expr, names[depth], inside))
            expr = prim.Variable(name)


def arrays_read(nest: Nest) -> list[str]:
    """Arrays in memory that the nest reads, in order of first appearance."""
    found: dict[str, None] = {}
    for item in (*nest.statements, *nest.stores):
        for node in ex.walk(item.expr):
            if isinstance(node, prim.Subscript) and not is_local(node.aggregate.name):
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
            return program.arrays[array_of(expr.aggregate.name)].dtype
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
