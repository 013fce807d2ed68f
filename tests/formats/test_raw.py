"""Files without a header, read with a given dtype or as their description says."""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import zlib
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recmap as rm
from recmap.cli import main
from tests import wire

NUMBERS = np.arange(40, dtype=np.float32).reshape(4, 10)


def make(kind: str) -> str:
    """Write a file of numbers in a format that states its types."""
    name = f"x.{kind}"
    if kind == "npy":
        np.save(name, NUMBERS)
    elif kind == "npz":
        np.savez(name, data=NUMBERS)
    elif kind == "h5":
        with h5py.File(name, "w") as file:
            file["data"] = NUMBERS
    elif kind == "late.h5":
        with h5py.File(name, "w", userblock_size=2048) as file:
            file["data"] = NUMBERS
    elif kind == "tfrecord.gz":
        Path(name).write_bytes(gzip.compress(wire.frame(wire.example(a=wire.int64_list(1)))))
    else:
        rm.from_arrays({"data": NUMBERS}).save(name)
    return name


@pytest.mark.parametrize("kind", ["npy", "npz", "h5", "late.h5", "tfrecord", "tfrecord.gz", "zarr"])
@pytest.mark.parametrize("renamed", [False, True], ids=["its name", "another name"])
@pytest.mark.parametrize(
    "options",
    [
        {"dtype": "float32"},
        {"dtype": "uint8"},
        {"dtype": "float32", "shape": (-1, 10)},
        {"dtype": "float32", "offset": 128},
        {"shape": (-1, 10)},
        {"offset": 128},
    ],
    ids=str,
)
def test_a_file_that_tells_its_types_is_not_read_as_plain_numbers(
    kind: str, renamed: bool, options: dict[str, Any]
) -> None:
    name = make(kind)
    if renamed:
        os.rename(name, "numbers.bin")
        name = "numbers.bin"
    with pytest.raises(rm.OptionError, match=r"numbers\.bin|x\."):
        rm.open(name, **options)


@pytest.mark.parametrize("kind", ["npy", "npz", "h5", "tfrecord", "tfrecord.gz"])
def test_format_raw_reads_the_bytes_of_any_file(kind: str) -> None:
    name = make(kind)
    data = rm.open(name, dtype="uint8", format="raw")[:]["data"]
    assert data.tobytes() == Path(name).read_bytes()
    rest = rm.open(name, dtype="uint8", format="raw", offset=16)[:]["data"]
    assert rest.tobytes() == Path(name).read_bytes()[16:]


def test_dtype_is_refused_for_another_format() -> None:
    name = make("npy")
    with pytest.raises(rm.OptionError, match="without a header"):
        rm.open(name, format="npy", dtype="float32")


def test_np_memmap_files_are_read_whatever_their_name() -> None:
    for name in ("x.npy", "x.bin", "x.f32", "x"):
        NUMBERS.tofile(name)
        assert np.array_equal(rm.open(name, dtype="float32", shape=(-1, 10))[:]["data"], NUMBERS)


def test_a_damaged_file_of_another_name_is_not_read_as_plain_numbers() -> None:
    for name in ("x.tfrecord", "x.h5", "x.npz", "x.tfrecord-00000-of-00002"):
        NUMBERS.tofile(name)
        with pytest.raises(rm.OptionError, match=r'format="raw"'):
            rm.open(name, dtype="float32")
        assert len(rm.open(name, dtype="float32", format="raw")) == 40


def test_text_is_an_array_of_bytes_but_not_of_floats() -> None:
    Path("x.csv").write_text("a,b\n1,2\n3,4\n5,6\n7,8\n")
    Path("x.txt").write_text("a,b\n1,2\n3,4\n5,6\n7,8\n")
    with pytest.raises(rm.OptionError, match="looks like CSV"):
        rm.open("x.csv", dtype="float32")
    for name in ("x.csv", "x.txt"):
        assert rm.open(name, dtype="uint8")[:]["data"].tobytes() == Path(name).read_bytes()


NEAR = [
    b"\x80\x04",  # a pickle
    b"\x1f\x8b",  # gzip
    b"\x1f\x8b\x08\x00",
    b"\x78\x9c",  # zlib
    b"\x78\x01",
    b"BM",  # an image
    b"BZh9",
    b"\xff\xff\xff\xff\x08\x00\x00\x00",  # an Arrow stream
    b"\xff\xd8",
    b"\x00\x00\x08\x03",
    b"II*\x00",
    b"RIFF",
    b"PAR1",
    b"\xff\xfe",
    b"{",
    b"(dp0",
]


