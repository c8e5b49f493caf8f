"""Kernels that are no blocks: reductions shared by lanes, products in tiles, rolls; at sizes that fit nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import islpy as isl
import numpy as np
import pymbolic.primitives as prim
import pytato as pt
import pytest

import aotato
from aotato.emit import linear, matrix, opencl
from aotato.frontend import interpret, ir
from aotato.frontend.expr import Reduce, read
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from bundles import write
from mpi import mpiexec
from nodes import Batch, placeholder, sample
from rank_programs import Ranks

each_target = pytest.mark.parametrize("target", ["cpu", "gpu"])
MATRICES = {
    "wide": (7, 2311),
    "tall": (2311, 7),
    "square": (263, 257),
    "one row": (1, 5003),
    "one column": (5003, 1),
    "long": (3, 40009),
    "short rows": (4099, 17),
}


def kernels(path: Path, target: str) -> list[dict[str, Any]]:
    with Bundle.open(path) as bundle:
        found: list[dict[str, Any]] = report(bundle, target)["entries"]["step"]["per_rank"][0]["kernels"]
    return found


@each_target
def test_sums_along_rows_columns_and_both(target: str, tmp_path: Path) -> None:
    batch = Batch()
    for name, shape in MATRICES.items():
        x = sample("float64", shape)
        array = batch.input(x)
        for axis in (0, 1, None):
            batch.add(f"{name} {axis}", pt.sum(array, axis=axis), x.sum(axis))
    x = sample("float64", (11, 13, 37))
    array = batch.input(x)
    for axes in ((0, 1), (0, 2), (1, 2), (1,)):
        batch.add(f"cube {axes}", pt.sum(array, axis=axes), x.sum(axes))
    batch.check(tmp_path / "sums.h5", 1, target)


OPERATORS = {
    "float32": ("sum", "max"),
    "int32": ("sum", "product", "min", "max"),
    "int8": ("sum", "min"),
    "complex64": ("sum",),
    "bool": ("any", "all"),
}


def reductions(shapes: tuple[str, ...]) -> ir.Programs:
    """Every operator and dtype over rows, columns and both."""
    ranks = Ranks(1)
    own, r0, r1 = prim.Variable("_0"), prim.Variable("_r0"), prim.Variable("_r1")
    for dtype, operators in OPERATORS.items():
        for name in shapes:
            rows, columns = MATRICES[name]
            x = ranks.input(0, (rows, columns), dtype)
            for op in operators:
                ways = {
                    "columns": (Reduce(op, (("_r0", 0, rows),), read(0, (r0, own))), (columns,)),
                    "rows": (Reduce(op, (("_r0", 0, columns),), read(0, (own, r0))), (rows,)),
                    "both": (Reduce(op, (("_r0", 0, rows), ("_r1", 0, columns)), read(0, (r0, r1))), ()),
                }
                for way, (expr, shape) in ways.items():
                    ranks.output(0, f"{op} {dtype} {name} {way}", ranks.compute(0, (x,), expr, shape, dtype))
    return ranks.programs()


@each_target
def test_operators_and_types_of_reductions(target: str, tmp_path: Path) -> None:
    programs = reductions(("tall", "wide"))
    path = write(programs, tmp_path / "operators.h5", target)
    with Bundle.open(path) as bundle:
        traced = [row.name for row in bundle.entries["step"].inputs]
    inputs = {name: sample(name.rpartition("_")[2], shape, number, -1.5, 1.5)
              for number, (name, shape) in enumerate(zip(traced, shapes_of(path), strict=True))}
    with aotato.load(path, target=target) as program:
        found = program(**inputs)
    given = {name.rpartition("_")[0]: value for name, value in inputs.items()}
    (expected,) = interpret.run(programs, [given])
    assert len(found) == len(expected) == 2 * 3 * sum(map(len, OPERATORS.values()))
    for name, value in expected.items():
        interpret.assert_agrees(name, value, found[f"{name}_{value.value.dtype.name}"])


def shapes_of(path: Path) -> list[tuple[int, ...]]:
    with Bundle.open(path) as bundle:
        return [row.shapes[0] for row in bundle.entries["step"].inputs]


def test_no_lane_adds_many_terms_in_sequence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drafts = []
    draft = opencl.draft
    monkeypatch.setattr(opencl, "draft", lambda *given: drafts.append(draft(*given)) or drafts[-1])
    x = placeholder("x", (100_003, 1009), "float64")
    y, z = placeholder("y", (70, 300_000), "float32"), placeholder("z", (300_000, 90), "float32")
    outputs = {"all": pt.sum(x), "rows": pt.sum(x, axis=1), "columns": pt.sum(x, axis=0), "product": y @ z}
    aotato.build(outputs, path=tmp_path / "x.h5")
    longest = [steps(isl.BasicSet(domain)) for found in drafts for domain in found.domains[1:]]
    assert len(longest) > 20
    assert max(longest) == 64


def steps(loop: isl.BasicSet) -> int:
    """The most values that a loop's index takes, whatever the indices around it are."""
    around = [loop.get_dim_name(isl.dim_type.param, i) for i in range(loop.dim(isl.dim_type.param))]
    natural = " and ".join(f"{name} >= 0" for name in around) or "true"
    found = loop.intersect_params(isl.BasicSet(f"[{', '.join(around)}] -> {{ : {natural} }}"))
    return 1 + int(found.project_out(isl.dim_type.param, 0, len(around)).dim_max_val(0).to_python())


