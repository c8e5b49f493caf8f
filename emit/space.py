"""Which element of a nest a lane computes, in terms of the kernel's groups `g` and lanes `l`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import pymbolic.primitives as prim

from aotato.emit.groups import Share
from aotato.emit.nest import Block, Nest
from aotato.emit.small_matrices import ROWS
from aotato.frontend import expr as ex
from aotato.frontend import ir


@dataclass(frozen=True)
class Space:
    """The lane's element, and conditions on it."""

    inames: frozenset[str]  # around every instruction
    domains: tuple[str, ...]
    position: ex.Expr  # the flat number of the element in the nest; None in a block, and where indices are placed
    turn: str = ""  # the sequential loop over elements beyond the number of lanes; once without a block
    element: ex.Expr = None  # in a block: the number of the element within it, and its own indices behind that
    nodes: tuple[ex.Expr, ...] = ()
    work: int = 0  # in a block: elements of the nest
    share: Share | None = None  # where several lanes have one element
    once: ex.Expr = None  # the condition under which the lane stores its element; None: always
    last: int | None = None  # the last position, where lanes go beyond
    inner: Mapping[str, int] = field(default_factory=dict)  # inames of a lane's elements, if several: how many


def flat(nest: Nest, number: int, lanes: int) -> Space:
    """Work-item i computes element i in C order."""
    turn = f"i{number}"
    return Space(
        frozenset({"g", "l", turn}),
        (f"[g, l] -> {{ [{turn}] : 0 <= {turn} < 1 and {lanes}*g + l < {ir.size(nest.shape)} }}",),
        prim.Variable("g") * lanes + prim.Variable("l"),
        turn,
    )


def in_block(nest: Nest, number: int, lanes: int, block: Block) -> Space:
    """Lanes compute the elements of the group's block in turns, in C order."""
    inner = nest.shape[1:]
    work = block.size * ir.size(inner)
    turn = f"i{number}"
    bounds = f"0 <= {turn} < {-(-work // lanes)}" + (f" and {lanes}*{turn} + l < {work}" if work % lanes else "")
    place = prim.Variable(turn) * lanes + prim.Variable("l")

    return Space(
        frozenset({"g", "l", turn}),
        (f"[g, l] -> {{ [{turn}] : {bounds} }}",),
        None,
        turn,
        _over(place, ir.size(inner)),
        tuple(prim.Remainder(_over(place, ir.size(inner[axis + 1 :])), extent) for axis, extent in enumerate(inner)),
        work,
    )


def across(nest: Nest, number: int, block: Block) -> Space:
    """The group's only lane computes node after node, and of each node all elements, side by side."""
    inner, turn, element = nest.shape[1:], f"i{number}", f"e{number}"
    # Where it always holds, too: ranks of all sizes then differ in numbers only
    inside = f"{block.size}*g + {element} < {block.elements}"
    return Space(
        frozenset({"g", "l", turn, element}),
        (
            f"[g] -> {{ [{turn}] : 0 <= {turn} < {ir.size(inner)} }}",
            f"[g, {turn}] -> {{ [{element}] : 0 <= {element} < {block.size} and {inside} }}",
        ),
        None,
        turn,
        prim.Variable(element),
        tuple(_own(prim.Variable(turn), inner, axis) for axis in range(len(inner))),
        block.size * ir.size(inner),
    )


def matrix(nest: Nest, number: int, lanes: int, block: Block, copy: int) -> Space:
    """A lane has two columns of the tile of its 32 lanes, in the row that the lane's quarter has: `copy` is 0 or 1."""
    tiles, own = _tiles(nest), prim.Variable("l")
    element = prim.FloorDiv(own, 32 * tiles) * ROWS + prim.Remainder(own, 4) * 2
    return _matrix(nest, number, lanes, block, element + copy if copy else element)


def column(nest: Nest, number: int, lanes: int, block: Block) -> Space:
    """The column that a lane loads for its tile."""
    tiles, own = _tiles(nest), prim.Variable("l")
    element = prim.FloorDiv(own, 32 * tiles) * ROWS + prim.FloorDiv(prim.Remainder(own, 32), 4)
    return _matrix(nest, number, lanes, block, element)


def _tiles(nest: Nest) -> int:
    return -(-nest.shape[1] // ROWS)


def _matrix(nest: Nest, number: int, lanes: int, block: Block, element: ex.Expr) -> Space:
    """Rows beyond the last node are that node's again; lanes beyond the last tile rest."""
    own, tiles, turn = prim.Variable("l"), _tiles(nest), f"i{number}"
    row = prim.Remainder(prim.FloorDiv(own, 32), tiles) * ROWS + prim.FloorDiv(prim.Remainder(own, 32), 4)
    last, busy = nest.shape[1] - 1, 32 * tiles * block.size // ROWS
    node = row if nest.shape[1] % ROWS == 0 else prim.If(prim.Comparison(row, "<", last), row, last)
    bounds = f"0 <= {turn} < 1" + (f" and l < {busy}" if busy < lanes else "")
    return Space(
        frozenset({"g", "l", turn}),
        (f"[g, l] -> {{ [{turn}] : {bounds} }}",),
        None,
        turn,
        element,
        (node,),
        busy,
    )


def _own(number: ex.Expr, shape: ir.Shape, axis: int) -> ex.Expr:
    """The index along an axis of element `number` of `shape` in C order."""
    value = _over(number, ir.size(shape[axis + 1 :]))
    return prim.Remainder(value, shape[axis]) if axis else value


def _over(place: ex.Expr, stride: int) -> ex.Expr:
    return prim.FloorDiv(place, stride) if stride > 1 else place


def shared(nest: Nest, share: Share) -> Space:
    """Several lanes for each element. Those beyond the last one compute that again: barriers need all lanes."""
    elements = ir.size(nest.shape)
    position: ex.Expr = prim.Variable("g")
    once: ex.Expr = prim.Comparison(prim.Variable("l"), "<", 1)
    beyond = elements % share.results != 0
    if share.results > 1:
        position = prim.Variable("g") * share.results + prim.Variable("p")
    if beyond:
        once = prim.LogicalAnd((once, prim.Comparison(position, "<", elements)))
    return Space(
        frozenset({"g", *share.sides()}),
        (),
        position,
        share=share,
        once=once,
        last=elements - 1 if beyond else None,
    )
