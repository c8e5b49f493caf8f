"""Sums over products in the cheapest order: the same values, never more operations, the partial sums one expects."""

from __future__ import annotations

import itertools
import os
from typing import Any

import numpy as np
import pymbolic.primitives as prim
from hypothesis import HealthCheck, given, settings

from aotato.emit.contraction import Factor, Problem, Sum, cheapest
from aotato.emit.factored import factored
from aotato.emit.runs import Runs
from aotato.frontend import expr as ex
from aotato.frontend import interpret, ir
from aotato.frontend.expr import Reduce, read
from aotato.frontend.text import dumps
from rank_programs import Ranks, values
from sums_random import sums

EXAMPLES = int(os.environ.get("AOTATO_EXAMPLES", "200"))
E = 64


def flops(program: ir.Program) -> int:
    return sum(ex.flops(node.expr) * ir.size(node.shape) for _, node in program.of_type(ir.Lambda))


def test_any_sum_of_products_keeps_its_values_and_never_gets_more_operations() -> None:
    changed = 0

    @settings(max_examples=EXAMPLES, derandomize=True, deadline=None, database=None,
              suppress_health_check=list(HealthCheck))
    @given(sums())
    def run(programs: ir.Programs) -> None:
        nonlocal changed
        found = factored(programs)
        inputs = values(programs)
        results = interpret.run(found, inputs)
        for before, after, meaning, result in zip(
            programs.ranks, found.ranks, interpret.run(programs, inputs), results, strict=True
        ):
            assert flops(after) <= flops(before)
            changed += before.arrays != after.arrays
            for path, value in meaning.items():
                interpret.assert_agrees(path, value, result[path].value)
        assert len({tuple(program.arrays) for program in found.ranks}) == 1

    run()
    assert changed > EXAMPLES // 3


def variables(*names: str) -> tuple[Any, ...]:
    return tuple(map(prim.Variable, names))


def product(*factors: Any) -> Any:
    return prim.Product(factors)


def lambdas(program: ir.Program) -> list[str]:
    return [line for line in dumps(program).splitlines() if " = lambda " in line]


def lifted(ranks: Ranks, rank: int, elements: int, table: np.ndarray[Any, Any]) -> None:
    """The sum over k of lift[i, k] * normals[e, table[k], d] * mean[v, e, k] as [d, v, e, i]."""
    rng = np.random.default_rng(rank)
    k = len(table)
    lift, normals = ranks.const(rank, rng.random((8, k)), "lift"), ranks.const(rank, rng.random((elements, 4, 3)), "n")
    face = ranks.const(rank, table.astype("int32"), "table")
    place = (prim.Variable("_0"), read(1, variables("_1")), prim.Variable("_2"))
    normal = ranks.compute(rank, (normals, face), read(0, place), (elements, k, 3), "float64", "normal")
    mean = ranks.input(rank, (2, elements, k), name="mean")
    body = product(read(0, variables("_3", "_r0")), read(1, variables("_2", "_r0", "_0")),
                   read(2, variables("_1", "_2", "_r0")))
    total = Reduce("sum", (("_r0", 0, k),), body)
    ranks.output(rank, "out", ranks.compute(rank, (lift, normal, mean), total, (3, 2, elements, 8), "float64", "out"))


def test_a_normal_of_a_face_is_applied_after_the_sum_over_its_nodes() -> None:
    ranks = Ranks(2)
    for rank in range(2):
        lifted(ranks, rank, E + rank, np.repeat([2, 0, 1, 3], 5))
    found = factored(ranks.programs())
    assert lambdas(found.ranks[1])[1:] == [
        "out_s0 = lambda float64[4,2,65,8] (lift, mean): "
        "sum((a0[_3, ((5 * _0) + _r0)] * a1[_1, _2, ((5 * _0) + _r0)]) for _r0 in range(0, 5))",
        "out = lambda float64[3,2,65,8] (normal, out_s0): "
        "sum((a0[_2, (5 * _r0o), _0] * a1[_r0o, _1, _2, _3]) for _r0o in range(0, 4))",
    ]


def test_an_index_is_cut_only_into_runs_that_every_rank_has() -> None:
    ranks = Ranks(2)
    lifted(ranks, 0, E, np.repeat([2, 0, 1, 3], 6))
    lifted(ranks, 1, E, np.repeat([2, 0, 3], 8))
    found = factored(ranks.programs())
    for program in found.ranks:
        assert "for _r0 in range(0, 2)" in lambdas(program)[1]
        assert "for _r0o in range(0, 12)" in lambdas(program)[2]
    ranks = Ranks(2)
    lifted(ranks, 0, E, np.repeat([2, 0, 1, 3], 6))
    lifted(ranks, 1, E, np.random.default_rng(0).integers(0, 4, 24))
    assert factored(ranks.programs()) == ranks.programs()


