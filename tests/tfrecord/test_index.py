"""Index files: writing them, using them, refusing stale or damaged ones, and text indexes."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import struct
import time
from contextlib import nullcontext
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.formats.tfrecord_source import TFRecordSource
from recmap.model.progress import Progress
from recmap.native import _core
from recmap.tfrecord.index import Index
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.sidecar import load_sidecar, sidecar_path
from tests import wire


@cache
def mixed(count: int = 300) -> list[bytes]:
    return [wire.example(a=wire.int64_list(*range(i % 5))) for i in range(count)]


def parts_of(content: bytes) -> tuple[dict[str, Any], bytes]:
    """Split an index into its JSON and its anchors."""
    size = int.from_bytes(content[12:16], "little")
    return json.loads(content[24 : 24 + size]), content[24 + size :]


def index_of(info: dict[str, Any], anchors: bytes) -> bytes:
    """Make an index of these parts, with matching checksums."""
    text = json.dumps(info).encode()
    text += b" " * (-(24 + len(text)) % 8)
    crcs = [_core.crc32c(np.frombuffer(part, np.uint8)) for part in (text, anchors)]
    return b"RECMAPIX" + struct.pack("<IIII", 2, len(text), *crcs) + text + anchors


def test_an_index_is_a_hidden_file_next_to_the_data() -> None:
    wire.write("x.tfrecord", *mixed())
    assert rm.index("x.tfrecord") == [".x.tfrecord.recmap"]
    assert rm.open("x.tfrecord").schema == {"a": "int64[*]"}
    assert "from the index" in repr(rm.open("x.tfrecord"))
    assert rm.open(".")[:]["a"].tolist() == [list(range(i % 5)) for i in range(300)]


def test_indexed_rows_are_the_same_rows() -> None:
    wire.write("x.tfrecord", *mixed())
    before = rm.open("x.tfrecord")[:]
    rm.index("x.tfrecord")
    ds = rm.open("x.tfrecord")
    assert len(ds) == 300
    assert ds[:]["a"] == before["a"]
    assert ds[[299, 0, 17, 16, 15, 17]]["a"] == before["a"][[299, 0, 17, 16, 15, 17]]


def test_the_schema_in_an_index_holds_for_all_records() -> None:
    # The record that differs is far from all sampled ones.
    same = [wire.example(a=wire.int64_list(1))] * 40_000
    other = wire.example(a=wire.int64_list(1, 2))
    wire.write("x.tfrecord", *same[:33_333], other, *same)
    with pytest.raises(rm.FieldMismatchError, match=r"record 33,333.*2 values, expected 1"):
        rm.open("x.tfrecord", {"a": "int64"})[:]
    rm.index("x.tfrecord")
    ds = rm.open("x.tfrecord")
    assert ds.schema == {"a": "int64[*]"}
    assert ds[33_333]["a"].tolist() == [1, 2]


@pytest.mark.parametrize("touched", [False, True])
def test_a_new_index_keeps_the_types_of_raw_bytes(touched: bool) -> None:
    images = np.arange(48, dtype=np.uint8).reshape(3, 4, 4)
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"image": images, "label": np.arange(3, dtype=np.int32)})
    if touched:
        os.utime("x.tfrecord", ns=(1, 1))
    rm.index("x.tfrecord")
    ds = rm.open("x.tfrecord")
    assert ds.schema == {"image": "uint8[4,4]", "label": "int32"}
    assert np.array_equal(ds[:]["image"], images)


@pytest.mark.parametrize("old", ["a", "b"])
def test_a_new_index_for_other_data_forgets_the_old_types(old: str) -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({old: np.zeros((2, 3)) if old == "a" else [[1.5], [1.5, 2.5]]})
    wire.write("x.tfrecord", *mixed())
    rm.index("x.tfrecord")
    assert rm.open("x.tfrecord").schema == {"a": "int64[*]"}


def test_a_damaged_file_is_not_indexed() -> None:
    data = bytearray(b"".join(map(wire.frame, mixed())))
    data[-1] ^= 1
    Path("x.tfrecord").write_bytes(data)
    with pytest.raises(rm.CorruptRecordError, match="record 299"):
        rm.index("x.tfrecord")
    assert not Path(".x.tfrecord.recmap").exists()


def test_an_index_of_a_compressed_file_knows_its_length() -> None:
    with rm.TFRecordWriter("x.tfrecord", compression="gzip") as w:
        w.write({"x": np.arange(5.0)})
    assert "5 rows" in repr(rm.open("x.tfrecord"))
    assert rm.open("x.tfrecord")[:]["x"].tolist() == [0, 1, 2, 3, 4]
    Path(".x.tfrecord.recmap").unlink()
    rm.index("x.tfrecord")
    assert "5 rows" in repr(rm.open("x.tfrecord", {"x": "float64"}))


@pytest.mark.parametrize("change", ["longer", "other bytes"])
def test_an_index_that_does_not_belong_to_the_data_is_not_used(change: str) -> None:
    wire.write("x.tfrecord", *mixed())
    rm.index("x.tfrecord")
    data = Path("x.tfrecord").read_bytes()
    if change == "longer":
        Path("x.tfrecord").write_bytes(data + wire.frame(b""))
    if change == "other bytes":
        Path("x.tfrecord").write_bytes(data[::-1])
    with pytest.warns(rm.StaleIndexWarning, match="the data changed after it was made"):
        assert load_sidecar("x.tfrecord") is None


@pytest.mark.parametrize("at", range(0, 200, 7))
def test_a_damaged_index_is_not_used(at: int) -> None:
    wire.write("x.tfrecord", *mixed())
    rm.index("x.tfrecord")
    path = Path(sidecar_path("x.tfrecord"))
    content = bytearray(path.read_bytes())
    content[at] ^= 0x40
    path.write_bytes(content)
    with pytest.warns(rm.StaleIndexWarning, match="was not used"):
        assert len(rm.open("x.tfrecord")) == 300


@pytest.mark.parametrize("size", [0, 3, 24, 100])
def test_a_truncated_index_is_not_used(size: int) -> None:
    wire.write("x.tfrecord", *mixed())
    rm.index("x.tfrecord")
    os.truncate(sidecar_path("x.tfrecord"), size)
    with pytest.warns(rm.StaleIndexWarning, match="was not used"):
        assert len(rm.open("x.tfrecord")) == 300


def test_a_text_index_lists_offset_and_size() -> None:
    records = mixed(4)
    wire.write("x.tfrecord", *records)
    assert rm.index("x.tfrecord", text=True) == ["x.tfrecord.idx"]
    sizes = [len(wire.frame(record)) for record in records]
    starts = np.cumsum([0, *sizes[:-1]]).tolist()
    lines = [f"{start} {size}\n" for start, size in zip(starts, sizes, strict=True)]
    assert Path("x.tfrecord.idx").read_text() == "".join(lines)


def test_a_text_index_is_read() -> None:
    wire.write("x.tfrecord", *mixed())
    rm.index("x.tfrecord", text=True)
    ds = rm.open("x.tfrecord", index="x.tfrecord.idx")
    assert "300 rows" in repr(ds)
    assert ds[299]["a"].tolist() == list(range(299 % 5))


def test_a_text_index_that_does_not_fit_is_refused() -> None:
    wire.write("x.tfrecord", *mixed())
    rm.index("x.tfrecord", text=True)
    wire.write("x.tfrecord", *mixed(301))
    later = time.time_ns() + 10**9
    os.utime("x.tfrecord.idx", ns=(later, later))
    with pytest.raises(rm.IndexFileError, match="older than the data"):
        rm.open("x.tfrecord", index="x.tfrecord.idx")
    Path("junk.idx").write_text("0 a\n")
    os.utime("junk.idx", ns=(later, later))
    with pytest.raises(rm.IndexFileError, match="'offset size' lines"):
        rm.open("x.tfrecord", index="junk.idx")


def test_a_text_index_is_compared_with_the_data_whatever_its_age() -> None:
    wire.write("x.tfrecord", *mixed())
    rm.index("x.tfrecord", text=True)
    os.utime("x.tfrecord.idx", ns=(1, 1))
    assert "300 rows" in repr(rm.open("x.tfrecord", index="x.tfrecord.idx"))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "0 16\n",
        "\n\n",
        "0 0\n" * 3,
        "0 48\n",  # two records as one
        "0 16\n16 16\n32 16\n",  # the right sum, but other records
        "16 16\n32 20\n",
        "18446744073709551600 32\n16 32\n",
        "0 18446744073709550616\n18446744073709550616 1048\n",  # the sum wraps around to 48
        "0 16 16\n",
        "-1 16\n",
    ],
)
def test_a_text_index_of_other_records_is_refused(text: str) -> None:
    rm.tfrecord.write_records("x.tfrecord", [b"", b"\n" * 16])
    assert os.path.getsize("x.tfrecord") == 48
    Path("x.idx").write_text(text)
    with pytest.raises(rm.IndexFileError, match=r"x\.idx"):
        rm.open("x.tfrecord", index="x.idx")


def test_an_index_stays_valid_for_copies_and_touched_files() -> None:
    wire.write("x.tfrecord", *mixed())
    rm.index("x.tfrecord")
    os.utime("x.tfrecord", ns=(1, 1))
    os.mkdir("copy")
    for name in ("x.tfrecord", ".x.tfrecord.recmap"):
        shutil.copyfile(name, f"copy/{name}")
    for path in ("x.tfrecord", "copy/x.tfrecord"):
        assert "300 rows, schema from the index" in repr(rm.open(path))


HOSTILE: dict[str, list[Any]] = {
    "records": [-1, 2**63, 2**70, 1.5, True, None, "4", []],
    "marks": [-1, 2**70, 1.5, True, None],
    "length": [-1, 2**70, 1.5, "x"],
    "lead": [-1, 2**70, 1.5, "x"],
    "schema": [None, 3, [], {"x": 3}, {"x": "object"}, {"x": "int64[*,*,*]"}, {"x": "S4"}],
    "encoding": [None, 3, [], {"x": None}, {"x": 3}, {"x": []}],
    "mapped": [None, 3, {}, [[]], [{}], [3], "x"],
    "file": [None, [], {}, {"size": None, "crc": 0}],
}


@pytest.mark.parametrize("key", HOSTILE)
def test_an_index_with_invalid_values_is_not_used(key: str) -> None:
    column = np.arange(12, dtype=np.uint8).reshape(4, 3)
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": column})
    info, anchors = parts_of(Path(sidecar_path("x.tfrecord")).read_bytes())
    for value in HOSTILE[key]:
        Path(sidecar_path("x.tfrecord")).write_bytes(index_of({**info, key: value}, anchors))
        with pytest.warns(rm.StaleIndexWarning, match="not used"):
            ds = rm.open("x.tfrecord")
        assert ds[:]["x"].tolist() == column.tolist()
        assert rm.index("x.tfrecord")
        assert rm.open("x.tfrecord").schema == {"x": "uint8[3]"}


@pytest.mark.parametrize(
    "field", ["float64[100000000]", "int64[100000000] = 0", "bytes[100000000]"]
)
def test_an_index_with_huge_claims_takes_no_memory(field: str) -> None:
    with rm.TFRecordWriter("x.tfrecord", describe=False) as w:
        w.write({"x": np.zeros((4, 3), np.uint8)})
    info, anchors = parts_of(Path(sidecar_path("x.tfrecord")).read_bytes())
    content = index_of({**info, "schema": {"x": field}}, anchors)
    Path(sidecar_path("x.tfrecord")).write_bytes(content)
    filled = "=" in field
    with (
        pytest.warns(rm.StaleIndexWarning, match="too large")
        if filled
        else pytest.raises(rm.FieldMismatchError, match="too short for it")
    ):
        rm.open("x.tfrecord")


def test_an_index_of_recmap_0_1_is_still_read() -> None:
    wire.write("x.tfrecord", *mixed())
    rm.index("x.tfrecord")
    path = Path(sidecar_path("x.tfrecord"))
    content = path.read_bytes()
    head = struct.Struct("<8sIIII")
    magic, _, size, _, anchors_crc = head.unpack(content[: head.size])
    info = json.loads(content[head.size : head.size + size])
    # Version 1 had 16 blocks, which overlap in a small file, and the modification time.
    data, crc = Path("x.tfrecord").read_bytes(), 0
    for i in range(16):
        at = (len(data) - 4096) * i // 15
        crc = _core.crc32c(np.frombuffer(data[at : at + 4096], np.uint8), crc)
    info["file"] = {"size": len(data), "mtime_ns": 123, "crc": crc}
    del info["lead"]
    text = json.dumps(info).encode()
    text += b" " * (-(head.size + len(text)) % 8)
    text_crc = _core.crc32c(np.frombuffer(text, np.uint8))
    old = head.pack(magic, 1, len(text), text_crc, anchors_crc) + text + content[head.size + size :]
    path.write_bytes(old)
    ds = rm.open("x.tfrecord")
    assert "300 rows, schema from the index" in repr(ds)
    assert ds[:]["a"].tolist() == [list(range(i % 5)) for i in range(300)]


@pytest.mark.parametrize("at", [0, 1, 0.5, 0.37, 0.999])
@pytest.mark.parametrize("count", [300, 30_000])
def test_other_content_of_the_same_size_and_time_is_noticed(at: float, count: int) -> None:
    wire.write("x.tfrecord", *mixed(count))
    rm.index("x.tfrecord")
    before = os.stat("x.tfrecord")
    data = bytearray(Path("x.tfrecord").read_bytes())
    # Change a long span, as in a different file.
    start = int(at * (len(data) - 20_000)) if len(data) > 20_000 else 0
    for i in range(start, min(start + 20_000, len(data))):
        data[i] ^= 1
    Path("x.tfrecord").write_bytes(data)
    os.utime("x.tfrecord", ns=(before.st_atime_ns, before.st_mtime_ns))
    with pytest.warns(rm.StaleIndexWarning, match="the data changed after it was made"):
        assert load_sidecar("x.tfrecord") is None


def test_anchors_are_thinned_in_large_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recmap.tfrecord.index.MAX_ANCHORS", 8)
    monkeypatch.setattr("recmap.tfrecord.plain_file._SCAN_SIZE", 2000)
    data = bytearray(b"".join(map(wire.frame, mixed(2000))))
    Path("x.tfrecord").write_bytes(data)
    ds = rm.open("x.tfrecord")
    assert len(ds) == 2000
    assert ds[:]["a"].lengths.tolist() == [i % 5 for i in range(2000)]
    assert ds[[1999, 3, 1000]]["a"].lengths.tolist() == [4, 3, 0]
    for at in range(500, len(data), 5000):
        data[at] ^= 1
    Path("y.tfrecord").write_bytes(data)
    with pytest.warns(rm.SkippedRecordsWarning):
        ds = rm.open("y.tfrecord", errors="skip")
    everything = ds[:]["a"]
    assert len(everything) == len(ds) == 2000 - len(ds.skipped)
    picked = np.random.default_rng(0).permutation(len(ds))
    assert ds[picked]["a"] == everything[picked]


@pytest.mark.slow
def test_rows_written_one_by_one_get_the_same_index_as_in_one_batch() -> None:
    lengths = np.random.default_rng(0).integers(0, 9, 3000)
    rows = [np.arange(n) for n in lengths]
    together, alone = Path("together.tfrecord"), Path("alone.tfrecord")
    with rm.TFRecordWriter(together) as writer:
        writer.write({"x": rm.Ragged.from_rows(rows, dtype="int64")})
    with rm.TFRecordWriter(alone) as writer:
        for row in rows:
            writer.write({"x": rm.Ragged.from_rows([row], dtype="int64")})
    assert alone.read_bytes() == together.read_bytes()
    indexes = [load_sidecar(str(path)) for path in (alone, together)]
    (a, b) = (sidecar.index.anchors for sidecar in indexes if sidecar is not None)
    assert np.array_equal(a, b)
    assert [len(row) for row in rm.open(alone)["x"][::-7]] == lengths[::-7].tolist()


def test_progress_is_reported_and_starts_over_with_the_records() -> None:
    reports: list[tuple[int, int | None]] = []

    def watch(now: Progress) -> None:
        reports.append((now.bytes, now.total_bytes))

    for i in range(3):
        wire.write(f"{i}.tfrecord", *mixed())
    total = 3 * Path("0.tfrecord").stat().st_size
    rm.index("*.tfrecord", progress=watch)
    assert reports == [(total // 3 * part, total) for part in (1, 1, 2, 2, 3, 3, 3)]
    reports.clear()
    rm.index("*.tfrecord", text=True, progress=watch)
    assert reports[-1] == (total, total)
    # The file gets other data, which the schema in its index does not fit.
    wire.write("0.tfrecord", *[wire.example(a=wire.float_list(1.0))] * 9)
    reports.clear()
    rm.index("0.tfrecord", progress=watch)
    size = Path("0.tfrecord").stat().st_size
    assert reports[-1] == (size, size)


@pytest.mark.parametrize("skip", [False, True])
@pytest.mark.parametrize("most", [1, 4, 1000])
def test_a_span_of_an_index_reaches_its_records(skip: bool, most: int) -> None:
    with rm.TFRecordWriter("x.tfrecord", index=False) as w:
        w.write({"x": [b"." * (i % 5) for i in range(100)]})
    if skip:
        content = bytearray(Path("x.tfrecord").read_bytes())
        content[len(content) // 2] ^= 1
        Path("x.tfrecord").write_bytes(content)
    with nullcontext() if not skip else pytest.warns(rm.SkippedRecordsWarning):
        source = TFRecordSource(["x.tfrecord"], errors="skip" if skip else "raise")
    file = source.facts.record_files[0]
    assert isinstance(file, PlainFile)
    rows = file.count()
    assert rows == 100 - skip
    wanted = source.read(0, rows)["x"]
    for start, stop in [(0, 10), (45, 60), (rows - 1, rows), (0, rows)]:
        part = pickle.loads(pickle.dumps(file.index.span(start, stop, most)))
        assert len(part.anchors[0]) <= most + 2
        alone = PlainFile("x.tfrecord", True, part)
        assert alone.read(source.decoder, start, stop)["x"] == wanted[start:stop]


@pytest.mark.parametrize("length", [4096 - _core.FRAME_SIZE, 5000, 60_000])
def test_every_large_record_is_an_anchor(length: int) -> None:
    sizes = [length, length + 1, length, length + 7, length]
    records = [bytes(size) for size in sizes]
    Path("d.tfrecord").write_bytes(_core.frame([np.frombuffer(r, np.uint8) for r in records]))
    file = PlainFile("d.tfrecord", verify=True)
    assert file.count() == 5
    rows, offsets = file.index.anchors
    every = 1 if length >= 4096 else 4
    assert rows.tolist() == list(range(0, 5, every))
    starts = np.cumsum([0, *(size + _core.FRAME_SIZE for size in sizes)])
    assert offsets.tolist() == starts[:-1:every].tolist()
    written = Index()
    written.add_written(starts.astype(np.uint64))
    surveyed = Index()
    for window in file.windows(skip=False):
        surveyed.add_good(window.scan, np.ones(len(window.offsets), bool))
    for index in (written, surveyed):
        assert index.anchors[0].tolist() == rows.tolist()
        assert index.anchors[1].tolist() == offsets.tolist()
