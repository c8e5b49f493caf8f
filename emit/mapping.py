"""How the nests of a kernel are laid out over groups and work-items of a target."""

from __future__ import annotations

from dataclasses import dataclass

from aotato.emit import groups, matrix
from aotato.emit.groups import Share
from aotato.emit.nest import Kernel, Nest
from aotato.emit.target import Target
from aotato.frontend import ir

BUSY = 256  # groups that keep all cores busy


@dataclass(frozen=True)
class Mapping:
    """`lanes`: inames of a group's work-items, neighbours first, and how many values each takes; `groups` of them.

    At most one of the others is given: a nest alone in its kernel can have a way of its own.
    """

    nests: tuple[Nest, ...]
    lanes: dict[str, int]
    groups: int
    share: Share | None = None
    product: tuple[matrix.Matrix, matrix.Rectangle] | None = None
    patch: dict[int, int] | None = None  # axis -> neighbouring elements along it that a work-item computes


def mapped(kernel: Kernel, target: Target) -> Mapping:
    """The mapping of `kernel`. A group has no more lanes than the largest nest has elements: loopy requires it."""
    if kernel.block is not None:
        count = -(-kernel.block.elements // kernel.block.size)
        return Mapping(kernel.nests, {"l": kernel.block.lanes}, count)
    if kernel.nests[0].share:
        (nest,) = kernel.nests
        return _alone(nest, target)
    return _flat(kernel.nests, target)


def _flat(nests: tuple[Nest, ...], target: Target) -> Mapping:
    most = max(ir.size(nest.shape) for nest in nests)
    lanes = min(target.group_size, most)
    return Mapping(nests, {"l": lanes}, -(-most // lanes))


def _alone(nest: Nest, target: Target) -> Mapping:
    if not target.lockstep:
        return _patches(nest, target)
    nest = groups.shared(nest)
    if nest.share == "product":
        found = matrix.matrix(nest)
        assert found is not None
        rectangle = matrix.rectangle(found, nest, found.statement.dtype.itemsize, target.side)
        lanes = {"l": rectangle.lanes[1], "p": rectangle.lanes[0]}
        return Mapping((nest,), lanes, matrix.groups(found, nest, rectangle), product=(found, rectangle))
    share = groups.share(nest, target.group_size)
    return Mapping((nest,), share.sides(), -(-ir.size(nest.shape) // share.results), share)


def _patches(nest: Nest, target: Target) -> Mapping:
    """Where work-items run one after another: neighbouring results of each side by side, in vectors."""
    patch = groups.patch(nest)
    items = ir.size(groups.patches(nest.shape, patch))
    # Each has much to do: rather many groups, which run at the same time, than large ones
    lanes = min(target.group_size, max(1, items // BUSY))
    return Mapping((nest,), {"l": lanes}, -(-items // lanes), patch=patch)
