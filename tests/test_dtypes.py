"""Dtypes of expressions: numpy's own, and the explicit form has nothing left to promote."""

import operator
from functools import reduce as fold

import numpy as np
import pymbolic.primitives as prim
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aotato.frontend.dtypes import CALLS, UFUNCS, dtype_of, make_explicit, weak_type_of
from aotato.frontend.evaluate import evaluate
from aotato.frontend.expr import BINARY, NARY, Cast, Reduce, children, read, walk
from aotato.frontend.interpret import Value, agrees
from aotato.frontend.ir import Lambda
from aotato.frontend.text import expr_text

NEP50 = np.lib.NumpyVersion(np.__version__) >= "2.0.0"
DTYPES = [np.dtype(code) for code in "? i1 i2 i4 i8 u1 u4 u8 f2 f4 f8 c8 c16".split()]  # noqa: SIM905
NAMES = [dtype.name for dtype in DTYPES]
OPERANDS = [np.array([3, 1, 0], dtype) for dtype in DTYPES]
b, i1, i4, i8, u1, u8, f4, f8, c8 = (
    read(NAMES.index(name), (prim.Variable("_0"),))
    for name in ("bool", "int8", "int32", "int64", "uint8", "uint64", "float32", "float64", "complex64")
)
index = prim.Variable("_0")

PYTHON = {
    prim.Sum: operator.add,
    prim.Product: operator.mul,
    prim.Quotient: operator.truediv,
    prim.FloorDiv: operator.floordiv,
    prim.Remainder: operator.mod,
    prim.Power: lambda x, y: np.power(x, y) if hasattr(x, "dtype") else x**y,  # array**2 is square, of other dtypes
    prim.BitwiseAnd: operator.and_,
    prim.BitwiseOr: operator.or_,
    prim.BitwiseXor: operator.xor,
}
COMPARE = {
    "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq, "!=": operator.ne
}


def numpy_result(expr, at):
    """What Python and numpy make of the expression at index `at`: operands are arrays of one element."""
    if isinstance(expr, prim.Variable):
        return at
    if not isinstance(expr, prim.ExpressionNode):
        return np.bool_(expr) if isinstance(expr, bool) else expr
    if isinstance(expr, prim.Subscript):
        return OPERANDS[int(expr.aggregate.name[1:])][at : at + 1]
    parts = [numpy_result(child, at) for child in children(expr)]
    match expr:
        case prim.Min() | prim.Max():
            return UFUNCS[type(expr)](*parts)
        case prim.Comparison():
            if not any(isinstance(part, np.generic | np.ndarray) for part in parts):
                parts = [np.asarray(part) for part in parts]  # numpy orders complex numbers
            return np.asarray(COMPARE[expr.operator](*parts))
        case prim.LogicalAnd():
            return np.logical_and(*parts)
        case prim.LogicalNot():
            return np.logical_not(parts[0])
        case prim.If():
            return np.where(*parts)
        case prim.BitwiseNot():
            return ~parts[0]
        case prim.Call():
            return CALLS[expr.function.name](*map(np.asarray, parts) if len(parts) == 1 else parts)
        case Cast():
            part = np.asarray(parts[0])
            return (part.real if part.dtype.kind == "c" and expr.dtype.kind != "c" else part).astype(expr.dtype)
    return fold(PYTHON[type(expr)], parts)


literals = st.one_of(st.booleans(), st.integers(-3, 3), st.sampled_from([0.1, -2.5, 1e30, 2j, np.float32(0.5)]))
reads = st.sampled_from([read(k, (index,)) for k in range(len(DTYPES))])


