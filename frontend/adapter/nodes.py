"""Communication, gathers, reductions over ranks and described inputs, as pytato nodes.

With a pytato that has distributed nodes, these are its own; otherwise they are ours, with the same names and
signatures. Each remembers the user's line.
"""

from __future__ import annotations

import sys
from collections.abc import Hashable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytato as pt
from pymbolic.primitives import Subscript, Variable
from pytools.tag import Tag

from aotato.frontend.adapter import compat
from aotato.frontend.ir import ALLREDUCE_OPS, Where

compat.install()
from pytato.array import Array, IndexLambda, Placeholder, _SuppliedShapeAndDtypeMixin  # noqa: E402

PytatoArray = Any  # the two versions share no type that a checker could use
Default = np.ndarray[Any, Any] | None

_PACKAGE = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class CreatedHere(Tag):
    """The user's line that made a node."""

    where: Where


@dataclass(frozen=True, eq=False)
class Described(Tag):
    """What `array_input` knows of an input beyond its shape and dtype."""

    path: str
    unit: str
    doc: str
    default: Default


def _users_line() -> CreatedHere:
    """The innermost frame outside aotato's own rooms (apps, which users read as examples, count as users)."""
    frame = sys._getframe(1)
    while frame.f_back is not None and _is_ours(frame.f_code.co_filename):
        frame = frame.f_back
    return CreatedHere(Where(Path(frame.f_code.co_filename).name, frame.f_lineno))


def _is_ours(filename: str) -> bool:
    path = Path(filename)
    return str(path).startswith(_PACKAGE) and path.parent.name == "adapter"


if compat.HAS_DISTRIBUTED:
    from pytato import DistributedRecv, DistributedSend, DistributedSendRefHolder
    from pytato.array import Roll, _get_default_axes, array_dataclass

    @dataclass(frozen=True)
    class _Op(Tag):
        """The operator, where pytato looks when it compares nodes."""

        op: str

    @array_dataclass()
    class AllreduceNode(Roll):  # type: ignore[misc]
        """The reduction of `operand` over all ranks; to pytato's mappers, which know their own nodes, a roll by 0."""

        op: str
        line: CreatedHere

        @property
        def operand(self) -> Array:
            return self.array

    def _allreduce_node(x: PytatoArray, op: str, line: CreatedHere) -> PytatoArray:
        return AllreduceNode(
            array=x, shift=0, axis=0, axes=_get_default_axes(x.ndim), tags=frozenset({_Op(op)}), op=op, line=line
        )

else:

    @dataclass(frozen=True)
    class DistributedSend:  # type: ignore[no-redef]
        """`data` goes to `dest_rank`; not an array, so it must be held by a DistributedSendRefHolder."""

        data: PytatoArray
        dest_rank: int
        comm_tag: Hashable
        tags: frozenset[Tag]

    class DistributedSendRefHolder(Array):  # type: ignore[no-redef,misc]
        """`passthrough_data`, keeping `send` in the DAG."""

        _fields = ("send", "passthrough_data")
        _mapper_method = "map_distributed_send_ref_holder"

        def __init__(self, send: DistributedSend, passthrough_data: PytatoArray) -> None:
            super().__init__(tags=passthrough_data.tags)
            self.send = send
            self.passthrough_data = passthrough_data

        @property
        def shape(self) -> Any:
            return self.passthrough_data.shape

        @property
        def dtype(self) -> Any:
            return self.passthrough_data.dtype

    class DistributedRecv(_SuppliedShapeAndDtypeMixin, Array):  # type: ignore[no-redef,misc]
        """What `src_rank` sends with an equal tag."""

        _fields = (*Array._fields, "src_rank", "comm_tag")
        _mapper_method = "map_distributed_recv"

        def __init__(self, src_rank: int, comm_tag: Hashable, shape: Any, dtype: Any, tags: frozenset[Tag]) -> None:
            super().__init__(shape=shape, dtype=dtype, tags=tags)
            self.src_rank = src_rank
            self.comm_tag = comm_tag

    class AllreduceNode(_SuppliedShapeAndDtypeMixin, Array):  # type: ignore[no-redef,misc]
        """The reduction of `operand` over all ranks."""

        _fields = (*Array._fields, "operand", "op")
        _mapper_method = "map_allreduce"

        def __init__(self, operand: PytatoArray, op: str, line: CreatedHere) -> None:
            super().__init__(shape=operand.shape, dtype=operand.dtype, tags=frozenset())
            self.operand = operand
            self.op = op
            self.line = line

    def _allreduce_node(x: PytatoArray, op: str, line: CreatedHere) -> PytatoArray:
        return AllreduceNode(x, op, line)


def make_distributed_send(
    sent_data: PytatoArray, dest_rank: int, comm_tag: Hashable, send_tags: frozenset[Tag] = frozenset()
) -> DistributedSend:
    """A send of `sent_data` to `dest_rank`; it takes part in a program only where it is stapled to an array."""
    tags = send_tags | {_users_line()}
    if compat.HAS_DISTRIBUTED:
        return pt.make_distributed_send(sent_data, dest_rank, comm_tag, tags)
    return DistributedSend(sent_data, int(dest_rank), comm_tag, tags)


