"""Programs as users write them, with what they must compute and cost on every rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import aotato

Array = np.ndarray[Any, Any]
Answer = Mapping[str, Any]  # output path -> array

# Rank r's input "x": floats, so that 2*x and sums of all ranks are exact
X = tuple(np.arange(4.0) + 10 * rank for rank in range(4))


@dataclass(frozen=True)
class Cost:
    """What the report says of one rank."""

    parts: int
    messages: int
    launches: int
    stored: int = 0  # arrays of neither the user's nor the communication's making that get memory
    collectives: int = 0


@dataclass(frozen=True)
class Pattern:
    """`function(rank, size)` returns pytato arrays; answers and costs stand in order of ranks."""

    function: Callable[[int, int], Any]
    batches: int
    costs: tuple[Cost, ...]
    answers: tuple[Answer, ...]

    @property
    def name(self) -> str:
        return self.function.__name__

    @property
    def ranks(self) -> int:
        return len(self.costs)


Costs = Sequence[tuple[int, ...]]  # arguments of Cost


def pattern(
    found: list[Pattern], batches: int, costs: Costs, answers: Sequence[Answer]
) -> Callable[[Callable[[int, int], Any]], Callable[[int, int], Any]]:
    """Decorate the function of a pattern, which goes into `found`."""

    def register(function: Callable[[int, int], Any]) -> Callable[[int, int], Any]:
        found.append(Pattern(function, batches, tuple(Cost(*cost) for cost in costs), tuple(answers)))
        return function

    return register


def x(rank: int) -> Any:
    """The input "x" with X as its default."""
    return given("x", X[rank])


def given(name: str, value: Array) -> Any:
    """An input with a default."""
    return aotato.array_input(name, value.shape, value.dtype, default=value)


def send(data: Any, dest: int, tag: Any, stapled_to: Any) -> Any:
    return aotato.staple_distributed_send(data, dest, tag, stapled_to=stapled_to)


def recv(source: int, tag: Any, shape: Any = (4,), dtype: Any = "float64") -> Any:
    return aotato.make_distributed_recv(source, tag, shape, dtype)
