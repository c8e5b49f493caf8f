"""Write a loopy kernel that a program calls: one launch, or one for each piece that its global barriers cut it into."""

from __future__ import annotations

import hashlib
import re
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import loopy as lp
import numpy as np
from loopy.codegen.result import process_preambles
from loopy.schedule import CallKernel, EnterLoop, ReturnFromKernel, get_insn_ids_for_block_at, linearize
from loopy.schedule.tools import get_subkernel_arg_info
from loopy.transform.callable import rename_callable

from aotato.emit.names import Place
from aotato.emit.nest import Call
from aotato.emit.opencl import CONTRACT_OFF
from aotato.emit.target import Target, TargetError
from aotato.frontend import ir
from aotato.frontend.opaque import Opaque
from aotato.runtime_stub import schedule as sch

_NAME = "aotato_kernel"


@dataclass(frozen=True)
class _Piece:
    """One device kernel: its text, in which it is called _NAME, and what to pass and launch."""

    text: str
    arguments: tuple[tuple[str, str], ...]  # name in the loopy kernel, "r" or "w"
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]


@dataclass(frozen=True)
class _Written:
    """A whole kernel. `scratch` are the bytes of arrays in global memory that it has for itself."""

    pieces: tuple[_Piece, ...]
    scratch: Mapping[str, int]
    local_bytes: int


@dataclass(frozen=True)
class Launched:
    """A call: launches, sources by digest, and temporaries of its own."""

    launches: tuple[sch.Launch, ...]
    texts: Mapping[str, str]
    scratch: tuple[sch.Buffer, ...]


def launched(
    call: Call, program: ir.Program, home: Mapping[str, Place], target: Target, contract: bool, cache: dict[Any, Any]
) -> Launched:
    """Where all arrays lie is known from `home`. Raises TargetError if the call cannot be written."""
    if not any(ir.size(program.arrays[array].shape) for array in call.writes):
        return Launched((), {}, ())
    passed = [*zip(call.kernel.inputs, call.reads, strict=True), *zip(call.kernel.results, call.results, strict=True)]
    places = {argument.name: home[array] for argument, array in passed if array}
    written = _written(call.kernel, places, contract, cache)
    if written.local_bytes > target.local_bytes:
        raise TargetError(f"loopy kernel {call.kernel.name!r} needs {written.local_bytes} bytes of local memory, but "
                          f"target {target.name!r} has {target.local_bytes}")
    sizes = {a.name: ir.size(a.shape) * a.dtype.itemsize for a, _ in passed} | dict(written.scratch)
    dtypes = {argument.name: argument.dtype.name for argument, _ in passed}
    own = [name for name in sizes if name not in places]
    scratch = {name: sch.Buffer(f"temporary:{call.writes[0]}.{name}", "temporary", sizes[name]) for name in own}
    launches, texts = [], {}
    for piece in written.pieces:
        moved = {mode: sum(sizes[name] for name, m in piece.arguments if m == mode and not _by_value(places, name))
                 for mode in "rw"}
        digest = hashlib.sha256(piece.text.encode()).hexdigest()
        arguments = tuple(
            _argument(places.get(name) or Place(scratch[name].name), dtypes.get(name, "uint8"), mode)
            for name, mode in piece.arguments
        )
        launches.append(sch.Launch(digest, call.name, call.part, arguments, piece.global_size, piece.local_size,
                                   moved["r"], moved["w"], 0, written.local_bytes))
        texts[digest] = piece.text.replace(_NAME, f"aotato_{digest[:12]}")
    used = {argument.buffer for launch in launches for argument in launch.arguments}
    return Launched(tuple(launches), texts, tuple(buffer for buffer in scratch.values() if buffer.name in used))


def _by_value(places: Mapping[str, Place], name: str) -> bool:
    return name in places and places[name].by_value


def _argument(place: Place, dtype: str, mode: str) -> sch.Argument:
    element = place.offset // np.dtype(dtype).itemsize if place.by_value else 0
    return sch.Argument(place.buffer, dtype, mode, place.by_value, element)


