"""The index space of a nest as loopy sees it: groups, lanes, and which element each of them computes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pymbolic.primitives as prim

from aotato.emit.nest import Block, Nest
from aotato.emit.sharing import Share
from aotato.frontend import expr as ex
from aotato.frontend import ir


@dataclass(frozen=True)
class Space:
    """Inames, and what follows from them."""

    parallel: frozenset[str]  # inames around every instruction
    domains: tuple[str, ...]
    tags: Mapping[str, str]
    groups: int
    local_size: tuple[int, ...]
    position: ex.Expr | None  # the flat number of the lane's element in the nest, if that is one expression
    turn: str = ""  # in a block: the sequential loop over elements beyond the number of lanes
    place: ex.Expr | None = None  # in a block: the flat number of the element within it
    group: str = ""
    term: str = ""  # the iname of the lanes that share an element
    share: Share | None = None
    once: ex.Expr = None  # the condition under which the lane stores its element
    last: int | None = None  # the last position, where lanes go beyond

    def cell(self, lane: ex.Expr, lanes: int) -> ex.Expr:
        """Where lane number `lane` of `lanes` that share the element has its place in local memory."""
        assert self.share is not None
        if self.share.results == 1:
            return lane
        result = prim.Variable(_result(self.term))
        if self.share.kind == "rows":
            return prim.Sum((prim.Product((lanes, result)), lane))
        return prim.Sum((result, prim.Product((self.share.results, lane))))


def flat(nest: Nest, number: int, group_size: int) -> Space:
    """Work-item i computes element i in C order."""
    group, lane = f"g{number}", f"l{number}"
    elements = ir.size(nest.shape)
    own = f"0 <= {lane} < {group_size} and 0 <= {lane} + {group_size}*{group} < {elements}"
    return Space(
        frozenset({group, lane}),
        (f"{{ [{group}, {lane}] : {own} }}",),
        {group: "g.0", lane: "l.0"},
        -(-elements // group_size),
        (group_size,),
        prim.Variable(group) * group_size + prim.Variable(lane),
    )


def in_block(nest: Nest, number: int, group_size: int, block: Block) -> Space:
    """Lanes compute the elements of the group's block in turns; all nests have the same groups and lanes."""
    elements, work = ir.size(nest.shape), block.size * ir.size(nest.shape[1:])
    turn = f"i{number}"
    own = f"{group_size}*{turn} + l"
    place = prim.Variable(turn) * group_size + prim.Variable("l")
    return Space(
        frozenset({"g", "l", turn}),
        (f"[g, l] -> {{ [{turn}] : 0 <= {turn} and {own} < {work} and {own} + {work}*g < {elements} }}",),
        {},
        -(-block.elements // block.size),
        (group_size,),
        prim.Variable("g") * work + place,
        turn,
        place,
        "g",
    )


def shared(nest: Nest, number: int, share: Share) -> Space:
    """Several lanes for each element. Those beyond the last one compute that again: barriers need all lanes."""
    group, result, term = f"g{number}", _result(f"l{number}"), f"l{number}"
    elements = ir.size(nest.shape)
    groups = -(-elements // share.results)
    sides = [(term, share.lanes)]
    if share.results > 1:
        sides.insert(1 if share.kind == "rows" else 0, (result, share.results))
    bounds = " and ".join(f"0 <= {name} < {size}" for name, size in ((group, groups), *sides))
    position: ex.Expr = prim.Variable(group)
    once: ex.Expr = prim.Comparison(prim.Variable(term), "<", 1)
    if share.results > 1:
        position = prim.Variable(group) * share.results + prim.Variable(result)
        if elements % share.results:
            once = prim.LogicalAnd((once, prim.Comparison(position, "<", elements)))
    return Space(
        frozenset({group, *(name for name, _ in sides)}),
        (f"{{ [{', '.join((group, *(name for name, _ in sides)))}] : {bounds} }}",),
        {group: "g.0", **{name: f"l.{axis}" for axis, (name, _) in enumerate(sides)}},
        groups,
        tuple(size for _, size in sides),
        position,
        term=term,
        share=share,
        once=once,
        last=elements - 1 if elements % share.results else None,
    )


def _result(term: str) -> str:
    return f"p{term[1:]}"
