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
        return x * x.dtype.type(0) if flushed else x

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
            case prim.Remainder() | prim.FloorDiv() if parts[0].dtype.kind == "f" and self.rng is not None:
                x, y = parts
                whole = np.floor(self.rounded(x / y, 0 if x.dtype == F8 else 1))  # OpenCL divides doubles exactly
                rest = self.rounded(x - self.rounded(whole * y, 0.5), 0.5)
                if isinstance(expr, prim.FloorDiv):
                    return whole
                return np.copysign(rest, np.remainder(x, y)) if rest == 0 else rest  # signs of zeros are not watched
        assert isinstance(expr, (*NARY, prim.Quotient, prim.FloorDiv, prim.Remainder))
        if self.rng is not None and isinstance(expr, prim.Sum):
            self.rng.shuffle(parts)
        x = parts[0]
        for part in parts[1:]:
            unit = isinstance(expr, prim.Product) and 1 in (abs(x), abs(part))
            x = self.rounded(UFUNCS[type(expr)](x, part), 0 if unit else 0.5 if isinstance(expr, prim.Sum) else 2)
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


def check(node, arrays, device):
    value = evaluate(node, [given_value(x) for x in arrays])
    assert value.value.dtype == node.dtype and value.bound.shape == value.value.shape
    assert not np.isnan(value.bound).any()
    ok = agrees(value, device)
    assert ok.all(), f"{expr_text(node.expr)}\n{value.value[~ok]}\n{device[~ok]}\n{value.bound[~ok]}"


@settings(max_examples=80, deadline=None, derandomize=True)
@given(expressions, floats, floats, st.sampled_from([F4, F8, I8]), st.integers(0, 10**6))
def test_value_is_numpys(expr, a, b, dtype, seed):
    node, arrays = case(expr, a, b, dtype, seed)
    check(node, arrays, Device(arrays, None).array(node))


@settings(max_examples=80, deadline=None, derandomize=True)
@given(expressions, floats, floats, st.sampled_from([F4, F8, I8]), st.integers(0, 10**6))
def test_bound_holds_for_a_sloppy_device(expr, a, b, dtype, seed):
    node, arrays = case(expr, a, b, dtype, seed)
    check(node, arrays, Device(arrays, np.random.default_rng(seed)).array(node))


@settings(max_examples=25, deadline=None, derandomize=True)
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


# Single rules.


def test_an_uncertain_comparison_accepts_both():
    x = Value(np.array([1.0, 2.0, 3.0]), np.array([0.1, 0.1, 0.0]))
    value = result("(a0[_0] < 1.05)", x, dtype=BOOL)
    assert value.value.tolist() == [True, False, False]
    assert value.bound.tolist() == [np.inf, 0, 0]


def test_an_uncertain_where_is_as_far_as_its_branches():
    x = Value(np.array([1.0, 2.0]), np.array([0.1, 0.1]))
    value = result("where((a0[_0] < 1.05), 5.0, 5.5)", x)
    assert value.value.tolist() == [5.0, 5.5]
    assert value.bound.tolist() == [0.5, 0]


def test_uncertain_integers():
    x = Value(np.array([2.9, 2.99, 3.0, np.nan, 1e30]), np.array([0.05, 0.05, 0.0, 0.0, 0.0]))
    value = result('cast("int32", a0[_0])', x, dtype=I4)
    assert value.bound.tolist() == [0, np.inf, 0, np.inf, np.inf]
    assert result('(cast("int32", a0[_0]) + 1)', x, dtype=I4).bound.tolist() == value.bound.tolist()


def test_a_read_at_an_uncertain_index_accepts_anything():
    x = Value(np.array([0.5, 1.0]), np.array([0.1, 0.1]))
    value = result('a1[cast("int32", a0[_0])]', x, np.array([7.0, 8.0]))
    assert value.value.tolist() == [7, 8]
    assert value.bound.tolist() == [0, np.inf]


def test_a_certain_term_decides_a_logical_chain():
    x = Value(np.array([1.0, 1.0]), np.array([0.1, 0.1]))
    both = result("((a0[_0] < 1) and (_0 < 1))", x, dtype=BOOL)
    assert both.bound.tolist() == [np.inf, 0]
    either = result("((a0[_0] < 1) or (_0 < 1))", x, dtype=BOOL)
    assert either.bound.tolist() == [0, np.inf]
    every = result("all(((a0[_r0] < 1) and (_0 < 1)) for _r0 in range(0, 2))", x, dtype=BOOL)
    assert every.bound.tolist() == [np.inf, 0]


