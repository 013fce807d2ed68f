"""rm.convert and ds.save: what is written, and what is refused."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.model.permutation import Permutation


def numbers(rows: int = 1000, width: int = 10) -> np.ndarray[Any, np.dtype[np.float32]]:
    return np.random.default_rng(0).random((rows, width), dtype=np.float32)


def raw_file(rows: int = 1000) -> np.ndarray[Any, np.dtype[np.float32]]:
    x = numbers(rows)
    x.tofile("x.dat")
    return x


RAW: dict[str, Any] = {"dtype": "float32", "shape": (-1, 10)}


def test_a_memmap_becomes_tfrecord_shards_and_an_array_again() -> None:
    x = raw_file()
    report = rm.convert("x.dat", "out/", shards=3, **RAW)
    assert report.rows == 1000
    assert [os.path.basename(f) for f in report.files] == [
        f"data-0000{i}-of-00003.tfrecord" for i in range(3)
    ]
    assert [len(rm.open(f)) for f in report.files] == [333, 333, 334]
    rm.convert("out/", "y.npy")
    y = np.load("y.npy", mmap_mode="r")
    assert y.dtype == np.float32
    assert np.array_equal(y, x)


def test_tensorflow_reads_what_was_converted() -> None:
    import tensorflow as tf

    x = raw_file(100)
    rm.convert("x.dat", "x.tfrecord", **RAW)
    spec = {"data": tf.io.FixedLenFeature([10], tf.float32)}
    rows = [
        tf.io.parse_single_example(r, spec)["data"].numpy()
        for r in tf.data.TFRecordDataset("x.tfrecord")
    ]
    assert np.array_equal(np.stack(rows), x)


def test_save_writes_a_dataset() -> None:
    raw_file()
    assert rm.open("x.dat", **RAW).save("y.npy").rows == 1000


@pytest.mark.parametrize(
    ("options", "rows"),
    [
        ({"shards": 4}, [250, 250, 250, 250]),
        ({"shards": "300 rows"}, [300, 300, 300, 100]),
        ({"shards": "16kB"}, [400, 400, 200]),
        ({}, [1000]),
    ],
)
def test_rows_are_divided_among_shards_as_asked(options: dict[str, Any], rows: list[int]) -> None:
    x = raw_file()
    report = rm.convert("x.dat", "y.npy", **options, **RAW)
    assert [len(np.load(f)) for f in report.files] == rows
    assert np.array_equal(rm.open(report.files)[:]["data"], x)


def test_more_shards_than_rows_makes_empty_ones() -> None:
    x = raw_file(2)
    report = rm.convert("x.dat", "y.npy", shards=5, **RAW)
    assert sorted(len(np.load(f)) for f in report.files) == [0, 0, 0, 1, 1]
    assert np.array_equal(rm.open("y-*.npy")[:]["data"], x)


def test_an_empty_source_gives_an_empty_file() -> None:
    Path("x.dat").touch()
    rm.convert("x.dat", "x.tfrecord", **RAW)
    rm.convert("x.tfrecord", "y.npy")
    assert np.load("y.npy").shape == (0, 10)


def test_an_unknown_suffix_is_refused_and_the_known_ones_listed() -> None:
    raw_file()
    with pytest.raises(rm.OptionError, match=r"\.tfrecord.*\.npy"):
        rm.convert("x.dat", "y.xlsx", **RAW)
    assert rm.convert("x.dat", "y.any", format="npy", **RAW).rows == 1000


def test_batches_that_can_be_read_only_once_become_one_file() -> None:
    ds = rm.from_batches({"i": np.arange(n, n + 100)} for n in range(0, 1000, 100))
    assert ds.save("i.npy").rows == 1000
    assert np.array_equal(np.load("i.npy"), np.arange(1000))
    again = rm.from_batches({"i": np.arange(10)} for _ in range(2))
    with pytest.raises(rm.OptionError, match="not known in advance"):
        again.save("j.npy", shards=2)


def test_rows_columns_names_and_types_are_changed() -> None:
    rm.from_arrays({"a": np.arange(100), "b": np.arange(100.0), "c": [b"x"] * 100}).save(
        "abc.tfrecord"
    )
    rm.open("abc.tfrecord").select("b", "a").select(slice(10, 90, 20)).rename({"a": "label"}).cast(
        {"label": "int8"}
    ).save("out.tfrecord")
    ds = rm.open("out.tfrecord")
    assert ds.schema == {"b": "float64", "label": "int8"}
    assert ds[:]["label"].tolist() == [10, 30, 50, 70]
    assert ds[:]["b"].tolist() == [10.0, 30.0, 50.0, 70.0]


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.5], "int64"),
        ([300], "uint8"),
        ([-1], "uint64"),
        ([2**63], "int64"),
        ([2**53 + 1], "float64"),
        ([1e40], "float32"),
        ([0.1], "float32"),
        ([float("nan")], "int32"),
    ],
)
def test_a_cast_that_loses_values_is_refused(values: list[Any], dtype: str) -> None:
    kind = np.uint64 if values == [2**63] else None
    ds = rm.from_arrays({"x": np.array(values, kind)})
    with pytest.raises(rm.FieldMismatchError, match="would lose values"):
        ds.cast({"x": dtype}).save("x.npy")
    assert not list(Path().glob("*x.npy*"))
    ds.cast({"x": dtype}, casting="unsafe").save("x.npy")
    assert np.load("x.npy").dtype == dtype


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([1.0, 2.0], "int8"),
        ([255], "uint8"),
        ([0.5, float("nan")], "float16"),
        ([2**53], "float64"),
    ],
)
def test_a_cast_that_keeps_all_values_is_allowed(values: list[Any], dtype: str) -> None:
    rm.from_arrays({"x": np.array(values)}).cast({"x": dtype}).save("x.npy")
    assert np.array_equal(np.load("x.npy"), np.array(values), equal_nan=dtype == "float16")


def test_dates_can_be_cast_to_the_numbers_of_their_units() -> None:
    dates = np.array(["1969-12-31T23:59:59", "2024-02-29T00:00:01"], "M8[s]")
    none = np.array(["NaT", "2024-02-29T00:00:01"], "M8[s]")
    ds = rm.from_arrays({"day": dates, "lasts": dates - dates[0], "none": none})
    assert ds.cast({"day": "int64"})["day"][:].tolist() == [-1, 1709164801]
    assert ds.cast({"lasts": "float64"})["lasts"][:].tolist() == [0.0, 1709164802.0]
    assert ds.cast({"day": "int64"}).cast({"day": "M8[s]"})["day"][:].tolist() == dates.tolist()
    for name, dtype in (("day", "int8"), ("day", "float32"), ("none", "int64")):
        with pytest.raises(rm.FieldMismatchError, match="would lose values"):
            ds.cast({name: dtype})[:]


def test_an_existing_file_is_not_overwritten() -> None:
    x = raw_file()
    rm.from_arrays({"old": np.arange(3)}).save("y.npy")
    with pytest.raises(FileExistsError, match="overwrite=True"):
        rm.convert("x.dat", "y.npy", **RAW)
    assert len(np.load("y.npy")) == 3
    rm.convert("x.dat", "y.npy", overwrite=True, **RAW)
    assert np.array_equal(np.load("y.npy"), x)


def test_a_file_does_not_overwrite_itself() -> None:
    rm.from_arrays({"x": np.arange(3)}).save("y.npy")
    with pytest.raises(rm.OptionError, match="while it is read"):
        rm.convert("y.npy", "y.npy", overwrite=True)
    assert np.load("y.npy").tolist() == [0, 1, 2]


def test_the_same_conversion_again_has_nothing_to_do() -> None:
    raw_file()
    rm.convert("x.dat", "out/", shards=3, **RAW)
    before = {p: p.stat().st_mtime_ns for p in Path("out").iterdir() if "data" in p.name}
    again = rm.convert("x.dat", "out/", shards=3, **RAW)
    assert again.resumed == 3
    assert {p: p.stat().st_mtime_ns for p in before} == before


def test_a_different_conversion_to_the_same_place_is_not_resumed() -> None:
    x = raw_file()
    rm.convert("x.dat", "out/", shards=3, **RAW)
    ds = rm.open("x.dat", **RAW)
    for changed, shards in (
        (ds, 2),
        (ds.shuffle(), 3),
        (ds.take(5), 3),
        (ds.cast({"data": "f8"}), 3),
    ):
        with pytest.raises(rm.OutputExistsError):
            changed.save("out/", shards=shards)
    os.utime("x.dat", ns=(0, 0))
    with pytest.raises(rm.OutputExistsError):
        rm.convert("x.dat", "out/", shards=3, **RAW)
    rm.convert("x.dat", "out/", shards=2, overwrite=True, **RAW)
    assert np.array_equal(rm.open("out/")[:]["data"], x)


def test_a_file_opened_with_other_options_is_a_different_conversion() -> None:
    raw_file()
    rm.open("x.dat", **RAW).take(10).save("out/", shards=2)
    with pytest.raises(rm.OutputExistsError):
        rm.open("x.dat", **RAW, offset=40).take(10).save("out/", shards=2)
    with pytest.raises(rm.OutputExistsError):
        rm.open("x.dat", offset=40, **RAW).take(10).save("out/", shards=2)
    assert rm.open("x.dat", **RAW).take(10).save("out/", shards=2).resumed == 2


@pytest.mark.parametrize("dtype", [">f4", ">i4", ">i8", ">f8", "<f4", ">u2", ">c8"])
@pytest.mark.parametrize("name", ["y.npy", "y.bin"])
def test_the_byte_order_is_kept(dtype: str, name: str) -> None:
    x = np.arange(12).astype(dtype).reshape(4, 3)
    np.save("x.npy", x)
    rm.convert("x.npy", name, verify="full")
    y = rm.open(name)[:]["data"]
    assert y.dtype == x.dtype
    assert np.array_equal(x, y)
    rm.convert(name, "z.npy", verify="full")
    assert np.load("z.npy").tobytes() == x.tobytes()


def test_strings_along_several_axes_are_kept() -> None:
    np.save("s.npy", np.array([[["a", "bc"], ["", "\u00e9"], ["x", "y"]]] * 4))
    rm.convert("s.npy", "s.tfrecord", verify="full")
    assert rm.open("s.tfrecord").schema == {"data": "bytes[3,2]"}
    assert rm.open("s.tfrecord")[2]["data"].tolist() == [
        [b"a", b"bc"],
        [b"", b"\xc3\xa9"],
        [b"x", b"y"],
    ]


def test_full_verification_finds_a_value_that_differs() -> None:
    x = numbers()

    def change(_: Any) -> None:
        x[7, 3] += 1

    ds = rm.from_arrays({"x": x})
    with pytest.raises(rm.VerificationError, match="column 'x'.*are not"):
        ds.save("x.tfrecord", verify="full", progress=change)
    assert not list(Path().iterdir())


@pytest.mark.parametrize("name", ["x.tfrecord", "x.npy", "x.bin", "x.tfrecord.gz"])
def test_full_verification_accepts_equal_values(name: str) -> None:
    x = numbers()
    x[3, 3] = np.nan
    x[4, 4] = -0.0
    rm.from_arrays({"x": x}).save(name, verify="full")
    assert np.array_equal(rm.open(name)[:]["x"], x, equal_nan=True)


def test_bad_records_are_skipped_and_counted() -> None:
    rm.from_arrays({"x": np.arange(100)}).save("x.tfrecord", options={"index": False})
    data = bytearray(Path("x.tfrecord").read_bytes())
    data[len(data) // 2] ^= 1
    Path("x.tfrecord").write_bytes(data)
    with pytest.raises(rm.CorruptRecordError):
        rm.convert("x.tfrecord", "y.npy")
    with pytest.warns(rm.SkippedRecordsWarning):
        report = rm.convert("x.tfrecord", "y.npy", errors="skip")
    assert (report.rows, report.skipped) == (99, 1)


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_shuffle_is_exact_and_follows_the_seed(compression: str | None) -> None:
    name = "x.tfrecord" if compression is None else "x.tfrecord.gz"
    strings = [str(i).encode() for i in range(20_000)]
    rm.from_arrays({"i": np.arange(20_000), "s": strings}).save(name)
    # Too little memory to hold the rows, so a gzip file is shuffled through files on disk.
    rm.open(name).shuffle(seed=5).save("out/", shards=3, memory="1MB")
    batch = rm.open("out/")[:]
    order = batch["i"].tolist()
    assert sorted(order) == list(range(20_000))
    assert order != sorted(order)
    assert batch["s"].tolist() == [strings[i] for i in order]
    assert order[:3] == Permutation(20_000, 5)[[0, 1, 2]].tolist()
    assert sorted(p.name for p in Path().iterdir() if "shuffle" in p.name) == []


def test_a_budget_too_small_for_a_row_is_refused_before_anything_is_written() -> None:
    ds = rm.from_arrays({"x": np.zeros((4, 1 << 20), np.float32)})
    with pytest.raises(rm.OptionError, match="too little"):
        ds.save("x.npy", memory="20MB")
    assert not list(Path().iterdir())
    assert ds.save("x.npy", memory="44MB").rows == 4


def test_the_explanation_tells_how_fast_a_large_input_is_read() -> None:
    rows = np.zeros((80, 1 << 20), np.uint8)
    rm.from_arrays({"x": rows}).save("x.tfrecord", options={"durable": False})
    report = rm.convert("x.tfrecord", "y.npz", options={"durable": False})
    assert re.search(r"rows of about 1.05 MB, .*; rows are read at .*/s", report.explanation)
    mapped = rm.from_arrays({"x": rows}).save("x.npy", options={"durable": False})
    assert "rows are read in place, without a copy" in mapped.explanation
    small = rm.from_arrays({"x": rows[:10]}).save("z.npy", options={"durable": False})
    assert "rows are" not in small.explanation


def test_the_rows_of_a_shard_do_not_depend_on_the_memory() -> None:
    sizes = np.full(64, 100_000)
    ends = np.concatenate([[0], np.cumsum(sizes)])
    ds = rm.from_arrays({"s": rm.Ragged(np.full(int(ends[-1]), b"x"), ends)})
    few = rm.convert(ds, "a/", shards="1MB", memory="20MB", options={"durable": False})
    many = rm.convert(ds, "b/", shards="1MB", options={"durable": False})
    assert len(few.files) == len(many.files) > 1
    for one, other in zip(few.files, many.files, strict=True):
        assert Path(one).read_bytes() == Path(other).read_bytes()


def test_sizes_are_strings_or_numbers() -> None:
    ds = rm.from_arrays({"x": np.arange(10)})
    for memory in ("512MB", "1GiB", 10**9, "2 GB"):
        ds.save("x.npy", memory=memory, overwrite=True)
    with pytest.raises(rm.OptionError, match="512MB"):
        ds.save("x.npy", memory="much")


def test_progress_tells_rows_and_time_left() -> None:
    raw_file()
    seen: list[Any] = []
    rm.convert("x.dat", "y.npy", progress=seen.append, **RAW)
    assert (seen[-1].rows, seen[-1].total_rows) == (1000, 1000)
    assert seen[-1].bytes == 40_000
    assert seen[-1].left == 0


def test_options_of_the_format_are_passed_on_and_unknown_ones_refused() -> None:
    raw_file()
    rm.convert("x.dat", "a.tfrecord", align=64, **RAW)
    assert rm.open("a.tfrecord")["data"].flags.aligned
    with pytest.raises(rm.OptionError, match="no option"):
        rm.convert("x.dat", "b.npy", align=64, **RAW)
    assert not Path("b.npy").exists()


def test_a_shuffle_without_a_seed_chooses_one_and_keeps_it() -> None:
    np.save("x.npy", np.arange(1000))
    rm.open("x.npy").shuffle().save("a/", shards=2)
    rm.open("x.npy").shuffle().save("b/", shards=2)
    a, b = (rm.open(name)["data"][:].tolist() for name in ("a/", "b/"))
    assert a != b
    assert sorted(a) == sorted(b) == list(range(1000))
    assert rm.open("x.npy").shuffle().save("a/", shards=2).resumed == 2
