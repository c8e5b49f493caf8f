"""Inputs of an entry: read from files and the command line, checked against its signature."""

from __future__ import annotations

import difflib
import re
import reprlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from numpy.typing import DTypeLike, NDArray

from aotato.runtime_stub.errors import Refusal

Array = NDArray[Any]

_NPY, _HDF5, _ZIP = b"\x93NUMPY", b"\x89HDF\r\n\x1a\n", b"PK\x03\x04"
_LEVEL = {"b": 0, "u": 1, "i": 1, "f": 2, "c": 3}  # a Python number may move up, never down
_TRUTH = {"true": True, "yes": True, "1": True, "false": False, "no": False, "0": False}


@dataclass(frozen=True)
class Wanted:
    """One input as the entry's signature has it, for one rank."""

    name: str
    shape: tuple[int, ...]
    dtype: DTypeLike
    has_default: bool = False

    def __str__(self) -> str:
        return f"{np.dtype(self.dtype)}[{', '.join(map(str, self.shape))}]"


def gather(signature: Sequence[Wanted], rank: int, files: Sequence[str], settings: Sequence[str],
           default: Callable[[str], Array], elsewhere: Collection[str] = ()) -> dict[str, Array]:
    """Every input's value on this rank, from `--input` and `--set` texts, else its default. Raises Refusal.

    Values for inputs that only other ranks have (`elsewhere`) are passed over.
    """
    wanted = {one.name: one for one in signature}
    names = [*wanted, *(name for name in elsewhere if name not in wanted)]
    texts: dict[str, tuple[str, str]] = {}
    for option, text in [("--input", text) for text in files] + [("--set", text) for text in settings]:
        name, value = split(text, names, option)
        if name in texts:
            raise Refusal(f"expected one value for input {name!r}, but found two: keep one of them", code=2)
        texts[name] = option, value
    given = {name: read(wanted[name], value, rank) if option == "--input" else parse(wanted[name], value)
             for name, (option, value) in texts.items() if name in wanted}
    return complete(signature, given, default)


def check_all(signature: Sequence[Wanted], given: Mapping[str, Any], default: Callable[[str], Array]
              ) -> dict[str, Array]:
    """Every input's value from arrays given by name in Python, else its default. Raises Refusal."""
    wanted = {one.name: one for one in signature}
    for name in given:
        _known(name, wanted)
    checked = {name: check(wanted[name], value, "the argument") for name, value in given.items()}
    return complete(signature, checked, default)


def complete(signature: Sequence[Wanted], given: Mapping[str, Array], default: Callable[[str], Array]
             ) -> dict[str, Array]:
    """`given`, and defaults for the rest. Raises Refusal for an input that has neither."""
    for one in signature:
        if one.name not in given and not one.has_default:
            option = f"--set {one.name}=VALUE or " if one.shape == () else ""
            raise Refusal(f"input {one.name!r} ({one}) has no default, but found no value for it: give it with "
                          f"{option}--input {one.name}=FILE")
    return {one.name: given[one.name] if one.name in given else default(one.name) for one in signature}


def split(text: str, names: Collection[str], option: str) -> tuple[str, str]:
    """Name and value of `NAME=VALUE`; the value may contain `=`, and so may a name that is known. Raises Refusal."""
    known = max((name for name in names if text.startswith(f"{name}=")), key=len, default=None)
    if known is not None:
        return known, text[len(known) + 1:]
    name, equals, value = text.partition("=")
    if not equals or not name:
        form = "NAME=FILE" if option == "--input" else "NAME=VALUE"
        raise Refusal(f"expected {option} {form}, but found {option} {text!r}: write the input's name before an `=`",
                      code=2)
    _known(name, names)
    return name, value


def read(wanted: Wanted, text: str, rank: int) -> Array:
    """The array of `FILE.npy` or `FILE.h5:DATASET`, `{rank}` (or `{rank:04d}`) replaced. Raises Refusal."""
    text = expand(text, rank)
    path, dataset = _divide(text)
    option = f"--input {wanted.name}={text}"
    try:
        with path.open("rb") as file:
            magic = file.read(8)
    except OSError as error:
        raise Refusal(f"expected a readable file for input {wanted.name!r}, but found {path}: "
                      f"{error.strerror or error}; correct {option}") from error
    if dataset is not None or magic == _HDF5:
        array = _read_hdf5(path, dataset, option)
    else:
        array = _read_npy(path, magic, option)
    return check(wanted, array, text)


