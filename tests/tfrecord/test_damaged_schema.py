"""A damaged or hostile schema in a file is an error, or ignored."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import recmap as rm
from recmap.native import _core
from recmap.tfrecord.sidecar import sidecar_path
from tests import wire
from tests.tfrecord.test_embedded_schema import DESCRIBED, ROWS, write


def with_lead(record: bytes, content: bytes, number: int = 14) -> bytes:
    return wire.tag(number, 2) + wire.varint(len(content)) + content + record


def opened_or_refused() -> Any:
    """Return the dataset if its values are right, or an error that names the file."""
    try:
        ds = rm.open("x.tfrecord")
        right = ds[:]["a"].tolist() == [5, 5]
    except rm.DataError as e:
        right, ds = "x.tfrecord" in str(e), e  # type: ignore[assignment]
    assert right
    return ds


def described(text: bytes, crc: int | None = None) -> bytes:
    made = _core.crc32c(np.frombuffer(text, np.uint8)) if crc is None else crc
    return b"RECMAPSC" + made.to_bytes(4, "little") + text


def test_a_damaged_description_in_a_later_record_is_an_error_or_skipped() -> None:
    record = wire.example(a=wire.int64_list(5))
    good = with_lead(record, described(b'{"schema":{"a":"int8"}}'))
    bad = with_lead(record, described(b'{"schema":{"a":"int8"}}', 1))
    wire.write("x.tfrecord", good, record, bad)
    with pytest.raises(rm.CorruptRecordError, match="in record 2, is damaged"):
        rm.open("x.tfrecord")[:]
    assert rm.open("x.tfrecord")[:2]["a"].tolist() == [5, 5]
    assert rm.open("x.tfrecord", errors="skip")[:]["a"].tolist() == [5, 5, 5]


def test_a_damaged_description_is_an_error_or_skipped() -> None:
    write({"uint8[4,5]": DESCRIBED["uint8[4,5]"]})
    data = bytearray(Path("x.tfrecord").read_bytes())
    data[40] ^= 1
    Path("x.tfrecord").write_bytes(data)
    os.unlink(sidecar_path("x.tfrecord"))
    with pytest.raises(rm.CorruptRecordError, match="first record, is damaged") as e:
        rm.open("x.tfrecord")
    assert [option.name for option in e.value.options] == ["fields", "errors"]
    with pytest.warns(rm.SkippedRecordsWarning):
        assert len(rm.open("x.tfrecord", errors="skip")) == ROWS - 1
    with pytest.warns(rm.SkippedRecordsWarning):
        rows = rm.open("x.tfrecord", {"uint8[4,5]": "uint8[4,5]"}, errors="skip")[:]
    assert np.array_equal(rows["uint8[4,5]"], DESCRIBED["uint8[4,5]"][1:])


@pytest.mark.parametrize(
    "content",
    [
        b"", b"R", b"RECMAPSC", b"RECMAPSC\0\0\0\0", described(b""), described(b"{}"),
        described(b"[]"), described(b"null"), described(b'{"schema": 1}'),
        described(b'{"schema": {}}'), described(b'{"schema": {"a": 1}}'),
        described(b'{"schema": {"a": "int64["}}'), described(b"\xff\xfe"),
        described(b"[" * 100_000), described(b'{"schema":' * 5000), described(b'{"a": 1}', crc=7),
        described(b'{"schema": {"a": "int64"}}', crc=1),
        described(b'{"schema": {"a": "int64", "b": "float32[*]"}}'),
        described(b'{"schema": {"a": "float64[1000000000000000]"}}'),
        described(b'{"schema": {"a": "int64[99999999999999999999999]"}}'),
        described(b'{"schema": {"a": "float32[1000000000] = 1"}}'),
        described(b'{"schema": {"a": "int64[*,*,*]"}}'),
        described(b'{"schema": {"a": "' + b"x" * 10_000 + b'"}}'),
        described(b'{"schema": {"a": "V999999999"}}'),
        described(b'{"schema": {"a": "object"}}'),
        described(b'{"schema": {"feature_lists/a": "int64[*]"}}'),
        b"something of another tool",
    ],
)  # fmt: skip
def test_a_hostile_description_is_an_error_or_ignored(content: bytes) -> None:
    record = wire.example(a=wire.int64_list(5))
    wire.write("x.tfrecord", with_lead(record, content), record)
    found = opened_or_refused()
    assert isinstance(found, rm.DataError) or found.schema == {"a": "int64"}
    assert rm.open("x.tfrecord", {"a": "int64"})[:]["a"].tolist() == [5, 5]


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_arbitrary_bytes_as_a_description_are_an_error_or_ignored(data: st.DataObject) -> None:
    record = wire.example(a=wire.int64_list(5))
    text = json.dumps({"schema": {"a": "int32"}}).encode()
    content = bytearray(described(text))
    for _ in range(data.draw(st.integers(0, 3))):
        content[data.draw(st.integers(0, len(content) - 1))] = data.draw(st.integers(0, 255))
    cut = bytes(content[: data.draw(st.integers(0, len(content)))])
    wire.write("x.tfrecord", with_lead(record, cut), record)
    found = opened_or_refused()
    refused = isinstance(found, rm.CorruptRecordError) and found.record == 0
    assert refused or found.schema in ({"a": "int64"}, {"a": "int32"})


def test_a_description_in_another_field_or_place_is_ignored() -> None:
    record = wire.example(a=wire.int64_list(5))
    content = described(b'{"schema": {"a": "int32"}}')
    wire.write("x.tfrecord", with_lead(record, content, 13), with_lead(record, content))
    assert rm.open("x.tfrecord").schema == {"a": "int64"}
    wire.write("x.tfrecord", with_lead(record, content), with_lead(record, b"", 15))
    assert rm.open("x.tfrecord").schema == {"a": "int32"}
