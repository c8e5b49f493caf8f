"""Every pattern of communication as a user writes it, with known answers and costs."""

from __future__ import annotations

import enum
import functools
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytato as pt

import aotato
from patterns import Array, Pattern, X, given, pattern, recv, send, x

PATTERNS: list[Pattern] = []
here = functools.partial(pattern, PATTERNS)


@here(1, [(1, 1, 1), (1, 0, 1)], [{"x": X[0]}, {"out": 2 * X[0]}])
def an_input_sent_as_it_is(rank: int, size: int) -> Any:
    if rank == 0:
        return {"x": send(x(0), 1, "x", x(0))}
    return {"out": 2 * recv(0, "x")}


@here(2, [(1, 1, 1), (1, 1, 1)], [{"doubled": np.full(10, 4.0)}, {"out": np.full(10, 4.0)}])
def a_received_array_as_output(rank: int, size: int) -> Any:
    if rank == 0:
        doubled = 2 * recv(1, "there", 10)
        return {"doubled": send(doubled, 1, "back", doubled)}
    return {"out": send(2 * pt.ones(10), 0, "there", recv(0, "back", 10))}


@here(2, [(1, 1, 1), (1, 1, 1)], [{"out": 2 * X[0]}, {"there": 2 * X[0]}])
def a_received_array_forwarded_unchanged(rank: int, size: int) -> Any:
    if rank == 0:
        return {"out": send(2 * x(0), 1, "there", recv(1, "back"))}
    there = recv(0, "there")
    return {"there": send(there, 0, "back", there)}


@here(0, [(1, 0, 1), (1, 0, 0)], [{"out": 3 * X[0], "same": 2 * X[0], "x": X[0]}, {"x": X[1]}])
def a_self_send(rank: int, size: int) -> Any:
    if rank == 1:
        return {"x": send(x(1), 1, "input", recv(1, "input"))}
    once = recv(0, "once")
    out = send(2 * x(0), 0, "once", once + x(0))
    return {"out": out, "same": recv(0, "twice"), "x": send(once, 0, "twice", x(0))}


@here(1, [(1, 3, 1), *[(1, 0, 1)] * 3], [{"total": 6.0}, *({"out": X[r] + 6} for r in (1, 2, 3))])
def one_array_to_many_ranks(rank: int, size: int) -> Any:
    if rank > 0:
        return {"out": x(rank) + recv(0, "total", ())}
    total = pt.sum(x(0))
    for dest in range(1, size):
        total = send(total, dest, "total", total)
    return {"total": total}


MANY = {"bool": np.array([True, False, True]), "int64": np.arange(3), "float32": np.array(0.5, "float32")}
COLLECTED = {f"{name}.{r}": value for name, value in MANY.items() for r in (1, 2, 3)}


@here(
    1, [(1, 0, 1), *[(1, 1, 1)] * 3], [COLLECTED | {"sum": 3 * np.arange(3)}, *({"x": X[r]} for r in (1, 2, 3))]
)
def many_arrays_to_one_rank(rank: int, size: int) -> Any:
    if rank == 0:
        got = {name: {r: recv(r, name, a.shape, a.dtype) for r in range(1, size)} for name, a in MANY.items()}
        return {**got, "sum": got["int64"][1] + got["int64"][2] + got["int64"][3]}
    out = x(rank)
    for name, value in MANY.items():
        out = send(given(name, value), 0, name, out)
    return {"x": out}


@here(1, [(1, 2, 1), (1, 0, 0), (1, 0, 0)], [{"x": X[0]}, {"a": X[0], "b": X[0]}, {"a": 2 * X[0]}])
def one_array_twice_to_one_rank(rank: int, size: int) -> Any:
    if rank == 0:
        return {"x": send(x(0), 1, "a", send(x(0), 1, "b", send(2 * x(0), 2, "a", x(0))))}
    return {tag: recv(0, tag) for tag in ("ab" if rank == 1 else "a")}


@here(0, [(1, 0, 1)], [{"a": 2 * X[0], "b": 2 * X[0], "c": 2 * X[0]}])
def one_array_under_several_output_names(rank: int, size: int) -> Any:
    twice = 2 * x(0)
    return {"a": twice, "b": 2 * x(0), "c": twice}


@here(0, [(1, 0, 0)], [{"a": X[0], "b": X[0], "one": np.arange(3), "other": np.arange(3)}])
def outputs_that_are_inputs_or_constants(rank: int, size: int) -> Any:
    constant = pt.make_data_wrapper(np.arange(3))
    return {"a": x(0), "b": x(0), "one": constant, "other": np.arange(3)}


@here(1, [(1, 1, 1), (1, 0, 0), (1, 0, 1)], [{"x": X[0]}, {"out": X[0]}, {"out": 2 * X[2].sum()}])
def a_rank_without_communication(rank: int, size: int) -> Any:
    if rank == 0:
        return {"x": send(x(0), 1, 0, x(0))}
    return {"out": recv(0, 0) if rank == 1 else pt.sum(2 * x(2))}


