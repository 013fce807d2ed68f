"""Text in TFRecord files: read, checked, written, and described."""

from __future__ import annotations

import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests import wire

TEXTS = ["plain", "", "café", "\ufeffmarked", "a\0b\0", "漢字", "🦜🦜", "\U0010ffff"]


def captions(*strings: bytes, path: str = "x.tfrecord") -> str:
    records = [
        wire.example(caption=wire.bytes_list(string), n=wire.int64_list(i))
        for i, string in enumerate(strings)
    ]
    return wire.write(path, *records)


def test_features_are_read_as_text_if_asked() -> None:
    path = captions(*(text.encode() for text in TEXTS))
    assert rm.open(path).schema == {"caption": "bytes", "n": "int64"}
    ds = rm.open(path, {"caption": "text", ...: None})
    assert ds.schema == {"caption": "text", "n": "int64"}
    assert ds[:]["caption"].tolist() == TEXTS
    assert [row["caption"] for row in ds] == TEXTS
    assert ds[[7, 2]]["caption"].tolist() == ["\U0010ffff", "café"]
    assert ds[4]["caption"] == "a\0b\0"


def test_lists_fixed_axes_and_fills_of_text_are_read() -> None:
    path = wire.write(
        "x.tfrecord",
        wire.example(words=wire.bytes_list(b"a", "é".encode()), pair=wire.bytes_list(b"x", b"y")),
        wire.example(words=wire.bytes_list(), pair=wire.bytes_list("漢".encode(), b"")),
        wire.example(pair=wire.bytes_list(b"1", b"2"), tag=wire.bytes_list(b"t")),
    )
    ds = rm.open(path, {"words": "text[*]", "pair": "text[2]", "tag": "text = n/ä"})
    assert ds[:]["words"].tolist() == [["a", "é"], [], []]
    assert ds[:]["pair"].tolist() == [["x", "y"], ["漢", ""], ["1", "2"]]
    assert ds[:]["tag"].tolist() == ["n/ä", "n/ä", "t"]
    steps = wire.feature_list(wire.bytes_list(b"a", b"b"), wire.bytes_list("é".encode()))
    path = wire.write("y.tfrecord", wire.sequence({}, {"talk": steps}))
    assert rm.open(path, {"talk": "text[*,*]"})[0]["talk"].tolist() == [["a", "b"], ["é"]]


@pytest.mark.parametrize("verify", [True, False])
@pytest.mark.parametrize("packed", [False, True])
def test_bytes_that_are_not_utf8_are_an_error_with_file_record_and_field(
    verify: bool, packed: bool
) -> None:
    path = captions(b"a", b"b", b"caf\xe9", b"d")
    if packed:
        content, path = Path(path).read_bytes(), "x.tfrecord.gz"
        Path(path).write_bytes(gzip.compress(content))
    ds = rm.open(path, {"caption": "text", "n": "int64"}, verify=verify)
    assert ds[:2]["caption"].tolist() == ["a", "b"]
    message = r"record 2 at byte .*'caption': the string is not UTF-8.*\"caption\": \"bytes\""
    for read in (lambda: ds[:], lambda: ds[[0, 2]], lambda: ds[2], lambda: list(ds)):
        with pytest.raises(rm.FieldMismatchError, match=message) as e:
            read()
        assert (e.value.file, e.value.record, e.value.field) == (path, 2, "caption")
    assert ds[3]["caption"] == "d"
    assert rm.open(path, {"caption": "bytes"})[2]["caption"] == b"caf\xe9"


def test_in_lists_the_record_is_named_too() -> None:
    good, bad = wire.bytes_list(b"a", b"b"), wire.bytes_list(b"c", b"\xff")
    path = wire.write("x.tfrecord", wire.example(w=good), wire.example(w=bad))
    for field in ("text[*]", "text[2]"):
        with pytest.raises(rm.FieldMismatchError, match=r"record 1 .*columns=.*\"bytes\["):
            rm.open(path, {"w": field})[:]


def test_records_that_are_not_text_can_be_skipped() -> None:
    path = captions(b"a", b"\xff", b"c", b"\xc3")
    ds = rm.open(path, {"caption": "text"}, errors="skip")
    with pytest.warns(rm.SkippedRecordsWarning, match="2 bad records"):
        assert ds[:]["caption"].tolist() == ["a", "c"]
    assert [each.record for each in ds.skipped] == [1, 3]


def test_a_damaged_record_is_reported_as_damaged_and_not_as_text() -> None:
    path = captions(b"good", b"also good")
    content = bytearray(Path(path).read_bytes())
    content[content.index(b"also") + 1] = 0xFF
    Path(path).write_bytes(content)
    with pytest.raises(rm.CorruptRecordError, match="record 1 .*data CRC"):
        rm.open(path, {"caption": "text"})[:]
    with pytest.raises(rm.FieldMismatchError, match="UTF-8"):
        rm.open(path, {"caption": "text"}, verify=False)[:]


def test_written_text_is_a_bytes_list_and_says_that_it_is_text() -> None:
    schema = {"caption": "text", "words": "text[*]", "pair": "text[2]"}
    batch: dict[str, Any] = {
        "caption": TEXTS,
        "words": [[text] * (i % 3) for i, text in enumerate(TEXTS)],
        "pair": [["a", text] for text in TEXTS],
    }
    with rm.TFRecordWriter("x.tfrecord", schema) as writer:
        writer.write(batch)
    assert rm.open("x.tfrecord").schema == schema
    assert rm.open("x.tfrecord")[:]["words"].tolist() == batch["words"]
    # Copied without the index next to it, the first record still says it.
    Path("copy.tfrecord").write_bytes(Path("x.tfrecord").read_bytes())
    assert rm.open("copy.tfrecord").schema == schema
    assert rm.open("copy.tfrecord")[:]["caption"].tolist() == TEXTS
    rm.index("copy.tfrecord")
    assert rm.open("copy.tfrecord").schema == schema
    assert rm.open("x.tfrecord", {"caption": "bytes"})[2]["caption"] == "café".encode()
    with rm.TFRecordWriter("plain.tfrecord", schema, describe=False) as writer:
        writer.write(batch)
    bare = rm.open("plain.tfrecord", dict.fromkeys(schema))
    assert bare[:]["caption"].tolist() == TEXTS  # its index says so
    assert next(rm.tfrecord.records("plain.tfrecord")).count(b"plain") == 2


def test_shards_and_their_manifest_keep_text() -> None:
    ds = rm.from_arrays({"caption": rm.Ragged.from_text(TEXTS * 3), "n": np.arange(24)})
    ds.shuffle(seed=1).save("out/", format="tfrecord", shards=3, verify="full")
    for index in Path("out").glob(".*.recmap"):
        index.unlink()
    back = rm.open("out/")
    assert back.schema == {"caption": "text", "n": "int64"}
    assert sorted(back[:]["caption"].tolist()) == sorted(TEXTS * 3)


def test_the_writer_refuses_what_is_not_text() -> None:
    with rm.TFRecordWriter("x.tfrecord", {"caption": "text"}) as writer:
        with pytest.raises(rm.ColumnError, match="'caption' is text, but row 1 is not UTF-8"):
            writer.write({"caption": [b"a", b"\xff"]})
        with pytest.raises(rm.ColumnError, match="'caption' is text, but the column is int64"):
            writer.write({"caption": [1, 2]})
        writer.write({"caption": ["é"]})
    assert rm.open("x.tfrecord")[0]["caption"] == "é"
