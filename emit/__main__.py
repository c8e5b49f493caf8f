"""`python -m aotato.emit PATH ORDER`: write the bundle of an order (JSON, see `aotato.emit.order`) to a path."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence

from aotato.emit.build import build
from aotato.emit.target import TargetError
from aotato.frontend.adapter.errors import TraceError
from aotato.frontend.adapter.lower import UnsupportedNode
from aotato.frontend.app import AppError
from aotato.frontend.checks import ProgramErrors

MISTAKES = (AppError, TraceError, UnsupportedNode, ProgramErrors, TargetError)  # the app's author's, not ours


def main(arguments: Sequence[str]) -> int:
    path, order = arguments
    asked = json.loads(order)
    try:
        build(asked.pop("app"), path=path, progress=_say, **asked)
    except MISTAKES as mistake:
        print(f"aotato: {mistake}", file=sys.stderr)
        return 1
    return 0


def _say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
