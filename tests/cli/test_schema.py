"""The code that recmap schema prints, run by TensorFlow and PyTorch."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import recmap as rm
from recmap.cli import main
from recmap.cli.schema import tf_code
from recmap.dataset.rows import OpenedRows
from recmap.formats.tfrecord_source import TFRecordSource
from tests import wire
from tests.frameworks import tf, torch

RNG = np.random.default_rng(3)


def printed(capsys: pytest.CaptureFixture[str], *args: str) -> str:
    capsys.readouterr()
    assert main(["schema", *args]) == 0
    return capsys.readouterr().out


def run(code: str) -> dict[str, Any]:
    names: dict[str, Any] = {}
    exec(compile(code, "printed", "exec"), names)
    return names


def as_list(value: Any) -> Any:
    """Return a value of TensorFlow, PyTorch or recmap as nested lists."""
    if isinstance(value, tf.RaggedTensor):
        return value.to_list()
    if isinstance(value, tf.Tensor):
        value = value.numpy()
    if isinstance(value, bytes):
        return value
    if isinstance(value, rm.Ragged | list):
        return [as_list(item) for item in value]
    array = np.asarray(value)
    if array.dtype.kind in "mM":
        array = array.astype(np.int64)
    if array.dtype.kind == "V":
        array = array.astype(np.float64)
    return array.tolist()


def check_tensorflow(code: str, ds: rm.Dataset, differ: Sequence[str] = ()) -> None:
    rows = list(run(code)["dataset"])
    assert len(rows) == len(ds)
    for row, ours in zip(rows, ds, strict=True):
        assert set(row) == set(ours)
        for name, value in ours.items():
            assert as_list(row[name]) == as_list(value), name
            field = ds.schema[name]
            if not field.is_bytes and name not in differ:
                assert row[name].dtype.name == field.dtype.newbyteorder("=").name, name


def test_tensorflow_reads_what_recmap_wrote(capsys: pytest.CaptureFixture[str]) -> None:
    n = 7
    columns: dict[str, Any] = {
        "scalar": RNG.normal(size=n).astype(np.float32),
        "matrix": RNG.normal(size=(n, 2, 3)).astype(np.float32),
        "label": np.arange(n),
        "small": np.arange(n, dtype=np.int32),
        "flag": np.arange(n) % 2 == 0,
        "four": RNG.integers(0, 9, (n, 4)),
        "image": RNG.integers(0, 255, (n, 4, 5, 3), dtype=np.uint8),
        "double": RNG.normal(size=(n, 2)),
        "half": RNG.normal(size=(n, 40)).astype(np.float16),
        "brain": RNG.normal(size=(n, 4)).astype(ml_dtypes.bfloat16),
        "words": RNG.integers(0, 2**32, (n, 20)).astype(np.uint32),
        "large": RNG.integers(0, 2**64 - 1, (n, 2), dtype=np.uint64),
        "complex": RNG.normal(size=(n, 2)) + 1j,
        "when": np.arange(n).astype("M8[s]"),
        "name": [b"a" * i for i in range(n)],
        "pair": rm.Ragged(rm.Ragged.from_bytes([b"x%d" % i for i in range(2 * n)]),
                          np.arange(n + 1) * 2),
        "tokens": rm.Ragged.from_rows([np.arange(i) for i in range(n)]),
        "points": rm.Ragged(RNG.normal(size=(2 * n, 3)).astype(np.float32), np.arange(n + 1) * 2),
        "shorts": rm.Ragged.from_rows([np.arange(i, dtype=np.int16) for i in range(n)]),
        "doubles": rm.Ragged.from_rows([np.arange(i) / 3 for i in range(n)]),
        "boxes": rm.Ragged(RNG.normal(size=(2 * n, 4)), np.arange(n + 1) * 2),
        "odd 'name\n": np.arange(n),
    }  # fmt: skip
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write(columns)
    code = printed(capsys, "x.tfrecord", "--as", "tf")
    assert "'image': tf.io.FixedLenFeature([], tf.string),  # raw bytes of uint8[4,5,3]" in code
    assert "'tokens': tf.io.RaggedFeature(tf.int64)," in code
    check_tensorflow(code, rm.open("x.tfrecord"), differ=["when"])


def test_the_features_work_with_parse_example(capsys: pytest.CaptureFixture[str]) -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": np.eye(4, dtype=np.float32), "t": rm.Ragged.from_rows([[1], [], [2, 3], []])})
    features = run(printed(capsys, "x.tfrecord", "--as", "tf"))["features"]
    parsed = tf.io.parse_example(list(rm.tfrecord.records("x.tfrecord")), features)
    assert parsed["x"].numpy().tolist() == np.eye(4).tolist()
    assert parsed["t"].to_list() == [[1], [], [2, 3], []]


def test_feature_lists_are_parsed_from_sequence_examples(
    capsys: pytest.CaptureFixture[str],
) -> None:
    n = 4
    steps = rm.Ragged.from_rows([np.arange(i, dtype=np.float32) for i in range(2 * n)])
    doubles = rm.Ragged.from_rows([np.arange(i) / 7 for i in range(2 * n)])
    columns: dict[str, Any] = {
        "label": np.arange(n),
        "nested": rm.Ragged(steps, [0, 2, 2, 5, 8]),
        "raw": rm.Ragged(doubles, [0, 2, 2, 5, 8]),
        "frames": rm.Ragged(RNG.normal(size=(9, 3)).astype(np.float32), [0, 2, 2, 5, 9]),
        "rgb": rm.Ragged(RNG.integers(0, 255, (9, 3), dtype=np.uint8), [0, 2, 2, 5, 9]),
        "bytes": rm.Ragged(rm.Ragged.from_bytes([b"a", b"", b"ccc"]), [0, 1, 1, 2, 3]),
        "feature_lists/label": rm.Ragged.from_rows([np.arange(i) for i in range(n)]),
        "fixed": RNG.normal(size=(n, 5, 2)).astype(np.float32),
    }
    encoding = dict.fromkeys(["frames", "rgb", "bytes", "fixed"], "feature_list")
    with rm.TFRecordWriter("x.tfrecord", encoding=encoding) as w:
        w.write(columns)
    code = printed(capsys, "x.tfrecord", "--as", "tf")
    assert "tf.io.FixedLenSequenceFeature([3], tf.float32, allow_missing=True)" in code
    check_tensorflow(code, rm.open("x.tfrecord"))


def test_types_given_for_raw_bytes_are_decoded(capsys: pytest.CaptureFixture[str]) -> None:
    big = np.arange(3, dtype=">f4")
    wire.write(
        "x.tfrecord",
        wire.example(
            d=wire.bytes_list(np.arange(10, dtype="<f4").tobytes()),
            b=wire.bytes_list(big.tobytes()),
            i=wire.int64_list(3),
            m=wire.float_list(1.0, 2.0),
            t=wire.bytes_list(b"abcd"),
        ),
        wire.example(d=wire.bytes_list(bytes(40)), b=wire.bytes_list(bytes(12))),
    )
    fields = {
        "d": "float32[10]",
        "b": ">f4[3]",
        "i": "int32 = -1",
        "m": "float32[2] = nan",
        "t": "uint8[4] = 7",
    }
    options = [text for name, kind in fields.items() for text in ("--field", f"{name}={kind}")]
    code = printed(capsys, "x.tfrecord", *options, "--as", "tf")
    assert "little_endian=False" in code
    ds = rm.open("x.tfrecord", fields)
    first, second = run(code)["dataset"]
    for row, ours in zip([first, second], ds, strict=True):
        for name, value in ours.items():
            assert np.array_equal(row[name].numpy(), value, equal_nan=name == "m"), name
    assert second["m"].numpy().tolist() != second["m"].numpy().tolist()  # NaN
    assert second["t"].numpy().tolist() == [7] * 4


def test_fields_missing_from_some_records_are_parsed(capsys: pytest.CaptureFixture[str]) -> None:
    wire.write("x.tfrecord", wire.example(a=wire.int64_list(1)), wire.example(b=wire.int64_list(2)))
    check_tensorflow(printed(capsys, "x.tfrecord", "--as", "tf"), rm.open("x.tfrecord"))


@pytest.mark.parametrize("compression", ["gzip", "zlib"])
def test_compressed_files_are_read(compression: Any, capsys: pytest.CaptureFixture[str]) -> None:
    with rm.TFRecordWriter("x.tfrecord", compression=compression, shards=2) as w:
        w.write({"x": np.arange(10)})
    code = printed(capsys, "x-*.tfrecord", "--as", "tf")
    assert f"compression_type='{compression.upper()}'" in code
    check_tensorflow(code, rm.open("x-*.tfrecord"))


def test_a_field_missing_from_the_sample_is_assumed_to_be_stored_as_recmap_would() -> None:
    wire.write("x.tfrecord", wire.example(a=wire.int64_list(1)))
    source = rm.open("x.tfrecord", {"a": None, "rare": "float32 = 0"})._source
    assert isinstance(source, TFRecordSource)
    check_tensorflow(tf_code(source), rm.Dataset(OpenedRows(source)))


def test_other_formats_have_no_features(capsys: pytest.CaptureFixture[str]) -> None:
    np.save("x.npy", np.zeros(3))
    assert main(["schema", "x.npy", "--as", "tf"]) == 2
    assert "x.npy is not one (recmap convert makes them" in capsys.readouterr().err


def test_rm_open_accepts_the_json(capsys: pytest.CaptureFixture[str]) -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": np.zeros((2, 3), np.float32), "t": [b"a", b"b"]})
    fields = json.loads(printed(capsys, "x.tfrecord"))
    assert fields == {"x": "float32[3]", "t": "bytes"}
    assert rm.open("x.tfrecord", fields).schema == rm.open("x.tfrecord").schema


def test_torch_reads_tfrecord(capsys: pytest.CaptureFixture[str]) -> None:
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write(
            {
                "x": RNG.normal(size=(3, 2)).astype(np.float32),
                "label": np.arange(3),
                "name": [b"a", b"bc", b""],
                "tags": rm.Ragged(rm.Ragged.from_bytes([b"p", b"q"]), [0, 1, 1, 2]),
                "tokens": rm.Ragged.from_rows([[1], [], [2, 3]]),
                "nested": rm.Ragged(rm.Ragged.from_rows([[1.5], [2.5, 3.5]]), [0, 2, 2, 2]),
                "brain": np.ones((3, 2), ml_dtypes.bfloat16),
                "when": np.arange(3).astype("M8[s]"),
            }
        )
    code = printed(capsys, "x.tfrecord", "--as", "torch")
    assert "rm.open('x.tfrecord')" in code
    rows, ds = run(code)["Rows"](), rm.open("x.tfrecord")
    assert len(rows) == 3
    for i in range(3):
        for name, value in ds[i].items():
            found = rows[i][name]
            if isinstance(found, torch.Tensor):
                found = found.float() if found.dtype == torch.bfloat16 else found
                found = found.tolist()
            elif name == "nested":
                found = [step.tolist() for step in found]
            assert found == as_list(value), name
    assert rows[0]["x"].dtype == torch.float32
    assert rows[0]["brain"].dtype == torch.bfloat16
    loaded = next(iter(torch.utils.data.DataLoader(rows, batch_size=1)))
    assert loaded["x"].shape == (1, 2)


def test_torch_reads_files_without_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    np.arange(12, dtype=">f4").tofile("x.bin")
    args = ["x.bin", "--dtype", ">f4", "--shape", "-1,4", "--as", "torch"]
    rows = run(printed(capsys, *args))["Rows"]()
    assert rows[1]["data"].tolist() == [4, 5, 6, 7]
