"""Walk the pytato DAGs of all ranks once and write them down as Programs."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymbolic.primitives as prim
from pytato.array import DataWrapper, NamedArray, Placeholder, SizeParam

from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.adapter import calls, loopy_calls
from aotato.frontend.adapter.device_data import on_host
from aotato.frontend.adapter.errors import TraceError
from aotato.frontend.adapter.lower import UnsupportedNode, lower
from aotato.frontend.adapter.nodes import (
    AllreduceNode,
    Described,
    DistributedRecv,
    DistributedSendRefHolder,
    line_of,
    recv_line,
)
from aotato.frontend.adapter.paths import PytatoArray, flatten
from aotato.frontend.compacted import compacted
from aotato.frontend.constants import digest
from aotato.frontend.dtypes import dtype_of, make_explicit
from aotato.frontend.normalise import normalise
from aotato.frontend.opaque import Opaque
from aotato.frontend.text import expr_text


@dataclass(frozen=True)
class InputFacts:
    """What is known of an input on one rank beside its shape and dtype."""

    unit: str
    doc: str
    default: np.ndarray[Any, Any] | None


@dataclass(frozen=True)
class Traced:
    """An entry on all ranks, and per rank the facts of its inputs by path."""

    programs: ir.Programs
    inputs: tuple[Mapping[str, InputFacts], ...]


def trace(entry: str, ranks: int, function: Callable[[int], Any]) -> Traced:
    """Call `function(rank)` for every rank and translate what it returns, a nest of pytato arrays."""
    tags = _Tags(entry)
    tracers = [_Tracer(entry, rank, tags) for rank in range(ranks)]
    programs = tuple(tracer.program(dict(flatten(function(tracer.rank), entry))) for tracer in tracers)
    return Traced(ir.Programs(entry, programs, tuple(tags.texts)), tuple(tracer.facts for tracer in tracers))


class _Tags:
    """Communication tags of all ranks, numbered by first appearance; compared by equality only."""

    def __init__(self, entry: str) -> None:
        self.entry = entry
        self.numbers: dict[Hashable, int] = {}
        self.texts: list[str] = []

    def number(self, tag: Hashable) -> int:
        try:
            known = self.numbers.get(tag)
        except TypeError:
            raise TraceError(
                f"the communication tag {tag!r} of entry {self.entry!r} is not hashable; use a number, text or tuple"
            ) from None
        if known is None:
            known = self.numbers[tag] = len(self.texts)
            self.texts.append(tag.__name__ if isinstance(tag, type) else repr(tag))
        return known


class _Tracer:
    """One rank's walk: nodes met by identity, then merged by value."""

    def __init__(self, entry: str, rank: int, tags: _Tags) -> None:
        self.entry, self.rank, self.tags = entry, rank, tags
        self.arrays: dict[str, ir.Node] = {}
        self.constants: dict[str, np.ndarray[Any, Any]] = {}
        self.kernels: dict[str, Opaque] = {}
        self.facts: dict[str, InputFacts] = {}
        self.sends: dict[tuple[int, int, str], ir.Send] = {}
        self.names: dict[int, str] = {}  # id(pytato node) -> name
        self.keep: list[PytatoArray] = []  # ids stay valid while the nodes live
        self.known: dict[Any, str] = {}

    def program(self, outputs: Mapping[str, PytatoArray]) -> ir.Program:
        for path in sorted(outputs):
            self.visit(outputs[path])
        named = tuple(ir.Output(path, self.names[id(outputs[path])]) for path in sorted(outputs))
        sends = tuple(self.sends[key] for key in sorted(self.sends))
        return compacted(ir.Program(self.entry, self.rank, self.arrays, sends, named, self.constants, self.kernels))

    def visit(self, root: PytatoArray) -> None:
        """Depth first without recursion: DAGs are deeper than Python's stack."""
        stack: list[tuple[PytatoArray, Any]] = [(root, None)]
        while stack:
            node, lowered = stack.pop()
            if id(node) in self.names:
                continue
            if lowered is None:
                lowered, before = self._expand(node)
                stack.append((node, lowered))
                stack.extend((child, None) for child in reversed(before) if id(child) not in self.names)
            else:
                self.keep.append(node)
                self.names[id(node)] = self._define(node, lowered)

    def _expand(self, node: PytatoArray) -> tuple[Any, tuple[PytatoArray, ...]]:
        """What `_define` will need, and the nodes that must be defined first."""
        match node:
            case Placeholder() | DataWrapper() | DistributedRecv():
                return (), ()
            case DistributedSendRefHolder():
                return (), (node.passthrough_data, node.send.data)
            case AllreduceNode():
                return (), (node.operand,)
            case SizeParam():
                raise TraceError(f"size parameter {node.name!r}: array sizes must be known at build time")
            case NamedArray() if hasattr(node._container, "_data"):
                return node.expr, (node.expr,)
            case NamedArray() if calls.is_call(node):
                array = calls.inlined(node)
                return array, (array,)
            case NamedArray() if loopy_calls.is_call(node):
                try:
                    call = loopy_calls.called(node)
                except UnsupportedNode as error:
                    raise self._mistake(node, str(error)) from None
                return call, call.operands
        for extent in self._shape(node):
            if not isinstance(extent, int | np.integer):
                kind = type(node).__name__
                raise TraceError(f"a {kind} has a symbolic size; array sizes must be known at build time")
        try:
            lowered = lower(node)
        except UnsupportedNode as error:
            raise self._mistake(node, str(error)) from None
        return lowered, (*lowered.operands, *lowered.unread)

    def _define(self, node: PytatoArray, lowered: Any) -> str:
        if isinstance(lowered, loopy_calls.Call):
            return self._call(node, lowered)
        shape = tuple(int(n) for n in node.shape)
        match node:
            case Placeholder():
                return self._input(node, shape)
            case DataWrapper():
                return self._constant(node.data, self._dtype(node))
            case DistributedRecv():
                tag = self.tags.number(node.comm_tag)
                return self._add(ir.Recv(int(node.src_rank), tag, shape, self._dtype(node), recv_line(node)))
            case DistributedSendRefHolder():
                self._send(node.send)
                return self.names[id(node.passthrough_data)]
            case AllreduceNode():
                operand = self.names[id(node.operand)]
                return self._add(ir.Allreduce(operand, node.op, shape, self._dtype(node), node.line.where))
            case NamedArray() if hasattr(node._container, "_data") or calls.is_call(node):
                return self.names[id(lowered)]
        return self._lambda(node, lowered, shape)

    def _mistake(self, node: PytatoArray, what: str) -> TraceError:
        line = line_of(node.tags)
        where = f" ({line})" if line else ""
        return TraceError(f"entry {self.entry!r} on rank {self.rank}: a pytato {type(node).__name__}{where}: {what}")

    def _shape(self, node: PytatoArray) -> Any:
        try:
            return node.shape
        except Exception as error:
            raise self._mistake(node, f"pytato gives it no shape ({type(error).__name__}: {error})") from error

    def _dtype(self, node: PytatoArray) -> ir.DType:
        """The declared dtype without byte order and metadata."""
        dtype: np.dtype[Any] = np.dtype(node.dtype)
        if dtype.name not in ir.DTYPES:
            raise self._mistake(node, f"dtype {dtype} is none of {', '.join(ir.DTYPES)}")
        return np.dtype(dtype.name)

    def _lambda(self, node: PytatoArray, lowered: Any, shape: ir.Shape) -> str:
        names = [self.names[id(operand)] for operand in lowered.operands]
        dtype = self._dtype(node)
        try:
            dtypes = [self.arrays[name].dtype for name in names]
            _check_negation(lowered.expr, dtypes, dtype)
            _check_nothing(lowered.expr, shape)
            expr = make_explicit(lowered.expr, dtypes, dtype)
        except (OverflowError, TypeError, ValueError) as error:
            raise self._mistake(node, f"numpy has no such operation: {error}") from None
        expr, operands = normalise(expr, names, shape)
        if _is_own_read(expr, shape, self.arrays[operands[0]] if operands else None) and not _is_stored(node.tags):
            return operands[0]
        return self._add(ir.Lambda(expr, operands, shape, dtype, _is_stored(node.tags)))

    def _call(self, node: PytatoArray, call: loopy_calls.Call) -> str:
        """The result of a loopy kernel, whose arguments are converted to the dtypes that it declares."""
        kernel = call.kernel
        key = kernel.digest
        self.kernels[key] = kernel
        names = []
        for argument, operand in zip(kernel.inputs, call.operands, strict=True):
            name = self.names[id(operand)]
            given = self.arrays[name]
            if given.shape != argument.shape or not np.can_cast(given.dtype, argument.dtype, "same_kind"):
                wanted = f"{argument.dtype.name}[{','.join(map(str, argument.shape))}]"
                raise self._mistake(node, f"argument {argument.name!r} of loopy kernel {kernel.name!r} is {wanted}, "
                                          f"but it is given {ir.type_text(given)}")
            names.append(self._converted(name, argument.dtype))
        result = next(result for result in kernel.results if result.name == node.name)
        return self._add(ir.LoopyCall(key, result.name, tuple(names), result.shape, result.dtype))

    def _converted(self, name: str, dtype: ir.DType) -> str:
        node = self.arrays[name]
        if node.dtype == dtype:
            return name
        read = ex.read(0, ex.own_index(len(node.shape)))
        return self._add(ir.Lambda(make_explicit(read, [node.dtype], dtype), (name,), node.shape, dtype))

    def _input(self, node: PytatoArray, shape: ir.Shape) -> str:
        if node.name is None:
            raise TraceError(f"entry {self.entry!r} reads a placeholder without a name; give it one")
        described = next((tag for tag in node.tags if isinstance(tag, Described)), None)
        path = described.path if described else node.name
        wanted = ir.Input(path, shape, self._dtype(node))
        for name, known in self.arrays.items():
            if isinstance(known, ir.Input) and known.path == path and known != wanted:
                raise TraceError(
                    f"entry {self.entry!r} on rank {self.rank} reads input {path!r} as {ir.type_text(known)} "
                    f"(array {name}) and as {ir.type_text(wanted)}; one input has one shape and dtype"
                )
        if path not in self.facts or described:
            facts = (described.unit, described.doc, described.default) if described else ("", "", None)
            self.facts[path] = InputFacts(*facts)
        return self._add(wanted)

    def _constant(self, data: Any, dtype: Any) -> str:
        array = np.array(on_host(data), dtype=dtype, order="C", copy=True)
        array.setflags(write=False)
        key = digest(array)
        self.constants[key] = array
        return self._add(ir.Const(key, array.shape, array.dtype))

    def _send(self, send: Any) -> None:
        array, tag = self.names[id(send.data)], self.tags.number(send.comm_tag)
        new = ir.Send(array, int(send.dest_rank), tag, line_of(send.tags))
        self.sends.setdefault((new.dest, new.tag, new.array), new)

    def _add(self, node: ir.Node) -> str:
        """The name of `node`, which is new only if no equal node is there."""
        key: Any = node
        if isinstance(node, ir.Lambda):
            key = (expr_text(node.expr), node.operands, node.shape, node.dtype, node.stored)
        if key not in self.known:
            self.known[key] = f"v{len(self.arrays)}"
            self.arrays[self.known[key]] = node
        return self.known[key]


