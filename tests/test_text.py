"""Text of programs and expressions: what is printed parses back to the same tree."""

import math

import numpy as np
import pymbolic.primitives as prim
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotato.frontend.constants import digest
from aotato.frontend.expr import BINARY, FUNCTIONS, NARY, REDUCE_OPS, Cast, Reduce, children, read
from aotato.frontend.ir import Allreduce, Const, Input, Lambda, Output, Program, Recv, Send
from aotato.frontend.text import dumps, expr_text, parse, parse_expr

REAL = [np.float16, np.float32, np.float64]
INTEGERS = [np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64]


def real(kind):
    width = np.dtype(kind).itemsize * 8
    return st.floats(width=width).map(kind)


def integer(kind):
    info = np.iinfo(kind)
    return st.integers(int(info.min), int(info.max)).map(kind)


scalars = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(),
    st.complex_numbers(),
    st.booleans().map(np.bool_),
    *map(real, REAL),
    *map(integer, INTEGERS),
    st.complex_numbers(width=64).map(np.complex64),
    st.complex_numbers().map(np.complex128),
)
dtypes = st.sampled_from([np.dtype(kind) for kind in (*REAL, *INTEGERS, np.bool_, np.complex64, np.complex128)])
variables = st.sampled_from(["_0", "_1", "_r0", "_r12"]).map(prim.Variable)


def grow(inner):
    several = st.lists(inner, min_size=0, max_size=4).map(tuple)
    bounds = st.lists(st.tuples(st.sampled_from(["_r0", "_r1"]), st.integers(-3, 9), st.integers(-3, 9)), max_size=2)
    return st.one_of(
        st.builds(lambda kind, parts: kind(parts), st.sampled_from(NARY), several),
        st.builds(lambda kind, a, b: kind(a, b), st.sampled_from(list(BINARY)), inner, inner),
        st.builds(prim.Comparison, inner, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), inner),
        st.builds(prim.If, inner, inner, inner),
        st.builds(lambda kind, a: kind(a), st.sampled_from([prim.LogicalNot, prim.BitwiseNot]), inner),
        st.builds(lambda name, a: prim.Call(prim.Variable(name), (a,)), st.sampled_from(sorted(FUNCTIONS)), inner),
        st.builds(lambda k, index: read(k, index), st.integers(0, 3), several),
        st.builds(Cast, dtypes, inner),
        st.builds(lambda op, b, body: Reduce(op, tuple(b), body), st.sampled_from(REDUCE_OPS), bounds, inner),
    )


expressions = st.recursive(st.one_of(scalars, variables), grow, max_leaves=12)


def same(a, b):
    """Equal in every node and in the type and bits of every scalar; NaNs are one."""
    if type(a) is not type(b):
        return False
    if not isinstance(a, prim.ExpressionNode):
        if isinstance(a, complex | np.complexfloating):
            return same(a.real, b.real) and same(a.imag, b.imag)
        return bool((a != a and b != b) or (a == b and (a != 0 or math.copysign(1, a) == math.copysign(1, b))))
    if isinstance(a, prim.Variable):
        return a == b
    extra = [(x.op, x.bounds) if isinstance(x, Reduce) else getattr(x, "operator", None) for x in (a, b)]
    if isinstance(a, Cast):
        extra = [a.dtype, b.dtype]
    old, new = children(a), children(b)
    return extra[0] == extra[1] and len(old) == len(new) and all(map(same, old, new))


@settings(max_examples=150, deadline=None, derandomize=True)
@given(expressions)
def test_expressions_come_back(expr):
    text = expr_text(expr)
    assert "\n" not in text
    assert same(parse_expr(text), expr)
    assert expr_text(parse_expr(text)) == text


i, j, r = map(prim.Variable, ("_0", "_1", "_r0"))


