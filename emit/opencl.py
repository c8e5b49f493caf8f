"""Write a kernel as OpenCL C through loopy.

Every nest is flattened: work-item (or, in a grouped nest, work-group) i computes element i of the nest's shape in C
order. All nests of a kernel share the launch; each guards its own extent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import islpy as isl
import loopy as lp
import numpy as np
import pymbolic.primitives as prim

from aotato.emit import dialect
from aotato.emit.draft import Draft
from aotato.emit.names import Arguments, Place, loopy_arguments
from aotato.emit.nest import Accumulate, Assign, Block, Kernel, Local, Nest, Store
from aotato.emit.scalars import Scalars
from aotato.emit.slots import bytes_of_element, kept_dtype
from aotato.frontend import expr as ex
from aotato.frontend import ir

LONGEST_SUM = 64  # terms added in sequence before partial sums are joined: rounding stays near that of a tree

_CONTRACT_OFF = "#pragma OPENCL FP_CONTRACT OFF"


def draft(
    kernel: Kernel,
    program: ir.Program,
    read_at: Mapping[str, Place],
    write_at: Mapping[str, tuple[Place, ...]],
    group_size: int,
) -> Draft:
    """What loopy will write `kernel` from; `read_at` and `write_at` say where arrays lie in memory."""
    arguments = Arguments(program, read_at, write_at)
    writer = _Writer(arguments, _lanes(kernel, group_size), _index_dtype(kernel, program, read_at))
    writer.begin(kernel)
    if kernel.block is not None:
        writer.begin_block(kernel.block, program)
    for nest in kernel.nests:
        writer.nest(nest, program)
    return writer.draft()


def _lanes(kernel: Kernel, group_size: int) -> int:
    """Work-items of a group: no more than the largest nest has elements, which is what loopy would require too."""
    if kernel.block is not None:
        return kernel.block.lanes
    if any(nest.grouped for nest in kernel.nests):
        return group_size
    return min(group_size, max(ir.size(nest.shape) for nest in kernel.nests))


def _groups(kernel: Kernel, group_size: int) -> int:
    if kernel.block is not None:
        return -(-kernel.block.elements // kernel.block.size)
    sizes = ((ir.size(nest.shape), nest.grouped) for nest in kernel.nests)
    return max(elements if grouped else -(-elements // group_size) for elements, grouped in sizes)


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
        self.groups = 0
        self.local_bytes = 0
        self.complex = False
        self.nests = 0
        self.block: Block | None = None
        self.local: dict[str, Local] = {}
        self.local_written: dict[str, set[str]] = {}
        self.kept: dict[tuple[str, tuple[ex.Expr, ...]], str] = {}  # element in registers -> temporary
        self.slot_used: dict[int, dict[str, set[str]]] = {}  # slot -> array -> instructions that write or read it

    def begin(self, kernel: Kernel) -> None:
        """One set of groups for all nests; each guards its own extent, so that the bound of a group is one number."""
        self.groups = _groups(kernel, self.group_size)
        self.domains.append(f"{{ [g, l] : 0 <= l < {self.group_size} and 0 <= g < {self.groups} }}")
        self.tags |= {"g": "g.0", "l": "l.0"}

    def begin_block(self, block: Block, program: ir.Program) -> None:
        """The arrays in local memory that all nests share."""
        self.block = block
        self.local_written |= {array: set() for array in sorted(block.kept)}
        sizes: dict[int, int] = {}
        for local in block.local:
            node = program.arrays[local.array]
            self.local[local.array] = local
            self.local_written[local.array] = set()
            count = block.size * bytes_of_element(program, {local.array: local.axis}, local.array)
            sizes[local.slot] = max(sizes.get(local.slot, 0), count)
        self.local_bytes += sum(sizes.values())
        for slot, nbytes in sizes.items():
            node = program.arrays[next(local.array for local in block.local if local.slot == slot)]
            kept = kept_dtype(node.dtype)
            self.slot_used[slot] = {}
            self.temporaries.append(
                lp.TemporaryVariable(
                    f"s{slot}", kept, shape=(nbytes // kept.itemsize,), address_space=lp.AddressSpace.LOCAL
                )
            )

    def use_slot(self, array: str, instruction: str) -> None:
        """`instruction` writes or reads `array` in local memory."""
        self.slot_used[self.local[array].slot].setdefault(array, set()).add(instruction)

    def before_slot(self, array: str) -> frozenset[str]:
        """What must be done before `array` is written: all uses of other arrays in its bytes."""
        used = self.slot_used[self.local[array].slot]
        return frozenset(i for other, instructions in used.items() if other != array for i in instructions)

    def draft(self) -> Draft:
        return Draft(
            tuple(self.domains),
            tuple(self.instructions),
            tuple(self.temporaries),
            tuple(sorted(self.tags.items())),
            tuple(self.priorities),
            tuple(sorted(self.functions.items())),
            self.arguments.table(),
            self.index_dtype,
            self.complex,
            (self.groups * self.group_size,),
            (self.group_size,),
            self.local_bytes,
        )

    def nest(self, nest: Nest, program: ir.Program) -> None:
        self.nests += 1
        _NestWriter(self, nest, program, self.nests - 1).write()


class _NestWriter:
    """One nest: its inames carry the nest's number, its values too."""

    def __init__(self, out: _Writer, nest: Nest, program: ir.Program, number: int) -> None:
        self.out, self.spec, self.program, self.number = out, nest, program, number
        self.block = out.block
        self.turn = f"i{number}"  # the sequential loop over elements beyond the number of lanes; once without a block
        self.group, self.lane = "g", "l"
        self.parallel = frozenset({"g", "l"} if nest.grouped else {"g", "l", self.turn})
        self.written: dict[str, frozenset[str]] = {}  # value -> instructions that complete it
        self.loops: dict[str, tuple[str, ...]] = {}  # loop -> itself and what it was split into, outermost first
        self.scalars = Scalars(self, out, program)

    @property
    def position(self) -> ex.Expr:
        """The flat number of the nest's element, without a block."""
        group = prim.Variable(self.group)
        return group if self.spec.grouped else group * self.out.group_size + prim.Variable(self.lane)

    def _declare_space(self) -> None:
        elements, size = ir.size(self.spec.shape), self.out.group_size
        if self.block:
            turns, rest = divmod(self.work, size)
            space = f"0 <= {self.turn} < {turns + bool(rest)}"
            if rest:
                space += f" and {size}*{self.turn} + {self.lane} < {self.work}"
        elif self.spec.grouped:
            return  # its elements are the groups: barriers must not stand under a condition
        else:
            space = f"0 <= {self.turn} < 1 and {size}*{self.group} + {self.lane} < {elements}"
        # Before all loops: loopy takes a domain without parameters that comes earlier for one around it
        self.out.domains.insert(1 + self.number, f"[{self.group}, {self.lane}] -> {{ [{self.turn}] : {space} }}")

    @property
    def work(self) -> int:
        """Elements of the nest in a block."""
        assert self.block is not None
        return self.block.size * ir.size(self.spec.shape[1:])

    def own(self, axis: int) -> ex.Expr:
        """In a block: the nest's own index along an axis; IN_BLOCK is the number of the element in its block."""
        assert self.block is not None
        # Within a block, where numbers are small
        flat = prim.Variable(self.turn) * self.out.group_size + prim.Variable(self.lane)
        stride = ir.size(self.spec.shape[max(axis, 0) + 1 :])
        value = prim.FloorDiv(flat, stride) if stride > 1 else flat
        return prim.Remainder(value, self.spec.shape[axis]) if axis > 0 else value

    def element(self, in_block: ex.Expr) -> ex.Expr:
        """In a block: the number of the element. Work-items beyond the last one compute the last one again.

        They write what another one writes there too, and no loop or barrier stands under a condition.
        """
        assert self.block is not None
        own, last = prim.Variable(self.group) * self.block.size + in_block, self.block.elements - 1
        return prim.If(prim.Comparison(own, "<", last), own, last)

    def write(self) -> None:
        self._declare_space()
        shared = {s.loop for s in self.spec.statements if isinstance(s, Accumulate) and s.grouped}
        # Loops over the lanes' shares first: loopy looks for the domain of the lane directly above theirs
        for loop in sorted(self.spec.loops, key=lambda loop: loop.name not in shared):
            lane = self.lane if loop.name in shared else ""
            self._split(loop.name, loop.lower, loop.upper, lane, loop.parents)
        for statement in self.spec.statements:
            if isinstance(statement, Assign):
                self._assign(statement)
            else:
                self._accumulate(statement)
        for index, store in enumerate(self.spec.stores):
            self._store(index, store)

    def name(self, value: str) -> str:
        return f"n{self.number}_{value}"

    def instruct(
        self,
        target: ex.Expr,
        expr: ex.Expr,
        loops: tuple[str, ...],
        after: frozenset[str],
        predicate: Any = None,
        before_slot: frozenset[str] = frozenset(),
    ) -> str:
        """`after`: instructions whose results it needs; `before_slot`: those that use what it overwrites."""
        ident = f"i{len(self.out.instructions)}"
        for array, written in self.out.local_written.items():
            if array in self.out.local and not written.isdisjoint(after):
                self.out.use_slot(array, ident)
        self.out.instructions.append(
            lp.Assignment(
                target,
                expr,
                id=ident,
                within_inames=self.parallel | self._inames(loops),
                within_inames_is_final=True,
                depends_on=after | before_slot,
                predicates=frozenset({predicate}) if predicate is not None else frozenset(),
            )
        )
        return ident

    def _inames(self, loops: tuple[str, ...]) -> frozenset[str]:
        return frozenset(iname for loop in loops for iname in self.loops.get(loop, (loop,)))

    def declare(self, name: str, dtype: Any, **more: Any) -> None:
        self.out.temporaries.append(lp.TemporaryVariable(name, dtype, **{"shape": (), **more}))

    def _assign(self, statement: Assign) -> None:
        expr, after = self.scalars.written(statement.expr)
        name = self.name(statement.name)
        self.declare(name, self.scalars.value_dtype(statement.dtype))
        self.written[statement.name] = frozenset(
            {self.instruct(prim.Variable(name), expr, statement.loops, after)}
        )
        self.scalars.dtypes[statement.name] = statement.dtype

    def _accumulate(self, statement: Accumulate) -> None:
        """Every split piece of the loop has an accumulator of its own."""
        self.scalars.dtypes[statement.name] = statement.dtype
        if statement.grouped:
            self._accumulate_in_group(statement)
        else:
            self._sum_pieces(statement, self.name(statement.name), self.loops[statement.loop])

    def _split(self, name: str, lower: int, upper: int, lane: str, parents: tuple[str, ...]) -> None:
        """Run over the loop with nested inames of at most LONGEST_SUM values; their weighted sum replaces its index.

        Partial sums then have at most LONGEST_SUM terms. The lanes of a group share a loop in steps of the group.
        """
        step = self.out.group_size if lane else 1
        strides = [-(-(upper - lower) // step)]  # of every iname, and the number of steps
        while strides[0] > LONGEST_SUM:
            strides.insert(0, -(-strides[0] // LONGEST_SUM))
        names = tuple(f"{self.name(name)}_{d}" for d in reversed(range(len(strides))))
        weights = [1, *strides[:-1]]
        # Inames advance in large strides and each has a domain of its own, so that every bound is one expression:
        # loopy cannot print a minimum of two. Each domain names all parameters of those inside it
        for depth, iname in enumerate(names):
            reached = " + ".join(f"{w}*{n}" for w, n in zip(weights, names[: depth + 1], strict=False))
            end = f"{reached} < {strides[depth]}"
            if depth == len(names) - 1:
                end = f"{step}*({reached}){f' + {lane}' if lane else ''} < {upper - lower}"
            outside = [*([lane] if lane else []), *names[:depth]]
            self.out.domains.append(f"[{', '.join(outside)}] -> {{ [{iname}] : 0 <= {iname} and {end} }}")
        outer = (*(() if self.spec.grouped else (self.turn,)), *(i for parent in parents for i in self.loops[parent]))
        self.loops[name] = names
        if len(outer) + len(names) > 1:
            self.out.priorities.append((*outer, *names))
        terms = [prim.Variable(n) if w * step == 1 else prim.Product((w * step, prim.Variable(n)))
                 for w, n in zip(weights, names, strict=True)]
        terms += [prim.Variable(lane)] if lane else []
        terms += [lower] if lower else []
        self.scalars.indices[name] = terms[0] if len(terms) == 1 else prim.Sum(tuple(terms))

    def _sum_pieces(self, statement: Accumulate, result: str, pieces: tuple[str, ...]) -> None:
        """One accumulator a piece, outermost last: `s += t` closes the loop inside."""
        expr, after = self.scalars.written(statement.expr)
        dtype = self.scalars.value_dtype(statement.dtype)
        names = [result if depth == 0 else f"{result}_{pieces[depth]}" for depth in range(len(pieces))]
        around = self._flat(statement.loops)
        done: frozenset[str] = frozenset()
        start: list[str] = []
        for depth, name in enumerate(names):
            self.declare(name, dtype)
            neutral = self.scalars.neutral(statement.op, statement.dtype)
            start.append(self.instruct(prim.Variable(name), neutral, (*around, *pieces[:depth]), frozenset()))
        for depth in reversed(range(len(pieces))):
            term = expr if depth == len(pieces) - 1 else prim.Variable(names[depth + 1])
            joined = self.scalars.join(statement.op, statement.dtype, prim.Variable(names[depth]), term)
            before = after | done | {start[depth]}
            done = frozenset(
                {self.instruct(prim.Variable(names[depth]), joined, (*around, *pieces[: depth + 1]), before)}
            )
        self.written[statement.name] = done | {start[0]}

    def _flat(self, loops: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(iname for loop in loops for iname in self.loops[loop])

    def _accumulate_in_group(self, statement: Accumulate) -> None:
        """Every lane sums its share, then two trees join the lanes: in columns of local memory, and their results.

        No memory is read and written between the same two barriers: where lanes are joined in place, PoCL 3.0 goes
        wrong for some types.
        """
        own = f"{self.name(statement.name)}_own"
        self._sum_pieces(statement, own, self.loops[statement.loop])
        size, lane = self.out.group_size, prim.Variable(self.lane)
        columns = 1 << (size.bit_length() - 1) // 2
        lanes = self._share(statement, "all", size, prim.Variable(own), self.written[statement.name], None)
        column = self._tree(statement, lanes[0], [prim.Sum((lane, row)) for row in range(0, size, columns)])
        few = prim.Comparison(lane, "<", columns)
        joined = self._share(statement, "few", columns, column, frozenset({lanes[1]}), few)
        name = self.name(statement.name)
        self.declare(name, self.scalars.value_dtype(statement.dtype))
        total = self._tree(statement, joined[0], list(range(columns)))
        self.written[statement.name] = frozenset(
            {self.instruct(prim.Variable(name), total, (), frozenset({joined[1]}))}
        )

    def _share(
        self, statement: Accumulate, suffix: str, size: int, value: ex.Expr, after: frozenset[str], predicate: Any
    ) -> tuple[str, str]:
        """Local memory in which every lane puts its `value`, and the instruction that does it."""
        name, dtype = f"{self.name(statement.name)}_{suffix}", self.scalars.value_dtype(statement.dtype)
        self.declare(name, dtype, shape=(size,), address_space=lp.AddressSpace.LOCAL)
        self.out.local_bytes += size * np.dtype(dtype).itemsize
        cell = prim.Subscript(prim.Variable(name), (prim.Variable(self.lane),))
        return name, self.instruct(cell, value, (), after, predicate)

    def _tree(self, statement: Accumulate, memory: str, indices: list[ex.Expr]) -> ex.Expr:
        """The elements of local memory at `indices`, joined in pairs of pairs."""
        terms: list[ex.Expr] = [prim.Subscript(prim.Variable(memory), (index,)) for index in indices]
        while len(terms) > 1:
            pairs = zip(terms[::2], terms[1::2], strict=True)
            terms = [self.scalars.join(statement.op, statement.dtype, a, b) for a, b in pairs]
        return terms[0]

    def _store(self, index: int, store: Store) -> None:
        expr, after = self.scalars.written(store.expr)
        places = self.out.arguments.write_at.get(store.array, ())
        dtype = self.program.arrays[store.array].dtype
        in_local = store.array in self.out.local_written
        if len(places) + in_local > 1 and not ex.is_leaf(expr):
            name = f"n{self.number}_s{index}"
            self.declare(name, self.scalars.value_dtype(dtype))
            after = frozenset({self.instruct(prim.Variable(name), expr, (), after)})
            expr = prim.Variable(name)
        once = prim.Comparison(prim.Variable(self.lane), "<", 1) if self.spec.grouped else None
        if in_local:
            self._store_here(store, expr, after)
        before: set[str] = set()
        position = self.scalars.flat(self.program.arrays[store.array].shape, store.indices, before)
        after |= before
        for place in places:
            argument, offset = self.out.arguments.written(place, dtype)
            flat = position + offset if offset else position
            target = prim.Subscript(prim.Variable(argument), (flat,))
            self.instruct(target, self.scalars.stored(expr, dtype), (), after, once)


    def _store_here(self, store: Store, expr: ex.Expr, after: frozenset[str]) -> None:
        """Into local memory, or registers that a later nest of the same index space reads."""
        if store.array in self.out.local:
            before: set[str] = set()
            cell = self.scalars.local_cell(store.array, store.indices, before)
            ident = self.instruct(cell, expr, (), after | before, None, self.out.before_slot(store.array))
            self.out.use_slot(store.array, ident)
        else:
            name = self.out.kept.setdefault((store.array, store.indices), f"k{len(self.out.kept)}")
            assert self.work <= self.out.group_size, "a work-item keeps the elements of one turn only"
            self.declare(name, self.scalars.value_dtype(self.program.arrays[store.array].dtype))
            ident = self.instruct(prim.Variable(name), expr, (), after)
        self.out.local_written[store.array].add(ident)


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
        preambles=[] if contract else [("00_contract", _CONTRACT_OFF)],
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
        return str(lp.generate_code_v2(unit).device_code())