def grow(inner):
    chain = st.lists(inner, min_size=2, max_size=3).map(tuple)
    chains = st.sampled_from([prim.Sum, prim.Product, prim.BitwiseAnd, prim.BitwiseOr, prim.BitwiseXor])
    pairs = st.sampled_from([prim.Quotient, prim.FloorDiv, prim.Remainder])
    twos = st.sampled_from([prim.Min, prim.Max, prim.LogicalAnd])
    functions = st.sampled_from([name for name in sorted(CALLS) if name != "atan2"])
    return st.one_of(
        st.builds(lambda kind, parts: kind(parts), chains, chain),
        st.builds(lambda kind, x, y: kind(x, y), pairs, inner, inner),
        st.builds(prim.Power, inner, st.integers(0, 3)),
        st.builds(prim.Power, reads, reads),
        st.builds(lambda kind, x, y: kind((x, y)), twos, inner, inner),
        st.builds(prim.Comparison, inner, st.sampled_from(sorted(COMPARE)), inner),
        st.builds(prim.If, inner, inner, inner),
        st.builds(lambda kind, x: kind(x), st.sampled_from([prim.BitwiseNot, prim.LogicalNot]), inner),
        st.builds(lambda name, x: prim.Call(prim.Variable(name), (x,)), functions, inner),
        st.builds(lambda x, y: prim.Call(prim.Variable("atan2"), (x, y)), inner, inner),
        st.builds(Cast, st.sampled_from(DTYPES), inner),
    )


expressions = st.recursive(st.one_of(literals, reads, reads, st.just(index)), grow, max_leaves=8)


@pytest.mark.skipif(not NEP50, reason="numpy 1.26 promotes by value")
@settings(max_examples=250, deadline=None, derandomize=True)
@given(expressions)
def test_dtype_and_value_are_numpys(expr):
    try:
        with np.errstate(all="ignore"):
            results = [np.asarray(numpy_result(expr, at)) for at in range(3)]
    except TypeError:
        with pytest.raises(TypeError):
            dtype_of(expr, DTYPES)
        return
    except (OverflowError, ValueError, ZeroDivisionError, MemoryError):
        assume(False)
    assert dtype_of(expr, DTYPES) == results[0].dtype
    node = Lambda(expr, tuple(f"x{k}" for k in range(len(DTYPES))), (3,), results[0].dtype)
    value = evaluate(node, [Value(x, np.zeros(x.shape)) for x in OPERANDS])
    assert agrees(value, np.concatenate([result.reshape(1) for result in results])).all(), expr_text(expr)


def assert_uniform(expr):
    for node in walk(expr):
        parts = list(children(node))
        if isinstance(node, prim.Power) and type(node.exponent) is int:
            parts = parts[:1]
        if isinstance(node, prim.If):
            assert dtype_of(parts.pop(0), DTYPES).kind == "b"
        if isinstance(node, (*NARY, *BINARY, prim.Comparison, prim.If)):
            assert all(isinstance(part, prim.ExpressionNode | np.generic) for part in parts), expr_text(node)
            assert len({dtype_of(part, DTYPES) for part in parts}) == 1, expr_text(node)


@settings(max_examples=120, deadline=None, derandomize=True)
@given(expressions, st.sampled_from(DTYPES))
def test_explicit_form(expr, dtype):
    try:
        own = dtype_of(expr, DTYPES)
    except (TypeError, OverflowError):
        assume(False)
    assert dtype_of(make_explicit(expr, DTYPES, own), DTYPES) == own
    explicit = make_explicit(expr, DTYPES, dtype)
    assert dtype_of(explicit, DTYPES) == dtype
    assert expr_text(make_explicit(explicit, DTYPES, dtype)) == expr_text(explicit)
    if not isinstance(explicit, prim.Subscript):
        assert_uniform(explicit)


@pytest.mark.parametrize(
    ("expr", "name"),
    [
        (prim.Product((index, f4)), "float32"),
        (prim.Product((0.1, f4)), "float32"),
        (prim.Product((np.float64(0.1), f4)), "float64"),
        (prim.Product((np.int64(1), f4)), "float64"),
        (prim.Product((2, u1)), "uint8"),
        (prim.Product((0.5, i4)), "float64"),
        (prim.Product((1j, f4)), "complex64"),
        (prim.Sum((True, 1)), "int64"),
        (prim.Quotient(i1, 2), "float64"),
        (prim.Quotient(index, 2), "float64"),
        (prim.FloorDiv(index, 2), "int64"),
        (prim.Power(f4, 2), "float32"),
        (prim.Power(b, 2), "int64"),
        (prim.Sum((i8, u8)), "float64"),
        (prim.If(b, 0, f4), "float32"),
        (prim.If(b, 0.0, i4), "float64"),
        (prim.Call(prim.Variable("sqrt"), (i8,)), "float64"),
        (prim.Call(prim.Variable("sqrt"), (index,)), "float64"),
        (prim.Call(prim.Variable("abs"), (c8,)), "float32"),
        (prim.Call(prim.Variable("isnan"), (i8,)), "bool"),
        (Reduce("sum", (("_r0", 0, 2),), b), "int64"),
        (Reduce("sum", (("_r0", 0, 2),), i4), "int32"),
        (Reduce("max", (("_r0", 0, 2),), b), "bool"),
        (Reduce("any", (("_r0", 0, 2),), f4), "bool"),
        (Reduce("product", (("_r0", 0, 2),), prim.Variable("_r0")), "int64"),
    ],
)
def test_dtype(expr, name):
    assert dtype_of(expr, DTYPES) == np.dtype(name)