@here(0, [(1, 0, 1), (1, 0, 0)], [{"out": 2 * X[0]}, {}])
def a_rank_with_nothing_to_compute(rank: int, size: int) -> Any:
    return {"out": 2 * x(0)} if rank == 0 else {}


@here(1, [(1, 1, 1), (1, 0, 0)], [{"x": X[0]}, {"out": (X[0] * X[0]).sum()}])
def a_send_whose_value_nobody_needs_locally(rank: int, size: int) -> Any:
    if rank == 0:
        return {"x": send(pt.sum(x(0) * x(0)), 1, "energy", x(0))}
    return {"out": recv(0, "energy", ())}


@here(3, [(1, 1, 1)] * 3 + [(1, 0, 1)], [{"sum": sum(X[: r + 1])} for r in range(4)])
def a_chain_over_many_ranks(rank: int, size: int) -> Any:
    carried = x(rank) + recv(rank - 1, "chain") if rank else x(0)
    return {"sum": send(carried, rank + 1, "chain", carried) if rank + 1 < size else carried}


@here(2, [(1, 0, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1)], [{"out": sum(X)}, *({"x": X[r]} for r in (1, 2, 3))])
def a_tree_over_many_ranks(rank: int, size: int) -> Any:
    value, stride = x(rank), 1
    while rank % (2 * stride) == 0 and stride < size:
        value, stride = value + recv(rank + stride, stride), 2 * stride
    return {"x": send(value, rank - stride, stride, x(rank))} if rank else {"out": value}


@here(1, [(2, 1, 2)] * 2, [{f"out{k}": 2 * (X[1 - r] + k) for k in range(16)} for r in range(2)])
def sixteen_independent_exchanges(rank: int, size: int) -> Any:
    out = {}
    for k in range(16):
        out[f"out{k}"] = send(x(rank) + k, 1 - rank, k, 2 * recv(1 - rank, k))
    return out


@here(2, [(3, 2, 3)] * 2, [{"out": 2 * (X[0] + X[1])}] * 2)
def two_dependent_rounds(rank: int, size: int) -> Any:
    state = x(rank)
    for number in range(2):
        state = send(state, 1 - rank, ("round", number), state + recv(1 - rank, ("round", number)))
    return {"out": state}


class Face:
    """A tag by its class."""


class Side(enum.Enum):
    LEFT = 1
    RIGHT = 2


@dataclass(frozen=True)
class Patch:
    name: str
    corner: tuple[int, int]


TAGS = ("left", ("left", 1), Face, Side.LEFT, Side.RIGHT, 7, None, Patch("q", (0, 1)), frozenset({1, 2}), 1.5)


@here(1, [(1, 1, 1), (1, 0, 0)], [{"x": X[0]}, {f"out{k}": (k + 1) * X[0] for k in range(len(TAGS))}])
def tags_of_any_kind(rank: int, size: int) -> Any:
    if rank == 1:
        return {f"out{k}": recv(0, TAGS[k]) for k in reversed(range(len(TAGS)))}
    out = x(0)
    for k, tag in enumerate(TAGS):
        tag = Patch("q", (0, 1)) if isinstance(tag, Patch) else tag  # equal, not the same
        out = send((k + 1) * x(0), 1, tag, out)
    return {"x": out}


# Navier-Stokes-like: states are exchanged, gradients of states and ghosts computed and exchanged, then combined

DERIVATIVE = np.array([np.roll(np.diag(np.arange(1.0, 7)), d, axis=1) - np.eye(6) for d in range(3)])
Q = [[np.arange(6.0) * (k + 1) + rank for k in range(5)] for rank in range(4)]
SUMS = [sum(Q[rank][k] for rank in range(4)) for k in range(5)]
GRADIENTS = [[[(rank + 1) * DERIVATIVE[d] @ SUMS[k] for d in range(3)] for k in range(5)] for rank in range(4)]


def _rhs(rank: int) -> dict[str, Array]:
    near = [sum(GRADIENTS[other][k][d] for other in range(4)) for k in range(5) for d in range(3)]
    return {f"rhs.{k}": Q[rank][k] + near[3 * k] + 2 * near[3 * k + 1] + 3 * near[3 * k + 2] for k in range(5)}


@here(2, [(3, 6, 3, 15)] * 4, [_rhs(rank) for rank in range(4)])
def navier_stokes_like(rank: int, size: int) -> Any:
    others = [other for other in range(size) if other != rank]
    states = [given(f"q{k}", Q[rank][k]) for k in range(5)]
    gradients = []
    for k, state in enumerate(states):
        around = state
        for other in others:
            around = send(state, other, ("state", k), around + recv(other, ("state", k), 6))
        matrices = [pt.make_data_wrapper((rank + 1) * DERIVATIVE[d]) for d in range(3)]
        gradients += [pt.einsum("ij,j->i", matrix, around) for matrix in matrices]
    near = []
    for number, gradient in enumerate(gradients):
        total = gradient
        for other in others:
            total = send(gradient, other, ("gradient", number), total + recv(other, ("gradient", number), 6))
        near.append(total)
    return {"rhs": [q + near[3 * k] + 2 * near[3 * k + 1] + 3 * near[3 * k + 2] for k, q in enumerate(states)]}


