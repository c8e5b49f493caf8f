"""The build graph: what scons builds, rebuilds, runs, refuses and teaches."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import h5py
import numpy as np
import pytest

from aotato.emit import launch, lesson, order
from aotato.frontend.app import AppError, builtin_names, find
from conftest import ROOT
from mpi import run

SCONS = [sys.executable, "-m", "SCons", "-Q", "-f", ROOT / "SConstruct"]
BUNDLE = Path("build/ring/ring.h5")
UP_TO_DATE = "scons: `build/ring/ring.h5' is up to date."

MY_APP = '''
"""My app: multiples of a range."""
import numpy as np
import pytato as pt
from aotato.frontend import Option
from my_numbers import FACTOR

OPTIONS = (Option("n", int, 3, doc="entries"),)

def step(rank, size, opt, data):
    return {"out": FACTOR * pt.make_data_wrapper(np.arange(float(opt.n)))}

ENTRIES = (step,)
'''


def scons(folder: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    """scons with this tree's SConstruct, building below `folder`."""
    folder.mkdir(exist_ok=True)
    cwd = os.getcwd()
    os.chdir(folder)
    try:
        return run([*SCONS, *words], timeout=120, env=env)
    finally:
        os.chdir(cwd)


def built(folder: Path, *words: str, **env: str) -> str:
    """What scons printed; it succeeded."""
    done = scons(folder, *words, **env)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_a_bundle_is_rebuilt_when_what_it_depends_on_changes_and_not_otherwise(tmp_path):
    assert "wrote build/ring/ring.h5" in built(tmp_path, "app=ring", "ranks=2")
    first = (tmp_path / BUNDLE).read_bytes()
    assert UP_TO_DATE in built(tmp_path, "app=ring", "ranks=2")
    for words in (["ranks=3"], ["ranks=2", "n=20"], ["ranks=2", "targets=cpu"], ["ranks=2", "contract=on"],
                  ["ranks=2", "fuse=off"]):
        assert "wrote" in built(tmp_path, "app=ring", *words)
        assert (tmp_path / BUNDLE).read_bytes() != first
    assert "wrote" in built(tmp_path, "app=ring", "ranks=2")
    assert (tmp_path / BUNDLE).read_bytes() == first


def test_a_bundle_is_rebuilt_when_aotato_changes(tmp_path, wheel):
    env = {"PYTHONPATH": str(wheel)}
    assert "wrote" in built(tmp_path, "app=ring", **env)
    assert UP_TO_DATE in built(tmp_path, "app=ring", **env)
    for name in ("templates/driver.py.jinja", "emit/memory.py", "frontend/apps/ring.py"):
        with (wheel / "aotato" / name).open("a") as file:
            file.write("\n")
        assert "wrote" in built(tmp_path, "app=ring", **env), name


