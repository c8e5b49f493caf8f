"""Mistakes in apps, as users make them with pytato: sentences that name both ends and the user's own lines."""

from __future__ import annotations

import enum
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytato as pt
import pytest

import aotato
from aotato.frontend import checks
from aotato.frontend.adapter.errors import TraceError
from aotato.frontend.checks import MessageError, ProgramErrors
from patterns import X, given, x

HERE = Path(__file__).name
Function = Callable[[int, int], Any]


def mistakes(function: Function, path: Path, ranks: int = 2) -> list[MessageError]:
    """What `aotato.build` reports of `function`; no bundle is left behind."""
    with pytest.raises(ProgramErrors) as caught:
        aotato.build(function, ranks=ranks, path=path / "x.h5")
    assert not list(path.iterdir())
    assert str(caught.value).splitlines() == list(map(str, caught.value.errors))
    return list(caught.value.errors)


def line(function: Function, mark: str) -> str:
    """`file:line` of the only line of `function` that ends with the comment `mark`."""
    code = function.__code__
    text = Path(__file__).read_text().splitlines()
    last = max(number for _, _, number in code.co_lines() if number)
    found = [n for n in range(code.co_firstlineno, last + 2) if text[n - 1].endswith(f"# {mark}")]
    assert len(found) == 1
    return f"{HERE}:{found[0]}"


def staple(data: Any, dest: int, tag: Any, to: Any) -> Any:
    """A function of the user's own: it is this line that made the send."""
    return aotato.staple_distributed_send(data, dest, tag, stapled_to=to)  # staple


STAPLE = line(staple, "staple")


def test_a_missing_send(tmp_path):
    def app(rank: int, size: int) -> Any:
        if rank == 0:
            return aotato.staple_distributed_send(x(0), 1, "other", stapled_to=x(0))  # send
        other = aotato.make_distributed_recv(0, "other", 4, "float64")
        return other + aotato.make_distributed_recv(0, "face", (2, 3), "float32")[0, 0]  # recv

    (error,) = mistakes(app, tmp_path)
    assert type(error) is checks.MissingSend
    assert re.fullmatch(
        rf"rank 1 receives 'v\d' as float32\[2,3\] \({line(app, 'recv')}\) from rank 0 with tag 'face', "
        r"but rank 0 sends nothing to rank 1 with this tag \(it sends with 'other'\)",
        str(error),
    )


def test_a_missing_receive(tmp_path):
    def app(rank: int, size: int) -> Any:
        return aotato.staple_distributed_send(2 * x(0), 1, ("face", 3), stapled_to=x(0)) if rank == 0 else x(1)  # send

    (error,) = mistakes(app, tmp_path)
    assert type(error) is checks.MissingReceive
    assert re.fullmatch(
        rf"rank 0 sends 'v\d' as float64\[4\] \({line(app, 'send')}\) to rank 1 with tag \('face', 3\), "
        "but rank 1 receives nothing from rank 0 with this tag",
        str(error),
    )


def test_a_receive_that_nothing_reads_is_no_receive(tmp_path):
    def app(rank: int, size: int) -> Any:
        if rank == 0:
            return aotato.staple_distributed_send(x(0), 1, 7, stapled_to=x(0))
        aotato.make_distributed_recv(0, 7, 4, "float64")
        return x(1)

    (error,) = mistakes(app, tmp_path)
    assert type(error) is checks.MissingReceive


def test_two_sends_with_one_tag(tmp_path):
    def app(rank: int, size: int) -> Any:
        if rank == 1:
            return aotato.make_distributed_recv(0, "q", 4, "float64")  # recv
        out = aotato.staple_distributed_send(x(0), 1, "q", stapled_to=x(0))  # first
        return aotato.staple_distributed_send(3 * x(0), 1, "q", stapled_to=out)  # second

    (error,) = mistakes(app, tmp_path)
    assert type(error) is checks.DuplicateSend
    assert "rank 0 sends 2 arrays to rank 1 with tag 'q'" in str(error)
    assert str(error).count("float64[4]") == 3
    assert all(f"({line(app, mark)})" in str(error) for mark in ("first", "second", "recv"))


