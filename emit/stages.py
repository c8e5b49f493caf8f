"""Long reductions with few results become two: over blocks, so that many lanes have work, and over the blocks."""

from __future__ import annotations

from dataclasses import replace

import pymbolic.primitives as prim

from aotato.emit.groups import along_terms, split
from aotato.emit.unguarded import unguarded
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.dtypes import dtype_of

LANES = 1 << 18  # with so many a device is busy
GROUP = 128  # lanes of a group, about
LANE_TERMS = 32  # of a block, at least so many for each of its lanes


_BLOCK, _FIRST = prim.Variable("_block"), prim.Variable("_0")


def staged(programs: ir.Programs) -> ir.Programs:
    """`programs` with the partial results of long reductions as arrays of their own."""
    return replace(programs, ranks=tuple(map(_program, programs.ranks)))


def _program(program: ir.Program) -> ir.Program:
    arrays: dict[str, ir.Node] = {}
    for name, node in program.arrays.items():
        if isinstance(node, ir.Lambda):
            node = _split(program, name, node, arrays)
        arrays[name] = node
    return replace(program, arrays=arrays)


def _split(program: ir.Program, name: str, node: ir.Lambda, arrays: dict[str, ir.Node]) -> ir.Lambda:
    """`node` reading partial results, which are added to `arrays`."""
    expr, operands = node.expr, node.operands
    for number, reduce in enumerate(dict.fromkeys(unguarded(expr))):
        blocks, size, axis = _blocks(reduce, node.shape, _along_terms(program, node, reduce))
        if blocks < 2:
            continue
        dtypes = [program.arrays[operand].dtype for operand in node.operands]
        # Blocks come first, so that neighbouring lanes still have neighbouring results
        moved = {f"_{own}": prim.Variable(f"_{own + 1}") for own in range(len(node.shape))}
        dtype = dtype_of(reduce, dtypes)
        part = ex.substitute(_partial(reduce, axis, _BLOCK, size, dtype), moved | {_BLOCK.name: _FIRST})
        partial = ir.Lambda(part, node.operands, (blocks, *node.shape), dtype)
        arrays[f"{name}_{number}"] = partial
        index = reduce.bounds[0][0]
        joined = ex.read(len(operands), (prim.Variable(index), *ex.own_index(len(node.shape))))
        expr = _replaced(expr, reduce, ex.Reduce(reduce.op, ((index, 0, blocks),), joined))
        operands = (*operands, f"{name}_{number}")
    return node if expr is node.expr else replace(node, expr=expr, operands=operands)


def _along_terms(program: ir.Program, node: ir.Lambda, reduce: ex.Reduce) -> bool:
    long = [axis for axis, extent in enumerate(node.shape) if extent > 1]
    reads = ((program.arrays[node.operands[position]], indices) for position, indices in ex.reads(reduce.body))
    return not long or along_terms(reads, f"_{long[-1]}")


def _blocks(reduce: ex.Reduce, shape: ir.Shape, rows: bool) -> tuple[int, int, int]:
    """Number of blocks, terms of a block along the longest axis, and that axis."""
    extents = [upper - lower for _, lower, upper in reduce.bounds]
    terms = 1
    for extent in extents:
        terms *= max(0, extent)
    results = ir.size(shape)
    if not extents or not results or terms < 2 * LANE_TERMS:
        return 1, 0, 0
    lanes = split("rows" if rows else "columns", shape, terms, GROUP).lanes
    axis = extents.index(max(extents))
    wanted = min(LANES // (results * lanes), terms // (LANE_TERMS * lanes), extents[axis])
    # Blocks of equal size, where that is possible, need no test for the last term
    even = next((count for count in range(wanted, wanted // 2, -1) if extents[axis] % count == 0), wanted)
    size = -(-extents[axis] // max(1, even))
    return -(-extents[axis] // size), size, axis


def _partial(reduce: ex.Reduce, axis: int, block: ex.Expr, size: int, dtype: ir.DType) -> ex.Reduce:
    """The reduction over block number `block`; the last one may be shorter."""
    name, lower, upper = reduce.bounds[axis]
    place = prim.Sum((prim.Product((size, block)), prim.Variable(name)))
    bounds = (*reduce.bounds[:axis], (name, 0, size), *reduce.bounds[axis + 1 :])
    last = upper - lower - 1
    whole = (last + 1) % size == 0
    # Beyond the end the last term is repeated where that changes nothing, and left out elsewhere
    inside = place if whole else prim.Min((place, last))
    body = ex.substitute(reduce.body, {name: prim.Sum((inside, lower)) if lower else inside})
    if not whole and reduce.op in ("sum", "product"):
        body = prim.If(prim.Comparison(place, "<=", last), body, dtype.type(reduce.op == "product"))
    return ex.Reduce(reduce.op, bounds, body)


def _replaced(expr: ex.Expr, old: ex.Reduce, new: ex.Reduce) -> ex.Expr:
    if expr == old:
        return new
    if ex.is_leaf(expr) or isinstance(expr, prim.If | ex.Reduce):
        return expr
    return ex.with_children(expr, tuple(_replaced(child, old, new) for child in ex.children(expr)))
