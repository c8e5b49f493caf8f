"""One pytato node at a time becomes an index lambda, and its expression becomes ours."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pymbolic.primitives as prim
from pytato.array import DataWrapper, IndexLambda

from aotato.frontend import expr as ex
from aotato.frontend.adapter import compat
from aotato.frontend.adapter.device_data import on_host

PytatoArray = Any

_FUNCTION_PREFIX = "pytato.c99."
_OP_NAMES = {
    "SumReductionOperation": "sum",
    "ProductReductionOperation": "product",
    "MaxReductionOperation": "max",
    "MinReductionOperation": "min",
    "AllReductionOperation": "all",
    "AnyReductionOperation": "any",
}


class UnsupportedNode(Exception):
    """A pytato node that aotato cannot lower. The message names the node and its type."""


@dataclass(frozen=True)
class Lowered:
    """An index lambda: `expr` reads `operands[k]` as `a{k}`; operands stand in order of first appearance."""

    expr: ex.Expr
    operands: tuple[PytatoArray, ...]
    unread: tuple[PytatoArray, ...]  # bound but never read: they may still hold sends


def index_lambda(node: PytatoArray) -> PytatoArray:
    """`node` as a pytato IndexLambda whose bindings are the node's own operands."""
    if isinstance(node, IndexLambda):
        return node
    try:
        with warnings.catch_warnings():
            # `Variable[()]` will be a Subscript instead of the Variable: either is understood here
            warnings.simplefilter("ignore", DeprecationWarning)
            lowered = _pytatos_lowering(node)
    except Exception as error:
        raise _refused(node, error) from error
    if not isinstance(lowered, IndexLambda):
        raise UnsupportedNode(f"pytato node {type(node).__name__} is not supported")
    return lowered


def _pytatos_lowering(node: PytatoArray) -> PytatoArray:
    """An IndexLambda, or something else for a node that has none."""
    if compat.HAS_LOWERING:
        from pytato.diagnostic import CannotBeLoweredToIndexLambda
        from pytato.transform.lower_to_index_lambda import to_index_lambda

        try:
            return to_index_lambda(node)
        except CannotBeLoweredToIndexLambda:
            return None
    method = getattr(_OneNode(), getattr(node, "_mapper_method", ""), None)
    return method and method(node)


def _refused(node: PytatoArray, error: Exception) -> UnsupportedNode:
    why = f"{type(error).__name__}: {error}".removesuffix(": ")
    return UnsupportedNode(f"pytato cannot lower its own node {type(node).__name__} ({why})")


if not compat.HAS_LOWERING:
    from pytato.codegen import CodeGenPreprocessor

    class _OneNode(CodeGenPreprocessor):  # type: ignore[misc]
        """pytato 2021.2's lowering, stopped at the node's operands."""

        def __init__(self) -> None:
            super().__init__(target=None)

        def rec(self, node: PytatoArray) -> PytatoArray:
            return node

        def map_reshape(self, node: PytatoArray) -> PytatoArray:
            """pytato's, which takes 0-dimensional arrays for 1-dimensional ones."""
            array = node.array
            if node.shape and array.shape:
                return super().map_reshape(node)
            element = prim.Variable("_in0")[(0,) * array.ndim] if array.ndim else prim.Variable("_in0")
            return IndexLambda(element, node.shape, array.dtype, {"_in0": array})


def lower(node: PytatoArray) -> Lowered:
    """The expression of `node` and the arrays it reads."""
    lam = index_lambda(node)
    conversion = _Conversion(lam.bindings, np.dtype(lam.dtype))
    expr = conversion.convert(lam.expr)
    if lam is node and _is_logical_not(node, expr):
        expr = prim.LogicalNot(expr)
    read = tuple(lam.bindings[name] for name in conversion.names)
    unread = tuple(lam.bindings[name] for name in sorted(lam.bindings) if name not in conversion.names)
    return Lowered(expr, read, unread)


def _is_logical_not(node: PytatoArray, expr: ex.Expr) -> bool:
    """Whether pytato 2021.2's `logical_not` made `node`: it writes its operand, and bool8 as dtype, nothing else."""
    if compat.HAS_LOWERING or not compat.says_bool8(node.dtype) or list(node.bindings) != ["_in0"]:
        return False
    return expr == ex.read(0, ex.own_index(node.ndim)) and node.dtype is not node.bindings["_in0"].dtype


