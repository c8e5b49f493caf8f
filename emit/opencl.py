"""Write a kernel as OpenCL C through loopy.

All nests of a kernel share the launch, and its groups and lanes; each guards its own extent. `space.py` says which lane
computes which element of a nest.
"""

from __future__ import annotations

import collections.abc
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np

from aotato.emit import dialect
from aotato.emit.draft import Draft
from aotato.emit.fragment_writer import FragmentWriter
from aotato.emit.mapping import Mapping, mapped
from aotato.emit.matrix_writer import MatrixWriter
from aotato.emit.names import Arguments, Place, loopy_arguments
from aotato.emit.nest import Block, Kernel, Local, Nest
from aotato.emit.nest_writer import NestWriter
from aotato.emit.patch_writer import PatchWriter
from aotato.emit.slots import bytes_of_element, kept_dtype
from aotato.emit.target import Target
from aotato.frontend import expr as ex
from aotato.frontend import ir

VECTOR = 64  # bytes to which arrays of a work-item are aligned that goes through them in vectors
CONTRACT_OFF = "#pragma OPENCL FP_CONTRACT OFF"


def draft(
    kernel: Kernel,
    program: ir.Program,
    read_at: collections.abc.Mapping[str, Place],
    write_at: collections.abc.Mapping[str, tuple[Place, ...]],
    target: Target,
) -> Draft:
    """What loopy will write `kernel` from; `read_at` and `write_at` say where arrays lie in memory."""
    mapping = mapped(kernel, target)
    index_dtype = _index_dtype(kernel, mapping, program, read_at)
    writer = _Writer(Arguments(program, read_at, write_at), mapping, index_dtype, target)
    if kernel.block is not None:
        writer.begin_block(kernel.block, program)
    for nest in mapping.nests:
        writer.nest(nest, program)
    return writer.draft()


def _index_dtype(
    kernel: Kernel, mapping: Mapping, program: ir.Program, read_at: collections.abc.Mapping[str, Place]
) -> Any:
    """32 bits, unless an array or an index space is too large for them, or neighbours are to become vectors.

    Of an index that may overflow, compilers do not know that it steps through neighbours.
    """
    if kernel.block is not None and kernel.block.across:
        return np.int64
    sizes = [ir.size(program.arrays[name].shape) + (read_at[name].offset if name in read_at else 0)
             for name in (*kernel.reads, *kernel.writes)]
    sizes += [loop.upper for nest in mapping.nests for loop in nest.loops]
    return np.int64 if max(sizes, default=0) >= 2**31 - 2**20 else np.int32