def test_an_uncertain_domain_accepts_nan():
    x = Value(np.array([0.0, 0.0, -5.0, 4.0]), np.array([0.0, 1e-9, 1e-9, 1e-9]))
    bound = result("sqrt(a0[_0])", x).bound
    assert bound[0] < 1e-300 and np.isinf(bound[1]) and bound[2] == 0 and bound[3] < 1e-9
    assert np.isinf(result("(1 / a0[_0])", x).bound).tolist() == [False, True, False, False]


def test_a_minimum_has_the_bound_of_its_contenders():
    x = Value(np.array([1.0, 1.05, 9.0]), np.array([0.1, 0.2, 5.0]))
    assert result("min(a0[_r0] for _r0 in range(0, 3))", x, shape=()).bound == 0.2
    y = Value(np.array([1.0, 1.05, np.nan]), np.array([0.1, 0.2, np.inf]))
    assert result("min(a0[0], a0[2])", y, shape=()).bound == np.inf
    assert np.isnan(result("max(a0[_r0] for _r0 in range(0, 3))", np.array([1, np.nan, 2]), shape=()).value)


def test_infinities_and_nans_are_certain_where_inputs_are():
    x = np.array([0.0, np.inf, np.nan, 1.0])
    for text in ("(a0[_0] / 0)", "(a0[_0] + inf)", "(a0[_0] * inf)", "log(a0[_0])", "(a0[_0] - a0[_0])"):
        value = result(text.replace("- a0[_0]", "+ (-1 * a0[_0])"), x)
        assert np.isfinite(value.bound).all()
        assert agrees(value, value.value).all()
        assert not agrees(value, np.full(4, 17.0)).any()


def test_complex_numbers_have_modulus_bounds():
    rng = np.random.default_rng(0)
    z = (rng.normal(size=100) + 1j * rng.normal(size=100)).astype(np.complex64)
    text = "((exp(a0[_0]) * a0[_0]) + (sin(a0[_0]) / (a0[_0] + 3)))"
    value = result(text, z)
    assert value.value.dtype == np.complex64
    exact = result(text, z.astype(np.complex128)).value
    assert (np.abs(exact - value.value) <= value.bound).all()
    assert (value.bound < 1e-4).all()
    assert result("abs(a0[_0])", z, dtype="float32").value.dtype == F4


TEXTS = [
    "sum((a0[_0, _r0] * a1[_r0, _1]) for _r0 in range(0, 40))",
    "sqrt(sum((a0[_0, _r0] * a0[_0, _r0]) for _r0 in range(0, 40)))",
    "exp((a0[_0, _1] + (-1 * max(a0[_0, _r0] for _r0 in range(0, 40)))))",
    "product((1 + (0.01 * a0[_0, _r0])) for _r0 in range(0, 40))",
    "(tanh(a0[_0, _1]) / (1 + (a1[_0, _1] ** 2)))",
    "atan2(a0[_0, _1], (a1[_0, _1] * a0[_1, _0]))",
    "((abs(a0[_0, _1]) + 0.1) ** a1[_0, _1])",
]


@pytest.mark.parametrize("text", TEXTS)
def test_float32_is_within_its_bound_of_float64(text):
    rng = np.random.default_rng(1)
    a, b = rng.normal(size=(2, 40, 40)).astype(F4)
    single = result(text, a, b)
    double = result(text, a.astype(F8), b.astype(F8))
    assert single.value.dtype == F4
    error = np.abs(single.value - double.value)
    assert (error <= single.bound).all()
    assert (single.bound <= 1e-3 * (1 + np.abs(double.value))).all()


def test_sums_are_near_the_exact_sum():
    x = np.random.default_rng(2).normal(size=(3, 5000))
    value = result("sum(a0[_0, _r0] for _r0 in range(0, 5000))", x, shape=(3,))
    assert (np.abs(value.value - x.astype(np.longdouble).sum(axis=1)) <= value.bound).all()
    assert (value.bound < 2e-11).all()


def test_a_reduction_that_overflows_in_some_order_accepts_anything():
    x = np.array([[1e30, 0.0, 1e30], [1e30, 1.0, 2.0]], F4)
    product = result("product(a0[_0, _r0] for _r0 in range(0, 3))", x, shape=(2,))
    assert np.isinf(product.bound).tolist() == [True, False]
    y = np.array([[3e38, -3e38, 3e38], [3e38, -3e38, 0]], F4)
    assert np.isinf(result("sum(a0[_0, _r0] for _r0 in range(0, 3))", y, shape=(2,)).bound).all()
    z = np.array([np.inf, 1.0])
    assert result("sum(a0[_r0] for _r0 in range(0, 2))", z, shape=()).bound == 0


