"""Programs that try to break the kernels: sizes at boundaries, levels, guarded reads, one array in many roles.

A function `f(m, ...)` of arrays runs with `m` pytato and with `m` numpy, which gives the known answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytato as pt

import aotato
from patterns import Array, given, recv, send

ALONE: dict[str, tuple[Callable[..., dict[str, Any]], dict[str, Array]]] = {}
TOGETHER: dict[str, tuple[Callable[[int, int], Any], int]] = {}

SIZES = (1, 63, 64, 65, 127, 128, 129, 255, 256, 257, 4095, 4096, 4097, 8193)


def numbers(*shape: int, dtype: str = "float64", seed: int = 0) -> Array:
    rng = np.random.default_rng((seed, *shape))
    if np.dtype(dtype).kind in "iu":
        return rng.integers(1, 100, shape).astype(dtype)
    found = rng.random(shape) - 0.5
    return (found + 1j * rng.random(shape) if np.dtype(dtype).kind == "c" else found).astype(dtype)


def alone(**inputs: Array) -> Callable[[Callable[..., dict[str, Any]]], Callable[..., dict[str, Any]]]:
    """A program of one rank whose inputs have these defaults."""

    def register(function: Callable[..., dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        ALONE[function.__name__] = function, inputs
        return function

    return register


def together(ranks: int) -> Callable[[Callable[[int, int], Any]], Callable[[int, int], Any]]:
    """A program whose meaning only the interpreter knows."""

    def register(function: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
        TOGETHER[function.__name__] = function, ranks
        return function

    return register


# Reductions


@alone(**{f"x{n}": numbers(n) for n in SIZES})
def sums_of_many_sizes_in_one_kernel(m: Any, **x: Any) -> dict[str, Any]:
    return {f"sum{n}": m.sum(x[f"x{n}"]) for n in SIZES}


@alone(**{f"x{n}": numbers(n) for n in (1, 64, 65, 129, 257, 4097)})
def every_element_reads_a_sum_of_all(m: Any, **x: Any) -> dict[str, Any]:
    return {name: array * array - m.sum(array) for name, array in x.items()}


@alone(**{f"x{n}": numbers(3, n) for n in (1, 64, 65, 255, 256, 300)}, tall=numbers(600, 129), thin=numbers(300, 1))
def sums_along_each_axis(m: Any, **x: Any) -> dict[str, Any]:
    rows = {f"{name}_rows": m.sum(array, axis=1) for name, array in x.items()}
    return rows | {f"{name}_columns": m.sum(array, axis=0) for name, array in x.items()}


@alone(x=numbers(2, 70, 3), y=numbers(1, 1), z=numbers(4, 8, 16))
def sums_over_several_axes(m: Any, x: Any, y: Any, z: Any) -> dict[str, Any]:
    return {
        "all": m.sum(x), "outer": m.sum(x, axis=(0, 2)), "last": m.sum(m.sum(x, axis=2), axis=1), "one": m.sum(y),
        "grouped": m.sum(z, axis=(0, 1, 2)), "pair": m.sum(z, axis=(1, 2)) * 2, "middle": m.sum(z, axis=1),
    }


@alone(x=numbers(300), k=numbers(300, dtype="int32"), s=numbers(129, dtype="float32"))
def extremes_and_products(m: Any, x: Any, k: Any, s: Any) -> dict[str, Any]:
    return {
        "max": m.amax(x), "min": m.amin(x), "imax": m.amax(k), "imin": m.amin(k), "smax": m.amax(-1 * s * s),
        "product": m.prod(1 + x / 100), "range": m.amax(x) - m.amin(x) + m.sum(x),
    }


@alone(x=numbers(0), y=numbers(3, 0), z=numbers(0, 4, dtype="int64"))
def reductions_of_nothing(m: Any, x: Any, y: Any, z: Any) -> dict[str, Any]:
    return {"sum": m.sum(x), "product": m.prod(x) + 1, "rows": m.sum(y, axis=1), "columns": m.sum(y, axis=0),
            "int": m.sum(z, axis=0) + 2, "same": y + y}


@alone(a=numbers(70, 65), b=numbers(65, 9), v=numbers(9))
def reductions_of_reductions(m: Any, a: Any, b: Any, v: Any) -> dict[str, Any]:
    w = m.einsum("ij,j->i", b, v)
    return {
        "vector": m.einsum("ij,j->i", a, 2 * w), "matrix": m.einsum("ij,jk->ik", a, b),
        "inner": m.sum(a * m.sum(b * v, axis=1), axis=1), "rest": m.sum(a - m.sum(a)),
    }


@alone(x=numbers(300), y=numbers(4097), z=numbers(4096))
def more_results_than_groups(m: Any, x: Any, y: Any, z: Any) -> dict[str, Any]:
    return {"items": m.einsum("j,i->i", x, y), "groups": m.einsum("j,i->i", x, z)}


# Levels


@alone(x=numbers(257), y=numbers(5))
def a_tower_of_reductions(m: Any, x: Any, y: Any) -> dict[str, Any]:
    out = {}
    for floor in range(5):
        x, y = x - m.sum(x) / 257, y * (1 + m.amax(x))
        out |= {f"x{floor}": x, f"y{floor}": y}
        x = x * x
    return out


@alone(a=numbers(130, 130), x=numbers(130))
def one_reduction_read_in_many_ways(m: Any, a: Any, x: Any) -> dict[str, Any]:
    r = m.einsum("ij,j->i", a, x)
    twice = 2 * r
    return {"r": r, "twice": twice, "rolled": m.roll(twice, 3) + r, "again": m.einsum("ij,j->i", a, twice),
            "outer": m.reshape(r, (130, 1)) * a, "square": r * r + x, "sum": m.sum(twice)}


@alone(x=numbers(65))
def doubling_at_own_index(m: Any, x: Any) -> dict[str, Any]:
    for _ in range(40):
        x = x * x / 2 + x / 2 + 0.1
    return {"out": x}


@alone(x=numbers(129))
def doubling_at_other_indices(m: Any, x: Any) -> dict[str, Any]:
    for shift in range(12):
        x = x + m.roll(x, shift + 1) / 2
    return {"out": x, "sum": m.sum(x)}


@alone(x=numbers(7))
def a_long_chain(m: Any, x: Any) -> dict[str, Any]:
    for number in range(200):
        x = x / 2 + number
    return {"out": x}


@alone(x=numbers(6, 128), y=numbers(129), s=numbers())
def outputs_of_many_shapes_that_read_each_other(m: Any, x: Any, y: Any, s: Any) -> dict[str, Any]:
    a, b = x * s, y + s
    c = m.sum(a, axis=1)
    return {"a": a, "b": b, "c": c, "d": c * 2, "e": a + m.reshape(c, (6, 1)), "f": b * m.sum(b), "g": s * s,
            "h": m.roll(b, 1) * b, "i": m.sum(a * a)}


# Guarded and gathered reads


@alone(x=numbers(5), y=numbers(200), z=numbers(1))
def concatenation(m: Any, x: Any, y: Any, z: Any) -> dict[str, Any]:
    whole = m.concatenate([x, y, z, 2 * x])
    return {"whole": whole, "sum": m.sum(whole * whole), "rolled": m.roll(whole, 7),
            "nested": m.concatenate([whole, m.concatenate([z + m.sum(y), whole])])}


@alone(x=numbers(4, 3), y=numbers(4, 3))
def stacking_slicing_reshaping(m: Any, x: Any, y: Any) -> dict[str, Any]:
    both = m.stack([x, y + 1, x])
    return {"both": both, "last": m.sum(m.stack([x, y], axis=2), axis=2), "flat": m.reshape(both, (36,)),
            "part": both[1, 1:3] * 2, "corner": both[2, 0, 2] + 0.5, "turned": m.transpose(x) @ y,
            "one": m.reshape(m.sum(x), (1, 1)) * 3, "cut": m.sum(m.reshape(both, (6, 6)), axis=0)}


@alone(x=numbers(100), k=(numbers(70, dtype="int64") * 7 % 100), pick=np.arange(100) % 3 == 0)
def gathers(m: Any, x: Any, k: Any, pick: Any) -> dict[str, Any]:
    def take(a: Any, index: Any) -> Any:
        return aotato.take(a, index) if m is pt else np.take(a, index)

    constant = np.array([5, 0, 69, 5, 42])
    c = m.where(pick, x, 0 * x)
    return {"run": take(x, k), "computed": take(x * x, 99 - k), "end": take(x, np.array([-1, -100])),
            "constant": take(c, constant), "nested": take(take(x + 1, k), constant), "sum": m.sum(take(x, k)),
            "of_sum": take(x - m.sum(x), constant), "scalar": take(x, np.array(17)) + 1}


# Dtypes


@alone(
    i1=np.arange(-60, 60, 7, dtype="int8"), u1=np.arange(1, 250, 14, dtype="uint8"),
    f2=np.linspace(-2, 2, 18).astype("float16"), f4=numbers(18, dtype="float32"),
    c8=numbers(18, dtype="complex64"), i8=np.arange(-9, 9), u8=np.arange(18, dtype="uint64"),
)
def arithmetic_of_narrow_and_mixed_dtypes(m: Any, **x: Any) -> dict[str, Any]:
    i1, u1, f2, f4, c8, i8, u8 = (x[name] for name in ("i1", "u1", "f2", "f4", "c8", "i8", "u8"))
    return {"i1": i1 + i1, "u1": u1 * u1, "f2": f2 * f2 + f2, "f4": f2 + f4, "c8": c8 * f4 + c8, "mixed": i8 + i1,
            "u8": u8 + u8, "less": m.less(f4, f2), "abs": m.abs(c8), "f2max": m.amax(f2),
            "conj": m.conj(c8) * c8, "parts": m.real(c8) - m.imag(c8), "wide": f4 + i8, "power": i8**2, "int": i1 * i8}


# One array in many roles, over ranks


def _mine(rank: int, n: int = 129) -> Any:
    return given("x", numbers(n, seed=rank))


@together(3)
def stored_sent_and_read_again(rank: int, size: int) -> Any:
    """A reduction is an output, is sent twice in different batches, and is read in three parts."""
    x = _mine(rank)
    left, right = (rank - 1) % size, (rank + 1) % size
    centred = x - pt.sum(x)
    first = send(centred, right, "first", recv(left, "first", 129) * centred)
    second = send(centred, left, "second", send(first, right, "more", recv(right, "second", 129) + first))
    third = send(recv(left, "more", 129), right, "third", pt.roll(recv(left, "third", 129), 1) + second * centred)
    return {"centred": centred, "first": first, "third": third, "again": centred}


@together(3)
def kernels_that_differ_deep_down(rank: int, size: int) -> Any:
    """Ranks share kernels of equal text: here only the innermost number tells them apart."""
    x = _mine(rank, 3) + (rank + 1)
    for number in range(30):
        x = x / 2 + number
    return {"out": x, "sum": pt.sum(x)}


@together(2)
def elementwise_sent_early_and_stored_late(rank: int, size: int) -> Any:
    x = _mine(rank, 65)
    twice = 2 * x
    back = send(twice, 1 - rank, 0, recv(1 - rank, 0, 65))
    late = send(back * twice, 1 - rank, 1, recv(1 - rank, 1, 65))
    return {"twice": twice + late, "same": send(twice, 1 - rank, 2, twice), "got": recv(1 - rank, 2, 65)}


@together(3)
def reductions_of_everything(rank: int, size: int) -> Any:
    """Inputs, constants, received arrays, sums, reduced values, and duplicates of each are reduced over ranks."""
    x, s = _mine(rank, 5), given("s", np.array(1.5 * rank))
    got = recv((rank - 1) % size, "x", 5)
    constant = pt.make_data_wrapper(np.arange(5.0) * rank)
    total = aotato.allreduce(s)
    out = {
        "input": aotato.allreduce(x), "again": aotato.allreduce(x), "max": aotato.allreduce(x, "max"),
        "constant": aotato.allreduce(constant), "scalar": total, "of_reduced": aotato.allreduce(total * s),
        "reduced_itself": aotato.allreduce(total), "computed": aotato.allreduce(x * s + total),
        "integer": aotato.allreduce(pt.make_data_wrapper(np.array([rank, 7], "int32")), "min"),
        "single": aotato.allreduce(given("f", np.array([rank / 3], "float32"))),
        "complex": aotato.allreduce(x * 1j), "empty": aotato.allreduce(given("e", np.zeros((0, 2)))),
        "half": aotato.allreduce(given("h", np.array([rank + 0.5], "float16"))),
        "byte": aotato.allreduce(given("b", np.array([rank + 1], "uint8")), "max"),
    }
    out["received"] = aotato.allreduce(send(x, (rank + 1) % size, "x", got))
    return out


@together(4)
def numbers_in_every_role(rank: int, size: int) -> Any:
    """0-dimensional inputs are passed by value: read, sent, forwarded, reduced, returned, and stored."""
    left, right = (rank - 1) % size, (rank + 1) % size
    dt, n = given("dt", np.array(0.1 + rank)), given("n", np.array(rank, "int32"))
    h, z = given("h", np.array(2, "float16")), given("z", np.array(1 + 2j * rank, "complex64"))
    flag = given("flag", np.array(rank % 2 == 0))
    x = _mine(rank, 64)
    out: dict[str, Any] = {"dt": dt, "twice": dt * 2, "n": n + n, "h": h * h, "flag": flag, "z": z * z}
    for name, number in (("dt", dt), ("n", n), ("h", h), ("flag", flag), ("z", z)):
        got = recv(left, name, (), number.dtype)
        out[f"got_{name}"] = send(number, right, name, got)
        out[f"far_{name}"] = send(got, right, ("far", name), recv(left, ("far", name), (), number.dtype))
    out["x"] = pt.where(out["got_flag"], x * out["got_dt"], x + out["far_n"]) * aotato.allreduce(dt, "max")
    return out


@together(2)
def many_messages_of_odd_sizes(rank: int, size: int) -> Any:
    """Parcels of 1 to 17 elements of narrow dtypes: every one starts at a multiple of 16 bytes."""
    out: dict[str, Any] = {}
    for n in (1, 3, 15, 16, 17):
        for dtype in ("int8", "bool", "float16", "int32", "complex128"):
            mine = given(f"{dtype}{n}", (np.arange(n) % 2 + rank).astype(dtype))
            made = mine if dtype == "bool" else mine + mine
            out[f"{dtype}{n}"] = send(made, 1 - rank, (dtype, n), recv(1 - rank, (dtype, n), n, dtype))
    out["all"] = pt.concatenate([out[f"int8{n}"] for n in (1, 3, 15)])
    return out


@together(3)
def sums_of_what_arrives(rank: int, size: int) -> Any:
    """Ghost values: concatenated to one's own, gathered, summed in groups, and sent on as sums."""
    x = _mine(rank, 300)
    left, right = (rank - 1) % size, (rank + 1) % size
    ghost = pt.concatenate([recv(left, "right end", 2), x, recv(right, "left end", 2)])
    ghost = send(x[:2], left, "left end", send(x[298:], right, "right end", ghost))
    stencil = ghost[:300] + ghost[4:] - 2 * ghost[2:302]
    total = pt.sum(stencil * stencil)
    everyone = send(total, right, "total", recv(left, "total", ()))
    return {"stencil": stencil, "total": total, "left": everyone * x, "norm": aotato.allreduce(total)}
