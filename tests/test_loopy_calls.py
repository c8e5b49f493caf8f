"""Loopy kernels called inside a DAG: on the device, in the interpreter and in numpy."""

from __future__ import annotations

from pathlib import Path

import loopy as lp
import numpy as np
import pytato as pt
import pytest
from pytato.loopy import call_loopy

import aotato
from aotato.emit.target import TargetError
from aotato.frontend import interpret, opaque_run
from aotato.frontend.adapter import compat
from aotato.frontend.adapter.errors import TraceError
from aotato.frontend.adapter.trace import trace
from aotato.frontend.app import AppError
from aotato.frontend.opaque_run import CALL_EPS
from aotato.frontend.text import dumps, parse
from aotato.frontend.values import Value
from aotato.runtime_stub.format import Bundle
from mpi import mpiexec
from nodes import Batch, placeholder, sample

RUNNER = Path(__file__).with_name("run_bundles.py")
GLOBAL = lp.AddressSpace.GLOBAL


def kernel(domain, body, arguments=None, name="callee"):
    more = {} if arguments is None else {"kernel_data": arguments}
    return lp.make_kernel(domain, body, name=name, lang_version=(2018, 2), **more)


def array(name, *shape, dtype=None, **more):
    return lp.GlobalArg(name, dtype, shape=shape, **more)


def mirrored(n=64):
    """y is the reverse of 2 x, times alpha plus shift, by way of global memory; z is x + 1."""
    k = kernel(
        "{[i, j]: 0 <= i, j < n}",
        """
        tmp[i] = 2*x[i] {id=first}
        ... gbarrier {id=between, dep=first}
        y[j] = tmp[n - 1 - j]*alpha + shift {dep=between}
        z[j] = x[j] + 1 {dep=between}
        """,
        [
            *(array(name, "n") for name in "xyz"),
            lp.ValueArg("alpha", np.float32),
            lp.ValueArg("shift", np.float32),
            lp.ValueArg("n", np.int32),
            lp.TemporaryVariable("tmp", None, shape=("n",), address_space=GLOBAL),
        ],
        "mirrored",
    )
    k = lp.fix_parameters(k, n=n)
    for iname in "ij":
        k = lp.split_iname(k, iname, 16, outer_tag="g.0", inner_tag="l.0")
    return k


def test_global_barriers_and_several_results(tmp_path):
    batch, x, alpha = Batch(), sample("float32", (64,)), np.float32(1.5)
    p, a = batch.input(x), batch.input(alpha)
    call = call_loopy(mirrored(), {"x": p, "alpha": a, "shift": np.float32(3)})
    batch.add("y", call["y"], 2 * x[::-1] * alpha + 3)
    batch.add("z", call["z"] * 2, 2 * (x + 1))
    # The same kernel again, of computed operands, one of its results unused
    again = call_loopy(mirrored(), {"x": pt.sin(p), "alpha": 2 * a, "shift": pt.sum(p)})
    total = x.sum(dtype="float64")
    batch.add("again", again["y"] + 1, 4 * np.sin(x[::-1]) * alpha + total + 1)
    batch.check(tmp_path / "x.h5", 1)
    launches = _launches(tmp_path / "x.h5")
    assert sum(name.endswith("mirrored") for name in launches) == 4  # two calls of two pieces


def _launches(path):
    with Bundle.open(path) as bundle:
        return [launch.name for launch in bundle.schedule("step", "cpu", 0).launches]


