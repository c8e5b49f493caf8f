"""Random distributed programs as bundles: real ranks give what the interpreter gives."""

from __future__ import annotations

import os
import sys
import traceback
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings

from aotato.frontend.ir import Programs
from aotato.frontend.partition import partition
from aotato.frontend.text import dumps
from bundles import write
from mpi import mpiexec
from programs_random import FEATURES, features, programs

EXAMPLES = int(os.environ.get("AOTATO_REAL_EXAMPLES", "40"))
APART = 4  # every so many programs are also built without fusion
RANKS = 4
RUNNER = Path(__file__).with_name("run_bundles.py")


@dataclass(frozen=True)
class Written:
    """The programs whose bundles lie in `folder`, by file name, and the sentences about those not written."""

    folder: Path
    programs: dict[str, Programs]
    failed: dict[str, str]


def some_programs(count: int) -> list[Programs]:
    """Programs of up to RANKS ranks, the same each time; hypothesis derives its seed from this function."""
    found: list[Programs] = []

    @settings(
        max_examples=count, derandomize=True, deadline=None, database=None, suppress_health_check=list(HealthCheck)
    )
    @given(programs().filter(lambda program: program.size <= RANKS))
    def collect(program: Programs) -> None:
        found.append(program)

    collect()
    return found[:count]


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    found = Written(tmp_path_factory.mktemp("random"), {}, {})
    for number, program in enumerate(some_programs(EXAMPLES)):
        for fuse in (True, False) if number % APART == 0 else (True,):
            name = f"{'random' if fuse else 'apart'}{number:04}.h5"
            found.programs[name] = program
            try:
                write(program, found.folder / name, fuse=fuse)
            except Exception:
                found.failed[name] = traceback.format_exc()
    return found


def test_every_program_becomes_a_bundle(written: Written):
    assert not written.failed, _report(written, written.failed)


@pytest.mark.timeout(120 + 10 * EXAMPLES)
@pytest.mark.parametrize("target", ["cpu", "gpu"])
def test_real_ranks_give_the_meaning_of_the_program(written: Written, target: str):
    done = mpiexec(RANKS, [RUNNER, written.folder, target], timeout=60 + 10 * EXAMPLES)
    said = [line.partition(" ")[::2] for line in done.stdout.splitlines()]
    failed = {name: why for word, rest in said if word == "failed" for name, _, why in [rest.partition(": ")]}
    assert not failed, _report(written, failed)
    assert done.returncode == 0, f"{done.stderr}\nafter {done.stdout.splitlines()[-1:]}"
    passed = [rest for word, rest in said if word == "passed"]
    assert passed == sorted(written.programs.keys() - written.failed.keys())


def test_the_programs_have_every_feature(written: Written):
    seen: Counter[str] = Counter()
    programs = [program for name, program in written.programs.items() if name.startswith("random")]
    for program in programs:
        seen.update(features(program, partition(program)))
    total = len(programs)
    shares = {name: round(seen[name] / total, 2) for name in FEATURES}
    sizes = Counter(program.size for program in programs)
    print(f"{total} programs on {dict(sorted(sizes.items()))} ranks: {shares}")
    assert total == EXAMPLES
    assert min(shares.values()) >= 0.2, shares


def _report(written: Written, failed: dict[str, str]) -> str:
    """What went wrong, each with the whole program and how to get it again."""
    return "\n".join(
        f"{name}: {why}\n{''.join(map(dumps, written.programs[name].ranks))}"
        f"(program {int(name[-7:-3])} of some_programs({EXAMPLES}), python {sys.version.split()[0]})\n"
        for name, why in failed.items()
    )
