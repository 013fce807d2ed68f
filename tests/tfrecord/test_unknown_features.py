"""Features and kinds that only later records have."""

from __future__ import annotations

import gzip
import pickle
import re
import warnings
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.tfrecord import record_stream
from tests import wire

# More than the first records that a sample includes.
MANY = 4_000


@cache
def numbers(count: int) -> list[bytes]:
    """Return examples of the numbers 0, 1, 2, ..."""
    return [wire.example(a=wire.int64_list(i)) for i in range(count)]


def late(*more: bytes, before: int = MANY, after: int = 50) -> list[bytes]:
    """Return records with one feature, with ``more`` inserted where no sample is taken."""
    same = numbers(before + after)
    return [*same[:before], *more, *same[before:]]


def with_z(value: int = 7) -> bytes:
    return wire.example(a=wire.int64_list(1), z=wire.int64_list(value))


_frame = cache(wire.frame)


def write(kind: str, records: list[bytes]) -> str:
    data = b"".join(map(_frame, records))
    Path("x.tfrecord").write_bytes(gzip.compress(data, 1) if kind == "gzip" else data)
    return "x.tfrecord"


# The sample of a compressed file is what is inflated first.
KINDS = {"plain": MANY, "gzip": 20_000}


@pytest.fixture(autouse=True)
def _small_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_stream, "_WINDOW_SIZE", 1 << 16)


@pytest.mark.parametrize("verify", [True, False, "full"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_conversion_does_not_lose_features_of_later_records(kind: str, verify: Any) -> None:
    path = write(kind, late(with_z(), with_z(), before=KINDS[kind]))
    with pytest.raises(rm.FieldMismatchError, match="has a feature 'z'.*would be lost") as e:
        rm.convert(path, "out.npz", verify=verify)
    assert (e.value.file, e.value.record, e.value.field) == (path, KINDS[kind], "z")
    assert "'z' in 2 records" in str(e.value)
    assert "rm.index" in str(e.value)
    assert [option.name for option in e.value.options] == ["fields"]
    assert not Path("out.npz").exists()


@pytest.mark.parametrize(
    "read",
    [
        lambda ds: ds[:],
        lambda ds: ds[list(range(len(ds)))],
        lambda ds: list(ds.batches(100)),
        list,
        lambda ds: ds.stats(),
        lambda ds: list(ds.batch(100)),
        lambda ds: list(ds.shuffle(seed=1).batch(100)),
        lambda ds: ds[MANY],
    ],
    ids=["slice", "rows", "batches", "iteration", "stats", "pipeline", "shuffle", "one row"],
)
def test_reading_warns_once_about_an_unknown_feature(read: Any) -> None:
    path = write("plain", late(with_z(), with_z()))
    ds = rm.open(path)
    with pytest.warns(rm.UnknownFeatureWarning, match="record 4,000 has a feature 'z'") as seen:
        [read(ds) for _ in range(2)]
    assert len(seen) == 1


def test_the_warning_points_at_the_line_that_reads() -> None:
    ds = rm.open(write("plain", late(with_z())))
    with pytest.warns(rm.UnknownFeatureWarning) as seen:
        ds[:]
    assert seen[0].filename == __file__


def test_only_features_that_were_read_cause_a_warning() -> None:
    ds = rm.open(write("plain", late(with_z())))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds[: MANY - 1]
        ds["a"]
        ds.select("a").batch(10)
        list(rm.open("x.tfrecord", ["a"]).batches(100))
        list(rm.open("x.tfrecord", {"a": "int64"}).batches(100))
    rm.open("x.tfrecord").select("a").save("out.npy", verify="full")
    rm.convert("x.tfrecord", "more.npy", fields=["a"])


def test_renaming_a_column_still_warns_about_unknown_features() -> None:
    path = write("plain", late(with_z()))
    with pytest.raises(rm.FieldMismatchError, match="'z'"):
        rm.open(path).rename({"a": "b"}).save("out.npz")


def test_a_dataset_in_another_process_warns_too() -> None:
    ds = pickle.loads(pickle.dumps(rm.open(write("plain", late(with_z())))))
    with pytest.warns(rm.UnknownFeatureWarning):
        ds[:]


@pytest.mark.parametrize("kind", KINDS)
def test_an_index_knows_every_feature_of_every_record(kind: str) -> None:
    more = [with_z(), wire.example(b=wire.float_list(1.5)), wire.example(c=wire.bytes_list(b"x"))]
    path = write(kind, late(*more, before=KINDS[kind]))
    rm.index(path)
    ds = rm.open(path)
    fields = {"a": "int64[*]", "b": "float32[*]", "c": "bytes[*]", "z": "int64[*]"}
    assert ds.schema == fields
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rows = ds[KINDS[kind] : KINDS[kind] + 3]
        assert [row.tolist() for row in rows["z"]] == [[7], [], []]
        assert [row.tolist() for row in rows["b"]] == [[], [1.5], []]
        rm.convert(path, "out.tfrecord", verify="full")
    assert rm.open("out.tfrecord").schema == fields
    # A new index keeps what the old one knew.
    rm.index(path)
    assert rm.open(path).schema == fields


def test_an_index_keeps_its_types_and_adds_new_features() -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"image": np.zeros((MANY, 4), np.uint8)})
    records = list(rm.tfrecord.records("x.tfrecord"))
    image = wire.bytes_list(bytes(4))
    wire.write("x.tfrecord", *records, wire.example(image=image, z=wire.int64_list(1)), *records)
    rm.index("x.tfrecord")
    assert rm.open("x.tfrecord").schema == {"image": "uint8[4]", "z": "int64[*]"}