def test_a_large_product_is_cut_into_blocks():
    rng = np.random.default_rng(3)
    a, b = rng.normal(size=(2, 200, 200))
    value = result("sum((a0[_0, _r0] * a1[_r0, _1]) for _r0 in range(0, 200))", a, b)
    assert agrees(value, a @ b).all()
    assert (value.bound < 1e-12).all()
    total = result("sum((a0[_r0, _r1] * 1) for _r0 in range(0, 200) for _r1 in range(0, 200))", a, shape=())
    assert agrees(total, a.sum())
    axes = "for _r0 in range(0, 1100) for _r1 in range(0, 1100)"
    count = result(f"sum((_r0 < _r1) {axes})", a, shape=(), dtype=I8)
    assert count.value == 1100 * 1099 // 2 and count.bound == 0


def test_a_masked_read_out_of_range_does_not_matter():
    x = np.array([1.0, 2.0, 3.0])
    value = result("where((_0 < 2), a0[(_0 + 1)], 0)", x)
    assert value.value.tolist() == [2, 3, 0] and not value.bound.any()
    nested = "where((_0 < 2), sum(a0[(_0 + _r0)] for _r0 in range(0, 2)), 0)"
    assert result(nested, x).value.tolist() == [3, 5, 0]
    assert result("where((_0 < 0), a1[_0], 1)", x, np.zeros(0)).value.tolist() == [1, 1, 1]
    assert result("where((_0 < 2), 1, a1[_0])", x, np.zeros(3)).value.tolist() == [1, 1, 0]
    assert result("where((_0 > 0), (1 // _0), 5)", x, dtype=I8).value.tolist() == [5, 1, 0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a0[(_0 + 1)]", r"index \[3\] is out of range for 'x0' float64\[3\]"),
        ("a0[(_0 + -1)]", r"index \[-1\] is out of range"),
        ("where((_0 < 1), a0[(_0 + 1)], a0[(_0 + 2)])", r"index \[3\]"),
        ("sum(a0[(_0 + _r0)] for _r0 in range(0, 2))", r"index \[3\]"),
        ("a0[_0, 0]", "'x0' has 1 axes, but is read with 2 indices"),
    ],
)
def test_a_read_out_of_range_is_an_error(text, message):
    with pytest.raises(IndexError, match=message):
        result(text, np.arange(3.0))


def test_empty_reductions():
    x = np.ones(2)
    for op, expected in {"sum": 0, "product": 1, "any": 0, "all": 1}.items():
        assert result(f"{op}(a0[_0] for _r0 in range(0, 0))", x).value.tolist() == [expected] * 2
    with pytest.raises(ValueError, match=r"min over no elements: _r0 in \[2, 2\)"):
        result("min(a0[_0] for _r0 in range(2, 2))", x)
    assert result("where((_0 < 0), min(a0[_0] for _r0 in range(2, 2)), 3)", x).value.tolist() == [3, 3]
    assert result("(a0[_0] + 1)", np.zeros((0,))).value.shape == (0,)


def test_an_integer_to_a_negative_power():
    x = np.array([2, 3])
    with pytest.raises(ValueError, match="negative"):
        result("(a0[_0] ** (_0 + -1))", x)
    assert result("where((_0 > 0), (a0[_0] ** (_0 + -1)), 7)", x).value.tolist() == [7, 1]


# Programs.


def program(rank, arrays, sends=(), outputs=(), constants=None):
    return Program("step", rank, arrays, tuple(sends), tuple(Output(p, a) for p, a in outputs), constants or {})


def ring(size):
    """Every rank adds its right neighbour's doubled image; the Recv stands before what is sent."""
    ranks = []
    for rank in range(size):
        arrays = {
            "r": Recv((rank + 1) % size, 0, (3,), F8),
            "x": Input("x", (3,), F8),
            "d": Lambda(parse_expr("(2 * a0[_0])"), ("x",), (3,), F8),
            "s": Lambda(parse_expr("(a0[_0] + a1[_0])"), ("x", "r"), (3,), F8),
            "n": Lambda(parse_expr("sum(a0[_r0] for _r0 in range(0, 3))"), ("s",), (), F8),
            "t": Allreduce("n", "sum", (), F8),
            "m": Allreduce("n", "max", (), F8),
        }
        outputs = [("max", "m"), ("s", "s"), ("total", "t")]
        ranks.append(program(rank, arrays, [Send("d", (rank - 1) % size, 0)], outputs))
    return Programs("step", tuple(ranks), ("image",))


@pytest.mark.parametrize("size", [1, 2, 5])
def test_a_ring(size):
    inputs = [{"x": np.arange(3.0) + 10 * rank} for rank in range(size)]
    outputs = run(ring(size), inputs)
    sums = [inputs[r]["x"] + 2 * inputs[(r + 1) % size]["x"] for r in range(size)]
    for rank, out in enumerate(outputs):
        assert list(out) == ["max", "s", "total"]
        assert_agrees("s", out["s"], sums[rank])
        assert_agrees("total", out["total"], np.float64(sum(s.sum() for s in sums)))
        assert_agrees("max", out["max"], np.float64(max(s.sum() for s in sums)))
        assert out["total"].bound.shape == () and out["total"].bound < 1e-10


