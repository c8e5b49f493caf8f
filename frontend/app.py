"""The contract between an app and aotato: options, entries, and how an app is found and checked."""

from __future__ import annotations

import difflib
import hashlib
import importlib
import importlib.util
import pkgutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any


class AppError(Exception):
    """A mistake in an app, its options or its name: one sentence for the person who builds."""


@dataclass(frozen=True)
class Option:
    """A build option of an app. `check(value)` returns a sentence about what is wrong, or nothing."""

    name: str
    type: Callable[[str], Any]  # int, float, str, bool, or any function of the text
    default: Any
    unit: str = ""
    doc: str = ""
    check: Callable[[Any], str | None] | None = None
    file: bool | Callable[[Any], bool] = False  # the value (or one of which this holds) names a file: see `names_file`

    def names_file(self, value: Any) -> bool:
        """Whether that value names a file: the bundle keeps its base name and sha256."""
        return bool(self.file(value)) if callable(self.file) else self.file


def positive(value: Any) -> str | None:
    """A check for `Option`: the value must be greater than zero."""
    return None if value > 0 else f"must be positive, not {value}"


@dataclass(frozen=True)
class App:
    """A computation: entries called as `entry(rank, size, opt, data)`, once per rank."""

    name: str
    doc: str
    options: tuple[Option, ...]
    entries: Mapping[str, Callable[..., Any]]
    setup: Callable[..., Any] | None
    plan: Callable[..., Any] | None
    sources: tuple[Path, ...]
    view: Callable[..., Any] | None = None  # called as `view(rank, size, opt, data)`: see `aotato.frontend.view`


def find(app: Any) -> App:
    """An app from a module, a built-in app's name, a Python file, a callable of (rank, size), or arrays."""
    if isinstance(app, App):
        return app
    if isinstance(app, ModuleType):
        return _from_module(app)
    if isinstance(app, str | Path):
        return _from_module(_module(str(app)))
    if callable(app):
        return App("step", app.__doc__ or "", (), {"step": lambda r, size, opt, data: app(r, size)}, None, None, ())
    return App("step", "", (), {"step": lambda rank, size, opt, data: app}, None, None, ())


def builtin_names() -> list[str]:
    from aotato.frontend import apps

    return sorted(info.name for info in pkgutil.iter_modules(apps.__path__) if not info.name.startswith("_"))


def _module(name: str) -> ModuleType:
    if name in builtin_names():
        return importlib.import_module(f"aotato.frontend.apps.{name}")
    path = Path(name)
    if path.suffix == ".py" and path.is_file():
        # Found beside it: an app may import its neighbours
        sys.path.insert(0, str(path.resolve().parent))
        # Under a name of its own: a file may be called like a module that others import
        spec = importlib.util.spec_from_file_location(f"aotato_app.{path.stem}", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[module.__name__] = module
        spec.loader.exec_module(module)
        return module
    near = difflib.get_close_matches(name, builtin_names(), 1)
    meant = f"; did you mean {near[0]!r}?" if near else f"; built-in apps: {', '.join(builtin_names())}"
    raise AppError(f"there is no app {name!r} and no Python file of that name{meant}")


def _from_module(module: ModuleType) -> App:
    name = module.__name__.rpartition(".")[2]
    entries = {entry.__name__: entry for entry in getattr(module, "ENTRIES", ())}
    if not entries:
        raise AppError(f"app {name!r} has no ENTRIES; list its entry functions, as in ENTRIES = (step,)")
    file = getattr(module, "__file__", None)
    return App(
        name,
        (module.__doc__ or "").strip(),
        tuple(getattr(module, "OPTIONS", ())),
        entries,
        getattr(module, "setup", None),
        getattr(module, "plan", None),
        (Path(file),) if file else (),
        getattr(module, "view", None),
    )


def options(app: App, given: Mapping[str, Any]) -> SimpleNamespace:
    """The values of all options of `app`, converted and checked. Raises AppError naming the option."""
    known = {option.name: option for option in app.options}
    for name in given:
        if name not in known:
            near = difflib.get_close_matches(name, known, 1)
            meant = f"; did you mean {near[0]!r}?" if near else f"; it has {', '.join(known) or 'none'}"
            raise AppError(f"app {app.name!r} has no option {name!r}{meant}")
    values = {option.name: _value(app, option, given.get(option.name, option.default)) for option in app.options}
    return SimpleNamespace(**values)


def _value(app: App, option: Option, value: Any) -> Any:
    if isinstance(value, str) and option.type is not str:
        try:
            value = _boolean(value) if option.type is bool else option.type(value)
        except ValueError:
            kind = getattr(option.type, "__name__", "value")
            raise AppError(f"option {option.name}={value} of app {app.name!r}: expected {kind}") from None
    wrong = option.check(value) if option.check else None
    if wrong:
        raise AppError(f"option {option.name}={value} of app {app.name!r} {wrong}")
    if option.names_file(value) and not Path(value).is_file():
        raise AppError(f"option {option.name}={value} of app {app.name!r}: there is no such file")
    return value


def _boolean(text: str) -> bool:
    if text.lower() in ("1", "yes", "true", "on"):
        return True
    if text.lower() in ("0", "no", "false", "off"):
        return False
    raise ValueError(text)


def recorded(app: App, values: SimpleNamespace) -> dict[str, Any]:
    """Option values as the bundle keeps them: plain data; a file is its base name and sha256."""
    out: dict[str, Any] = {}
    for option in app.options:
        value = getattr(values, option.name)
        if option.names_file(value):
            path = Path(value)
            out[option.name] = {"file": path.name, "sha256": hashlib.sha256(path.read_bytes()).hexdigest()}
        elif isinstance(value, Sequence) and not isinstance(value, str):
            out[option.name] = list(value)
        else:
            out[option.name] = value if isinstance(value, int | float | str | bool) or value is None else str(value)
    return out
