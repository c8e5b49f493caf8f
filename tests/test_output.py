"""The result file: its layout, names, types, and how it comes about on several ranks."""

from __future__ import annotations

import json
import os
import textwrap

import h5py
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aotato.runtime_stub import output
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.names import decode_name, encode_name
from aotato.runtime_stub.output import About
from aotato.runtime_stub.world import World
from mpi import mpiexec

ARRAYS = {
    "out": np.arange(6.0).reshape(2, 3),
    "q.momentum.0": np.arange(3, dtype=np.int8),
    "": np.float16(1.5)[()].reshape(()),
    ".": np.array([True, False]),
    "a/b%c": np.zeros((0, 3), np.complex64),
    "z": np.array(1 + 2j),
    "u": np.array([2**64 - 1], np.uint64),
    "f": np.asfortranarray(np.arange(6, dtype=np.float32).reshape(2, 3)),
}


def test_arrays_of_every_kind_come_back(tmp_path):
    path = tmp_path / "out.h5"
    about = About("abc", 7, 0.5, {"dt": np.float64(0.25), "n": 3, "done": np.bool_(True)})
    output.write(path, World(), ARRAYS, about)
    with h5py.File(path) as file:
        assert {decode_name(name) for name in file["rank/0"]} == set(ARRAYS)
        for name, array in ARRAYS.items():
            got = file["rank/0"][encode_name(name)]
            assert (got.dtype, got.shape) == (array.dtype, array.shape)
            np.testing.assert_array_equal(got[()], array)
        attributes = dict(file.attrs)
    assert json.loads(attributes.pop("scalars")) == {"dt": 0.25, "n": 3, "done": True}
    assert attributes == {"digest": "abc", "step": 7, "time": 0.5, "ranks": 1}
    assert os.listdir(tmp_path) == ["out.h5"]


ODD = ["", ".", "..", "%", "%2E", "/", "\0"]


@given(st.text(st.characters(exclude_categories=("Cs",)), max_size=8) | st.sampled_from(ODD))
def test_names_come_back(name):
    text = encode_name(name)
    assert decode_name(text) == name
    assert text not in ("", ".") and "/" not in text and "\0" not in text


@pytest.mark.parametrize("name, text", [("%", "%25"), ("a/b", "a%2Fb"), (".", "%2E"), ("..", ".."), ("", "%"),
                                        ("q.0", "q.0")])
def test_names_are_stable(name, text):
    assert encode_name(name) == text


@given(st.lists(st.integers(0, 5), max_size=4), st.integers(1, 8), st.integers(1, 200))
def test_pieces_are_bounded_and_make_the_whole(shape, itemsize, limit):
    shape, array = tuple(shape), np.arange(np.prod(shape, dtype=int)).reshape(shape)
    pieces = [array[box] for box in output.boxes(shape, itemsize, limit)]
    assert all(0 < piece.size * itemsize <= max(limit, itemsize) for piece in pieces)
    assert all(np.shape(array[box]) == output._extent(shape, box) for box in output.boxes(shape, itemsize, limit))
    assert [x for piece in pieces for x in np.ravel(piece)] == list(range(array.size))


def test_ranks_with_different_arrays_are_gathered_in_pieces(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent("""
        import sys
        import numpy as np
        from aotato.runtime_stub import output
        from aotato.runtime_stub.world import World
        output.PIECE_BYTES = output.boxes.__defaults__[0]
        output.boxes.__defaults__ = (1000,)
        w = World.find(3)
        rank = w.rank
        arrays = {"x": np.arange(1000.0).reshape(10, 100) + rank, "s": np.array(rank, np.float16),
                  "e": np.zeros((rank, 0)), "b": np.arange(rank + 1) > 0, "f": np.arange(6.0).reshape(2, 3).T}
        output.write(sys.argv[1], w, arrays, output.About("d"))
        """))
    done = mpiexec(3, [script, tmp_path / "out.h5"])
    assert (done.returncode, done.stderr) == (0, "")
    with h5py.File(tmp_path / "out.h5") as file:
        assert list(file["rank"]) == ["0", "1", "2"] and file.attrs["ranks"] == 3
        for rank in range(3):
            group = file[f"rank/{rank}"]
            np.testing.assert_array_equal(group["x"][()], np.arange(1000.0).reshape(10, 100) + rank)
            assert group["s"][()] == rank and group["s"].dtype == np.float16
            assert group["e"].shape == (rank, 0)
            np.testing.assert_array_equal(group["b"][()], np.arange(rank + 1) > 0)
            np.testing.assert_array_equal(group["f"][()], np.arange(6.0).reshape(2, 3).T)


def test_places_that_cannot_be_written_are_refused_beforehand(tmp_path):
    output.check(tmp_path / "out.h5")
    assert os.listdir(tmp_path) == []
    with pytest.raises(Refusal, match=r"found .*none/out.h5, a folder that does not exist \(.*none\): create it"):
        output.check(tmp_path / "none" / "out.h5")
    with pytest.raises(Refusal, match="a folder: create it or choose another name"):
        output.check(tmp_path)
    with pytest.raises(Refusal, match=r"expected a writable place for --output, but found /proc/out.h5"):
        output.check("/proc/out.h5")


def test_a_failed_write_leaves_the_old_file_and_nothing_else(tmp_path):
    path = tmp_path / "out.h5"
    output.write(path, World(), {"x": np.arange(3)}, About("old"))
    with pytest.raises(TypeError):
        output.write(path, World(), {"x": np.array([object()])}, About("new"))
    with h5py.File(path) as file:
        assert file.attrs["digest"] == "old"
    assert os.listdir(tmp_path) == ["out.h5"]
