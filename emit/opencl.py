"""Write a kernel as OpenCL C through loopy.

`space.py` says which work-items compute which element of a nest. All nests of a kernel share the launch; each guards
its own extent.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
import pymbolic.primitives as prim

from aotato.emit import dialect
from aotato.emit.names import Arguments, Place
from aotato.emit.nest import Block, Kernel, Nest
from aotato.emit.nest_writer import NestWriter
from aotato.emit.space import Space
from aotato.frontend import ir

MOST_LANES = 256  # work-items of a group that computes a block of elements

_CONTRACT_OFF = "#pragma OPENCL FP_CONTRACT OFF"


@dataclass(frozen=True)
class Source:
    """A kernel ready to ship: OpenCL C, its digest, and what to pass and launch."""

    text: str
    digest: str
    arguments: tuple[tuple[str, str, str, int], ...]  # (buffer, dtype, "r" | "w" | "v" by value, element of a value)
    global_size: tuple[int, ...]
    local_size: tuple[int, ...]
    local_bytes: int


class Cache:
    """Sources already written: ranks that need the same kernel pay for loopy once."""

    def __init__(self) -> None:
        self.texts: dict[Any, str] = {}

    def write(
        self,
        kernel: Kernel,
        program: ir.Program,
        read_at: Mapping[str, Place],
        write_at: Mapping[str, tuple[Place, ...]],
        group_size: int,
        contract: bool = False,
    ) -> Source:
        """The source of `kernel`; `read_at` and `write_at` say where arrays lie in memory."""
        arguments = Arguments(program, read_at, write_at)
        writer = _Writer(arguments, _lanes(kernel, group_size), _index_dtype(kernel, program, read_at))
        if kernel.block is not None:
            writer.begin_block(kernel.block, program)
        for nest in kernel.nests:
            writer.nest(nest, program)
        key = writer.key(contract)
        if key not in self.texts:
            self.texts[key] = _code(writer, contract)
        return _source(writer, self.texts[key])


def _lanes(kernel: Kernel, group_size: int) -> int:
    """Work-items of a group: no more than the largest nest has elements, which is what loopy would require too."""
    if kernel.block is not None:
        work = kernel.block.size * ir.size(kernel.nests[-1].shape[1:])
        return work if work <= MOST_LANES else group_size
    if any(nest.share for nest in kernel.nests):
        return group_size
    return min(group_size, max(ir.size(nest.shape) for nest in kernel.nests))


def _source(writer: _Writer, text: str) -> Source:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Source(
        text.replace("aotato_kernel", f"aotato_{digest[:12]}"),
        digest,
        writer.arguments.table(),
        (max(writer.groups) * writer.local_size[0], *writer.local_size[1:]),
        writer.local_size,
        writer.local_bytes,
    )


def _index_dtype(kernel: Kernel, program: ir.Program, read_at: Mapping[str, Place]) -> Any:
    """32 bits, unless an array or an index space is too large for them."""
    sizes = [ir.size(program.arrays[name].shape) + (read_at[name].offset if name in read_at else 0)
             for name in (*kernel.reads, *kernel.writes)]
    return np.int64 if max(sizes, default=0) >= 2**31 - 2**20 else np.int32


class _Writer:
    """Collects what loopy's kernel is made of."""

    def __init__(self, arguments: Arguments, group_size: int, index_dtype: Any) -> None:
        self.arguments, self.group_size, self.index_dtype = arguments, group_size, index_dtype
        self.domains: list[str] = []
        self.instructions: list[Any] = []
        self.temporaries: list[Any] = []
        self.tags: dict[str, str] = {}
        self.priorities: list[tuple[str, ...]] = []
        self.functions: dict[str, Any] = {}
        self.groups: list[int] = []
        self.local_size: tuple[int, ...] = ()
        self.local_bytes = 0
        self.complex = False
        self.nests = 0
        self.block: Block | None = None
        self.local: dict[str, int] = {}  # array in local memory -> its batch axis
        self.local_written: dict[str, set[str]] = {}

    def begin_block(self, block: Block, program: ir.Program) -> None:
        """One set of groups for all nests, and the arrays that they share."""
        self.block = block
        groups = -(-block.elements // block.size)
        self.domains.append(f"{{ [g, l] : 0 <= l < {self.group_size} and 0 <= g < {groups} }}")
        self.tags |= {"g": "g.0", "l": "l.0"}
        for local in block.local:
            node = program.arrays[local.array]
            kept = np.dtype({"bool": "uint8", "float16": "float32"}.get(node.dtype.name, node.dtype.name))
            count = ir.size(node.shape) // block.elements * block.size
            self.local[local.array] = local.axis
            self.local_written[local.array] = set()
            self.local_bytes += count * kept.itemsize
            self.temporaries.append(
                lp.TemporaryVariable(
                    f"s_{local.array}", kept, shape=(count,), address_space=lp.AddressSpace.LOCAL
                )
            )

    def key(self, contract: bool) -> Any:
        """All that the text depends on."""
        return (
            tuple(self.domains),
            tuple(map(_instruction_text, self.instructions)),
            tuple((t.name, str(t.dtype), t.shape, str(t.address_space)) for t in self.temporaries),
            tuple(sorted(self.tags.items())),
            tuple(self.priorities),
            tuple(sorted(self.functions)),
            tuple((name, dtype, mode) for (_, dtype, mode, _), name in self.arguments.names.items()),
            str(self.index_dtype),
            self.complex,
            contract,
        )

    def nest(self, nest: Nest, program: ir.Program) -> None:
        self.nests += 1
        NestWriter(self, nest, program, self.nests - 1).write()

    def add_space(self, own: Space) -> None:
        """The groups and lanes of a nest; all nests of a kernel have groups of one size."""
        assert self.local_size in ((), own.local_size), f"{self.local_size} and {own.local_size}"
        self.local_size = own.local_size
        self.domains.extend(own.domains)
        self.tags |= own.tags
        self.groups.append(own.groups)


def _instruction_text(instruction: Any) -> str:
    after, inside = sorted(instruction.depends_on), sorted(instruction.within_inames)
    what = " ".join(map(_whole_text, (instruction.assignee, instruction.expression, *instruction.predicates)))
    return f"{what} {inside} {after}"


def _whole_text(expr: Any) -> str:
    """Class and fields of every node: pymbolic's repr leaves out what lies deep, numpy 1's the dtype of a scalar."""
    if isinstance(expr, prim.ExpressionNode):
        fields = (_whole_text(getattr(expr, field.name)) for field in dataclasses.fields(expr))
        return f"{type(expr).__name__}({', '.join(fields)})"
    if isinstance(expr, tuple):
        return f"({', '.join(map(_whole_text, expr))})"
    return f"{type(expr).__name__} {expr!r}"


def _code(writer: _Writer, contract: bool) -> str:
    """Build loopy's kernel and print it."""
    kinds = {np.dtype(dtype).kind for _, dtype, _, _ in writer.arguments.names}
    target = dialect.ComplexTarget() if writer.complex or "c" in kinds else dialect.Target()
    unit = lp.make_kernel(
        [isl.BasicSet(domain) for domain in writer.domains],
        writer.instructions,
        [*writer.arguments.loopy(), *writer.temporaries],
        name="aotato_kernel",
        target=target,
        lang_version=(2018, 2),
        index_dtype=writer.index_dtype,
        preambles=[] if contract else [("00_contract", _CONTRACT_OFF)],
        silenced_warnings=["write_race*", "*_dependency*"],
        # Arrays have no shape that it could check, and conditions of casts of arguments are beyond it
        options=lp.Options(enforce_array_accesses_within_bounds="no_check"),
    )
    for name in sorted(writer.functions):
        unit = lp.register_callable(unit, name, writer.functions[name], redefining_not_ok=False)
    unit = lp.tag_inames(unit, writer.tags)
    for order in writer.priorities:
        unit = lp.prioritize_loops(unit, ",".join(order))
    with np.errstate(over="ignore"):  # loopy negates the literals of comparisons, unsigned ones too
        return str(lp.generate_code_v2(unit).device_code())
