"""Raw records with any content."""

from __future__ import annotations

import gzip
import os
from pathlib import Path
from typing import Any

import pytest

import recmap as rm
from tests import wire
from tests.frameworks import tf

RECORDS = [b"", b"one", bytes(1000), b"\xff" * 5, b"last"]


@pytest.mark.parametrize("compression", [None, "gzip", "zlib"])
def test_written_records_are_read_back(compression: Any) -> None:
    assert rm.tfrecord.write_records("x", RECORDS, compression=compression) == 5
    assert list(rm.tfrecord.records("x")) == RECORDS
    assert [bytes(view) for view in rm.tfrecord.records("x", view=True)] == RECORDS
    theirs = tf.data.TFRecordDataset("x", (compression or "").upper())
    assert [record.numpy() for record in theirs] == RECORDS


def test_views_stay_valid() -> None:
    rm.tfrecord.write_records("x", (bytes([i % 256]) * 100 for i in range(100_000)))
    views = list(rm.tfrecord.records("x", view=True))
    os.unlink("x")
    assert all(views[i] == bytes([i % 256]) * 100 for i in range(0, 100_000, 997))


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_a_record_may_be_larger_than_a_window(compression: Any) -> None:
    large = os.urandom(1000) * 20_000
    rm.tfrecord.write_records("x", [b"a", large, b"z"], compression=compression)
    assert list(rm.tfrecord.records("x")) == [b"a", large, b"z"]


def test_several_files_are_read_in_order() -> None:
    rm.tfrecord.write_records("x-0", [b"a"])
    rm.tfrecord.write_records("x-1", [b"b"])
    assert list(rm.tfrecord.records("x-*")) == [b"a", b"b"]


@pytest.mark.parametrize("packed", [False, True])
def test_bad_records_are_raised_or_skipped(packed: bool) -> None:
    data = bytearray(b"".join(map(wire.frame, RECORDS)))
    data[16 + 13] ^= 1  # in "one"
    Path("x").write_bytes(gzip.compress(data) if packed else data)
    with pytest.raises(rm.CorruptRecordError, match=r"record 1 at byte 16.*data CRC"):
        list(rm.tfrecord.records("x"))
    assert list(rm.tfrecord.records("x", errors="skip")) == RECORDS[:1] + RECORDS[2:]
    data[16] ^= 1  # its length
    Path("x").write_bytes(gzip.compress(data) if packed else data)
    assert list(rm.tfrecord.records("x", errors="skip")) == RECORDS[:1] + RECORDS[2:]


def test_an_exception_leaves_nothing_behind() -> None:
    def failing() -> Any:
        yield b"a"
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        rm.tfrecord.write_records("x", failing())
    assert os.listdir() == []


def test_existing_files_are_not_overwritten_by_default() -> None:
    rm.tfrecord.write_records("x", [b"a"])
    with pytest.raises(rm.OutputExistsError):
        rm.tfrecord.write_records("x", [b"b"])
    rm.tfrecord.write_records("x", [b"b"], overwrite=True)
    assert list(rm.tfrecord.records("x")) == [b"b"]


def test_a_tfrecord_file_inside_a_record_is_not_mistaken_for_records() -> None:
    # Large enough that the scan enters the file in the middle of the inner one.
    inner = b"".join(wire.frame(bytes(50)) for _ in range(100_000))
    rm.tfrecord.write_records("x", [b"a", inner, b"b"])
    assert [len(record) for record in rm.tfrecord.records("x")] == [1, len(inner), 1]
