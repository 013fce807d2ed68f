"""Pitfalls of TFRecord and Example, one test each. protobuf decides what a record means."""

from __future__ import annotations

import gzip
import struct
import warnings
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests import wire
from tests.frameworks import tf


def read(*records: bytes, fields: dict[str, str] | None = None) -> dict[str, Any]:
    return rm.open(wire.write("trap.tfrecord", *records), fields)[:]


def oracle(record: bytes, key: str) -> Any:
    """Return the feature as protobuf reads it."""
    features = tf.train.Example.FromString(record).features.feature
    if key not in features:
        return None
    feature = features[key]
    kind = feature.WhichOneof("kind")
    return None if kind is None else list(getattr(feature, kind).value)


@pytest.mark.parametrize(
    "value", [0, 1, -1, 2**31, 2**31 - 1, -(2**31), 2**32, 2**63 - 1, -(2**63), 1 << 62, -(1 << 40)]
)
def test_int64_of_every_size_is_exact(value: int) -> None:
    record = wire.example(a=wire.int64_list(value))
    assert oracle(record, "a") == [value]
    assert read(record)["a"].tolist() == [value]
    many = wire.example(a=wire.int64_list(*[value] * 9))
    assert read(many)["a"].tolist() == [[value] * 9]


def test_ints_of_a_sequence_example_are_not_cut_to_32_bits() -> None:
    step = wire.int64_list(2**40, -(2**40))
    record = wire.sequence({}, {"a": wire.feature_list(step, step)})
    assert read(record)["a"][0].tolist() == [[2**40, -(2**40)]] * 2


def test_unpacked_ints_and_floats_are_read() -> None:
    ints = wire.field(3, b"".join(wire.tag(1, wire.VARINT) + wire.varint(v) for v in (5, -6)))
    floats = wire.field(
        2, b"".join(wire.tag(1, wire.FIXED32) + struct.pack("<f", v) for v in (1.5, -2.5))
    )
    record = wire.example(i=ints, f=floats)
    assert oracle(record, "i") == [5, -6]
    assert read(record)["i"].tolist() == [[5, -6]]
    assert read(record)["f"].tolist() == [[1.5, -2.5]]


def test_a_list_in_two_packed_chunks_is_joined() -> None:
    chunk = [wire.field(1, wire.varint(1) + wire.varint(300)), wire.field(1, wire.varint(7))]
    record = wire.example(i=wire.field(3, b"".join(chunk)))
    assert oracle(record, "i") == [1, 300, 7]
    assert read(record)["i"].tolist() == [[1, 300, 7]]


def test_two_lists_of_one_kind_in_a_feature_are_joined() -> None:
    record = wire.example(i=wire.int64_list(1, 2) + wire.int64_list(3))
    assert oracle(record, "i") == [1, 2, 3]
    assert read(record)["i"].tolist() == [[1, 2, 3]]


def test_the_last_kind_of_a_feature_wins() -> None:
    record = wire.example(i=wire.int64_list(1) + wire.float_list(2) + wire.int64_list(3))
    assert oracle(record, "i") == [3]
    assert read(record)["i"].tolist() == [3]


def test_the_value_of_a_map_entry_may_precede_its_key() -> None:
    entry = wire.field(1, wire.field(2, wire.int64_list(4)) + wire.field(1, b"a"))
    record = wire.field(1, entry)
    assert oracle(record, "a") == [4]
    assert read(record)["a"].tolist() == [4]


def test_a_map_entry_with_two_values_merges_them() -> None:
    halves = wire.field(2, wire.int64_list(1)) + wire.field(2, wire.int64_list(2))
    record = wire.field(1, wire.field(1, wire.field(1, b"a") + halves))
    assert oracle(record, "a") == [1, 2]
    assert read(record)["a"].tolist() == [[1, 2]]


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(wire.field(1, wire.field(1, b"a")), id="no value"),
        pytest.param(wire.entry("a", b""), id="no kind"),
    ],
)
def test_a_feature_without_value_or_kind_is_missing(entry: bytes) -> None:
    full = wire.example(a=wire.int64_list(3), b=wire.int64_list(1))
    bare = wire.field(1, entry + wire.entry("b", wire.int64_list(2)))
    assert oracle(bare, "a") is None
    batch = read(full, bare)
    assert batch["a"].tolist() == [[3], []]
    assert batch["b"].tolist() == [1, 2]
    assert read(full, bare, fields={"a": "int64 = -1"})["a"].tolist() == [3, -1]
    with pytest.raises(rm.FieldMismatchError, match=r"record 1 at byte \d+: column 'a'.*missing"):
        read(full, bare, fields={"a": "int64"})


