"""What is installed, what it needs, and which room may import which."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import aotato
from conftest import ROOMS, ROOT
from mpi import mpiexec

LOADER = {"numpy", "h5py", "mpi4py", "pyopencl"}
MAY_SEE = {
    "runtime_stub": {"runtime_stub"},
    "frontend": {"frontend"},
    "templates": set(),
    "emit": {"", "emit", "frontend", "templates", "runtime_stub"},
}
HEAVY = {"numpy", "h5py", "mpi4py", "pyopencl", "pytato", "loopy", "pymbolic", "jinja2", "networkx"}

# A Python in which only the base install exists, then the command line of a module
BASE_ONLY = """
import runpy, sys
class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pytato", "loopy", "pymbolic", "islpy", "jinja2", "SCons", "networkx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Missing())
module = sys.argv.pop(1)
runpy.run_module(module, run_name="__main__")
"""


def test_the_wheel_holds_every_module_and_template(wheel):
    here = {"py.typed"}
    for folder, package in ROOMS.items():
        for file in sorted((ROOT / folder).rglob("*")):
            if file.suffix in (".py", ".jinja") and not (folder == "emit" and file.parent.name == "public"):
                here.add((Path(package) / file.relative_to(ROOT / folder)).as_posix())
    there = {file.relative_to(wheel / "aotato").as_posix() for file in (wheel / "aotato").rglob("*") if file.is_file()}
    assert there == here


def test_nothing_else_lies_at_the_top_of_site_packages(wheel):
    assert sorted(re.sub(r"-.*\.", ".", path.name) for path in wheel.iterdir()) == ["aotato", "aotato.dist-info"]


def test_importing_aotato_imports_nothing_heavy():
    code = f"import aotato, aotato.frontend, sys; print(sorted({HEAVY!r} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("room", MAY_SEE)
def test_rooms_see_only_what_they_may(room):
    seen = {name.split(".")[1] if "." in name else "" for _, name in _imports(room) if name.startswith("aotato")}
    assert seen <= MAY_SEE[room]


def test_the_loader_imports_its_four_packages_only():
    wrong = [(file.name, name) for file, name in _imports("runtime_stub") if not _within(name, LOADER | {"aotato"})]
    # For pictures, and only when one is made
    assert {row for row in wrong if row[1].partition(".")[0] != "matplotlib" or row[0] != "plot.py"} == set()


def test_every_import_is_a_declared_requirement(wheel):
    (about,) = wheel.glob("*.dist-info")
    needed = [re.match(r"[\w-]+", text)[0] for text in importlib.metadata.PathDistribution(about).requires
              if "extra ==" not in text or 'extra == "build"' in text]
    wrong = [(file.name, name) for room in ("frontend", "emit") for file, name in _imports(room)
             if not _within(name, {*needed, "aotato"})]
    assert not wrong


@pytest.mark.parametrize(("command", "said"), [
    (("cli", "inspect"), "entry step"),
    (("cli", "verify"), "all schedules verified"),
])
def test_bundles_are_read_with_the_base_install_alone(ring, tmp_path, command, said):
    module, *words = command
    script = _script(tmp_path)
    done = subprocess.run([sys.executable, script, f"aotato.runtime_stub.{module}", *words, ring],
                          capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert said in done.stdout


def test_bundles_run_with_the_base_install_alone(ring, tmp_path):
    done = mpiexec(2, [_script(tmp_path), "aotato.runtime_stub.run", ring])
    assert done.returncode == 0, done.stderr
    assert "step on 2 ranks" in done.stdout


def test_building_with_the_base_install_says_what_is_missing(tmp_path):
    (tmp_path / "building.py").write_text("import aotato\naotato.build('ring', ranks=2, path='ring.h5')\n")
    done = subprocess.run([sys.executable, _script(tmp_path), "building"], capture_output=True, text=True, check=False,
                          cwd=tmp_path, env={"PYTHONPATH": str(tmp_path)})
    assert "aotato.build needs more than a cluster does: pip install 'aotato[build]'" in done.stderr.splitlines()[-1]


@pytest.fixture(scope="module")
def ring(tmp_path_factory) -> Path:
    return aotato.build("ring", ranks=2, path=tmp_path_factory.mktemp("package") / "ring.h5")


def _script(folder: Path) -> Path:
    (folder / "base_only.py").write_text(BASE_ONLY)
    return folder / "base_only.py"


def _imports(room: str) -> Iterator[tuple[Path, str]]:
    """Every module that a room's files import, wherever in the file, with the file."""
    for file in sorted((ROOT / room).rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.Import):
                yield from ((file, name.name) for name in node.names)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{file}: a relative import"
                yield from ((file, _module(node.module, name.name)) for name in node.names)


def _module(module: str, name: str) -> str:
    """`from aotato import emit` imports aotato.emit, `from aotato import build` only aotato."""
    is_room = module == "aotato" and name in MAY_SEE
    return f"{module}.{name}" if is_room else module


def _within(name: str, packages: set[str]) -> bool:
    top = name.partition(".")[0]
    return top in sys.stdlib_module_names or top in packages
