"""`aotato.load`: open a bundle, choose a device, and return a program ready to be called."""

from __future__ import annotations

import os
from typing import Any

from aotato.runtime_stub import device as devices
from aotato.runtime_stub.abort import AbortHook
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.program import Program
from aotato.runtime_stub.world import World


class Loaded(Program):
    """A program that owns its bundle. From `load` to `close`, an exception that ends one rank stops all ranks.

    Inside `with`, so does sys.exit.
    """

    hook: AbortHook | None = None

    def __enter__(self) -> Loaded:
        return self

    def __exit__(self, *exception: Any) -> None:
        if self.hook is not None:
            self.hook.__exit__(*exception)
            self.hook = None
        if exception[0] is None:
            self.close()

    def close(self) -> None:
        if self.hook is not None:
            self.hook.remove()
            self.hook = None
        super().close()
        self.bundle.close()


def load(
    path: str | os.PathLike[str],
    comm: Any = None,
    device: Any = None,
    queue: Any = None,
    target: str | None = None,
) -> Loaded:
    """Open the bundle `path` for calling. Collective over `comm`; raises Refusal, on all ranks alike.

    `comm`: an mpi4py communicator with as many ranks as the bundle, or None for a bundle of one rank. `device`: an
    index or part of a name as `aotato-run --list-devices` prints them, or a pyopencl device. `queue`: a pyopencl
    command queue, whose context's arrays can then be passed. `target`: a target of the bundle, by default by device.
    """
    world = World.of(comm)
    bundle = world.together(lambda: Bundle.open(path))
    world.together(lambda: _expect(world, bundle, path))
    chosen = world.together(lambda: _device(world, device, queue))
    name = world.together(lambda: devices.target_for(devices.facts(chosen), list(bundle.meta["target_order"]), target))
    world.together(lambda: devices.fits(bundle, world.rank, chosen, name))
    program = Loaded(bundle, world, chosen, name, queue)
    # On the communicator that the caller gave, which outlives the program's own
    program.hook = world.abort_hook(script=True).install()
    return program


def _expect(world: World, bundle: Bundle, path: Any) -> None:
    if world.size != bundle.ranks:
        raise Refusal(
            f"{os.fspath(path)} is for {bundle.ranks} ranks, but the communicator given to load has {world.size}: "
            f"pass one of that size, or build with ranks={world.size}"
        )


def _device(world: World, device: Any, queue: Any) -> Any:
    if queue is not None:
        return queue.device
    if device is None or isinstance(device, str | int):
        return devices.pick(world, device)
    return device