@pytest.mark.parametrize("kind", ["int64_list", "float_list", "bytes_list"])
def test_an_empty_list_of_a_known_kind_is_an_empty_row(kind: str) -> None:
    make = getattr(wire, kind)
    value: Any = b"x" if kind == "bytes_list" else 1
    batch = read(wire.example(a=make(value)), wire.example(a=make()))
    assert batch["a"].lengths.tolist() == [1, 0]


def test_the_last_of_duplicate_keys_wins() -> None:
    entries = wire.entry("a", wire.int64_list(1)) + wire.entry("a", wire.int64_list(2))
    record = wire.field(1, entries)
    assert oracle(record, "a") == [2]
    assert read(record)["a"].tolist() == [2]


def test_concatenated_examples_in_one_record_are_merged() -> None:
    record = wire.example(a=wire.int64_list(1), b=wire.int64_list(2)) + wire.example(
        b=wire.int64_list(3), c=wire.int64_list(4)
    )
    assert [oracle(record, key) for key in "abc"] == [[1], [3], [4]]
    batch = read(record)
    assert [batch[key].tolist() for key in "abc"] == [[1], [3], [4]]


UNKNOWN = {
    "varint": wire.tag(9, wire.VARINT) + wire.varint(300),
    "fixed64": wire.tag(9, wire.FIXED64) + bytes(8),
    "bytes": wire.field(9, b"hello"),
    "group": wire.tag(9, wire.START_GROUP) + wire.field(1, b"in") + wire.tag(9, wire.END_GROUP),
    "fixed32": wire.tag(9, wire.FIXED32) + bytes(4),
    "high number": wire.field(2**28, b"x"),
}


@pytest.mark.parametrize("level", ["example", "features", "entry", "feature", "list"])
@pytest.mark.parametrize("unknown", UNKNOWN.values(), ids=UNKNOWN)
def test_unknown_fields_are_skipped(unknown: bytes, level: str) -> None:
    def mark(name: str, content: bytes) -> bytes:
        return unknown + content + unknown if name == level else content

    values = mark("list", wire.field(1, wire.varint(7)))
    feature = mark("feature", wire.field(3, values))
    entry = mark("entry", wire.field(1, b"a") + wire.field(2, feature))
    record = mark("example", wire.field(1, mark("features", wire.field(1, entry))))
    # protobuf for Python skips a whole map entry if it has an unknown field.
    if level != "entry":
        assert oracle(record, "a") == [7]
    assert read(record)["a"].tolist() == [7]


def test_an_unknown_field_2_of_an_example_is_not_taken_for_feature_lists() -> None:
    for garbage in (wire.field(2, b"hello"), wire.tag(2, wire.VARINT) + b"\x05"):
        record = wire.example(a=wire.int64_list(7)) + garbage
        assert oracle(record, "a") == [7]
        assert read(record)["a"].tolist() == [7]
        assert read(record, fields={"a": "int64"})["a"].tolist() == [7]


def test_byte_strings_keep_null_bytes_count_and_emptiness() -> None:
    first = wire.example(a=wire.bytes_list(b"x\0\0", b"", b"\0"))
    second = wire.example(a=wire.bytes_list(b""))
    assert read(first, second)["a"].tolist() == [[b"x\0\0", b"", b"\0"], [b""]]
    assert read(second)["a"].tolist() == [b""]


def test_float64_given_to_a_float_list_is_refused_by_name() -> None:
    with pytest.raises(rm.ColumnError, match="column 'x'.*float64.*losing bits"):
        with rm.TFRecordWriter("x.tfrecord", encoding={"x": "float_list"}) as w:
            w.write({"x": np.array([1e300])})
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": np.array([1e300, 0.1])})
    assert rm.open("x.tfrecord")[:]["x"].tolist() == [1e300, 0.1]


