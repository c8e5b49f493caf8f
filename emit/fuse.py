"""Which arrays of a part get memory, and which kernels compute them.

Elementwise arrays are inlined into their readers, stored ones too. A reduction is inlined where one reader reads it at
its own index; otherwise it gets memory and a level of its own, and so does what it is inlined into. What a call reads
and makes is in memory. What feeds messages and reductions over ranks comes first.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pymbolic.primitives as prim

from aotato.emit import arguments, blocks, body, crossing
from aotato.emit.draft import POINTER
from aotato.emit.groups import large
from aotato.emit.joined import Joined, send_names
from aotato.emit.nest import Accumulate, Call, Kernel, Nest
from aotato.emit.statements import arrays_read
from aotato.emit.target import Target
from aotato.frontend import expr as ex
from aotato.frontend import ir
from aotato.frontend.parts import Part

FEWEST_OF_A_SCHEME = 4  # arrays of a part; with more, work-items of a block have more in common than products
MANY_RESULTS = 4096
HEAVIEST = 600  # expression nodes of an elementwise array that is still recomputed at every index it is read at


_Read = tuple[str, tuple[ex.Expr, ...], bool]  # reader, index, whether inside a reduction of the reader


@dataclass(frozen=True)
class Fused:
    """The kernels of a rank in launch order, and the arrays that live only inside one part."""

    kernels: tuple[Kernel | Call, ...]
    temporaries: tuple[str, ...]  # materialised inside a part, in order


@dataclass(frozen=True)
class _PartPlan:
    """What one part computes: arrays that get memory, and the order they can come in."""

    part: Part
    urgent: tuple[str, ...]  # sent or reduced, by batch
    stores: tuple[str, ...]
    materialised: tuple[str, ...]
    level: Mapping[str, int]  # of all that it computes; a level reads costly arrays of levels below it from memory
    limit: int  # bytes of a kernel's arguments
    places: Mapping[str, int]  # in messages and reductions, by array
    each: bool = False  # a kernel for every array


def fuse(joined: Joined, batch: Mapping[str, int], target: Target, inline: bool = True) -> Fused:
    """Kernels part by part. What a part stores is in memory for the parts after it.

    `batch` is the rank's row of `axes.batch_axes`: kernels over blocks of elements; without, array by array.
    Without `inline`, every array gets memory and a kernel of its own.
    """
    partition = joined.partition
    stored = {joint.array for joint in joined.joints if not joint.outgoing}
    kernels: list[Kernel | Call] = []
    temporaries: list[str] = []
    for part in partition.parts:
        made: Sequence[Kernel | Call]
        if inline:
            plan, made = _part(joined, part, frozenset(stored), batch, target)
        else:
            plan = _apart(joined, part, frozenset(stored), target)
            made = _kernels(partition.program, plan, frozenset(stored))
        kernels.extend(made)
        stored.update(plan.stores, plan.materialised)
        temporaries.extend(plan.materialised)
    return Fused(tuple(kernels), tuple(temporaries))


def _part(
    joined: Joined, part: Part, stored: frozenset[str], batch: Mapping[str, int], target: Target
) -> tuple[_PartPlan, Sequence[Kernel | Call]]:
    """The part over blocks of elements where that has a use and fits local memory; else array by array."""
    program = joined.partition.program
    computed = ir.computed_below(program, _roots(joined, part)[1], stored)
    called = any(isinstance(program.arrays[name], ir.LoopyCall) for name in computed)
    if batch and part.stores and all(name in batch for name in part.stores) and not called:
        plan = _plan(joined, part, stored, batch, target)
        kernels = _block_kernels(program, plan, stored, batch, target)
        if kernels is not None and blocks.sharing(program, kernels):
            plain = _products(joined, part, stored, plan, target)
            return plain if plain is not None and len(plain[1]) <= len(kernels) else (plan, kernels)
    plan = _plan(joined, part, stored, {}, target)
    return plan, _kernels(program, plan, stored)


def _products(
    joined: Joined, part: Part, stored: frozenset[str], plan: _PartPlan, target: Target
) -> tuple[_PartPlan, Sequence[Kernel | Call]] | None:
    """The part array by array, where it is little more than products of large matrices."""
    if len(plan.level) > FEWEST_OF_A_SCHEME:
        return None
    other = _plan(joined, part, stored, {}, target)
    kernels = _kernels(joined.partition.program, other, stored)
    nests = (nest for kernel in kernels if isinstance(kernel, Kernel) for nest in kernel.nests)
    return (other, kernels) if any(map(large, nests)) else None


def _plan(
    joined: Joined, part: Part, stored: frozenset[str], batch: Mapping[str, int], target: Target
) -> _PartPlan:
    program, (urgent, roots, places) = joined.partition.program, _roots(joined, part)
    limit = target.parameter_bytes
    closure = frozenset(ir.computed_below(program, roots, stored))
    readers = _readers(program, closure, roots)
    if batch:
        materialised, level = crossing.storage(program, closure, tuple(roots), part.stores, batch)
        return _PartPlan(part, urgent, part.stores, materialised, level, limit, places)
    most = limit - max((arguments.written(name, places) for name in (*part.stores, *urgent)), default=POINTER)
    costly = _costly(program, closure, readers, roots, most)
    materialised = tuple(name for name in costly if name not in part.stores)
    level = _levels(program, closure, frozenset(costly))
    return _PartPlan(part, urgent, part.stores, materialised, level, limit, places)


def _roots(joined: Joined, part: Part) -> tuple[tuple[str, ...], dict[str, None], dict[str, int]]:
    """What leaves the part in messages and reductions; that with what it stores; and the places it leaves to."""
    program, together = joined.partition.program, send_names(joined.joints)
    names = [(message.batch, parcel.sent) for message in part.sends for parcel in message.parcels]
    sent = [together.get(key, key[1]) for key in names]
    reduced = [program.arrays[result].operand for reduction in part.reductions for result in reduction.results]  # type: ignore[union-attr]
    urgent = tuple(dict.fromkeys([*sent, *reduced]))
    places = Counter([*reduced, *(name for key, name in zip(names, sent, strict=True) if key not in together)])
    return urgent, dict.fromkeys([*urgent, *part.stores]), dict(places | Counter(set(together.values()) & set(sent)))


def _apart(joined: Joined, part: Part, stored: frozenset[str], target: Target) -> _PartPlan:
    """Every array in memory."""
    program, (urgent, roots, places) = joined.partition.program, _roots(joined, part)
    closure = frozenset(ir.computed_below(program, roots, stored))
    materialised = tuple(name for name in program.arrays if name in closure and name not in part.stores)
    level = _levels(program, closure, closure)
    return _PartPlan(part, urgent, part.stores, materialised, level, target.parameter_bytes, places, each=True)


def _readers(
    program: ir.Program, closure: frozenset[str], roots: Mapping[str, None]
) -> dict[str, list[_Read]]:
    """For each array: (reader, index, whether inside a reduction of the reader)."""
    found: dict[str, list[_Read]] = {name: [] for name in closure}
    for reader in program.arrays:
        node = program.arrays[reader]
        if reader not in closure or not isinstance(node, ir.Lambda):
            continue
        for position, index, reduced in _reads(node.expr, False):
            if node.operands[position] in found:
                found[node.operands[position]].append((reader, index, reduced))
    return found


def _reads(expr: ex.Expr, reduced: bool) -> list[tuple[int, tuple[ex.Expr, ...], bool]]:
    found = []
    if isinstance(expr, prim.Subscript):
        found.append((ex.operand_position(expr), expr.index_tuple, reduced))
    for child in ex.children(expr):
        found.extend(_reads(child, reduced or isinstance(expr, ex.Reduce)))
    return found


def _costly(
    program: ir.Program,
    closure: frozenset[str],
    readers: Mapping[str, list[_Read]],
    roots: Mapping[str, None],
    most: int,
) -> tuple[str, ...]:
    """Arrays that must be in memory before others read them, in order; readers compute the rest anew.

    `most`: bytes of a kernel's arguments for what it reads.
    """
    found: set[str] = set()
    below: dict[str, frozenset[str]] = {}  # arrays in memory that an array is computed from
    weight: dict[str, int] = {}  # expression nodes with elementwise operands written out
    reducing: set[str] = set()  # whoever computes them anew repeats a reduction
    calls = {name: node for name, node in program.of_type(ir.LoopyCall) if name in closure}
    called = {operand for call in calls.values() for operand in call.operands}
    for name, node in program.arrays.items():
        if name in calls or (name in closure and name in called):
            found.add(name)
        if name not in closure or not isinstance(node, ir.Lambda):
            continue
        stored = arguments.between(program, found, name, below, most)
        found, reducing = found | stored, reducing - stored
        if name in found:
            continue
        heavy = (weight.get(node.operands[position], 0) for position, _ in ex.reads(node.expr))
        weight[name] = sum(1 for _ in ex.walk(node.expr)) + sum(heavy)
        reduces = ex.has_reduce(node.expr) or not reducing.isdisjoint(node.operands)
        if (reduces or weight[name] > HEAVIEST) and _must_precede(program, name, reduces, readers[name], roots):
            found.add(name)
            weight[name] = 0
        elif reduces:
            reducing.add(name)
    return tuple(name for name in program.arrays if name in found)


def _must_precede(
    program: ir.Program, name: str, reduces: bool, readers: list[_Read], roots: Mapping[str, None]
) -> bool:
    """Whether some reader reads it at another index than its own, or (a reduction) not only one array needs it."""
    shape = program.arrays[name].shape
    own = all(index == ex.own_index(len(shape)) and not reduced for _, index, reduced in readers)
    same_shape = all(program.arrays[reader].shape == shape for reader, _, _ in readers)
    once = len({reader for reader, _, _ in readers}) == 1 and name not in roots
    return bool(readers) and not (own and same_shape and (once or not reduces))


def _levels(program: ir.Program, closure: frozenset[str], costly: frozenset[str]) -> dict[str, int]:
    """1 + the highest level among costly arrays below, for every array of the closure."""
    level: dict[str, int] = {}
    for name in program.arrays:
        if name in closure:
            below = [op for op in ir.operands(program.arrays[name]) if op in closure]
            level[name] = max((level[op] + (op in costly) for op in below), default=0)
    return level


def _kernels(program: ir.Program, plan: _PartPlan, stored: frozenset[str]) -> list[Kernel | Call]:
    """Urgent levels first, then the rest; a level's results share one launch."""
    first = _feeding(program, plan.urgent, plan)
    rest = [name for name in (*plan.materialised, *plan.stores) if name not in first]
    packed = dict.fromkeys((*first, *plan.urgent))
    kernels = _by_level(program, plan, tuple(packed), stored, "pack")
    return kernels + _by_level(program, plan, tuple(rest), stored | set(first), "compute")


