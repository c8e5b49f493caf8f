"""App cns, point by point in numpy: gas, inviscid and viscous fluxes, boundaries, time stepping."""

from __future__ import annotations

import numpy as np
import pytest

from aotato.frontend.apps._flow import boundaries, inviscid, ldg, viscous
from aotato.frontend.apps._flow.boundaries import Face
from aotato.frontend.apps._flow.flow import Flow
from aotato.frontend.apps._flow.gas import Gas, State
from aotato.frontend.apps._flow.runge_kutta import STAGES

GAS = Gas(1.4, 2.0, 0.7, 0.03)
FLOW = Flow(GAS, 0.5, (1.0, 1.0, 1.0), {})
POINTS = 50


@pytest.fixture
def rng() -> np.random.Generator:
    return np.random.default_rng(3)


def some_state(rng, dim=3):
    return State(1 + rng.random(POINTS), tuple(3 * rng.standard_normal((dim, POINTS))), 1 + rng.random(POINTS))


def some_normal(rng, dim=3):
    found = rng.standard_normal((dim, POINTS))
    return list(found / np.sqrt((found**2).sum(axis=0)))


def same(first, second, scale=1.0):
    return all(np.abs(np.asarray(a) - b).max() < 1e-12 * scale for a, b in zip(first, second, strict=True))


def test_states_and_conserved_variables(rng):
    state = some_state(rng)
    found = GAS.state(GAS.conserved(state))
    assert same((found.density, *found.velocity, found.pressure), (state.density, *state.velocity, state.pressure), 50)
    again = GAS.at(GAS.temperature(state), state.velocity, state.pressure)
    assert same([again.density], [state.density])
    # Air at rest, p = rho R T, e = p / (gamma - 1), c^2 = gamma R T
    still = State(2.0, (0.0, 0.0), 3.0)
    assert GAS.energy(still) == pytest.approx(7.5) and GAS.temperature(still) == pytest.approx(0.75)
    assert GAS.sound_speed(still) ** 2 == pytest.approx(1.4 * 2.0 * 0.75)


def test_viscosity_after_sutherland():
    gas = Gas(1.4, 287.0, 0.71, 1.716e-5, 273.15, 110.4)
    assert gas.dynamic_viscosity(273.15) == pytest.approx(1.716e-5)
    assert gas.dynamic_viscosity(400.0) == pytest.approx(2.285e-5, rel=1e-3)  # air at 127 degrees Celsius
    assert GAS.dynamic_viscosity(400.0) == 0.03
    assert GAS.conductivity(0.03) == pytest.approx(0.03 * 1.4 * 2.0 / 0.4 / 0.7)


@pytest.mark.parametrize("flux", inviscid.FLUXES.values(), ids=inviscid.FLUXES)
@pytest.mark.parametrize("dim", [2, 3])
def test_numerical_fluxes_are_consistent_and_conserve(rng, flux, dim):
    inner, outer, normal = some_state(rng, dim), some_state(rng, dim), some_normal(rng, dim)
    assert same(flux(inner, inner, normal, GAS), inviscid.along(inner, normal, GAS), 100)
    there = flux(outer, inner, [-n for n in normal], GAS)
    assert same(flux(inner, outer, normal, GAS), [-f for f in there], 1000)


def test_the_flux_along_axes(rng):
    state = some_state(rng)
    for axis in range(3):
        normal = [np.full(POINTS, float(axis == d)) for d in range(3)]
        assert same(inviscid.along(state, normal, GAS), inviscid.euler(state, axis, GAS), 100)


def test_hllc_takes_the_upwind_flux_where_all_waves_run_one_way(rng):
    inner, outer = some_state(rng), some_state(rng)
    normal = [np.full(POINTS, n) for n in (1.0, 0.0, 0.0)]
    fast = [State(s.density, (s.velocity[0] + 30.0, *s.velocity[1:]), s.pressure) for s in (inner, outer)]
    assert same(inviscid.hllc(*fast, normal, GAS), inviscid.along(fast[0], normal, GAS), 1e4)
    back = [State(s.density, (s.velocity[0] - 60.0, *s.velocity[1:]), s.pressure) for s in fast]
    assert same(inviscid.hllc(*back, normal, GAS), inviscid.along(back[1], normal, GAS), 1e4)


def test_hllc_keeps_a_contact_at_rest_and_lax_friedrichs_does_not():
    normal = [np.array([1.0]), np.array([0.0])]
    velocity = (np.array([0.0]), np.array([2.0]))
    inner, outer = State(np.array([1.0]), velocity, np.array([1.0])), State(np.array([3.0]), velocity, np.array([1.0]))
    assert same(inviscid.hllc(inner, outer, normal, GAS), [[0.0], [1.0], [0.0], [0.0]])
    assert inviscid.local_lax_friedrichs(inner, outer, normal, GAS)[0][0] < -1.0


def test_stress_and_heat_flux():
    """A shear flow, a compression and a temperature gradient, by hand."""
    state = State(2.0, (3.0, 5.0), 4.0)
    gradient = [[0.5, 0.0, 0.25], [2.0, 0.0, 0.0]]  # du/dx, dT/dx; du/dy
    (xx, xy, ex), (yx, yy, ey) = viscous.viscous_flux(state, gradient, GAS)
    mu, kappa = 0.03, GAS.conductivity(0.03)
    assert (xx, yy) == (pytest.approx(mu * (1.0 - 1 / 3)), pytest.approx(-mu / 3))
    assert xy == yx == pytest.approx(mu * 2.0)
    assert ex == pytest.approx(3 * xx + 5 * xy + kappa * 0.25) and ey == pytest.approx(3 * yx + 5 * yy)