@pytest.mark.parametrize("begin", NEAR, ids=repr)
def test_plain_numbers_that_begin_like_another_format_are_read(begin: bytes) -> None:
    rng = np.random.default_rng(7)
    for i in range(50):
        content = begin + rng.bytes(int(rng.integers(0, 300)))
        Path("x.bin").write_bytes(content)
        assert rm.open("x.bin", dtype="uint8")[:]["data"].tobytes() == content, i


@given(st.binary(min_size=1, max_size=300))
def test_any_bytes_are_read_back_from_a_raw_file(content: bytes) -> None:
    data = np.frombuffer(content, np.uint8)
    rm.from_arrays({"x": data}).save("x.bin", overwrite=True)
    assert np.array_equal(rm.open("x.bin")[:]["x"], data)


@pytest.mark.parametrize("kind", ["npy", "npz", "h5", "tfrecord", "png"])
def test_the_bytes_of_another_file_are_read_back_from_a_raw_file(kind: str) -> None:
    content = b"\x89PNG\r\n\x1a\n" if kind == "png" else Path(make(kind)).read_bytes()
    data = np.frombuffer(content, np.uint8)
    rm.from_arrays({"x": data}).save("copy.bin")
    assert np.array_equal(rm.open("copy.bin")[:]["x"], data)


PACKED: dict[str, Any] = {"gzip": gzip.compress, "zlib": zlib.compress}


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize("name", ["x.bin.gz", "x.bin", "x.gz", "x.dat.zlib"])
@pytest.mark.parametrize("options", [{}, {"format": "raw"}, {"compression": "gzip"}], ids=str)
def test_compressed_numbers_are_refused(kind: str, name: str, options: dict[str, Any]) -> None:
    for numbers in (NUMBERS, np.random.default_rng(0).random(10_000), np.zeros(1)):
        Path(name).write_bytes(PACKED[kind](numbers.tobytes()))
        with pytest.raises(rm.RecmapError, match=r"[Dd]ecompress it first"):
            rm.open(name, dtype="uint8", **options)
    content = rm.open(name, dtype="uint8", format="raw", compression=None)[:]["data"]
    assert content.tobytes() == Path(name).read_bytes()


def test_a_description_does_not_make_compressed_numbers_plain() -> None:
    Path("x.bin").write_bytes(gzip.compress(bytes(4000)))
    Path("x.bin.recmap.json").write_text('{"recmap": 1, "fields": {"x": "uint8"}}')
    with pytest.raises(rm.DataError, match="compressed with gzip"):
        rm.open("x.bin")


@pytest.mark.parametrize("kind", ["npy", "npz", "h5", "zarr", "bin"])
def test_compression_is_refused_where_it_means_nothing(kind: str) -> None:
    name = make(kind)
    for compression in ("gzip", "zlib", "bogus"):
        with pytest.raises(rm.OptionError, match="compression="):
            rm.open(name, compression=compression)  # type: ignore[arg-type]
    for quiet in ("auto", None):
        assert len(rm.open(name, compression=quiet)) == 4


def test_dtype_applies_to_the_columns_without_a_header() -> None:
    np.save("a.npy", np.arange(4))
    NUMBERS.tofile("b.bin")
    NUMBERS.tofile("c.npy")
    paths = {"a": "a.npy", "b": "b.bin", "c": "c.npy"}
    ds = rm.open(paths, dtype="float32", shape=(-1, 10))
    assert np.array_equal(ds[:]["b"], NUMBERS)
    assert np.array_equal(ds[:]["c"], NUMBERS)


def test_a_description_is_valid_for_a_copy_of_its_file() -> None:
    rm.from_arrays({"x": NUMBERS}).save("x.bin")
    os.mkdir("elsewhere")
    for name in ("x.bin", "x.bin.recmap.json"):
        shutil.copyfile(name, f"elsewhere/{name}")
    assert np.array_equal(rm.open("elsewhere/x.bin")[:]["x"], NUMBERS)


NEWER: dict[str, npt.NDArray[Any]] = {
    "longer": NUMBERS.repeat(2),
    "shorter": NUMBERS[:3],
    "of another size": np.arange(7, dtype=np.uint8),
    "of the same size": np.arange(20, dtype=np.float64),
    "of the same type": NUMBERS + 1,
    "with another last value": np.where(NUMBERS == 39, 0, NUMBERS),
    "empty": np.empty(0, np.float32),
}