def _block_kernels(
    program: ir.Program, plan: _PartPlan, stored: frozenset[str], batch: Mapping[str, int], target: Target
) -> list[Kernel] | None:
    """One kernel over blocks for each level, and the packing of what is sent; None if local memory is too small."""
    own = {*plan.materialised, *plan.stores}
    if not all(name in batch for name in own):
        return None
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
                    return None
                kernels += made
            ready.update(names)
        if urgent and any(ir.size(program.arrays[name].shape) for name in packed):
            kernels += _few_arguments(program, plan, tuple(packed), _in_memory(program, frozenset(ready)), "pack")
    return kernels


def _block_kernel(
    program: ir.Program,
    batch: Mapping[str, int],
    name: str,
    plan: _PartPlan,
    ready: frozenset[str],
    target: Target,
    names: tuple[str, ...],
) -> list[Kernel] | None:
    """The kernel over blocks for arrays `names`; None if it does not fit, and for one array: what it reads, either."""
    made = blocks.kernel(program, batch, name, plan.part.number, names, ready, target)
    return None if made is None or (len(names) == 1 and not _passes(program, plan, made)) else [made]


def _passes(program: ir.Program, plan: _PartPlan, kernel: Kernel) -> bool:
    return arguments.fits(program, kernel, plan.places, plan.limit)


def _few_arguments(
    program: ir.Program, plan: _PartPlan, names: tuple[str, ...], in_memory: Callable[[str], bool], label: str
) -> list[Kernel]:
    """The kernels of one level, each with few enough arguments where more kernels help."""

    def made(some: tuple[str, ...]) -> list[Kernel]:
        return _kernels_of(program, plan.part.number, some, in_memory, label)

    return arguments.split(names, made, functools.partial(_passes, program, plan)) or []


def _feeding(program: ir.Program, urgent: tuple[str, ...], plan: _PartPlan) -> dict[str, None]:
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
    program: ir.Program, plan: _PartPlan, names: tuple[str, ...], stored: frozenset[str], label: str
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