def test_a_sum_of_many_ones_is_exact(tmp_path: Path) -> None:
    # In sequence, single precision stays at 2**24
    count = 3 << 23
    path = aotato.build({"out": pt.sum(placeholder("x", (count,), "float32"))}, path=tmp_path / "x.h5")
    for target in ("cpu", "gpu"):
        with aotato.load(path, target=target) as program:
            assert program(x=np.ones(count, "float32"))["out"] == count


def products(batch: Batch) -> None:
    """Products of many forms, each with a result of its own shape."""
    def pair(first: tuple[int, ...], second: tuple[int, ...], dtype: str, low: float = -4) -> tuple[Any, ...]:
        a, b = sample(dtype, first, 1, low), sample(dtype, second, 2, low)
        return batch.input(a), batch.input(b), a, b

    x, y, a, b = pair((67, 131), (131, 97), "float64")
    batch.add("odd", x @ y, a @ b)
    x, y, a, b = pair((130, 64), (98, 130), "float32")
    batch.add("both turned", x.T @ y.T, a.T.astype("float64") @ b.T)
    x, y, a, b = pair((16, 5003), (5003, 18), "float64")
    batch.add("deep", x @ y, a @ b)
    x, y, a, b = pair((3, 40, 50), (3, 50, 60), "float64")
    batch.add("several", pt.einsum("bik,bkj->bij", x, y), np.einsum("bik,bkj->bij", a, b))
    batch.add("several, last", pt.einsum("bik,bkj->ibj", x, y), np.einsum("bik,bkj->ibj", a, b))
    x, y, a, b = pair((5, 41, 30), (5, 53, 30), "float64")
    batch.add("two sums", pt.einsum("bik,bjk->ij", x, y), np.einsum("bik,bjk->ij", a, b))
    x, y, a, b = pair((70, 90), (90, 80), "float64")
    batch.add("computed", 2 * (pt.sin(x) @ (y * 3)) + 1, 2 * (np.sin(a) @ (b * 3)) + 1)
    x, y, a, b = pair((66, 65), (65, 68), "int32")
    batch.add("integers", x @ y, a @ b)
    x, y, a, b = pair((64, 48), (48, 69), "complex128")
    batch.add("complex", x @ y, a @ b)
    x, y, a, b = pair((71, 48), (48, 64), "bool")
    batch.add("booleans", x @ y, a @ b)
    x, y, a, b = pair((72, 48), (48, 73), "float16", 1)
    batch.add("halves", x @ y, a.astype("float64") @ b)


@each_target
def test_matrix_products(target: str, tmp_path: Path) -> None:
    batch = Batch()
    products(batch)
    batch.add("single", pt.sum(batch.input(np.ones(3))), 3.0)  # without a batch axis: no blocks
    batch.check(tmp_path / "products.h5", 0.9, target)
    tiled = [row["local_bytes"] > 0 for row in kernels(tmp_path / "products.h5", target)]
    assert sum(tiled) == (11 if target == "gpu" else 0)