def test_two_receives_with_one_tag(tmp_path):
    def app(rank: int, size: int) -> Any:
        if rank == 0:
            return aotato.staple_distributed_send(x(0), 1, "q", stapled_to=x(0))  # send
        first = aotato.make_distributed_recv(0, "q", 4, "float64")  # first
        return {"a": first, "b": aotato.make_distributed_recv(0, "q", 5, "float64")}  # second

    errors = mistakes(app, tmp_path)
    assert [type(error) for error in errors] == [checks.DuplicateReceive, checks.ShapeMismatch]
    assert "rank 1 receives 2 arrays from rank 0 with tag 'q'" in str(errors[0])
    assert all(text in str(errors[0]) for text in ("float64[4]", "float64[5]"))
    assert all(f"({line(app, mark)})" in str(errors[0]) for mark in ("first", "second", "send"))


@pytest.mark.parametrize("shape, dtype, kinds", [
    ((4,), "float32", [checks.DtypeMismatch]),
    ((2, 2), "float64", [checks.ShapeMismatch]),
    ((), "int32", [checks.DtypeMismatch, checks.ShapeMismatch]),
], ids=str)
def test_another_dtype_or_shape(tmp_path, shape, dtype, kinds):
    def app(rank: int, size: int) -> Any:
        if rank == 0:
            return aotato.staple_distributed_send(x(0), 1, "q", stapled_to=x(0))  # send
        return aotato.make_distributed_recv(0, "q", shape, dtype)  # recv

    errors = mistakes(app, tmp_path)
    assert [type(error) for error in errors] == kinds
    for error in errors:
        assert re.fullmatch(
            rf"rank 1 receives 'v0' as {dtype}\[{','.join(map(str, shape))}\] \({line(app, 'recv')}\) with tag 'q', "
            rf"but rank 0 sends 'v0' as float64\[4\] \({line(app, 'send')}\): (dtypes|shapes) differ",
            str(error),
        )


def test_ranks_that_do_not_exist(tmp_path):
    def app(rank: int, size: int) -> Any:
        got = aotato.make_distributed_recv(rank - 1, "q", 4, "float64")  # recv
        return aotato.staple_distributed_send(x(rank), rank + 1, "q", stapled_to=got)  # send

    errors = mistakes(app, tmp_path)
    assert [type(error) for error in errors] == [checks.UnknownRank] * 2
    assert re.fullmatch(
        rf"rank 1 sends 'v\d' as float64\[4\] \({line(app, 'send')}\) to rank 2 with tag 'q', but ranks are 0 to 1",
        str(errors[0]),
    )
    assert re.fullmatch(
        rf"rank 0 receives 'v\d' as float64\[4\] \({line(app, 'recv')}\) from rank -1 with tag 'q', "
        "but ranks are 0 to 1",
        str(errors[1]),
    )


def test_ranks_that_wait_for_each_other(tmp_path):
    def app(rank: int, size: int) -> Any:
        got = aotato.make_distributed_recv((rank + 1) % size, "turn", 4, "float64")
        out = 2 * got
        return aotato.staple_distributed_send(out, (rank - 1) % size, "turn", stapled_to=out)  # send

    (error,) = mistakes(app, tmp_path, ranks=3)
    assert type(error) is checks.CommunicationCycle
    text = str(error)
    assert text.startswith("ranks wait for each other: rank 0 computes 'v1' from 'v0' and sends it to rank 2 as 'v0'")
    assert text.count(f"with tag 'turn' ({line(app, 'send')})") == 3
    assert [text.index(f"rank {rank} computes") for rank in (0, 2, 1)] == sorted(
        text.index(f"rank {rank} computes") for rank in range(3)
    )


