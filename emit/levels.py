"""The kernels of a part, level by level: what its plan wants in memory, from what is there already."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from aotato.emit import arguments, blocks, body
from aotato.emit.nest import Accumulate, Call, Kernel, Nest
from aotato.emit.statements import arrays_read
from aotato.emit.target import Target
from aotato.frontend import ir
from aotato.frontend.parts import Part

MANY_RESULTS = 4096


@dataclass(frozen=True)
class PartPlan:
    """What one part computes: arrays that get memory, and the order they can come in."""

    part: Part
    urgent: tuple[str, ...]  # sent or reduced, by batch
    stores: tuple[str, ...]
    materialised: tuple[str, ...]
    level: Mapping[str, int]  # of all that it computes; a level reads costly arrays of levels below it from memory
    limit: int  # bytes of a kernel's arguments
    places: Mapping[str, int]  # in messages and reductions, by array
    each: bool = False  # a kernel for every array


@dataclass(frozen=True)
class Overflow:
    """A kernel that does not fit: its results, what is in memory before it, and its level."""

    names: tuple[str, ...]
    ready: frozenset[str]
    level: int


def kernels(program: ir.Program, plan: PartPlan, stored: frozenset[str]) -> list[Kernel | Call]:
    """Urgent levels first, then the rest; a level's results share one launch."""
    first = _feeding(program, plan.urgent, plan)
    rest = [name for name in (*plan.materialised, *plan.stores) if name not in first]
    packed = dict.fromkeys((*first, *plan.urgent))
    kernels = _by_level(program, plan, tuple(packed), stored, "pack")
    return kernels + _by_level(program, plan, tuple(rest), stored | set(first), "compute")


def over_blocks(
    program: ir.Program, plan: PartPlan, stored: frozenset[str], batch: Mapping[str, int], target: Target
) -> list[Kernel] | Overflow:
    """One kernel over blocks for each level, and the packing of what is sent; or the first that does not fit.

    All that gets memory has a batch axis.
    """
    own = {*plan.materialised, *plan.stores}
    first = _feeding(program, plan.urgent, plan)
    ready = {*stored, *(name for name, node in program.arrays.items() if not isinstance(node, ir.Lambda))}
    kernels: list[Kernel] = []
    order = [name for name in program.arrays if name in own]
    packed = [name for name in plan.urgent if name not in own]
    top = max(plan.level.values(), default=0)
    for urgent in (True, False):
        for level in range(top + 1):
            names = tuple(n for n in order if plan.level[n] == level and (n in first) == urgent)
            if any(ir.size(program.arrays[name].shape) for name in names):
                label = "pack" if urgent else "compute"
                name = f"{program.entry}_{plan.part.number}_{label}"
                one = functools.partial(_block_kernel, program, batch, name, plan, frozenset(ready), target)
                made = arguments.split(names, one, functools.partial(_passes, program, plan))
                if made is None:
                    return Overflow(names, frozenset(ready), level)
                kernels += made
            ready.update(names)
        if urgent and any(ir.size(program.arrays[name].shape) for name in packed):
            kernels += _few_arguments(program, plan, tuple(packed), _in_memory(program, frozenset(ready)), "pack")
    return kernels


def _block_kernel(
    program: ir.Program,
    batch: Mapping[str, int],
    name: str,
    plan: PartPlan,
    ready: frozenset[str],
    target: Target,
    names: tuple[str, ...],
) -> list[Kernel] | None:
    """The kernel over blocks for arrays `names`; None if it does not fit, and for one array: what it reads, either."""
    made = blocks.kernel(program, batch, name, plan.part.number, names, ready, target)
    return None if made is None or (len(names) == 1 and not _passes(program, plan, made)) else [made]


def _passes(program: ir.Program, plan: PartPlan, kernel: Kernel) -> bool:
    return arguments.fits(program, kernel, plan.places, plan.limit)


def _few_arguments(
    program: ir.Program, plan: PartPlan, names: tuple[str, ...], in_memory: Callable[[str], bool], label: str
) -> list[Kernel]:
    """The kernels of one level, each with few enough arguments where more kernels help."""

    def made(some: tuple[str, ...]) -> list[Kernel]:
        return _kernels_of(program, plan.part.number, some, in_memory, label)

    return arguments.split(names, made, functools.partial(_passes, program, plan)) or []


def _feeding(program: ir.Program, urgent: tuple[str, ...], plan: PartPlan) -> dict[str, None]:
    """Arrays with memory of this part that urgent ones are or read."""
    needed = set(urgent)
    for name in reversed(list(program.arrays)):
        if name in needed and name in plan.level:
            needed.update(ir.operands(program.arrays[name]))
    called = {_call_key(program, name) for name in needed}
    needed |= {name for name in plan.level if _call_key(program, name) in called}
    return {name: None for name in (*plan.materialised, *plan.stores) if name in needed}