@pytest.mark.parametrize(
    ("expr", "text"),
    [
        (prim.Product((read(0, (i, j)), read(1, (j,)))), "(a0[_0, _1] * a1[_1])"),
        (prim.Sum((prim.Sum((i, 1)), 2)), "((_0 + 1) + 2)"),
        (prim.Sum((i, 1, prim.Sum((1, 2)))), "(_0 + 1 + (1 + 2))"),
        (prim.Sum((prim.Product((-1, i)), -0.0)), "((-1 * _0) + -0.0)"),
        (prim.Power(-1, 2), "((-1) ** 2)"),
        (prim.Sum((i,)), "Sum(_0)"),
        (read(0, ()), "a0[()]"),
        (Reduce("sum", (("_r0", 0, 3),), read(0, (r,))), "sum(a0[_r0] for _r0 in range(0, 3))"),
        (prim.If(prim.Comparison(i, "<", 3), np.float32(0.1), 1j), "where((_0 < 3), float32(0.1), complex(0.0, 1.0))"),
        (Cast(np.dtype("float32"), math.nan), 'cast("float32", nan)'),
        (prim.Max((np.int8(-3), np.bool_(True), -math.inf)), "max(int8(-3), bool_(True), -inf)"),
    ],
)
def test_the_form(expr, text):
    assert expr_text(expr) == text
    assert same(parse_expr(text), expr)


@pytest.mark.parametrize("text", ["f(x)", "a0[_0:3]", "1 if x else y", "x.y", "(", "sum(x)", "'s'", "x + ", "*x"])
def test_other_text_is_refused(text):
    with pytest.raises(ValueError):
        parse_expr(text)


def program():
    data = np.array([[1.5, np.nan]], np.float32)
    f8 = np.dtype("float64")
    arrays = {
        "i0": Input("q.it's \"x\"\n# = y", (100, 3), f8),
        "c0": Const(digest(data), (1, 2), data.dtype),
        "r0": Recv(1, 0, (), np.dtype("int32")),
        "v0": Lambda(prim.Product((read(0, (i, j)), 2)), ("i0",), (100, 3), f8, stored=True),
        "v1": Lambda(np.float32(1), (), (), np.dtype("float32")),
        "v2": Lambda(prim.Sum((read(0, ()), read(1, (0, i)))), ("r0", "c0"), (2,), f8),
        "s0": Allreduce("v1", "max", (), np.dtype("float32")),
    }
    outputs = (Output("a.b", "v2"), Output("out put", "i0"))
    return Program("step it", 3, arrays, (Send("v0", 2, 1),), outputs, {digest(data): data})


GOLDEN = r"""program 'step it' rank 3
i0 = input float64[100,3] 'q.it\'s "x"\n# = y'
c0 = const float32[1,2] {digest}  # [[1.5, nan]]
r0 = recv int32[] source=1 tag=0
v0 = lambda float64[100,3] stored (i0): (a0[_0, _1] * 2)
v1 = lambda float32[] (): float32(1.0)
v2 = lambda float64[2] (r0, c0): (a0[()] + a1[0, _0])
s0 = allreduce float32[] max v1
send v0 dest=2 tag=1
output 'a.b' = v2
output 'out put' = i0
"""


def test_a_program_comes_back():
    p = program()
    text = dumps(p)
    assert text == GOLDEN.replace("{digest}", next(iter(p.constants)))
    back = parse(text, p.constants)
    assert back == p
    assert list(back.arrays) == list(p.arrays)
    assert dumps(back) == text
    assert back.constants.keys() == p.constants.keys()


def test_a_missing_constant_is_named():
    with pytest.raises(ValueError, match="'c0' is constant"):
        parse(dumps(program()), {})


def test_a_bad_line_is_named():
    with pytest.raises(ValueError, match="line 2"):
        parse("program 'x' rank 0\nv0 = lambda float64[3] oops\n", {})
    with pytest.raises(ValueError, match="line 2"):
        parse("program 'x' rank 0\nhello\n", {})


def test_digest_is_of_content():
    a = np.arange(6, dtype="float32").reshape(2, 3)
    assert digest(a) == digest(np.asfortranarray(a)) == digest(a.astype(">f4")) == digest(a[:, ::-1][:, ::-1])
    others = [a.reshape(3, 2), a.astype("float64"), a.astype("int32"), -a, a[:1], a.view("int32")]
    assert len({digest(x) for x in [a, *others]}) == 7
    assert digest(np.float64(1)) != digest(np.ones(1))
    with pytest.raises(TypeError):
        digest(np.array(["x"]))
