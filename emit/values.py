"""The scalars of a nest: elements of arrays at indices, and reductions, each computed once.

Every array between a result and the arrays in memory is inlined: read at an index, it becomes a value of its own,
computed once per distinct index. Reads that cannot be proved to lie inside their array (they stand under a condition)
are clamped, so any value may be computed whether or not it is needed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import pymbolic.primitives as prim

from aotato.emit import ranges
from aotato.emit.folding import folded
from aotato.emit.nest import array_of
from aotato.frontend import dtypes, ir
from aotato.frontend import expr as ex
from aotato.frontend.text import expr_text

_RANGES: dict[str, ranges.Range] = {}  # of constants, by digest
UNROLLED = 6  # terms of a reduction that is written out

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
class Value:
    """A scalar of the nest: a Lambda's element at an index, or a reduction."""

    name: str
    dtype: ir.DType
    expr: ex.Expr
    free: frozenset[str]  # loop indices it depends on
    over: frozenset[str]  # loop indices that it, or a value it uses, was reduced over
    reduce: ex.Reduce | None = None
    uses: int = 0


@dataclass
class Values:
    """All scalars of a nest over `shape`, as they are found; `where` says which elements are read from memory."""

    program: ir.Program
    where: Where
    shape: ir.Shape
    values: dict[str, Value] = field(default_factory=dict)  # by name, in dependency order
    known: dict[tuple[str, str], str] = field(default_factory=dict)
    extents: dict[str, ranges.Range] = field(default_factory=dict)
    loops: dict[str, frozenset[str]] = field(default_factory=dict)  # loop index -> loop indices it stands inside
    around: tuple[str, ...] = ()  # loop indices of the reductions being built

    def range(self, expr: ex.Expr) -> ranges.Range | None:
        """What is known of an integer expression."""
        return ranges.range_of(expr, self.extents, lambda array: elements(self.program, array))


def result(b: Values, name: str, indices: tuple[ex.Expr, ...]) -> ex.Expr:
    memory = b.where(name, ())
    return _value(b, name, indices) if memory is None else prim.Subscript(prim.Variable(memory), indices)


def _element(b: Values, name: str, indices: tuple[ex.Expr, ...]) -> ex.Expr:
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


def _value(b: Values, name: str, indices: tuple[ex.Expr, ...]) -> ex.Expr:
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


def _clamped(b: Values, node: ir.Node) -> Callable[[int, ex.Expr], ex.Expr]:
    def one(axis: int, index: ex.Expr) -> ex.Expr:
        extent = node.shape[axis]
        found = b.range(index)
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


def _inlined(b: Values, expr: ex.Expr, node: ir.Lambda, own: dict[str, ex.Expr]) -> ex.Expr:
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
    return folded(new, b.range)


def _reduction(b: Values, expr: ex.Reduce, node: ir.Lambda, own: dict[str, ex.Expr]) -> ex.Expr:
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
    b: Values, expr: ex.Reduce, node: ir.Lambda, own: dict[str, ex.Expr], names: tuple[str, ...]
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


def _reduced_body(b: Values, expr: ex.Reduce, node: ir.Lambda, inner: dict[str, ex.Expr]) -> ex.Expr:
    body = _inlined(b, expr.body, node, inner)
    return ex.Cast(np.dtype(bool), body) if expr.op in ("any", "all") else body


def _unrolled(b: Values, expr: ex.Reduce, node: ir.Lambda, own: dict[str, ex.Expr]) -> ex.Expr:
    """A short reduction, term by term in order."""
    terms = []
    for index in np.ndindex(*(upper - lower for _, lower, upper in expr.bounds)):
        at = {name: lower + int(i) for (name, lower, _), i in zip(expr.bounds, index, strict=True)}
        terms.append(_reduced_body(b, expr, node, {**own, **at}))
    if len(terms) == 1:
        return terms[0]
    return _JOINED[expr.op](tuple(terms))


_Saved = tuple[
    dict[str, "Value"], dict[str, int], dict[tuple[str, str], str], dict[str, ranges.Range], tuple[str, ...]
]


def _saved(b: Values) -> _Saved:
    uses = {name: value.uses for name, value in b.values.items()}
    return dict(b.values), uses, dict(b.known), dict(b.extents), b.around


def _restore(b: Values, saved: _Saved) -> None:
    b.values, uses, b.known, b.extents, b.around = saved
    for name, count in uses.items():
        b.values[name].uses = count


def _new(b: Values, dtype: ir.DType, expr: ex.Expr, reduce: ex.Reduce | None = None) -> Value:
    free, over = _free(b, expr), _over(b, expr)
    if reduce is not None:
        own = frozenset(name for name, _, _ in reduce.bounds)
        free, over = free - own, over | own
    value = Value(f"t{len(b.values)}", dtype, expr, free, over, reduce)
    b.values[value.name] = value
    return value


def _free(b: Values, expr: ex.Expr) -> frozenset[str]:
    """Loop indices that `expr` depends on, through the values it uses and the loops these stand in too."""
    found: set[str] = set()
    for name in variables(expr):
        if name in b.values:
            found |= b.values[name].free
        elif name.startswith("r"):
            found |= {name, *b.loops.get(name, ())}
    return frozenset(found)


def _over(b: Values, expr: ex.Expr) -> frozenset[str]:
    found: set[str] = set()
    for name in variables(expr):
        if name in b.values:
            found |= b.values[name].over
    return frozenset(found)


def dtype_of(b: Values, expr: ex.Expr) -> ir.DType:
    return explicit_dtype(expr, b.program, lambda name: b.values[name].dtype if name in b.values else None)


def _terms(reduce: ex.Reduce) -> int:
    total = 1
    for _, lower, upper in reduce.bounds:
        total *= max(0, upper - lower)
    return total


def variables(expr: ex.Expr) -> list[str]:
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
