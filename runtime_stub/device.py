"""Which OpenCL device a rank uses, and whether it is enough for the bundle's target."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.schedule import Schedule
from aotato.runtime_stub.world import World, describe

REMEDY = ("install PoCL with `pip install 'aotato[local]'`, load the system's OpenCL module, "
          "or let OCL_ICD_VENDORS name the folder of its .icd files")
ANOTHER = "choose another device (`--list-devices`, `--device`)"


@dataclass(frozen=True)
class Facts:
    """What a device reports. Sizes in bytes."""

    name: str
    platform: str
    kind: str  # "gpu", "cpu" or "other"
    driver: str
    fp64: bool
    memory: int
    local_bytes: int
    parameter_bytes: int
    largest_allocation: int
    alignment: int  # of sub-buffers
    group_size: int  # work-items of the largest work-group


# Key in the target's facts and in `Facts`, what it is, its unit
_MINIMA = (
    ("local_bytes", "local memory", "bytes"),
    ("largest_allocation", "memory in one allocation", "bytes"),
    ("parameter_bytes", "kernel parameters", "bytes"),
    ("group_size", "work-groups", "work-items"),
)


def facts(device: Any) -> Facts:
    """The facts of a pyopencl device."""
    cl = import_opencl()
    kinds = {cl.device_type.GPU: "gpu", cl.device_type.CPU: "cpu"}
    return Facts(
        name=device.name.strip(),
        platform=device.platform.name.strip(),
        kind=next((kind for bit, kind in kinds.items() if device.type & bit), "other"),
        driver=device.driver_version.strip(),
        fp64="cl_khr_fp64" in device.extensions.split() or bool(device.double_fp_config),
        memory=device.global_mem_size,
        local_bytes=device.local_mem_size,
        parameter_bytes=device.max_parameter_size,
        largest_allocation=device.max_mem_alloc_size,
        alignment=max(1, device.mem_base_addr_align // 8),
        group_size=device.max_work_group_size,
    )


def choose(world: World, target: Mapping[str, Any], wanted: str | int | None = None, need: int = 0) -> Any:
    """The device of this rank, which suffices for the target's facts and `need` bytes. Raises Refusal."""
    device = pick(world, wanted, target.get("name"))
    check(facts(device), target, need)
    return device


def pick(world: World, wanted: str | int | None = None, kind: str | None = None) -> Any:
    """Of the wanted devices (an index of `--list-devices`, or part of its text), the node-local rank's, in turn.

    Without a wish: those of `kind` if there are any, else the GPUs, else all. Raises Refusal.
    """
    devices = visible()
    if wanted is not None:
        suitable = _named(devices, str(wanted))
    else:
        known = [(device, facts(device).kind) for device in devices]
        suitable = next(filter(None, ([d for d, k in known if k == w] for w in (kind, "gpu"))), devices)
    return suitable[world.local_rank % len(suitable)]


def target_for(found: Facts, names: Sequence[str], wanted: str | None = None) -> str:
    """The bundle's target to run: the wanted one, the device's kind, or the first. Raises Refusal."""
    if wanted is not None and wanted not in names:
        raise Refusal(f"expected one of the bundle's targets ({', '.join(names)}), but found --target {wanted}: "
                      f"choose one of them, or build with target={wanted}")
    return wanted or (found.kind if found.kind in names else names[0])


