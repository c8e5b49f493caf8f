"""App cns on devices: ranks agree and conserve, figures of a vortex, launches and messages."""

from __future__ import annotations

import numpy as np
import pytest

import cns
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report

PERIODIC = {"mesh": "box:12,12", "order": "2", "dt": "0.004", "observe_every": "50"}
RANKS = (1, 2, 4)
JOBS = {
    **{f"tgv_{ranks}": cns.Job(PERIODIC, "--steps 100", ranks) for ranks in RANKS},
    "couette": cns.Job({"case": "couette", "mesh": "box:3,3", "observe_every": "10"}, "--steps 50", 2),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cns")


@pytest.fixture(scope="module")
def results(folder) -> dict[str, cns.Result]:
    return cns.run_all(folder, JOBS)


def test_mass_momentum_and_energy_are_conserved(results):
    opt, found = cns.made(**PERIODIC)
    begun = cns.state(opt, found)
    speed = np.sqrt(begun[1] ** 2 + begun[2] ** 2)
    scale = cns.integral(found, np.stack([begun[0], speed, speed, begun[3]]))
    for ranks in RANKS:
        lost = cns.integral(found, results[f"tgv_{ranks}"].q) - cns.integral(found, begun)
        assert (np.abs(lost) < 1e-12 * scale).all()
        assert results[f"tgv_{ranks}"].attributes["step"] == 100


def test_all_numbers_of_ranks_agree(results):
    one = results["tgv_1"]
    scale = np.abs(one.q).max(axis=(1, 2), keepdims=True)
    for ranks in RANKS:
        other = results[f"tgv_{ranks}"]
        assert (np.abs(other.q - one.q) < 1e-12 * scale).all()
        for name in ("mass", "kinetic", "enstrophy", "p.min", "rho.max"):
            assert other.observed[name] == pytest.approx(one.observed[name], rel=1e-12)


def test_what_is_observed_is_true(results):
    _, found = cns.made(**PERIODIC)
    rho, *momentum, energy = results["tgv_2"].q
    seen = {name: values[-1] for name, values in results["tgv_2"].observed.items()}
    kinetic = (momentum[0] ** 2 + momentum[1] ** 2) / rho / 2
    integrals = cns.integral(found, np.stack([rho, *momentum, energy, kinetic]))
    scale = np.abs(integrals).max()
    for name, value in zip(("mass", "momentum.x", "momentum.y", "energy", "kinetic"), integrals, strict=True):
        assert seen[name] == pytest.approx(value, rel=1e-12, abs=1e-13 * scale)
    pressure = 0.4 * (energy - kinetic)
    assert (seen["p.min"], seen["p.max"]) == (pytest.approx(pressure.min()), pytest.approx(pressure.max()))
    assert (seen["rho.min"], seen["rho.max"]) == (rho.min(), rho.max())
    assert seen["step"] == 100 and seen["t"] == pytest.approx(0.4) and seen["bad"] == 0
    # The vortices of a viscous fluid, exp(-2 nu t): kinetic energy pi^2, enstrophy twice that
    fading = np.pi**2 * np.exp(-4 * 0.01 * 0.4)
    assert seen["kinetic"] == pytest.approx(fading, rel=2e-3)
    assert seen["enstrophy"] == pytest.approx(2 * fading, rel=2e-2)


def test_couette_flow_stays(results):
    error = np.sqrt(results["couette"].observed["error2"])
    assert results["couette"].attributes["time"] > 0.01 and (error < 2e-7).all()


@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_launches_and_messages(folder, results, target):
    for name, launches in (("tgv_1", 2), ("tgv_2", 6), ("tgv_4", 6)):
        _, problem = cns.made(JOBS[name].ranks, **JOBS[name].options)
        with Bundle.open(folder / f"{name}.h5") as bundle:
            if target not in bundle.targets:
                continue
            rows = report(bundle, target)["entries"]["stage"]["per_rank"]
        for row, domain in zip(rows, problem.domains, strict=True):
            assert row["messages"] == 2 * len(domain.peers) and row["identity_copies"] == 0
            assert row["launches"] <= launches and row["parts"] <= 3
