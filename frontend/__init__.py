"""pytato in, programs out: authoring names, the adapter, the IR, its interpreter, partition and checks."""

from __future__ import annotations

import importlib
from typing import Any

_ROOMS = {
    "aotato.frontend.adapter.nodes": (
        "allreduce",
        "array_input",
        "make_distributed_recv",
        "make_distributed_send",
        "make_distributed_send_ref_holder",
        "staple_distributed_send",
        "take",
    ),
    "aotato.frontend.app": ("AppError", "Option", "positive"),
    "aotato.frontend.lattice": ("vtk_node_order", "vtk_nodes"),
    "aotato.frontend.plan": ("Call", "Every", "Plan", "Scalar"),
    "aotato.frontend.view": ("Field", "View"),
}
_HOMES = {name: room for room, names in _ROOMS.items() for name in names}

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    """Import a room when one of its names is used: `import aotato.frontend` alone loads nothing."""
    if name in _HOMES:
        return getattr(importlib.import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