def test_indexes_of_several_files_are_joined() -> None:
    wire.write("a.tfrecord", *late())
    wire.write("b.tfrecord", *late(with_z()))
    wire.write("c.tfrecord", wire.example(a=wire.int64_list(1, 2)))
    wire.write("d.tfrecord")
    files = [f"{name}.tfrecord" for name in "abcd"]
    rm.index(files)
    ds = rm.open(files)
    assert ds.schema == {"a": "int64[*]", "z": "int64[*]"}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rm.convert(files, "out.h5", verify="full")


def test_skipping_bad_records_still_finds_features() -> None:
    path = write("plain", late(with_z(), b"\xff", with_z()))
    with pytest.warns(rm.SkippedRecordsWarning, match="1 bad record"):
        ds = rm.open(path, errors="skip")
    assert ds.schema == {"a": "int64", "z": "int64[*]"}
    assert ds[MANY + 1]["z"].tolist() == [7]


def test_feature_lists_of_later_records_are_noticed() -> None:
    steps = wire.feature_list(wire.int64_list(1, 2), wire.int64_list(3))
    record = wire.sequence({"a": wire.int64_list(1)}, {"s": steps})
    path = write("plain", late(record))
    with pytest.warns(rm.UnknownFeatureWarning, match="has a feature list 's'"):
        rm.open(path)[:]
    rm.index(path)
    ds = rm.open(path)
    assert [step.tolist() for step in ds[MANY]["s"]] == [[1, 2], [3]]


def test_a_feature_list_with_the_name_of_a_feature_is_noticed() -> None:
    steps = wire.feature_list(wire.int64_list(1, 2))
    record = wire.sequence({"a": wire.int64_list(5)}, {"a": steps})
    path = write("plain", late(record))
    with pytest.warns(rm.UnknownFeatureWarning, match="feature list 'a'"):
        rm.open(path)[:]
    rm.index(path)
    ds = rm.open(path)
    assert ds.schema == {"a": "int64", "feature_lists/a": "int64[*,2]"}
    assert ds[MANY]["a"] == 5
    assert ds[MANY]["feature_lists/a"].tolist() == [[1, 2]]
    both = ds.select("feature_lists/a", "a").batch(MANY + 1)
    assert next(iter(both))["a"][MANY] == 5


def test_a_feature_without_a_value_is_not_unknown() -> None:
    path = write("plain", late(wire.example(a=wire.int64_list(1), z=b"")))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rm.convert(path, "out.npy", verify="full")