def make_distributed_send_ref_holder(send: DistributedSend, passthrough_data: PytatoArray) -> PytatoArray:
    """`passthrough_data` itself, holding `send`."""
    if compat.HAS_DISTRIBUTED:
        return pt.make_distributed_send_ref_holder(send, passthrough_data)
    return DistributedSendRefHolder(send, passthrough_data)


def staple_distributed_send(
    sent_data: PytatoArray,
    dest_rank: int,
    comm_tag: Hashable,
    stapled_to: PytatoArray,
    *,
    send_tags: frozenset[Tag] = frozenset(),
) -> PytatoArray:
    """`stapled_to` itself; using it makes the program send `sent_data` to `dest_rank`."""
    return make_distributed_send_ref_holder(
        make_distributed_send(sent_data, dest_rank, comm_tag, send_tags), stapled_to
    )


def make_distributed_recv(
    src_rank: int,
    comm_tag: Hashable,
    shape: Any,
    dtype: Any,
    axes: Any = None,
    tags: frozenset[Tag] = frozenset(),
) -> PytatoArray:
    """The array of `shape` and `dtype` that `src_rank` sends with an equal `comm_tag`."""
    line = _users_line()
    shape = (shape,) if isinstance(shape, int | np.integer) else tuple(shape)
    if compat.HAS_DISTRIBUTED:
        node = pt.make_distributed_recv(src_rank, comm_tag, shape, dtype, axes, tags)
        return node.copy(non_equality_tags=node.non_equality_tags | {line})
    return DistributedRecv(int(src_rank), comm_tag, shape, np.dtype(dtype), tags | {line})


def line_of(tags: frozenset[Tag]) -> Where | None:
    return next((tag.where for tag in tags if isinstance(tag, CreatedHere)), None)


def recv_line(node: PytatoArray) -> Where | None:
    return line_of(node.tags | getattr(node, "non_equality_tags", frozenset()))


def allreduce(x: PytatoArray, op: str = "sum") -> PytatoArray:
    """`x` reduced elementwise over all ranks with `op` (sum, min, max); every rank gets the result.

    All ranks must call the same reductions in the same order. Raises ValueError for another operation.
    """
    if op not in ALLREDUCE_OPS:
        raise ValueError(f"allreduce knows {', '.join(ALLREDUCE_OPS)}, not {op!r}")
    if x.dtype.kind not in "iuf" and not (x.dtype.kind == "c" and op == "sum"):
        raise ValueError(f"allreduce({op!r}) is not defined for {x.dtype.name}")
    return _allreduce_node(x, op, _users_line())


def take(a: PytatoArray, indices: PytatoArray, axis: int = 0) -> PytatoArray:
    """`a` with axis `axis` replaced by the axes of the integer array `indices`, as `numpy.take`.

    Negative indices count from the end; indices past either end are the caller's error.
    """
    if not isinstance(indices, Array):
        indices = pt.make_data_wrapper(np.asarray(indices))
    if indices.dtype.kind not in "iu":
        raise ValueError(f"take needs integer indices, not {indices.dtype.name}")
    axis = range(a.ndim)[axis]
    before = tuple(Variable(f"_{i}") for i in range(axis))
    picked = tuple(Variable(f"_{axis + i}") for i in range(indices.ndim))
    after = tuple(Variable(f"_{i + indices.ndim}") for i in range(axis, a.ndim - 1))
    if compat.HAS_DISTRIBUTED:
        return a[(*(slice(None),) * axis, indices)]
    index = Subscript(Variable("_in1"), picked) if picked else Variable("_in1")
    return IndexLambda(
        Subscript(Variable("_in0"), (*before, index % a.shape[axis], *after)),
        shape=(*a.shape[:axis], *indices.shape, *a.shape[axis + 1 :]),
        dtype=a.dtype,
        bindings={"_in0": a, "_in1": indices},
    )


def array_input(
    name: str, shape: Any, dtype: Any, *, unit: str = "", doc: str = "", default: Any = None
) -> PytatoArray:
    """An input `name` (dots make nested paths), described by a unit, a sentence and a default value.

    The default must have the input's shape and convert to its dtype without loss of kind.
    """
    shape = (int(shape),) if isinstance(shape, int | np.integer) else tuple(int(n) for n in shape)
    dtype = np.dtype(dtype)
    if default is not None:
        default = np.asarray(default)
        if not np.can_cast(default.dtype, dtype, "same_kind"):
            raise ValueError(f"the default of input {name!r} is {default.dtype.name}, the input {dtype.name}")
        default = np.ascontiguousarray(np.broadcast_to(default.astype(dtype), shape)).reshape(shape)
    described = Described(name, unit, doc, default)
    identifier = name if name.isidentifier() else "_in_" + name.encode().hex()
    if compat.HAS_DISTRIBUTED:
        return pt.make_placeholder(identifier, shape, dtype, tags=frozenset({described}))
    return Placeholder(identifier, shape, dtype, tags=frozenset({described}))
