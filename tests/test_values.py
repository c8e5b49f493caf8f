"""Inputs from files, the command line and Python: what is taken, and what is refused with which words."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from aotato.runtime_stub import values
from aotato.runtime_stub.errors import Refusal
from aotato.runtime_stub.values import Wanted

IMAGE = Wanted("img1", (2, 3), "float32", has_default=True)
DT = Wanted("dt", (), "float64")
PATH = Wanted("q.momentum.0", (4,), ">f8".replace(">", "<"))


def _default(name):
    assert name == "img1"
    return np.zeros((2, 3), np.float32)


def _refused(text, function, *args):
    with pytest.raises(Refusal) as caught:
        function(*args)
    assert text in str(caught.value) and "\n" not in str(caught.value)
    return caught.value


def test_files_settings_and_defaults_come_together(tmp_path):
    np.save(tmp_path / "q.npy", np.arange(4.0))
    got = values.gather([IMAGE, DT, PATH], 0, [f"q.momentum.0={tmp_path / 'q.npy'}"], ["dt=1e-3"], _default)
    assert list(got) == ["img1", "dt", "q.momentum.0"]
    assert got["dt"].dtype == np.float64 and got["dt"] == 1e-3 and got["dt"].shape == ()
    np.testing.assert_array_equal(got["q.momentum.0"], np.arange(4.0))


def test_the_rank_expands(tmp_path):
    np.save(tmp_path / "photo_3.npy", np.ones((2, 3), np.float32))
    np.save(tmp_path / "photo_{x}_003.npy", np.full((2, 3), 2, np.float32))
    assert values.read(IMAGE, f"{tmp_path}/photo_{{rank}}.npy", 3)[0, 0] == 1
    assert values.read(IMAGE, f"{tmp_path}/photo_{{x}}_{{rank:03d}}.npy", 3)[0, 0] == 2
    _refused("expected a number format", values.expand, "{rank:zz}", 3)


@pytest.mark.parametrize("name", ["a=b.npy", "a:b.npy", "c.h5:x.npy"])
def test_odd_file_names(tmp_path, name):
    np.save(tmp_path / name, np.ones((2, 3), np.float32))
    got = values.gather([IMAGE], 0, [f"img1={tmp_path / name}"], [], _default)
    assert got["img1"].sum() == 6


def test_a_known_name_may_hold_an_equals_sign():
    assert values.split("a=b=c", ["a", "a=b"], "--set") == ("a=b", "c")
    assert values.split("a=b=c", ["a"], "--set") == ("a", "b=c")


@pytest.mark.parametrize("file, dataset", [("x.h5", "g/img"), ("x:y.h5", "img"), ("x", "a:b")])
def test_datasets_of_hdf5_files(tmp_path, file, dataset):
    with h5py.File(tmp_path / file, "w") as f:
        f[dataset] = np.ones((2, 3), ">f4")
    got = values.read(IMAGE, f"{tmp_path / file}:{dataset}", 0)
    assert got.dtype == np.dtype("float32") and got.dtype.isnative and got.sum() == 6


def test_fortran_order_and_foreign_bytes_are_brought_in_order(tmp_path):
    array = np.asfortranarray(np.arange(6, dtype=">f4").reshape(2, 3))
    np.save(tmp_path / "f.npy", array)
    got = values.read(IMAGE, str(tmp_path / "f.npy"), 0)
    assert got.flags.c_contiguous and got.dtype.isnative
    np.testing.assert_array_equal(got, array)


def test_zero_sized_and_0_dimensional_files(tmp_path):
    np.save(tmp_path / "z.npy", np.zeros((0, 3)))
    np.save(tmp_path / "s.npy", np.float64(2))
    assert values.read(Wanted("z", (0, 3), "float64"), str(tmp_path / "z.npy"), 0).shape == (0, 3)
    assert values.read(DT, str(tmp_path / "s.npy"), 0).shape == ()


def test_unknown_names_are_refused_with_the_nearest():
    _refused("found 'img2': did you mean 'img1'?", values.gather, [IMAGE], 0, ["img2=x.npy"], [], _default)
    _refused("found 'zzz': give one of img1, dt", values.gather, [IMAGE, DT], 0, [], ["zzz=1"], _default)
    _refused("give one of (it has none)", values.gather, [], 0, [], ["zzz=1"], _default)


def test_malformed_options_are_usage_errors():
    assert _refused("--input NAME=FILE", values.gather, [IMAGE], 0, ["img1"], [], _default).code == 2
    assert _refused("--set NAME=VALUE", values.gather, [DT], 0, [], ["=1"], _default).code == 2
    assert _refused("found two", values.gather, [DT], 0, [], ["dt=1", "dt=2"], _default).code == 2


def test_an_input_without_default_must_be_given():
    _refused("input 'dt' (float64[]) has no default, but found no value", values.gather, [DT], 0, [], [], _default)
    _refused("--input q.momentum.0=FILE", values.check_all, [PATH], {}, _default)


def test_shape_and_dtype_must_be_exact(tmp_path):
    np.save(tmp_path / "s.npy", np.ones((3, 2), np.float32))
    np.save(tmp_path / "d.npy", np.ones((2, 3)))
    _refused("input 'img1' is float32[2, 3], but", values.read, IMAGE, str(tmp_path / "s.npy"), 0)
    _refused("holds float32[3, 2]", values.read, IMAGE, str(tmp_path / "s.npy"), 0)
    remedy = 'holds float64[2, 3]: convert it with `.astype("float32")`'
    _refused(remedy, values.read, IMAGE, str(tmp_path / "d.npy"), 0)
    _refused("the argument holds int64[2, 3]", values.check_all, [IMAGE], {"img1": np.ones((2, 3), int)}, _default)
    _refused("the argument holds float64[]", values.check_all, [IMAGE], {"img1": 1.0}, _default)


@pytest.mark.parametrize("name, content, words", [
    ("none.npy", None, "No such file"),
    ("empty.npy", b"", "expected an .npy or HDF5 file"),
    ("text.npy", b"1 2 3\n4 5 6", "expected an .npy or HDF5 file"),
    ("cut.npy", b"\x93NUMPY\x01\x00", "cannot be read"),
    ("zip.npz", b"PK\x03\x04aaaaaaaa", "an .npz archive"),
    ("cut.h5", b"\x89HDF\r\n\x1a\nxxxx", "cannot be read"),
    ("none.h5:img", None, "No such file"),
])
def test_unreadable_files(tmp_path, name, content, words):
    if content is not None:
        (tmp_path / name).write_bytes(content)
    refusal = _refused(words, values.read, IMAGE, str(tmp_path / name), 0)
    assert str(tmp_path / name.partition(":")[0]) in str(refusal)


def test_a_file_with_missing_data_is_refused(tmp_path):
    np.save(tmp_path / "cut.npy", np.ones((2, 3), np.float32))
    whole = (tmp_path / "cut.npy").read_bytes()
    (tmp_path / "cut.npy").write_bytes(whole[:-4])
    _refused("cannot be read", values.read, IMAGE, str(tmp_path / "cut.npy"), 0)


def test_pickles_are_never_loaded(tmp_path):
    class Bomb:
        def __reduce__(self):
            return print, ("boom",)

    np.save(tmp_path / "p.npy", np.array([Bomb()], dtype=object), allow_pickle=True)
    _refused("cannot be read (Object arrays cannot be loaded", values.read, IMAGE, str(tmp_path / "p.npy"), 0)


def test_a_dataset_must_be_named_and_numeric(tmp_path):
    with h5py.File(tmp_path / "x.h5", "w") as f:
        f["img"], f["g/t"] = np.ones((2, 3), np.float32), "text"
    _refused("found 'no name' (it has g/t, img)", values.read, IMAGE, f"{tmp_path}/x.h5", 0)
    _refused("found 'photo'", values.read, IMAGE, f"{tmp_path}/x.h5:photo", 0)
    _refused("found 'g/t'", values.read, IMAGE, f"{tmp_path}/x.h5:g/t", 0)
    _refused("found 'g'", values.read, IMAGE, f"{tmp_path}/x.h5:g", 0)


@pytest.mark.parametrize("dtype, text, value", [
    ("float64", " 1e-3", 1e-3), ("float32", "nan", np.nan), ("float16", "-inf", -np.inf), ("int8", "-0x10", -16),
    ("uint64", str(2**64 - 1), 2**64 - 1), ("bool", "True", True), ("bool", "0", False), ("complex64", "1+2j", 1 + 2j),
])
def test_numbers_are_read_as_the_inputs_dtype(dtype, text, value):
    got = values.parse(Wanted("x", (), dtype), text)
    assert got.dtype == np.dtype(dtype) and got.shape == ()
    np.testing.assert_array_equal(got, np.asarray(value).astype(dtype))


@pytest.mark.parametrize("dtype, text", [("float64", "fast"), ("int32", "1.5"), ("int8", "200"), ("uint8", "-1"),
                                         ("float32", "1e300"), ("float16", "1e6"), ("bool", "2"), ("complex64", "i")])
def test_other_texts_are_refused(dtype, text):
    _refused(f"input 'x' is {dtype}, but found --set x={text}", values.parse, Wanted("x", (), dtype), text)


def test_set_is_for_single_numbers():
    _refused("use --input img1=FILE", values.parse, IMAGE, "1")


def test_python_numbers_move_up_only():
    assert values.check(DT, 1, "the argument").dtype == np.float64
    assert values.check(Wanted("n", (), "int32"), True, "the argument") == 1
    _refused("give a whole number", values.check, Wanted("n", (), "int32"), 1.0, "the argument")
    _refused("give a number", values.check, DT, 1j, "the argument")
    _refused('convert it with `.astype("float64")`', values.check, DT, np.float32(1), "the argument")


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("int8", [1, -128, 127]), ("float32", (1, 2.5, np.inf)), ("float16", [True, 1, 2]), ("complex64", [1, 2.5, 1j]),
     ("bool", [True, False, True]), ("uint64", [0, 1, 2**64 - 1]), ("int32", range(3)), ("int32", [np.int8(1), 2, 3])],
)
def test_lists_of_numbers_are_arrays(dtype, value):
    found = values.check(Wanted("x", (3,), dtype), value, "the argument")
    assert found.dtype == dtype and np.array_equal(found, np.array(value, dtype))


def test_empty_lists_are_empty_arrays():
    assert values.check(Wanted("x", (0,), "int32"), [], "the argument").dtype == "int32"
    assert values.check(Wanted("x", (2, 0), "bool"), [[], []], "the argument").shape == (2, 0)


@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [("int8", [1, 2, 300], r"holds 300 at \[2\]: give a whole number from -128 to 127"),
     ("int32", [1, 2.5, 3], r"holds 1.0 at \[0\]: give a whole number"),
     ("float32", [1, 2, 1e39], r"holds 1e\+39 at \[2\]: give a number of at most"),
     ("float32", [1, 2j, 3], "give a number"),
     ("bool", [0, 1, 1], r"holds 0 at \[0\]: give a truth value"),
     ("float32", [1, 2], r"holds int64\[2\]: give an array of that shape"),
     ("float32", [[1, 2], [3]], "holds sequences of different lengths .*: give an array of that shape"),
     ("float32", ["a", "b", "c"], "holds list .*: give numbers"),
     ("float32", None, "holds NoneType None: give numbers")],
)
def test_lists_that_do_not_fit_are_refused(dtype, value, words):
    with pytest.raises(Refusal, match=words):
        values.check(Wanted("x", (3,), dtype), value, "the argument")
