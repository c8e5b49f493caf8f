"""Gather what was emitted for all ranks and targets into one bundle."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from aotato.emit.driver import render
from aotato.emit.schedule import Emitted
from aotato.emit.target import Target
from aotato.emit.view import Drawn
from aotato.frontend import ir
from aotato.frontend.adapter.trace import Traced
from aotato.frontend.app import AppError
from aotato.frontend.constants import digest
from aotato.frontend.interpret import Value
from aotato.runtime_stub import format as fmt
from aotato.runtime_stub import schedule as sch
from aotato.runtime_stub import view_data

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class EntryParts:
    """One entry, emitted."""

    doc: str
    traced: Traced
    emitted: Mapping[str, Sequence[Emitted]]  # target -> by rank
    on_device: frozenset[str]  # paths of 0-dimensional inputs in device memory
    tests: Sequence[tuple[Mapping[str, Array], Mapping[str, Value]]]  # by rank: inputs, expected outputs


class _Store:
    """Datasets by path, each content once."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self.arrays: dict[str, Array] = {}

    def text(self, folder: str, text: str) -> str:
        key = fmt.dataset_digest(np.frombuffer(text.encode(), np.uint8))
        self.texts[f"{folder}/{key}"] = text
        return key

    def array(self, array: Array) -> str:
        key = digest(array)
        self.arrays[f"arrays/{key}"] = array
        return key


def write(
    path: Path,
    head: Mapping[str, Any],
    entries: Mapping[str, EntryParts],
    targets: Sequence[Target],
    drawn: Drawn | None = None,
) -> str:
    """Write the bundle; `head` holds app, options, ranks, provenance and plan. Returns the bundle's digest."""
    store = _Store()
    meta = {
        **head,
        "entries": {name: _entry(store, entries[name]) for name in sorted(entries)},
        "targets": {target.name: {**target.facts(), **_needs(store, entries, target.name)} for target in targets},
        "target_order": [target.name for target in targets],
        "views": view_data.to_json(drawn.views) if drawn else None,
    }
    if drawn:
        store.arrays.update({f"arrays/{key}": array for key, array in drawn.arrays.items()})
    return fmt.write(path, meta, store.texts, store.arrays)


def _needs(store: _Store, entries: Mapping[str, EntryParts], target: str) -> dict[str, Any]:
    """What is known of a device that suffices: less than the target promises, so that more devices do."""
    schedules = [emitted.schedule for parts in entries.values() for emitted in parts.emitted[target]]
    pieces = [max((s.arena_nbytes, *(b.own_nbytes for b in s.buffers))) for s in schedules]
    double = any("double" in text for name, text in store.texts.items() if name.startswith("kernels/"))
    return {"fp64": double, "largest_allocation": max(pieces, default=0)}


def _entry(store: _Store, parts: EntryParts) -> dict[str, Any]:
    programs = parts.traced.programs
    schedules, drivers = {}, {}
    for target, ranks in parts.emitted.items():
        schedules[target] = [store.text("schedules", _json(sch.to_json(e.schedule))) for e in ranks]
        drivers[target] = [store.text("drivers", render(e.schedule)) for e in ranks]
        for emitted in ranks:
            for key, text in emitted.sources.items():
                store.texts[f"kernels/{key}"] = text
            for key, array in emitted.constants.items():
                store.arrays[f"arrays/{key}"] = array
    return {
        "doc": parts.doc,
        "inputs": _inputs(store, parts),
        "outputs": _signatures(_outputs(program) for program in programs.ranks),
        "schedules": schedules,
        "drivers": drivers,
        "selftest": [_selftest(store, inputs, outputs) for inputs, outputs in parts.tests],
    }


def _json(data: Any) -> str:
    return json.dumps(data, sort_keys=True, separators=(",", ":"))


def _inputs(store: _Store, parts: EntryParts) -> list[dict[str, Any]]:
    ranks = parts.traced.programs.ranks
    rows = _signatures({node.path: node for _, node in program.of_type(ir.Input)} for program in ranks)
    for row in rows:
        facts = [inputs.get(row["name"]) for inputs in parts.traced.inputs]
        known = [fact for fact in facts if fact is not None]
        row["unit"], row["doc"] = (known[0].unit, known[0].doc) if known else ("", "")
        row["defaults"] = [store.array(f.default) if f is not None and f.default is not None else "" for f in facts]
        row["by_value"] = not any(row["shapes"]) and row["name"] not in parts.on_device
    return rows


def _outputs(program: ir.Program) -> dict[str, ir.Node]:
    return {output.path: program.arrays[output.array] for output in program.outputs}


def _signatures(ranks: Any) -> list[dict[str, Any]]:
    """Arrays by path over all ranks. Shapes may differ, dtypes not: raises AppError naming two ranks."""
    rows = list(ranks)
    names = sorted({name for row in rows for name in row})
    found = []
    for name in names:
        nodes = [row.get(name) for row in rows]
        rank, first = next((r, node) for r, node in enumerate(nodes) if node is not None)
        for other, node in enumerate(nodes):
            if node is not None and node.dtype != first.dtype:
                raise AppError(
                    f"{name!r} is {ir.type_text(first)} on rank {rank}, but {ir.type_text(node)} on rank {other}: "
                    "inputs and outputs must have the same dtype on all ranks"
                )
        found.append(
            {
                "name": name,
                "dtype": first.dtype.name,
                "shapes": [list(node.shape) if node is not None else [] for node in nodes],
                "present": [node is not None for node in nodes],
                "unit": "",
                "doc": "",
                "defaults": [],
                "by_value": False,
            }
        )
    return found


def _selftest(store: _Store, inputs: Mapping[str, Array], outputs: Mapping[str, Value]) -> dict[str, dict[str, str]]:
    return {
        "inputs": {name: store.array(inputs[name]) for name in sorted(inputs)},
        "outputs": {name: store.array(np.asarray(outputs[name].value)) for name in sorted(outputs)},
        "bounds": {name: store.array(np.asarray(outputs[name].bound)) for name in sorted(outputs)},
    }


