"""`algebra=fast`: quotients and roots on a device, within the interpreter's bound of the exact program."""

from __future__ import annotations

import numpy as np
import pytato as pt
import pytest

import aotato
from aotato.emit.target import TARGETS
from aotato.runtime_stub.format import Bundle
from nodes import Batch, sample

# Reciprocals of all are normal numbers, infinite or zero
SPECIAL = [1.0, 3.0, -7.0, 1e-300, -1e300, 0.0, -0.0, np.inf, -np.inf, np.nan, 2.0**-900, 1.0 - 2.0**-53]


def numbers(seed: int) -> np.ndarray:
    rng = np.random.default_rng(seed)
    spread = rng.standard_normal(2000) * 10.0 ** rng.integers(-140, 140, 2000)
    return np.concatenate([rng.permutation(SPECIAL), spread])


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_quotients_and_roots(target, tmp_path):
    """Arrays also meet in a block: a matrix product makes one of them."""
    x, y, square, batch = numbers(0), numbers(1), np.random.default_rng(2).standard_normal((50, 4, 4)), Batch()
    a, b, c = map(batch.input, (x, y, square))
    with np.errstate(all="ignore"):
        batch.add("quotient", a / b, x / y)
        batch.add("reciprocal", 1 / b, 1 / y)
        batch.add("both", a / b + 3 / b, x / y + 3 / y)
        batch.add("by a constant", a / 3.7, x / 3.7)
        batch.add("root", pt.sqrt(a), np.sqrt(x))
        batch.add("of a root", 1 / pt.sqrt(abs(b)), 1 / np.sqrt(abs(y)))
    summed = np.einsum("eij,ejk->eik", square, square)
    batch.add("block", pt.sqrt(abs(pt.einsum("eij,ejk->eik", c, c))) / c, np.sqrt(abs(summed)) / square)
    batch.check(tmp_path / "fast.h5", target=target, algebra="fast")


def text(outputs, path, algebra):
    aotato.build(outputs, path=path, targets="gpu", algebra=algebra)
    with Bundle.open(path) as bundle:
        assert bundle.meta["algebra"] == algebra
        return "".join(bundle.kernel(row.kernel) for row in bundle.schedule("step", "gpu", 0).launches)


def test_only_fast_programs_have_approximations(tmp_path):
    batch = Batch()
    a, b = batch.input(numbers(0)), batch.input(numbers(1))
    exact, fast = (text({"x": pt.sqrt(a) / b}, tmp_path / f"{n}.h5", n) for n in ("exact", "fast"))
    assert "approx" not in exact and " / " in exact
    assert "rcp.approx" in fast and "rsqrt.approx" in fast


def test_other_dtypes_keep_the_languages_own(tmp_path):
    batch = Batch()
    a = batch.input(sample("float32", (50,)))
    assert "approx" not in text({"x": pt.sqrt(a) / a}, tmp_path / "single.h5", "fast")
