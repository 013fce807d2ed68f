"""HDF5 files that recmap writes, read back by h5py and by recmap."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path
from typing import Any

import h5py
import ml_dtypes
import numpy as np
import pyarrow as pa
import pytest

import recmap as rm
from recmap.formats.registry import create_sink
from tests.forked import run_program

ROWS = 700
RNG = np.random.default_rng(0)
STRINGS = [b"", b"\0", b"a\0b\0", b"plain", "é".encode()] * (ROWS // 5)
COLUMNS: dict[str, Any] = {
    "z": RNG.normal(size=(ROWS, 10)).astype(np.float32),
    "g/b": np.arange(ROWS) % 3 == 0,
    "a": np.arange(ROWS).astype("<M8[ns]"),
    "span": np.arange(ROWS * 2).astype("<m8[s]").reshape(ROWS, 2),
    "g/h/brain": np.arange(ROWS * 3).reshape(ROWS, 3).astype(ml_dtypes.bfloat16),
    "tiny": np.arange(ROWS).astype(ml_dtypes.float8_e5m2),
    "half": np.arange(ROWS).astype(np.float16),
    "complex": (np.arange(ROWS) + 1j).astype(np.complex64),
    "long": np.arange(ROWS).astype(np.longdouble),
    "nothing": np.zeros((ROWS, 0), np.float32),
    "no days": np.zeros((ROWS, 2, 0), "<M8[D]"),
    "text": rm.Ragged.from_bytes(STRINGS),
    "lists": rm.Ragged.from_rows([np.arange(i % 5, dtype=np.int32) for i in range(ROWS)]),
    "even": rm.Ragged(np.arange(ROWS * 2), np.arange(ROWS + 1) * 2),
    "points": rm.Ragged(RNG.normal(size=(ROWS * 2, 4)), np.arange(ROWS + 1) * 2),
    "flags": rm.Ragged.from_rows([np.arange(i % 3) > 0 for i in range(ROWS)], dtype=bool),
    "times": rm.Ragged(np.arange(ROWS).astype("<M8[us]"), np.arange(ROWS + 1)),
    "g/words": rm.Ragged(rm.Ragged.from_bytes(STRINGS * 3), np.arange(ROWS + 1) * 3),
    # Empty at first, then longer and longer: spans end within batches, and batches within spans.
    "steps": rm.Ragged(
        rm.Ragged(np.arange(ROWS**2), np.arange(ROWS + 1) ** 2),
        np.append(np.arange(ROWS) // 2, ROWS),
    ),
    "brains": rm.Ragged(
        rm.Ragged(np.arange(ROWS * 4).astype(ml_dtypes.bfloat16).reshape(-1, 2), [0, 9, ROWS * 2]),
        np.append(np.zeros(ROWS, int), 2),
    ),
}


def digest(path: str) -> str:
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


@pytest.mark.slow
@pytest.mark.parametrize("compression", [None, "gzip", "lzf"])
def test_every_column_round_trips(compression: str | None) -> None:
    source = rm.from_arrays(COLUMNS)
    source.save("x.h5", verify="full", compression=compression)
    ds = rm.open("x.h5")
    assert list(ds.schema) == list(COLUMNS)
    assert ds.schema == source.schema
    batch = ds[:]
    for name, column in COLUMNS.items():
        if isinstance(column, rm.Ragged):
            assert batch[name] == column
        else:
            assert np.array_equal(batch[name], column)
    assert batch["text"].tolist() == STRINGS


def test_h5py_reads_the_same_values() -> None:
    rm.from_arrays(COLUMNS).save("x.h5")
    with h5py.File("x.h5") as file:
        for name in ("z", "g/b", "half", "complex", "long"):
            assert file[name].dtype == COLUMNS[name].dtype
            assert np.array_equal(file[name][:], COLUMNS[name])
        assert [row.tolist() for row in file["lists"][:]] == COLUMNS["lists"].tolist()
        assert [row.tolist() for row in file["even"][:]] == COLUMNS["even"].tolist()
        assert [row.tobytes() for row in file["text"][:]] == STRINGS
        assert file["text"].attrs["recmap"] == "bytes"
        assert file["a"].attrs["recmap"] == "datetime64[ns]"


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"compression": "gzip"}, {"chunk_rows": 13}], ids=str)
def test_the_bytes_do_not_depend_on_batches(options: dict[str, Any]) -> None:
    source = rm.from_arrays(COLUMNS)._source
    found = set()
    for most in (7, 256, ROWS):
        sink = create_sink("x.h5", "hdf5", source.schema, **options)
        start, step = 0, 1
        while start < ROWS:
            sink.write(source.read(start, min(start + step, ROWS)))
            # Some batches of one row at first, as they take long.
            start, step = start + step, 1 if start < 20 else most
        sink.commit()
        found.add(digest("x.h5"))
    assert len(found) == 1


def test_rows_may_be_changed_after_they_were_written() -> None:
    sink = create_sink("x.h5", "hdf5", rm.Schema({"x": "int64", "s": "int64[*]"}))
    x = np.zeros(10, np.int64)
    for i in range(5):
        x[:] = i
        sink.write({"x": x, "s": rm.Ragged(x, np.arange(11))})
    sink.commit()
    batch = rm.open("x.h5")[:]
    assert batch["x"].tolist() == np.repeat(np.arange(5), 10).tolist()
    assert batch["s"].values.tolist() == np.repeat(np.arange(5), 10).tolist()


def test_filters_and_chunks_follow_the_options() -> None:
    x = np.zeros((5000, 100), np.float32)
    source = rm.from_arrays({"x": x})
    source.save("a.h5")
    source.save("b.h5", compression="gzip", options={"level": 9, "chunk_rows": 123})
    source.save("c.h5", compression="lzf", options={"shuffle": False})
    with h5py.File("a.h5") as a, h5py.File("b.h5") as b, h5py.File("c.h5") as c:
        assert a["x"].chunks == (655, 100)
        assert a["x"].compression is None
        assert a["x"].maxshape == (None, 100)
        assert b["x"].chunks == (123, 100)
        assert (b["x"].compression, b["x"].compression_opts, b["x"].shuffle) == ("gzip", 9, True)
        assert (c["x"].compression, c["x"].shuffle) == ("lzf", False)


def test_a_row_larger_than_a_chunk_is_cut() -> None:
    x = np.arange(3 * 1000 * 1000, dtype=np.float32).reshape(3, 1000, 1000)
    rm.from_arrays({"x": x}).save("x.h5", compression="gzip", options={"level": 1})
    with h5py.File("x.h5") as file:
        assert file["x"].chunks == (1, 65, 1000)
    assert np.array_equal(rm.open("x.h5")[:]["x"], x)


@pytest.mark.slow
def test_a_row_of_more_strings_than_a_chunk_is_cut() -> None:
    strings = rm.Ragged.from_bytes([b"a", b"bc"] * 40_000)
    source = rm.from_batches([{"x": rm.Ragged(strings, [0, 80_000])}], {"x": "bytes[80000]"})
    source.save("x.h5")
    with h5py.File("x.h5") as file:
        assert file["x"].chunks == (1, 4096)
    assert rm.open("x.h5")[:]["x"].flat == strings


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"compression": "zstd"}, "gzip"),
        ({"compression": "gzip", "options": {"level": 10}}, "0 to 9"),
        ({"options": {"level": 3}}, "with compression"),
        ({"options": {"chunk_rows": 0}}, "1 or more"),
        ({"options": {"chunk_rows": 1 << 40}}, "up to 2,147,483,648"),
        ({"options": {"colour": "red"}}, "no option 'colour'"),
    ],
)
def test_meaningless_options_are_refused(options: dict[str, Any], why: str) -> None:
    with pytest.raises(rm.OptionError, match=why):
        rm.from_arrays({"x": np.arange(3)}).save("x.h5", **options)
    assert os.listdir() == []


@pytest.mark.parametrize(
    ("columns", "why"),
    [
        ({"a": np.arange(2), "a/b": np.arange(2)}, "'a/b' would be inside 'a'"),
        ({"a//b": np.arange(2)}, "cannot be a path"),
        ({"/a": np.arange(2)}, "cannot be a path"),
        ({".": np.arange(2)}, "cannot be a path"),
        ({"n": [[b"x"], [b"y", b"z"]], "n/steps": [1, 2]}, "'n/steps' would be inside 'n'"),
        ({"raw": rm.Ragged(np.zeros(3, "V3"), [0, 1, 3])}, "no type"),
    ],
)
def test_what_hdf5_cannot_hold_is_refused(columns: dict[str, Any], why: str) -> None:
    with pytest.raises(rm.ColumnError, match=why):
        rm.from_arrays(columns).save("x.h5")
    assert os.listdir() == []


def test_lists_of_lists_are_groups_of_arrays() -> None:
    words = [[b"a", b""], [], [b"bcd"]]
    ds = rm.from_arrays({"g/words": words, "x": np.arange(3)})
    ds.save("x.h5", compression="gzip")
    with h5py.File("x.h5") as file:
        assert file["g/words"].attrs["recmap"] == "bytes[*]"
        assert file["g/words/values"][:].tobytes() == b"abcd"
        assert file["g/words/values"].compression == "gzip"
        assert file["g/words/offsets"][:].tolist() == [0, 2, 2, 3]
        assert file["g/words/steps"][:].tolist() == [0, 1, 1, 4]
    assert rm.open("x.h5", ["x", "g/words"])[:]["g/words"].tolist() == words
    assert rm.open("x.h5", ["g/words/steps"])[:]["g/words/steps"].tolist() == [0, 1, 1, 4]


def test_rows_of_fixed_axes_inside_lists_are_checked() -> None:
    sink = create_sink("x.h5", "hdf5", rm.Schema({"x": "bytes[*,2]"}))
    pairs = rm.Ragged(rm.Ragged(rm.Ragged.from_bytes([b"a", b"b", b"c"]), [0, 2, 3]), [0, 1, 2])
    with pytest.raises(rm.ColumnError, match=r"'x' is bytes\[\*,2\], but a row has another shape"):
        sink.write({"x": pairs})
    sink.abort()
    assert os.listdir() == []


def test_strings_along_fixed_axes_are_kept() -> None:
    with h5py.File("x.h5", "w") as file:
        texts = np.array([[b"a", b"bc"], [b"", b"d\0e"]], "S3")
        file["x"] = texts
    rm.convert("x.h5", "y.h5", verify="full")
    assert rm.open("y.h5").schema == {"x": "bytes[2]"}
    assert rm.open("y.h5")[1]["x"].tolist() == [b"", b"d\0e"]
    sink = create_sink("z.h5", "hdf5", rm.Schema({"x": "bytes[2]"}))
    sink.write({"x": [[b"a"], [b"b", b"c"]]})
    with pytest.raises(rm.ColumnError, match=r"not all rows are bytes\[2\]"):
        sink.commit()
    sink.abort()


def test_nothing_shows_before_commit_and_nothing_stays_after_abort() -> None:
    sink = create_sink("x.h5", "hdf5", rm.Schema({"x": "int64"}))
    sink.write({"x": np.arange(3)})
    assert not os.path.exists("x.h5")
    temporary = sink.finish()
    assert os.listdir() == [temporary]
    assert rm.open(temporary)[:]["x"].tolist() == [0, 1, 2]
    sink.commit()
    assert os.listdir() == ["x.h5"]
    other = create_sink("y.h5", "hdf5", rm.Schema({"x": "int64"}))
    other.write({"x": np.arange(3)})
    other.abort()
    assert os.listdir() == ["x.h5"]


def test_a_file_without_rows_keeps_its_schema() -> None:
    sink = create_sink(
        "x.h5", "hdf5", rm.Schema({"x": "int64[2]", "s": "bytes", "r": "float32[*]"})
    )
    sink.write({"x": np.zeros((0, 2), np.int64), "s": [], "r": []})
    sink.commit()
    ds = rm.open("x.h5")
    assert (len(ds), str(ds.schema["s"]), str(ds.schema["r"])) == (0, "bytes", "float32[*]")


def test_tfrecord_to_hdf5_and_back_keeps_every_value() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write(
            {
                "image": [bytes([i % 256]) * (i % 7) + b"\0" for i in range(500)],
                "label": np.arange(500),
                "box": [np.arange(i % 3, dtype=np.float32) for i in range(500)],
            }
        )
    rm.convert("x.tfrecord", "x.h5", verify="full")
    rm.convert("x.h5", "y.tfrecord", verify="full")
    first, hdf5, last = (rm.open(path) for path in ("x.tfrecord", "x.h5", "y.tfrecord"))
    for name in first.schema:
        assert str(first.schema[name]) == str(hdf5.schema[name])
        one, two, three = first[:][name], hdf5[:][name], last[:][name]
        if isinstance(one, rm.Ragged):
            assert one == two == three
        else:
            assert one.tolist() == two.tolist() == three.tolist()


@pytest.mark.parametrize("dtype", ["<f4", ">i8", "|u1", ">f2"])
def test_npy_to_hdf5_and_back_keeps_every_value(dtype: str) -> None:
    np.save("x.npy", np.arange(3000).reshape(1000, 3).astype(dtype))
    rm.convert("x.npy", "x.h5", verify="full", compression="gzip")
    assert h5py.File("x.h5")["data"].dtype == np.dtype(dtype)
    rm.convert("x.h5", "y.npy", verify="full")
    assert np.load("y.npy").dtype == np.dtype(dtype)
    assert np.array_equal(np.load("x.npy"), np.load("y.npy"))


def test_several_files_are_written_and_read_as_one() -> None:
    x = np.arange(5000.0).reshape(1000, 5)
    rm.from_arrays({"x": x, "s": [str(i) for i in range(1000)]}).save("x.h5", shards=3)
    ds = rm.open("x-*.h5")
    assert np.array_equal(ds[:]["x"], x)
    assert ds[[999, 0, 400]]["s"].tolist() == [b"999", b"0", b"400"]


def test_a_full_disk_is_one_error_and_leaves_nothing() -> None:
    program = """
