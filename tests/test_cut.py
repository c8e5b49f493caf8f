"""The cheapest cut, against trying all subsets."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import numpy as np

from aotato.frontend.cut import Weight, cut


def separates(chosen: frozenset[str], readers: Mapping[str, Sequence[str]], costly: Sequence[str],
              needed: Sequence[str]):
    stack = [name for name in costly if name not in chosen]
    seen = set(stack)
    while stack:
        name = stack.pop()
        if name in needed:
            return False
        fresh = [reader for reader in readers[name] if reader not in chosen and reader not in seen]
        seen.update(fresh)
        stack += fresh
    return True


def test_no_cheaper_cut_exists():
    rng = np.random.default_rng(0)
    for _ in range(150):
        names = [f"t{i}" for i in range(rng.integers(1, 9))]
        weights = {name: Weight(int(rng.integers(0, 4)) * 8, bool(rng.random() < 0.3)) for name in names}
        readers = {a: [b for b in names[i + 1 :] if rng.random() < 0.4] for i, a in enumerate(names)}
        costly = [name for name in names if rng.random() < 0.4]
        needed = [name for name in names if rng.random() < 0.4]

        def cost(chosen: Sequence[str], weights: Mapping[str, Weight] = weights) -> tuple[int, int, int]:
            parts = [weights[name] for name in chosen]
            return sum(part.nbytes for part in parts), sum(not part.hinted for part in parts), len(parts)

        subsets = itertools.chain.from_iterable(itertools.combinations(names, n) for n in range(len(names) + 1))
        cuts = [chosen for chosen in subsets if separates(frozenset(chosen), readers, costly, needed)]
        for late in (False, True):
            found = cut(weights, readers, costly, needed, late)
            assert separates(frozenset(found), readers, costly, needed)
            assert cost(found) == min(map(cost, cuts))
            shuffled = {name: weights[name] for name in rng.permutation(names).tolist()}
            again = cut(shuffled, {name: readers[name][::-1] for name in shuffled}, costly[::-1], needed[::-1], late)
            assert sorted(again) == sorted(found)


def chain(**changes: Weight) -> dict[str, Weight]:
    return {**{name: Weight(8, False) for name in "abc"}, **changes}


READERS = {"a": ["b"], "b": ["c"], "c": []}


def test_the_nearest_to_the_reduction_is_taken():
    assert cut(chain(), READERS, ["a"], ["c"]) == ("a",)


def test_a_late_cut_is_nearest_to_the_readers():
    assert cut(chain(), READERS, ["a"], ["c"], late=True) == ("c",)
    assert cut(chain(b=Weight(4, False)), READERS, ["a"], ["c"], late=True) == ("b",)


def test_fewest_bytes_come_first():
    assert cut(chain(b=Weight(4, False)), READERS, ["a"], ["c"]) == ("b",)


def test_a_hint_breaks_ties_only():
    assert cut(chain(c=Weight(8, True)), READERS, ["a"], ["c"]) == ("c",)
    assert cut(chain(c=Weight(9, True)), READERS, ["a"], ["c"]) == ("a",)


def test_two_reductions_below_one_array_are_cut_above():
    weights = {name: Weight(8, False) for name in "xyz"}
    assert cut(weights, {"x": ["z"], "y": ["z"], "z": []}, ["x", "y"], ["z"]) == ("z",)


def test_nothing_is_cut_without_a_path():
    assert cut(chain(), READERS, ["c"], ["a"]) == ()
