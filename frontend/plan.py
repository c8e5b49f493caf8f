"""What an app says about the order of its entries: the calls of one step, and what feeds back between them.

A plan names entries, paths and scalars only; `aotato.emit.plan` checks it against the traced entries.

Host expressions are texts: numbers, names, `+ - * / // % **`, comparisons, `and or not`, `x if c else y`, and
`min max abs sqrt exp log`. Names are scalars, `step` (the steps done) and reduced values: 0-dimensional outputs
that are an `allreduce`, by their path (`norm`, `q.mass`, `q[0]` for the path `q.0`), of the entry called last that
has one of that path.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

Number = int | float | bool


@dataclass(frozen=True)
class Scalar:
    """A number on the host that `update` changes and `--set NAME=VALUE` sets. The one named `t` is the time."""

    name: str
    default: float
    unit: str = ""
    doc: str = ""


@dataclass(frozen=True)
class Call:
    """One call of an entry; `set` gives 0-dimensional inputs by path, each a number or a host expression.

    An input keeps its value until it is set again, whichever entries read it.
    """

    entry: str
    set: Mapping[str, Number | str] = field(default_factory=dict)


@dataclass(frozen=True)
class Every:
    """A call in one step out of `interval`: after the steps whose number it divides or, with `before`, before them.

    Steps are counted from 0, so a `before` call comes before the first step. `update` follows the call. `check` comes
    last: host expressions that must hold, each with what to say where it does not, which ends the run as failed. `show`
    lists the reduced values that are printed, where all would make too wide a table; files keep all. The loader's
    `--every ENTRY=K` replaces the interval.
    """

    entry: str
    interval: int
    before: bool = False
    set: Mapping[str, Number | str] = field(default_factory=dict)
    update: Mapping[str, str] = field(default_factory=dict)
    check: Mapping[str, str] = field(default_factory=dict)
    show: tuple[str, ...] = ()


@dataclass(frozen=True)
class Plan:
    """Init calls, then steps: the due `before` calls, the calls of `step`, `update` in order, the other due calls.

    `carry` (output path -> input path) holds for every entry that has the output; an output of an init call also
    feeds the input of its own name. `until` ends the loop before a step, once its values are known; a loop that
    has done `at_most` steps without it fails. `draw` calls come before each file for ParaView is written, and only
    then: for fields that the loop itself does not need.
    """

    step: tuple[Call, ...]
    init: tuple[Call, ...] = ()
    carry: Mapping[str, str] = field(default_factory=dict)
    scalars: tuple[Scalar, ...] = ()
    update: Mapping[str, str] = field(default_factory=dict)
    every: tuple[Every, ...] = ()
    until: str | None = None
    at_most: int | None = None
    draw: tuple[Call, ...] = ()
