"""Long reductions with few results become two: over blocks, each by work-groups of its own, and over the blocks."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pymbolic.primitives as prim

from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.dtypes import dtype_of

FEW_RESULTS = 512  # with as many work-groups a device is busy
BLOCKS = 1024  # work-groups of the first stage, over all results
BLOCK_TERMS = 4096  # at least so many terms in a block


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
    for number, reduce in enumerate(dict.fromkeys(_always_evaluated(expr))):
        blocks, size, axis = _blocks(reduce, ir.size(node.shape))
        if blocks < 2:
            continue
        dtypes = [program.arrays[operand].dtype for operand in node.operands]
        block = prim.Variable(f"_{len(node.shape)}")
        partial = ir.Lambda(
            _partial(reduce, axis, block, size, dtype_of(reduce, dtypes)),
            node.operands,
            (*node.shape, blocks),
            dtype_of(reduce, dtypes),
        )
        arrays[f"{name}_{number}"] = partial
        index = reduce.bounds[0][0]
        joined = ex.read(len(operands), (*ex.own_index(len(node.shape)), prim.Variable(index)))
        expr = _replaced(expr, reduce, ex.Reduce(reduce.op, ((index, 0, blocks),), joined))
        operands = (*operands, f"{name}_{number}")
    return node if expr is node.expr else replace(node, expr=expr, operands=operands)


def _always_evaluated(expr: ex.Expr) -> Iterator[ex.Reduce]:
    """Outermost reductions that no condition guards: what is guarded may read outside its arrays."""
    if isinstance(expr, ex.Reduce):
        yield expr
    elif not isinstance(expr, prim.If):
        for child in ex.children(expr):
            yield from _always_evaluated(child)


def _blocks(reduce: ex.Reduce, results: int) -> tuple[int, int, int]:
    """Number of blocks, terms of a block along the longest axis, and that axis."""
    extents = [upper - lower for _, lower, upper in reduce.bounds]
    terms = 1
    for extent in extents:
        terms *= max(0, extent)
    if not extents or not 0 < results < FEW_RESULTS or terms < 2 * BLOCK_TERMS:
        return 1, 0, 0
    axis = extents.index(max(extents))
    wanted = min(BLOCKS // results, terms // BLOCK_TERMS, extents[axis])
    size = -(-extents[axis] // max(1, wanted))
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
