"""Write results as one HDF5 file, `/rank/<r>/<output path>`, without parallel HDF5.

Ranks send their arrays to rank 0, which writes them, rank by rank, in pieces of at most 64 MiB. Ranks taking turns at
the file would need the same file system on all nodes to show each rank at once what the one before it wrote, which
network file systems do not promise; and a gather in one piece would need memory for all ranks on rank 0.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import h5py
import numpy as np
from numpy.typing import NDArray

from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.names import encode_name
from aotato.runtime_stub.world import World, describe, import_mpi

Array = NDArray[Any]

PIECE_BYTES = 64 << 20
_TAG = 11


@dataclass(frozen=True)
class About:
    """Attributes of the file: the bundle's digest, and where in the run the arrays were taken."""

    digest: str
    step: int = 0
    time: float = 0.0
    scalars: Mapping[str, Any] = field(default_factory=dict)  # stored as JSON text

    def attributes(self) -> dict[str, Any]:
        scalars = json.dumps({name: np.asarray(value).item() for name, value in self.scalars.items()}, default=str)
        return {"digest": self.digest, "step": self.step, "time": self.time, "scalars": scalars}


def check(path: str | Path, option: str = "--output") -> None:
    """Refuse, before anything runs, a place where no file can be written. For rank 0."""
    path = Path(path)
    if path.is_dir() or not path.parent.is_dir():
        what = "a folder" if path.is_dir() else "a folder that does not exist"
        raise Refusal(f"expected {option} to name a file in an existing folder, but found {path}, {what}"
                      f"{'' if path.is_dir() else f' ({path.parent})'}: create it or choose another name")
    try:
        with _part(path).open("wb"):
            pass
        _part(path).unlink()
    except OSError as error:
        raise Refusal(f"expected a writable place for {option}, but found {path} ({error.strerror}): "
                      "choose another") from error


def write(path: str | Path, world: World, arrays: Mapping[str, Array], about: About,
          observed: Mapping[str, Mapping[str, Array]] = MappingProxyType({})) -> None:
    """Collective. The file appears under its name when it is complete. Raises Refusal on rank 0 if it cannot.

    `observed`, rank 0's, are tables by entry, as `/observed/<entry>/<column>`.
    """
    if world.rank != 0:
        _send(world.comm, arrays)
        return
    with appearing(path) as file:
        file.attrs.update(about.attributes() | {"ranks": world.size})
        for rank in range(world.size):
            group = file.create_group(f"rank/{rank}")
            if rank == 0:
                _store(group, arrays)
            else:
                _receive(world.comm, rank, group)
        for entry, columns in observed.items():
            _store(file.create_group(f"observed/{encode_name(entry)}"), columns)


@contextlib.contextmanager
def appearing(path: str | Path, option: str = "--output") -> Iterator[h5py.File]:
    """A new file, which gets its name when the block has ended well. Raises Refusal if it cannot be written."""
    path, part = Path(path), _part(Path(path))
    try:
        with h5py.File(part, "w") as file:
            yield file
        os.replace(part, path)
    except (OSError, RuntimeError) as error:
        raise Refusal(f"expected to write {path}, but found {describe(error)}: make room or choose another "
                      f"{option}") from error
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)


def boxes(shape: tuple[int, ...], itemsize: int, limit: int = PIECE_BYTES) -> Iterator[tuple[int | slice, ...]]:
    """Indices that cut an array into pieces of at most `limit` bytes, each contiguous in C order, in that order."""
    if 0 in shape:
        return
    row = int(np.prod(shape[1:], dtype=np.int64)) * itemsize
    if not shape or row * shape[0] <= limit:
        yield ()
    elif row > limit:
        for i in range(shape[0]):
            yield from ((i, *rest) for rest in boxes(shape[1:], itemsize, limit))
    else:
        rows = limit // row
        yield from ((slice(i, min(i + rows, shape[0])),) for i in range(0, shape[0], rows))


def _store(group: h5py.Group, arrays: Mapping[str, Array]) -> None:
    for name, array in arrays.items():
        group.create_dataset(encode_name(name), data=array)


def _send(comm: Any, arrays: Mapping[str, Array]) -> None:
    comm.send([(name, array.dtype.str, array.shape) for name, array in arrays.items()], 0, _TAG)
    for array in arrays.values():
        send(comm, array)


def _receive(comm: Any, rank: int, group: h5py.Group) -> None:
    for name, dtype, shape in comm.recv(source=rank, tag=_TAG):
        dataset = group.create_dataset(encode_name(name), shape, np.dtype(dtype))
        for box, piece in received(comm, rank, shape, np.dtype(dtype)):
            dataset[box] = piece


def send(comm: Any, array: Array) -> None:
    """Send an array to rank 0 in pieces, which takes them with `received`."""
    mpi = import_mpi()
    array = np.require(array, requirements="C")
    for box in boxes(array.shape, array.itemsize):
        # Synchronous, so that what waits for rank 0 waits here and does not pile up there
        comm.Ssend((_bytes(array[box]), mpi.BYTE), 0, _TAG)


def received(comm: Any, rank: int, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[tuple[Any, Array]]:
    """The pieces of an array that `rank` sends, each with its place."""
    mpi = import_mpi()
    for box in boxes(shape, dtype.itemsize):
        piece = np.empty(_extent(shape, box), dtype)
        comm.Recv((_bytes(piece), mpi.BYTE), rank, _TAG)
        yield box, piece


def _extent(shape: tuple[int, ...], box: tuple[int | slice, ...]) -> tuple[int, ...]:
    ends = [index.stop - index.start for index in box if isinstance(index, slice)]
    return (*ends, *shape[len(box):])


def _bytes(array: Array) -> NDArray[np.uint8]:
    return np.require(array, requirements="C").reshape(-1).view(np.uint8)


def _part(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")
