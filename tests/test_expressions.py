"""Host expressions: what they mean, and that nothing else can be said."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotato.runtime_stub.expressions import LONGEST, ExpressionError, parse

NAMES = {"t": 0.25, "dt": 1e-3, "step": 7.0, "q.mass": -3.5}
NUMBERS = st.floats(-1e3, 1e3, allow_subnormal=False).map(lambda x: repr(abs(x)))


_TWO = "({0[0]} {0[1]} {0[2]})".format


def _grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, st.sampled_from(["+", "-", "*", "/", "//", "%"]), inner).map(_TWO),
        st.tuples(inner, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), inner).map(_TWO),
        st.tuples(inner, st.sampled_from(["and", "or"]), inner).map(_TWO),
        st.tuples(inner, inner).map("((abs({0[0]})+1) ** {0[1]})".format),
        st.tuples(inner, inner, inner).map("({0[0]} if {0[1]} else {0[2]})".format),
        st.tuples(st.sampled_from(["-", "+", "not "]), inner).map("({0[0]}{0[1]})".format),
        st.tuples(st.sampled_from(["abs", "sqrt", "exp", "log"]), inner).map("{0[0]}({0[1]})".format),
        st.tuples(st.sampled_from(["min", "max"]), inner, inner).map("{0[0]}({0[1]}, {0[2]})".format),
    )


TEXTS = st.recursive(NUMBERS | st.sampled_from(["t", "dt", "step", "q.mass", "True"]), _grown, max_leaves=8)


@given(TEXTS.filter(lambda text: len(text) <= LONGEST))
def test_random_expressions_agree_with_python(text):
    q = type("Q", (), {"mass": NAMES["q.mass"]})
    known = {"sqrt": math.sqrt, "exp": math.exp, "log": math.log, "q": q, **NAMES}
    try:
        expected = eval(text, known)
    except (ArithmeticError, ValueError):
        with pytest.raises(ExpressionError, match="has no value"):
            parse(text).value(NAMES)
        return
    assert repr(float(parse(text).value(NAMES))) == repr(float(expected))


@pytest.mark.parametrize("text, value", [
    ("7 // 2", 3.0), ("2 ** 0.5", math.sqrt(2)), ("1 < t*4+1 < 3", True), ("min(3, 2, 1)", 1.0), ("-2 ** 2", -4.0),
    (" t + dt ", 0.251), ("1e400", math.inf),
])
def test_values(text, value):
    assert parse(text).value(NAMES) == value


def test_paths_are_names():
    found = parse("q.mass + q.momentum[0] + w['a b'] + step")
    assert found.names == {"q.mass", "q.momentum.0", "w.a b", "step"}
    assert found.value({"q.mass": 1.0, "q.momentum.0": 2.0, "w.a b": 3.0, "step": 4.0}) == 10.0


@pytest.mark.parametrize("text", [
    "__import__('os')", "().__class__", "t()", "t.x()", "pow(2, 2)", "[1]", "(1, 2)", "{}", "'a'", "f'{t}'", "b'a'",
    "1j", "None", "...", "lambda: 1", "(t := 1)", "[t for t in t]", "t is 1", "t in t", "~1", "1 << 9", "1 | 2",
    "t @ t", "max(*t)", "min(1, key=abs)", "min(1)", "abs(1, 2)", "sqrt()", "t[t]", "t[0:1]", "t[-1]", "t[True]",
    "await t", "__builtins__['eval']('1')",
])
def test_everything_else_is_refused(text):
    try:
        found = parse(text)
    except ExpressionError:
        return
    # What is left are names, which are looked up in a mapping and nowhere else
    with pytest.raises(ExpressionError, match="not known"):
        found.value(NAMES)
    assert found.names


@pytest.mark.parametrize("text", [
    "", "1 +", "1; 2", "x = 1", "(" * 400, "1\0", "9" * 5000, "0 is 0", "\ud800", "1" + "0" * 400,
])
def test_texts_that_cannot_be_read_are_refused(text):
    with pytest.raises(ExpressionError):
        parse(text)


@given(st.text(max_size=40))
def test_any_text_is_an_expression_or_refused(text):
    try:
        parse(text)
    except ExpressionError as error:
        assert "\n" not in str(error)


@pytest.mark.parametrize("text, why", [
    ("1/(t - t)", "division"), ("9**9**9**9", "out of range|range error"), ("(0-8) ** 0.5", "math domain|nonnegative"),
    ("log(0)", ""), ("exp(1e9)", "range"), ("sqrt(x)", "'x' is not known yet"), ("0 ** (0-1)", ""),
])
def test_no_value_is_a_sentence(text, why):
    with pytest.raises(ExpressionError, match=f"has no value: .*({why})") as caught:
        parse(text).value(NAMES)
    assert caught.value.agreed