def test_a_rotation_has_no_stress():
    (xx, xy, ex), (yx, yy, ey) = viscous.viscous_flux(State(1.0, (0.0, 0.0), 1.0), [[0, 1.0, 0], [-1.0, 0, 0]], GAS)
    assert (xx, xy, ex, yx, yy, ey) == (0, 0, 0, 0, 0, 0)


def test_both_sides_of_a_face_agree():
    """What one side takes of the other's value, the other takes of this one's flux; penalties are opposite."""
    side, height = np.array([[1.0, -1.0]]), np.array([[0.5, 0.5]])
    for beta in (0.5, 0.0, -0.5, 0.2):
        found = ldg.weights(side, np.zeros((1, 2), bool), height, 2, beta, 0.7)
        assert found.value.sum() == pytest.approx(1.0) and found.flux.sum() == pytest.approx(1.0)
        assert found.value[0, 0] == pytest.approx(found.flux[0, 1])
        assert found.penalty == pytest.approx(0.7 * 9 / 0.5)
    edge = ldg.weights(side, np.ones((1, 2), bool), height, 2, 0.5, 0.0)
    assert (edge.value == 1).all() and (edge.flux == 0).all() and (edge.penalty > 0).all()
    inner, outer = [1.0, 2.0, 3.0], [1.5, 1.0, 5.0]
    assert same(ldg.penalty(inner, outer, 2.0, GAS), [-p for p in ldg.penalty(outer, inner, 2.0, GAS)])


def face(rng, dim=3):
    return Face(some_normal(rng, dim), [rng.random(POINTS) for _ in range(dim)], 0.0, FLOW)


@pytest.mark.parametrize("flux", inviscid.FLUXES.values(), ids=inviscid.FLUXES)
@pytest.mark.parametrize("wall", [boundaries.slip(), boundaries.no_slip(), boundaries.no_slip(1.5, (1.0, 0.0, 0.0))])
def test_nothing_but_the_pressure_goes_through_walls(rng, flux, wall):
    inner, where = some_state(rng), face(rng)
    mass, *momentum, energy = flux(inner, wall.outside(inner, where), where.normal, GAS)
    assert same([mass, energy], [0 * mass, 0 * energy], 1000)
    pull = sum(m * n for m, n in zip(momentum, where.normal, strict=True))
    assert same(momentum, [pull * n for n in where.normal], 1000)


def test_walls_without_heat_and_friction(rng):
    inner, where = some_state(rng), face(rng)
    flux = [rng.random(POINTS) for _ in range(4)]
    assert (np.asarray(boundaries.no_slip().through(flux, where)[-1]) == 0).all()
    moving = boundaries.no_slip(velocity=(2.0, 0.0, 0.0))
    assert same([moving.through(flux, where)[-1]], [2.0 * flux[0]])
    assert moving.trace(inner, where)[:3] == [2.0, 0.0, 0.0] and boundaries.no_slip(1.5).trace(inner, where)[3] == 1.5
    *pull, heat = boundaries.slip().through(flux, where)
    across = sum(f * n for f, n in zip(flux[:3], where.normal, strict=True))
    assert same(pull, [across * n for n in where.normal]) and heat == 0
    along = boundaries.slip().trace(inner, where)[:3]
    assert same([sum(u * n for u, n in zip(along, where.normal, strict=True))], [np.zeros(POINTS)], 10)


def test_open_boundaries(rng):
    inner, where = some_state(rng), face(rng)
    wanted = some_state(rng)
    given = lambda x, t, flow: wanted  # noqa: E731
    for boundary in (boundaries.prescribed(given), boundaries.farfield(given), boundaries.supersonic_inflow(given)):
        assert boundary.outside(inner, where) is wanted
    assert boundaries.supersonic_outflow().outside(inner, where) is inner
    coming = boundaries.subsonic_inflow(given).outside(inner, where)
    assert coming.pressure is inner.pressure and coming.velocity == wanted.velocity
    assert same([GAS.temperature(coming)], [GAS.temperature(wanted)])
    going = boundaries.subsonic_outflow(given).outside(inner, where)
    assert (going.density is inner.density) and going.pressure is wanted.pressure
    values = viscous.differentiated(wanted, GAS)
    assert same(boundaries.prescribed(given).trace(inner, where), values)
    assert same(boundaries.farfield(given).trace(inner, where), viscous.differentiated(inner, GAS))


def test_the_time_stepping_is_of_fourth_order():
    def ended(steps):
        y, t, dt = np.array([1.0, 0.3]), 0.0, 2 / steps
        for _ in range(steps):
            kept = 0 * y
            for a, b, c in STAGES:
                at = t + c * dt
                kept = a * kept + dt * np.array([y[1] * np.cos(at), np.sin(at) - y[0] ** 2])
                y = y + b * kept
            t += dt
        return y

    errors = [np.abs(ended(steps) - ended(1000)).max() for steps in (20, 40)]
    assert np.log2(errors[0] / errors[1]) == pytest.approx(4.0, abs=0.05)
