"""What one call of each entry costs, counted from its schedules: launches, messages, bytes, memory.

A call is one inside the plan's loop, with state on the device. `test_report` holds these counts against a real run.
"""

from __future__ import annotations

from typing import Any

from aotato.runtime_stub.format import Bundle, Entry, Signature
from aotato.runtime_stub.schedule import Launch, Schedule


def report(bundle: Bundle, target: str | None = None) -> dict[str, Any]:
    """The JSON of `aotato inspect`. `per_rank` is for `target`, by default the bundle's first."""
    order = list(bundle.meta["target_order"])
    chosen = target or order[0]
    meta = bundle.meta
    return {
        "format": meta["format"],
        "abi": meta["abi"],
        "app": bundle.app,
        "ranks": bundle.ranks,
        "digest": bundle.digest,
        "kernels": len(_kernels(bundle, chosen)),
        "rank_classes": len({_drivers(bundle, chosen, rank) for rank in range(bundle.ranks)}),
        "targets": order,
        "target": chosen,
        "options": meta["options"],
        "provenance": meta["provenance"],
        "entries": {name: _entry(bundle, entry, chosen) for name, entry in bundle.entries.items()},
    }


def _kernels(bundle: Bundle, target: str) -> set[str]:
    return {
        launch.kernel
        for name in bundle.entries
        for rank in range(bundle.ranks)
        for launch in bundle.schedule(name, target, rank).launches
    }


def _drivers(bundle: Bundle, target: str, rank: int) -> tuple[Any, ...]:
    """What ranks of one class have in common: drivers and kernels of every entry."""
    return tuple(
        (entry.drivers[target][rank], tuple(x.kernel for x in bundle.schedule(name, target, rank).launches))
        for name, entry in sorted(bundle.entries.items())
    )


def _entry(bundle: Bundle, entry: Entry, target: str) -> dict[str, Any]:
    return {
        "doc": entry.doc,
        "inputs": [_signature(s, True) for s in entry.inputs],
        "outputs": [_signature(s, False) for s in entry.outputs],
        "per_rank": [row(bundle.schedule(entry.name, target, rank)) for rank in range(bundle.ranks)],
    }


def _signature(signature: Signature, is_input: bool) -> dict[str, Any]:
    """`shape` is rank 0's, or that of the first rank that has the array; `shapes` stands beside it if they differ."""
    first = signature.present.index(True)
    shapes = [list(s) for s, p in zip(signature.shapes, signature.present, strict=True) if p]
    found: dict[str, Any] = {"name": signature.name, "shape": list(signature.shapes[first]), "dtype": signature.dtype}
    if any(shape != shapes[0] for shape in shapes) or not all(signature.present):
        found["shapes"] = [list(s) if p else None for s, p in zip(signature.shapes, signature.present, strict=True)]
    if is_input:
        found |= {"unit": signature.unit, "doc": signature.doc, "by_value": signature.by_value}
        found["has_default"] = all(map(bool, signature.defaults)) and bool(signature.defaults)
    return found


def row(s: Schedule) -> dict[str, Any]:
    """One rank's counts and bytes for one call."""
    out = [m for m in s.messages if m.outgoing]
    incoming = [m for m in s.messages if not m.outgoing]
    copied = s.staging == "copied"
    down = [m.nbytes for m in out if m.nbytes] + [s.buffer(r.buffer).nbytes for r in s.reductions if r.count]
    up = [m.nbytes for m in incoming if m.nbytes]
    up += [s.buffer(r.buffer).nbytes for r in s.reductions if any(shape for _, _, shape in r.values)]
    untagged = [s.buffer(name) for name in s.untagged]
    data = sum(b.nbytes for b in s.buffers if b.kind == "const")
    return {
        "rank": s.rank,
        "parts": s.parts,
        "batches": s.batches,
        "launches": len(s.launches),
        "messages": len(out),
        "bytes_sent": sum(m.nbytes for m in out),
        "collectives": len(s.reductions),
        "peers": sorted({m.peer for m in s.messages}),
        "copies": 0,
        "uploads": len(up) if copied else 0,
        "downloads": len(down) if copied else 0,
        "upload_bytes": sum(up) if copied else 0,
        "download_bytes": sum(down) if copied else 0,
        "identity_copies": sum(launch.identity_copies for launch in s.launches),
        "stored_untagged": len(untagged),
        "stored_untagged_bytes": sum(b.nbytes for b in untagged),
        "arena_bytes": s.arena_nbytes,
        "live_bytes": s.live_nbytes,
        "data_bytes": data,
        "device_bytes": s.arena_nbytes + sum(b.own_nbytes for b in s.buffers),
        "kernels": [_launch(launch) for launch in s.launches],
    }


def _launch(launch: Launch) -> dict[str, Any]:
    return {
        "name": launch.name,
        "digest": launch.kernel,
        "part": launch.part,
        "bytes_read": launch.bytes_read,
        "bytes_written": launch.bytes_written,
        "flops": launch.flops,
        "local_bytes": launch.local_bytes,
    }