def test_local_memory_functions_and_layouts(tmp_path):
    batch, x, m = Batch(), sample("float64", (48,)), sample("float64", (5, 7))
    p, q = batch.input(x), batch.input(m)
    turned = kernel(
        "{[g, l, m]: 0 <= g < 3 and 0 <= l, m < 16}",
        "tile[l] = x[16*g + l] {id=a}\nout[16*g + m] = tile[15 - m] {dep=a}",
        [array("x", 48), array("out", 48),
         lp.TemporaryVariable("tile", None, shape=(16,), address_space=lp.AddressSpace.LOCAL)],
    )
    turned = lp.tag_inames(turned, {"g": "g.0", "l": "l.0", "m": "l.0"})
    batch.add("turned in tiles", call_loopy(turned, {"x": p})["out"], x.reshape(3, 16)[:, ::-1].ravel())
    outer = kernel("{[i, j]: 0 <= i < 5 and 0 <= j < 7}", "out[i, j] = sin(m[i, j])*i - j",
                   [array("m", 5, 7, order="F"), array("out", 5, 7, order="F")])
    expected = np.sin(m) * np.arange(5)[:, np.newaxis] - np.arange(7)
    batch.add("F", call_loopy(outer, {"m": q})["out"], expected)
    batch.check(tmp_path / "x.h5", 1)


@pytest.mark.skipif(not compat.HAS_LOWERING, reason="pytato 2021.2 takes units with one kernel only")
def test_a_kernel_that_calls_a_function(tmp_path):
    batch, m = Batch(), sample("float64", (5, 7))
    q = batch.input(m)
    inner = lp.make_function("{[k]: 0 <= k < 7}", "b[k] = 3*a[k]", [array("a", 7), array("b", 7)], name="thrice",
                             lang_version=(2018, 2))
    rows = kernel("{[i, j0, j1]: 0 <= i < 5 and 0 <= j0, j1 < 7}", "[j0]: out[i, j0] = thrice([j1]: m[i, j1])",
                  [array("m", 5, 7, dtype="float64"), array("out", 5, 7, is_input=False)])
    batch.add("of functions", call_loopy(lp.merge([rows, inner]), {"m": q}, "callee")["out"], 3 * m)
    batch.check(tmp_path / "x.h5", 1)


@pytest.mark.parametrize("dtype", ["int8", "uint64", "float32", "complex64", "complex128"])
def test_dtypes_and_scalars(dtype, tmp_path):
    batch, x = Batch(), sample(dtype, (3, 4))
    arguments = [array("x", "n", 4), array("out", "n", 4), array("total"), lp.ValueArg("s", dtype), lp.ValueArg("n")]
    k = kernel("{[i, j]: 0 <= i < n and 0 <= j < 4}", "out[i, j] = x[i, j]*s\ntotal = x[0, 0] + s", arguments)
    scalars = {"number": np.dtype(dtype).type(2), "input": batch.input(np.array(2, dtype))}
    scalars |= {"computed": scalars["input"] * scalars["input"], "constant": pt.make_data_wrapper(np.array(2, dtype))}
    for name, s in scalars.items():
        call = call_loopy(k, {"x": batch.input(x), "s": s, "n": 3})
        value = x.dtype.type(4 if name == "computed" else 2)
        batch.add(name, call["out"], x * value)
        batch.add(f"{name} total", call["total"], x[0, 0] + value)
    batch.check(tmp_path / "x.h5", 1)


def test_operands_are_converted_to_the_declared_dtypes(tmp_path):
    batch, x = Batch(), sample("float32", (4,))
    k = kernel("{[i]: 0 <= i < 4}", "out[i] = x[i]/3", [array("x", 4, dtype="float64"), array("out", 4)])
    if not compat.HAS_LOWERING:
        with pytest.raises(RuntimeError, match="already has a different dtype"):  # from pytato 2021.2
            call_loopy(k, {"x": batch.input(x)})
        return
    batch.add("out", call_loopy(k, {"x": batch.input(x)})["out"], x.astype("float64") / 3)
    batch.check(tmp_path / "x.h5", 1)


def test_results_without_elements(tmp_path):
    k = kernel("{[i, j]: 0 <= i < 3 and 0 <= j < 0}", "out[i, j] = 2*x[i, j]", [array("x", 3, 0), array("out", 3, 0)])
    batch = Batch()
    batch.add("out", call_loopy(k, {"x": batch.input(np.zeros((3, 0)))})["out"], np.zeros((3, 0)))
    batch.check(tmp_path / "x.h5")
    assert not _launches(tmp_path / "x.h5")


