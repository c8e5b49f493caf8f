"""Normal forms: what changes nothing is left out, and commuting operands take one order."""

from __future__ import annotations

import numpy as np
import pymbolic.primitives as prim
import pytest

from aotato.frontend.expr import read
from aotato.frontend.normalise import normalise
from aotato.frontend.text_expr import expr_text, parse_expr


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("(float64(0.0) + a0[_0])", "a0[_0]"),
        ("(a0[_0] * float64(1.0))", "a0[_0]"),
        ("a0[(_0 + 0)]", "a0[_0]"),
        ("a0[(_0 // 1)]", "a0[_0]"),
        ("a0[(_0 % 8)]", "a0[_0]"),
        ("a0[(_0 % 7)]", "a0[(_0 % 7)]"),
        ("a0[((3 * _0) % 22)]", "a0[(3 * _0)]"),
        ("a0[((3 * _0) % 21)]", "a0[((3 * _0) % 21)]"),
        ("a0[(((3 * _0) + -1) % 22)]", "a0[((-1 + (3 * _0)) % 22)]"),
        ("a0[(_0 // 8)]", "a0[0]"),
        ("a0[((_0 % 4) // 4)]", "a0[0]"),
        ("(a0[_0] // int64(8))", "(a0[_0] // int64(8))"),
        ("(a0[_0] * float64(0.0))", "(float64(0.0) * a0[_0])"),
    ],
)
def test_what_changes_nothing_is_left_out(before: str, after: str) -> None:
    expr, operands = normalise(parse_expr(before), ["v3"], (8,))
    assert (expr_text(expr), operands) == (after, ("v3",))


def test_two_operands_take_one_order_and_operands_their_numbers_from_it() -> None:
    first = normalise(parse_expr("(a0[_0] + a1[_0])"), ["v7", "v2"], (8,))
    second = normalise(parse_expr("(a0[_0] + a1[_0])"), ["v2", "v7"], (8,))
    assert [expr_text(first[0]), first[1]] == [expr_text(second[0]), second[1]]


def test_the_order_of_operands_is_that_of_their_numbers() -> None:
    """A rank that has one array less names all later ones by a number less: v9 and v10 are its v8 and v9."""
    one = normalise(parse_expr("(a0[_0] * a1[0, _0])"), ["v10", "v9"], (8,))
    other = normalise(parse_expr("(a0[_0] * a1[0, _0])"), ["v9", "v8"], (8,))
    assert expr_text(one[0]) == expr_text(other[0]) == "(a0[0, _0] * a1[_0])"


def test_a_difference_keeps_its_negation_last() -> None:
    expr, operands = normalise(parse_expr("((float64(-1.0) * a0[_0]) + a1[_0])"), ["v1", "v2"], (8,))
    assert (expr_text(expr), operands) == ("(a0[_0] + (float64(-1.0) * a1[_0]))", ("v2", "v1"))


def test_longer_chains_keep_their_order() -> None:
    expr, operands = normalise(parse_expr("(a1[_0] + a0[_0] + a2[_0])"), ["x", "y", "z"], (8,))
    assert (expr_text(expr), operands) == ("(a0[_0] + a1[_0] + a2[_0])", ("y", "x", "z"))


def test_an_operand_named_twice_is_read_through_one() -> None:
    expr, operands = normalise(parse_expr("(a0[_0] * a1[_0])"), ["v1", "v1"], (8,))
    assert (expr_text(expr), operands) == ("(a0[_0] * a0[_0])", ("v1",))


def test_a_complex_one_stays() -> None:
    expr = prim.Product((np.complex128(1), read(0, (prim.Variable("_0"),))))
    assert normalise(expr, ["v1"], (8,))[0] == expr


def test_negative_zero_counts_as_zero() -> None:
    expr, _ = normalise(parse_expr("(a0[_0] + float64(-0.0))"), ["v1"], (8,))
    assert expr_text(expr) == "a0[_0]"
    assert np.float64(-0.0) == 0


def test_axes_of_one_element_count_nothing_in_sums_and_products() -> None:
    expr, operands = normalise(parse_expr("a0[((((24 * _0) + _1) + _2) % 24), _0]"), ["v3"], (1, 24, 1))
    assert (expr_text(expr), operands) == ("a0[_1, 0]", ("v3",))
    same, _ = normalise(parse_expr("a0[0, _1, (_2 // 1)]"), ["v3"], (1, 24, 1))
    assert expr_text(same) == "a0[_0, _1, _2]"
