"""loopy's OpenCL target, made to keep the order of additions and multiplications that the IR states."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Any

import cgen
import islpy as isl
import loopy as lp
import numpy as np
import pymbolic.primitives as prim
from loopy.target.c.codegen.expression import CExpressionToCodeMapper
from loopy.target.opencl import OpenCLCASTBuilder
from loopy.target.pyopencl import PyOpenCLCASTBuilder
from pymbolic.mapper.stringifier import PREC_PRODUCT, PREC_SUM

if not hasattr(isl.Aff, "is_equal"):
    # loopy 2025.2 asks it for loop bounds that are the smaller of two; islpy 2026 has it under another name only
    isl.Aff.is_equal = isl.Aff.plain_is_equal  # type: ignore[attr-defined]


class _Ordered(CExpressionToCodeMapper):
    """loopy prints `a + (b + c)` without the parentheses, which is another sum in floating point."""

    def map_sum(self, expr: prim.Sum, enclosing_prec: int) -> str:
        text = self.rec(expr.children[0], PREC_SUM)
        for child in expr.children[1:]:
            negated = _negated(child)
            if negated is None:
                text += " + " + self.rec(child, PREC_SUM + 1)
            else:
                text += " - " + self.rec(negated, PREC_PRODUCT)
        return str(self.parenthesize_if_needed(text, enclosing_prec, PREC_SUM))

    def map_product(self, expr: prim.Product, enclosing_prec: int) -> str:
        first = self.rec(expr.children[0], PREC_PRODUCT)
        rest = [self.rec(child, PREC_PRODUCT + 1) for child in expr.children[1:]]
        return str(self.parenthesize_if_needed(" * ".join([first, *rest]), enclosing_prec, PREC_PRODUCT))


def _negated(expr: Any) -> Any:
    """`x` where `expr` is -1 times x: x is subtracted, which rounds the same."""
    if isinstance(expr, prim.Product) and len(expr.children) == 2 and not isinstance(expr.children[1], prim.Product):
        first = expr.children[0]
        literal = getattr(first, "s", first)
        if (isinstance(literal, int | float | np.number) and literal == -1) or literal in ("-1.0", "-1.0f", "-1"):
            return expr.children[1]
    return None


_ELEMENTS = re.compile(r"e\d+")  # inames of loops over the elements of a block: no element needs another's results
_VECTORS = cgen.Pragma("clang loop vectorize(assume_safety) interleave(disable)")


# Compilers ask in several passes; where one cannot, a later one does, and its warning would reach the user
_QUIET = '#pragma clang diagnostic ignored "-Wpass-failed"\n'


def quiet(text: str) -> str:
    """`text` without warnings about loops that did not become vectors."""
    return _QUIET + text if _VECTORS.value in text else text


class _Hints:
    """Which loops compilers turn into vectors, once told that they may, and how often others are to be unrolled."""

    def emit_sequential_loop(
        self, codegen_state: Any, iname: str, iname_dtype: Any, lbound: Any, ubound: Any, inner: Any, hints: Any
    ) -> Any:
        hints = [_VECTORS, *hints] if _ELEMENTS.fullmatch(iname) else hints
        return super().emit_sequential_loop(  # type: ignore[misc]
            codegen_state, iname, iname_dtype, lbound, ubound, inner, hints
        )

    def emit_unroll_hint(self, value: int) -> Any:
        """In words that compilers of OpenCL C 1.2 know, too."""
        return cgen.Pragma(f"unroll {value}")


class _Builder(_Hints, OpenCLCASTBuilder):
    def get_c_expression_to_code_mapper(self) -> _Ordered:
        return _Ordered()


class _ComplexBuilder(_Hints, PyOpenCLCASTBuilder):
    def get_c_expression_to_code_mapper(self) -> _Ordered:
        return _Ordered()


# loopy keeps code on disk, by kernel and target: code of another version of this file must not be found
_SELF = hashlib.sha256(Path(__file__).read_bytes()).hexdigest()


class Target(lp.OpenCLTarget):
    """OpenCL C without host code."""

    hash_fields = (*lp.OpenCLTarget.hash_fields, "dialect")
    comparison_fields = (*lp.OpenCLTarget.comparison_fields, "dialect")
    dialect = _SELF

    def get_device_ast_builder(self) -> _Builder:
        return _Builder(self)


class ComplexTarget(lp.PyOpenCLTarget):
    """OpenCL C with pyopencl's complex arithmetic, which its compiler call finds by itself."""

    hash_fields = (*lp.PyOpenCLTarget.hash_fields, "dialect")
    comparison_fields = (*lp.PyOpenCLTarget.comparison_fields, "dialect")
    dialect = _SELF

    def get_device_ast_builder(self) -> _ComplexBuilder:
        return _ComplexBuilder(self)
