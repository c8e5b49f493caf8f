"""Every node and function of pytato, on the device, in the interpreter and in numpy."""

from __future__ import annotations

import os
import sys

import h5py
import numpy as np
import pymbolic.primitives as prim
import pytato as pt
import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

import aotato
import nodes_table
from aotato.emit.build import assemble
from aotato.emit.stages import staged
from aotato.emit.target import chosen
from aotato.frontend.adapter import compat
from aotato.frontend.adapter.trace import TraceError, trace
from aotato.runtime_stub.format import Bundle
from nodes import DTYPES, HEAD, Batch, pairs, placeholder, sample, specials
from nodes_cases import GROUPS, index_lambda

KNOWN = 0.75  # the share of elements whose bound is finite, though the numbers are chosen to be difficult
ALL = [(group, dtype) for group, (_, dtypes) in GROUPS.items() for dtype in dtypes]
# A third of them, every dtype in two groups; all with AOTATO_ALL_NODES=1
SOME = ALL if os.environ.get("AOTATO_ALL_NODES") else [case for n, case in enumerate(ALL) if (n + n // 14) % 4 == 0]

COMPUTED = (
    *(("unary", "complex64"), ("binary", "int8"), ("reductions", "float32"), ("products", "float64")),
    *(("shapes", "bool"), ("lambdas", "float16"), ("calls", "uint32")),
)


@pytest.fixture(autouse=True)
def deep_expressions():
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(20000)
    yield
    sys.setrecursionlimit(before)


@pytest.mark.parametrize(("group", "dtype"), SOME)
def test_node(group, dtype, tmp_path):
    GROUPS[group][0](dtype).check(tmp_path / "nodes.h5", KNOWN)


@pytest.mark.parametrize(("group", "dtype"), ALL if SOME is ALL else COMPUTED)
@pytest.mark.parametrize("fuse", [True, False], ids=["fused", "apart"])
def test_node_of_computed_arrays(group, dtype, fuse, tmp_path, monkeypatch):
    """Inlined into the node's kernel, or stored by a kernel before it."""
    monkeypatch.setattr(Batch, "computed", True)
    cases = GROUPS[group][0](dtype)
    if not fuse and SOME is not ALL:  # every output has kernels to compile: some must do
        cases.outputs = dict(list(cases.outputs.items())[::9])
    cases.check(tmp_path / "nodes.h5", KNOWN, fuse=fuse)


SHAPES = st.lists(st.sampled_from((0, 1, 1, 2, 3, 5)), max_size=3).map(tuple)


@st.composite
def arrays(draw, shape, dtype):
    """A numpy array of any memory order: strided, reversed, read-only, of the other byte order."""
    big = tuple(2 * extent + 1 for extent in shape)
    array = np.asarray(sample(dtype, big, seed=draw(st.integers(0, 3))), order=draw(st.sampled_from("CF")))
    steps = [draw(st.sampled_from((1, 2, -1))) for _ in shape]
    array = array[tuple(slice(None, None, step) for step in steps)][tuple(slice(0, extent) for extent in shape)]
    if draw(st.booleans()):
        array = np.asarray(array.astype(array.dtype.newbyteorder(">")), order=draw(st.sampled_from("CF")))
    array.setflags(write=draw(st.booleans()))
    return array


@st.composite
def batches(draw):
    """Twelve sums of broadcast arrays, inputs and constants alike."""
    batch = Batch()
    for number in range(12):
        shape, dtypes = draw(SHAPES), draw(st.lists(st.sampled_from(DTYPES), min_size=2, max_size=2))
        few = tuple(draw(st.sampled_from((1, extent))) for extent in shape)[draw(st.integers(0, len(shape))) :]
        x, y = draw(arrays(shape, dtypes[0])), draw(arrays(few, dtypes[1]))
        p, q = batch.input(x), batch.input(y) if draw(st.booleans()) else pt.make_data_wrapper(y)
        batch.add(f"sum {number}", p + q, x + y)
        batch.add(f"moved {number}", pt.transpose(p + q), (x + y).T)
        if x.dtype.kind in "fc":
            batch.add(f"total {number}", pt.sum(p * 1), x.sum(dtype=np.promote_types(x.dtype, np.float64)))
    return batch


@settings(
    max_examples=3,
    derandomize=True,
    deadline=None,
    database=None,
    phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)
@given(batches())
def test_shapes_dtypes_and_memory_orders(tmp_path_factory, batch):
    batch.check(tmp_path_factory.mktemp("orders") / "orders.h5", KNOWN)


def test_long_reductions_take_two_stages(tmp_path):
    batch = Batch()
    x, y = sample("float32", (100_003,)), sample("int32", (7, 300, 41))
    flat, deep = batch.input(x), batch.input(y)
    wide = x.astype("float64")
    batch.add("sum", pt.sum(flat), wide.sum())
    batch.add("norm", pt.sqrt(pt.sum(flat * flat)) + 1, np.sqrt((wide * wide).sum()) + 1)
    batch.add("max", pt.amax(flat), x.max())
    batch.add("sums", pt.sum(deep, axis=(1, 2)), y.sum(axis=(1, 2)))
    batch.add("min", pt.amin(deep), y.min())
    batch.add("prod", pt.prod(deep * 0 + 1), 1)
    batch.check(tmp_path / "long.h5", 1)
    partial = [node.shape for rank in staged(batch.traced().programs).ranks for node in rank.arrays.values()]
    assert {(24,), (3, 7), (20,)} <= set(partial)


def test_no_work_group_has_many_terms():
    programs = trace("step", 1, lambda rank: {"out": pt.sum(placeholder("x", (10**4, 10**4), "float64"))}).programs
    program = staged(programs).ranks[0]
    node = program.arrays["v1_0"]
    assert node.shape == (2000,) and node.expr.bounds == (("_r0", 0, 5), ("_r1", 0, 10**4))


WORDS = ("global", "kernel", "int", "float4", "lambda_", "get_local_id", "abs")
NAMES = (*WORDS, "a0", "v0", "_0", "r0", "n0_t0", "l0", "g0")
PATHS = ("out", "a0", "global", "with space", "slash/and.dot", "ünï", "'quoted\"", "-1", "%s{x}\\n", "__class__")


def test_names_of_inputs_and_outputs(tmp_path):
    batch = Batch()
    for number, name in enumerate(NAMES):
        batch.inputs[name] = np.arange(3.0) + number
        array = placeholder(name, (3,), "float64")
        batch.add(name, array * 2, batch.inputs[name] * 2)
    for number, path in enumerate(PATHS):
        if path not in batch.outputs:
            batch.add(path, array + number, batch.inputs[NAMES[-1]] + number)
    batch.check(tmp_path / "names.h5", 1)


def _text(array, path, **more) -> str:
    aotato.build({"out": array}, path=path, targets="cpu", **more)
    with h5py.File(path) as file:
        return "".join(np.asarray(text).tobytes().decode() for text in file["kernels"].values())


def test_indices_have_64_bits_exactly_where_32_would_overflow(tmp_path):
    small = placeholder("x", (1 << 15, 1 << 15), "int8") + 1
    large = placeholder("x", (1 << 16, 1 << 16), "int8") + 1
    assert "(int) get_local_id" in _text(small, tmp_path / "small.h5")
    assert "(long) get_local_id" in _text(large, tmp_path / "large.h5")
    read = pt.sum(placeholder("x", (1 << 16, 1 << 16), "int8")[1:3, 1:3])
    assert "(long) get_local_id" in _text(read, tmp_path / "read.h5")


x_int, x_bool = placeholder("x", (3,), "int32"), placeholder("b", (3,), "bool")
i = prim.Variable("_0")


REFUSED = {
    "an integer to a negative power": (lambda: x_int**-1, "IndexLambda: numpy has no such operation: .* power -1"),
    "bits of a float": (lambda: pt.zeros((3,), "float32") & 1.5, "IndexLambda: numpy has no such operation"),
    "a negated boolean": (lambda: -x_bool, "IndexLambda: .* boolean has no negative"),
    "a difference of booleans": (lambda: x_bool - x_bool, "IndexLambda: .* boolean has no negative"),
    "an unknown function": (
        lambda: index_lambda(prim.Call(prim.Variable("pytato.c99.erf"), (i * 1.0,)), {}, (3,), "float64"),
        "IndexLambda: function 'erf' is not supported",
    ),
    "an unknown dtype": (lambda: placeholder("x", (3,), "longdouble") + 1, "Placeholder: dtype .* is none of"),
    "the maximum of nothing": (lambda: pt.amax(pt.zeros((3, 0)), axis=1), "IndexLambda: .*max over no elements"),
    "a symbolic size": (lambda: placeholder("x", (pt.make_size_param("n"),), "float64") + 1, "size"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_by_name(what, tmp_path):
    make, sentence = REFUSED[what]
    try:
        array = make()
    except (TypeError, ValueError):
        assert compat.HAS_LOWERING  # main refuses some before we do
        return
    with pytest.raises(TraceError, match=sentence):
        aotato.build({"out": array}, path=tmp_path / "x.h5")


def test_batches_notice_a_wrong_value(tmp_path):
    batch = Batch()
    x = batch.input(np.arange(3.0))
    batch.add("wrong", x + 1, np.arange(3.0) + 2)
    with pytest.raises(AssertionError, match="numpy: 'wrong' at"):
        batch.check(tmp_path / "wrong.h5")
    assert HEAD


@pytest.mark.skipif(compat.HAS_LOWERING, reason="written with pytato 2021.2")
def test_the_table_is_what_the_tests_run():
    assert nodes_table.DOCS.read_text() == nodes_table.text(), "run `python tests/nodes_table.py`"


def test_every_public_name_of_both_pytatos_is_in_the_table():
    assert not nodes_table.missing(nodes_table.rows())


def test_integers_of_indices_have_64_bits_and_indices_have_32(tmp_path):
    """Values made of indices are int64, whatever the kernel counts in; divisions of indices need no long ones."""
    i, j, batch, n, m = prim.Variable("_0"), prim.Variable("_1"), Batch(), np.arange(5000), np.arange(50)
    batch.add("cubes", index_lambda(i * i * i, {}, (5000,), "int64"), n**3)
    batch.add("parts", index_lambda((i * i * i) // 7, {}, (5000,), "int64"), n**3 // 7)
    batch.add("squares", index_lambda((i * i) * (j * j), {}, (5000, 50), "int64"), n[:, np.newaxis] ** 2 * m**2)
    few = prim.If(prim.Comparison(i * i * i * i, "<", 10**12), 1, 0)
    batch.add("few", index_lambda(few, {}, (5000,), "int32"), n**4 < 10**12)
    batch.check(tmp_path / "x.h5", 1)
    x, rows = placeholder("x", (60, 70), "float32"), np.array([[0, -1], [3, 5]])
    moved = [pt.roll(x, 3, 1), pt.reshape(x, (35, 120)), aotato.take(x, rows, 1), pt.sum(pt.roll(x, -3, 0), axis=1)]
    for number, array in enumerate(moved):
        assert "long a" not in _text(array, tmp_path / f"{number}.h5")
    rolled = _text(moved[0], tmp_path / "rolled.h5")
    assert "aot_raised_int32" in rolled or "aot_lowered_int32" in rolled  # compared, not divided


def test_doubles_become_halves_in_one_rounding(tmp_path):
    """Numbers beside the middle of two halves, from the smallest to beyond the largest."""
    halves = np.arange(0x7C00, dtype="uint16").view("float16").astype("float64")
    middles = (halves[:-1] + halves[1:])[::7] / 2
    x = np.concatenate([middles * (1 + 2.0**-40), middles, middles * (1 - 2.0**-40), [65519.99, 65520, 1e300, np.inf]])
    x = np.concatenate([x, -x, [np.nan]])
    batch = Batch()
    p = batch.input(x)
    batch.add("halves", index_lambda(prim.Variable("u")[i], {"u": p}, x.shape, "float16"), None)
    traced = batch.traced()
    assemble({"step": traced}, tmp_path / "x.h5", chosen("cpu"), HEAD)
    with aotato.load(tmp_path / "x.h5") as program:
        found = program(**batch.inputs)["halves"]
    with np.errstate(over="ignore"):
        expected, twice = x.astype("float16"), x.astype("float32").astype("float16")
    assert np.array_equal(found, expected, equal_nan=True)
    assert (twice != expected).sum() > 1000


def test_without_fusion_every_array_has_memory_and_a_kernel(tmp_path):
    x = placeholder("x", (6, 5), "float64")
    outputs = {"out": pt.sin(pt.roll(x + 1, 1, 0)), "sums": pt.sum(x * 2, axis=1)}
    for fuse, launches, temporaries in ((True, 2, 0), (False, 5, 3)):
        aotato.build(outputs, path=tmp_path / "x.h5", fuse=fuse, targets="cpu")
        with Bundle.open(tmp_path / "x.h5") as bundle:
            schedule = bundle.schedule("step", "cpu", 0)
            assert bundle.meta["fuse"] is fuse
        assert len(schedule.launches) <= launches if fuse else len(schedule.launches) == launches
        assert sum(buffer.kind == "temporary" for buffer in schedule.buffers) == temporaries


@pytest.mark.parametrize("dtype", ["int8", "uint16", "int32", "int64"])
def test_integers_wrap_around_inside_a_kernel(dtype, tmp_path):
    """C would widen short integers, and may take it that signed ones never overflow."""
    batch, one = Batch(), np.dtype(dtype).type(1)
    x, y = pairs(specials(dtype), specials(dtype))
    p, q = batch.input(x), batch.input(y)
    u, v = prim.Variable("u")[i], prim.Variable("v")[i]
    shifts = {"left": (prim.LeftShift, np.left_shift), "right": (prim.RightShift, np.right_shift)}
    with np.errstate(over="ignore"):
        batch.add("sums", pt.greater(p + q, p), x + y > x)
        batch.add("next", pt.greater(p + one, p), x + one > x)
        batch.add("halves", (p * q - p) * np.float64(0.5), (x * y - x) * np.float64(0.5))
        batch.add("sum", pt.sum(p) * np.float64(1), x.sum(dtype=dtype))
        batch.add("bits", index_lambda(prim.BitwiseNot(u) * 0.5, {"u": p}, x.shape, "float64"), ~x * 0.5)
        for name, (node, function) in shifts.items():
            shifted = index_lambda(node(u, v) * 0.5, {"u": p, "v": q}, x.shape, "float64")
            batch.add(name, shifted, function(x, y) * 0.5)
    batch.check(tmp_path / "x.h5", 1)


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int32", "uint64"])
def test_indices_of_any_integers(dtype, tmp_path):
    """An axis longer than the indices reach, indices computed by wrapping around, and indices from indices."""
    batch, x = Batch(), np.arange(300.0)
    k = np.array([1, 2, 100] if dtype.startswith("u") else [1, 2, -1], dtype)
    p, q, number = batch.input(x), batch.input(k), np.dtype(dtype).type(1 << 7 if dtype == "uint8" else 100)
    batch.add("given", aotato.take(p, q), np.take(x, k))
    batch.add("constant", aotato.take(p, pt.make_data_wrapper(k)), np.take(x, k))
    with np.errstate(over="ignore"):
        batch.add("wrapped", aotato.take(p, q + number), np.take(x, k + number))
        batch.add("computed", aotato.take(p, q * q * 0 + 2), np.take(x, k * k * 0 + 2))
    of_indices = index_lambda(prim.Variable("x")[prim.Variable("u")[prim.Variable("u")[i] % 3] % 300],
                              {"x": p, "u": q}, (3,), "float64")
    batch.add("of indices", of_indices, np.take(x, k[k.astype(int) % 3]))
    batch.check(tmp_path / "x.h5", 1)