def check(found: Facts, target: Mapping[str, Any], need: int = 0) -> None:
    """Compare a device with the minimum that a target assumes, and its memory with `need` bytes. Raises Refusal."""
    needs = f"but target {target.get('name', '')!r} of this bundle needs"
    if target.get("fp64") and not found.fp64:
        raise Refusal(f"device {found.name!r} has no double precision (fp64), {needs} it: {ANOTHER}, "
                      "or build the program in float32")
    for key, what, unit in _MINIMA:
        if getattr(found, key) < target.get(key, 0):
            raise Refusal(f"device {found.name!r} offers {getattr(found, key)} {unit} of {what}, {needs} "
                          f"{target[key]}: {ANOTHER}, or build for another target")
    if target.get("alignment", found.alignment) % found.alignment:
        raise Refusal(f"device {found.name!r} aligns memory to {found.alignment} bytes, but target "
                      f"{target.get('name', '')!r} of this bundle assumes a divisor of {target['alignment']}: "
                      f"{ANOTHER}, or build for another target")
    if found.memory < need:
        raise Refusal(f"device {found.name!r} has {found.memory} bytes of memory, but this rank needs {need}: "
                      f"{ANOTHER}, or build for more ranks")


def fits(bundle: Bundle, rank: int, device: Any, target: str) -> None:
    """Compare a device with what the target assumes and this rank's buffers need. Raises Refusal."""
    schedules = [bundle.schedule(entry, target, rank) for entry in bundle.entries]
    check(facts(device), bundle.targets[target], memory_needed(schedules))


def memory_needed(schedules: Iterable[Schedule]) -> int:
    """Bytes of all buffers and arenas of one rank's entries; a constant that several of them read counts once."""
    constants: dict[str, int] = {}
    others = 0
    for schedule in schedules:
        others += schedule.arena_nbytes
        others += sum(b.own_nbytes for b in schedule.buffers if b.kind != "const")
        constants |= {b.source: b.nbytes for b in schedule.buffers if b.kind == "const"}
    return others + sum(constants.values())


def list_devices() -> str:
    """A numbered line for each visible device. Raises Refusal if there is none."""
    return "\n".join(_lines(visible()))


def visible() -> list[Any]:
    """All devices of all platforms, in their order. Raises Refusal if there is none."""
    cl = import_opencl()
    try:
        platforms = cl.get_platforms()
    except cl.Error as error:
        raise Refusal(f"expected an OpenCL device, but found no platform ({describe(error)}{_vendors()}): {REMEDY}"
                      ) from error
    devices = [device for platform in platforms for device in _devices(cl, platform)]
    if not devices:
        names = ", ".join(platform.name.strip() for platform in platforms) or "(none)"
        raise Refusal(f"expected an OpenCL device, but found none on platform {names}{_vendors()}: {REMEDY}")
    return devices


def import_opencl() -> Any:
    """The pyopencl module. Raises Refusal where it or the OpenCL library is missing."""
    try:
        import pyopencl
    except (ImportError, RuntimeError) as error:
        raise Refusal(f"expected pyopencl and an OpenCL library, but found none ({describe(error)}): {REMEDY}"
                      ) from error
    return pyopencl


def _devices(cl: Any, platform: Any) -> list[Any]:
    try:
        return list(platform.get_devices())
    except cl.Error:  # a platform may lack devices, or fail, without harm to the others
        return []


def _named(devices: Sequence[Any], wanted: str) -> list[Any]:
    if wanted.isdecimal():
        found = list(devices[int(wanted):int(wanted) + 1])
    else:
        texts = [f"{f.kind} {f.name} {f.platform}".lower() for f in map(facts, devices)]
        found = [device for device, text in zip(devices, texts, strict=True) if wanted.lower() in text]
    if not found:
        listed = "; ".join(_lines(devices))
        raise Refusal(f"expected --device to be the number or part of the name of a device, but found {wanted!r}: "
                      f"choose one of: {listed}")
    return found


def _lines(devices: Iterable[Any]) -> list[str]:
    return [f"{i}  {f.kind}  {f.name} ({f.platform}, driver {f.driver}), {f.memory / 2**30:.1f} GiB, "
            f"{'with' if f.fp64 else 'without'} fp64" for i, f in enumerate(map(facts, devices))]


def _vendors() -> str:
    value = os.environ.get("OCL_ICD_VENDORS")
    return f", OCL_ICD_VENDORS={value}" if value else ""
