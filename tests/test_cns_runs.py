"""App cns on devices: ranks agree and conserve, figures of a vortex, launches and messages."""

from __future__ import annotations

import re
import shlex

import h5py
import numpy as np
import pytest

import cns
import mpi
from aotato.emit import order
from aotato.runtime_stub import cli
from aotato.runtime_stub import options as loader
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from conftest import ROOT

PERIODIC = {"mesh": "box:12,12", "order": "2", "dt": "0.004", "observe_every": "50"}
RANKS = (1, 2, 4)
JOBS = {
    **{f"tgv_{ranks}": cns.Job(PERIODIC, "--steps 100", ranks) for ranks in RANKS},
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("cns")


@pytest.fixture(scope="module")
def results(folder) -> dict[str, cns.Result]:
    (folder / "puff.py").write_text(_blocks("python", "docs/cns.md")[0])
    return cns.run_all(folder, {**JOBS, "puff": puff(folder)})


def puff(folder) -> cns.Job:
    """The case of the docs, between walls, with fluxes at more points than nodes."""
    options = {"case": str(folder / "puff.py"), "observe_every": "5", "quadrature": "6"}
    return cns.Job(options, "--steps 5 --set warmth=0.5", 2)


def _blocks(language: str, file: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / file).read_text(), re.DOTALL)


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


def test_the_case_of_the_docs(results):
    """Its parameter was set for the run: the puff is half as warm again as the gas around."""
    found = results["puff"]
    assert found.attributes["step"] == 5 and (found.observed["bad"] == 0).all()
    warmest = 1 / found.observed["rho.min"][-1]
    assert warmest == pytest.approx(1.5, abs=0.02)


def test_commands_of_the_docs_are_understood(folder, monkeypatch):
    monkeypatch.chdir(folder)
    for name in ("cylinder.msh", "my_case.py", "puff.py"):
        (folder / name).write_text("def initial(x, flow): ...\n")
    commands = [part for file in ("README.md", "docs/cns.md") for block in _blocks("sh", file)
                for line in block.splitlines() for part in line.partition("#")[0].split("&&")]
    orders = [shlex.split(part)[1:] for part in commands if part.strip().startswith("scons app=cns")]
    assert len(orders) >= 6
    for words in orders:
        pairs = [tuple(word.split("=", 1)) for word in words if "=" in word]
        found = order.read(*order.split(pairs, words), [word for word in words if "=" not in word])
        assert found.name == "cns" and found.bundle == "build/cns/cns.h5"
        loader.parse([found.bundle, *found.loader])
    drawn = [shlex.split(part)[1:] for part in commands if part.strip().startswith("aotato plot")]
    assert drawn and all(cli.parser().parse_args(words).obey is cli.picture for words in drawn)


def test_a_flow_that_blows_up_ends_as_a_failure_on_all_ranks(folder, results):
    """The steps are hundreds of times too long; `observe` says so, and the results are kept as they are."""
    out = folder / "blown.h5"
    done = mpi.mpiexec(2, ["-m", "aotato.runtime_stub.run", folder / "tgv_2.h5", "--set", "dt=4", "--set", "end=1e6",
                           "--every", "observe=4", "--output", out], env=cns.CROWDED)
    assert done.returncode == 1
    table = [line for line in done.stdout.splitlines() if line.startswith("observe ")]
    assert table[0].split()[:4] == ["observe", "step", "t", "energy"] and max(map(len, table)) <= 120
    (sentence,) = [line for line in done.stderr.splitlines() if line.startswith("aotato: ")]
    assert re.fullmatch(r"aotato: after (4|8) steps \(t = \d+\) the flow is no longer finite .*: bad is \d+, where "
                        r"'bad == 0' should hold; 'q' holds \d+ values that are not finite, the first on rank \d at "
                        r"\[.*\]", sentence)
    with h5py.File(out) as file:
        assert file["observed/observe/bad"][-1] > 0 and file.attrs["step"] in (4, 8)


def test_launches_and_messages(folder, results):
    jobs = {**JOBS, "puff": puff(folder)}
    for name, launches in (("tgv_1", 2), ("tgv_2", 6), ("tgv_4", 6), ("puff", 6)):
        _, problem = cns.made(jobs[name].ranks, **jobs[name].options)
        with Bundle.open(folder / f"{name}.h5") as bundle:
            rows = report(bundle)["entries"]["stage"]["per_rank"]
        for row, domain in zip(rows, problem.domains, strict=True):
            assert row["messages"] == 2 * len(domain.peers) and row["identity_copies"] == 0
            assert row["launches"] <= launches and row["parts"] <= 3
