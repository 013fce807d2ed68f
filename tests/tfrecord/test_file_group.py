"""Reading rows of several TFRecord files in one call, in any order."""

from __future__ import annotations

import errno
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recmap as rm
from recmap.native import _core
from recmap.store.mapped_files import MappedFiles, _Allowance
from recmap.tfrecord.file_group import FileGroup
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
def test_rows_are_returned_in_the_requested_order(files: Path, rows: list[int]) -> None:
    require(opened(files)[rows], rows)


@given(start=st.integers(0, ROWS), stop=st.integers(0, ROWS))
def test_any_span_is_complete(files: Path, start: int, stop: int) -> None:
    ds = opened(files)
    assert len(ds) == ROWS
    require(ds[start:stop], np.arange(start, stop))


def test_several_files_are_read_in_one_call(files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    gather = FileGroup.gather

    def counting(self: FileGroup, codec: Any, rows: Any, verify: bool, **options: Any) -> Any:
        calls.append(len(rows))
        return gather(self, codec, rows, verify, **options)

    monkeypatch.setattr(FileGroup, "gather", counting)
    ds = opened(files)
    assert len(ds) == ROWS
    rows = np.random.default_rng(0).permutation(ROWS)
    require(ds[rows], rows)
    require(ds[30:50], np.arange(30, 50))
    assert calls == [ROWS, 20]
    require(ds[5:39], np.arange(5, 39))
    assert len(calls) == 2


def test_too_many_files_are_read_one_after_the_other(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(FileGroup, "gather", lambda *_, **__: pytest.fail("all at once"))
    monkeypatch.setattr("recmap.store.mapped_files._MOST_HELD", 4)
    monkeypatch.setattr("recmap.tfrecord.file_group._MAX_SPAN_FILES", 1)
    rows = np.random.default_rng(0).permutation(ROWS)
    ds = opened(files)
    assert len(ds) == ROWS
    require(ds[rows], rows)
    require(ds[30:90], np.arange(30, 90))


def test_mappings_are_counted_for_the_whole_process(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("recmap.store.mapped_files._MOST_HELD", 64)
    # Datasets of other tests may still be alive.
    monkeypatch.setattr("recmap.store.mapped_files._held", _Allowance())
    rows = [90, 52, 3]
    datasets = [opened(files) for _ in range(30)]
    for ds in datasets:
        assert len(ds) == ROWS
        require(ds[rows], rows)
    held = [ds._source._gathering._all is not None for ds in datasets]  # type: ignore[attr-defined]
    # Each dataset has five files.
    assert sum(held) == 12
    del ds, datasets[:6]
    last = datasets[-1]
    require(last[rows], rows)
    assert last._source._gathering._all is not None  # type: ignore[attr-defined]


def test_reading_works_when_descriptors_run_out(
    files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds, rows = opened(files), [90, 52, 3]
    assert len(ds) == ROWS
    opens = MappedFiles.open
    refused: list[str] = []

    def none_left(self: MappedFiles, path: str) -> Any:
        if not refused:
            refused.append(path)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return opens(self, path)

    monkeypatch.setattr(MappedFiles, "open", none_left)
    require(ds[rows], rows)
    assert refused
    assert ds._source._gathering._all is None  # type: ignore[attr-defined]
    require(ds[rows], rows)
    assert ds._source._gathering._all is not None  # type: ignore[attr-defined]


def test_damage_in_files_that_are_not_read_does_not_matter() -> None:
    write()
    size = os.path.getsize("part-4.tfrecord")
    os.truncate("part-4.tfrecord", size - 3)
    ds = rm.open("part-*.tfrecord", fields=FIELDS)
    assert ds[0]["id"] == 0
    for _ in range(2):
        require(ds[5:45], np.arange(5, 45))
        require(ds._source.gather(np.array([45, 3])), [45, 3])
        require(ds[66:70], np.arange(66, 70))
    with pytest.raises(rm.CorruptRecordError, match=r"part-4.tfrecord: record 33 "):
        ds[[ROWS - 1]]


def test_columns_share_the_group_of_files(files: Path) -> None:
    ds = opened(files)
    assert len(ds) == ROWS
    ds[[1]]
    chosen = ds._source.select(["id"])
    mine, theirs = (source._gathering for source in (ds._source, chosen))  # type: ignore[attr-defined]
    assert mine is theirs
    assert mine._all is not None


def test_threads_count_and_gather_at_once(files: Path) -> None:
    for _ in range(20):
        ds = opened(files)
        sources = [ds._source.select([name]) for name in ("id", "x", "t", "id")]
        rows = np.arange(ROWS)[::-1]

        def take(source: Any, rows: Any = rows) -> Any:
            return len(source), next(iter(source.gather(rows).values()))

        with ThreadPoolExecutor(4) as pool:
            made = list(pool.map(take, sources))
        assert [count for count, _ in made] == [ROWS] * 4
        assert made[0][1].tolist() == made[3][1].tolist() == rows.tolist()


def test_compressed_files_are_read_one_after_the_other() -> None:
    ds = write("gzip")
    rows = np.random.default_rng(0).permutation(ROWS)
    require(ds[rows], rows)
    require(ds[30:90], np.arange(30, 90))


def test_damage_is_reported_with_file_and_record() -> None:
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


def test_a_file_that_shrank_is_named() -> None:
    write()
    ds = rm.open("part-*.tfrecord", fields=FIELDS)
    assert ds[[90, 52, 3]]["id"].tolist() == [90, 52, 3]
    os.truncate("part-3.tfrecord", 100)
    with pytest.raises(rm.CorruptRecordError, match=r"part-3.tfrecord: the file shrank"):
        ds[[90, 52, 3]]


def test_a_column_that_does_not_fit_is_reported_with_file_and_record() -> None:
    write()
    ds = rm.open("part-*.tfrecord", fields={"t": "int64[3]", "id": "int64"})
    with pytest.raises(rm.FieldMismatchError, match=r"part-4.tfrecord: record 3 .*'t'"):
        ds[[3, 10, 69]]


def test_the_old_content_of_a_replaced_file_is_read() -> None:
    write()
    ds = rm.open("part-*.tfrecord", fields=FIELDS)
    require(ds[[90, 52, 3]], [90, 52, 3])
    Path("other").write_bytes(b"")
    os.replace("other", "part-3.tfrecord")
    os.remove("part-4.tfrecord")
    require(ds[[90, 52, 3]], [90, 52, 3])


def test_records_of_one_length_need_no_anchors() -> None:
    for number in range(3):
        with rm.TFRecordWriter(f"even-{number}.tfrecord", index=False) as writer:
            writer.write({"x": np.full((50, 9), number, np.float32)})
    rows = np.random.default_rng(0).permutation(150)
    taken = rm.open("even-*.tfrecord")[rows]["x"]
    assert np.array_equal(taken, np.repeat(rows // 50, 9).reshape(-1, 9).astype(np.float32))


def test_skipped_records_are_not_counted() -> None:
    write()
    data = bytearray(Path("part-3.tfrecord").read_bytes())
    data[data.index(b"row 52")] ^= 1
    Path("part-3.tfrecord").write_bytes(data)
    ds = rm.open("part-*.tfrecord", fields=FIELDS, errors="skip")
    with pytest.warns(rm.SkippedRecordsWarning):
        assert len(ds) == ROWS - 1
    good = np.delete(np.arange(ROWS), 52)
    rows = np.random.default_rng(0).permutation(ROWS - 1)
    require(ds[rows], good[rows])


def test_a_dataset_can_be_sent_to_another_process(files: Path) -> None:
    ds = opened(files)
    rows = [90, 52, 3]
    require(ds[rows], rows)
    require(pickle.loads(pickle.dumps(ds))[rows], rows)


def test_owners_that_are_not_files_are_refused(files: Path) -> None:
    bytes_of = np.frombuffer((files / "part-0.tfrecord").read_bytes(), np.uint8)
    columns, none = _core.Columns(), np.empty(0, np.uint64)
    offsets, rows = np.zeros(2, np.uint64), np.zeros(2, np.int64)
    known, target = _core.Files(), _core.DecodeTarget([], np.empty)
    with pytest.raises(ValueError, match="one file or more"):
        _core.decode(_core.Records(known, offsets), columns, target, True, 1)
    known.add(bytes_of, 0, none, none)
    assert len(known) == 1
    for owners in (np.array([0, 1], np.uint32), np.zeros(1, np.uint32), np.zeros(0, np.uint32)):
        with pytest.raises(ValueError, match="owner"):
            _core.decode(_core.Records(known, offsets, owners), columns, target, True, 1)
        with pytest.raises(ValueError, match="owner"):
            _core.locate(known, owners, rows, 1)
    with pytest.raises(ValueError, match="unequal"):
        known.add(bytes_of, 0, none, offsets)


def test_rows_beyond_the_anchors_are_a_fault_not_a_crash(files: Path) -> None:
    bytes_of = np.frombuffer((files / "part-0.tfrecord").read_bytes(), np.uint8)
    anchor = np.zeros(1, np.uint64)
    known = _core.Files()
    known.add(bytes_of, 0, anchor, anchor)
    known.add(bytes_of, 1 << 40, anchor, anchor)
    owners = np.array([0, 1], np.uint32)
    assert _core.locate(known, owners[:1], np.array([1000]), 1)[1] is not None
    offsets, fault = _core.locate(known, owners, np.array([0, 5]), 1)
    assert fault is None
    records, target = _core.Records(known, offsets, owners), _core.DecodeTarget([], np.empty)
    fault = _core.decode(records, _core.Columns(), target, True, 1)[1]
    assert fault is not None
    assert fault.row == 1