def test_constants_and_deep_programs():
    data = np.arange(4, dtype=F4)
    arrays = {"c": Const(digest(data), (4,), F4)}
    name = "c"
    for k in range(1500):
        arrays[f"v{k}"] = Lambda(parse_expr("(a0[_0] + 1)"), (name,), (4,), F4)
        name = f"v{k}"
    programs = Programs("step", (program(0, arrays, outputs=[("out", name)], constants={digest(data): data}),))
    (out,) = run(programs, [{}])
    assert out["out"].value.tolist() == [1500, 1501, 1502, 1503]


def recv_of(source, then_send):
    arrays = {"r": Recv(source, 0, (), F8), "v": Lambda(parse_expr("a0[()]"), ("r",), (), F8)}
    return program(1 - source, arrays, [Send("v", source, 0)] if then_send else [], [("v", "v")])


def test_a_cycle_is_named():
    programs = Programs("step", (recv_of(1, True), recv_of(0, True)), ("u",))
    cycle = r"cycle: rank 0 receives 'r' from rank 1 \(tag u\), which sends 'v'; rank 1"
    with pytest.raises(RuntimeError, match=cycle):
        run(programs, [{}, {}])


def test_a_missing_message_is_named():
    programs = Programs("step", (recv_of(1, True), recv_of(0, False)), ("u",))
    with pytest.raises(RuntimeError, match=r"missing: rank 0 receives 'r' from rank 1 \(tag u\), which sends no such"):
        run(programs, [{}, {}])


def test_a_missing_reduction_is_named():
    x = Input("x", (), F8)
    one = program(0, {"x": x, "s": Allreduce("x", "sum", (), F8)}, outputs=[("s", "s")])
    other = program(1, {"x": x}, outputs=[("s", "x")])
    inputs = [{"x": np.float64(1)}] * 2
    with pytest.raises(RuntimeError, match="rank 0 reduces 's', but rank 1 has no such reduction"):
        run(Programs("step", (one, other)), inputs)
    other = program(1, {"x": x, "s": Allreduce("x", "max", (), F8)}, outputs=[("s", "s")])
    with pytest.raises(ValueError, match="rank 0 reduces 's' with sum as float64"):
        run(Programs("step", (one, other)), inputs)


def test_ends_of_a_message_must_be_alike():
    sender = program(1, {"x": Input("x", (48,), F8)}, [Send("x", 0, 0)])
    receiver = program(0, {"r": Recv(1, 0, (40,), F8)}, outputs=[("r", "r")])
    ends = r"rank 0 receives 'r' as float64\[40\], but rank 1 sends 'x' as float64\[48\]"
    with pytest.raises(ValueError, match=ends):
        run(Programs("step", (receiver, sender), ("u",)), [{}, {"x": np.zeros(48)}])


def test_inputs_are_checked():
    programs = Programs("step", (program(0, {"x": Input("q.x", (2,), F8)}, outputs=[("x", "x")]),))
    with pytest.raises(ValueError, match=r"rank 0 needs input 'q.x' as float64\[2\], but is given only \['y'\]"):
        run(programs, [{"y": 0}])
    with pytest.raises(ValueError, match=r"but is given float32\[2\]"):
        run(programs, [{"q.x": np.zeros(2, F4)}])
    assert run(programs, [{"q.x": [1, 2]}])[0]["x"].value.tolist() == [1, 2]


def test_errors_name_rank_and_array():
    arrays = {"x": Input("x", (2,), F8), "v": Lambda(parse_expr("a0[(_0 + 1)]"), ("x",), (2,), F8)}
    programs = Programs("step", (program(0, arrays, outputs=[("v", "v")]),))
    with pytest.raises(IndexError, match=r"rank 0, array 'v': index \[2\] is out of range for 'x' float64\[2\]"):
        run(programs, [{"x": np.zeros(2)}])


def test_agreement():
    value = Value(np.array([1.0, np.nan, np.inf, 2.0]), np.array([0.1, 0.0, 0.0, np.inf]))
    assert agrees(value, np.array([1.05, np.nan, np.inf, np.nan])).all()
    assert agrees(value, np.array([1.2, 1.0, -np.inf, 5.0])).tolist() == [False, False, False, True]
    worst = r"'q.0' at \[0\]: got 1.2, expected 1.0 within 0.1 \(2 of 4 elements differ\)"
    with pytest.raises(AssertionError, match=worst):
        assert_agrees("q.0", value, np.array([1.2, np.nan, -np.inf, 0]))
    with pytest.raises(AssertionError, match=r"'q.0' is float32\[4\], expected float64\[4\]"):
        assert_agrees("q.0", value, np.zeros(4, F4))
