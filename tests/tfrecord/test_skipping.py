"""``errors="skip"`` leaves out bad records, and only those."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from tests import wire


def test_a_run_of_damage_is_skipped() -> None:
    records = [wire.example(a=wire.int64_list(i), b=wire.bytes_list(bytes(100))) for i in range(50)]
    data = bytearray(b"".join(map(wire.frame, records)))
    size = len(wire.frame(records[0]))
    data[10 * size + 3 : 14 * size + 7] = bytes(4 * size + 4)
    Path("x.tfrecord").write_bytes(data)
    with pytest.warns(rm.SkippedRecordsWarning):
        ds = rm.open("x.tfrecord", errors="skip")
    assert ds[:]["a"].tolist() == [*range(10), *range(15, 50)]
    assert ds[10]["a"] == 15
    assert [batch["a"].tolist() for batch in ds.batches(40)][1] == list(range(45, 50))


@pytest.mark.parametrize("at", [0, 13])
def test_damage_in_the_first_record_is_skipped(at: int) -> None:
    data = bytearray(b"".join(wire.frame(wire.example(a=wire.int64_list(i))) for i in range(5)))
    data[at] ^= 1
    Path("x.tfrecord").write_bytes(data)
    with pytest.warns(rm.SkippedRecordsWarning):
        assert rm.open("x.tfrecord", errors="skip")[:]["a"].tolist() == [1, 2, 3, 4]


def test_bytes_inserted_between_records_are_skipped() -> None:
    frames = [wire.frame(wire.example(a=wire.int64_list(i))) for i in range(5)]
    Path("x.tfrecord").write_bytes(frames[0] + b"junk" + b"".join(frames[1:]))
    with pytest.warns(rm.SkippedRecordsWarning):
        assert rm.open("x.tfrecord", errors="skip")[:]["a"].tolist() == [0, 1, 2, 3, 4]


def test_records_that_are_not_examples_are_skipped() -> None:
    good = wire.example(a=wire.int64_list(1))
    wire.write("x.tfrecord", b"junk", good, b"\xff", good)
    with pytest.warns(rm.SkippedRecordsWarning, match="2 bad records left out"):
        ds = rm.open("x.tfrecord", errors="skip")
    assert ds[:]["a"].tolist() == [1, 1]
    assert [(s.record, s.reason) for s in ds.skipped] == [
        (0, "the record is not a tf.train.Example"),
        (2, "the record is not a tf.train.Example"),
    ]


def test_with_given_fields_a_record_that_does_not_fit_is_skipped() -> None:
    wire.write("x.tfrecord", *(wire.example(a=wire.int64_list(*range(n))) for n in (2, 3, 2)))
    with pytest.warns(rm.SkippedRecordsWarning, match="3 values, expected 2"):
        assert len(rm.open("x.tfrecord", {"a": "int64[2]"}, errors="skip")) == 2


def test_with_an_inferred_schema_a_record_that_does_not_fit_widens_it() -> None:
    same = [wire.example(a=wire.int64_list(1))] * 30_000
    wire.write("x.tfrecord", *same[:20_001], wire.example(a=wire.int64_list(1, 2)), *same)
    ds = rm.open("x.tfrecord", errors="skip")
    assert ds.skipped == []
    assert ds.schema == {"a": "int64[*]"}
    assert ds[20_001]["a"].tolist() == [1, 2]


def test_a_sound_file_skips_nothing_and_stays_mapped() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": np.ones((10, 4), np.float32)})
    ds = rm.open("x.tfrecord", errors="skip")
    assert ds.skipped == []
    assert isinstance(ds["x"], np.ndarray)


def test_damage_in_several_files_is_listed_with_its_file() -> None:
    frame = wire.frame(wire.example(a=wire.int64_list(1)))
    bad = bytearray(frame)
    bad[13] ^= 1
    Path("a.tfrecord").write_bytes(frame + bad)
    Path("b.tfrecord").write_bytes(bytes(bad) + frame)
    with pytest.warns(rm.SkippedRecordsWarning, match="2 bad records"):
        ds = rm.open(["a.tfrecord", "b.tfrecord"], errors="skip")
    assert len(ds) == 2
    assert [(s.file, s.record, s.byte) for s in ds.skipped] == [
        ("a.tfrecord", 1, len(frame)),
        ("b.tfrecord", 0, 0),
    ]


def test_a_file_of_nothing_but_damage_has_no_rows() -> None:
    Path("x.tfrecord").write_bytes(bytes(1000))
    with pytest.warns(rm.SkippedRecordsWarning):
        assert len(rm.open("x.tfrecord", errors="skip")) == 0