def relay(rank, size):
    """What arrives goes through a kernel, whose results leave again, are reduced and returned."""
    x = aotato.array_input("x", (64,), "float32", default=np.arange(64) + 100 * rank)
    other = aotato.make_distributed_recv(1 - rank, "x", (64,), "float32")
    biggest = aotato.allreduce(pt.amax(x), "max")
    call = call_loopy(mirrored(), {"x": other, "alpha": biggest, "shift": np.float32(rank)})
    back = aotato.make_distributed_recv(1 - rank, "y", (64,), "float32")
    out = aotato.staple_distributed_send(x, 1 - rank, "x", stapled_to=back - call["z"])
    out = aotato.staple_distributed_send(call["y"], 1 - rank, "y", stapled_to=out)
    second = call_loopy(mirrored(), {"x": back, "alpha": np.float32(1), "shift": pt.sum(call["z"])})
    return {"out": out, "sum": aotato.allreduce(call["z"]), "z": call["z"], "second": second["y"]}


def test_between_ranks(tmp_path):
    aotato.build(relay, ranks=2, path=tmp_path / "relay.h5")
    for target in ("cpu", "gpu"):
        done = mpiexec(2, [RUNNER, tmp_path, target])
        assert done.stdout == "passed relay.h5\n", done.stdout + done.stderr


def test_the_meaning_between_ranks():
    x = [np.arange(64, dtype="float32") + 100 * rank for rank in range(2)]
    programs = trace("step", 2, lambda rank: relay(rank, 2)).programs
    found = interpret.run(programs, [{"x": mine} for mine in x])
    for rank in range(2):
        y = [2 * x[1 - r][::-1] * np.float32(163) + r for r in range(2)]
        interpret.assert_agrees("out", found[rank]["out"], y[1 - rank] - (x[1 - rank] + 1))
        interpret.assert_agrees("sum", found[rank]["sum"], x[0] + x[1] + 2)


@pytest.mark.skipif(not hasattr(pt, "trace_call"), reason="needs pytato main")
def test_inside_a_traced_function(tmp_path):
    batch, x = Batch(), sample("float32", (64,))
    p = batch.input(x)
    one = np.float32(1)

    def function(u):
        return call_loopy(mirrored(), {"x": u, "alpha": one, "shift": one})["y"]

    batch.add("y", pt.trace_call(function, 2 * p), 4 * x[::-1] + 1)
    batch.check(tmp_path / "x.h5", 1)


def _doubled(shape=(3,), **more):
    return kernel("{[i]: 0 <= i < 3}", "out[i] = 2*x[i]", [array("x", *shape, **more), array("out", 3)])


def _sized():
    k = kernel("{[i]: 0 <= i < n}", "out[i] = 2*x[i]", [array("x", 3), array("out", 3), lp.ValueArg("n", np.int32)])
    return call_loopy(k, {"x": placeholder("x", (3,), "float64"), "n": placeholder("n", (), "int32")})["out"]


def _looping():
    k = kernel(
        "{[t, i, j]: 0 <= t < 5 and 0 <= i, j < 3}",
        """
        for t
            out[i] = x[i] + t {id=first}
            ... gbarrier {id=between, dep=first}
            other[j] = out[2 - j] {dep=between}
            ... gbarrier {dep=between}
        end
        """,
        [array("x", 3), array("out", 3, is_input=False), array("other", 3, is_input=False)],
    )
    k = lp.tag_inames(k, {"i": "g.0", "j": "g.0"})
    return call_loopy(k, {"x": placeholder("x", (3,), "float64")})["other"]