def test_readers_share_a_partial_sum() -> None:
    """D x, summed with two sets of weights of its own axis."""
    ranks = Ranks(1)
    d, x = ranks.const(0, np.arange(30.0).reshape(5, 6), "d"), ranks.input(0, (E, 6), name="x")
    for name in ("a", "b"):
        weights = ranks.const(0, np.random.default_rng(ord(name)).random((3, 5)), name)
        dx = product(read(1, variables("_r0", "_r1")), read(2, variables("_0", "_r1")))
        body = product(read(0, variables("_1", "_r0")), dx)
        total = Reduce("sum", (("_r0", 0, 5), ("_r1", 0, 6)), body)
        ranks.output(0, name, ranks.compute(0, (weights, d, x), total, (E, 3), "float64", f"{name}x"))
    (program,) = factored(ranks.programs()).ranks
    assert lambdas(program) == [
        "ax_s0 = lambda float64[5,64] (d, x): sum((a0[_0, _r1] * a1[_1, _r1]) for _r1 in range(0, 6))",
        "ax = lambda float64[64,3] (a, ax_s0): sum((a0[_1, _r0] * a1[_r0, _0]) for _r0 in range(0, 5))",
        "bx = lambda float64[64,3] (b, ax_s0): sum((a0[_1, _r0] * a1[_r0, _0]) for _r0 in range(0, 5))",
    ]


def chain(n: int, elements: int) -> Ranks:
    """A matrix times a matrix times a vector that depend on inputs, with no elements to share out."""
    ranks = Ranks(1)
    a, b, x = (ranks.input(0, shape, name=name) for name, shape in (("a", (elements, n)), ("b", (n, n)), ("x", (n,))))
    body = product(read(0, variables("_0", "_r0")), read(1, variables("_r0", "_r1")), read(2, variables("_r1")))
    total = Reduce("sum", (("_r0", 0, n), ("_r1", 0, n)), body)
    ranks.output(0, "y", ranks.compute(0, (a, b, x), total, (elements,), "float64", "y"))
    return ranks


def test_a_kernel_more_must_pay() -> None:
    (small,) = factored(chain(10, 40).programs()).ranks
    assert lambdas(small) == [
        "y = lambda float64[40] (a, b, x): "
        "sum((sum((a0[_0, _r0] * a1[_r0, _r1]) for _r0 in range(0, 10)) * a2[_r1]) for _r1 in range(0, 10))"
    ]
    (large,) = factored(chain(2000, 40).programs()).ranks
    assert [line.partition(":")[0] for line in lambdas(large)] == [
        "y_s0 = lambda float64[2000] (b, x)", "y = lambda float64[40] (a, y_s0)",
    ]


def test_a_loop_that_a_group_shares_keeps_its_terms() -> None:
    programs = chain(40, 40).programs()
    assert factored(programs) == programs


def test_what_a_condition_guards_stays() -> None:
    ranks = Ranks(1)
    a, x = ranks.input(0, (), name="a"), ranks.input(0, (E, 6), name="x")
    total = Reduce("sum", (("_r0", 0, 6),), product(read(0, ()), read(1, variables("_0", "_r0"))))
    guarded = prim.If(prim.Comparison(prim.Variable("_0"), "<", 3), total, 0.0)
    ranks.output(0, "guarded", ranks.compute(0, (a, x), guarded, (E,), "float64", "guarded"))
    ranks.output(0, "free", ranks.compute(0, (a, x), total, (E,), "float64", "free"))
    program, (found,) = ranks.programs().ranks[0], factored(ranks.programs()).ranks
    assert found.arrays["guarded"] == program.arrays["guarded"]
    assert lambdas(found)[1].endswith("(x, a): (sum(a0[_0, _r0] for _r0 in range(0, 6)) * a1[()])")


def test_runs_of_tables_quotients_and_data() -> None:
    ranks = Ranks(1)
    table = ranks.const(0, np.repeat([3, 1, 1, 0], 3).astype("int32"), "table")
    data = ranks.const(0, np.repeat(np.random.default_rng(0).random((4, 5)), 6, axis=0), "data")
    through = ranks.compute(0, (table, data), read(1, (read(0, variables("_1")), prim.Variable("_0"))), (5, 12),
                            "float64", "through")
    half = prim.FloorDiv(prim.Variable("_0"), 2)
    ranks.output(0, "out", ranks.compute(0, (through,), read(0, (0, half)), (24,), "float64", "half"))
    runs = Runs(ranks.programs().ranks[0])
    assert [runs.of_array(*what) for what in (("table", 0), ("data", 0), ("data", 1))] == [3, 6, 1]
    assert [runs.of_array(*what) for what in (("through", 0), ("through", 1), ("half", 0))] == [1, 3, 6]


def test_the_search_finds_the_best_order_of_a_chain() -> None:
    """Products of matrices of 2, 30, 2, 30 and 2 rows: the classic case, where the order is worth a factor."""
    extents = dict(zip(("_0", "i", "j", "k", "_1"), (2, 30, 2, 30, 2), strict=True))
    axes = [frozenset(pair) for pair in itertools.pairwise(extents)]
    problem = Problem([Factor(0, one) for one in axes], frozenset(("_0", "_1")), frozenset("ijk"), [extents],
                      lambda axes: 0)
    plan = cheapest(problem)
    # Both products over 30 first, 2 * 2 * 30 * 2 each, then one over 2
    assert plan.flops == 2 * (2 * 2 * 30 * 2) + 2 * 2 * 2 * 2
    assert {part.over for part in plan.tree.parts if isinstance(part, Sum)} == {frozenset("i"), frozenset("k")}
