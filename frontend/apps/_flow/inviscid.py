"""The Euler equations' flux, and numerical fluxes between two states."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aotato.frontend.apps._flow.functions import Values, absolute, dot, less, maximum, minimum, sqrt, where
from aotato.frontend.apps._flow.gas import Gas, State

Normal = Sequence[Values]  # components of a unit vector
NumericalFlux = Callable[[State, State, Normal, Gas], list[Values]]


def euler(state: State, direction: int, gas: Gas) -> list[Values]:
    """The flux of each conserved variable along an axis."""
    speed = state.velocity[direction]
    mass = state.density * speed
    momentum = [mass * u + state.pressure if i == direction else mass * u for i, u in enumerate(state.velocity)]
    return [mass, *momentum, (gas.energy(state) + state.pressure) * speed]


def along(state: State, normal: Normal, gas: Gas) -> list[Values]:
    """The flux of each conserved variable through a surface with that unit normal."""
    speed = dot(state.velocity, normal)
    mass = state.density * speed
    momentum = [mass * u + state.pressure * n for u, n in zip(state.velocity, normal, strict=True)]
    return [mass, *momentum, (gas.energy(state) + state.pressure) * speed]


def local_lax_friedrichs(inner: State, outer: State, normal: Normal, gas: Gas) -> list[Values]:
    """The mean flux and half the jump times the fastest wave: V. V. Rusanov, USSR Comp. Math. Phys. 1 (1961) 304."""
    fastest = maximum(*(absolute(dot(s.velocity, normal)) + gas.sound_speed(s) for s in (inner, outer)))
    fluxes = zip(along(inner, normal, gas), along(outer, normal, gas), strict=True)
    jumps = (a - b for a, b in zip(gas.conserved(inner), gas.conserved(outer), strict=True))
    return [0.5 * (a + b + fastest * jump) for (a, b), jump in zip(fluxes, jumps, strict=True)]


def hllc(inner: State, outer: State, normal: Normal, gas: Gas) -> list[Values]:
    """Three waves: E. F. Toro, M. Spruce, W. Speares, Shock Waves 4 (1994) 25; their speeds as P. Batten, N. Clarke,
    C. Lambert and D. M. Causon, SIAM J. Sci. Comput. 18 (1997) 1553: of the states, and of Roe's mean.
    """
    u_in, u_out = dot(inner.velocity, normal), dot(outer.velocity, normal)
    speed, sound = _roe(inner, outer, normal, gas)
    slow = minimum(u_in - gas.sound_speed(inner), speed - sound)
    fast = maximum(u_out + gas.sound_speed(outer), speed + sound)
    to_slow, to_fast = inner.density * (slow - u_in), outer.density * (fast - u_out)
    contact = (outer.pressure - inner.pressure + to_slow * u_in - to_fast * u_out) / (to_slow - to_fast)
    # The face lies on the side that the contact leaves behind; no wave of that side crosses it where `reach` is zero
    left = less(0.0, contact)
    state = _chosen(left, inner, outer)
    u, wave = where(left, u_in, u_out), where(left, slow, fast)
    reach = where(left, minimum(slow, 0.0), maximum(fast, 0.0))
    ratio = (wave - u) / (wave - contact)
    momentum = [ratio * state.density * (v + (contact - u) * n) for v, n in zip(state.velocity, normal, strict=True)]
    gained = (contact - u) * (state.density * contact + state.pressure / (wave - u))
    star = [ratio * state.density, *momentum, ratio * (gas.energy(state) + gained)]
    return [f + reach * (s - q) for f, s, q in zip(along(state, normal, gas), star, gas.conserved(state), strict=True)]


def _chosen(condition: Values, first: State, second: State) -> State:
    velocity = (where(condition, a, b) for a, b in zip(first.velocity, second.velocity, strict=True))
    return State(where(condition, first.density, second.density), tuple(velocity),
                 where(condition, first.pressure, second.pressure))


def _roe(inner: State, outer: State, normal: Normal, gas: Gas) -> tuple[Values, Values]:
    """Normal velocity and speed of sound of Roe's mean: P. L. Roe, J. Comput. Phys. 43 (1981) 357."""
    root_in, root_out = sqrt(inner.density), sqrt(outer.density)
    share = root_in / (root_in + root_out)
    velocity = [share * a + (1 - share) * b for a, b in zip(inner.velocity, outer.velocity, strict=True)]
    enthalpy = share * _enthalpy(inner, gas) + (1 - share) * _enthalpy(outer, gas)
    sound = sqrt((gas.gamma - 1) * (enthalpy - 0.5 * dot(velocity, velocity)))
    return dot(velocity, normal), sound


def _enthalpy(state: State, gas: Gas) -> Values:
    return (gas.energy(state) + state.pressure) / state.density


FLUXES: dict[str, NumericalFlux] = {"llf": local_lax_friedrichs, "hllc": hllc}
