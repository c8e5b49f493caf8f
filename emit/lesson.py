"""What `scons -h` teaches: how to order a bundle, and every app with its options."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator

from aotato.emit.order import SETTINGS, found
from aotato.frontend.app import App, AppError, Option, builtin_names

_EXAMPLES = """\
aotato compiles an array program ahead of time into a bundle, which runs under MPI and OpenCL.

  scons app=ring ranks=2                 write build/ring/ring.h5
  scons app=ring ranks=2 n=200           the same with an option of the app
  scons app=path/to/my_app.py            an app of your own
  scons app=ring ranks=2 run             write it and run it under mpiexec
  scons app=ring ranks=2 run input=img1=photo_{rank}.npy output=out.h5
                                         what stands behind `run` goes to aotato-run as --NAME VALUE;
                                         its switches are on or off (run selftest=on); see aotato-run --help
  scons test                             run the tests
"""


def text(app: str | None = None) -> str:
    """The whole lesson; `app` is a name or file to describe besides the built-in apps."""
    names = builtin_names()
    names += [app] if app is not None and app not in names else []
    parts = [_EXAMPLES, "What every app takes, with defaults:", *_rows(SETTINGS), ""]
    parts += ["Apps, with their options and defaults:", *(line for name in names for line in _lines(name))]
    return "\n".join(parts) + "\n"


def _lines(name: str) -> Iterator[str]:
    try:
        app = found(name)
    except AppError as error:
        yield f"  {name}: {error}"
        return
    yield f"  {name}: {_first_sentence(app)}"
    yield from _rows(app.options, indent=4)


def _rows(options: Iterable[Option], indent: int = 2) -> Iterator[str]:
    for option in options:
        doc = option.doc + (f" [{option.unit}]" if option.unit else "")
        yield from textwrap.wrap(f"{option.name}={_shown(option.default)}".ljust(20) + " " + doc, 110,
                                 initial_indent=" " * indent, subsequent_indent=" " * (indent + 21))


def _shown(default: object) -> str:
    if isinstance(default, bool):
        return "on" if default else "off"
    return "..." if default is None else str(default)


def _first_sentence(app: App) -> str:
    return app.doc.partition("\n\n")[0].replace("\n", " ")
