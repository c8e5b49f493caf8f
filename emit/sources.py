"""What a bundle depends on, besides what is ordered: files, and the versions of packages."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import aotato
from aotato import emit, frontend, runtime_stub, templates
from aotato.frontend.app import App

PACKAGES = ("aotato", "numpy", "h5py", "pytato", "loopy", "pymbolic", "pytools", "islpy", "networkx", "jinja2")


def versions() -> dict[str, str]:
    """Of Python and the packages that take part in a build; a package that is missing has an empty one."""
    return {"python": sys.version, **{name: _version(name) for name in PACKAGES}}


def files(app: App, values: SimpleNamespace) -> list[Path]:
    """aotato's own files, the app's, and those that its options name."""
    given = ((option, getattr(values, option.name)) for option in app.options)
    named = {Path(value) for option, value in given if option.names_file(value)}
    return sorted({*package_files(), *app_files(app), *named})


def package_files() -> set[Path]:
    rooms = [Path(room) for package in (aotato, emit, frontend, runtime_stub, templates) for room in package.__path__]
    return {file for room in rooms for file in room.rglob("*") if file.suffix in (".py", ".jinja")}


def app_files(app: App) -> set[Path]:
    """The app's file and what it imported from its folder; what an environment has installed counts by version."""
    folders = {path.resolve().parent for path in app.sources}
    environments = {Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()}
    return {file for file in _imported() if folders & set(file.parents) and not environments & set(file.parents)}


def _imported() -> Iterator[Path]:
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if file is not None:
            yield Path(file).resolve()


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""
