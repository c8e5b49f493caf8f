"""A plan as the bundle holds it: checked, all carries and reduced values written out by entry, JSON both ways."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from aotato.runtime_stub.errors import Refusal


@dataclass(frozen=True)
class Scalar:
    """A number on the host, known by name to expressions and `--set`."""

    name: str
    default: float
    unit: str = ""
    doc: str = ""


@dataclass(frozen=True)
class Setting:
    """The 0-dimensional input `path` gets a number, or the value of a host expression (a text)."""

    path: str
    dtype: str
    value: float | str


@dataclass(frozen=True)
class FreeInput:
    """A 0-dimensional input that the plan neither sets nor feeds: it keeps its default or what a user sets."""

    path: str
    dtype: str


@dataclass(frozen=True)
class Update:
    """The scalar `name` becomes the value of the host expression `text`."""

    name: str
    text: str


@dataclass(frozen=True)
class Check:
    """The host expression `text` must hold; `words` say what is wrong where it does not."""

    text: str
    words: str


@dataclass(frozen=True)
class Call:
    """Settings, then one call of the entry."""

    entry: str
    set: tuple[Setting, ...] = ()


@dataclass(frozen=True)
class Every:
    """A call whenever `interval` divides the number of steps done: before the next step, or after the last one."""

    entry: str
    interval: int
    before: bool = False
    set: tuple[Setting, ...] = ()
    update: tuple[Update, ...] = ()
    check: tuple[Check, ...] = ()
    show: tuple[str, ...] = ()  # reduced values that are printed; (): all


@dataclass(frozen=True)
class Carry:
    """After a call of `entry`, its output feeds `input` of every entry, on the ranks that have that input."""

    entry: str
    output: str
    input: str


@dataclass(frozen=True)
class Plan:
    """A bundle's loop: see `aotato.frontend.plan`. Paths of inputs are common to all entries."""

    step: tuple[Call, ...]
    init: tuple[Call, ...] = ()
    carry: tuple[Carry, ...] = ()  # of all entries
    scalars: tuple[Scalar, ...] = ()
    update: tuple[Update, ...] = ()
    every: tuple[Every, ...] = ()
    until: str = ""  # a host expression; "": none
    at_most: int = 0  # steps; 0 without `until`
    reduced: tuple[tuple[str, tuple[str, ...]], ...] = ()  # entry, its 0-dimensional allreduce outputs
    free: tuple[FreeInput, ...] = ()
    draw: tuple[Call, ...] = ()  # before files for ParaView

    @property
    def calls(self) -> tuple[Call | Every, ...]:
        return (*self.init, *self.step, *self.every, *self.draw)

    @property
    def entries(self) -> tuple[str, ...]:
        """Every entry that the plan calls, once, in the order of first calls."""
        return tuple(dict.fromkeys(call.entry for call in self.calls))

    def carried(self, entry: str) -> dict[str, str]:
        """Outputs of the entry that are fed back, and the inputs they become."""
        return {carry.output: carry.input for carry in self.carry if carry.entry == entry}

    def reduced_of(self, entry: str) -> tuple[str, ...]:
        return dict(self.reduced).get(entry, ())

    def fed(self) -> frozenset[str]:
        """Inputs that a caller need not give: set by the plan, or fed by an init call before any step."""
        init = {call.entry for call in self.init}
        carried = {carry.input for carry in self.carry if carry.entry in init}
        return frozenset(carried | {setting.path for call in self.calls for setting in call.set})


def to_json(plan: Plan) -> dict[str, Any]:
    return asdict(plan)


def from_json(data: Mapping[str, Any]) -> Plan:
    """The inverse of `to_json`. Raises KeyError, TypeError or ValueError on data of another form."""

    def many(cls: Any, rows: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
        nested = {"set": Setting, "update": Update, "check": Check}
        return tuple(cls(**{k: many(nested[k], v) if k in nested else tuple(v) if k == "show" else v
                            for k, v in row.items()}) for row in rows)

    kinds = {"step": Call, "init": Call, "carry": Carry, "scalars": Scalar, "update": Update, "every": Every,
             "free": FreeInput, "draw": Call}
    rows = {key: many(kind, data.get(key, ()) if key == "draw" else data[key]) for key, kind in kinds.items()}
    reduced = tuple((entry, tuple(paths)) for entry, paths in data["reduced"])
    return Plan(**{**data, **rows, "reduced": reduced})


def of(meta: Mapping[str, Any]) -> Plan | None:
    """The plan in a bundle's `meta`, if it has one. Raises Refusal where it is of another form."""
    if not meta.get("plan"):
        return None
    try:
        return from_json(meta["plan"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Refusal(f"the bundle's plan is damaged ({error}); build it again") from None
