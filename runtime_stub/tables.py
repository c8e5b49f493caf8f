"""Readable tables: the summary after a run, and what `aotato inspect` prints without --json."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from aotato.runtime_stub.device import Facts
from aotato.runtime_stub.values import Array

_COLUMNS = ("rank", "parts", "batches", "launches", "messages", "collectives", "bytes_sent", "copies",
            "uploads", "downloads", "identity_copies", "stored_untagged", "arena_bytes", "live_bytes", "device_bytes")
_MOST_RANKS = 16


@dataclass(frozen=True)
class Machine:
    """What a device can do at best: bytes and floating-point operations in a second."""

    bandwidth: float
    flops: float

    def floor(self, kernel: Mapping[str, Any]) -> float:
        """Seconds below which no kernel with this traffic and work can stay."""
        traffic = (kernel["bytes_read"] + kernel["bytes_written"]) / self.bandwidth
        return float(max(traffic, kernel["flops"] / self.flops))


def summary(file: str, entry: str, ranks: int, target: str, found: Facts, results: Mapping[str, Array]) -> str:
    """What ran where, and the range of each of rank 0's results."""
    head = (f"{file}: {entry} on {ranks} rank{'s' * (ranks > 1)}, target {target}, "
            f"device {found.name} ({found.platform})")
    rows = [(name or "(result)", _type(array.dtype, array.shape), *_range(array)) for name, array in results.items()]
    return "\n".join([head, *_aligned(rows)])


def add_floors(report: Mapping[str, Any], machine: Machine) -> None:
    """Add `floor_seconds` to every kernel row, and their sum to every rank's row."""
    for entry in report["entries"].values():
        for row in entry["per_rank"]:
            for kernel in row["kernels"]:
                kernel["floor_seconds"] = machine.floor(kernel)
            row["floor_seconds"] = sum(kernel["floor_seconds"] for kernel in row["kernels"])


def inspection(report: Mapping[str, Any], machine: Machine | None = None) -> str:
    """The report of a bundle as tables: entries, their signatures, a row a rank, rank 0's kernels."""
    lines = [f"app {report['app']} for {report['ranks']} ranks, format {report['format']}, abi {report['abi']}",
             f"digest {report['digest']}",
             f"{report['kernels']} kernels, {report['rank_classes']} rank classes, "
             f"targets {', '.join(report['targets'])}"]
    for name, entry in report["entries"].items():
        lines += ["", f"entry {name}"]
        lines += [f"  {line}" for line in _aligned([*_signature("in", entry["inputs"]),
                                                    *_signature("out", entry["outputs"])])]
        lines += _ranks(entry["per_rank"])
        lines += _kernels(entry["per_rank"][0], machine) if entry["per_rank"] else []
    return "\n".join(lines)


def _ranks(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    table = [_COLUMNS, *(tuple(str(row.get(c, "")) for c in _COLUMNS) for row in rows[:_MOST_RANKS])]
    more = [f"  ... and {len(rows) - _MOST_RANKS} more ranks (--json has all)"] if len(rows) > _MOST_RANKS else []
    return ["", *(f"  {line}" for line in _aligned(table)), *more]


def _kernels(row: Mapping[str, Any], machine: Machine | None) -> list[str]:
    head = ("launch", "kernel", "part", "bytes read", "written", "flops", "local bytes")
    table = [head if machine is None else (*head, "floor")]
    for number, k in enumerate(row["kernels"]):
        cells = (str(number), k["name"], str(k["part"]), f"{k['bytes_read']:,}", f"{k['bytes_written']:,}",
                 f"{k['flops']:,}", f"{k.get('local_bytes', 0):,}")
        table.append(cells if machine is None else (*cells, _seconds(machine.floor(k))))
    lines = ["", f"  launches of rank {row['rank']}", *(f"  {line}" for line in _aligned(table))]
    if machine is not None:
        total = sum(map(machine.floor, row["kernels"]))
        lines.append(f"  no call on rank {row['rank']} is shorter than {_seconds(total)}")
    return lines


def _signature(side: str, rows: Sequence[Mapping[str, Any]]) -> list[tuple[str, ...]]:
    return [(side, row["name"] or "(result)", _type(row["dtype"], row["shape"]), row.get("unit") or "",
             row.get("doc") or "", _passed(row)) for row in rows]


def _passed(row: Mapping[str, Any]) -> str:
    """How kernels get a 0-dimensional input."""
    if "by_value" not in row or row["shape"]:
        return ""
    return "by value" if row["by_value"] else "stays on the device"


def _type(dtype: Any, shape: Any) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"


def _range(array: Array) -> tuple[str, ...]:
    if array.size == 0:
        return ("empty",)
    if array.dtype.kind == "b":
        return (f"{int(array.sum())} of {array.size} true",)
    if array.ndim == 0:
        return (f"{array.item():.7g}",)
    kind = "|.| " if array.dtype.kind == "c" else ""
    real = np.abs(array) if kind else array
    mean = real.mean(dtype=np.float64)
    return tuple(f"{kind}{word} {value:.7g}" for word, value in
                 (("min", real.min().item()), ("max", real.max().item()), ("mean", mean)))


def _aligned(rows: Sequence[tuple[str, ...]]) -> list[str]:
    width = [max(len(row[i]) for row in rows if i < len(row)) for i in range(max(map(len, rows), default=0))]
    return ["  " + "  ".join(cell.ljust(w) for cell, w in zip(row, width, strict=False)).rstrip() for row in rows]


def _seconds(value: float) -> str:
    return f"{value * 1e6:.3g} us"
