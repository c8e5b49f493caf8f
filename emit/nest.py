"""Kernels before they are written: index spaces, loops, and statements over scalars.

A kernel is a few nests side by side, each with its own index space, run by one launch. Inside a nest every
work-item (or the lanes of a group that `share` one) computes one element of each of the nest's results.
Expressions are those of `frontend.expr`, but a read names the array itself: `Subscript(Variable("v3"), ...)`, and
a variable is an own index `_0`, a loop index or an earlier statement's name; `~v3` is v3 in local memory. No memory
layout, no loopy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from aotato.frontend.expr import Expr
from aotato.frontend.ir import DType, Shape
from aotato.frontend.opaque import Opaque


@dataclass(frozen=True)
class Loop:
    """A sequential loop over lower <= name < upper inside the loops `parents` (outermost first)."""

    name: str
    lower: int
    upper: int
    parents: tuple[str, ...]


@dataclass(frozen=True)
class Assign:
    """`name = expr`, evaluated inside `loops`."""

    name: str
    dtype: DType
    expr: Expr
    loops: tuple[str, ...]


@dataclass(frozen=True)
class Accumulate:
    """`name = op over loop of expr`; `loop` stands directly inside `loops`, where `name` lives."""

    name: str
    dtype: DType
    op: str
    expr: Expr
    loop: str
    loops: tuple[str, ...]
    grouped: bool = False  # the loop is shared by the work-items of a group


@dataclass(frozen=True)
class Store:
    """Element `indices` of `array` becomes `expr`; indices are own indices of the nest, or numbers."""

    array: str
    indices: tuple[Expr, ...]
    expr: Expr


Statement = Assign | Accumulate


def inside(item: Statement | Store) -> tuple[str, ...]:
    """The loops that its expression is evaluated in, outermost first."""
    if isinstance(item, Store):
        return ()
    return (*item.loops, item.loop) if isinstance(item, Accumulate) else item.loops


LOCAL = "~"  # in front of an array's name: its copy in local memory


def is_local(name: str) -> bool:
    return name.startswith(LOCAL)


def array_of(name: str) -> str:
    """The array that a read names, in whatever memory."""
    return name.removeprefix(LOCAL)


@dataclass(frozen=True)
class Nest:
    """Results of one shape, computed together so that they share common values."""

    shape: Shape
    loops: tuple[Loop, ...]
    statements: tuple[Statement, ...]  # in dependency order
    stores: tuple[Store, ...]
    share: str = ""  # how lanes of a group share long reductions (`sharing.py`); nothing: a lane for each element
    matrix: bool = False  # 32 lanes compute 8 nodes of 8 elements, and all sums are `small_matrices.MatrixSum`s


@dataclass(frozen=True)
class Local:
    """An array that a kernel keeps in local memory, for its group's elements only, along its batch axis."""

    array: str
    axis: int
    slot: int  # arrays of one slot share bytes: the last read of one comes before the first write of the next
    stride: int  # from element to element: the array's extents behind the batch axis, or a little more


@dataclass(frozen=True)
class Block:
    """A group of `lanes` work-items computes `size` of `elements` elements: axis 0 of every nest, nest after nest."""

    elements: int
    size: int
    lanes: int
    local: tuple[Local, ...]
    across: bool = False  # one work-item, whose loop over elements is innermost; no local memory
    kept: frozenset[str] = frozenset()  # arrays that work-items keep in registers from one nest to another: `~` too
    first: int | None = None  # the first element, of a kernel that is launched for some of them


@dataclass(frozen=True)
class Kernel:
    """Nests of one launch. `writes` lists result arrays, `reads` the arrays in memory that it reads.

    Without a block the nests are independent of each other.
    """

    name: str
    part: int
    nests: tuple[Nest, ...]
    reads: tuple[str, ...]
    writes: tuple[str, ...]
    block: Block | None = None
    early: bool = False  # runs while the messages of the batch before its part travel: it reads none of them


@dataclass(frozen=True)
class Call:
    """A call of a kernel that is not ours. It reads and writes whole arrays."""

    name: str
    part: int
    kernel: Opaque
    reads: tuple[str, ...]  # one for each of the kernel's inputs
    results: tuple[str, ...]  # one for each of the kernel's results; "" for one that nobody needs
    block: ClassVar[None] = None
    early: ClassVar[bool] = False

    @property
    def writes(self) -> tuple[str, ...]:
        return tuple(name for name in self.results if name)