def test_uint64_over_int64_in_an_int64_list_is_refused_by_field_and_row() -> None:
    big = np.array([1, 2**63], np.uint64)
    with pytest.raises(rm.ColumnError, match=r"column 'n', row 1: 9,223,372,036,854,775,808"):
        with rm.TFRecordWriter("x.tfrecord", encoding={"n": "int64_list"}) as w:
            w.write({"n": big})
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"n": big})
    assert rm.open("x.tfrecord")[:]["n"].tolist() == [1, 2**63]


def test_nan_payloads_minus_zero_and_denormals_keep_their_bits() -> None:
    bits = np.array([0x7FC00001, 0xFFA00000, 0x80000000, 0x00000001, 0x7F800000], np.uint32)
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"one": bits.view(np.float32), "row": bits.view(np.float32)[None].repeat(5, 0)})
    batch = rm.open("x.tfrecord")[:]
    assert batch["one"].view(np.uint32).tolist() == bits.tolist()
    assert batch["row"][3].view(np.uint32).tolist() == bits.tolist()


def test_an_empty_record_is_a_row_with_every_feature_missing() -> None:
    batch = read(wire.example(a=wire.int64_list(1)), b"")
    assert batch["a"].tolist() == [[1], []]
    assert read(wire.example(a=wire.int64_list(1)), b"", fields={"a": "int64 = 9"})[
        "a"
    ].tolist() == [1, 9]


def test_an_empty_file_has_zero_rows() -> None:
    Path("empty.tfrecord").write_bytes(b"")
    ds = rm.open("empty.tfrecord")
    assert len(ds) == 0
    assert list(ds.batches(10)) == []
    typed = rm.open("empty.tfrecord", {"x": "float32[3]"})
    assert typed[:]["x"].shape == (0, 3)


RECORDS = [wire.example(a=wire.int64_list(i), b=wire.bytes_list(bytes(50))) for i in range(5)]
FRAME = len(wire.frame(RECORDS[0]))


def damaged(cut: int | None = None, flip: int | None = None) -> str:
    data = bytearray(b"".join(map(wire.frame, RECORDS)))
    if flip is not None:
        data[flip] ^= 0x10
    Path("bad.tfrecord").write_bytes(data[:cut])
    return "bad.tfrecord"


