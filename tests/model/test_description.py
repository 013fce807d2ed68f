"""Descriptions of columns: what recmap notes in files, and what it makes of hostile notes."""

from __future__ import annotations

import json
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow.parquet as pq
import pytest
import zarr

import recmap as rm
from recmap.model.description import Description, decode_field, json_object

# What nobody meant to write: too large, too deep, of the wrong kind, or not a field at all.
NOT_FIELDS: list[Any] = [
    *("", "int64[", "int64[-1]", "float99", "object", "int64[*,2,*]", "int64[3] = [", "O", "U7"),
    *("int64[1099511627776] = 0", "int64 = 1e9999", "int8 = 300", "datetime64[s] = never"),
    *("x" * (1 << 16), None, 7, ["int64"], {"int64": 1}, b"int64"),
]


@pytest.mark.parametrize("text", NOT_FIELDS)
def test_a_description_that_is_no_field_raises_a_value_error(text: Any) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # the class is the promise
        decode_field(text)
    assert caught.type is ValueError
    with pytest.raises(ValueError):  # noqa: PT011  # the same
        Description.decode({"fine": "int64", "x": text})


@pytest.mark.parametrize("texts", [None, [], "x", 7, [["x", "int64"]], {3: "int64"}])
def test_columns_are_described_by_name(texts: Any) -> None:
    with pytest.raises(ValueError, match="what the fields are"):
        Description.decode(texts)


@pytest.mark.parametrize("text", ["[1]", "7", "", "{", '{"a":' * 100_000, b"\xff\xfe{}"])
def test_json_of_another_kind_raises_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011  # any reason
        json_object(text)
    assert not isinstance(caught.value, rm.RecmapError)


def test_descriptions_are_read_as_they_were_written() -> None:
    texts = {
        "x": "float32[10]",
        "tokens": "int64[*,2]",
        "big": ">f8",
        "when": "datetime64[ms]",
        "name": "text = n/a",
        "count": "int64 = -1",
        "nan": "float32 = nan",
    }
    described = Description.decode(texts)
    assert described.texts == texts
    assert Description.decode(json_object(json.dumps(described.texts))).schema == rm.Schema(texts)
    bare = Description(rm.Schema(texts), fills=False).texts
    assert (bare["name"], bare["count"], bare["x"]) == ("text", "int64", "float32[10]")


def test_a_fill_that_no_text_holds_is_left_out() -> None:
    schema = rm.Schema({"x": rm.Field("bytes", (), b"\xff\x00"), "y": rm.Field("bytes", (), b"ok")})
    assert Description(schema).texts == {"x": "bytes", "y": "bytes = ok"}


def describe_hdf5(path: Path, text: Any) -> None:
    with h5py.File(path, "r+") as file:
        file["x"].attrs["recmap"] = text[:10_000] if isinstance(text, str) else repr(text)


def describe_zarr(path: Path, text: Any) -> None:
    attrs = zarr.open_group(path, mode="r+").attrs
    text = repr(text) if isinstance(text, bytes) else text
    attrs["recmap"] = {"columns": [{"name": "x", "path": "x", "field": text}]}


def describe_parquet(path: Path, text: Any) -> None:
    text = repr(text) if isinstance(text, bytes) else text
    note = json.dumps({"columns": [["x", text]]})
    pq.write_table(pq.read_table(path).replace_schema_metadata({"recmap": note}), path)


def describe_array(path: Path, text: Any) -> None:
    text = repr(text) if isinstance(text, bytes) else text
    Path(f"{path}.recmap.json").write_text(json.dumps({"recmap": 1, "fields": {"x": text}}))


@pytest.mark.filterwarnings("ignore::recmap.StaleIndexWarning")
@pytest.mark.parametrize(
    ("end", "describe"),
    [
        (".h5", describe_hdf5),
        (".zarr", describe_zarr),
        (".parquet", describe_parquet),
        (".npy", describe_array),
    ],
)
def test_a_hostile_description_never_changes_a_value(end: str, describe: Any) -> None:
    x = np.arange(20.0).reshape(5, 4)
    texts = [
        *NOT_FIELDS[::3],
        "int8 = 300",
        "float64[7]",
        "text",
        "int64[4]",
        ">f8[4]",
        "float64[4,0]",
    ]
    for number, text in enumerate(texts):
        path = Path(f"{number}{end}")
        rm.from_arrays({"x": x}).save(path)
        describe(path, text)
        with suppress(rm.DataError, rm.IndexFileError):
            ds = rm.open(path)
            assert np.array_equal(ds[ds.columns[0]][:], x)