def expand(text: str, number: int, name: str = "rank") -> str:
    """`{rank}` and `{rank:FORMAT}` replaced; other braces stay. Raises Refusal for a format that is none."""
    try:
        return re.sub(rf"\{{{name}(?::([^{{}}]*))?\}}", lambda m: format(number, m[1] or ""), text)
    except ValueError as error:
        raise Refusal(f"expected a number format as in {{{name}:04d}}, but found {text!r}: {error}") from error


def check(wanted: Wanted, value: Any, origin: str) -> Array:
    """The value as a contiguous array in native byte order, which has the wanted shape and dtype. Raises Refusal.

    Python numbers, and lists and tuples of numbers, become arrays of the wanted dtype if they fit; arrays are never
    converted.
    """
    if isinstance(value, bool | int | float | complex) and wanted.shape == ():
        return _scalar(wanted, value, origin)
    array = _as_array(wanted, value, origin)
    dtype = np.dtype(wanted.dtype)
    found = f"{array.dtype}[{', '.join(map(str, array.shape))}]"
    if array.shape != wanted.shape:
        raise Refusal(f"input {wanted.name!r} is {wanted}, but {origin} holds {found}: give an array of that shape")
    if isinstance(value, list | tuple | range):
        return _numbers(wanted, array, origin)
    if array.dtype.newbyteorder("=") != dtype:
        raise Refusal(f"input {wanted.name!r} is {wanted}, but {origin} holds {found}: "
                      f"convert it with `.astype(\"{dtype}\")`")
    return np.require(array, dtype, "C").reshape(wanted.shape)


def _as_array(wanted: Wanted, value: Any, origin: str) -> Array:
    try:
        array = np.asarray(value)
        if array.dtype == np.float64 and isinstance(value, list | tuple) and _whole(value):
            array = np.asarray(value, np.uint64)  # of numbers below and above 2**63 numpy makes floats
    except (OverflowError, ValueError):
        raise Refusal(f"input {wanted.name!r} is {wanted}, but {origin} holds sequences of different lengths "
                      "or numbers of more than 64 bits: give an array of that shape") from None
    if array.dtype.kind not in _LEVEL:
        raise Refusal(f"input {wanted.name!r} is {wanted}, but {origin} holds {type(value).__name__} "
                      f"{reprlib.repr(value)}: give numbers")
    return array


def _whole(value: Any) -> bool:
    """Whether nested lists and tuples hold Python's whole numbers, one at least, and nothing else."""
    if isinstance(value, list | tuple):
        return bool(value) and all(map(_whole, value))
    return isinstance(value, int)


def _numbers(wanted: Wanted, array: Array, origin: str) -> Array:
    """What a list or tuple holds, in the wanted dtype. Raises Refusal with the first number that does not fit."""
    dtype = np.dtype(wanted.dtype)
    if _LEVEL[array.dtype.kind] > _LEVEL[dtype.kind]:
        wrong = np.full(array.shape, True)
    elif dtype.kind in "iu":
        wrong = (array < np.iinfo(dtype).min) | (array > np.iinfo(dtype).max)
    else:
        with np.errstate(over="ignore"):
            wrong = np.isfinite(array) & ~np.isfinite(array.astype(dtype))
    if wrong.any():
        first = tuple(int(i) for i in np.argwhere(wrong)[0])
        found = f"{array[first].item()!r} at {list(first)}"
        raise Refusal(f"input {wanted.name!r} is {wanted}, but {origin} holds {found}: give a {_kind(dtype)}")
    with np.errstate(over="ignore"):
        return array.astype(dtype)


def parse(wanted: Wanted, text: str) -> Array:
    """The 0-dimensional array that `--set NAME=TEXT` stands for. Raises Refusal."""
    dtype = np.dtype(wanted.dtype)
    if wanted.shape != ():
        raise Refusal(f"input {wanted.name!r} is {wanted}, but --set gives single numbers: "
                      f"use --input {wanted.name}=FILE")
    origin = f"--set {wanted.name}={text}"
    try:
        return _scalar(wanted, _number(dtype, text.strip()), origin)
    except (ValueError, KeyError):
        raise Refusal(f"input {wanted.name!r} is {dtype}, but found {origin}: give a {_kind(dtype)}") from None


