"""The intermediate representation: one entry on one rank, as arrays in dependency order.

A `Program` maps names to nodes; a node refers to earlier ones by name (SSA). Shapes and dtypes are static,
so bytes and flops are known. It knows nothing of pytato, parts, kernels or devices; a loopy kernel that a program
calls is data to it, like a constant.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aotato.frontend.expr import Expr, has_reduce

if TYPE_CHECKING:
    from aotato.frontend.opaque import Opaque

Shape = tuple[int, ...]
DType = np.dtype[Any]

DTYPES = (
    "bool",
    *(f"{kind}{bits}" for kind in ("int", "uint") for bits in (8, 16, 32, 64)),
    *("float16", "float32", "float64", "complex64", "complex128"),
)
ALLREDUCE_OPS = ("sum", "min", "max")


@dataclass(frozen=True)
class Where:
    """The user's line that made a node. Shown in messages, never part of a digest."""

    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True)
class Input:
    """An array that the caller, the plan or another entry supplies, known to users by `path`."""

    path: str  # 'q.momentum.0'
    shape: Shape
    dtype: DType


@dataclass(frozen=True)
class Const:
    """Data known at build time: `Program.constants[digest]`."""

    digest: str  # hexadecimal sha256 of dtype, shape and bytes
    shape: Shape
    dtype: DType


@dataclass(frozen=True)
class Recv:
    """An array that rank `source` sends with the same `tag`."""

    source: int
    tag: int  # index into Programs.tags
    shape: Shape
    dtype: DType
    where: Where | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Lambda:
    """Element `[_0, _1, ...]` is `expr`, where operand k is read as `a{k}[...]`, converted to `dtype`."""

    expr: Expr
    operands: tuple[str, ...]
    shape: Shape
    dtype: DType
    stored: bool = False  # the user asked for memory of its own: a hint, never an obligation
    where: Where | None = field(default=None, compare=False)


@dataclass(frozen=True)
class LoopyCall:
    """The array that kernel `Program.kernels[kernel]` writes into its argument `result`.

    Opaque: all operands and results are whole arrays in memory. Calls of one kernel with the same operands are one.
    """

    kernel: str  # digest
    result: str
    operands: tuple[str, ...]  # one for each of the kernel's inputs
    shape: Shape
    dtype: DType


@dataclass(frozen=True)
class Allreduce:
    """The elementwise reduction of `operand` over all ranks; every rank holds the result."""

    operand: str
    op: str  # one of ALLREDUCE_OPS
    shape: Shape
    dtype: DType
    where: Where | None = field(default=None, compare=False)


Node = Input | Const | Recv | Lambda | LoopyCall | Allreduce


@dataclass(frozen=True)
class Send:
    """`array` goes to rank `dest`, to the Recv of the same `tag`. A statement, not an array."""

    array: str
    dest: int
    tag: int
    where: Where | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Output:
    """What the entry returns under `path` is `array`; several outputs may be one array."""

    path: str
    array: str


@dataclass(frozen=True)
class Program:
    """One entry on one rank. `arrays` is in dependency order; every name a node uses stands before it."""

    entry: str
    rank: int
    arrays: Mapping[str, Node]
    sends: tuple[Send, ...]
    outputs: tuple[Output, ...]  # sorted by path
    constants: Mapping[str, np.ndarray[Any, Any]] = field(compare=False, repr=False)
    kernels: Mapping[str, Opaque] = field(default_factory=dict, compare=False, repr=False)

    def of_type(self, kind: type) -> Iterator[tuple[str, Any]]:
        return ((name, node) for name, node in self.arrays.items() if isinstance(node, kind))


@dataclass(frozen=True)
class Programs:
    """One entry on all ranks; rank r is `ranks[r]`.

    `tags[t]` is how tag number t is written in messages: tags are numbered by first appearance over ranks and
    traversal order.
    """

    entry: str
    ranks: tuple[Program, ...]
    tags: tuple[str, ...] = ()

    @property
    def size(self) -> int:
        return len(self.ranks)


def operands(node: Node) -> tuple[str, ...]:
    """The arrays that `node` reads, in order, each once."""
    match node:
        case Input() | Const() | Recv():
            return ()
        case Lambda() | LoopyCall():
            return node.operands
        case Allreduce():
            return (node.operand,)
    raise AssertionError(f"unknown node {type(node).__name__}")


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """`node`, reading `names[operand]` for each operand."""
    match node:
        case Lambda() | LoopyCall():
            return dataclasses.replace(node, operands=tuple(names[name] for name in node.operands))
        case Allreduce():
            return dataclasses.replace(node, operand=names[node.operand])
        case Input() | Const() | Recv():
            return node
    raise AssertionError(f"unknown node {type(node).__name__}")


def is_computed(node: Node) -> bool:
    """Whether kernels make the array, rather than the caller, the build or the network."""
    return isinstance(node, Lambda | LoopyCall)


def is_costly(node: Node) -> bool:
    """Whether the array is computed once, never again where it is read."""
    return isinstance(node, LoopyCall) or (isinstance(node, Lambda) and has_reduce(node.expr))


def computed_below(program: Program, roots: Iterable[str], stop: Collection[str]) -> tuple[str, ...]:
    """What must be computed for `roots` (themselves included), down to arrays in `stop`; program order."""

    def wanted(name: str) -> bool:
        return is_computed(program.arrays[name]) and name not in stop

    needed = set(filter(wanted, roots))
    for name in reversed(list(program.arrays)):
        if name in needed:
            needed.update(filter(wanted, operands(program.arrays[name])))
    return tuple(name for name in program.arrays if name in needed)


def size(shape: Shape) -> int:
    """The number of elements."""
    return int(np.prod(shape, dtype=np.int64))


def nbytes(node: Node) -> int:
    return size(node.shape) * node.dtype.itemsize


def type_text(node: Node) -> str:
    """`float64[100,3]`, as messages and dumps write it."""
    return f"{node.dtype.name}[{','.join(map(str, node.shape))}]"
