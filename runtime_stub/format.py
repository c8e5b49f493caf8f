"""The bundle: one HDF5 file, its schema, and how it is written, opened and checked.

    /meta                 JSON text: everything that is not bulk data (see `Bundle`)
    /kernels/<digest>     OpenCL C
    /drivers/<digest>     Python, run by the loader after its digest is checked
    /schedules/<digest>   JSON of `schedule.Schedule`
    /arrays/<digest>      constants, tables, defaults, self-test data, views

Texts are one-dimensional uint8 datasets. All datasets are contiguous, without filters, links or external storage.
`/meta` lists every other dataset with its sha256; the root attribute `digest` is the sha256 of `/meta`.
A digest in the same file proves that nothing was damaged, not where it came from.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from aotato.runtime_stub import schedule as sch
from aotato.runtime_stub import view_data
from aotato.runtime_stub.errors import Refusal

FORMAT = 1  # of the container: what this module reads and writes
ABI = 1  # of drivers and kernels: what they expect from the loader

LARGEST_TEXT = 1 << 30  # bytes

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Signature:
    """An input or output of an entry. Shapes may differ from rank to rank."""

    name: str
    dtype: str
    shapes: tuple[tuple[int, ...], ...]  # by rank; a rank without it has an empty place in `present`
    present: tuple[bool, ...]
    unit: str = ""
    doc: str = ""
    defaults: tuple[str, ...] = ()  # by rank: digest of the default value, "" where there is none
    by_value: bool = False  # inputs: passed by value, not kept in device memory

    def has_default(self, rank: int) -> bool:
        return bool(self.defaults) and bool(self.defaults[rank])


@dataclass(frozen=True)
class Entry:
    """What a caller of an entry must know, and where its parts lie in the bundle."""

    name: str
    doc: str
    inputs: tuple[Signature, ...]
    outputs: tuple[Signature, ...]
    schedules: Mapping[str, tuple[str, ...]]  # target -> digest by rank
    drivers: Mapping[str, tuple[str, ...]]
    selftest: tuple[Mapping[str, Mapping[str, str]], ...] = ()  # by rank: "inputs", "outputs", "bounds": name -> digest


@dataclass
class Bundle:
    """An open bundle.

    `meta` holds format, abi, app, options, ranks, provenance, entries, targets, plan, views, datasets.
    """

    path: Path
    meta: Mapping[str, Any]
    digest: str
    file: Any = field(repr=False)
    entries: dict[str, Entry] = field(default_factory=dict)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Bundle:
        """Open and check every digest. Raises Refusal: unreadable, of another version, or damaged."""
        file = _file(Path(path))
        try:
            bundle = _checked(Path(path), file)
        except Refusal:
            file.close()
            raise
        except (OSError, KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
            file.close()
            raise _damaged(path, str(error)) from None
        return bundle

    @property
    def app(self) -> str:
        return str(self.meta["app"])

    @property
    def ranks(self) -> int:
        return int(self.meta["ranks"])

    @property
    def views(self) -> view_data.Views | None:
        """The meshes that results are drawn on, if the app gives any. Raises Refusal."""
        return view_data.of(self.meta)

    @property
    def targets(self) -> Mapping[str, Mapping[str, Any]]:
        found: Mapping[str, Mapping[str, Any]] = self.meta["targets"]
        return found

    def schedule(self, entry: str, target: str, rank: int) -> sch.Schedule:
        text = self.text(f"schedules/{self.entries[entry].schedules[target][rank]}")
        return sch.from_json(json.loads(text))

    def driver(self, entry: str, target: str, rank: int) -> str:
        return self.text(f"drivers/{self.entries[entry].drivers[target][rank]}")

    def kernel(self, digest: str) -> str:
        return self.text(f"kernels/{digest}")

    def array(self, digest: str) -> Array:
        found: Array = np.asarray(self.file[f"arrays/{digest}"][()])
        return found

    def stored_array(self, digest: str) -> Any:
        """The h5py dataset of an array, to read slices of."""
        return self.file[f"arrays/{digest}"]

    def default(self, entry: str, name: str, rank: int) -> Array:
        signature = next(s for s in self.entries[entry].inputs if s.name == name)
        return self.array(signature.defaults[rank])

    def text(self, path: str) -> str:
        return bytes(self.file[path][()]).decode()

    def close(self) -> None:
        self.file.close()

    def __enter__(self) -> Bundle:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def write(path: Path, meta: Mapping[str, Any], texts: Mapping[str, str], arrays: Mapping[str, Array]) -> str:
    """Write a bundle under a temporary name and rename it; returns its digest.

    `texts` and `arrays` are by dataset path (`kernels/...`). The same contents give the same bytes.
    """
    data = {name: np.frombuffer(text.encode(), np.uint8) for name, text in texts.items()}
    data.update(arrays)
    digests = {name: dataset_digest(data[name]) for name in sorted(data)}
    text = json.dumps({**meta, "datasets": digests}, sort_keys=True, indent=1)
    digest = hashlib.sha256(text.encode()).hexdigest()
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with h5py.File(partial, "w", libver=("earliest", "v110")) as file:
            for name in sorted(data):
                file.create_dataset(name, data=data[name], track_times=False)
            file.create_dataset("meta", data=np.frombuffer(text.encode(), np.uint8), track_times=False)
            file.attrs["format"], file.attrs["abi"], file.attrs["digest"] = FORMAT, ABI, digest
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)
    return digest


def dataset_digest(array: Array) -> str:
    """sha256 of dtype, shape and bytes in C order."""
    array = np.asarray(array, order="C")
    head = f"{array.dtype.str} {list(array.shape)} "
    return hashlib.sha256(head.encode() + array.tobytes()).hexdigest()


def _file(path: Path) -> Any:
    if not path.is_file():
        raise Refusal(f"there is no file {str(path)!r}; build it with scons, or check the path")
    try:
        return h5py.File(path, "r", locking=False)
    except OSError:
        why = "it is damaged or no bundle: build it again"
        raise Refusal(f"{str(path)!r} is not a readable HDF5 file; {why}") from None


def _damaged(path: str | os.PathLike[str], why: str) -> Refusal:
    return Refusal(f"bundle {os.fspath(path)!r} is damaged or was altered ({why}); build or copy it again")


def _checked(path: Path, file: Any) -> Bundle:
    for name, known in (("format", FORMAT), ("abi", ABI)):
        found = file.attrs.get(name)
        if found is None:
            raise Refusal(f"{str(path)!r} is no aotato bundle: it has no attribute {name!r}; build one with scons")
        if int(found) != known:
            raise Refusal(
                f"bundle {str(path)!r} has {name} version {int(found)}, this loader reads {known}; "
                "build it again, or install the aotato that built it"
            )
    names = _datasets(path, file)
    text = bytes(file["meta"][()])
    digest = hashlib.sha256(text).hexdigest()
    if file.attrs["digest"] != digest:
        raise _damaged(path, "its table of contents does not match its digest")
    meta = json.loads(text)
    if sorted(meta["datasets"]) != names:
        raise _damaged(path, "datasets are missing or were added")
    for name, expected in meta["datasets"].items():
        if dataset_digest(file[name][()]) != expected:
            raise _damaged(path, f"dataset {name!r} does not match its digest")
    entries = {name: _entry(name, data) for name, data in meta["entries"].items()}
    return Bundle(path, meta, digest, file, entries)


def _datasets(path: Path, file: Any) -> list[str]:
    """Names of all datasets but /meta. Refuses everything a bundle does not have."""
    found: list[str] = []
    budget = os.path.getsize(path)

    def visit(group: Any, prefix: str) -> None:
        for key in group:
            link = group.get(key, getlink=True)
            if not isinstance(link, h5py.HardLink):
                raise _damaged(path, f"{prefix + key!r} is a link")
            item = group[key]
            if isinstance(item, h5py.Group):
                visit(item, f"{prefix}{key}/")
            elif isinstance(item, h5py.Dataset):
                _check_storage(path, prefix + key, item, budget)
                found.append(prefix + key)
            else:
                raise _damaged(path, f"{prefix + key!r} is no dataset")

    visit(file, "")
    found.remove("meta")
    return sorted(found)


def _check_storage(path: Path, name: str, item: Any, budget: int) -> None:
    plan = item.id.get_create_plist()
    if item.is_virtual or plan.get_external_count() or plan.get_nfilters() or item.chunks is not None:
        raise _damaged(path, f"dataset {name!r} is not stored plainly")
    if item.dtype.kind not in "biufc" or item.dtype.hasobject:
        raise _damaged(path, f"dataset {name!r} has type {item.dtype}")
    if item.size * item.dtype.itemsize > budget:
        raise _damaged(path, f"dataset {name!r} claims more bytes than the file has")


def _entry(name: str, data: Mapping[str, Any]) -> Entry:
    def by_rank(rows: Mapping[str, Sequence[str]]) -> dict[str, tuple[str, ...]]:
        return {target: tuple(digests) for target, digests in rows.items()}

    return Entry(
        name,
        data["doc"],
        tuple(_signature(row) for row in data["inputs"]),
        tuple(_signature(row) for row in data["outputs"]),
        by_rank(data["schedules"]),
        by_rank(data["drivers"]),
        tuple(data["selftest"]),
    )


def _signature(row: Mapping[str, Any]) -> Signature:
    return Signature(
        row["name"],
        row["dtype"],
        tuple(tuple(shape) for shape in row["shapes"]),
        tuple(row["present"]),
        row["unit"],
        row["doc"],
        tuple(row["defaults"]),
        row["by_value"],
    )
