"""Loopy kernels inside a DAG: what `pytato.loopy.call_loopy` made, with sizes and argument layouts fixed."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
import pytato as pt
from loopy.symbolic import get_dependencies
from pytato.array import Array
from pytato.loopy import LoopyCallResult

from aotato.frontend.adapter.lower import UnsupportedNode
from aotato.frontend.ir import DTYPES, Shape
from aotato.frontend.opaque import Argument, Opaque

PytatoArray = Any

# OpenCL keeps no booleans in memory, and has arithmetic with halves on some devices only
_DTYPES = tuple(name for name in DTYPES if name not in ("bool", "float16"))


@dataclass(frozen=True)
class Call:
    """A call of `kernel` with an array for each of its inputs."""

    kernel: Opaque
    operands: tuple[PytatoArray, ...]


def is_call(node: PytatoArray) -> bool:
    return isinstance(node, LoopyCallResult)


def called(node: PytatoArray) -> Call:
    """The call that `node` is a result of. Raises UnsupportedNode with what is wrong with it."""
    call = node._container
    unit = call.translation_unit.with_entrypoints(call.entrypoint)
    sizes = _sizes(unit.default_entrypoint)
    arrays = sorted(name for name in sizes & set(call.bindings) if isinstance(call.bindings[name], Array))
    if arrays:
        raise UnsupportedNode(f"argument {arrays[0]!r} of loopy kernel {call.entrypoint!r} sets sizes or loop bounds, "
                              "which must be known at build time: give it a number")
    numbers = tuple(sorted((name, int(call.bindings[name])) for name in sizes & set(call.bindings)))
    kernel = _opaque(unit, numbers)
    return Call(kernel, tuple(_operand(call.bindings, argument) for argument in kernel.inputs))


def _operand(bindings: Mapping[str, Any], argument: Argument) -> PytatoArray:
    value = bindings[argument.name]
    if isinstance(value, Array):
        return value
    number = np.asarray(value)
    return pt.make_data_wrapper(number.astype(argument.dtype) if _converts(number, argument) else number)


def _converts(number: Any, argument: Argument) -> bool:
    return np.can_cast(number.dtype, argument.dtype, "same_kind")


@functools.lru_cache(maxsize=256)
def _opaque(unit: Any, numbers: tuple[tuple[str, int], ...]) -> Opaque:
    """The kernel with `numbers` put in, for C-ordered arrays; equal ones of all ranks are one."""
    # Only in the entrypoint: kernels that it calls may have parameters of the same names
    fixed: Any = dict(numbers)
    kernel = lp.fix_parameters(unit.default_entrypoint, **fixed)
    arguments = [_plain(kernel.name, argument) for argument in kernel.args]
    unit = unit.with_kernel(kernel.copy(args=arguments)).copy(target=lp.PyOpenCLTarget())
    used = kernel.get_read_variables() | kernel.get_written_variables()
    described = [_described(kernel.name, argument) for argument in arguments if argument.name in used]
    outputs = {argument.name for argument in arguments if argument.is_output}
    inputs = tuple(argument for argument in described if argument.name not in outputs)
    return Opaque(unit, inputs, tuple(argument for argument in described if argument.name in outputs))


def _sizes(kernel: Any) -> set[str]:
    """Names that domains and shapes depend on."""
    found = {name for domain in kernel.domains for name in domain.get_var_names(isl.dim_type.param)}
    for array in (*kernel.args, *kernel.temporary_variables.values()):
        if isinstance(getattr(array, "shape", None), tuple):
            found |= {name for extent in array.shape for name in get_dependencies(extent)}
    return found


def _plain(kernel: str, argument: Any) -> Any:
    """An array in C order: pytato's arrays are values, their layout in memory is ours."""
    if isinstance(argument, lp.ValueArg):
        return argument
    if not isinstance(argument, lp.ArrayArg | lp.ConstantArg):
        raise UnsupportedNode(f"argument {argument.name!r} of loopy kernel {kernel!r} is a {type(argument).__name__}")
    shape = argument.shape
    if not isinstance(shape, tuple) or not all(isinstance(extent, int | np.integer) for extent in shape):
        raise UnsupportedNode(f"argument {argument.name!r} of loopy kernel {kernel!r} has no shape that is known at "
                              "build time")
    return lp.GlobalArg(argument.name, argument.dtype, shape=tuple(map(int, shape)), order="C",
                        is_input=argument.is_input, is_output=argument.is_output)


def _described(kernel: str, argument: Any) -> Argument:
    dtype = getattr(argument.dtype, "numpy_dtype", None)
    if dtype is None or dtype.name not in _DTYPES:
        raise UnsupportedNode(f"argument {argument.name!r} of loopy kernel {kernel!r} has dtype {argument.dtype}; "
                              f"expected one of {', '.join(_DTYPES)}")
    shape: Shape = () if isinstance(argument, lp.ValueArg) else argument.shape
    return Argument(argument.name, shape, np.dtype(dtype.name))
