"""Exchange files with TensorFlow in both directions, and let other packages read aligned files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.frameworks import tf

RNG = np.random.default_rng(7)
ROWS = 60


def floats(values: Any) -> Any:
    return tf.train.Feature(float_list=tf.train.FloatList(value=np.ravel(values)))


def ints(values: Any) -> Any:
    return tf.train.Feature(int64_list=tf.train.Int64List(value=map(int, np.ravel(values))))


def strings(values: Sequence[bytes]) -> Any:
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))


def raw(values: Any) -> Any:
    return strings([np.asarray(values).tobytes()])


def lengths() -> list[int]:
    return [int(n) for n in RNG.integers(0, 9, ROWS)]


# Column, our encoding (None: the default), and the feature given to TensorFlow.
CASES: dict[str, tuple[Any, str | None, Callable[[Any], Any]]] = {
    "float32": (RNG.standard_normal(ROWS, np.float32), None, floats),
    "float32[3,2]": (RNG.standard_normal((ROWS, 3, 2), np.float32), None, floats),
    "float32[9] raw": (RNG.standard_normal((ROWS, 9), np.float32), "raw", raw),
    "int64": (RNG.integers(-(2**63), 2**63 - 1, ROWS), None, ints),
    "int64[40]": (RNG.integers(0, 2**40, (ROWS, 40)), None, ints),
    "int32": (RNG.integers(-9, 9, ROWS).astype(np.int32), None, ints),
    "bool": (RNG.integers(0, 2, ROWS).astype(bool), None, ints),
    "uint8[7,7]": (RNG.integers(0, 256, (ROWS, 7, 7), np.uint8), None, raw),
    "uint64 as ints": (RNG.integers(0, 2**62, ROWS).astype(np.uint64), "int64_list", ints),
    "float64[3]": (RNG.standard_normal((ROWS, 3)), None, raw),
    "bytes": ([RNG.bytes(n * 40) for n in lengths()], None, lambda row: strings([row])),
    "bytes[*]": (
        [[RNG.bytes(k) for k in range(n)] or [b"x"] for n in lengths()],
        None,
        strings,
    ),
    "float32[*]": (
        rm.Ragged.from_rows([RNG.standard_normal(n, np.float32) for n in lengths()]),
        None,
        floats,
    ),
    "int64[*]": (rm.Ragged.from_rows([RNG.integers(-5, 2**33, n) for n in lengths()]), None, ints),
    "int16[*]": (
        rm.Ragged.from_rows([RNG.integers(-5, 99, n).astype(np.int16) for n in lengths()]),
        None,
        ints,
    ),
    "float64[*]": (rm.Ragged.from_rows([RNG.standard_normal(n) for n in lengths()]), None, raw),
}


def examples(columns: dict[str, tuple[Any, str | None, Callable[[Any], Any]]]) -> list[bytes]:
    return [
        tf.train.Example(
            features=tf.train.Features(
                feature={name: make(column[i]) for name, (column, _, make) in columns.items()}
            )
        ).SerializeToString(deterministic=True)
        for i in range(ROWS)
    ]


def write_with_tensorflow(path: str, records: list[bytes], compression: str = "") -> None:
    with tf.io.TFRecordWriter(path, compression) as writer:
        for record in records:
            writer.write(record)


def write_with_recmap(columns: Any, **options: Any) -> str:
    encoding = {name: asked for name, (_, asked, _) in columns.items() if asked}
    with rm.TFRecordWriter("ours.tfrecord", encoding=encoding, describe=False, **options) as w:
        w.write({name: column for name, (column, _, _) in columns.items()})
    return "ours.tfrecord"


@pytest.mark.parametrize("case", CASES)
def test_files_are_identical_to_tensorflows(case: str) -> None:
    columns = {"x": CASES[case]}
    write_with_tensorflow("theirs.tfrecord", examples(columns))
    assert Path(write_with_recmap(columns)).read_bytes() == Path("theirs.tfrecord").read_bytes()


def test_files_with_many_columns_are_identical_to_tensorflows() -> None:
    write_with_tensorflow("theirs.tfrecord", examples(CASES))
    assert Path(write_with_recmap(CASES)).read_bytes() == Path("theirs.tfrecord").read_bytes()


def feature_lists() -> tuple[dict[str, Any], list[bytes]]:
    columns: dict[str, Any] = {
        "id": np.arange(ROWS),
        "frames": rm.Ragged.from_rows([RNG.standard_normal((n, 8), np.float32) for n in lengths()]),
        "labels": rm.Ragged.from_rows([RNG.integers(0, 9, n) for n in lengths()]),
        "nested": rm.Ragged(
            rm.Ragged(np.arange(10, dtype=np.int64), [0, 3, 3, 10]), [0, 2, *[3] * (ROWS - 1)]
        ),
        "fixed": RNG.standard_normal((ROWS, 2, 3)).astype(np.float32),
    }
    records = []
    for i in range(ROWS):
        lists = {
            "frames": [floats(step) for step in columns["frames"][i]],
            "labels": [ints(step) for step in columns["labels"][i]],
            "nested": [ints(step) for step in columns["nested"][i]],
            "fixed": [floats(step) for step in columns["fixed"][i]],
        }
        message = tf.train.SequenceExample(
            context=tf.train.Features(feature={"id": ints(i)}),
            feature_lists=tf.train.FeatureLists(
                feature_list={
                    name: tf.train.FeatureList(feature=steps) for name, steps in lists.items()
                }
            ),
        )
        records.append(message.SerializeToString(deterministic=True))
    return columns, records


def test_sequence_examples_are_identical_to_tensorflows() -> None:
    columns, records = feature_lists()
    write_with_tensorflow("theirs.tfrecord", records)
    encoding = dict.fromkeys(["frames", "labels", "nested", "fixed"], "feature_list")
    with rm.TFRecordWriter("ours.tfrecord", encoding=encoding, describe=False) as w:
        w.write(columns)
    assert Path("ours.tfrecord").read_bytes() == Path("theirs.tfrecord").read_bytes()
    ds = rm.open("theirs.tfrecord")
    assert ds.schema == {
        "id": "int64", "fixed": "float32[*,3]", "frames": "float32[*,8]", "labels": "int64[*]",
        "nested": "int64[*,*]",
    }  # fmt: skip
    batch = ds[:]
    for name in ("frames", "labels", "nested"):
        assert batch[name] == columns[name]
    assert np.array_equal(rm.open("ours.tfrecord")[:]["fixed"], columns["fixed"])


@pytest.mark.parametrize("compression", ["", "GZIP", "ZLIB"])
@pytest.mark.parametrize("case", CASES)
def test_files_written_by_tensorflow_are_read(case: str, compression: str) -> None:
    column = CASES[case][0]
    write_with_tensorflow("x.tfrecord", examples({"x": CASES[case]}), compression)
    field = case.split(maxsplit=1)[0]
    back = rm.open("x.tfrecord", {"x": field})[:]["x"]
    if isinstance(back, rm.Ragged):
        assert back.tolist() == (column.tolist() if isinstance(column, rm.Ragged) else column)
    else:
        assert np.array_equal(back, column)
        assert back.dtype == column.dtype


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_tensorflow_reads_compressed_files(compression: Any) -> None:
    columns = {"x": CASES["float32[3,2]"]}
    path = write_with_recmap(columns, compression=compression)
    read = tf.data.TFRecordDataset(path, compression.upper())
    assert [record.numpy() for record in read] == examples(columns)


@pytest.mark.parametrize("buffer", [100, None, 8 << 20])
def test_tensorflow_reads_records_that_span_gzip_members(buffer: int | None) -> None:
    rng = np.random.default_rng(0)
    records = [rng.bytes(int(size)) for size in rng.integers(0, 600_000, 10)]
    rm.tfrecord.write_records("x.gz", records, compression="gzip")
    read = tf.data.TFRecordDataset("x.gz", "GZIP", buffer_size=buffer)
    assert list(read.as_numpy_iterator()) == records


FIXED = {
    name: CASES[name]
    for name in ("float32", "float32[3,2]", "int64", "int32", "bool", "uint8[7,7]", "float64[3]")
}


@pytest.mark.parametrize("align", [8, 64, 4096])
def test_tensorflow_reads_aligned_files(align: int) -> None:
    path = write_with_recmap(FIXED, align=align)
    records = [record.numpy() for record in tf.data.TFRecordDataset(path)]
    spec = {
        "float32": tf.io.FixedLenFeature([], tf.float32),
        "float32[3,2]": tf.io.FixedLenFeature([3, 2], tf.float32),
        "int64": tf.io.FixedLenFeature([], tf.int64),
        "uint8[7,7]": tf.io.FixedLenFeature([], tf.string),
    }
    parsed = tf.io.parse_example(records, spec)
    for name in ("float32", "float32[3,2]", "int64"):
        assert np.array_equal(parsed[name], FIXED[name][0])
    images = [np.frombuffer(image, np.uint8) for image in parsed["uint8[7,7]"].numpy()]
    assert np.array_equal(np.reshape(images, (ROWS, 7, 7)), FIXED["uint8[7,7]"][0])
    single = tf.io.parse_single_example(records[5], spec)
    assert np.array_equal(single["float32[3,2]"], FIXED["float32[3,2]"][0][5])
    # For protobuf, it is the same message apart from the padding.
    for ours, theirs in zip(records, examples(FIXED), strict=True):
        message = tf.train.Example.FromString(ours)
        message.DiscardUnknownFields()
        assert message == tf.train.Example.FromString(theirs)


def test_the_tfrecord_package_reads_aligned_files() -> None:
    # In another process, because its protobuf messages clash with TensorFlow's.
    path = write_with_recmap(FIXED, align=64)
    rm.index(path, text=True)
    program = f"""
