"""aotato-run: check everything, agree over all ranks, then run the bundle and write what came out."""

from __future__ import annotations

import signal
import sys
from argparse import Namespace
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotato.runtime_stub import device, loop, options, output, plan_data, tables, values, vtkhdf
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Bundle, Entry
from aotato.runtime_stub.output import About
from aotato.runtime_stub.program import Program
from aotato.runtime_stub.values import Wanted
from aotato.runtime_stub.world import World, attempt


@dataclass(frozen=True)
class Ready:
    """What the checks of one rank have found out."""

    entry: str
    inputs: Mapping[str, values.Array]
    device: Any  # pyopencl.Device
    target: str
    loop: loop.Order | None = None  # instead of entry and inputs


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status. Nothing here that can fail on one rank keeps another waiting."""
    if argv is None:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # until the run has begun, Ctrl-C needs no words
    bundle = None
    error, chosen = attempt(lambda: options.parse(argv))
    if chosen is not None and chosen.list_devices:
        return _list_devices()
    if chosen is not None:
        error, bundle = attempt(lambda: Bundle.open(chosen.file))
    try:
        world = World.find(bundle.ranks if bundle else None)
    except Refusal as refusal:
        return World.alone().report(error or refusal)
    try:
        run(world, bundle, chosen, error)
    except Refusal as refusal:
        return world.report(refusal)
    finally:
        if bundle is not None:
            bundle.close()
    return 0


def run(world: World, bundle: Bundle | None, chosen: Namespace | None, error: Refusal | None = None) -> None:
    """Collective; `error` is why this rank has no bundle or command line.

    Raises one Refusal on all ranks for what is found before the start; later failures end all ranks.
    """
    digest = world.first(bundle.digest if bundle else "")
    ready = world.together(lambda: prepare(world, bundle, chosen, digest, error))
    assert bundle is not None and chosen is not None
    late = None
    with world.abort_hook():
        # Closed only when all went well: freeing what others still use would wait for them
        program = Program(bundle, world, ready.device, ready.target)
        if chosen.selftest:
            text = f"{chosen.file}: {program.selftest()}"
        elif ready.loop is not None:
            done = loop.run(program, ready.loop, chosen, bundle.digest)
            late = done.error
            steps = f"{done.steps} step{'s' * (done.steps != 1)}"
            found = device.facts(ready.device)
            text = tables.summary(chosen.file, steps, world.size, ready.target, found, done.results)
            text += f"\n{done.sentence()}"
        else:
            results, about = execute(program, ready, chosen, bundle.digest)
            found = device.facts(ready.device)
            text = tables.summary(chosen.file, ready.entry, world.size, ready.target, found, results)
            if chosen.output:
                output.write(chosen.output, world, results, about)
            if chosen.vtk:
                vtkhdf.write(chosen.vtk, world, bundle, results, about)
        if world.speaks and not chosen.quiet:
            print(text, flush=True)
        program.close()
    if late is not None:
        raise late


def prepare(world: World, bundle: Bundle | None, chosen: Namespace | None, digest: str,
            error: Refusal | None) -> Ready:
    """Everything that can be checked before a device is set to work. Raises Refusal; does not communicate."""
    if error is not None:
        raise error
    assert bundle is not None and chosen is not None
    world.expect(bundle.ranks, chosen.file)
    if digest and bundle.digest != digest:
        raise Refusal(f"expected the same bundle as rank 0's ({digest[:12]}), but found {bundle.digest[:12]} in "
                      f"{chosen.file}: give all nodes the same file")
    found = plan_data.of(bundle.meta)
    for option in loop.wanted(chosen):
        if found is None:
            raise Refusal(f"expected a bundle with a loop for {option}, but {chosen.file} has none: leave {option} out")
        if chosen.entry or chosen.selftest:
            other = "--entry" if chosen.entry else "--selftest"
            raise Refusal(f"expected {option} or {other}, but found both: leave one of them out")
    if chosen.output and world.rank == 0:
        output.check(values.expand(chosen.output, 0, "step"))
    if chosen.vtk and world.rank == 0:
        output.check(values.expand(chosen.vtk, 0, "step"), vtkhdf.OPTION)
    if found is not None and not chosen.entry and not chosen.selftest:
        return Ready("", {}, *device_of(bundle, world, chosen), loop.read(bundle, found, world.rank, chosen))
    if chosen.selftest:
        return Ready("", {}, *device_of(bundle, world, chosen))
    entry = entry_of(bundle, chosen.entry)
    if chosen.vtk:
        vtkhdf.check(bundle, [entry.name])
    return Ready(entry.name, inputs_of(bundle, entry, world.rank, chosen), *device_of(bundle, world, chosen))


def device_of(bundle: Bundle, world: World, chosen: Namespace) -> tuple[Any, str]:
    """This rank's device, checked, and the target to run on it. Raises Refusal."""
    found = device.pick(world, chosen.device, chosen.target)
    target = device.target_for(device.facts(found), bundle.meta["target_order"], chosen.target)
    device.fits(bundle, world.rank, found, target)
    return found, target


def execute(program: Program, ready: Ready, chosen: Namespace, digest: str) -> tuple[dict[str, values.Array], About]:
    """Results by output path, and when they were taken."""
    return program.call(ready.entry, **ready.inputs), About(digest)


def entry_of(bundle: Bundle, name: str | None) -> Entry:
    """The named entry, or the only one. Raises Refusal."""
    known = ", ".join(bundle.entries)
    if name is None and len(bundle.entries) == 1:
        return next(iter(bundle.entries.values()))
    if name is None:
        raise Refusal(f"expected one entry to call, but the bundle has {known}: choose one with --entry NAME")
    if name not in bundle.entries:
        raise Refusal(f"expected one of the bundle's entries ({known}), but found --entry {name}: choose one of them")
    return bundle.entries[name]


def inputs_of(bundle: Bundle, entry: Entry, rank: int, chosen: Namespace) -> dict[str, values.Array]:
    """The entry's inputs on this rank, from the command line or their defaults. Raises Refusal."""
    signature = wanted(entry, rank)
    return values.gather(signature, rank, chosen.input, chosen.set, lambda name: bundle.default(entry.name, name, rank),
                         elsewhere=[s.name for s in entry.inputs])


def wanted(entry: Entry, rank: int) -> list[Wanted]:
    """The signature of the inputs that this rank has."""
    return [Wanted(s.name, s.shapes[rank], s.dtype, s.has_default(rank)) for s in entry.inputs if s.present[rank]]


def _list_devices() -> int:
    alone = World.alone()
    error, text = attempt(device.list_devices)
    if error is not None:
        return alone.report(error)
    if alone.speaks:
        print(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