@pytest.mark.parametrize("left", range(1, 12))
def test_a_file_cut_inside_the_header_of_its_last_record_is_an_error(left: int) -> None:
    path = damaged(cut=4 * FRAME + left)
    with pytest.raises(rm.CorruptRecordError, match=rf"record 4 at byte {4 * FRAME}.*{left} bytes"):
        rm.open(path)[:]
    with pytest.warns(rm.SkippedRecordsWarning):
        assert rm.open(path, errors="skip")[:]["a"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("left", [12, 20, FRAME - 5, FRAME - 4, FRAME - 1])
def test_a_file_cut_inside_the_data_is_an_error(left: int) -> None:
    path = damaged(cut=4 * FRAME + left)
    with pytest.raises(rm.CorruptRecordError, match=rf"record 4.*needs {FRAME}.*only {left}"):
        len(rm.open(path))
    with pytest.warns(rm.SkippedRecordsWarning):
        ds = rm.open(path, errors="skip")
    assert ds[:]["a"].tolist() == [0, 1, 2, 3]
    assert [(s.file, s.record, s.byte) for s in ds.skipped] == [(path, 4, 4 * FRAME)]


@pytest.mark.parametrize(
    ("where", "what"),
    [(0, "length CRC"), (7, "length CRC"), (8, "length CRC"), (11, "length CRC"),
     (12, "data CRC"), (40, "data CRC"), (FRAME - 4, "data CRC"), (FRAME - 1, "data CRC")],
)  # fmt: skip
def test_a_flipped_bit_is_an_error_naming_file_record_and_byte(where: int, what: str) -> None:
    path = damaged(flip=2 * FRAME + where)
    with pytest.raises(rm.CorruptRecordError) as caught:
        rm.open(path)[:]
    error = caught.value
    assert (error.file, error.record, error.byte) == (path, 2, 2 * FRAME)
    assert str(error).startswith(f"{path}: record 2 at byte {2 * FRAME}: {what} is 0x")
    assert 'errors="skip"' in str(error)
    with pytest.warns(rm.SkippedRecordsWarning, match="1 bad record"):
        ds = rm.open(path, errors="skip")
    assert len(ds) == 4
    assert ds[:]["a"].tolist() == [0, 1, 3, 4]
    assert ds[2]["a"] == 3
    assert ds[[3, 2, 0]]["a"].tolist() == [4, 3, 0]
    assert (ds.skipped[0].record, ds.skipped[0].byte) == (2, 2 * FRAME)


def test_a_length_of_2_to_the_63_is_an_error_before_any_allocation() -> None:
    length = struct.pack("<Q", 2**63)
    Path("huge.tfrecord").write_bytes(length + struct.pack("<I", wire.masked(length)) + bytes(50))
    with pytest.raises(rm.CorruptRecordError, match="needs 9,223,372,036,854,775,824 bytes"):
        rm.open("huge.tfrecord")
    Path("huge.gz").write_bytes(gzip.compress(Path("huge.tfrecord").read_bytes()))
    with pytest.raises(rm.CorruptRecordError, match="needs 9,223,372,036,854,775,824 bytes"):
        rm.open("huge.gz")


def test_gzip_of_several_members_and_zlib_are_read_to_the_end() -> None:
    frames = [wire.frame(record) for record in RECORDS]
    Path("members.gz").write_bytes(b"".join(map(gzip.compress, frames)))
    Path("one.zlib").write_bytes(zlib.compress(b"".join(frames)))
    Path("members.zlib").write_bytes(b"".join(map(zlib.compress, frames)))
    for path in ("members.gz", "one.zlib", "members.zlib"):
        assert rm.open(path)[:]["a"].tolist() == [0, 1, 2, 3, 4]


def test_compression_is_detected_by_content_not_by_name() -> None:
    data = b"".join(map(wire.frame, RECORDS))
    Path("plain.tfrecord.gz").write_bytes(data)
    Path("really-gzip.tfrecord").write_bytes(gzip.compress(data))
    assert len(rm.open("plain.tfrecord.gz")) == len(rm.open("really-gzip.tfrecord")) == 5
    with pytest.raises(rm.CompressionError, match="the content is not compressed"):
        rm.open("plain.tfrecord.gz", compression="gzip")
    with pytest.raises(rm.CompressionError, match="the content is gzip"):
        rm.open("really-gzip.tfrecord", compression=None)


def test_a_plain_record_whose_length_looks_like_gzip_is_plain() -> None:
    size = 0x00088B1F  # begins with the bytes 1f 8b 08
    filler = wire.example(a=wire.bytes_list(bytes(size - 17)))
    record = wire.example(a=wire.bytes_list(bytes(size - 17 + size - len(filler))))
    assert len(record) == size
    assert read(record)["a"].lengths.tolist() == [size - 17 + size - len(filler)]


def test_keys_that_differ_between_records_are_ragged() -> None:
    batch = read(wire.example(a=wire.int64_list(1)), wire.example(b=wire.float_list(2)))
    assert batch["a"].tolist() == [[1], []]
    assert batch["b"].tolist() == [[], [2.0]]


def test_a_feature_that_changes_its_kind_is_an_error_naming_it() -> None:
    with pytest.raises(rm.FieldMismatchError, match="feature 'a' changes its kind.*record 1") as e:
        read(wire.example(a=wire.float_list(1)), wire.example(a=wire.int64_list(1)))
    assert e.value.field == "a"


def test_a_feature_that_changes_its_length_is_ragged_or_an_error() -> None:
    records = [wire.example(a=wire.int64_list(*range(n))) for n in (2, 3)]
    assert read(*records)["a"].tolist() == [[0, 1], [0, 1, 2]]
    with pytest.raises(rm.FieldMismatchError, match=r"record 1.*column 'a'.*3 values, expected 2"):
        read(*records, fields={"a": "int64[2]"})


def test_floats_at_unaligned_addresses_are_read_correctly() -> None:
    for pad in range(8):
        record = wire.field(9, bytes(pad)) + wire.example(a=wire.float_list(1.5, 2.5, -3.5))
        assert read(record)["a"].tolist() == [[1.5, 2.5, -3.5]]


@pytest.mark.parametrize(
    "change",
    [
        lambda a: a.astype(">f4"),
        np.asfortranarray,
        lambda a: np.repeat(a, 2, axis=0)[::2],
        lambda a: np.repeat(a, 2, axis=1)[:, ::2],
        lambda a: a[::-1][::-1],
        lambda a: np.ascontiguousarray(a[::-1])[::-1],
        lambda a: np.ascontiguousarray(a.T).T,
    ],
    ids=["big-endian", "fortran", "rows", "columns", "view", "reversed", "transposed"],
)
def test_arrays_of_any_layout_are_written_correctly(change: Any) -> None:
    array = np.arange(60, dtype=np.float32).reshape(6, 10)
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": change(array)})
    with rm.TFRecordWriter("y.tfrecord") as w:
        w.write({"x": array})
    assert Path("x.tfrecord").read_bytes() == Path("y.tfrecord").read_bytes()


def test_an_index_older_than_the_data_is_noticed() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"a": np.arange(100)})
    wire.write("x.tfrecord", *RECORDS)
    with pytest.warns(rm.StaleIndexWarning, match=r"\.x\.tfrecord\.recmap was not used"):
        ds = rm.open("x.tfrecord")
    assert ds[:]["a"].tolist() == [0, 1, 2, 3, 4]