def _written(kernel: Opaque, places: Mapping[str, Place], contract: bool, cache: dict[Any, Any]) -> _Written:
    key = (kernel.digest, tuple((name, p.offset, p.by_value) for name, p in sorted(places.items())), contract)
    if key not in cache:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # loopy's remarks are for the kernel's author, who makes it elsewhere
                cache[key] = _code(kernel, places, contract)
        except TargetError:
            raise
        except Exception as error:
            why = f"{type(error).__name__}: {error}"
            raise TargetError(f"loopy cannot write its kernel {kernel.name!r}: {why}") from error
    found: _Written = cache[key]
    return found


def _code(kernel: Opaque, places: Mapping[str, Place], contract: bool) -> _Written:
    own = kernel.unit.default_entrypoint
    unit = kernel.unit.with_kernel(own.copy(args=[_placed(argument, places) for argument in own.args]))
    unit = linearize(lp.infer_unknown_types(lp.preprocess_program(rename_callable(unit, own.name, _NAME)), True))
    entry: Any = unit.default_entrypoint
    _check_host(kernel, entry)
    code: Any = lp.generate_code_v2(unit)
    head = ("" if contract else CONTRACT_OFF + "\n") + "".join(process_preambles(code.device_preambles))
    calls = {item.kernel_name: at for at, item in enumerate(entry.linearization) if isinstance(item, CallKernel)}
    # Functions that the kernel calls stand in the text of every piece
    shared = [str(made.ast) for made in code.device_programs if made.name not in calls]
    pieces: list[_Piece] = []
    scratch: dict[str, int] = {}
    for made in code.device_programs:
        if made.name not in calls:
            continue
        info = get_subkernel_arg_info(entry, made.name)
        scratch |= {name: _nbytes(entry.temporary_variables[name]) for name in info.passed_temporaries}
        text = "\n".join((head, *shared, re.sub(rf"\b{made.name}\b", _NAME, str(made.ast)))) + "\n"
        arguments = tuple((name, "w" if name in info.written_names else "r") for name in info.passed_names)
        groups, lanes = _sizes(unit, entry, calls[made.name])
        if all(groups):
            whole = tuple(n * m for n, m in zip(groups, lanes, strict=True))
            pieces.append(_Piece(text, arguments, whole, lanes))
    local = [v for v in entry.temporary_variables.values() if v.address_space == lp.AddressSpace.LOCAL]
    return _Written(tuple(pieces), scratch, sum(map(_nbytes, local)))


def _placed(argument: Any, places: Mapping[str, Place]) -> Any:
    """The argument as it will be passed: scalars that lie in device memory as 0-dimensional arrays."""
    place = places.get(argument.name)
    if place is None:
        return argument
    if place.by_value:
        return lp.ValueArg(argument.name, argument.dtype)
    offset = place.offset // argument.dtype.numpy_dtype.itemsize
    if isinstance(argument, lp.ValueArg):
        return lp.GlobalArg(argument.name, argument.dtype, shape=(), offset=offset, is_input=True, is_output=False)
    return argument.copy(offset=offset)


def _check_host(kernel: Opaque, entry: Any) -> None:
    """Raise TargetError if the host would have to loop over launches."""
    inside = False
    for item in entry.linearization:
        if isinstance(item, EnterLoop) and not inside:
            raise TargetError(f"loopy kernel {kernel.name!r} has a global barrier inside the loop over {item.iname!r}; "
                              "unroll that loop")
        inside = isinstance(item, CallKernel) or (inside and not isinstance(item, ReturnFromKernel))


def _sizes(unit: Any, entry: Any, at: int) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Groups, and work-items of a group, along equally many axes, of the device kernel that the schedule calls at."""
    instructions = get_insn_ids_for_block_at(entry.linearization, at)
    sizes = [tuple(map(int, n)) for n in entry.get_grid_sizes_for_insn_ids_as_exprs(instructions, unit.callables_table)]
    axes = max(1, *map(len, sizes))
    groups, lanes = (n + (1,) * (axes - len(n)) for n in sizes)
    return groups, lanes


def _nbytes(variable: Any) -> int:
    shape: Any = [int(extent) for extent in variable.shape]
    return int(np.prod(shape, dtype=np.int64)) * int(variable.dtype.numpy_dtype.itemsize)
