"""The oracle: numpy's values, and bounds that hold for devices that round, order and flush otherwise."""

import itertools

import numpy as np
import pymbolic.primitives as prim
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotato.frontend import evaluate as evaluate_module
from aotato.frontend.constants import digest
from aotato.frontend.dtypes import CALLS, UFUNCS, make_explicit
from aotato.frontend.expr import NARY, Cast, Reduce, children, read
from aotato.frontend.interpret import Value, agrees, assert_agrees, evaluate, run
from aotato.frontend.ir import Allreduce, Const, Input, Lambda, Output, Program, Programs, Recv, Send
from aotato.frontend.text import expr_text, parse_expr

F4, F8, I4, I8, BOOL = map(np.dtype, ("float32", "float64", "int32", "int64", "bool"))
SHAPE = (4, 3)
i, j = prim.Variable("_0"), prim.Variable("_1")


def given_value(array, bound=0.0):
    array = np.asarray(array)
    return Value(array, np.broadcast_to(np.float64(bound), array.shape))


def result(text, *operands, shape=None, dtype=None):
    values = [x if isinstance(x, Value) else given_value(x) for x in operands]
    first = values[0].value
    node = Lambda(
        parse_expr(text),
        tuple(f"x{k}" for k in range(len(values))),
        first.shape if shape is None else shape,
        np.dtype(dtype or first.dtype),
    )
    return evaluate(node, values)


# A device: one element at a time, everything rounded a little otherwise than numpy does it.


class Device:
    """Evaluates an explicit expression; `rng` is None for numpy's own rounding."""

    def __init__(self, operands, rng):
        self.operands, self.rng = operands, rng

    def rounded(self, x, ulps=2.0):
        if self.rng is None or x.dtype.kind != "f" or not np.isfinite(x):
            return x
        x = x.dtype.type(x * (1 + self.rng.uniform(-ulps, ulps) * np.finfo(x.dtype).eps))
        flushed = x.dtype == F4 and abs(x) < np.finfo(F4).tiny and self.rng.random() < 0.5
        return x.dtype.type(0) if flushed else x

    def __call__(self, expr, at):
        if isinstance(expr, np.generic | int):
            return expr
        if isinstance(expr, prim.Variable):
            return np.int64(at[expr.name])
        if isinstance(expr, prim.Subscript):
            explicit = [make_explicit(k, [x.dtype for x in self.operands], I8) for k in expr.index_tuple]
            return self.operands[int(expr.aggregate.name[1:])][tuple(int(self(k, at)) for k in explicit)]
        if isinstance(expr, prim.If):
            return self(expr.then if self(expr.condition, at) else expr.else_, at)
        if isinstance(expr, Reduce):
            return self.reduce(expr, at)
        parts = [self(child, at) for child in children(expr)]
        match expr:
            case Cast():
                x = np.asarray(parts[0]).astype(expr.dtype)[()]
                return self.rounded(x, 0)
            case prim.Comparison():
                return np.asarray({"<": np.less, ">=": np.greater_equal, "==": np.equal}[expr.operator](*parts))[()]
            case prim.LogicalAnd() | prim.LogicalOr():
                return np.bool_(all(parts) if isinstance(expr, prim.LogicalAnd) else any(parts))
            case prim.LogicalNot():
                return np.logical_not(parts[0])
            case prim.Call():
                x = CALLS[expr.function.name](*parts)
                return x if expr.function.name in ("abs", "isnan", "real") else self.rounded(x)
            case prim.Power():
                return self.rounded(np.power(parts[0], parts[0].dtype.type(parts[1])))
            case prim.Min() | prim.Max():
                return UFUNCS[type(expr)].reduce(parts)
            case prim.Remainder() if parts[0].dtype.kind == "f" and self.rng is not None:
                whole = np.floor(self.rounded(parts[0] / parts[1], 1))
                return self.rounded(parts[0] - self.rounded(whole * parts[1], 0.5), 0.5)
            case prim.FloorDiv() if parts[0].dtype.kind == "f" and self.rng is not None:
                return np.floor(self.rounded(parts[0] / parts[1], 1))
        assert isinstance(expr, (*NARY, prim.Quotient, prim.FloorDiv, prim.Remainder))
        if self.rng is not None and isinstance(expr, prim.Sum):
            self.rng.shuffle(parts)
        x = parts[0]
        for part in parts[1:]:
            x = self.rounded(UFUNCS[type(expr)](x, part), 0.5 if isinstance(expr, prim.Sum) else 2)
        return x

    def reduce(self, expr, at):
        ranges = [range(lower, upper) for _, lower, upper in expr.bounds]
        names = [name for name, _, _ in expr.bounds]
        terms = [self(expr.body, {**at, **dict(zip(names, k, strict=True))}) for k in itertools.product(*ranges)]
        ufuncs = {"sum": np.add, "product": np.multiply, "min": np.minimum, "max": np.maximum}
        ufunc = {**ufuncs, "any": np.logical_or, "all": np.logical_and}[expr.op]
        if self.rng is not None:
            self.rng.shuffle(terms)
        x = terms[0]
        for term in terms[1:]:
            x = self.rounded(ufunc(x, term), {"sum": 0.5, "product": 2}.get(expr.op, 0))
        return x

    def array(self, node):
        expr = make_explicit(node.expr, [x.dtype for x in self.operands], node.dtype)
        out = np.empty(node.shape, node.dtype)
        with np.errstate(all="ignore"):
            for at in np.ndindex(node.shape):
                out[at] = self(expr, {f"_{k}": index for k, index in enumerate(at)})
        return out