def test_a_pickle_in_place_of_an_index_is_never_loaded() -> None:
    wire.write("x.tfrecord", *RECORDS)
    Path(".x.tfrecord.recmap").write_bytes(b"cos\nsystem\n(S'touch owned'\ntR.")
    with pytest.warns(rm.StaleIndexWarning, match="damaged"):
        rm.open("x.tfrecord")
    assert not Path("owned").exists()


def test_a_record_over_2_gib_is_not_written() -> None:
    # All rows share memory, so the test does not need 2 GiB.
    row = np.broadcast_to(np.zeros(1, np.float32), (1, 2**29))
    with pytest.raises(rm.RecordTooLargeError, match="row 0 makes a record of 2,147,48"):
        with rm.TFRecordWriter("x.tfrecord", encoding={"x": "raw"}) as w:
            w.write({"x": row})
    assert not Path("x.tfrecord").exists()


def test_sound_files_cause_no_warning() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        read(*RECORDS)


@pytest.mark.parametrize("indexed", [False, True])
def test_a_missing_feature_list_has_no_steps(indexed: bool) -> None:
    """As in TensorFlow: only a step without values is an empty step."""
    steps = wire.feature_list(wire.int64_list(1), wire.int64_list(2, 3))
    records = [
        wire.sequence({"a": wire.int64_list(1)}, {}),
        wire.sequence({}, {"s": b""}),
        wire.sequence({}, {"s": wire.feature_list(b"")}),
        wire.sequence({}, {"s": steps}),
        wire.example(a=wire.int64_list(1)),
    ]
    wire.write("x.tfrecord", *records)
    if indexed:
        rm.index("x.tfrecord")
    ds = rm.open("x.tfrecord")
    expected = [[], [], [[]], [[1], [2, 3]], []]
    assert ds[:]["s"].tolist() == expected
    assert [ds[i]["s"].tolist() for i in range(5)] == expected
    assert ds[[4, 0]]["s"].tolist() == [[], []]
    for name in ("y.tfrecord", "y.npz", "y.parquet"):
        ds.save(name)
        assert rm.open(name)[:]["s"].tolist() == expected


def test_no_record_is_counted_twice_in_the_sample() -> None:
    record = wire.example(a=wire.int64_list(1))
    for count in (1, 2, 3, 20, 40):
        for i in range(count):
            wire.write(f"x{count}-{i:02}.tfrecord", *[record] * 3)
        origin = rm.open(f"x{count}-*.tfrecord").info().origin
        looked_at = 3 * min(count, 20 if count == 20 else 21)
        assert origin == f"inferred from {looked_at} records", count
    # The places of a sample overlap if the records after the first ones are large.
    large = [wire.example(a=wire.bytes_list(bytes(10_000)))] * 100
    wire.write("y.tfrecord", *[wire.example(a=wire.bytes_list(b""))] * 1000, *large)
    found = rm.open("y.tfrecord").info().origin
    assert int(found.split()[2].replace(",", "")) <= 1100
