"""Whether a case's boundaries or source depend on the time: only then is it an input of the entry `stage`."""

from __future__ import annotations

from typing import Any

from aotato.frontend import array_input
from aotato.frontend.adapter.trace import trace
from aotato.frontend.apps._flow.boundaries import Face
from aotato.frontend.apps._flow.case import Case
from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.gas import Gas, State


def reads_time(case: Case, dim: int, lengths: tuple[float, ...]) -> bool:
    """From the arrays that the case's functions return for a single point."""

    def results(rank: int) -> list[Any]:
        def number(name: str) -> Any:
            return array_input(name, (), "float64")

        axes = [number(f"x{d}") for d in range(dim)]
        flow = Flow(Gas(1.4, 1.0, 0.71, 1 / number("re")), number("mach"), lengths,
                    {name: number(name) for name in case.parameters})
        inner = State(number("density"), tuple(number(f"u{d}") for d in range(dim)), number("pressure"))
        face = Face([number(f"n{d}") for d in range(dim)], axes, number("t"), flow)
        flux = [number(f"flux{d}") for d in range(dim + 1)]
        found: list[Any] = [0.0]
        for boundary in (case.boundaries(flow) if case.boundaries else {}).values():
            outside = boundary.outside(inner, face)
            found += [outside.density, *outside.velocity, outside.pressure]
            found += [*boundary.trace(inner, face), *boundary.through(flux, face)]
        return found + list(case.source(axes, face.t, flow) if case.source else [])

    return "t" in trace("boundaries", 1, results).inputs[0]
