"""`algebra=fast`: constant matrices become one where that is less work, and nothing changes elsewhere or by default."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pymbolic.primitives as prim
import pytato as pt
import pytest
from hypothesis import HealthCheck, given, settings

import aotato
from aotato.emit.contracted import Constants
from aotato.emit.factored import factored
from aotato.emit.premultiplied import premultiplied
from aotato.emit.pruned import pruned
from aotato.emit.target import TARGETS
from aotato.frontend import expr as ex
from aotato.frontend import interpret, ir
from aotato.frontend.expr import Reduce, read
from aotato.frontend.text import dumps
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from chains_random import chains, variables
from nodes import Batch
from rank_programs import Ranks, values

EXAMPLES = int(os.environ.get("AOTATO_EXAMPLES", "100"))
E = 70


def flops(programs: ir.Programs) -> int:
    nodes = [node for program in pruned(factored(programs)).ranks for _, node in program.of_type(ir.Lambda)]
    return sum(ex.flops(node.expr) * ir.size(node.shape) for node in nodes)


def lambdas(programs: ir.Programs) -> list[str]:
    return [line for line in dumps(programs.ranks[-1]).splitlines() if " = lambda " in line]


def same_values(programs: ir.Programs, found: ir.Programs) -> None:
    inputs = values(programs)
    for meaning, result in zip(interpret.run(programs, inputs), interpret.run(found, inputs), strict=True):
        for path, value in meaning.items():
            interpret.assert_agrees(path, value, result[path].value)


def test_any_chain_keeps_its_values_and_never_gets_more_operations() -> None:
    changed = 0

    @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))
    @given(chains())
    def run(programs: ir.Programs) -> None:
        nonlocal changed
        found = premultiplied(programs)
        if found == programs:
            return
        changed += 1
        same_values(programs, found)
        assert flops(found) < flops(programs)
        assert len({tuple(program.arrays) for program in found.ranks}) == 1
        assert all(program.arrays[o.array].dtype.kind in "fc" for program in found.ranks for o in program.outputs)

    run()
    assert changed > EXAMPLES // 8, changed


def const(ranks: Ranks, name: str, *shape: int, dtype: str = "float64") -> str:
    rng = np.random.default_rng(len(name))
    return ranks.const(0, (10 * rng.standard_normal(shape)).astype(dtype), name)


def product(ranks: Ranks, matrix: str, x: str, name: str, **options: Any) -> str:
    """Matrix times x[e, k], as [e, j]; a matrix of three axes is one for every element."""
    a, b = ranks.arrays[0][matrix], ranks.arrays[0][x]
    *own, _, k = a.shape
    index = (*(["_0"] if own else []), "_1", "_r0")
    body = prim.Product((read(0, variables(*index)), read(1, variables("_0", "_r0"))))
    total = Reduce(options.pop("op", "sum"), (("_r0", 0, k),), body)
    return ranks.compute(0, (matrix, x), total, (b.shape[0], a.shape[-2]), b.dtype, name, **options)


def scaled(ranks: Ranks, scale: str, x: str, name: str) -> str:
    shape = ranks.arrays[0][x].shape
    factors = prim.Product((read(0, variables("_0")), read(1, variables("_0", "_1"))))
    return ranks.compute(0, (scale, x), factors, shape, ranks.arrays[0][x].dtype, name)


def inverse_mass() -> Ranks:
    """s (M (t (D x))), where M and D are matrices, s and t numbers of the element."""
    ranks = Ranks(1)
    x, s, t = ranks.input(0, (E, 9), name="x"), const(ranks, "s", E), const(ranks, "ttt", E)
    inner = scaled(ranks, t, product(ranks, const(ranks, "D", 7, 9), x, "u"), "v")
    ranks.output(0, "out", scaled(ranks, s, product(ranks, const(ranks, "MM", 8, 7), inner, "w"), "y"))
    return ranks


def test_factors_of_the_element_are_pulled_through() -> None:
    programs = inverse_mass().programs()
    found = premultiplied(programs)
    assert lambdas(found) == [
        "w = lambda float64[70,8] (w_c0, ttt, x): sum((a0[_1, _r1] * a1[_0] * a2[_0, _r1]) for _r1 in range(0, 9))",
        "y = lambda float64[70,8] (s, w): (a0[_0] * a1[_0, _1])",
    ]
    (program,) = found.ranks
    assert {name for name, _ in program.of_type(ir.Const)} == {"s", "ttt", "w_c0"}
    same_values(programs, found)


def test_readers_at_other_numbers_share_a_sum() -> None:
    """M (D[d] x) for d = 0 and 1, each minus M (L f), as mass matrices follow stiffness and lift."""
    ranks = Ranks(1)
    x, f = ranks.input(0, (E, 9), name="x"), ranks.input(0, (E, 5), name="f")
    m, lift = const(ranks, "m", 9, 9), product(ranks, const(ranks, "ll", 9, 5), f, "lift")
    body = prim.Product((read(0, variables("_0", "_r0", "_1")), read(1, variables("_r0", "_2", "_r1")),
                         read(2, variables("_1", "_r1"))))
    metric, d = const(ranks, "metric", 2, 2, E), const(ranks, "ddd", 2, 9, 9)
    total = Reduce("sum", (("_r0", 0, 2), ("_r1", 0, 9)), body)
    weak = ranks.compute(0, (metric, d, x), total, (2, E, 9), "float64", "weak")
    for axis in range(2):
        jump = prim.Sum((read(0, (axis, *variables("_0", "_1"))), prim.Product((-1, read(1, variables("_0", "_1"))))))
        both = ranks.compute(0, (weak, lift), jump, (E, 9), "float64", f"both{axis}")
        ranks.output(0, f"out{axis}", product(ranks, m, both, f"grad{axis}"))
    programs = ranks.programs()
    found = premultiplied(programs)
    assert [line.partition(":")[0] for line in lambdas(found)] == [
        "grad0_p0 = lambda float64[2,70,9] (grad0_c0, metric, x)", "grad0_p1 = lambda float64[70,9] (grad0_c1, f)",
        "grad0 = lambda float64[70,9] (grad0_p0, grad0_p1)", "grad1 = lambda float64[70,9] (grad0_p0, grad0_p1)",
    ]
    # Neither has a product with m any more
    assert flops(programs) - flops(found) == 2 * (2 * 9 * 9 * E)
    same_values(programs, found)


@pytest.mark.parametrize("alone", [True, False])
def test_an_index_that_stays_is_summed_with_the_others(alone) -> None:
    """sum over d, j of A[i, j] g[d, e] (B x_d)[e, j]: as factors of one sum they can be multiplied in any order."""
    ranks = Ranks(1)
    x = ranks.input(0, (3, E, 9), name="x")
    inner = prim.Product((read(0, variables("_2", "_r0")), read(1, variables("_0", "_1", "_r0"))))
    over = Reduce("sum", (("_r0", 0, 9),), inner)
    u = ranks.compute(0, (const(ranks, "bb", 9, 9), x), over, (3, E, 9), "float64", "u")
    outer = prim.Product((read(0, variables("_1", "_r1")), read(1, variables("_r0", "_0")),
                          read(2, variables("_r0", "_0", "_r1"))))
    total = Reduce("sum", (("_r0", 0, 3), ("_r1", 0, 9)), outer)
    whole = total if alone else prim.Call(prim.Variable("sqrt"), (total,))
    operands = (const(ranks, "a", 9, 9), const(ranks, "ggg", 3, E), u)
    ranks.output(0, "out", ranks.compute(0, operands, whole, (E, 9), "float64", "y"))
    programs = ranks.programs()
    found = premultiplied(programs)
    assert len(lambdas(found)) == 1
    assert flops(found) == E * (9 * (2 * 3) + 9 * 2 * 9 + 9 * (not alone))  # g x first, then the matrix
    same_values(programs, found)


def chain(*sizes: int, **options: Any) -> Ranks:
    """Matrices of sizes[0] by sizes[1] and so on, the last one first; `shown` makes what the first gives an output."""
    dtype = options.get("dtype", "float64")
    ranks = Ranks(1)
    x = ranks.input(0, (E, sizes[-1]), dtype, name="x")
    for number, (rows, columns) in reversed(list(enumerate(itertools.pairwise(sizes)))):
        own = (E,) if options.get("own") == number else ()
        matrix = const(ranks, "m" * (number + 1), *own, rows, columns, dtype=options.get("matrices", dtype))
        x = product(ranks, matrix, x, f"y{number}", op=options.get("op", "sum"))
        if number == options.get("shown"):
            ranks.output(0, "shown", x)
    ranks.output(0, "out", x)
    return ranks


def test_a_chain_becomes_one_matrix() -> None:
    programs = chain(6, 7, 8, 9).programs()
    found = premultiplied(programs)
    assert len(lambdas(found)) == 1
    (matrix,) = found.ranks[0].constants.values()
    exact = np.linalg.multi_dot([programs.ranks[0].constants[programs.ranks[0].arrays[name].digest]
                                 for name in ("m", "mm", "mmm")])
    assert np.allclose(matrix, exact, rtol=1e-13)
    same_values(programs, found)


@pytest.mark.parametrize("dtype", ["float32", "float64", "complex64", "complex128"])
def test_matrices_are_as_exact_as_their_type(dtype) -> None:
    """Against fractions: half a unit in the last place, or what a long double that is no longer allows."""
    rng, n, ranks = np.random.default_rng(0), 6, Ranks(1)
    a, b = ((10.0 ** rng.integers(-3, 4, (n, n)) * rng.standard_normal((n, n))).astype(dtype) for _ in "ab")
    a_ij, b_jk = (prim.Subscript(prim.Variable(ranks.const(0, each)), variables(*axes))
                  for each, axes in ((a, "ij"), (b, "jk")))
    found = Constants(ranks.programs().ranks[0]).contracted([a_ij, b_jk], "j", "ik", dict.fromkeys("ijk", n), a.dtype)
    assert found is not None and found.dtype == dtype
    own, long = np.finfo(dtype).eps, np.finfo(np.longdouble).eps
    longer = long if dtype in ("float64", "complex128") else np.finfo(np.float64).eps
    for i, k in np.ndindex(n, n):
        for part, one, other, sign in (("real", "real", "imag", -1), ("imag", "imag", "real", 1)):
            terms = [fraction(a[i, j].real) * fraction(getattr(b[j, k], one)) for j in range(n)]
            terms += [sign * fraction(a[i, j].imag) * fraction(getattr(b[j, k], other)) for j in range(n)]
            error = abs(fraction(getattr(found[i, k], part)) - sum(terms))
            assert error <= own / 2 * abs(sum(terms)) + 2 * n * longer * sum(map(abs, terms))


def fraction(number: Any) -> Fraction:
    return Fraction(float(number))


def test_readers_of_one_sum_are_rewritten_together() -> None:
    """Of u, 5 rows, a reader of 20 rows would need more operations without it, one of 2 rows would need fewer."""
    ranks = inverse_mass()
    u = product(ranks, const(ranks, "five", 5, 9), "x", "few")
    for rows in (20, 2):
        ranks.output(0, f"rows{rows}", product(ranks, const(ranks, f"rows{rows}", rows, 5), u, f"y{rows}"))
    programs = ranks.programs()
    found = premultiplied(programs)
    for name in ("few", "y20", "y2"):
        assert found.ranks[0].arrays[name] == programs.ranks[0].arrays[name]
    assert found.ranks[0].arrays["w"] != programs.ranks[0].arrays["w"]


LEFT_ALONE = {
    "less work in two steps": chain(9, 2, 9),
    "the same work": chain(9, 9, 9, shown=1),
    "integers": chain(9, 9, 9, dtype="int64"),
    "two precisions": chain(9, 9, 9, dtype="float64", matrices="float32"),
    "a matrix for each element": chain(9, 9, 9, own=0),
    "another one below": chain(9, 9, 9, own=1),
    "no sum": chain(9, 9, 9, op="max"),
}


@pytest.mark.parametrize("name", LEFT_ALONE)
def test_what_is_left_alone(name) -> None:
    programs = LEFT_ALONE[name].programs()
    assert premultiplied(programs) is programs or premultiplied(programs) == programs


@pytest.mark.parametrize("between", ["a product", "a sum", "no sum below"])
def test_what_is_computed_between_them_stays(between) -> None:
    """M (q D x), where q depends on the index between them; M (D x + 1); M (q x)."""
    ranks = Ranks(1)
    x, q = ranks.input(0, (E, 9), name="x"), ranks.input(0, (E, 9), name="q")
    u = x if between == "no sum below" else product(ranks, const(ranks, "d", 9, 9), x, "u")
    if between == "a sum":
        v = ranks.map(0, lambda a: prim.Sum((a, 1.0)), u)
    else:
        v = ranks.map(0, lambda a, b: prim.Product((a, b)), u, q)
    ranks.output(0, "out", product(ranks, const(ranks, "mm", 9, 9), v, "y"))
    assert premultiplied(ranks.programs()) == ranks.programs()


def test_matrices_that_are_equal_on_one_rank_only_have_one_name_each_on_all() -> None:
    ranks = Ranks(2)
    for rank in range(2):
        rng = np.random.default_rng(rank)
        x, d, m = ranks.input(rank, (E, 9), name="x"), rng.random((9, 9)), rng.random((9, 9))
        for number in range(2):
            both = [ranks.const(rank, each + number * rank, f"{name}{number}") for name, each in (("d", d), ("m", m))]
            for step, matrix in enumerate(both):
                body = prim.Product((read(0, variables("_1", "_r0")), read(1, variables("_0", "_r0"))))
                below = f"y{number}_{step - 1}" if step else x
                ranks.compute(rank, (matrix, below), Reduce("sum", (("_r0", 0, 9),), body), (E, 9), "float64",
                              f"y{number}_{step}")
            ranks.output(rank, f"out{number}", f"y{number}_1")
    programs = ranks.programs()
    found = premultiplied(programs)
    assert [tuple(program.arrays) for program in found.ranks] == [("x", "y0_1_c0", "y0_1", "y1_1_c0", "y1_1")] * 2
    assert [len(program.constants) for program in found.ranks] == [1, 2]
    same_values(programs, found)


def test_a_sum_of_a_shorter_type_stays() -> None:
    """M (u + v), where u is added up in float64 and v in float32."""
    ranks, own = Ranks(1), ("_0", "_r1")
    x, y = ranks.input(0, (E, 9), name="x"), ranks.input(0, (E, 9), "float32", name="y")
    u = product(ranks, const(ranks, "d", 9, 9), x, "u")
    body = prim.Product((read(1, variables("_1", "_r1")), read(2, variables(*own))))
    v = prim.Sum((read(0, variables("_0", "_1")), Reduce("sum", (("_r1", 0, 9),), body)))
    short = const(ranks, "short", 9, 9, dtype="float32")
    both = ranks.compute(0, (u, short, y), v, (E, 9), "float64", "both")
    ranks.output(0, "out", product(ranks, const(ranks, "mm", 9, 9), both, "w"))
    assert premultiplied(ranks.programs()) == ranks.programs()


def test_what_a_condition_guards_is_left_alone() -> None:
    """Elements that no one evaluates may lie outside an array."""
    ranks = inverse_mass()
    y = ranks.arrays[0]["w"]
    assert isinstance(y, ir.Lambda)
    guarded = prim.If(prim.Comparison(prim.Variable("_0"), "<", 3), y.expr, np.float64(0))
    ranks.arrays[0]["w"] = ir.Lambda(guarded, y.operands, y.shape, y.dtype)
    assert premultiplied(ranks.programs()) == ranks.programs()


@pytest.mark.parametrize("size", [1e200, 1e-170])
def test_a_matrix_that_cannot_hold_the_product_is_none(size) -> None:
    ranks = Ranks(1)
    x = ranks.input(0, (E, 9), name="x")
    a, b = (ranks.const(0, size * np.random.default_rng(n).random((9, 9)), f"a{n}") for n in range(2))
    half = ranks.map(0, lambda u: prim.Product((1 / size, u)), product(ranks, b, x, "u"), name="half")
    ranks.output(0, "out", product(ranks, a, half, "w"))
    assert premultiplied(ranks.programs()) == ranks.programs()


def operator() -> Batch:
    """An operator as a discontinuous Galerkin code writes it, with an inverse mass matrix and Jacobians last."""
    rng, batch, n, m = np.random.default_rng(0), Batch(), 10, 12
    data = {"mass": rng.standard_normal((n, n)), "stiff": rng.standard_normal((2, n, n)),
            "lift": rng.standard_normal((n, m)), "jacobian": 1 + rng.random((E, 1)), "metric": rng.random((2, E))}
    wrapped = {name: pt.make_data_wrapper(array) for name, array in data.items()}
    q = batch.input(rng.standard_normal((E, n)))
    faces = pt.concatenate([q, q[:, :2]], axis=1)
    flux = faces * faces
    weak = pt.einsum("rij,re,ej->ei", wrapped["stiff"], wrapped["metric"], q * q)
    total = weak - pt.einsum("ij,ej->ei", wrapped["lift"], flux)
    batch.add("rhs", pt.einsum("ij,ej->ei", wrapped["mass"], total) / wrapped["jacobian"], None)
    return batch


@pytest.mark.parametrize("target", sorted(TARGETS))
def test_an_operator_on_a_device(target, tmp_path: Path) -> None:
    operator().check(tmp_path / "fast.h5", target=target, algebra="fast")


def test_only_fast_builds_have_fewer_operations(tmp_path: Path) -> None:
    counts, texts = {}, {}
    for algebra in ("exact", "fast"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("AOTATO_DUMP", str(tmp_path / algebra))
            path = aotato.build(operator().outputs, path=tmp_path / f"{algebra}.h5", targets="cpu", algebra=algebra)
        with Bundle.open(path) as bundle:
            row = report(bundle)["entries"]["step"]["per_rank"][0]
        assert row["launches"] == 1
        counts[algebra] = sum(kernel["flops"] for kernel in row["kernels"])
        texts[algebra] = {file.name.rpartition("-")[2] for file in (tmp_path / algebra).glob("01-*")}
    assert counts["exact"] - counts["fast"] > 0.9 * (2 * 10 * 10 * E)  # the mass matrix, less what scales two sums
    assert texts["fast"] - texts["exact"] == {"premultiplied.txt"}


BUILD = """
import sys
import aotato, test_premultiplied
aotato.build(test_premultiplied.operator().outputs, path=sys.argv[1], targets="cpu", algebra="fast")
"""


def test_the_hash_seed_does_not_matter(tmp_path: Path) -> None:
    here = aotato.build(operator().outputs, path=tmp_path / "here.h5", targets="cpu", algebra="fast")
    command = [sys.executable, "-W", "ignore", "-c", BUILD, str(tmp_path / "there.h5")]
    subprocess.run(command, cwd=Path(__file__).parent, env={**os.environ, "PYTHONHASHSEED": "1"}, check=True)
    assert here.read_bytes() == (tmp_path / "there.h5").read_bytes()