def _call_key(program: ir.Program, name: str) -> tuple[str, ...]:
    """The same for all results of a call; the name itself for other arrays."""
    node = program.arrays[name]
    return (node.kernel, *node.operands) if isinstance(node, ir.LoopyCall) else (name,)


def _by_level(
    program: ir.Program, plan: PartPlan, names: tuple[str, ...], stored: frozenset[str], label: str
) -> list[Kernel | Call]:
    """A kernel per level; arrays that are in memory already (sent as they are) are packed with the first."""
    own = {*plan.materialised, *plan.stores}
    kernels: list[Kernel | Call] = []
    ready = set(stored)
    calls = [name for name in names if name in plan.level and not isinstance(program.arrays[name], ir.Lambda)]
    # A sent array that is read, not computed, can be packed at any level: with the last, beside computed ones
    top = max((plan.level[name] + (name in calls and name in plan.urgent) for name in names if name in plan.level),
              default=0)
    at = {name: plan.level.get(name, top) for name in names} | dict.fromkeys(calls, top)
    for level in range(top + 1):
        made = tuple(name for name in calls if plan.level[name] == level)
        kernels.extend(_calls(program, plan.part.number, made))
        chosen = tuple(n for n in names if at[n] == level and (n not in calls or n in plan.urgent))
        for group in [(name,) for name in chosen] if plan.each else [chosen]:
            # Zero-size arrays have no element to compute
            if any(ir.size(program.arrays[name].shape) for name in group):
                in_memory = _in_memory(program, frozenset(ready))
                kernels.extend(_few_arguments(program, plan, group, in_memory, label))
        ready.update(name for name in (*made, *chosen) if name in own)
    return kernels


def _calls(program: ir.Program, part: int, names: tuple[str, ...]) -> list[Call]:
    """The calls that make arrays `names`, each once."""
    made: dict[tuple[str, ...], dict[str, str]] = {}
    for name in names:
        node = program.arrays[name]
        assert isinstance(node, ir.LoopyCall)
        made.setdefault(_call_key(program, name), {})[node.result] = name
    calls = []
    for (digest, *operands), results in made.items():
        kernel = program.kernels[digest]
        arrays = tuple(results.get(argument.name, "") for argument in kernel.results)
        calls.append(Call(f"{program.entry}_{part}_{kernel.name}", part, kernel, tuple(operands), arrays))
    return calls


def _in_memory(program: ir.Program, ready: frozenset[str]) -> Callable[[str], bool]:
    return lambda name: name in ready or not isinstance(program.arrays[name], ir.Lambda)


def _kernels_of(
    program: ir.Program,
    part: int,
    names: tuple[str, ...],
    in_memory: Callable[[str], bool],
    label: str,
) -> list[Kernel]:
    """One kernel for all nests that synchronise nothing, and one for each nest that does.

    Barriers then stand under no condition on the group; PoCL 3.0 loses stores around such conditions.
    """
    alone: list[list[Nest]] = []
    together: list[Nest] = []
    for shape in dict.fromkeys(program.arrays[name].shape for name in names):
        mine = tuple(name for name in names if program.arrays[name].shape == shape)
        for nest in _nests(program, mine, in_memory) if ir.size(shape) else ():
            if nest.share:
                alone.append([nest])
            else:
                together.append(nest)
    return [
        Kernel(
            f"{program.entry}_{part}_{label}",
            part,
            tuple(nests),
            tuple(dict.fromkeys(name for nest in nests for name in arrays_read(nest))),
            tuple(store.array for nest in nests for store in nest.stores),
        )
        for nests in (*([together] if together else []), *alone)
    ]


def _nests(program: ir.Program, names: tuple[str, ...], in_memory: Callable[[str], bool]) -> list[Nest]:
    """One nest for arrays of one shape, and one for each that is a matrix product.

    What many lanes would compute again, because they share the reductions of other arrays, stands apart, too.
    """
    whole = body.nest(program, names, in_memory)
    many = whole.share and ir.size(whole.shape) >= MANY_RESULTS
    if len(names) == 1 or (_reductions(whole) < 2 and not many):
        return [whole]
    each = {name: body.nest(program, (name,), in_memory) for name in names}
    products = [nest for nest in each.values() if nest.share == "product"]
    rest = tuple(name for name in names if each[name].share != "product")
    plain = tuple(name for name in rest if many and not _reductions(each[name]))
    if not products and not plain:
        return [whole]
    parts = (plain, tuple(name for name in rest if name not in plain))
    return [*(body.nest(program, part, in_memory) for part in parts if part), *products]


def _reductions(nest: Nest) -> int:
    return sum(isinstance(statement, Accumulate) for statement in nest.statements)
