"""What an entry returns, array by array: dicts, sequences, dataclasses and containers of pytato arrays have paths."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pytato as pt
from pytato.array import Array

from aotato.frontend.adapter.errors import TraceError

PytatoArray = Any


def flatten(value: Any, entry: str) -> Iterator[tuple[str, PytatoArray]]:
    """Arrays by path: `q.momentum.0`. Takes dicts, sequences, dataclasses and array containers alike."""
    seen: dict[str, str] = {}
    if value is None:
        raise TraceError(f"entry {entry!r} returns nothing; end it with `return {{NAME: array}}`")
    for keys, array in _leaves(value, ()):
        path = ".".join(keys) if keys else "out"
        if path in seen:
            raise TraceError(f"entry {entry!r} returns two arrays under the path {path!r}; rename one of them")
        seen[path] = path
        yield path, array


def _leaves(value: Any, keys: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], PytatoArray]]:
    if isinstance(value, Array):
        yield keys, value
    elif isinstance(value, np.ndarray) and value.dtype == object:
        for index in np.ndindex(value.shape):
            yield from _leaves(value[index], (*keys, *map(str, index)))
    elif isinstance(value, np.ndarray | np.generic | int | float | complex):
        yield keys, pt.make_data_wrapper(np.asarray(value))
    elif isinstance(value, Mapping):
        for key in value:
            yield from _leaves(value[key], (*keys, str(key)))
    elif isinstance(value, list | tuple):
        names = getattr(value, "_fields", range(len(value)))
        for name, item in zip(names, value, strict=True):
            yield from _leaves(item, (*keys, str(name)))
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            item = getattr(value, field.name)
            if isinstance(item, Array | np.ndarray | Mapping | list | tuple) or dataclasses.is_dataclass(item):
                yield from _leaves(item, (*keys, field.name))
    else:
        raise TraceError(
            f"output {'.'.join(keys) or 'out'!r} is a {type(value).__name__}; expected a pytato array, a number, "
            "or a dict, sequence or dataclass of these"
        )