def test_unknown_fields_of_an_example_are_not_features() -> None:
    record = wire.field(77, b"anything") + with_z()[:0] + wire.example(a=wire.int64_list(1))
    second = wire.example(a=wire.int64_list(1)) + wire.field(2, b"\xff\xff")
    path = write("plain", late(record, second))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert len(rm.open(path)[:]["a"]) == MANY + 52


KIND_CHANGES = {
    "floats for integers": wire.float_list(1.0),
    "bytes for integers": wire.bytes_list(b"12345678"),
}


@pytest.mark.parametrize("other", KIND_CHANGES.values(), ids=KIND_CHANGES)
@pytest.mark.parametrize("kind", KINDS)
def test_a_kind_that_changes_in_later_records_is_an_error(kind: str, other: bytes) -> None:
    path = write(kind, late(wire.example(a=other), before=KINDS[kind]))
    for read in (
        lambda: rm.open(path)[:],
        lambda: rm.convert(path, "out.npy", verify="full"),
        lambda: rm.index(path),
    ):
        with pytest.raises(rm.FieldMismatchError, match="'a'.*the feature is a ") as e:
            read()
        assert (e.value.record, e.value.field) == (KINDS[kind], "a")
        assert e.value.byte == sum(len(record) + 16 for record in numbers(KINDS[kind]))
    with pytest.warns(rm.SkippedRecordsWarning, match="1 bad record"):
        ds = rm.open(path, errors="skip")
    assert len(ds) == KINDS[kind] + 50


def test_a_kind_that_changes_in_a_new_feature_is_an_error() -> None:
    other = wire.example(a=wire.int64_list(1), z=wire.float_list(1.0))
    path = write("plain", late(with_z(), other))
    with pytest.raises(rm.FieldMismatchError, match="record 4,001 .*'z'"):
        rm.index(path)


def test_the_kind_of_an_indexed_column_is_kept() -> None:
    path = write("plain", late(wire.example(a=wire.bytes_list(b"12345678"))))
    Path("y.tfrecord").write_bytes(b"".join(map(wire.frame, late())))
    rm.index("y.tfrecord")
    Path(".x.tfrecord.recmap").write_bytes(Path(".y.tfrecord.recmap").read_bytes())
    with pytest.warns(rm.StaleIndexWarning), pytest.raises(rm.FieldMismatchError):
        rm.open(path)[:]


def advice(error: rm.RecmapError) -> list[Any]:
    """Return the values of ``columns=`` that the message suggests."""
    return [eval(text) for text in re.findall(r"columns=(\{.*?\})", str(error))]


@pytest.mark.parametrize("fields", [None, ["a", "b"], {"b": "float32[2]", "a": "int64"}])
def test_the_advice_for_a_missing_feature_works_and_keeps_the_other_columns(fields: Any) -> None:
    whole = wire.example(a=wire.int64_list(1), b=wire.float_list(1, 2), c=wire.bytes_list(b"x"))
    rest = wire.example(b=wire.float_list(3, 4), c=wire.bytes_list(b"y"))
    wire.write("x.tfrecord", *[whole] * MANY, rest, *[whole] * 50)
    ds = rm.open("x.tfrecord", fields)
    with pytest.raises(rm.FieldMismatchError, match="'a': the feature is missing") as e:
        ds[:]
    found = advice(e.value)
    null, filled, ragged = (rm.open("x.tfrecord", some) for some in found)
    assert set(null.schema) == set(filled.schema) == set(ragged.schema) == set(ds.schema)
    assert null[MANY]["a"] is None
    assert filled[MANY]["a"] == 0
    assert ragged[MANY]["a"].tolist() == []
    assert filled[MANY]["b"].tolist() == [3, 4]


