"""A kernel ready for loopy, as data: two drafts can be compared, and made one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotato.emit.parameters import Parameter, bound_text, text_of

POINTER = 8  # bytes


@dataclass(frozen=True)
class Draft:
    """Everything that the text depends on, and the sizes of a launch."""

    domains: tuple[str, ...]
    instructions: tuple[Any, ...]  # loopy's
    temporaries: tuple[Any, ...]
    tags: tuple[tuple[str, str], ...]
    priorities: tuple[tuple[str, ...], ...]
    functions: tuple[tuple[str, Any], ...]
    arguments: tuple[tuple[str, str, str, int], ...]  # (buffer, dtype, "r" | "w" | "v" by value, element of a value)
    index_dtype: Any
    complex: bool
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    local_bytes: int
    parameters: tuple[Parameter, ...] = ()

    def nbytes(self, parameters: Sequence[Parameter]) -> int:
        """Bytes of arguments that a launch passes: pointers, values, and `parameters`."""
        return argument_bytes(self.arguments, [p.dtype for p in parameters])

    def split(self) -> tuple[Any, tuple[int, ...]]:
        """All that the text depends on but the integers that may become parameters, and these in order."""
        integers: list[int] = []
        key = (
            tuple(bound_text(domain, integers) for domain in self.domains),
            tuple(_instruction_text(instruction, integers) for instruction in self.instructions),
            tuple((t.name, str(t.dtype), t.shape, str(t.address_space)) for t in self.temporaries),
            self.tags,
            self.priorities,
            tuple(name for name, _ in self.functions),
            tuple((dtype, mode) for _, dtype, mode, _ in self.arguments),
            str(self.index_dtype),
            self.complex,
            self.local_size,
        )
        return key, tuple(integers)


def argument_bytes(arguments: Sequence[tuple[str, str, str, int]], parameters: Sequence[str]) -> int:
    """Of arguments as in `Draft`, and parameters by dtype."""
    values = [dtype for _, dtype, mode, _ in arguments if mode == "v"]
    pointers = POINTER * (len(arguments) - len(values))
    return pointers + sum(np.dtype(dtype).itemsize for dtype in (*values, *parameters))


def expressions(instruction: Any) -> tuple[Any, ...]:
    return (instruction.assignee, instruction.expression, *sorted(instruction.predicates, key=repr))


def _instruction_text(instruction: Any, integers: list[int]) -> str:
    after, inside = sorted(instruction.depends_on), sorted(instruction.within_inames)
    return f"{text_of(expressions(instruction), integers)} {inside} {after}"
