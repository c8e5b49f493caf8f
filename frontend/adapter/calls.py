"""Calls of traced functions (pytato main) become the arrays that the functions return."""

from __future__ import annotations

from typing import Any

from aotato.frontend.adapter import compat

PytatoArray = Any

if compat.HAS_LOWERING:
    from pytato.function import NamedCallResult
    from pytato.transform.calls import PlaceholderSubstitutor

    class _Inlining(PlaceholderSubstitutor):  # type: ignore[misc]
        """pytato's substitution of parameters, which goes into functions that functions call."""

        def map_named_call_result(self, node: PytatoArray) -> PytatoArray:
            call = node._container
            bindings = {name: self.rec(array) for name, array in call.bindings.items()}
            return _Inlining(bindings)(call.function.returns[node.name])


def is_call(node: PytatoArray) -> bool:
    return compat.HAS_LOWERING and isinstance(node, NamedCallResult)


def inlined(node: PytatoArray) -> PytatoArray:
    """What the called function returns, with the call's arguments in place of its parameters."""
    return _Inlining(node._container.bindings)(node._container.function.returns[node.name])