def test_two_products_of_one_shape_are_two_launches(tmp_path: Path) -> None:
    a, b, c = (placeholder(name, (300, 300), "float64") for name in "abc")
    path = aotato.build({"ab": a @ b, "ac": a @ c, "sum": a + b}, path=tmp_path / "x.h5", targets="gpu")
    rows = kernels(path, "gpu")
    assert sorted(row["local_bytes"] > 0 for row in rows) == [False, True, True]
    assert sum(row["flops"] for row in rows) == 2 * 2 * 300**3 + 300 * 300


def test_what_is_elementwise_stands_apart_from_shared_sums(tmp_path: Path) -> None:
    x, y = placeholder("x", (6000, 500), "float64"), placeholder("y", (6000,), "float64")
    path = aotato.build({"sums": pt.sum(x, axis=1), "twice": 2 * y}, path=tmp_path / "x.h5", targets="gpu")
    assert sorted(row["bytes_written"] for row in kernels(path, "gpu")) == [48_000, 48_000]


RANKS = """
import numpy as np
import pytato as pt

from aotato.frontend import array_input


def step(rank, size, opt, data):
    def given(name, *shape):
        return array_input(name, shape, "float64", default=np.random.default_rng(rank).random(shape))

    terms = 260 + 11 * rank
    x, y, z = given("x", 100 + 7 * rank, terms), given("y", terms, 70 + rank), given("z", 90 + 3 * rank, terms)
    return {"rows": pt.sum(x, axis=1), "columns": pt.sum(x, axis=0), "all": pt.sum(x), "product": z @ y}


ENTRIES = (step,)
"""


@each_target
def test_ranks_of_different_sizes(target: str, tmp_path: Path) -> None:
    (tmp_path / "ranks.py").write_text(f'"""Ranks."""\n{RANKS}')
    path = aotato.build(tmp_path / "ranks.py", ranks=3, path=tmp_path / "ranks.h5", targets=target)
    done = mpiexec(3, ["-m", "aotato.runtime_stub.run", str(path), "--selftest"])
    assert "self-test passed" in done.stdout, done.stderr


