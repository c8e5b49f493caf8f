"""A case: initial state, boundaries and defaults of options, from a file of `cases/` or of the user's."""

from __future__ import annotations

import difflib
import functools
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from aotato.frontend.app import AppError
from aotato.frontend.apps._flow.boundaries import Boundary
from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.functions import Values
from aotato.frontend.apps._flow.gas import State

Exact = Callable[[Sequence[Values], Values, Flow], State]
KNOWN = ("DIM", "DEFAULTS", "PARAMETERS", "initial", "exact", "boundaries", "source", "warp")
SETTABLE = ("mesh", "lengths", "origin", "periodic", "physics", "re", "mach", "end")  # options with a case's default


@dataclass(frozen=True)
class Case:
    """What a case's module says; see docs/cns.md. Functions get coordinates as a sequence, one array an axis."""

    name: str
    doc: str
    dim: tuple[int, ...]  # that it can have, the default first
    defaults: Mapping[str, Any]  # of options
    parameters: Mapping[str, float]  # numbers that `--set` changes
    initial: Callable[[Sequence[Values], Flow], State]
    exact: Exact | None = None
    boundaries: Callable[[Flow], Mapping[str, Boundary]] | None = None
    source: Callable[[Sequence[Values], Values, Flow], Sequence[Values]] | None = None  # of conserved variables
    warp: Callable[[Any], Any] | None = None  # of points (..., dim) of quads and hexes, in numpy


def names() -> list[str]:
    from aotato.frontend.apps._flow import cases

    return sorted(info.name for info in pkgutil.iter_modules(cases.__path__))


def is_file(text: Any) -> bool:
    return str(text).endswith(".py")


def wrong_name(text: str) -> str | None:
    """What is wrong with a case's name; a file is looked for elsewhere."""
    if is_file(text) or text in names():
        return None
    near = difflib.get_close_matches(text, names(), 1)
    meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(names())}"
    return f"is neither a case nor a file ending in .py; {meant}"


@functools.lru_cache
def find(text: str) -> Case:
    """The case of that name or file. Raises AppError."""
    module = _file(Path(text)) if is_file(text) else importlib.import_module(f"aotato.frontend.apps._flow.cases.{text}")
    return of(module)


def of(module: ModuleType) -> Case:
    """Raises AppError where the module lacks what a case needs."""
    where = f"case {module.__name__.rpartition('.')[2]!r}"
    for name in vars(module):
        near = difflib.get_close_matches(name, KNOWN, 1, cutoff=0.8)
        if near and name not in KNOWN:
            raise AppError(f"{where} defines {name!r}; did you mean {near[0]!r}?")
    found = {name: getattr(module, name, None) for name in KNOWN}
    exact = found["exact"]
    initial = found["initial"] or (exact and (lambda x, flow: exact(x, 0.0, flow)))
    if initial is None:
        raise AppError(f"{where} says nothing of the start: define initial(x, flow), or exact(x, t, flow)")
    dim = found["DIM"] or (2, 3)
    _check_defaults(where, found["DEFAULTS"] or {})
    return Case(module.__name__.rpartition(".")[2], (module.__doc__ or "").strip(),
                (dim,) if isinstance(dim, int) else tuple(dim), found["DEFAULTS"] or {}, found["PARAMETERS"] or {},
                initial, exact, found["boundaries"], found["source"], found["warp"])


def _check_defaults(where: str, defaults: Mapping[str, Any]) -> None:
    for name in defaults:
        if name not in SETTABLE:
            near = difflib.get_close_matches(name, SETTABLE, 1)
            meant = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(SETTABLE)}"
            raise AppError(f"{where} gives a default to {name!r}; {meant}")


def _file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"aotato_case.{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module.__name__] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise AppError(f"case {str(path)!r} cannot be imported: {type(error).__name__}: {error}") from error
    return module