class _Conversion:
    """State of one conversion: bindings in order of first appearance, fresh reduction indices."""

    def __init__(self, bindings: Mapping[str, PytatoArray], dtype: np.dtype[Any]) -> None:
        self.bindings, self.dtype = bindings, dtype
        self.names: list[str] = []
        self.reductions = 0
        self.renamed: dict[str, str] = {}

    def convert(self, expr: Any) -> ex.Expr:
        match expr:
            case prim.Variable():
                return self._variable(expr.name)
            case prim.Subscript():
                position = self._position(expr.aggregate.name)
                return ex.read(position, tuple(self.convert(i) for i in expr.index_tuple))
            case prim.Call() if expr.function.name.rpartition(".")[2] == "zero":
                return 0
            case prim.Call():
                return prim.Call(prim.Variable(_function(expr.function)), tuple(map(self.convert, expr.parameters)))
            case prim.NaN():
                return (expr.data_type or np.float64)(np.nan)
        if hasattr(expr, "inner_expr"):
            return self._pytato_node(expr)
        if ex.is_leaf(expr):
            return expr.item() if isinstance(expr, np.bool_) else expr
        try:
            parts = ex.children(expr)
        except AssertionError:
            raise UnsupportedNode(f"expression node {type(expr).__name__} is not supported") from None
        return ex.with_children(expr, tuple(self.convert(part) for part in parts))

    def _variable(self, name: str) -> ex.Expr:
        if name in self.bindings:
            return ex.read(self._position(name), ())
        return prim.Variable(self.renamed.get(name, name))

    def _position(self, name: str) -> int:
        array = self.bindings[name]
        for position, known in enumerate(self.names):
            if self.bindings[known] is array:
                return position
        self.names.append(name)
        return len(self.names) - 1

    def _pytato_node(self, expr: Any) -> ex.Expr:
        """pytato's Reduce and TypeCast."""
        if not hasattr(expr, "bounds"):
            return ex.Cast(np.dtype(expr.dtype), self.convert(expr.inner_expr))
        op = expr.op if isinstance(expr.op, str) else _OP_NAMES.get(type(expr.op).__name__)
        if op not in ex.REDUCE_OPS:
            raise UnsupportedNode(f"reduction {expr.op!r} is not supported")
        bounds, masks, starts = [], [], {}
        for name, (lower, upper) in _in_order(expr.bounds):
            self.renamed[name] = f"_r{self.reductions}"
            self.reductions += 1
            index = prim.Variable(self.renamed[name])
            if isinstance(lower, int | np.integer) and isinstance(upper, int | np.integer):
                bounds.append((index.name, int(lower), int(upper)))
                continue
            start, end = self.convert(lower), self.convert(upper)
            bounds.append((index.name, 0, self._longest(name, lower, upper)))
            starts[index.name] = start + index
            masks.append(prim.Comparison(start + index, "<", end))
        if op in ("min", "max") and any(upper <= lower for _, lower, upper in bounds):
            return self._nothing(op)
        body = self.convert(expr.inner_expr)
        for name, shifted in starts.items():
            body = ex.substitute(body, {name: shifted})
        for mask in masks:
            if op != "sum":
                raise UnsupportedNode(f"a {op} whose bounds are arrays is not supported")
            body = prim.If(mask, body, 0)
        return ex.Reduce(op, tuple(bounds), body)

    def _longest(self, name: str, lower: Any, upper: Any) -> int:
        """The most terms of a reduction from `a[i]` to `a[i + 1]`, constant `a`: the rows of a sparse matrix."""
        match lower, upper:
            case prim.Subscript(), prim.Subscript() if lower.aggregate == upper.aggregate:
                array = self.bindings[lower.aggregate.name]
                if isinstance(array, DataWrapper) and array.ndim == 1 and upper.index == (lower.index[0] + 1,):
                    return int(np.diff(on_host(array.data)).max(initial=0))
        raise UnsupportedNode(f"reduction over {name} has bounds that are not known at build time")

    def _nothing(self, op: str) -> ex.Expr:
        """A minimum or maximum over no elements: main allows it with the neutral element as `initial` only."""
        if not compat.HAS_LOWERING:
            return ex.Reduce(op, (("_r0", 0, 0),), 0)
        if self.dtype.kind == "f":
            return self.dtype.type(np.inf if op == "min" else -np.inf)
        info = np.iinfo(self.dtype)
        return self.dtype.type(info.max if op == "min" else info.min)


def _in_order(bounds: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Reduction bounds in the order of their numbers: the two pytatos keep them in mappings of another order."""
    return sorted(bounds.items(), key=lambda item: (len(item[0]), item[0]))


def _function(function: Any) -> str:
    name = function.name.removeprefix(_FUNCTION_PREFIX)
    if name not in ex.FUNCTIONS:
        raise UnsupportedNode(f"function {name!r} is not supported")
    return str(name)
