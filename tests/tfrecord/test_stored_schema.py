"""Stored schemas of several files: concatenated, in a manifest, or in conflict."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.tfrecord.sidecar import sidecar_path
from tests import wire
from tests.tfrecord.test_embedded_schema import DESCRIBED, copied, write

MANIFEST: dict[str, Any] = {
    "recmap": 1,
    "format": "tfrecord",
    "complete": True,
    "files": [{"file": "data.tfrecord"}],
}


READS: dict[str, Any] = {
    "all": lambda path: rm.open(path)[:],
    "one row": lambda path: rm.open(path)[-rows_per_file(path)],
    "rows": lambda path: rm.open(path)[[0, -rows_per_file(path)]],
    "column": lambda path: np.asarray(rm.open(path)["x"]),
    "select": lambda path: list(rm.open(path).select(["x"]).batch(2)),
    "batches": lambda path: list(rm.open(path).batch(2)),
    "shuffled": lambda path: list(rm.open(path).shuffle(seed=1, window=4).batch(2)),
    "the others given": lambda path: rm.open(path, fields={"y": "int32", ...: None})[:],
    "skip": lambda path: rm.open(path, errors="skip")[:],
    "index": rm.index,
    "stats": lambda path: rm.open(path).stats(),
    "convert": lambda path: rm.convert(path, "out.npz"),
    "save": lambda path: rm.open(path).save("out.tfrecord"),
}


def rows_per_file(path: str) -> int:
    return len(rm.open(path)) // 3


def concatenated(rows: int, *columns: Any, compression: Any = None) -> str:
    """Write a file for each column ``x``, and concatenate them."""
    contents = []
    for column in columns:
        write({"x": column, "y": np.zeros(rows, np.int32)}, "one.tfrecord", fields=None)
        contents.append(Path("one.tfrecord").read_bytes())
    path = "x.tfrecord.gz" if compression else "x.tfrecord"
    Path(path).write_bytes(gzip.compress(b"".join(contents)) if compression else b"".join(contents))
    return path


@pytest.mark.parametrize("compression", [None, "gzip"])
@pytest.mark.parametrize("way", READS)
# With one row per file, all records have the same length, so the columns could be mapped.
@pytest.mark.parametrize("rows", [1, 2])
def test_concatenated_files_of_different_types_are_an_error(
    way: str, compression: Any, rows: int
) -> None:
    first = np.arange(rows * 4, dtype=np.float16).reshape(rows, 4)
    other = first.view(np.float64)
    path = concatenated(rows, first, first, other, compression=compression)
    said = r"float64\[1\].*float16\[4\].*put together"
    with pytest.raises(rm.FieldMismatchError, match=said) as e:
        READS[way](path)
    assert (e.value.file, e.value.record, e.value.field) == (path, 2 * rows, "x")
    assert rm.open(path)[rows]["x"].tolist() == [0, 1, 2, 3]
    ds = rm.open(path, fields={"x": "float16[4]", "y": "int32"})
    assert ds[:]["x"].tolist() == [*first.tolist() * 3]
    assert rm.open(path, fields=["y"])[:]["y"].tolist() == [0] * rows * 3


def test_files_with_equivalent_descriptions_can_be_concatenated() -> None:
    columns = {"x": DESCRIBED["uint8[4,5]"], "y": DESCRIBED["int32"]}
    contents = []
    for align, names in ((None, "xy"), (64, "xy"), (None, "yx")):
        write({name: columns[name] for name in names}, "p.tfrecord", fields=None, align=align)
        contents.append(Path("p.tfrecord").read_bytes())
    Path("x.tfrecord").write_bytes(b"".join(contents))
    ds = rm.open("x.tfrecord")
    assert ds[:]["x"].tolist() == columns["x"].tolist() * 3
    assert ds[:]["y"].tolist() == columns["y"].tolist() * 3


def test_a_manifest_gives_the_types_of_the_files_it_lists() -> None:
    columns = {"image": DESCRIBED["uint8[4,5]"], "x": DESCRIBED["float64"]}
    rm.from_arrays(columns).save("out/", shards=2, options={"describe": False})
    names = [f"out/data-{i:05}-of-00002.tfrecord" for i in range(2)]
    copied(*names, "out/_manifest.json")
    ds = rm.open("elsewhere/")
    assert ds.schema == {"image": "uint8[4,5]", "x": "float64"}
    assert "from the manifest" in repr(ds)
    assert np.array_equal(ds[:]["image"], columns["image"])
    os.rename("elsewhere/data-00001-of-00002.tfrecord", "elsewhere/other.tfrecord")
    assert rm.open("elsewhere/other.tfrecord").schema == {"image": "bytes", "x": "bytes"}


def test_a_manifest_is_not_used_for_a_file_that_was_replaced() -> None:
    rm.from_arrays({"x": DESCRIBED["float64"]}).save("out/", options={"describe": False})
    copied("out/data.tfrecord", "out/_manifest.json")
    wire.write("elsewhere/data.tfrecord", wire.example(x=wire.int64_list(1)))
    with pytest.warns(rm.StaleIndexWarning, match="was not used"):
        assert rm.open("elsewhere/").schema == {"x": "int64"}


@pytest.mark.parametrize(
    "content",
    [
        "", "{", "[]", "null", "1", "[" * 100_000, '"x"', "\0", "{}",
        '{"recmap": 1}',
        '{"recmap": 1, "format": "tfrecord", "complete": true, "files": 1, "schema": {}}',
        '{"recmap": 1, "format": "tfrecord", "complete": true, "files": [1], "schema": {"a": 1}}',
        json.dumps(MANIFEST | {"schema": {"a": "nonsense["}}),
        json.dumps(MANIFEST | {"states": [1, 2], "schema": {"x": "float64"}}),
    ],
)  # fmt: skip
def test_an_invalid_manifest_is_ignored(content: str) -> None:
    wire.write("data.tfrecord", wire.example(x=wire.int64_list(1, 2)))
    Path("_manifest.json").write_text(content)
    assert rm.open("data.tfrecord").schema == {"x": "int64[2]"}


@pytest.mark.parametrize("field", ["float64[1000000000000]", "V1000000000", "bytes[99999999]"])
def test_a_manifest_with_huge_claims_takes_no_memory(field: str) -> None:
    wire.write("data.tfrecord", wire.example(x=wire.bytes_list(b"12345678")))
    Path("_manifest.json").write_text(json.dumps(MANIFEST | {"schema": {"x": field}}))
    with pytest.raises(rm.FieldMismatchError, match="too short"):
        rm.open("data.tfrecord")


def test_a_description_that_contradicts_the_index_or_the_manifest_is_an_error() -> None:
    rm.from_arrays({"x": np.zeros((4, 2))}).save("a/")
    rm.from_arrays({"x": np.zeros((4, 4), np.float32)}).save("b/", encoding={"x": "raw"})
    assert os.path.getsize("a/data.tfrecord") == os.path.getsize("b/data.tfrecord")
    shutil.copyfile("b/data.tfrecord", "a/data.tfrecord")
    os.unlink("a/.data.tfrecord.recmap")
    with pytest.raises(
        rm.FieldMismatchError, match=r"first record says 'x' is float32\[4\].*_manifest.json says"
    ) as caught:
        rm.open("a/")
    assert 'columns={"x": ...}' in str(caught.value)
    assert rm.open("a/", {"x": "float32[4]"}).schema == {"x": "float32[4]"}
    os.unlink("a/_manifest.json")
    assert rm.open("a/").schema == {"x": "float32[4]"}


def test_the_error_for_files_that_describe_different_columns_names_them() -> None:
    write({"x": np.zeros((4, 2))}, "a.tfrecord", fields={"x": "float64[2]"})
    write({"x": np.zeros((4, 3))}, "b.tfrecord", fields={"x": "float64[3]"})
    for index in (True, False):
        with pytest.raises(rm.FieldMismatchError, match=r"a\.tfrecord.*b\.tfrecord") as e:
            rm.open(["a.tfrecord", "b.tfrecord"])
        assert [option.name for option in e.value.options] == ["fields"]
        if index:
            os.unlink(sidecar_path("a.tfrecord"))
            os.unlink(sidecar_path("b.tfrecord"))
    with pytest.raises(rm.FieldMismatchError):
        rm.open(["a.tfrecord", "b.tfrecord"], {"x": "float64[2]"})[:]


@pytest.mark.slow
def test_a_file_of_other_types_among_many_is_reported_when_it_is_read() -> None:
    for i in range(200):
        shape = 3 if i == 99 else 2
        write({"x": np.ones((2, shape))}, f"{i:03}.tfrecord", fields={"x": f"float64[{shape}]"},
              durable=False, index=False)  # fmt: skip
    ds = rm.open("*.tfrecord")
    assert ds[:4]["x"].tolist() == [[1, 1]] * 4
    with pytest.raises(rm.FieldMismatchError, match=r"099\.tfrecord"):
        ds[195:210]


@pytest.mark.slow
def test_an_index_of_other_data_among_many_is_reported_when_it_is_read() -> None:
    for i in range(200):
        write({"int32": np.full(2, i, np.int32)}, f"{i:03}.tfrecord", durable=False)
    write({"int32": np.full(2, 98, np.int32)}, "099.tfrecord", durable=False)
    shutil.copyfile(".100.tfrecord.recmap", ".099.tfrecord.recmap")
    ds = rm.open("*.tfrecord")
    assert len(ds) == 400
    assert ds[190:198]["int32"].tolist() == [95, 95, 96, 96, 97, 97, 98, 98]
    for rows in (slice(197, 200), [3, 199], 198):
        with pytest.raises(rm.IndexFileError, match=r"099\.tfrecord\.recmap.*recmap index"):
            ds[rows]


def test_a_file_without_a_description_is_read_with_files_that_have_one() -> None:
    write({"x": np.ones((2, 2))}, "a.tfrecord", fields={"x": "float64[2]"})
    write({"x": np.zeros((2, 2))}, "b.tfrecord", fields={"x": "float64[2]"}, describe=False,
          index=False)  # fmt: skip
    assert rm.open(["a.tfrecord", "b.tfrecord"])[:]["x"].tolist() == [[1, 1]] * 2 + [[0, 0]] * 2
    write({"x": np.zeros((2, 2)), "y": np.ones(2)}, "b.tfrecord", describe=False, index=False,
          fields={"x": "float64[2]", "y": "float64"})  # fmt: skip
    with pytest.raises(rm.FieldMismatchError, match=r"b\.tfrecord: has the feature 'y'"):
        rm.open(["a.tfrecord", "b.tfrecord"])
