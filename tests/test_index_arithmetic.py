"""Index arithmetic is simplified to equal arithmetic, and what reshapes leave behind goes."""

from __future__ import annotations

import itertools
from typing import Any

import hypothesis.strategies as st
import pymbolic.primitives as prim
import pytest
from hypothesis import given, settings

from aotato.emit.index_arithmetic import simplified
from aotato.emit.integers import evaluate
from aotato.frontend.text_expr import expr_text, parse_expr

EXTENTS = {"_0": 3, "_1": 4, "_r0": 2}


def simple(index: Any) -> Any:
    return simplified(index, {name: (0, extent - 1) for name, extent in EXTENTS.items()}, lambda operand: (2, 5))


def indices() -> st.SearchStrategy[Any]:
    leaves = st.one_of(st.integers(-3, 25), st.sampled_from([prim.Variable(name) for name in EXTENTS]))

    def larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
        several = st.lists(inner, min_size=2, max_size=3).map(tuple)
        return st.one_of(
            several.map(prim.Sum),
            st.tuples(st.integers(-3, 12), inner).map(prim.Product),
            st.tuples(inner, st.integers(1, 12)).map(lambda parts: prim.FloorDiv(*parts)),
            st.tuples(inner, st.integers(1, 12)).map(lambda parts: prim.Remainder(*parts)),
        )

    return st.recursive(leaves, larger, max_leaves=6)


@settings(max_examples=300, derandomize=True, deadline=None, database=None)
@given(indices())
def test_simplified_indices_are_equal(index: Any) -> None:
    found = simple(index)
    for values in itertools.product(*map(range, EXTENTS.values())):
        at = dict(zip(EXTENTS, values, strict=True))
        assert evaluate(found, at, lambda read: None) == evaluate(index, at, lambda read: None)


@pytest.mark.parametrize(
    ("index", "expected"),
    [
        ("((4 * _0) + _1) // 4", "_0"),
        ("((4 * _0) + _1) % 4", "_1"),
        ("((4 * _0) + _1) % 12", "((4 * _0) + _1)"),
        ("((20 * _0) + _1) // 10", "(2 * _0)"),
        ("((12 * _0) + _1) % 3", "(_1 % 3)"),
        ("((12 * _0) + _1) // 3", "((4 * _0) + (_1 // 3))"),
        ("(_0 + 14) // 5", "(2 + ((_0 + 4) // 5))"),
        ("(_0 + 7) % 12", "(_0 + 7)"),
        ("(_0 + 10) % 12", "((_0 + 10) % 12)"),
        ("((13 * _1) // 12)", "_1"),
        ("((13 * _1) % 12)", "_1"),
        ("_1 // 2 // 2", "0"),
        ("(_0 + (3 * _1)) // 2 // 3", "((_0 + (3 * _1)) // 6)"),
        ("a0[_0] % 6", "a0[_0]"),
        ("a0[_0] % 5", "(a0[_0] % 5)"),
    ],
)
def test_what_is_left_of_an_index(index: str, expected: str) -> None:
    assert expr_text(simple(parse_expr(index))) == expected