def operand(dtype, seed):
    """Exact numbers of all sizes, with ties, zeros, infinities and NaN in the float ones."""
    rng = np.random.default_rng(seed)
    if dtype.kind in "ib":
        return rng.integers(-3, 7, SHAPE).astype(dtype)
    x = rng.choice([0.0, 1.0, -1.0, 0.5, 2.0, 3.0], SHAPE) * rng.choice([1, 1, rng.uniform(0.5, 2)], SHAPE)
    x = np.where(rng.random(SHAPE) < 0.1, rng.choice([np.inf, -np.inf, np.nan, 1e-40, 1e30, 7e4], SHAPE), x)
    with np.errstate(over="ignore", under="ignore"):
        return x.astype(dtype)


def random_read(k, a, b, mixed):
    """In range always: the own element, a neighbour round the corner, or a table's entry."""
    table = prim.Remainder(read(2, (i, j)), SHAPE[1])
    rows = {"own": i, "next": prim.Remainder(prim.Sum((i, a)), SHAPE[0]), "same": a}
    return read(k, (rows[mixed], table if b == 3 else b if b < 3 else j))


leaves = st.one_of(
    st.sampled_from([0.1, 2, -1, 0.5, np.float32(0.3), i, j]),
    st.builds(
        random_read, st.sampled_from([0, 0, 0, 1, 2]), st.integers(0, 3), st.integers(0, 5),
        st.sampled_from(["own", "next", "same"]),
    ),
)


def grow(inner):
    chain = st.lists(inner, min_size=2, max_size=4).map(tuple)
    functions = st.sampled_from(
        ["sqrt", "sin", "cos", "tan", "exp", "log", "log10", "atan", "asin", "acos", "tanh", "sinh", "cosh", "abs"]
    )
    condition = st.builds(prim.Comparison, inner, st.sampled_from(["<", ">=", "=="]), inner)
    conditions = st.one_of(
        condition,
        st.builds(lambda x, y: prim.LogicalAnd((x, y)), condition, condition),
        st.builds(lambda x, y: prim.LogicalOr((x, y)), condition, condition),
        st.builds(prim.LogicalNot, condition),
    )
    body = st.builds(
        lambda x, row: prim.Product((x, read(0, (row, prim.Variable("_r0"))))), inner, st.sampled_from([i, 1])
    )
    return st.one_of(
        st.builds(prim.Sum, chain),
        st.builds(prim.Product, chain),
        st.builds(prim.Quotient, inner, inner),
        st.builds(prim.Min, chain),
        st.builds(prim.Max, chain),
        st.builds(prim.Power, inner, st.integers(0, 3)),
        st.builds(prim.Remainder, inner, inner),
        st.builds(prim.FloorDiv, inner, inner),
        st.builds(prim.If, conditions, inner, inner),
        st.builds(lambda name, x: prim.Call(prim.Variable(name), (x,)), functions, inner),
        st.builds(lambda x, y: prim.Call(prim.Variable("atan2"), (x, y)), inner, inner),
        st.builds(Cast, st.sampled_from([F4, F8, I4, BOOL]), inner),
        st.builds(
            lambda op, b: Reduce(op, (("_r0", 0, 3),), b),
            st.sampled_from(["sum", "product", "min", "max", "any", "all"]), body,
        ),
    )


expressions = st.recursive(leaves, grow, max_leaves=8)
floats = st.sampled_from([F4, F8])


def case(expr, a, b, dtype, seed):
    arrays = [operand(a, seed), operand(b, seed + 1), operand(I4, seed + 2)]
    return Lambda(expr, ("x", "y", "t"), SHAPE, dtype), arrays


def uses_shadowed_index(expr, bound=()):
    if isinstance(expr, Reduce):
        return bool(bound) or uses_shadowed_index(expr.body, ("_r0",))
    return any(uses_shadowed_index(child, bound) for child in children(expr))


def check(node, arrays, device):
    value = evaluate(node, [given_value(x) for x in arrays])
    assert value.value.dtype == node.dtype and value.bound.shape == value.value.shape
    assert not np.isnan(value.bound).any()
    ok = agrees(value, device)
    assert ok.all(), f"{expr_text(node.expr)}\n{value.value[~ok]}\n{device[~ok]}\n{value.bound[~ok]}"


@settings(max_examples=250, deadline=None)
@given(expressions, floats, floats, st.sampled_from([F4, F8, I8]), st.integers(0, 10**6))
def test_value_is_numpys(expr, a, b, dtype, seed):
    node, arrays = case(expr, a, b, dtype, seed)
    check(node, arrays, Device(arrays, None).array(node))


@settings(max_examples=300, deadline=None)
@given(expressions, floats, floats, st.sampled_from([F4, F8, I8]), st.integers(0, 10**6))
def test_bound_holds_for_a_sloppy_device(expr, a, b, dtype, seed):
    node, arrays = case(expr, a, b, dtype, seed)
    check(node, arrays, Device(arrays, np.random.default_rng(seed)).array(node))


@settings(max_examples=60, deadline=None)
@given(expressions, st.integers(0, 10**6), st.integers(1, 9))
def test_blocks_do_not_matter(expr, seed, block):
    node, arrays = case(expr, F4, F8, F8, seed)
    values = [given_value(x) for x in arrays]
    whole = evaluate(node, values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(evaluate_module, "BLOCK", block)
        cut = evaluate(node, values)
    assert agrees(whole, cut.value).all()
    assert (np.isinf(cut.bound) == np.isinf(whole.bound)).all()
