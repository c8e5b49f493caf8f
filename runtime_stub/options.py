"""The command line of aotato-run."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from aotato.runtime_stub.errors import UsageError
from aotato.runtime_stub.world import World

_DESCRIPTION = """\
Run a bundle that aotato has built: all its ranks, or one entry of it.
A bundle for N ranks needs N processes, started by mpiexec or srun; `aotato inspect FILE` shows what is in it.
"""

_EXAMPLES = """\
examples:
  aotato-run one.h5                              a bundle for 1 rank; MPI is not needed
  mpiexec -n 2 aotato-run ring.h5                a bundle for 2 ranks
  srun --mpi=pmix -n 2 aotato-run ring.h5        the same under Slurm (--mpi=pmi2 with MPICH)
  mpiexec -n 2 aotato-run ring.h5 --input img1=photo_{rank}.npy --output out.h5
                                                 each rank reads its own file; results of all in one
  aotato-run heat.h5 --set dt=1e-3               a number for a 0-dimensional input
  aotato-run heat.h5 --steps 1000 --every observe=10 --set dt=1e-3
                                                 1000 steps of the bundle's loop
  aotato-run --list-devices                      the OpenCL devices of this machine

The exit status is 0, or 1 when the run is refused or fails, or 2 when the command line is wrong.
"""


class _Parser(argparse.ArgumentParser):
    """Mistakes are raised, to be printed once over all ranks, and so is the help text."""

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}; see `{self.prog} --help`")

    def _print_message(self, message: str, file: Any = None) -> None:
        if World.alone().speaks:
            super()._print_message(message, file)


def parser() -> argparse.ArgumentParser:
    p = _Parser("aotato-run", description=_DESCRIPTION, epilog=_EXAMPLES, allow_abbrev=False,
                formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("file", metavar="FILE", nargs="?", help="the bundle, as in build/ring/ring.h5")
    p.add_argument("--input", metavar="NAME=FILE", action="append", default=[],
                   help="an input's value: FILE is x.npy or x.h5:DATASET; {rank} in it becomes the rank, "
                        "{rank:04d} with leading zeros; may be repeated")
    p.add_argument("--set", metavar="NAME=VALUE", action="append", default=[],
                   help="the value of a 0-dimensional input or of a scalar of the loop; may be repeated")
    p.add_argument("--output", metavar="FILE", help="write all results to an HDF5 file, as /rank/<r>/<output>, and "
                                                   "what a loop observed as /observed/<entry>/<value>")
    p.add_argument("--vtk", metavar="FILE", help="write the fields of the app's view to a VTKHDF file for ParaView")
    p.add_argument("--entry", metavar="NAME", help="which entry to call, where the bundle has several")
    p.add_argument("--steps", metavar="N", type=_count, help="run N steps of the bundle's loop")
    p.add_argument("--until", metavar="T", type=float, help="run the loop until the scalar t is T or more; steps are "
                                                           "whole, so the last one may pass T")
    p.add_argument("--every", metavar="ENTRY=K", action="append", default=[],
                   help="call an entry of the loop every K steps; with `output` or `vtk`, write the --output or --vtk "
                        "file every K steps ({step} or {step:06d} in its name makes it a file each); may be repeated")
    p.add_argument("--progress", action="store_true", help="report the steps done on standard error once a second, "
                                                           "also where that is no terminal")
    p.add_argument("--target", metavar="NAME", help="which of the bundle's mappings to use (default: by the device)")
    p.add_argument("--device", metavar="D", help="number, or part of the name, of an OpenCL device; ranks of a node "
                                                 "share out those that match (default: all GPUs)")
    p.add_argument("--list-devices", action="store_true", help="list the OpenCL devices and stop")
    p.add_argument("--selftest", action="store_true", help="run the data stored in the bundle and compare the results")
    p.add_argument("--quiet", action="store_true", help="print nothing when all goes well")
    return p


def parse(argv: Sequence[str] | None) -> argparse.Namespace:
    """Raises UsageError. `--help` prints once over all ranks and exits."""
    options = parser().parse_args(argv)
    if options.file is None and not options.list_devices:
        raise UsageError("expected a bundle, but found no FILE; see `aotato-run --help`")
    return options


def _count(text: str) -> int:
    if not text.isdecimal():
        raise argparse.ArgumentTypeError(f"expected a number of steps, but found {text!r}")
    return int(text)