class _Writer:
    """Collects what loopy's kernel is made of."""

    def __init__(self, arguments: Arguments, mapping: Mapping, index_dtype: Any, target: Target) -> None:
        self.arguments, self.mapping, self.index_dtype, self.target = arguments, mapping, index_dtype, target
        bounds = {"g": mapping.groups, **mapping.lanes}
        space = " and ".join(f"0 <= {name} < {size}" for name, size in bounds.items())
        self.domains = [f"{{ [{', '.join(bounds)}] : {space} }}"]
        # Behind all others: loopy takes a domain without parameters that comes earlier for one around it
        self.loop_domains: list[str] = []
        self.instructions: list[Any] = []
        self.temporaries: list[Any] = []
        self.tags = {"g": "g.0", **{name: f"l.{axis}" for axis, name in enumerate(mapping.lanes)}}
        self.priorities: list[tuple[str, ...]] = []
        self.functions: dict[str, Any] = {}
        self.local_bytes = 0
        self.complex = False
        self.nests = 0
        self.block: Block | None = None
        self.local: dict[str, Local] = {}
        self.local_written: dict[str, set[str]] = {}
        self.kept: dict[tuple[str, tuple[ex.Expr, ...], str], str] = {}  # element in registers -> temporary
        self.slot_used: dict[int, dict[str, set[str]]] = {}  # slot -> array -> instructions that write or read it

    def begin_block(self, block: Block, program: ir.Program) -> None:
        """The arrays in local memory that all nests share."""
        self.block = block
        self.local_written |= {array: set() for array in sorted(block.kept)}
        sizes: dict[int, int] = {}
        for local in block.local:
            node = program.arrays[local.array]
            self.local[local.array] = local
            self.local_written[local.array] = set()
            count = block.size * bytes_of_element(program, local)
            sizes[local.slot] = max(sizes.get(local.slot, 0), count)
        space, alignment = lp.AddressSpace.LOCAL, None
        if block.across:
            space, alignment = lp.AddressSpace.PRIVATE, VECTOR
        else:
            self.local_bytes += sum(sizes.values())
        for slot, nbytes in sizes.items():
            node = program.arrays[next(local.array for local in block.local if local.slot == slot)]
            kept = kept_dtype(node.dtype)
            self.slot_used[slot] = {}
            shape = (nbytes // kept.itemsize,)
            self.temporaries.append(
                lp.TemporaryVariable(f"s{slot}", kept, shape=shape, address_space=space, alignment=alignment)
            )

    def use_slot(self, array: str, instruction: str) -> None:
        """`instruction` writes or reads `array` in local memory."""
        self.slot_used[self.local[array].slot].setdefault(array, set()).add(instruction)

    def before_slot(self, array: str) -> frozenset[str]:
        """What must be done before `array` is written: all uses of other arrays in its bytes."""
        used = self.slot_used[self.local[array].slot]
        return frozenset(i for other, instructions in used.items() if other != array for i in instructions)

    def draft(self) -> Draft:
        sizes = tuple(self.mapping.lanes.values())
        return Draft(
            (*self.domains, *self.loop_domains),
            tuple(self.instructions),
            tuple(self.temporaries),
            tuple(sorted(self.tags.items())),
            tuple(self.priorities),
            tuple(sorted(self.functions.items())),
            self.arguments.table(),
            self.index_dtype,
            self.complex,
            (self.mapping.groups * sizes[0], *sizes[1:]),
            sizes,
            self.local_bytes,
        )

    def nest(self, nest: Nest, program: ir.Program) -> None:
        self.nests += 1
        kind = MatrixWriter if self.mapping.product else PatchWriter if self.mapping.patch else NestWriter
        kind = FragmentWriter if nest.matrix else kind
        kind(self, nest, program, self.nests - 1).write()


def code(draft: Draft, contract: bool) -> str:
    """Build loopy's kernel and print it."""
    kinds = {np.dtype(dtype).kind for _, dtype, _, _ in draft.arguments}
    target = dialect.ComplexTarget() if draft.complex or "c" in kinds else dialect.Target()
    unit = lp.make_kernel(
        [isl.BasicSet(domain) for domain in draft.domains],
        list(draft.instructions),
        [*loopy_arguments(draft.arguments, draft.parameters), *draft.temporaries],
        name="aotato_kernel",
        target=target,
        lang_version=(2018, 2),
        index_dtype=draft.index_dtype,
        preambles=[] if contract else [("00_contract", CONTRACT_OFF)],
        silenced_warnings=["write_race*", "*_dependency*", "variable_access_ordered"],
        # Arrays have no shape that it could check, and conditions of casts of arguments are beyond it; that stores to
        # different components go to different places it cannot tell
        options=lp.Options(enforce_array_accesses_within_bounds="no_check", enforce_variable_access_ordered=False),
    )
    for name, function in draft.functions:
        unit = lp.register_callable(unit, name, function, redefining_not_ok=False)
    unit = lp.tag_inames(unit, dict(draft.tags))
    for order in draft.priorities:
        unit = lp.prioritize_loops(unit, ",".join(order))
    with np.errstate(over="ignore"):  # loopy negates the literals of comparisons, unsigned ones too
        return dialect.quiet(str(lp.generate_code_v2(unit).device_code()))