import json
from tfrecord.reader import tfrecord_loader
kinds = {{"float32[3,2]": "float", "int64": "int"}}
rows = list(tfrecord_loader({path!r}, {path + ".idx"!r}, kinds))
print(json.dumps([{{name: row[name].tolist() for name in kinds}} for row in rows]))
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    # With an index, the loader starts at a random record and wraps around.
    order = {int(value): i for i, value in enumerate(FIXED["int64"][0])}
    rows = sorted(json.loads(run.stdout), key=lambda row: order[row["int64"][0]])
    for name in ("float32[3,2]", "int64"):
        column = FIXED[name][0]
        assert np.array_equal([np.reshape(row[name], column.shape[1:]) for row in rows], column)


def test_records_of_many_columns_equal_what_tensorflow_parses() -> None:
    # Most records repeat the layout of the one before. A large integer takes more bytes, so
    # that its record does not.
    rng = np.random.default_rng(0)
    rows, count = 60, 700
    columns: dict[str, Any] = {}
    for number in range(count):
        if number % 2:
            columns[f"float {number}"] = rng.random(rows, np.float32)
        else:
            large = rng.random(rows) < 0.0005
            columns[f"int {number}"] = np.where(large, 1 << 40, rng.integers(0, 100, rows))
    with rm.TFRecordWriter("d.tfrecord", index=False) as writer:
        writer.write(columns)
    records = list(tf.data.TFRecordDataset("d.tfrecord").as_numpy_iterator())
    assert 2 < len({len(record) for record in records}) < rows / 2
    kinds = {name: tf.io.FixedLenFeature([], values.dtype) for name, values in columns.items()}
    parsed = tf.io.parse_example(records, kinds)
    ds, order = rm.open("d.tfrecord"), rng.permutation(rows)
    for name, values in columns.items():
        assert np.array_equal(parsed[name], values)
    for batch, expected in ((ds[:], slice(None)), (ds[order], order)):
        assert set(batch) == set(columns)
        assert all(np.array_equal(batch[name], columns[name][expected]) for name in columns)
