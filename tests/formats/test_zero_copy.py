"""Columns that are views of the mapped file."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.tfrecord.sidecar import is_checked
from tests import wire


def mapped(array: Any) -> bool:
    """Return whether an array lies in a mapped file."""
    address = array.ctypes.data
    for line in Path("/proc/self/maps").read_text().splitlines():
        stretch, _, _, _, inode, *_ = line.split()
        begin, end = (int(place, 16) for place in stretch.split("-"))
        if begin <= address < end:
            return inode != "0"
    return False


X = np.random.default_rng(0).standard_normal((500, 10), dtype=np.float32)


@pytest.mark.parametrize("index", [True, False])
@pytest.mark.parametrize("encoding", ["float_list", "raw"])
@pytest.mark.parametrize("align", [None, 64])
def test_float_and_raw_columns_are_views(encoding: str, align: int | None, index: bool) -> None:
    with rm.TFRecordWriter("x.tfrecord", encoding={"x": encoding}, align=align, index=index) as w:
        w.write({"x": X})
    column = rm.open("x.tfrecord", {"x": "float32[10]"})["x"]
    assert mapped(column)
    assert np.array_equal(column, X)
    assert not column.flags.writeable
    assert np.shares_memory(column, rm.open("x.tfrecord", {"x": "float32[10]"})["x"]) is False
    if align:
        assert column.flags.aligned
        assert column.ctypes.data % align == 0
        assert column.strides[0] % align == 0


@pytest.mark.parametrize("dtype", ["float64", "uint8", "int16", "complex64", "float16", ">f4"])
def test_raw_columns_of_other_dtypes_are_views(dtype: str) -> None:
    values = (np.arange(120).reshape(20, 6) % 100).astype(dtype)
    with rm.TFRecordWriter("x.tfrecord", encoding={"x": "raw"}, align=64) as w:
        w.write({"x": values})
    column = rm.open("x.tfrecord")["x"]
    assert mapped(column)
    assert np.array_equal(column, values)


def test_views_outlive_the_dataset() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": X})
    column = rm.open("x.tfrecord")["x"]
    Path("x.tfrecord").unlink()
    assert np.array_equal(column, X)


def test_labels_of_any_size_do_not_move_aligned_columns() -> None:
    labels = np.array([0, 1, 2**20, -1, 2**62] * 100)
    with rm.TFRecordWriter("x.tfrecord", align=64) as w:
        w.write({"a": labels, "x": X, "z": X.astype(np.float64)})
    ds = rm.open("x.tfrecord")
    for name, values in (("x", X), ("z", X.astype(np.float64))):
        assert mapped(ds[name])
        assert np.array_equal(ds[name], values)
    assert np.array_equal(ds[:]["a"], labels)
    assert isinstance(ds["a"], rm.ColumnView)


def test_records_of_one_size_whose_payloads_move_are_not_mapped() -> None:
    # Two labels whose sizes add up to the same total.
    records = [
        wire.example(a=wire.int64_list(a), b=wire.float_list(b), c=wire.int64_list(c))
        for a, b, c in [(1, 10, 300), (300, 11, 1)]
    ]
    assert len(records[0]) == len(records[1])
    wire.write("x.tfrecord", *records)
    column = rm.open("x.tfrecord")["b"]
    assert isinstance(column, rm.ColumnView)
    assert column[:].tolist() == [10, 11]


def test_a_damaged_file_gives_no_views() -> None:
    with rm.TFRecordWriter("x.tfrecord", index=False) as w:
        w.write({"x": X})
    data = bytearray(Path("x.tfrecord").read_bytes())
    data[len(data) // 2 + 40] ^= 1
    Path("x.tfrecord").write_bytes(data)
    with pytest.raises(rm.CorruptRecordError, match="data CRC"):
        rm.open("x.tfrecord")["x"]
    assert mapped(rm.open("x.tfrecord", verify=False)["x"])


def test_batches_and_rows_are_copies() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": X})
    ds = rm.open("x.tfrecord")
    batch = ds[10:20]["x"]
    assert batch.flags.writeable
    assert not np.shares_memory(batch, ds["x"])


def pairs(rng: np.random.Generator, count: int) -> list[bytes]:
    return [
        wire.example(aa=wire.float_list(*a), bb=wire.float_list(*b))
        for a, b in rng.standard_normal((count, 2, 4), np.float32).tolist()
    ]


def rewrite(path: str, record: int, size: int, content: bytes) -> None:
    """Replace a record in place by another of its size, and set the time back."""
    before = Path(path).stat()
    with open(path, "r+b") as file:
        file.seek(record * size)
        assert file.write(content) == size
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))


@pytest.mark.parametrize("verify", [True, False])
def test_a_record_rewritten_behind_an_index_is_not_read_from_its_old_place(verify: bool) -> None:
    # More than the blocks that tell whether an index fits.
    path = wire.write("x.tfrecord", *pairs(np.random.default_rng(0), 6_000))
    rm.index(path)
    other = {"bb": wire.float_list(1, 2, 3, 4), "aa": wire.float_list(5, 6, 7, 8)}
    content = wire.frame(wire.example(**other))
    rewrite(path, 3_001, len(content), content)
    ds = rm.open(path, verify=verify)
    assert ds["aa"][3_001].tolist() == [5, 6, 7, 8]
    assert ds["bb"][3_001].tolist() == [1, 2, 3, 4]
    assert ds["aa"][3_000].tolist() == ds[3_000]["aa"].tolist()


@pytest.mark.parametrize("written", [True, False])
def test_damage_behind_an_index_is_noticed_in_a_mapped_column(written: bool) -> None:
    many = np.repeat(X, 30, axis=0)
    rm.from_arrays({"x": many}).save("x.tfrecord")
    if not written:
        rm.index("x.tfrecord")
    content = bytearray(Path("x.tfrecord").read_bytes())
    size = len(content) // len(many)
    damaged = content[7_000 * size : 7_001 * size]
    damaged[size // 2] ^= 1
    with open("x.tfrecord", "r+b") as file:
        file.seek(7_000 * size)
        file.write(damaged)
    ds = rm.open("x.tfrecord")
    assert ds.info().mapped == ["x"]  # only the values need a check
    with pytest.raises(rm.CorruptRecordError, match="record 7,000"):
        ds["x"]
    rm.open("x.tfrecord", verify=False)["x"]


def test_an_index_made_after_a_dataset_was_opened_does_not_vouch_for_it() -> None:
    path = wire.write("x.tfrecord", *pairs(np.random.default_rng(0), 6_000))
    rm.index(path)
    ds = rm.open(path)
    content = wire.frame(
        wire.example(bb=wire.float_list(1, 2, 3, 4), aa=wire.float_list(5, 6, 7, 8))
    )
    rewrite(path, 3_001, len(content), content)
    rm.index(path)
    assert ds["aa"][3_001].tolist() == [5, 6, 7, 8]


def outcome(path: str, read: Callable[[rm.Dataset], Any]) -> Any:
    """Return what is read, or the number of the damaged record."""
    try:
        return read(rm.open(path))
    except rm.CorruptRecordError as e:
        return e.record


# Some rewrites are noticed when the index is loaded.
@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::recmap.StaleIndexWarning")
def test_mapped_columns_have_the_values_of_rows_after_any_rewrite() -> None:
    rng = np.random.default_rng(3)
    for round_ in range(12):
        path = wire.write("x.tfrecord", *pairs(rng, 5_000))
        rm.index(path)
        for _ in range(int(rng.integers(0, 3))):
            a, b = rng.standard_normal((2, 4)).tolist()
            some = {"aa": wire.float_list(*a), "bb": wire.float_list(*b)}
            record = wire.example(**dict(sorted(some.items(), reverse=rng.random() < 0.5)))
            content = bytearray(wire.frame(record))
            if rng.random() < 0.3:
                content[int(rng.integers(12, len(content)))] ^= 4
            rewrite(path, int(rng.integers(5_000)), len(content), bytes(content))
        rows, column = outcome(path, lambda ds: ds[:]["aa"]), outcome(path, lambda ds: ds["aa"])
        assert np.array_equal(rows, column), round_


def test_an_index_vouches_for_the_file_that_it_was_made_from_only(tmp_path: Path) -> None:
    rm.from_arrays({"x": X}).save("x.tfrecord")
    assert is_checked("x.tfrecord")
    index = Path(".x.tfrecord.recmap").read_bytes()
    shutil.copytree(".", tmp_path / "copy", dirs_exist_ok=True)
    assert not is_checked(str(tmp_path / "copy" / "x.tfrecord"))
    os.utime("x.tfrecord")
    assert not is_checked("x.tfrecord")
    rm.index("x.tfrecord")
    assert is_checked("x.tfrecord")
    assert Path(".x.tfrecord.recmap").read_bytes() == index
    os.replace(shutil.copy("x.tfrecord", "y"), "x.tfrecord")
    assert not is_checked("x.tfrecord")
    assert np.array_equal(rm.open("x.tfrecord")["x"], X)
