"""A bundle under srun, with Slurm's PMIx and the Open MPI of this environment: what comes out is what mpiexec gives."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import h5py
import numpy as np
import pytest

import aotato
import local_slurm
from mpi import mpiexec, run

RUN = ("-m", "aotato.runtime_stub.run")
OPEN_MPI = Path(sys.executable).with_name("ompi_info").exists()

needs_slurm = pytest.mark.skipif(local_slurm.missing() is not None, reason=str(local_slurm.missing()))
needs_open_mpi = pytest.mark.skipif(not OPEN_MPI, reason="PMIx is Open MPI's; this environment's MPI is another")


@pytest.fixture(scope="module")
def slurm(tmp_path_factory) -> Iterator[Mapping[str, str]]:
    with local_slurm.cluster(tmp_path_factory.mktemp("slurm")) as variables:
        yield variables


@pytest.fixture(scope="module")
def ring(tmp_path_factory) -> Path:
    return aotato.build("ring", ranks=2, path=tmp_path_factory.mktemp("ring") / "ring.h5")


@needs_slurm
@needs_open_mpi
def test_srun_and_mpiexec_write_the_same_file(slurm, ring, tmp_path):
    ours, theirs = tmp_path / "srun.h5", tmp_path / "mpiexec.h5"
    loader = Path(sys.executable).with_name("aotato-run")
    done = run(["srun", "-n", "2", "--mpi=pmix", loader, ring, "--output", ours], env=slurm)
    assert (done.returncode, done.stderr) == (0, "") and "step on 2 ranks" in done.stdout
    assert mpiexec(2, [*RUN, ring, "--output", theirs]).returncode == 0
    assert _contents(ours) == _contents(theirs)


@needs_slurm
@needs_open_mpi
def test_srun_without_pmix_is_refused_with_the_remedy(slurm, ring):
    done = run(["srun", "-n", "2", "--mpi=none", sys.executable, *RUN, ring], env=slurm)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.count("aotato: ") == 1 and "srun --mpi=pmix -n 2 aotato-run" in done.stderr


def _contents(path: Path) -> dict[str, tuple[bytes, dict[str, str]]]:
    """Every dataset's and group's bytes and attributes, by name."""
    found = {}

    def take(name: str, node: h5py.Dataset | h5py.Group) -> None:
        data = np.asarray(node[()]).tobytes() if isinstance(node, h5py.Dataset) else b""
        found[name] = (data, {key: repr(value) for key, value in node.attrs.items()})

    with h5py.File(path) as file:
        take("/", file)
        file.visititems(take)
    return found