def test_weakness():
    assert weak_type_of(prim.Sum((index, 1)), DTYPES) is int
    assert weak_type_of(prim.Quotient(index, 2), DTYPES) is float
    assert weak_type_of(prim.Max((index, 1)), DTYPES) == np.dtype("int64")


@pytest.mark.parametrize(
    ("expr", "name", "text"),
    [
        (prim.Product((prim.Sum((1, index)), f4)),
         "float32", '(cast("float32", (int64(1) + cast("int64", _0))) * a9[_0])'),
        (prim.Sum((i4, i4, f4)), "float64", '(cast("float64", (a3[_0] + a3[_0])) + cast("float64", a9[_0]))'),
        (prim.Sum((f8, f4, 1)), "float64", '(a10[_0] + cast("float64", a9[_0]) + float64(1.0))'),
        (prim.Power(f4, 2), "float64", 'cast("float64", (a9[_0] ** 2))'),
        (prim.Power(i4, 0.5), "float64", '(cast("float64", a3[_0]) ** float64(0.5))'),
        (prim.Product((-1, u1)), "uint8", "(uint8(255) * a5[_0])"),
        (prim.Comparison(i1, "<", 300), "bool", "bool_(True)"),
        (prim.Comparison(-1, ">=", u8), "bool", "bool_(False)"),
        (prim.Comparison(i8, "<", u8), "bool", '((a4[_0] < int64(0)) or (cast("uint64", a4[_0]) < a7[_0]))'),
        (prim.Comparison(u8, "==", i1), "bool", '((a1[_0] >= int8(0)) and (cast("uint64", a1[_0]) == a7[_0]))'),
        (read(0, (prim.Sum((index, 1)),)), "bool", "a0[(_0 + 1)]"),
        (1.7, "int32", 'cast("int32", float64(1.7))'),
        (-1, "uint8", "uint8(255)"),
        (index, "int64", 'cast("int64", _0)'),
        (prim.Product((index, 0.5)), "float32", 'cast("float32", (cast("float64", _0) * float64(0.5)))'),
    ],
)
def test_explicit_text(expr, name, text):
    assert expr_text(make_explicit(expr, DTYPES, np.dtype(name))) == text


def test_a_literal_that_does_not_fit_is_refused():
    with pytest.raises(OverflowError, match="300 does not fit uint8"):
        make_explicit(prim.Sum((u1, 300)), DTYPES, np.dtype("uint8"))


def test_an_integer_to_a_negative_power_is_refused():
    with pytest.raises(ValueError, match="negative integer power -1"):
        make_explicit(prim.Power(i4, -1), DTYPES, np.dtype("int32"))


def test_an_operation_that_numpy_lacks_is_refused():
    with pytest.raises(TypeError):
        dtype_of(prim.BitwiseAnd((f4, i4)), DTYPES)


@pytest.mark.parametrize("op", sorted(COMPARE))
def test_signed_against_unsigned_is_exact(op):
    signed = np.array([-1, 0, 2**63 - 1, 2**62, -(2**63)], np.int64)
    unsigned = np.array([2**63, 0, 2**63 - 1, 2**64 - 1, 2**63 - 1], np.uint64)
    expr = prim.Comparison(read(0, (index,)), op, read(1, (prim.Variable("_1"),)))
    node = Lambda(expr, ("s", "u"), (5, 5), np.dtype(bool))
    value = evaluate(node, [Value(x, np.zeros(5)) for x in (signed, unsigned)])
    expected = [[COMPARE[op](int(s), int(u)) for u in unsigned] for s in signed]
    assert value.value.tolist() == expected
    assert not value.bound.any()