def _hungry():
    temporary = lp.TemporaryVariable("big", np.float64, shape=(10000,), address_space=lp.AddressSpace.LOCAL)
    body = "big[i] = x[0] {id=a}\nout[j] = big[9999 - j] {dep=a}"
    arguments = [array("x", 3), array("out", 3, is_input=False), temporary]
    k = kernel("{[i, j]: 0 <= i < 10000 and 0 <= j < 3}", body, arguments)
    k = lp.tag_inames(lp.split_iname(k, "i", 16, inner_tag="l.0"), {"j": "l.0"})
    return call_loopy(k, {"x": placeholder("x", (3,), "float64")})["out"]


def _of(shape, dtype, **more):
    return call_loopy(_doubled(**more), {"x": placeholder("x", shape, dtype)})["out"]


REFUSED = {
    "a size that is an array": (_sized, TraceError, "LoopyCallResult: argument 'n' .* give it a number"),
    "halves": (lambda: _of((3,), "float16"), TraceError, "argument 'x' of loopy kernel 'callee' has dtype"),
    "another shape": (lambda: _of((4,), "float64"), TraceError, r"'x' of .* is float64\[3\], .* given float64\[4\]"),
    "a loop around a barrier": (_looping, TargetError, "global barrier inside the loop over 't'"),
    "much local memory": (_hungry, TargetError, "needs 80000 bytes of local memory, but target 'gpu' has [0-9]+"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_refused_by_name(what, tmp_path):
    make, error, sentence = REFUSED[what]
    try:
        made = make()
    except Exception:
        assert compat.HAS_LOWERING and what in ("another shape", "a size that is an array")  # main says so itself
        return
    with pytest.raises(error, match=sentence):
        aotato.build({"out": made}, path=tmp_path / "x.h5")


def test_a_kernel_that_loopy_cannot_run_is_refused(tmp_path, monkeypatch):
    def broken(kernel, arrays):
        raise opaque_run.CallError("loopy kernel 'callee' does not run: Why: because")

    monkeypatch.setattr(opaque_run, "run", broken)
    with pytest.raises(AppError, match="entry 'step', rank 0, array 'v1': loopy kernel 'callee' does not run"):
        aotato.build({"out": _of((3,), "float64")}, path=tmp_path / "x.h5")


def test_without_a_device_the_bundle_has_no_self_test(tmp_path, monkeypatch):
    import pyopencl as cl

    said = []
    opaque_run._device.cache_clear()
    monkeypatch.setattr(cl, "get_platforms", lambda: [])
    aotato.build({"out": _of((3,), "float64")}, path=tmp_path / "x.h5", progress=said.append)
    assert any("the bundle has no self-test" in line for line in said)
    opaque_run._device.cache_clear()


def test_the_bound_follows_the_operands():
    shape = (64,)
    x = Value(sample("float32", shape), np.full(shape, 1e-3))
    one = Value(np.array(1, "float32"), np.zeros(()))
    programs = trace("step", 1, lambda rank: call_loopy(mirrored(), {"x": placeholder("x", shape, "float32"),
                                                                     "alpha": np.float32(1), "shift": np.float32(1)}))
    (opaque,) = programs.programs.ranks[0].kernels.values()
    exact = opaque_run.call(opaque, [Value(x.value, np.zeros(shape)), one, one])["y"]
    assert np.allclose(exact.bound, CALL_EPS * np.finfo("float32").eps * np.abs(exact.value).max())
    moved = opaque_run.call(opaque, [x, one, one])["y"].bound
    assert (moved >= 2e-3).all() and (moved < 0.1).all()
    unknown = opaque_run.call(opaque, [Value(x.value, np.full(shape, np.inf)), one, one])["y"]
    assert np.isinf(unknown.bound).all()


def test_text():
    program = trace("step", 1, lambda rank: {"out": _of((3,), "float64")}).programs.ranks[0]
    (digest,) = program.kernels
    assert f"v1 = call float64[3] out of {digest} (v0)" in dumps(program)
    assert parse(dumps(program), {}, program.kernels) == program
    with pytest.raises(ValueError, match="'v1' calls kernel"):
        parse(dumps(program), {})
