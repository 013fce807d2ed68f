"""Nulls in formats that have none of their own: a mask is stored next to the column."""

from __future__ import annotations

from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pytest

import recmap as rm

TABLE = pa.table(
    {
        "i": [1, None, 3],
        "t": ["a", None, ""],
        "l": [[1, None], None, []],
        "v": pa.array([[1, 2], None, [3, 4]], pa.list_(pa.int64(), 2)),
        "s": [["a", None], [], ["b"]],
        "clean": [1, 2, 3],
    }
)
PATHS = ["x.h5", "x.npz", "x.zarr", "x.parquet", "x.arrow"]


def rows(ds: rm.Dataset) -> list[dict[str, Any]]:
    return [
        {n: v.tolist() if hasattr(v, "tolist") else v for n, v in row.items()}
        for row in (ds[i] for i in range(len(ds)))
    ]


@pytest.mark.parametrize("path", PATHS)
def test_nulls_survive_a_copy(path: str) -> None:
    ds = rm.open(TABLE)
    ds.save(path, verify="full")
    copy = rm.open(path)
    assert copy.schema == ds.schema
    assert rows(copy) == TABLE.to_pylist()
    assert rows(rm.open(path, ["l", "i"])) == TABLE.select(["l", "i"]).to_pylist()
    assert rows(rm.open(path, ["t"]).drop_null()) == [{"t": "a"}, {"t": ""}]
    assert rm.diff(ds, path).same
    copy.save("again.arrow")
    assert rows(rm.open("again.arrow")) == TABLE.to_pylist()


def test_other_programs_can_read_and_write_masks() -> None:
    rm.open(TABLE, ["i"]).save("x.npz")
    assert np.load("x.npz")["i?"].tolist() == [False, True, False]
    with h5py.File("y.h5", "w") as file:
        file["x"], file["x?"] = [1.5, 0, 2.5], [False, True, False]
    assert rows(rm.open("y.h5")) == [{"x": 1.5}, {"x": None}, {"x": 2.5}]


@pytest.mark.parametrize("nulls", ["fill", "mask", "error"])
def test_the_option_nulls_means_the_same_for_every_format(nulls: Any) -> None:
    for path in PATHS:
        rm.open(TABLE, ["t", "l"]).save(path)
        fields = {"t": None, "l": "int64[*] = 0"}
        if nulls == "error":
            with pytest.raises(rm.DataError, match="'t' has no value in row 1"):
                rm.open(path, ["t"], nulls=nulls)[:]
            continue
        ds = rm.open(path, fields, nulls=nulls)
        assert [row["t"] for row in rows(ds)] == ["a", "", ""]
        assert [row["l"] for row in rows(ds)] == [[1, 0], [], []]
        masks = [row.get("t/is_null") for row in rows(ds)]
        assert masks == ([False, True, False] if nulls == "mask" else [None] * 3)


def test_formats_without_a_place_for_nulls_say_what_to_do() -> None:
    for path, options in (
        ("x.npy", {}),
        ("x.raw", {}),
        ("t/", {"format": "tfds", "options": {"split": "a", "name": "x"}}),
    ):
        with pytest.raises(rm.ColumnError, match="cannot hold nulls.*fill_null.*mask_null"):
            rm.open(TABLE, ["i"]).save(path, **options)  # type: ignore[arg-type]  # of several kinds
    deep = rm.open(pa.table({"x": [[[1, None]], None]}))
    with pytest.raises(rm.ColumnError, match="only in Parquet and Arrow"):
        deep.save("x.npz")


def test_a_column_that_would_be_taken_for_a_mask_is_refused() -> None:
    ds = rm.from_arrays({"x": np.arange(2), "x?": np.array([True, False])})
    with pytest.raises(rm.ColumnError, match="would be taken for the mask of 'x'"):
        ds.save("x.npz")
    ds.save("x.parquet")
    assert rm.open("x.parquet").columns == ["x", "x?"]


@pytest.mark.parametrize("path", PATHS[:3])
@pytest.mark.parametrize("other", [[5, 6], ["u", "v"], [True, False]])
def test_a_column_with_the_name_of_a_mask_that_is_needed_is_refused(
    path: str, other: list[Any]
) -> None:
    for columns in ({"a": [1, None], "a?": other}, {"a?": other, "a": [1, None]}):
        with pytest.raises(rm.ColumnError, match="would be taken for the mask"):
            rm.open(pa.table(columns)).save(path)
    rm.open(pa.table({"a": [1, 2], "a?": [5, 6]})).save(path)
    assert rm.open(path)["a?"][:].tolist() == [5, 6]