@pytest.mark.parametrize("newer", NEWER)
def test_the_description_of_an_older_file_is_noticed(
    newer: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rm.from_arrays({"x": NUMBERS}).save("x.bin")
    NEWER[newer].tofile("x.bin")
    with pytest.raises(rm.IndexFileError, match="not the description of this file") as caught:
        rm.open("x.bin")
    assert caught.value.file == "x.bin.recmap.json"
    assert main(["info", "x.bin"]) == 1
    assert "x.bin.recmap.json" in capsys.readouterr().err
    assert rm.open("x.bin", dtype="uint8")[:]["data"].tobytes() == NEWER[newer].tobytes()


def test_a_file_of_another_format_with_the_description_of_an_older_one_is_read() -> None:
    rm.from_arrays({"x": NUMBERS}).save("x.bin")
    np.save("y.npy", NUMBERS[:2])
    os.replace("y.npy", "x.bin")
    with pytest.warns(rm.StaleIndexWarning):
        assert np.array_equal(rm.open("x.bin")[:]["data"], NUMBERS[:2])


def test_the_description_of_an_older_npy_file_does_not_name_its_column() -> None:
    rm.from_arrays({"label": NUMBERS}).save("x.npy")
    assert list(rm.open("x.npy").schema) == ["label"]
    np.save("x.npy", NUMBERS + 1)
    with pytest.warns(rm.StaleIndexWarning, match=r"x\.npy\.recmap\.json was not used"):
        ds = rm.open("x.npy")
    assert list(ds.schema) == ["data"]


def test_a_handwritten_description_needs_only_fields() -> None:
    NUMBERS.tofile("x.bin")
    Path("x.bin.recmap.json").write_text('{"recmap": 1, "fields": {"x": "float32[10]"}}')
    assert np.array_equal(rm.open("x.bin")[:]["x"], NUMBERS)
    Path("x.bin.recmap.json").write_text('{"recmap": 1, "fields": {"x": "float32[7]"}}')
    with pytest.raises(rm.IndexFileError, match="not a multiple"):
        rm.open("x.bin")
    with pytest.raises(rm.OptionError, match="need dtype"):
        rm.open("x.bin", shape=(-1, 10))


HOSTILE = [
    "",
    "{",
    "[]",
    "null",
    '"recmap"',
    "[" * 100_000,
    '{"recmap": 1}',
    '{"recmap": 2, "fields": {"x": "float32"}}',
    '{"recmap": 1, "fields": []}',
    '{"recmap": 1, "fields": {}}',
    '{"recmap": 1, "fields": null}',
    '{"recmap": 1, "fields": {"x": 1}}',
    '{"recmap": 1, "fields": {"x": null}}',
    '{"recmap": 1, "fields": {"x": "object"}}',
    '{"recmap": 1, "fields": {"x": "bytes"}}',
    '{"recmap": 1, "fields": {"x": "float32[*]"}}',
    '{"recmap": 1, "fields": {"x": "float32[0]"}}',
    '{"recmap": 1, "fields": {"x": "float32[-1]"}}',
    '{"recmap": 1, "fields": {"x": "float32[99999999999999999999]"}}',
    '{"recmap": 1, "fields": {"x": "float32[4000000000]"}}',
    '{"recmap": 1, "fields": {"x": "V0"}}',
    '{"recmap": 1, "fields": {"x": "float32' + "[1]" * 99 + '"}}',
    '{"recmap": 1, "fields": {"x": "float32[' + "1," * 99 + '1]"}}',
    '{"recmap": 1, "fields": {"x": "float32 = 1e999"}, "size": 1}',
    '{"recmap": 1, "fields": {"x": "float32"}, "size": -1}',
    '{"recmap": 1, "fields": {"x": "float32"}, "size": "160"}',
    '{"recmap": 1, "fields": {"x": "float32"}, "size": true}',
    '{"recmap": 1, "fields": {"x": "float32"}, "size": 1e400}',
    '{"recmap": 1, "fields": {"x": "float32"}, "crc32": [1]}',
    '{"recmap": 1, "fields": {"x": "float32"}, "size": ' + "9" * 5000 + "}",
    '{"recmap": 1, "fields": {"' + "x" * (1 << 20) + '": "float32"}}',
]


@pytest.mark.parametrize("content", HOSTILE, ids=range(len(HOSTILE)))
def test_a_broken_description_is_named(content: str) -> None:
    NUMBERS.tofile("x.bin")
    Path("x.bin.recmap.json").write_text(content)
    with pytest.raises(rm.RecmapError, match=r"x\.bin\.recmap\.json"):
        rm.open("x.bin")


@pytest.mark.slow
@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=10,
    )
)
def test_a_bad_description_raises_only_recmap_errors(content: Any) -> None:
    NUMBERS.tofile("x.bin")
    for text in (
        content,
        {"recmap": 1, "fields": content},
        {"recmap": 1, "fields": {"x": content}},
    ):
        Path("x.bin.recmap.json").write_text(json.dumps(text))
        with contextlib.suppress(rm.RecmapError):  # some texts are dtypes: "L", "f"
            rm.open("x.bin")
