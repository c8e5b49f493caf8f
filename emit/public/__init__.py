"""aotato: compile distributed array programs ahead of time into bundles that run under MPI and OpenCL.

`build` compiles an app into a bundle, `load` runs one; the other names write apps (see README).
Importing aotato imports nothing else until a name is used.
"""

from __future__ import annotations

import importlib
from typing import Any

_HOMES = {
    "build": "aotato.emit.build",
    "load": "aotato.runtime_stub.load",
    **dict.fromkeys(
        (
            "Call",
            "Every",
            "Field",
            "Option",
            "Plan",
            "Scalar",
            "View",
            "allreduce",
            "array_input",
            "make_distributed_recv",
            "make_distributed_send",
            "make_distributed_send_ref_holder",
            "positive",
            "staple_distributed_send",
            "take",
            "vtk_node_order",
            "vtk_nodes",
        ),
        "aotato.frontend",
    ),
}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        try:
            return getattr(importlib.import_module(_HOMES[name]), name)
        except ModuleNotFoundError as error:
            if name == "load" or (error.name or "").startswith("aotato"):
                raise
            remedy = f"aotato.{name} needs more than a cluster does: pip install 'aotato[build]'"
            raise ModuleNotFoundError(f"{error}; {remedy}", name=error.name) from None
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return __all__
