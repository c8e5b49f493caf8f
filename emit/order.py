"""What a scons command line orders: an app with its options, ranks and targets, and words for the loader."""

from __future__ import annotations

import difflib
import json
import traceback
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aotato.emit import sources
from aotato.emit.target import TargetError, chosen
from aotato.frontend.app import App, AppError, Option, find, options, recorded
from aotato.runtime_stub import options as loader

SETTINGS = (
    Option("app", str, None, doc="the name of an app, or a Python file"),
    Option("ranks", int, 1, doc="MPI ranks that will run the bundle"),
    Option("targets", str, "gpu,cpu", doc="kinds of device, separated by commas; `aotato inspect` shows the first"),
    Option("contract", bool, False, doc="on: the device may fuse a*b + c, with one rounding"),
    Option("fuse", bool, True, doc="off: every array has memory and a kernel of its own; slow"),
    Option("algebra", str, "exact", doc="fast: rounding may change: no quotients, matrices multiplied while building"),
    Option("overlap", bool, True, doc="off: no kernel is launched in two halves to run while messages travel"),
)
DEFAULTS = {option.name: option.default for option in SETTINGS}
MISTAKES = (AppError, TargetError)
ALGEBRAS = ("exact", "fast")
GOALS = ("run", "test")  # words that are no file but something to do

Pairs = Sequence[tuple[str, str]]  # name=value, in the order given


@dataclass(frozen=True)
class Order:
    """A bundle to build, all values checked."""

    app: str  # as given
    name: str
    ranks: int
    targets: str
    contract: bool
    overlap: bool
    fuse: bool
    algebra: str
    options: Mapping[str, str]  # as given: the process that builds converts them in the same way
    loader: tuple[str, ...]  # arguments of aotato-run for `scons ... run`
    identity: str  # text that differs where the bundle may, but for the contents of `files`
    files: tuple[Path, ...]

    @property
    def bundle(self) -> str:
        return bundle_path(self.name)

    @property
    def text(self) -> str:
        """The arguments of `aotato.build` as JSON, for `python -m aotato.emit`."""
        return json.dumps({"app": self.app, "ranks": self.ranks, "targets": self.targets, "contract": self.contract,
                           "overlap": self.overlap, "fuse": self.fuse, "algebra": self.algebra,
                           "options": dict(self.options)})


def bundle_path(app: str) -> str:
    """Where the bundle of an app is written, whatever its options."""
    return f"build/{app}/{app}.h5"


def split(pairs: Pairs, words: Sequence[str]) -> tuple[Pairs, Pairs]:
    """Pairs for the build, and those behind the word `run`, which are for the loader."""
    if "run" not in words:
        return pairs, ()
    behind = sum("=" in word and not word.startswith("-") for word in words[words.index("run"):])
    return pairs[:len(pairs) - behind], pairs[len(pairs) - behind:]


def read(pairs: Pairs, for_loader: Pairs = (), goals: Sequence[str] = ()) -> Order:
    """The order that the pairs and words of a command line make. Raises AppError, TargetError: one sentence."""
    given = dict(pairs)
    _check_goals(goals, given.get("app"))
    if "app" not in given and "app" in dict(for_loader):
        raise AppError("expected app=NAME before the word run, but found it behind: what stands there is the loader's")
    if "app" not in given:
        raise AppError(f"expected app=NAME, but found {_shown(pairs)}: `scons -h` lists the apps")
    app = found(given["app"])
    own = {name: value for name, value in given.items() if name not in DEFAULTS}
    _check_names(app, own)
    values = options(app, own)
    ranks, contract = _ranks(given.get("ranks", "1")), _switch("contract", given.get("contract", "off"))
    overlap, fuse = (_switch(name, given.get(name, "on")) for name in ("overlap", "fuse"))
    algebra = given.get("algebra", DEFAULTS["algebra"])
    if algebra not in ALGEBRAS:
        raise AppError(f"expected algebra={' or algebra='.join(ALGEBRAS)}, but found algebra={algebra}")
    targets = given.get("targets", DEFAULTS["targets"])
    chosen(targets)
    identity = {"app": app.name, "ranks": ranks, "targets": targets, "contract": contract, "overlap": overlap,
                "fuse": fuse, "algebra": algebra, "options": recorded(app, values), "versions": sources.versions()}
    return Order(given["app"], app.name, ranks, targets, contract, overlap, fuse, algebra, own,
                 _loader_arguments(app, for_loader), json.dumps(identity, sort_keys=True),
                 tuple(sources.files(app, values)))


def found(name: str) -> App:
    """The app of that name or file. Raises AppError, also for what goes wrong in the app while it is imported."""
    try:
        return find(name)
    except AppError:
        raise
    except ModuleNotFoundError as error:
        raise AppError(f"app {name!r} cannot be imported: {error}; `pip install '.[build]'` installs "
                       "what aotato's own apps need") from error
    except Exception as error:
        file, line = _place(error)
        raise AppError(f"app {name!r} cannot be imported: {type(error).__name__}: {error} ({file}:{line})") from error


def nearest(name: str, known: Iterable[str]) -> str:
    """How a sentence about an unknown name ends."""
    known = list(known)
    near = difflib.get_close_matches(name, known, 1)
    return f"; did you mean {near[0]!r}?" if near else f"; there are {', '.join(known)}"


def _loader_options() -> dict[str, Any]:
    """Defaults of the loader's options that go with a bundle; False marks a switch."""
    known = vars(loader.parser().parse_args([]))
    return {name: default for name, default in known.items() if name not in ("file", "list_devices")}


def _loader_arguments(app: App, pairs: Pairs) -> tuple[str, ...]:
    """For the pairs behind `run`: `steps=9` is `--steps 9`, `selftest=on` is `--selftest`."""
    known = _loader_options()
    arguments: list[str] = []
    for name, value in pairs:
        if name in DEFAULTS or name in {option.name for option in app.options}:
            raise AppError(f"expected {name}={value} before the word `run`: what stands behind it is for the loader")
        if name not in known:
            raise AppError(f"the loader has no option {name!r}{nearest(name, known)}")
        if known[name] is not False:
            arguments += [f"--{name}", value]
        elif _switch(name, value):
            arguments += [f"--{name}"]
    return tuple(arguments)


def _check_goals(words: Iterable[str], app: str | None) -> None:
    known = [*GOALS, *([bundle_path(Path(app).stem)] if app else [])]
    for word in words:
        if word not in known:
            raise AppError(f"there is nothing called {word!r} to make{nearest(word, known)}")


def _check_names(app: App, own: Mapping[str, str]) -> None:
    known = [option.name for option in app.options]
    for name, value in own.items():
        if name not in known and name in _loader_options():
            raise AppError(f"app {app.name!r} has no option {name!r}, but the loader has: write it behind the word "
                           f"`run`, as in `run {name}={value}`")
        if name not in known:
            raise AppError(f"app {app.name!r} has no option {name!r}{nearest(name, (*known, *DEFAULTS))}")


def _ranks(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise AppError(f"expected a whole number of ranks, at least 1, but found ranks={text}")
    return int(text)


def _switch(name: str, text: str) -> bool:
    if text not in ("on", "off"):
        raise AppError(f"expected {name}=on or {name}=off, but found {name}={text}")
    return text == "on"


def _place(error: Exception) -> tuple[str | None, int | None]:
    if isinstance(error, SyntaxError):
        return error.filename, error.lineno
    last = traceback.extract_tb(error.__traceback__)[-1]
    return last.filename, last.lineno


def _shown(pairs: Pairs) -> str:
    return " ".join(f"{name}={value}" for name, value in pairs) or "no app"