@pytest.mark.parametrize("sides", [(4, 4), (2, 4), (1, 1)])
def test_a_small_result_has_small_rectangles(sides: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    """As large as its registers allow, but no larger than the result, and never few groups for the sake of size."""
    monkeypatch.setattr(matrix, "BUSY", 4 if sides == (4, 4) else matrix.BUSY)
    shape = {(4, 4): (128, 128), (2, 4): (32, 65536), (1, 1): (31, 16)}[sides]
    loop = matrix.Accumulate("t", np.dtype("float64"), "sum", 0, "r", ())
    nest = matrix.Nest(shape, (), (), ())
    found = matrix.rectangle(matrix.Matrix(loop, 0, 1, 0, 0, 0), nest, 8, 16)
    assert found.each == sides
    assert found.sides[0] <= shape[0] and found.sides[1] <= shape[1]


@each_target
def test_rolls(target: str, tmp_path: Path) -> None:
    batch = Batch()
    for shape in ((5, 7), (1, 3), (64, 33)):
        x = sample("float64", shape)
        array = batch.input(x)
        for shift in (1, -1, 0, 4, -40, 64):
            for axis in (0, 1):
                batch.add(f"{shape} {shift} {axis}", pt.roll(array, shift, axis) * 1.0, np.roll(x, shift, axis))
    batch.check(tmp_path / "rolls.h5", 1, target)


def test_a_roll_divides_nothing(tmp_path: Path) -> None:
    x = placeholder("x", (1000, 1000), "float64")
    path = aotato.build({"out": pt.roll(x, 1, 0) + pt.roll(x, -1, 1)}, path=tmp_path / "x.h5", targets="gpu")
    (row,) = kernels(path, "gpu")
    with Bundle.open(path) as bundle:
        text = bundle.kernel(row["digest"])
    # The element's own row and column are all that is divided for
    assert text.count("%") == text.count(" / ") == 1
    assert (row["bytes_read"], row["bytes_written"]) == (8_000_000, 8_000_000)


@each_target
def test_indices_of_64_bits(target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl, "_index_dtype", lambda *given: np.int64)
    batch = Batch()
    x, y, z = sample("float64", (2311, 70)), sample("float64", (70, 67)), sample("float64", (90, 70))
    a, b, c = batch.input(x), batch.input(y), batch.input(z)
    batch.add("columns", pt.sum(a, axis=0), x.sum(0))
    batch.add("rows", pt.sum(a, axis=1), x.sum(1))
    batch.add("both", pt.sum(a), x.sum())
    batch.add("product", c @ b, z @ y)
    batch.add("roll", pt.roll(a, 1, 1) - pt.roll(a, -2, 0), np.roll(x, 1, 1) - np.roll(x, -2, 0))
    batch.check(tmp_path / "long.h5", 1, target)


def test_large_arrays_have_indices_of_64_bits(tmp_path: Path) -> None:
    x = placeholder("x", (65536, 65536), "int8")
    outputs = {"columns": pt.sum(x, axis=0), "rows": pt.sum(x, axis=1), "all": pt.sum(x)}
    path = aotato.build(outputs, path=tmp_path / "x.h5", targets="gpu")
    rows = kernels(path, "gpu")
    with Bundle.open(path) as bundle:
        wide = ["(long) get_group_id" in bundle.kernel(row["digest"]) for row in rows]
    assert wide == [row["bytes_read"] >= 2**31 for row in rows]
    assert any(wide) and not all(wide)


def test_launches_and_bytes_of_staged_sums(tmp_path: Path) -> None:
    x = placeholder("x", (10_000, 10_000), "float64")
    path = aotato.build({"out": pt.sum(x, axis=0)}, path=tmp_path / "x.h5", targets="gpu")
    first, second = kernels(path, "gpu")
    assert first["bytes_read"] == x.size * 8
    assert second["bytes_read"] == first["bytes_written"] < 1e-2 * first["bytes_read"]
    assert second["bytes_written"] == 80_000
    path = aotato.build({"out": pt.sum(x, axis=1)}, path=tmp_path / "y.h5", targets="gpu")
    (only,) = kernels(path, "gpu")
    assert (only["bytes_read"], only["bytes_written"], only["flops"]) == (x.size * 8, 80_000, x.size)


BUILD = """
import sys, aotato, pytato as pt
x = pt.make_placeholder(name="x", shape=(300, 250), dtype="float64")
y = pt.make_placeholder(name="y", shape=(250, 301), dtype="float64")
aotato.build({"rows": pt.sum(x, axis=1), "columns": pt.amax(y, axis=0), "product": x @ y}, path=sys.argv[1])
"""


def test_hash_seeds_leave_no_trace(tmp_path: Path) -> None:
    bundles = []
    for seed in ("1", "2"):
        command = [sys.executable, "-W", "ignore", "-c", BUILD, str(tmp_path / f"{seed}.h5")]
        subprocess.run(command, env={**os.environ, "PYTHONHASHSEED": seed}, check=True)
        bundles.append((tmp_path / f"{seed}.h5").read_bytes())
    assert bundles[0] == bundles[1]


def test_index_sums() -> None:
    i, j = prim.Variable("_0"), prim.Variable("_1")
    assert linear.linear(prim.Sum((i, prim.Product((2, i)), 3, -3))) == {i: 3}
    flat = prim.Sum((prim.Product((5, i)), j))
    quotient, rest = prim.FloorDiv(flat, 7), prim.Remainder(flat, 7)
    assert linear.place((7, 1), (quotient, rest)) == {i: 5, j: 1}
    assert linear.place((8, 1), (quotient, rest)) == {quotient: 8, rest: 1}
    assert linear.steps((4, 7), (i, prim.Remainder(prim.Sum((j, 1)), 7))) == {"_0": 7, "_1": 1}


def test_a_target_without_lockstep_keeps_reductions_to_itself(tmp_path: Path) -> None:
    x = placeholder("x", (5000, 300), "float64")
    path = aotato.build({"rows": pt.sum(x, axis=1), "columns": pt.sum(x, axis=0)}, path=tmp_path / "x.h5")
    assert all(row["local_bytes"] == 0 for row in kernels(path, "cpu"))
    assert any(row["local_bytes"] > 0 for row in kernels(path, "gpu"))


