"""aotato: look into bundles and results, without a device or MPI."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Sequence

from aotato.runtime_stub import plan_data, plot, tables
from aotato.runtime_stub.errors import Refusal, UsageError
from aotato.runtime_stub.format import Bundle
from aotato.runtime_stub.report import report
from aotato.runtime_stub.verify import verify
from aotato.runtime_stub.world import attempt, say

_EXAMPLES = """\
examples:
  aotato inspect build/ring/ring.h5              tables: what a call does on each rank
  aotato inspect build/ring/ring.h5 --json       the same as data, with stable keys
  aotato inspect ring.h5 --bandwidth 4.28e12 --flops 33e12
                                                 and the time that no device of that speed can beat
  aotato verify build/ring/ring.h5               check all digests, and prove the schedules again
  aotato plot out.vtkhdf --field momentum -o out.png
                                                 a picture of a 2D field that a run wrote with --vtk
  aotato plot out.h5 -o curves.png               curves of what a run observed and wrote with --output
"""


def main(argv: Sequence[str] | None = None) -> int:
    """The exit status: 1 for a bundle that is refused, 2 for a wrong command line."""
    try:
        error, _ = attempt(lambda: _obey(argv))
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader, as in `| head`, has had enough
        return 0
    if error is not None:
        say(str(error))
    return 0 if error is None else error.code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> None:  # type: ignore[override]
        raise UsageError(f"{message}; see `{self.prog} --help`")


def parser() -> argparse.ArgumentParser:
    p = _Parser("aotato", description=__doc__, epilog=_EXAMPLES,
                formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = p.add_subparsers(metavar="COMMAND", required=True)
    show = _command(commands.add_parser, "inspect", inspect, "what a bundle does, rank by rank")
    show.add_argument("--json", action="store_true", help="print data instead of tables")
    show.add_argument("--target", metavar="NAME", help="of this target instead of the first")
    show.add_argument("--bandwidth", metavar="B", type=float, help="bytes a second of a device, for floors")
    show.add_argument("--flops", metavar="F", type=float, help="floating-point operations a second of a device")
    _command(commands.add_parser, "verify", prove, "prove a bundle's schedules again")
    draw = _command(commands.add_parser, "plot", picture, "a picture of a run's result", "a file of --vtk or --output")
    draw.add_argument("--field", metavar="NAME", help="what to draw: a field, or NAME.x of a vector (otherwise its "
                                                      "length), or observed values separated by commas")
    draw.add_argument("-o", "--out", metavar="FILE", help="the picture; its ending tells the format (FILE.png)")
    return p


def inspect(options: argparse.Namespace) -> None:
    """Print the report of a bundle. Raises Refusal."""
    if (options.bandwidth is None) != (options.flops is None):
        raise UsageError("expected both --bandwidth and --flops, but found only one: give both or none")
    if options.bandwidth is not None and not (options.bandwidth > 0 and options.flops > 0):
        raise UsageError("expected positive numbers for --bandwidth and --flops")
    machine = tables.Machine(options.bandwidth, options.flops) if options.flops else None
    with Bundle.open(options.file) as bundle:
        if options.target is not None and options.target not in bundle.targets:
            raise Refusal(f"expected one of the bundle's targets ({', '.join(bundle.targets)}), but found "
                          f"--target {options.target}: choose one of them")
        found = report(bundle, options.target)
    if not options.json:
        print(tables.inspection(found, machine))
        return
    if machine is not None:
        tables.add_floors(found, machine)
    print(json.dumps(found, indent=1))


def prove(options: argparse.Namespace) -> None:
    """Print what was proved of a bundle. Raises Refusal for the first thing that fails."""
    with Bundle.open(options.file) as bundle:
        plan = plan_data.of(bundle.meta)
        for line in verify(bundle, {name: plan.carried(name) for name in bundle.entries} if plan else None):
            print(line)
    print(f"{options.file}: digest {bundle.digest} and all schedules verified")


def picture(options: argparse.Namespace) -> None:
    """Draw a result file. Raises Refusal."""
    out = options.out or plot.default_picture(options.file)
    print(f"{out}: {plot.plot(options.file, options.field, out)}")


def _command(add: Callable[..., argparse.ArgumentParser], name: str, obey: Callable[[argparse.Namespace], None],
             words: str, file: str = "the bundle") -> argparse.ArgumentParser:
    p = add(name, help=words, description=words)
    p.add_argument("file", metavar="FILE", help=file)
    p.set_defaults(obey=obey)
    return p


def _obey(argv: Sequence[str] | None) -> None:
    options = parser().parse_args(argv)
    options.obey(options)
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
