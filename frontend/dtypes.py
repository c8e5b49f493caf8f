"""The dtype that numpy (NEP 50) gives to a scalar expression, and the expression with every conversion written out.

Python scalars and index variables are *weak*: they take the dtype of what they meet, and are int64, float64 or
complex128 alone. Operators on weak operands only are Python's and stay weak; whatever is a numpy function (`If`,
`Min`, `Max`, calls, reductions) gives a numpy dtype. The rules are the same on numpy 1.26 and 2:
`ufunc.resolve_dtypes` sees no values.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pymbolic.primitives as prim

from aotato.frontend import expr as ex
from aotato.frontend.expr import FUNCTIONS, Cast, Expr, Reduce
from aotato.frontend.ir import DType

Type = Any  # a numpy dtype, or one of the weak types int, float, complex
Typed = tuple[Expr, Type]

WEAK: dict[type, DType] = {int: np.dtype(np.int64), float: np.dtype(np.float64), complex: np.dtype(np.complex128)}
BOOL, INT64 = np.dtype(bool), WEAK[int]

UFUNCS: dict[type, np.ufunc] = {
    prim.Sum: np.add,
    prim.Product: np.multiply,
    prim.Quotient: np.true_divide,
    prim.FloorDiv: np.floor_divide,
    prim.Remainder: np.remainder,
    prim.Power: np.power,
    prim.LeftShift: np.left_shift,
    prim.RightShift: np.right_shift,
    prim.BitwiseAnd: np.bitwise_and,
    prim.BitwiseOr: np.bitwise_or,
    prim.BitwiseXor: np.bitwise_xor,
    prim.BitwiseNot: np.invert,
    prim.Min: np.minimum,
    prim.Max: np.maximum,
    prim.If: np.minimum,  # has a loop for every dtype that takes and gives the promoted one
}
_NUMPY_NAMES = {"asin": "arcsin", "acos": "arccos", "atan": "arctan", "atan2": "arctan2"}
CALLS: dict[str, Any] = {name: getattr(np, _NUMPY_NAMES.get(name, name)) for name in sorted(FUNCTIONS)}


def dtype_of(expr: Expr, operand_dtypes: Sequence[DType]) -> DType:
    """The dtype of `expr` when operand k has `operand_dtypes[k]`; raises TypeError where numpy has no such operation.

    `sum` and `product` reduce in the dtype of their body (int64 for a bool body), unlike `numpy.sum`.
    """
    return _settled(weak_type_of(expr, operand_dtypes))


def weak_type_of(expr: Expr, operand_dtypes: Sequence[DType]) -> Type:
    """As `dtype_of`, but int, float or complex for an expression that is still weak."""
    return _typed(expr, operand_dtypes)[1]


def make_explicit(expr: Expr, operand_dtypes: Sequence[DType], dtype: DType) -> Expr:
    """`expr` converted to exactly `dtype`, with every conversion inside it a `Cast` or a numpy scalar.

    Every operator, Comparison, Min, Max and If then has operands of one dtype, so a generator with other
    promotion rules gets numpy's types. A literal integer exponent stays a Python integer. Index variables used
    as values become `Cast(int64, _0)`; in indices of Subscripts only reads are converted, to integers that hold what is
    computed from them. Sums and products of several
    dtypes become nested ones, for they go from left to right. int64 against uint64 compares exactly.

    Raises OverflowError for an integer literal that does not fit the dtype it takes (a negative one with an
    unsigned dtype wraps: pymbolic writes -x as -1*x), ValueError for an integer to a negative literal power.
    """
    return _astype(_typed(expr, operand_dtypes), dtype)


def _with_wide_indices(expr: prim.Subscript, dtypes: Sequence[DType]) -> Expr:
    """The read with integers in its indices that arithmetic can make neither too large nor unsigned."""
    new = tuple(_wide(index, dtypes, _largest(index)) for index in expr.index_tuple)
    return expr if new == expr.index_tuple else prim.Subscript(expr.aggregate, new)


def _wide(index: Expr, dtypes: Sequence[DType], largest: int) -> Expr:
    if isinstance(index, prim.Subscript):
        return _with_wide_indices(index, dtypes)
    parts = ex.children(index)
    return ex.with_children(index, tuple(_wide_operand(part, dtypes, largest) for part in parts))


def _wide_operand(part: Expr, dtypes: Sequence[DType], largest: int) -> Expr:
    wide = _wide(part, dtypes, largest)
    if not isinstance(part, prim.Subscript):
        return wide
    dtype = dtypes[ex.operand_position(part)]
    if dtype.kind not in "iu" or dtype == np.int64 or (dtype == np.int32 and largest < 2**31):
        return wide
    short = dtype.itemsize < 4 and largest < 2**31
    return ex.Cast(np.dtype(np.int32 if short else np.int64), wide)


def _largest(index: Expr) -> int:
    """The largest integer written in an index, that of reads inside it left out."""
    if isinstance(index, prim.Subscript):
        return 0
    if type(index) is int:
        return abs(index)
    return max(map(_largest, ex.children(index)), default=0)


def function_name(call: prim.Call) -> str:
    name = getattr(call.function, "name", None)
    if name not in FUNCTIONS:
        raise ValueError(f"unknown function {name or call.function!r}; known are {', '.join(sorted(FUNCTIONS))}")
    return str(name)


def _settled(typ: Type) -> DType:
    return WEAK[typ] if _is_weak(typ) else typ


def _is_weak(typ: Type) -> bool:
    return isinstance(typ, type)


def _same(a: Type, b: Type) -> bool:
    return _is_weak(a) == _is_weak(b) and bool(a == b)  # a dtype alone may equal a Python type


def _is_literal(expr: Expr) -> bool:
    return type(expr) in WEAK


def _literal(value: Any, dtype: DType) -> Any:
    """The Python scalar `value` as a numpy scalar of a dtype that it takes in arithmetic."""
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        if dtype.kind == "u" and value < 0:
            value %= 1 << info.bits
        if not info.min <= value <= info.max:
            raise OverflowError(f"the integer {value} does not fit {dtype.name}")
    with np.errstate(over="ignore"):
        return dtype.type(value)


def _convert(typed: Typed, dtype: DType) -> Expr:
    """An operand in the dtype that its operator computes in."""
    expr, typ = typed
    if _is_literal(expr):
        return _literal(expr, dtype)
    if _settled(typ) == dtype:
        return expr
    if isinstance(expr, np.generic) and (expr.dtype.kind in "biu" or np.can_cast(expr.dtype, dtype, "same_kind")):
        with np.errstate(over="ignore"):
            return np.asarray(expr).astype(dtype)[()]
    if isinstance(expr, Cast) and isinstance(expr.body, prim.Variable) and expr.dtype == INT64:
        return Cast(dtype, expr.body)
    return Cast(dtype, expr)


def _astype(typed: Typed, dtype: DType) -> Expr:
    """A conversion that the expression asks for: literals convert as arrays of their own dtype do."""
    expr, typ = typed
    if _is_literal(expr):
        own = np.dtype(np.uint64) if typ is int and expr > np.iinfo(INT64).max else WEAK[typ]
        expr, typ = _literal(expr, own), own
    return _convert((expr, typ), dtype)


def _resolve(kind: type, types: Sequence[Type]) -> tuple[tuple[DType, ...], Type]:
    """The dtypes that operator `kind` converts its operands to, and the type of its result."""
    ufunc = UFUNCS[kind]
    if all(map(_is_weak, types)):
        result = max(types, key=list(WEAK).index)
        if kind is prim.Quotient and result is int:
            result = float
        loop = ufunc.resolve_dtypes((*(WEAK[result],) * len(types), None))
        return loop[:-1], result
    loop = ufunc.resolve_dtypes((*types, None))
    return loop[:-1], loop[-1]


def _chain(kind: type, parts: Sequence[Typed]) -> Typed:
    """`kind` from left to right, nested where a prefix has another dtype than the whole."""
    group, typ = [parts[0]], parts[0][1]
    for part in parts[1:]:
        wider = _resolve(kind, (typ, part[1]))[1]
        if len(group) > 1 and not _same(wider, typ):
            group = [_close(kind, group, typ)]
        group.append(part)
        typ = wider
    return _close(kind, group, typ)


def _close(kind: type, group: Sequence[Typed], typ: Type) -> Typed:
    return kind(tuple(_convert(part, _settled(typ)) for part in group)), typ


def _typed(expr: Expr, dtypes: Sequence[DType]) -> Typed:
    """`expr` made explicit, and its type; a Python literal is left for its operator to convert."""
    if ex.is_leaf(expr):
        return _typed_leaf(expr)
    if isinstance(expr, prim.Subscript):
        return _with_wide_indices(expr, dtypes), dtypes[ex.operand_position(expr)]
    parts = [_typed(child, dtypes) for child in ex.children(expr)]
    types = [typ for _, typ in parts]
    kind = type(expr)
    match expr:
        case prim.LogicalAnd() | prim.LogicalOr() | prim.LogicalNot():
            return ex.with_children(expr, tuple(_astype(part, BOOL) for part in parts)), BOOL
        case prim.Power():
            return _typed_power(parts)
        case prim.Min() | prim.Max():
            result, typ = _chain(kind, parts)
            return result, _settled(typ)
        case prim.If():
            branches = _settled(_resolve(kind, types[1:])[1])
            return prim.If(_astype(parts[0], BOOL), *(_convert(part, branches) for part in parts[1:])), branches
        case prim.Comparison():
            return _typed_comparison(expr.operator, parts[0], parts[1]), BOOL
        case prim.Call():
            return _typed_call(function_name(expr), parts)
        case Reduce():
            return _typed_reduce(expr, parts[0])
        case Cast():
            return _astype(parts[0], expr.dtype), expr.dtype
    if isinstance(expr, ex.NARY):
        return _chain(kind, parts)
    if kind in ex.BINARY or kind is prim.BitwiseNot:
        loop, typ = _resolve(kind, types)
        return ex.with_children(expr, tuple(map(_convert, parts, loop))), typ
    raise AssertionError(f"unknown expression node {kind.__name__}")


def _typed_leaf(expr: Expr) -> Typed:
    match expr:
        case prim.Variable():
            return Cast(INT64, expr), int
        case bool() | np.bool_():
            return np.bool_(expr), BOOL
        case np.generic():
            return expr, expr.dtype
        case int() | float() | complex():
            return expr, type(expr)
    raise TypeError(f"{expr!r} ({type(expr).__name__}) is no scalar of an expression")


def _typed_power(parts: Sequence[Typed]) -> Typed:
    (base, exponent), types = parts, [typ for _, typ in parts]
    loop, typ = _resolve(prim.Power, types)
    if isinstance(exponent[0], np.integer) and _same(typ, base[1]):
        exponent = (int(exponent[0]), int)  # main converts numbers to the dtype of the result
    if not (_is_literal(exponent[0]) and exponent[1] is int):
        return prim.Power(_convert(base, loop[0]), _convert(exponent, loop[1])), typ
    if loop[0].kind in "biu" and exponent[0] < 0:
        raise ValueError(f"an integer ({loop[0].name}) to the negative integer power {exponent[0]}")
    return prim.Power(_convert(base, loop[0]), exponent[0]), typ


def _typed_comparison(operator: str, left: Typed, right: Typed) -> Expr:
    outcome = _beyond_range(operator, left, right)
    if outcome is not None:
        return np.bool_(outcome)
    sides = [_settled(typ) for _, typ in (left, right)]
    common = _settled(_resolve(prim.If, (left[1], right[1]))[1])
    if all(side.kind in "iu" for side in sides) and not (_is_literal(left[0]) or _is_literal(right[0])):
        common = _resolve(prim.If, sides)[1]  # an index is compared as it is, never converted to uint8
    if common.kind == "f" and all(side.kind in "iu" for side in sides):
        return _compare_mixed_signs(operator, left, right)
    return prim.Comparison(_convert(left, common), operator, _convert(right, common))


def _beyond_range(operator: str, left: Typed, right: Typed) -> bool | None:
    """The outcome when one side is an integer literal that the other side's integer dtype cannot hold."""
    for (literal, _), (_, typ), sign in ((left, right, 1), (right, left, -1)):
        dtype = _settled(typ)
        if type(literal) is not int or dtype.kind not in "iu":
            continue
        info = np.iinfo(dtype)
        if not info.min <= literal <= info.max:
            order = sign if literal > info.max else -sign  # of left against right
            return {"<": order < 0, "<=": order < 0, ">": order > 0, ">=": order > 0}.get(operator, operator == "!=")
    return None


