"""Decide which arrays of a rank get memory of their own: outputs, and what is costly and read by later parts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from aotato.frontend.cut import Weight, cut
from aotato.frontend.ir import Allreduce, Lambda, LoopyCall, Program, Recv, is_computed, is_costly, nbytes, operands


def aliases(program: Program) -> dict[str, str]:
    """Each Recv from the rank itself, and the array that it is: never itself such a Recv."""
    sent = {send.tag: send.array for send in program.sends if send.dest == program.rank}
    direct = {name: sent[recv.tag] for name, recv in program.of_type(Recv) if recv.source == program.rank}
    found = {}
    for name in direct:
        array = direct[name]
        while array in direct:
            array = direct[array]
        found[name] = array
    return found


def live(program: Program, alias: Mapping[str, str]) -> dict[str, None]:
    """The arrays that an output, a message or a collective needs, as an ordered set."""
    found: dict[str, None] = {}
    stack = [output.array for output in program.outputs]
    stack += [send.array for send in program.sends if send.dest != program.rank]
    stack += [name for name, _ in program.of_type(Allreduce)]
    while stack:
        array = stack.pop()
        array = alias.get(array, array)
        if array not in found:
            found[array] = None
            stack.extend(operands(program.arrays[array]))
    return found


def stored(program: Program, level: Mapping[str, int], alias: Mapping[str, str]) -> tuple[str, ...]:
    """The arrays to store, each in the part of its level, in program order.

    A reduction or a call is computed in the part of its level and in no other. So wherever something later
    is computed from it, a stored array of the same level lies between: the cheapest such cut, for each level by
    itself. Everything else that several parts need is elementwise above stored and received arrays and is computed
    in each of them.
    """
    alive = live(program, alias)
    nodes: dict[str, Lambda | LoopyCall] = {
        name: node  # type: ignore[misc]
        for name, node in program.arrays.items()
        if is_computed(node) and name in alive
    }
    outputs = {alias.get(output.array, output.array) for output in program.outputs}
    found = {name for name in nodes if name in outputs}
    free = [name for name in nodes if name not in found]

    # By level: the arrays that may be stored, who is computed from them in the same part, and who is read later
    weights: dict[int, dict[str, Weight]] = {}
    for name in free:
        weights.setdefault(level[name], {})[name] = _weight(nodes[name])
    readers: dict[str, list[str]] = {name: [] for name in free}
    later: dict[int, dict[str, None]] = {}
    for array, reader, part in _reads(program, nodes, level, alias):
        if array in readers and part > level[array]:
            later.setdefault(level[array], {})[array] = None
        elif array in readers and reader in readers:
            readers[array].append(reader)

    for number in sorted(later):
        costly = [name for name in weights[number] if is_costly(nodes[name])]
        found.update(cut(weights[number], readers, costly, tuple(later[number])))
    return tuple(name for name in nodes if name in found)


def _weight(node: Lambda | LoopyCall) -> Weight:
    return Weight(nbytes(node), isinstance(node, Lambda) and node.stored)


def _reads(
    program: Program, nodes: Mapping[str, Lambda | LoopyCall], level: Mapping[str, int], alias: Mapping[str, str]
) -> Iterator[tuple[str, str, int]]:
    """Every read as array, reader and the earliest part that needs the array for it."""
    for name, node in nodes.items():
        for operand in node.operands:
            yield alias.get(operand, operand), name, level[name]
    for name, call in program.of_type(Allreduce):
        yield alias.get(call.operand, call.operand), name, level[name] - 1