def test_an_app_of_ones_own_is_rebuilt_with_its_sources(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    (own / "my_app.py").write_text(MY_APP)
    (own / "my_numbers.py").write_text("FACTOR = 2\n")
    assert "wrote build/my_app/my_app.h5" in built(tmp_path, "app=own/my_app.py", "n=4")
    assert "is up to date" in built(tmp_path, "app=own/my_app.py", "n=4")
    (own / "my_numbers.py").write_text("FACTOR = 33\n")
    assert "wrote" in built(tmp_path, "app=own/my_app.py", "n=4")
    (own / "my_app.py").write_text(MY_APP.replace("FACTOR *", "1 + FACTOR *"))
    assert "wrote" in built(tmp_path, "app=own/my_app.py", "n=4")
    assert "own/my_app.py: My app: multiples of a range." in built(tmp_path, "-h", "app=own/my_app.py")


def test_builds_are_identical_whatever_the_hash_seed_and_folder(tmp_path):
    bundles = []
    for seed in ("1", "2"):
        built(tmp_path / seed, "app=ring", "ranks=2", PYTHONHASHSEED=seed)
        bundles.append((tmp_path / seed / BUNDLE).read_bytes())
    assert bundles[0] == bundles[1]


def test_run_gives_the_loader_its_words(tmp_path):
    images = [np.random.default_rng(9 + rank).random((5, 3), np.float32) for rank in range(3)]
    for rank, image in enumerate(images):
        np.save(tmp_path / f"photo_{rank}.npy", image)
    said = built(tmp_path, "app=ring", "ranks=3", "n=5", "run", "input=img1=photo_{rank}.npy", "output=out.h5")
    assert "step on 3 ranks" in said
    scale = np.array([0.5, 1.0, 2.0])
    with h5py.File(tmp_path / "out.h5") as file:
        for rank, image in enumerate(images):
            expected = image + images[(rank + 1) % 3] * scale * scale
            np.testing.assert_allclose(file[f"rank/{rank}/out"][()], expected, rtol=8 * np.finfo(float).eps)
    assert "self-test passed" in built(tmp_path, "app=ring", "ranks=3", "n=5", "run", "selftest=on", "quiet=off")


def test_the_app_of_the_readme(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "smooth.py").write_text(blocks[0])
    built(tmp_path, "app=smooth.py", "ranks=3", "n=5", "run", "output=out.h5")
    line = np.arange(15.0)
    with h5py.File(tmp_path / "out.h5") as file:
        out = np.concatenate([file[f"rank/{rank}/out"][()] for rank in range(3)])
    np.testing.assert_allclose(out, (np.roll(line, 1) + line + np.roll(line, -1)) / 3, rtol=1e-15)


def test_the_python_of_the_readme(tmp_path):
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    (tmp_path / "use.py").write_text(blocks[1])
    done = subprocess.run([sys.executable, "use.py"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "[2. 4. 6. 8.]\n"


def test_a_failing_run_is_a_failing_command(tmp_path):
    done = scons(tmp_path, "app=ring", "run", "input=img2=photo.npy")
    assert done.returncode != 0
    assert "expected one of the entry's inputs, but found 'img2'" in done.stderr


@pytest.mark.parametrize(("words", "sentence"), [
    (["app=rong"], "there is no app 'rong' and no Python file of that name; did you mean 'ring'?"),
    (["app=ring", "m=3", "rank=2"], "app 'ring' has no option 'm'"),
    (["app=ring", "rnu"], "there is nothing called 'rnu' to make; did you mean 'run'?"),
])
def test_mistakes_are_one_sentence(tmp_path, words, sentence):
    done = scons(tmp_path, *words)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.startswith(f"scons: {sentence}")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize(("words", "sentence"), [
    ("", "expected app=NAME, but found no app: `scons -h` lists the apps"),
    ("n=3", "expected app=NAME, but found n=3: `scons -h` lists the apps"),
    ("run app=ring", "expected app=NAME before the word run, but found it behind: what stands there is the loader's"),
    ("app=ring rank=2", "app 'ring' has no option 'rank'; did you mean 'ranks'?"),
    ("app=ring ranks=0", "expected a whole number of ranks, at least 1, but found ranks=0"),
    ("app=ring ranks=two", "expected a whole number of ranks, at least 1, but found ranks=two"),
    ("app=ring n=-1", "option n=-1 of app 'ring' must be positive, not -1"),
    ("app=ring n=many", "option n=many of app 'ring': expected int"),
    ("app=ring contract=maybe", "expected contract=on or contract=off, but found contract=maybe"),
    ("app=ring steps=3", "app 'ring' has no option 'steps', but the loader has: write it behind the word `run`, "
                         "as in `run steps=3`"),
    ("app=ring run ranks=3", "expected ranks=3 before the word `run`: what stands behind it is for the loader"),
    ("app=ring run n=3", "expected n=3 before the word `run`: what stands behind it is for the loader"),
    ("app=ring run step=3", "the loader has no option 'step'; did you mean 'steps'?"),
    ("app=ring run quiet=yes", "expected quiet=on or quiet=off, but found quiet=yes"),
    ("app=ring build/ring/rung.h5", "there is nothing called 'build/ring/rung.h5' to make; "
                                    "did you mean 'build/ring/ring.h5'?"),
])
def test_command_lines_that_are_refused(words, sentence):
    with pytest.raises(AppError) as refusal:
        _read(words)
    assert str(refusal.value) == sentence


def test_words_behind_run_are_the_loaders():
    found = _read("app=ring ranks=2 n=7 run steps=9 input=img1=a=b.npy selftest=on quiet=off")
    assert found.options == {"n": "7"}
    assert found.loader == ("--steps", "9", "--input", "img1=a=b.npy", "--selftest")
    assert found.bundle == "build/ring/ring.h5"


@pytest.mark.parametrize(("source", "sentence"), [
    ("import nowhere", "cannot be imported: No module named 'nowhere'"),
    ("x = 1\ny = z", "cannot be imported: NameError: name 'z' is not defined (FILE:2)"),
    ("def step(:", "cannot be imported: SyntaxError: "),
])
def test_apps_that_cannot_be_imported(tmp_path, monkeypatch, source, sentence):
    monkeypatch.chdir(tmp_path)
    Path("broken.py").write_text(source)
    with pytest.raises(AppError, match=r"app 'broken[.]py' cannot be imported") as refusal:
        order.found("broken.py")
    assert sentence in str(refusal.value).replace(str(tmp_path / "broken.py"), "FILE")


def test_a_mistake_in_an_app_is_a_sentence_and_leaves_no_bundle(tmp_path):
    (tmp_path / "lonely.py").write_text(
        "import pytato as pt\n"
        "from aotato.frontend import make_distributed_recv\n"
        "def step(rank, size, opt, data):\n"
        "    return {'out': 2 * make_distributed_recv((rank + 1) % size, 'x', (3,), 'float64')}\n"
        "ENTRIES = (step,)\n"
    )
    done = scons(tmp_path, "app=lonely.py", "ranks=2")
    assert done.returncode == 2
    assert done.stderr.startswith("aotato: ")
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "build/lonely/lonely.h5").exists()


def test_help_tells_every_app_and_option_with_defaults(tmp_path):
    said = built(tmp_path, "-h")
    assert lesson.text() in said
    for name in builtin_names():
        assert f"  {name}: " in said
        for option in find(name).options:
            assert f"    {option.name}=" in said
            assert option.doc.split()[0] in said
    assert not (tmp_path / BUNDLE).exists()


@pytest.mark.parametrize(("source", "status"), [("def test_it(): pass", 0), ("def test_it(): assert False", 2)])
def test_scons_test_runs_pytest(tmp_path, source, status):
    (tmp_path / "test_it.py").write_text(source)
    done = scons(tmp_path, "test")
    assert done.returncode == status
    assert "1 passed" in done.stdout or "1 failed" in done.stdout


def test_open_mpi_is_given_permissions_only_where_it_refuses():
    assert launch.environment(2, root=False, cores=2, outer={"A": "b"}) == {"A": "b"}
    assert launch.environment(2, root=True, cores=2, outer={}) == launch.AS_ROOT
    assert launch.environment(3, root=False, cores=2, outer={}) == launch.CROWDED
    chosen = dict.fromkeys(launch.CROWDED, "mine")
    assert launch.environment(3, root=False, cores=2, outer=chosen) == chosen
    assert 1 <= launch.cores() <= (os.cpu_count() or 1)


def test_a_bundle_for_one_rank_runs_without_mpi(monkeypatch):
    monkeypatch.setattr(launch, "mpiexec", pytest.fail)
    loader = [sys.executable, "-m", "aotato.runtime_stub.run"]
    assert launch.command("x.h5", 1, ["--quiet"]) == [*loader, "x.h5", "--quiet"]


def test_a_missing_launcher_is_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(launch.LaunchError, match=r"expected mpiexec .*, but found none: install an MPI"):
        launch.command("x.h5", 2, [])


def _read(line: str) -> order.Order:
    """The order of a command line as SConstruct reads it."""
    words = line.split()
    pairs = [tuple(word.split("=", 1)) for word in words if "=" in word]
    asked, for_loader = order.split(pairs, words)
    return order.read(asked, for_loader, [word for word in words if "=" not in word])
