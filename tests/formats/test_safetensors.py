"""Files of safetensors, compared with the package of that name."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
import safetensors.torch
import torch

import recmap as rm
from tests.buckets import Bucket
from tests.formats.every_format import assert_same, numbers

NAMES = [
    *("bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"),
    *("float16", "float32", "float64", "complex64"),
]
# NumPy has these only with ml_dtypes, and the package reads them only into PyTorch.
NARROW = {
    "bfloat16": torch.bfloat16,
    "float8_e4m3fn": torch.float8_e4m3fn,
    "float8_e5m2": torch.float8_e5m2,
}


def table() -> dict[str, Any]:
    return {name: numbers(name, 7, 3) for name in NAMES}


def packed(header: Any, data: bytes = b"", *, text: bytes | None = None) -> bytes:
    text = json.dumps(header).encode() if text is None else text
    return len(text).to_bytes(8, "little") + text + data


def tensor(dtype: str, shape: list[int], begin: int, end: int) -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def test_files_of_the_package_are_mapped() -> None:
    columns = table()
    safetensors.numpy.save_file(columns, "a.safetensors", {"made": "by a test"})
    ds = rm.open("a.safetensors")
    info = ds.info()
    assert info.format == "safetensors"
    assert set(info.mapped) == set(NAMES) == set(ds.schema)
    for name, column in columns.items():
        assert_same(ds[name][:], column)
        assert_same(ds[[5, 0, 5]][name], column[[5, 0, 5]])
    batches = [b["int64"] for b in ds.select("int64").shuffle(seed=1).batch(2)]
    assert sorted(np.concatenate(batches).tolist()) == sorted(columns["int64"].tolist())
    os.rename("a.safetensors", "renamed")
    assert rm.open("renamed").schema == ds.schema
    assert rm.verify("renamed").ok
    rm.convert("renamed", "b.npz", verify="full")


def test_the_package_reads_what_is_written() -> None:
    columns = table()
    ds = rm.from_arrays(columns)
    ds.save("a.safetensors", verify="full")
    assert rm.open("a.safetensors").schema == ds.schema
    found = safetensors.numpy.load_file("a.safetensors")
    for name, column in columns.items():
        assert_same(found[name], column)
    ds.save("shards/b.safetensors", shards=3)
    assert_same(rm.open("shards")[:]["float16"], columns["float16"])
    ds.take(0).save("none.safetensors")
    assert rm.open("none.safetensors").schema == ds.schema
    assert safetensors.numpy.load_file("none.safetensors")["bool"].shape == (0, 3)
    rm.from_arrays({"x": np.arange(5, dtype=">f4")}).save("big.safetensors")
    assert safetensors.numpy.load_file("big.safetensors")["x"].tolist() == [*range(5)]
    # Tensors are aligned, whatever is before them.
    odd = {"a": numbers("uint8", 3), "b": numbers("float64", 3)}
    rm.from_arrays(odd).save("odd.safetensors")
    assert rm.open("odd.safetensors")["b"][:].flags.aligned


@pytest.mark.parametrize("name", NARROW)
def test_narrow_floats_keep_their_bits(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    column = numbers(name, 7, 3)
    rm.from_arrays({"x": column, "y": np.arange(7)}).save("a.safetensors", verify="full")
    found = safetensors.torch.load_file("a.safetensors")["x"]
    assert found.dtype == NARROW[name]
    assert found.view(torch.uint8).numpy().tobytes() == column.tobytes()
    safetensors.torch.save_file({"x": found}, "b.safetensors")
    ds = rm.open("b.safetensors")
    assert ds.schema["x"].dtype == getattr(ml_dtypes, name)
    assert_same(ds[:]["x"], column)
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    monkeypatch.setattr("recmap.formats.safetensors.as_dtype", _without_ml_dtypes)
    with pytest.warns(rm.LeftOutWarning, match="needs the package ml_dtypes"):
        assert list(rm.open("a.safetensors").schema) == ["y"]


def _without_ml_dtypes(name: str, dtype: str) -> np.dtype[Any]:
    if dtype in NARROW:
        raise rm.OptionError(f"{name}={dtype}")
    return np.dtype(dtype)


def test_tensors_that_are_no_table_are_chosen_by_name() -> None:
    weights = {"w": np.ones((4, 2)), "b": np.ones(4), "emb": np.ones((9, 4)), "t": np.float32(1)}
    safetensors.numpy.save_file({k: np.asarray(v) for k, v in weights.items()}, "a.safetensors")
    with pytest.raises(rm.DataError, match=r"'w' has 4; 'emb' has 9|'b' has 4; 'emb' has 9") as e:
        rm.open("a.safetensors")
    assert "columns=[" in str(e.value)
    assert rm.open("a.safetensors", ["w", "b"])[1]["w"].tolist() == [1, 1]
    assert len(rm.open("a.safetensors", ["emb"])) == 9
    with pytest.raises(rm.DataError, match="'t' holds a single value"):
        rm.open("a.safetensors", ["t"])
    assert rm.verify("a.safetensors").ok
    with Path("a.safetensors").open("ab") as file:
        file.write(b"more")
    assert not rm.verify("a.safetensors").ok


def test_what_does_not_fit_is_refused() -> None:
    for column, why in (
        (rm.Ragged(np.arange(3), [0, 1, 3]), "rows of different sizes"),
        ([b"a", b"b"], "rows of different sizes"),
        (np.array([1, 2], "M8[s]"), "safetensors does not have"),
        (np.ones(2, "complex128"), "safetensors does not have"),
    ):
        with pytest.raises(rm.ColumnError, match=why):
            rm.from_arrays({"x": column}).save("a.safetensors")
    assert not os.listdir()


GOOD = tensor("F32", [2], 0, 8)
HOSTILE: dict[str, tuple[bytes, str]] = {
    "a huge header": (b"\xff" * 8 + b"{}", "header of 18,446,744,073,709,551,615 bytes"),
    "a cut header": (packed({"x": GOOD}, bytes(8))[:20], "a header of"),
    "no JSON": (packed(None, text=b'{"x": '), "not valid"),
    "a list": (packed([]), "begin with {"),
    "deep": (packed(None, text=b'{"x":' + b"[" * 99_999), "not valid"),
    "twice": (
        packed(None, bytes(8), text=json.dumps({"x": GOOD})[:-1].encode() + b',"x":1}'),
        "'x' is there twice",
    ),
    "overlap": (packed({"x": GOOD, "y": tensor("F32", [2], 4, 12)}, bytes(12)), "overlaps"),
    "gap": (packed({"x": GOOD, "y": tensor("U8", [1], 9, 10)}, bytes(10)), "has a gap"),
    "after the end": (packed({"x": tensor("F32", [4], 0, 16)}, bytes(8)), "the file at"),
    "more bytes": (packed({"x": GOOD}, bytes(9)), "the file at"),
    "another size": (packed({"x": tensor("F32", [3], 0, 8)}, bytes(8)), "has 8 bytes, but F32"),
    "a negative axis": (packed({"x": tensor("F32", [-2], 0, 8)}, bytes(8)), "has the shape"),
    "a boolean axis": (packed({"x": tensor("F32", [True], 0, 4)}, bytes(4)), "has the shape"),
    "many axes": (packed({"x": tensor("U8", [1] * 99, 0, 1)}, b"x"), "has the shape"),
    "a huge shape": (
        packed({"x": tensor("F64", [2**62, 2**62, 0], 0, 0)}), "no memory is large enough"),
    "backwards": (packed({"x": tensor("F32", [2], 8, 0)}, bytes(8)), "has -8 bytes"),
    "another dtype": (packed({"x": tensor("F33", [2], 0, 8)}, bytes(8)), "'F33', which recmap"),
    "a list for a dtype": (packed({"x": {**GOOD, "dtype": []}}, bytes(8)), "the dtype \\[\\]"),
    "a list for a tensor": (packed({"x": [1]}, bytes(8)), "needs dtype"),
    "no text": (packed({"__metadata__": {"a": 1}, "x": GOOD}, bytes(8)), "is not text"),
}  # fmt: skip


@pytest.mark.parametrize("kind", HOSTILE)
def test_a_wrong_header_is_refused(kind: str) -> None:
    content, why = HOSTILE[kind]
    Path("a.safetensors").write_bytes(content)
    with pytest.raises(rm.DataError, match=why) as e:
        rm.open("a.safetensors")
    assert e.value.file == "a.safetensors"


def test_values_of_half_a_byte_are_left_out() -> None:
    header = {"x": GOOD, "half": tensor("F4", [2, 2], 8, 10)}
    Path("a.safetensors").write_bytes(packed(header, bytes(10)))
    with pytest.warns(rm.LeftOutWarning, match="less than a byte"):
        assert list(rm.open("a.safetensors").schema) == ["x"]


def test_files_are_read_from_and_written_to_a_store(bucket: Bucket) -> None:
    columns = {"x": numbers("float32", 1000, 3), "y": np.arange(1000)}
    path = f"{bucket.url}/a.safetensors"
    rm.from_arrays(columns).save(path, storage=bucket.storage)
    ds = rm.open(path, storage=bucket.storage)
    assert_same(ds[:]["x"], columns["x"])
    assert_same(ds[[999, 1]]["y"], columns["y"][[999, 1]])