def _number(dtype: np.dtype[Any], text: str) -> bool | int | float | complex:
    match dtype.kind:
        case "b":
            return _TRUTH[text.lower()]
        case "i" | "u":
            return int(text, 0)
        case "f":
            return float(text)
        case _:
            return complex(text)


def _scalar(wanted: Wanted, value: bool | int | float | complex, origin: str) -> Array:
    dtype = np.dtype(wanted.dtype)
    refusal = Refusal(f"input {wanted.name!r} is {dtype}, but found {origin}, {value!r}: give a {_kind(dtype)}")
    if _LEVEL[np.asarray(value).dtype.kind] > _LEVEL.get(dtype.kind, -1):
        raise refusal
    if dtype.kind in "iu" and not np.iinfo(dtype).min <= value <= np.iinfo(dtype).max:  # type: ignore[operator]
        raise refusal
    with np.errstate(over="ignore"):
        array = np.asarray(value).astype(dtype)
    if np.isfinite(value) and not np.isfinite(array):
        raise refusal
    return array


def _kind(dtype: np.dtype[Any]) -> str:
    match dtype.kind:
        case "b":
            return "truth value (true or false)"
        case "i" | "u":
            return f"whole number from {np.iinfo(dtype).min} to {np.iinfo(dtype).max}"
        case "f":
            return f"number of at most {np.finfo(dtype).max:.4g}"
        case _:
            return "complex number, as in 1+2j"


def _divide(text: str) -> tuple[Path, str | None]:
    """File and dataset; a colon divides them where what stands before it is a file."""
    if not Path(text).is_file():
        for at in (i for i, letter in enumerate(text) if letter == ":"):
            if Path(text[:at]).is_file():
                return Path(text[:at]), text[at + 1:]
        if (match := re.fullmatch(r"(.+\.(?:h5|hdf5|hdf)):(.*)", text)) is not None:
            return Path(match[1]), match[2]
    return Path(text), None


def _read_npy(path: Path, magic: bytes, option: str) -> Array:
    if not magic.startswith(_NPY):
        kind = "an .npz archive" if magic.startswith(_ZIP) else "neither"
        raise Refusal(f"expected an .npy or HDF5 file, but {path} is {kind}: save the array with numpy.save "
                      f"and correct {option}")
    try:
        return np.asarray(np.load(path, allow_pickle=False))
    except (ValueError, OSError, EOFError) as error:
        raise Refusal(f"expected an .npy file of numbers, but {path} cannot be read ({_line(error)}): save the array "
                      "anew with numpy.save") from error


def _read_hdf5(path: Path, dataset: str | None, option: str) -> Array:
    try:
        with h5py.File(path, "r") as file:
            found = file.get(dataset) if dataset else None
            if isinstance(found, h5py.Dataset) and found.dtype.kind in "biufc":
                return np.asarray(found[()])
            names = _dataset_names(file)
    except (OSError, KeyError, ValueError, RuntimeError) as error:
        raise Refusal(f"expected an HDF5 file, but {path} cannot be read ({_line(error)}): correct {option}") from error
    listed = f"it has {', '.join(names)}" if names else "it has none"
    raise Refusal(f"expected a dataset of numbers as in {path}:NAME, but found {dataset or 'no name'!r} "
                  f"({listed}): correct {option}")


def _dataset_names(file: h5py.File, most: int = 8) -> list[str]:
    names: list[str] = []
    file.visititems(lambda name, node: names.append(name) if isinstance(node, h5py.Dataset) else None)
    return names[:most] + ["..."] * (len(names) > most)


def _known(name: str, names: Iterable[str]) -> None:
    names = list(names)
    if name not in names:
        near = difflib.get_close_matches(name, names, 1)
        meant = f"did you mean {near[0]!r}?" if near else f"give one of {', '.join(names) or '(it has none)'}"
        raise Refusal(f"expected one of the entry's inputs, but found {name!r}: {meant}")


def _line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), type(error).__name__).rstrip(".")
