"""Boundary conditions: what a face on the boundary of the mesh sees across itself.

Conditions are weak: the numerical flux is computed with a state outside (G. Mengaldo et al., AIAA 2014-2923), and
velocity and temperature on the face enter the gradients as `ldg` says.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.functions import Values, dot
from aotato.frontend.apps._flow.gas import State
from aotato.frontend.apps._flow.viscous import differentiated


@dataclass(frozen=True)
class Face:
    """Where a condition is asked for: unit normals out of the mesh, positions, time, and the flow."""

    normal: Sequence[Values]
    x: Sequence[Values]
    t: Values
    flow: Flow


@dataclass(frozen=True)
class Boundary:
    """A condition, from the state inside. Results may be numbers where they are the same on all of the boundary.

    `outside`: the state across the face, for the inviscid flux. `trace`: velocity and temperature on the face.
    `through`: the viscous flux through the face (momentum, energy), from what it would be inside.
    """

    outside: Callable[[State, Face], State]
    trace: Callable[[State, Face], list[Values]]
    through: Callable[[list[Values], Face], list[Values]] = lambda flux, face: flux


Given = Callable[[Sequence[Values], Values, Flow], State]  # a state at x and t


def no_slip(temperature: Values | None = None, velocity: Sequence[Values] | None = None) -> Boundary:
    """A wall that the gas sticks to, of that temperature, or adiabatic; `velocity` is along the wall."""

    def trace(inner: State, face: Face) -> list[Values]:
        wall = face.flow.gas.temperature(inner) if temperature is None else temperature
        return [*(velocity or [0.0] * len(inner.velocity)), wall]

    def through(flux: list[Values], face: Face) -> list[Values]:
        """No heat, only the work of a moving wall."""
        return [*flux[:-1], dot(flux[:-1], velocity or [0.0] * len(face.normal))]

    return Boundary(_mirrored, trace, through) if temperature is None else Boundary(_mirrored, trace)


def slip() -> Boundary:
    """A wall without friction, or a plane of symmetry: no mass, no heat, no shear through it."""

    def trace(inner: State, face: Face) -> list[Values]:
        normal_speed = dot(inner.velocity, face.normal)
        along = [u - normal_speed * n for u, n in zip(inner.velocity, face.normal, strict=True)]
        return [*along, face.flow.gas.temperature(inner)]

    def through(flux: list[Values], face: Face) -> list[Values]:
        pull = dot(flux[:-1], face.normal)
        return [*(pull * n for n in face.normal), 0.0]

    return Boundary(_mirrored, trace, through)


def prescribed(given: Given) -> Boundary:
    """All of a state that is known at every x and t."""

    def outside(inner: State, face: Face) -> State:
        return given(face.x, face.t, face.flow)

    def trace(inner: State, face: Face) -> list[Values]:
        return differentiated(outside(inner, face), face.flow.gas)

    return Boundary(outside, trace)


def farfield(given: Given) -> Boundary:
    """The undisturbed flow: the numerical flux takes what runs in of it, and of the inside what runs out."""
    return Boundary(lambda inner, face: given(face.x, face.t, face.flow), _inside_trace)


def supersonic_inflow(given: Given) -> Boundary:
    """All of a state, faster than sound: the same as `prescribed`."""
    return prescribed(given)


def subsonic_inflow(given: Given) -> Boundary:
    """Velocity and temperature of a state; the pressure comes from inside."""

    def outside(inner: State, face: Face) -> State:
        wanted = given(face.x, face.t, face.flow)
        gas = face.flow.gas
        return gas.at(gas.temperature(wanted), wanted.velocity, inner.pressure)

    return Boundary(outside, lambda inner, face: differentiated(outside(inner, face), face.flow.gas))


def subsonic_outflow(given: Given) -> Boundary:
    """The pressure of a state; density and velocity come from inside."""

    def outside(inner: State, face: Face) -> State:
        return State(inner.density, inner.velocity, given(face.x, face.t, face.flow).pressure)

    return Boundary(outside, _inside_trace)


def supersonic_outflow() -> Boundary:
    """All from inside."""
    return Boundary(lambda inner, face: inner, _inside_trace)


def _mirrored(inner: State, face: Face) -> State:
    """The normal velocity turned round: no mass, energy or momentum but the pressure goes through the face."""
    back = 2 * dot(inner.velocity, face.normal)
    velocity = tuple(u - back * n for u, n in zip(inner.velocity, face.normal, strict=True))
    return State(inner.density, velocity, inner.pressure)


def _inside_trace(inner: State, face: Face) -> list[Values]:
    return differentiated(inner, face.flow.gas)
