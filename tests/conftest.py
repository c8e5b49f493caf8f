"""What several test files share: the tree and the wheel made of it."""

from __future__ import annotations

import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
ROOMS = {"emit/public": "", "frontend": "frontend", "emit": "emit", "templates": "templates",
         "runtime_stub": "runtime_stub"}  # folders of the tree -> packages below aotato


@pytest.fixture(scope="session")
def wheel(tmp_path_factory) -> Path:
    """A folder with the contents of the wheel, built from a copy: nothing an earlier build left can slip in."""
    folder = tmp_path_factory.mktemp("wheel")
    tree = folder / "tree"
    for name in ("emit", "frontend", "templates", "runtime_stub"):
        shutil.copytree(ROOT / name, tree / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tree)
    command = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "--no-index"]
    made = subprocess.run([*command, "-w", folder, tree], capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stderr
    (file,) = folder.glob("aotato-*.whl")
    with zipfile.ZipFile(file) as archive:
        archive.extractall(folder / "installed")
    return folder / "installed"