def test_the_advice_keeps_the_types_that_were_given() -> None:
    raw = wire.bytes_list(np.arange(2, dtype="<f4").tobytes())
    whole = wire.example(a=wire.int64_list(1), b=raw, c=wire.int64_list(2))
    wire.write("x.tfrecord", *[whole] * MANY, wire.example(b=raw, c=wire.int64_list(2)), whole)
    with pytest.raises(rm.FieldMismatchError, match="'a': the feature is missing") as e:
        rm.open("x.tfrecord", {"b": "float32[2]", ...: None})[:]
    for fields in advice(e.value):
        ds = rm.open("x.tfrecord", fields)
        assert set(ds.schema) == {"a", "b", "c"}
        assert ds[MANY]["b"].tolist() == [0, 1]
    with pytest.raises(rm.FieldMismatchError, match="no feature 'z'") as e:
        rm.open("x.tfrecord", {"b": "float32[2]", "z": "int64", ...: None})
    ds = rm.open("x.tfrecord", {**advice(e.value)[0], "a": "int64 = 0"})
    assert ds.schema == {"a": "int64 = 0", "b": "float32[2]", "c": "int64", "z": "int64[*]"}


ONE_COLUMN: dict[str, Any] = {
    "column": lambda ds: np.asarray(ds["a"]),
    "select": lambda ds: list(ds.select(["a"]).batch(100)),
}


@pytest.mark.parametrize("read", ONE_COLUMN.values(), ids=ONE_COLUMN)
@pytest.mark.parametrize("kind", KINDS)
def test_the_advice_for_one_column_keeps_the_others(kind: str, read: Any) -> None:
    before, other = KINDS[kind], wire.int64_list(2)
    same = wire.example(a=wire.int64_list(1), b=other)
    for bad in (wire.example(b=other), wire.example(a=wire.int64_list(1, 2), b=other)):
        path = write(kind, [same] * before + [bad])
        with pytest.raises(rm.FieldMismatchError, match="'a'") as e:
            read(rm.open(path))
        for fields in advice(e.value):
            assert set(rm.open(path, fields).schema) == {"a", "b"}
    path = write(kind, [same] * before + [wire.example(a=wire.float_list(1.0), b=other)])
    with pytest.raises(rm.FieldMismatchError, match="another kind of list") as e:
        read(rm.open(path))
    assert 'columns=["b"]' in str(e.value)


def test_the_advice_for_lengths_that_differ_works_and_keeps_the_other_columns() -> None:
    more = wire.example(a=wire.int64_list(1, 2), b=wire.float_list(1))
    same = wire.example(a=wire.int64_list(1), b=wire.float_list(1))
    wire.write("x.tfrecord", *[same] * MANY, more, *[same] * 50)
    with pytest.raises(rm.FieldMismatchError, match="2 values, expected 1") as e:
        rm.open("x.tfrecord")[:]
    ds = rm.open("x.tfrecord", advice(e.value)[0])
    assert ds.schema == {"a": "int64[*]", "b": "float32"}
    assert ds[MANY]["a"].tolist() == [1, 2]


def test_the_advice_for_a_feature_that_no_sampled_record_has_works() -> None:
    path = write("plain", late(with_z()))
    for fields in (["a", "z"], {"a": None, "z": "int64"}):
        with pytest.raises(rm.FieldMismatchError, match=r"no feature 'z'.*rm\.index") as e:
            rm.open(path, fields)
        ds = rm.open(path, advice(e.value)[0])
        assert ds.schema == {"a": "int64", "z": "int64[*]"}
        assert ds[MANY]["z"].tolist() == [7]
    rm.index(path)
    assert rm.open(path, ["z"])[MANY]["z"].tolist() == [7]


def test_an_ellipsis_stands_for_all_other_columns() -> None:
    raw = wire.bytes_list(np.arange(2, dtype="<f4").tobytes())
    wire.write("x.tfrecord", wire.example(a=wire.int64_list(1), x=raw))
    ds = rm.open("x.tfrecord", {"x": "float32[2]", ...: None})
    assert ds.schema == {"a": "int64", "x": "float32[2]"}
    np.savez("x.npz", a=np.arange(3), b=np.ones(3))
    assert list(rm.open("x.npz", {"b": "float64", ...: None}).schema) == ["a", "b"]