def _compare_mixed_signs(operator: str, left: Typed, right: Typed) -> Expr:
    """A signed integer against a uint64, exactly: a negative one is the smaller."""
    unsigned = np.dtype(np.uint64)
    if _settled(right[1]).kind == "i":
        flipped = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}.get(operator, operator)
        return _compare_mixed_signs(flipped, right, left)
    signed, zero = _convert(left, _settled(left[1])), _settled(left[1]).type(0)
    same_sign = prim.Comparison(_convert((signed, _settled(left[1])), unsigned), operator, _convert(right, unsigned))
    if operator in ("<", "<=", "!="):
        return prim.LogicalOr((prim.Comparison(signed, "<", zero), same_sign))
    return prim.LogicalAnd((prim.Comparison(signed, ">=", zero), same_sign))


def _typed_call(name: str, parts: Sequence[Typed]) -> Typed:
    if len(parts) != (2 if name == "atan2" else 1):
        raise TypeError(f"{name} takes {2 if name == 'atan2' else 1} argument(s), not {len(parts)}")
    types = [typ for _, typ in parts]
    if all(map(_is_weak, types)):
        types = [_settled(typ) for typ in types]
    function = CALLS[name]
    if isinstance(function, np.ufunc) and name != "isnan":
        loop = function.resolve_dtypes((*types, None))
        arguments, result = loop[:-1], loop[-1]
    elif name == "isnan":
        arguments, result = (types[0] if types[0].kind in "fc" else WEAK[float],), BOOL
    else:
        arguments = (types[0],)
        result = np.empty(0, types[0]).real.dtype
    return prim.Call(prim.Variable(name), tuple(map(_convert, parts, arguments))), result


def _typed_reduce(expr: Reduce, body: Typed) -> Typed:
    dtype = _settled(body[1])
    if expr.op in ("any", "all"):
        return Reduce(expr.op, expr.bounds, _astype(body, BOOL)), BOOL
    if dtype == BOOL and expr.op in ("sum", "product"):
        dtype = INT64
    return Reduce(expr.op, expr.bounds, _convert(body, dtype)), dtype
