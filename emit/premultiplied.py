"""Constant matrices applied one after the other become one: A (s (B x + C y)) is s (A B) x + s (A C) y.

Sums over products that read sums over products (`terms.py`) read what those read instead (`merged.py`); products of
matrices are computed while building (`contracted.py`). Sums that share what they no longer read are rewritten together,
where that makes fewer operations; all ranks of a class alike. The result is as near to the exact one as the bound of
the original, but infinities may become NaN and NaN infinities.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import pymbolic.primitives as prim

from aotato.emit.axes import batch_axes
from aotato.emit.classes import classes
from aotato.emit.contracted import Array
from aotato.emit.factored import BYTE_FLOPS, factored
from aotato.emit.merged import MATRIX, Merged, Merger, Part
from aotato.emit.moves import named, normal, numbered, same
from aotato.emit.pruned import pruned
from aotato.emit.unguarded import exchanged, unguarded
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.constants import digest
from aotato.frontend.text_expr import expr_text

ROUNDS = 4  # a chain of matrices gets shorter by one or more in each

Cost = tuple[int, int]  # operations, and bytes of constants

_LOOP = re.compile(r"_r(\d+)")


@dataclass(frozen=True)
class _Reader:
    """An array on all ranks of a class that may read new arrays."""

    name: str
    nodes: Sequence[ir.Lambda]
    new: Mapping[str, Sequence[ir.Node]]  # by name, on every rank; in the order in which they read each other
    through: frozenset[str]  # arrays that it no longer reads


@dataclass(frozen=True)
class _Group:
    """Readers that share what they no longer read."""

    readers: tuple[_Reader, ...]

    @property
    def through(self) -> frozenset[str]:
        return frozenset().union(*(reader.through for reader in self.readers))

    def touches(self, reader: _Reader) -> bool:
        names = {one.name for one in self.readers}
        return bool((self.through | names) & (reader.through | {reader.name}))


@dataclass
class _Class:
    """Ranks, and the new arrays of all readers, which share them."""

    ranks: list[Merger]
    data: dict[str, Array] = field(default_factory=dict)  # of matrices, by digest
    names: dict[object, str] = field(default_factory=dict)  # by what arrays are on all ranks

    def matrix(self, reader: str, data: Sequence[Array]) -> tuple[str, list[ir.Node]]:
        keys = list(map(digest, data))
        self.data |= zip(keys, data, strict=True)
        nodes: list[ir.Node] = [ir.Const(key, each.shape, each.dtype) for key, each in zip(keys, data, strict=True)]
        return self._name(f"{reader}_c", tuple(keys)), nodes

    def array(self, reader: str, parts: Sequence[Part], matrix: str) -> tuple[str, list[ir.Node]]:
        exprs = [_renamed(part.expr, {MATRIX: matrix}) for part in parts]
        written = zip(parts, normal(exprs, [part.shape for part in parts]), strict=True)
        nodes = [ir.Lambda(expr, operands, part.shape, part.matrix.dtype) for part, (expr, operands) in written]
        key = tuple((node.operands, node.shape, expr_text(node.expr)) for node in nodes)
        return self._name(f"{reader}_p", key), list(nodes)

    def _name(self, start: str, key: object) -> str:
        if key not in self.names:
            taken = {*self.names.values(), *(name for rank in self.ranks for name in rank.program.arrays)}
            self.names[key] = next(n for k in itertools.count() if (n := f"{start}{k}") not in taken)
        return self.names[key]


def premultiplied(programs: ir.Programs) -> ir.Programs:
    """`programs` with products of constant matrices as matrices."""
    ranks = list(programs.ranks)
    for members in classes(programs):
        old = dataclasses.replace(programs, ranks=tuple(programs.ranks[number] for number in members))
        for number, program in zip(members, _premultiplied(old).ranks, strict=True):
            ranks[number] = program
    return dataclasses.replace(programs, ranks=tuple(ranks))


def _premultiplied(programs: ir.Programs) -> ir.Programs:
    """The same of the ranks of one class."""
    for _ in range(ROUNDS):
        readers, data = _readers(programs)
        if not readers:
            break
        found = _with(programs, readers, data)
        before, after = _planned(programs), _planned(found)
        old = [set(program.arrays) for program in programs.ranks]
        groups = _groups(readers)
        paying = [group for group in groups if _less(_cost(after, group, old), _cost(before, group, old))]
        if len(paying) < len(groups):
            found = _with(programs, [reader for group in paying for reader in group.readers], data)
            after = _planned(found)
        # Groups may share partial sums
        if not paying or not _less(_total(after), _total(before)):
            break
        programs = found
    return programs


def _readers(programs: ir.Programs) -> tuple[list[_Reader], Mapping[str, Array]]:
    """What may be rewritten, and the matrices that it would read."""
    batches = batch_axes(programs.ranks)
    found = _Class([Merger(program, batch) for program, batch in zip(programs.ranks, batches, strict=True)])
    names = [name for name, node in programs.ranks[0].arrays.items() if isinstance(node, ir.Lambda)]
    readers = (_reader(found, name) for name in names)
    return [reader for reader in readers if reader is not None], found.data


def _reader(found: _Class, name: str) -> _Reader | None:
    nodes = [rank.program.arrays[name] for rank in found.ranks]
    lambdas = [node for node in nodes if isinstance(node, ir.Lambda)]
    fresh = [_fresh(node) for node in lambdas]
    sums: list[Sequence[ex.Expr]] = []
    new: dict[str, Sequence[ir.Node]] = {}
    through: set[str] = set()
    for reduces in zip(*(unguarded(node.expr) for node in lambdas), strict=True):
        each = zip(found.ranks, reduces, fresh, strict=True)
        merged = _alike([rank.merged(name, reduce, own) for rank, reduce, own in each])
        if merged is None:
            sums.append([named(reduce, node.operands) for reduce, node in zip(reduces, lambdas, strict=True)])
        else:
            sums.append(_written(found, name, merged, new))
            through |= merged[0].through
    if not new:
        return None
    own = [exchanged(named(node.expr, node.operands), iter([each[rank] for each in sums]))
           for rank, node in enumerate(lambdas)]
    written = zip(lambdas, normal(own, [node.shape for node in lambdas]), strict=True)
    done = [dataclasses.replace(node, expr=expr, operands=operands) for node, (expr, operands) in written]
    return _Reader(name, done, new, frozenset(through))


def _fresh(node: ir.Lambda) -> Iterator[int]:
    """Numbers of indices that the node does not use."""
    loops = (index for part in ex.walk(node.expr) if isinstance(part, ex.Reduce) for index, _, _ in part.bounds)
    used = [int(match.group(1)) for match in map(_LOOP.match, loops) if match]
    return itertools.count(max(used, default=-1) + 1)


def _alike(merged: Sequence[Merged | None]) -> list[Merged] | None:
    """All of them, if they do the same on every rank."""
    found = [one for one in merged if one is not None]
    if len(found) < len(merged):
        return None
    every = [[one.expr, *(part.expr for part in one.parts if part.expr is not None)] for one in found]
    alike = len(set(map(len, every))) == 1 and all(same(exprs) and len({numbered(expr)[1] for expr in exprs}) == 1
                                                   for exprs in zip(*every, strict=True))
    return found if alike else None


def _written(
    found: _Class, reader: str, merged: Sequence[Merged], new: dict[str, Sequence[ir.Node]]
) -> list[ex.Expr]:
    """The sums on all ranks, reading arrays that are added to `new`."""
    names: dict[str, str] = {}
    for place, parts in enumerate(zip(*(one.parts for one in merged), strict=True)):
        name, nodes = found.matrix(reader, [part.matrix for part in parts])
        new[name] = nodes
        if parts[0].expr is not None:
            name, nodes = found.array(reader, parts, name)
            new[name] = nodes
        names[f"{MATRIX}{place}"] = name
    return [_renamed(one.expr, names) for one in merged]


def _renamed(expr: ex.Expr, names: dict[str, str]) -> ex.Expr:
    def rule(part: ex.Expr) -> ex.Expr:
        if isinstance(part, prim.Subscript):
            name = part.aggregate.name
            return prim.Subscript(prim.Variable(names.get(name, name)), part.index_tuple)
        return part

    return ex.rewrite(expr, rule)


def _groups(readers: Sequence[_Reader]) -> list[_Group]:
    found: list[_Group] = []
    for reader in readers:
        near = [group for group in found if group.touches(reader)]
        found = [group for group in found if group not in near]
        found.append(_Group((*(one for group in near for one in group.readers), reader)))
    return found


def _with(programs: ir.Programs, readers: Sequence[_Reader], data: Mapping[str, Array]) -> ir.Programs:
    """`programs` where `readers` read their new arrays."""
    by_name = {reader.name: reader for reader in readers}
    ranks = []
    for number, program in enumerate(programs.ranks):
        arrays: dict[str, ir.Node] = {}
        for name, node in program.arrays.items():
            if name in by_name:
                for own, nodes in by_name[name].new.items():
                    arrays.setdefault(own, nodes[number])
            arrays[name] = by_name[name].nodes[number] if name in by_name else node
        ranks.append(dataclasses.replace(program, arrays=arrays, constants={**program.constants, **data}))
    return pruned(dataclasses.replace(programs, ranks=tuple(ranks)))


def _planned(programs: ir.Programs) -> ir.Programs:
    return pruned(factored(programs))


def _cost(programs: ir.Programs, group: _Group, old: Sequence[set[str]]) -> Cost:
    """Of the readers and of what they read on the way, on all ranks."""
    found = []
    for program, names in zip(programs.ranks, old, strict=True):
        here = {reader.name for reader in group.readers} | group.through
        for name, node in reversed(list(program.arrays.items())):
            if name in here:
                here |= {o for o in ir.operands(node) if o not in names or isinstance(program.arrays[o], ir.Const)}
        found += [node for name, node in program.arrays.items() if name in here]
    return _of(found)


def _total(programs: ir.Programs) -> Cost:
    return _of([node for program in programs.ranks for node in program.arrays.values()])


def _of(nodes: Sequence[ir.Node]) -> Cost:
    work = sum(ex.flops(node.expr) * ir.size(node.shape) for node in nodes if isinstance(node, ir.Lambda))
    return work, sum(ir.nbytes(node) for node in nodes if isinstance(node, ir.Const))


def _less(new: Cost, old: Cost) -> bool:
    """Whether there are fewer operations, also when every byte counts as some."""
    return new[0] < old[0] and new[0] + BYTE_FLOPS * new[1] < old[0] + BYTE_FLOPS * old[1]
