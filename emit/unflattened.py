"""Arrays over two joined axes get both back: x of 4 * E faces, read as x[E * f + e] by all, becomes x[e, f].

Where elements had no axis of their own, they have one then; what is computed once for a face of an element can be kept
as that. Arrays of one label are treated alike on all ranks, or left as they are.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pymbolic.primitives as prim

from aotato.emit.labels import Label, labels
from aotato.emit.linear import linear
from aotato.frontend import expr as ex
from aotato.frontend import ir

SHORTEST = 2  # extent of an axis that is worth having


@dataclass(frozen=True)
class Split:
    """Index `inner * f + e` along `axis`, with f below `outer` and e below `inner`; the longer one comes first."""

    axis: int
    outer: int
    inner: int

    @property
    def inner_first(self) -> bool:
        return self.inner > self.outer

    def both(self, f: ex.Expr, e: ex.Expr) -> tuple[ex.Expr, ex.Expr]:
        return (e, f) if self.inner_first else (f, e)

    def shape(self, shape: ir.Shape) -> ir.Shape:
        pair = (self.inner, self.outer) if self.inner_first else (self.outer, self.inner)
        return (*shape[: self.axis], *pair, *shape[self.axis + 1 :])


def unflattened(programs: ir.Programs) -> ir.Programs:
    """`programs` with the axes of Lambdas that all readers tell apart."""
    names = labels(programs)
    blocked: set[Label] = set()
    while True:
        found = [_program(program, own, blocked) for program, own in zip(programs.ranks, names, strict=True)]
        differing = _differing([splits for _, splits in found], names)
        if not differing:
            return dataclasses.replace(programs, ranks=tuple(program for program, _ in found))
        blocked |= differing


def _differing(splits: list[dict[str, Split]], names: list[dict[str, Label]]) -> set[Label]:
    """Labels that some arrays are split by, and others not or in another way."""
    ways: dict[Label, set[tuple[int, bool] | None]] = {}
    for own, rank in zip(names, splits, strict=True):
        for name, label in own.items():
            split = rank.get(name)
            ways.setdefault(label, set()).add(None if split is None else (split.axis, split.inner_first))
    return {label for label, found in ways.items() if len(found) > 1}


def _program(
    program: ir.Program, names: Mapping[str, Label], blocked: set[Label]
) -> tuple[ir.Program, dict[str, Split]]:
    """Readers first, so that what they read is known in its last form."""
    fixed = {output.array for output in program.outputs} | {send.array for send in program.sends}
    fixed |= {operand for node in program.arrays.values() if not isinstance(node, ir.Lambda)
              for operand in ir.operands(node)}
    arrays, splits = dict(program.arrays), {}
    readers: dict[str, list[str]] = {}
    for name, node in program.arrays.items():
        for operand in ir.operands(node):
            readers.setdefault(operand, []).append(name)
    for name in reversed(list(program.arrays)):
        node = arrays[name]
        if not isinstance(node, ir.Lambda) or name in fixed or names[name] in blocked or name not in readers:
            continue
        split = _split(node, [(arrays[reader], name) for reader in dict.fromkeys(readers[name])])
        if split is not None:
            splits[name] = split
            arrays[name] = _defined(node, split)
            for reader in dict.fromkeys(readers[name]):
                arrays[reader] = _reading(arrays[reader], name, split)
    return dataclasses.replace(program, arrays=arrays), splits


def _split(node: ir.Lambda, readers: list[tuple[ir.Node, str]]) -> Split | None:
    """The first axis that all reads take apart in one way."""
    for axis in range(len(node.shape)):
        found = {pair for reader, name in readers for pair in _pairs(reader, name, axis)}
        if len(found) == 1 and None not in found:
            outer, inner = next(iter(found))  # type: ignore[misc]
            if outer * inner == node.shape[axis] and min(outer, inner) >= SHORTEST:
                return Split(axis, outer, inner)
    return None


def _pairs(reader: ir.Node, name: str, axis: int) -> Iterator[tuple[int, int] | None]:
    """For each read of array `name`: the extents of the two indices that its index is made of."""
    assert isinstance(reader, ir.Lambda)
    extents = _extents(reader)
    for position, indices in ex.reads(reader.expr):
        if reader.operands[position] == name:
            parts = _parts(indices[axis])
            yield None if parts is None else _known(parts, extents)


def _known(parts: tuple[str, str, int], extents: Mapping[str, int]) -> tuple[int, int] | None:
    outer, inner, factor = parts
    known = outer in extents and extents.get(inner) == factor
    return (extents[outer], factor) if known else None


def _parts(index: ex.Expr) -> tuple[str, str, int] | None:
    """`f`, `e` and `factor` of an index `factor * f + e`."""
    form = linear(index)
    if len(form) != 2 or not all(isinstance(term, prim.Variable) for term in form):
        return None
    (inner, one), (outer, factor) = sorted(form.items(), key=lambda item: item[1])
    return (outer.name, inner.name, factor) if one == 1 and factor > 1 else None


def _extents(reader: ir.Lambda) -> dict[str, int]:
    """Of all indices that begin at 0: the reader's own, and those of its reductions, where their names are unique."""
    found = {f"_{axis}": extent for axis, extent in enumerate(reader.shape)}
    seen: dict[str, set[tuple[int, int]]] = {}
    for node in ex.walk(reader.expr):
        if isinstance(node, ex.Reduce):
            for name, lower, upper in node.bounds:
                seen.setdefault(name, set()).add((lower, upper))
    for name, ranges in seen.items():
        lower, upper = next(iter(ranges))
        if len(ranges) == 1 and lower == 0 and name not in found:
            found[name] = upper
    return found


def _defined(node: ir.Lambda, split: Split) -> ir.Lambda:
    """The array over both axes."""
    here, after = prim.Variable(f"_{split.axis}"), prim.Variable(f"_{split.axis + 1}")
    f, e = split.both(here, after)  # the same exchange takes them back
    moved: dict[str, ex.Expr] = {f"_{axis}": prim.Variable(f"_{axis + 1}")
                                 for axis in range(split.axis + 1, len(node.shape))}
    moved[f"_{split.axis}"] = prim.Sum((prim.Product((split.inner, f)), e))
    return dataclasses.replace(node, expr=ex.substitute(node.expr, moved), shape=split.shape(node.shape))


def _reading(reader: ir.Node, name: str, split: Split) -> ir.Lambda:
    assert isinstance(reader, ir.Lambda)

    def rule(node: ex.Expr) -> ex.Expr:
        if not isinstance(node, prim.Subscript) or reader.operands[ex.operand_position(node)] != name:
            return node
        parts = _parts(node.index_tuple[split.axis])
        assert parts is not None
        pair = split.both(prim.Variable(parts[0]), prim.Variable(parts[1]))
        indices = (*node.index_tuple[: split.axis], *pair, *node.index_tuple[split.axis + 1 :])
        return ex.read(ex.operand_position(node), indices)

    return dataclasses.replace(reader, expr=ex.rewrite(reader.expr, rule))
