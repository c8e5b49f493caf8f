"""Write a kernel as OpenCL C through loopy.

Every nest is flattened: work-item (or, in a grouped nest, work-group) i computes element i of the nest's shape in C
order. All nests of a kernel share the launch; each guards its own extent.
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
from aotato.emit.nest import Accumulate, Assign, Block, Kernel, Nest
from aotato.emit.scalars import Scalars
from aotato.frontend import expr as ex
from aotato.frontend import ir

LONGEST_SUM = 64  # terms added in sequence before partial sums are joined: rounding stays near that of a tree

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
    if any(nest.grouped for nest in kernel.nests):
        return group_size
    return min(group_size, max(ir.size(nest.shape) for nest in kernel.nests))


def _source(writer: _Writer, text: str) -> Source:
    digest = hashlib.sha256(text.encode()).hexdigest()
    return Source(
        text.replace("aotato_kernel", f"aotato_{digest[:12]}"),
        digest,
        writer.arguments.table(),
        (max(writer.groups) * writer.group_size,),
        (writer.group_size,),
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
        self.groups.append(groups)
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
        _NestWriter(self, nest, program, self.nests - 1).write()


class _NestWriter:
    """One nest: its inames carry the nest's number, its values too."""

    def __init__(self, out: _Writer, nest: Nest, program: ir.Program, number: int) -> None:
        self.out, self.spec, self.program, self.number = out, nest, program, number
        self.block = out.block
        self.turn = f"i{number}"  # in a block: the sequential loop over elements beyond the number of lanes
        self.group, self.lane = ("g", "l") if self.block else (f"g{number}", f"l{number}")
        self.parallel = frozenset({self.group, self.lane, *([self.turn] if self.block else [])})
        self.written: dict[str, frozenset[str]] = {}  # value -> instructions that complete it
        self.loops: dict[str, tuple[str, ...]] = {}  # loop -> itself and what it was split into, outermost first
        self.scalars = Scalars(self, out, program)

    @property
    def position(self) -> ex.Expr:
        """The flat number of the nest's element."""
        group = prim.Variable(self.group)
        if self.block:
            return group * (self.block.size * ir.size(self.spec.shape[1:])) + self.place
        if self.spec.grouped:
            return group
        return group * self.out.group_size + prim.Variable(self.lane)

    @property
    def place(self) -> ex.Expr:
        """The flat number of the nest's element within its block."""
        return prim.Variable(self.turn) * self.out.group_size + prim.Variable(self.lane)

    def _declare_space(self) -> None:
        elements, size = ir.size(self.spec.shape), self.out.group_size
        if self.block:
            own = f"{size}*{self.turn} + {self.lane}"
            work = self.block.size * ir.size(self.spec.shape[1:])
            space = f"0 <= {self.turn} and {own} < {work} and {own} + {work}*{self.group} < {elements}"
            # Right below that of group and lane: loopy takes a domain without parameters, as loops have, for a new root
            self.out.domains.insert(1, f"[{self.group}, {self.lane}] -> {{ [{self.turn}] : {space} }}")
            return
        if self.spec.grouped:
            space = f"0 <= {self.lane} < {size} and 0 <= {self.group} < {elements}"
        else:
            space = f"0 <= {self.lane} < {size} and 0 <= {self.lane} + {size}*{self.group} < {elements}"
        self.out.domains.append(f"{{ [{self.group}, {self.lane}] : {space} }}")
        self.out.tags |= {self.group: "g.0", self.lane: "l.0"}
        self.out.groups.append(elements if self.spec.grouped else -(-elements // size))

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
        self, target: ex.Expr, expr: ex.Expr, loops: tuple[str, ...], after: frozenset[str], predicate: Any = None
    ) -> str:
        ident = f"i{len(self.out.instructions)}"
        self.out.instructions.append(
            lp.Assignment(
                target,
                expr,
                id=ident,
                within_inames=self.parallel | self._inames(loops),
                depends_on=after,
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
        outer = (*((self.turn,) if self.block else ()), *(i for parent in parents for i in self.loops[parent]))
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

    def _store(self, index: int, store: Any) -> None:
        expr, after = self.scalars.written(store.expr)
        places = self.out.arguments.write_at.get(store.array, ())
        dtype = self.program.arrays[store.array].dtype
        in_local = store.array in self.out.local
        if len(places) + in_local > 1 and not ex.is_leaf(expr):
            name = f"n{self.number}_s{index}"
            self.declare(name, self.scalars.value_dtype(dtype))
            after = frozenset({self.instruct(prim.Variable(name), expr, (), after)})
            expr = prim.Variable(name)
        once = prim.Comparison(prim.Variable(self.lane), "<", 1) if self.spec.grouped else None
        if in_local:
            cell = prim.Subscript(
                prim.Variable(f"s_{store.array}"), (self.scalars.local_flat(store.array, store.indices, set()),)
            )
            self.out.local_written[store.array].add(self.instruct(cell, expr, (), after))
        before: set[str] = set()
        position = self.scalars.flat(self.program.arrays[store.array].shape, store.indices, before)
        after |= before
        for place in places:
            argument, offset = self.out.arguments.written(place, dtype)
            flat = position + offset if offset else position
            target = prim.Subscript(prim.Variable(argument), (flat,))
            self.instruct(target, self.scalars.stored(expr, dtype), (), after, once)


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