# Reductions over all ranks

DOT = sum(float(a @ (a + 1)) for a in X)


@here(1, [(2, 0, 2, 0, 1)] * 4, [{"dot": DOT, "out": X[r] + DOT * (X[r] + 1)} for r in range(4)])
def a_dot_product(rank: int, size: int) -> Any:
    dot = aotato.allreduce(pt.sum(x(rank) * (x(rank) + 1)))
    return {"dot": dot, "out": x(rank) + dot * (x(rank) + 1)}


# The sum of squares waits for nothing, but it is short: it runs where it is read, and is not stored
@here(
    2, [(3, 0, 3, 0, 3)] * 2,
    [{"a": 104.0, "b": 548.0, "c": 13.0, "d": X[r] * 104 / 548 - 548} for r in (0, 1)],
)
def dot_products_that_depend_on_each_other(rank: int, size: int) -> Any:
    a, c = aotato.allreduce(pt.sum(x(rank)) * 2), aotato.allreduce(pt.amax(x(rank)), "max")
    b = aotato.allreduce(pt.sum(x(rank) * x(rank)) + 0 * a)
    return {"a": a, "b": b, "c": c, "d": x(rank) * a / b - b}


@here(
    1, [(2, 0, 2, 0, 3)] * 3,
    [{"sum": sum(X[:3]), "twice": 4 * sum(X[:3]), "max": X[2], "min": X[0], "more": X[r] + X[0]} for r in range(3)],
)
def reductions_of_arrays_and_of_an_input(rank: int, size: int) -> Any:
    least = aotato.allreduce(x(rank), "min")
    return {
        "sum": aotato.allreduce(x(rank)),
        "twice": 2 * aotato.allreduce(2 * x(rank)),
        "max": aotato.allreduce(x(rank), "max"),
        "min": least,
        "more": x(rank) + least,
    }


WIDE = [np.array([1 + 2j, r], "complex128") for r in range(2)]


@here(
    2, [(3, 1, 3, 0, 2)] * 2,
    [{"got": X[1 - r] + 11, "two": 2.0, "z": WIDE[0] + WIDE[1]} for r in (0, 1)],
)
def rounds_of_both_kinds(rank: int, size: int) -> Any:
    """A received array and a constant are reduced; what depends on nothing is not held back."""
    total = aotato.allreduce(pt.sum(recv(1 - rank, "x")) * 0 + 1)
    z = aotato.allreduce(given("z", WIDE[rank]))
    return {"got": send(x(rank), 1 - rank, "x", recv(1 - rank, "x") + total + 9), "two": total, "z": z}


# Messages of every dtype

DTYPES = (
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64", "complex128"),
)


def values(shape: tuple[int, ...], dtype: str) -> Array:
    """Numbers that every dtype holds."""
    found = np.arange(np.prod(shape, dtype=int)).reshape(shape) % 3 + (0.5 if np.dtype(dtype).kind == "f" else 0)
    return np.asarray(found - 1j if np.dtype(dtype).kind == "c" else found).astype(dtype)


def messages_of_every_dtype(shape: tuple[int, ...]) -> None:
    """Half of the arrays sent as they are, half computed; the receiver returns some as they are and computes."""
    mine = {dtype: values(shape, dtype) for dtype in DTYPES}
    received = {f"{dtype}.same": a for dtype, a in mine.items()}
    received |= {f"{dtype}.sent": ~a if dtype == "bool" else a + a for dtype, a in mine.items()}
    received |= {f"{dtype}.made": ~a if dtype == "bool" else a + a + a for dtype, a in mine.items()}
    launches = int(0 not in shape)

    def made(array: Any, addend: Any) -> Any:
        return pt.equal(array, False) if array.dtype == bool else array + addend

    def messages(rank: int, size: int) -> Any:
        if rank == 0:
            out = x(0)
            for dtype, value in mine.items():
                array = given(dtype, value)
                out = send(array, 1, dtype, send(made(array, array), 1, (dtype, 2), out))
            return {"x": out}
        out = {}
        for dtype in DTYPES:
            same, sent = recv(0, dtype, shape, dtype), recv(0, (dtype, 2), shape, dtype)
            out[dtype] = {"same": same, "sent": sent, "made": made(same, sent)}
        return out

    messages.__name__ = f"messages_of_every_dtype_{'x'.join(map(str, shape)) or 'scalar'}"
    here(1, [(1, 1, launches), (1, 0, launches)], [{"x": X[0]}, received])(messages)


for shape in ((), (0,), (2, 0, 3), (1,), (3,), (2, 2)):
    messages_of_every_dtype(shape)
