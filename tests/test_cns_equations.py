"""App cns, the equations in space, in numpy on simulated ranks: free stream, conservation, exact solutions."""

from __future__ import annotations

import numpy as np
import pytest

import cns

WARPED = """
import numpy as np
from aotato.frontend.apps.cns import State, farfield

def initial(x, flow):
    return State(1.3, (0.7, -0.4, 0.2)[: len(x)], 0.9)

def boundaries(flow):
    outside = farfield(lambda x, t, flow: initial(x, flow))
    return {axis + end: outside for axis in "xyz" for end in "-+"}
"""
WARP = """
def warp(x):
    waves = [np.prod([np.sin(2 * np.pi * x[..., a] + 0.3 * i + 0.2 * a) for a in range(x.shape[-1])], axis=0)
             for i in range(x.shape[-1])]
    return x + 0.04 * np.stack(waves, axis=-1)
"""
MESHES = {"tri": "box:3,3", "quad": "box:3,3", "tet": "box:2,2,2", "hex": "box:2,2,2"}


@pytest.mark.parametrize(("cells", "periodic", "warped", "quadrature"), [
    ("tri", "x", False, "6"), ("quad", "x,y", True, "0"), ("tet", "x,y,z", False, "0"), ("hex", "x,y,z", True, "6")])
def test_a_uniform_flow_stays(tmp_path, cells, periodic, warped, quadrature):
    (tmp_path / "free.py").write_text(WARPED + WARP * warped)
    opt, found = cns.made(case=str(tmp_path / "free.py"), cells=cells, mesh=MESHES[cells], order="2", lengths="1",
                          periodic=periodic, quadrature=quadrature)
    assert found.domains[0].affine is not warped
    q = cns.state(opt, found)
    assert np.ptp(q, axis=(1, 2)).max() < 1e-15
    assert np.abs(cns.rate(opt, found, q)).max() < 1e-12 * np.abs(q).max() / found.domains[0].height.min()


@pytest.mark.parametrize(("cells", "beta", "tau", "quadrature"), [
    ("tri", "0.5", "0", "0"), ("quad", "0", "1", "3"), ("tet", "-0.5", "0.5", "3"), ("hex", "0.5", "0", "0")])
def test_rates_conserve_and_do_not_depend_on_ranks(cells, beta, tau, quadrature):
    """A rough state far from any solution, with friction."""
    rates = {}
    for ranks in (1, 3) if cells in ("tri", "tet") else (2,):
        opt, found = cns.made(ranks, cells=cells, mesh=MESHES[cells], order="1", ldg_beta=beta, ldg_tau=tau, re="2",
                              quadrature=quadrature)
        q = cns.state(opt, found)
        q = q * (1 + 0.1 * np.random.default_rng(1).random(q.shape))
        rates[ranks] = cns.rate(opt, found, q)
        lost = cns.integral(found, rates[ranks])
        assert (np.abs(lost) < 1e-12 * cns.integral(found, np.abs(rates[ranks])).max()).all()
    first = next(iter(rates.values()))
    assert np.abs(first).max() > 1.0
    for other in rates.values():
        np.testing.assert_allclose(other, first, rtol=0, atol=1e-12 * np.abs(first).max())


def test_couette_flow_is_steady():
    """Velocity and temperature are polynomials of the order, and quads resolve what depends on the height alone."""
    opt, found = cns.made(case="couette", cells="quad", mesh="box:2,2", order="2")
    q = cns.state(opt, found)
    # A side moves with speed 1, so the flow is no trivial one
    assert np.ptp(q[1]) > 0.9 and np.ptp(q[0]) > 5e-3
    assert np.abs(cns.rate(opt, found, q)).max() < 1e-11
    disturbed = cns.rate(opt, found, q * (1 + 1e-3 * np.random.default_rng(0).random(q.shape)))
    assert np.abs(disturbed).max() > 1e-2


@pytest.mark.parametrize("cells", ["tri", "hex"])
def test_friction_takes_kinetic_energy_from_every_jump_and_gradient(cells):
    """At uniform density and temperature, mass and total energy stay where kinetic energy is lost."""
    dim = 2 if cells == "tri" else 3
    opt, found = cns.made(cells=cells, mesh=MESHES[cells], order="1", re="0.01", mach="0.01", ldg_tau="0")
    rng = np.random.default_rng(5)
    shape = cns.state(opt, found).shape
    velocity = rng.standard_normal((dim, *shape[1:])) * 1e-3
    q = np.stack([np.ones(shape[1:]), *velocity, 1e4 / 1.4 / 0.4 + 0.5 * (velocity**2).sum(axis=0)])
    work = (velocity * cns.rate(opt, found, q)[1 : dim + 1]).sum(axis=0)[np.newaxis]
    assert cns.integral(found, work)[0] < -1e-5
