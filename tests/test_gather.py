"""Rows of several TFRecord files at once, in any order."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recmap as rm
from recmap import _core
from recmap.files.mapped import MappedFiles
from recmap.formats import tfrecord
from recmap.tfrecord.gather import gather
from tests.jobs import same

SIZES = (40, 0, 1, 25, 34)
ROWS = sum(SIZES)


def columns() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "id": np.arange(ROWS),
        "x": rng.standard_normal((ROWS, 200), np.float32),
        "t": rm.Ragged.from_rows([np.arange(i % 7) + i for i in range(ROWS)], np.int64),
        "name": rm.Ragged.from_bytes([b"row %d" % i for i in range(ROWS)]),
    }


FIELDS = {"id": "int64", "x": "float32[200]", "t": "int64[*]", "name": "bytes"}


def write(compression: Any = None) -> rm.Dataset:
    data, begin = columns(), 0
    for number, size in enumerate(SIZES):
        with rm.TFRecordWriter(
            f"part-{number}.tfrecord", FIELDS, index=False, compression=compression
        ) as writer:
            writer.write({name: column[begin : begin + size] for name, column in data.items()})
        begin += size
    return rm.open("part-*.tfrecord", fields=FIELDS)


@pytest.fixture(scope="module", autouse=True)
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("files")
    before = Path.cwd()
    os.chdir(folder)
    write()
    os.chdir(before)
    return folder


def opened(files: Path) -> rm.Dataset:
    return rm.open(str(files / "part-*.tfrecord"), fields=FIELDS)


def require(batch: Any, rows: Any) -> None:
    for name, column in columns().items():
        expected = column[np.asarray(rows, np.int64)]
        if isinstance(expected, rm.Ragged):
            expected = rm.Ragged(expected.flat, expected.offsets - expected.offsets[0])
        same(batch[name], expected)


@given(rows=st.lists(st.integers(0, ROWS - 1), max_size=60))
def test_any_rows_come_in_their_order(files: Path, rows: list[int]) -> None:
    require(opened(files)[rows], rows)


@given(start=st.integers(0, ROWS), stop=st.integers(0, ROWS))
def test_any_stretch_comes_whole(files: Path, start: int, stop: int) -> None:
    ds = opened(files)
    assert len(ds) == ROWS
    require(ds[start:stop], np.arange(start, stop))


def test_they_are_read_in_one_call(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []

    def counting(parts: Any, *others: Any) -> Any:
        calls.append(len(parts))
        return gather(parts, *others)

    monkeypatch.setattr(tfrecord, "gather", counting)
    ds = opened(files)
    rows = np.random.default_rng(0).permutation(ROWS)
    require(ds[rows], rows)
    require(ds[30:50], np.arange(30, 50))
    assert calls == [4, 3]
    require(ds[5:39], np.arange(5, 39))
    assert len(calls) == 2


def test_too_many_files_are_read_one_after_the_other(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tfrecord, "gather", lambda *_: pytest.fail("all at once"))
    init = MappedFiles.__init__

    def two(self: MappedFiles) -> None:
        init(self)
        self.most = 2

    monkeypatch.setattr(MappedFiles, "__init__", two)
    rows = np.random.default_rng(0).permutation(ROWS)
    ds = opened(files)
    require(ds[rows], rows)
    require(ds[30:90], np.arange(30, 90))


def test_compressed_files_are_read_one_after_the_other() -> None:
    ds = write("gzip")
    rows = np.random.default_rng(0).permutation(ROWS)
    require(ds[rows], rows)
    require(ds[30:90], np.arange(30, 90))


def test_damage_is_told_by_file_and_record() -> None:
    write()
    data = bytearray(Path("part-3.tfrecord").read_bytes())
    data[data.index(b"row 52")] ^= 1
    Path("part-3.tfrecord").write_bytes(data)
    ds = rm.open("part-*.tfrecord", fields=FIELDS)
    for rows in ([90, 52, 3], slice(35, 60)):
        with pytest.raises(rm.CorruptRecordError, match=r"part-3.tfrecord: record 11 ") as raised:
            ds[rows]
        assert raised.value.record == 11
    assert ds[[90, 53, 3]]["id"].tolist() == [90, 53, 3]


def test_a_file_that_shrank_is_said_so() -> None:
    write()
    ds = rm.open("part-*.tfrecord", fields=FIELDS)
    assert ds[[90, 52, 3]]["id"].tolist() == [90, 52, 3]
    os.truncate("part-3.tfrecord", 100)
    with pytest.raises(rm.CorruptRecordError, match=r"part-3.tfrecord: the file shrank"):
        ds[[90, 52, 3]]


def test_a_column_that_does_not_fit_is_told_by_file_and_record() -> None:
    write()
    ds = rm.open("part-*.tfrecord", fields={"t": "int64[3]", "id": "int64"})
    with pytest.raises(rm.FieldMismatchError, match=r"part-4.tfrecord: record 3 .*'t'"):
        ds[[3, 10, 69]]


def test_owners_that_are_no_files_are_refused(files: Path) -> None:
    file = np.frombuffer((files / "part-0.tfrecord").read_bytes(), np.uint8)
    columns = _core.Columns()
    offsets = np.zeros(2, np.uint64)
    for owners in (np.array([0, 1], np.uint32), np.zeros(1, np.uint32), np.zeros(0, np.uint32)):
        with pytest.raises(ValueError, match="owner"):
            _core.decode([file], offsets, owners, columns, True, 1, [], np.empty)
    with pytest.raises(ValueError, match="one file or more"):
        _core.decode([], offsets, None, columns, True, 1, [], np.empty)
