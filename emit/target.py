"""What a mapping assumes of a device: the minimum that the loader compares with the device it finds."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any


@dataclass(frozen=True)
class Target:
    """A mapping and the device minimum it needs. Sizes in bytes."""

    name: str
    staging: str  # "mapped": host and device share memory; "copied": messages go through pinned host memory
    group_size: int  # work-items of a group
    lockstep: bool  # work-items of a group run side by side; else one after another, as a loop
    side: int = 16  # work-items of a group along rows, and along columns, of a matrix product in lockstep
    lanes: int = 96  # work-items of a group over a block of elements, at most
    elements: int = 32  # of such a block, at most
    width: int = 32  # of these, so many run in lockstep
    vector_bytes: int = 32  # of numbers that a work-item computes at once
    private_bytes: int = 1 << 18  # of a work-item that computes such a block alone
    near_bytes: int = 1 << 14  # of these, so many stay in the fastest cache beside all else
    accumulators: int = 16  # 8-byte numbers that a work-item sums up side by side
    matrices: bool = False  # products of small matrices go to units for them, where sums may be contracted
    matrix_lanes: int = 128  # work-items of a group then, at most
    matrix_least: int = 0  # and at least, where other nests have so much to do
    sums_apart: bool = False  # products that leave no registers for what is made of them go through local memory
    approximate: bool = False  # reciprocals and roots may start from the device's approximation
    hidden_bytes: int = 1 << 19  # written by a launch that runs while messages travel, to be worth one more launch
    alignment: int = 4096  # of arena slots; the device's own base alignment must divide it
    local_bytes: int = 32768
    parameter_bytes: int = 1024
    largest_allocation: int = 1 << 34  # a bundle says what it needs of this

    def facts(self) -> dict[str, Any]:
        largest = max(self.group_size, self.lanes, self.matrices * self.matrix_lanes, self.lockstep * self.side**2)
        return asdict(self) | {"group_size": largest}


TARGETS = {
    "gpu": Target(
        "gpu",
        "copied",
        128,
        accumulators=1,  # more nodes a work-item take more registers than the loads they save are worth
        lockstep=True,
        matrices=True,
        hidden_bytes=1 << 24,
        local_bytes=49152,
    ),
    "cpu": Target("cpu", "mapped", 128, lockstep=False, elements=16, local_bytes=65536),
}


class TargetError(Exception):
    """An unknown target name, or a program that the target cannot hold."""


def chosen(names: str) -> tuple[Target, ...]:
    """Targets by a comma-separated list of names, in that order."""
    unknown = [name for name in names.split(",") if name not in TARGETS]
    if unknown:
        raise TargetError(f"there is no target {unknown[0]!r}; known: {', '.join(TARGETS)}")
    return tuple(TARGETS[name] for name in dict.fromkeys(names.split(",")))