def test_reductions_over_all_ranks_that_differ(tmp_path):
    def app(rank: int, size: int) -> Any:
        total = aotato.allreduce(pt.sum(x(rank)), "sum" if rank else "max")  # first
        return total if rank else total + aotato.allreduce(x(0))  # second

    errors = mistakes(app, tmp_path)
    assert [type(error) for error in errors] == [checks.CollectiveMismatch] * 2
    assert "rank 1 calls 1 of the 2 reductions over all ranks of rank 0" in str(errors[0])
    assert line(app, "second") in str(errors[0])
    assert "float64[]" in str(errors[1]) and str(errors[1]).count(line(app, "first")) == 2


def test_all_mistakes_are_reported_in_one_go(tmp_path):
    class Side(enum.Enum):
        LEFT = 1

    def app(rank: int, size: int) -> Any:
        out = x(rank)
        if rank == 0:
            out = staple(out, 1, "lost", out)
            out = staple(out, 1, Side.LEFT, out)
            out = staple(out, 9, "nowhere", out)
            out = staple(2 * out, 1, Side.LEFT, out)
            return staple(out, 1, "narrow", out)
        out = out + aotato.make_distributed_recv(0, Side.LEFT, 4, "float64")
        out = out + aotato.make_distributed_recv(0, "narrow", 4, "float32")
        return out + aotato.make_distributed_recv(0, "never", 4, "float64")

    errors = mistakes(app, tmp_path)
    assert sorted(type(error).__name__ for error in errors) == [
        "DtypeMismatch", "DuplicateSend", "MissingReceive", "MissingSend", "UnknownRank",
    ]
    assert sum(str(error).count(f"({STAPLE})") for error in errors) == 5
    assert str(errors[0]).endswith("but ranks are 0 to 1")


# Mistakes of one rank alone


def refusal(function: Function, path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        aotato.build(function, ranks=2, path=path / "x.h5")
    assert not list(path.iterdir())
    return str(caught.value)


def test_a_tag_that_is_not_hashable(tmp_path):
    def app(rank: int, size: int) -> Any:
        return aotato.make_distributed_recv(0, ["q"], 4, "float64")

    assert refusal(app, tmp_path) == (
        "the communication tag ['q'] of entry 'step' is not hashable; use a number, text or tuple"
    )


def test_an_unknown_node(tmp_path):
    class Twice(pt.Array):
        """A node that only its author knows."""

        _mapper_method = "map_twice"
        shape, dtype, ndim, tags = (4,), np.dtype("float64"), 1, frozenset()

        def __init__(self) -> None:
            """Nothing: the two pytatos construct arrays differently."""

    def app(rank: int, size: int) -> Any:
        return {"out": 2 * Twice()}

    text = refusal(app, tmp_path)
    assert text.startswith("entry 'step' on rank 0: ") and text.endswith("pytato node Twice is not supported")


def test_an_input_with_two_shapes(tmp_path):
    def app(rank: int, size: int) -> Any:
        return {"a": x(rank), "b": given("x", X[rank][:3])}

    assert refusal(app, tmp_path) == (
        "entry 'step' on rank 0 reads input 'x' as float64[4] (array v0) and as float64[3]; "
        "one input has one shape and dtype"
    )


def test_an_output_that_is_no_array(tmp_path):
    def app(rank: int, size: int) -> Any:
        return {"q": {"mass": x(rank), "name": "air"}}

    assert refusal(app, tmp_path) == (
        "output 'q.name' is a str; expected a pytato array, a number, or a dict, sequence or dataclass of these"
    )


def test_nothing_at_all(tmp_path):
    text = refusal(lambda rank, size: None, tmp_path)
    assert text == "entry 'step' returns nothing; end it with `return {NAME: array}`"


def test_two_outputs_of_one_name(tmp_path):
    text = refusal(lambda rank, size: {"q": {"0": x(rank)}, "q.0": 2 * x(rank)}, tmp_path)
    assert text == "entry 'step' returns two arrays under the path 'q.0'; rename one of them"