def _check_negation(expr: Any, dtypes: list[ir.DType], dtype: ir.DType) -> None:
    """Raise TypeError for -x and x - y of booleans, whose -1 * x would be a number."""
    terms = expr.children if isinstance(expr, prim.Sum) else (expr,)
    for term in terms if dtype == np.bool_ else ():
        if ex.is_negation(term) and dtype_of(term.children[1], dtypes) == np.bool_:
            raise TypeError("a boolean has no negative, and two of them no difference; use logical_not or ^")


def _check_nothing(expr: Any, shape: ir.Shape) -> None:
    """Raise ValueError for a minimum or maximum over no elements that no condition guards."""
    if not ir.size(shape) or isinstance(expr, prim.If):
        return
    if isinstance(expr, ex.Reduce) and expr.op in ("min", "max") and any(up <= low for _, low, up in expr.bounds):
        raise ValueError(f"{expr.op} over no elements")
    for child in ex.children(expr):
        _check_nothing(child, shape)


def _is_own_read(expr: Any, shape: ir.Shape, operand: ir.Node | None) -> bool:
    """Whether the lambda is its operand, element for element."""
    return operand is not None and shape == operand.shape and expr == ex.read(0, ex.own_index(len(shape)))


def _is_stored(tags: Any) -> bool:
    """Whether the user tagged the array as stored, in the spelling of either pytato."""
    names = {type(tag).__name__ for tag in tags}
    names |= {type(tag.strategy).__name__ for tag in tags if hasattr(tag, "strategy")}
    return "ImplStored" in names