import os, resource, signal
import numpy as np, recmap as rm
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
x = rm.from_arrays({"x": np.ones((5000, 64)), "s": [bytes(100)] * 5000})
for limit in (100, 5_000, 600_000, 2_700_000):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        x.save("x.h5")
    except OSError as e:
        print(limit, type(e).__name__, os.listdir())
"""
    done = run_program(program)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[1:] == [
        f"{limit} OutputError []" for limit in (5_000, 600_000, 2_700_000)
    ]


@pytest.mark.parametrize("name", ["x.h5", "x.zarr"])
def test_many_columns_of_few_rows_take_little_more_than_their_values(name: str) -> None:
    columns = {f"c{i}": np.arange(10, dtype="<i4") for i in range(20)}
    rm.from_arrays(columns).save(name, compression=None, options={"durable": False})
    assert rm.open(name)[:]["c19"].tolist() == list(range(10))
    files = [p for p in Path(name).rglob("*") if p.is_file()] or [Path(name)]
    assert sum(p.stat().st_size for p in files) < 20 * 4_000


def test_bytes_of_one_size_are_written_as_opaque_ones() -> None:
    ids: list[bytes | None] = [bytes([i] * 16) for i in range(1, 9)]
    ids[3] = None
    table = pa.table({"id": pa.array(ids, pa.binary(16)), "n": range(8)})
    rm.open(table).save("x.h5", verify="full")
    ds = rm.open("x.h5")
    assert ds.schema == {"id": "V16?", "n": "int64"}
    assert ds["id"][:].tolist() == ids
    assert ds[[7, 3, 0]]["id"].tolist() == [ids[7], None, ids[0]]
    assert ds.to_arrow().equals(table)
    ds.drop_null("id").save("y.h5", compression="gzip")
    with h5py.File("y.h5") as file:
        assert file["id"].dtype == np.dtype("V16")
    assert rm.open("y.h5")["id"][:].tobytes() == b"".join(filter(None, ids))
