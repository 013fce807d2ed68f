"""Columns by pattern, ``train/*``, and those of a group, ``group="train"``."""

from __future__ import annotations

import warnings
from typing import Any

import h5py
import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest
import zarr

import recmap as rm
from recmap.cli import main

ARRAYS: dict[str, Any] = {
    "train/x": np.arange(10),
    "train/deep/y": np.arange(10) * 2.0,
    "test/x": np.arange(4) + 100,
    "test/deep/y": np.arange(4) * 2.0,
}


def write_hdf5() -> str:
    with h5py.File("x.h5", "w") as file:
        for name, values in ARRAYS.items():
            file[name] = values
    return "x.h5"


def write_zarr() -> str:
    group = zarr.open_group("x.zarr", mode="w")
    for name, values in ARRAYS.items():
        group.create_array(name, data=values)
    return "x.zarr"


def write_npz() -> str:
    np.savez("x.npz", **ARRAYS)
    return "x.npz"


@pytest.mark.parametrize("write", [write_hdf5, write_zarr, write_npz])
def test_parts_of_different_lengths_are_opened_by_pattern_and_by_group(write: Any) -> None:
    path = write()
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # nothing that was asked for is left out
        for part, rows in (("train", 10), ("test", 4)):
            by_pattern = rm.open(path, columns=[f"{part}/*"])
            assert sorted(by_pattern.columns) == [f"{part}/deep/y", f"{part}/x"]
            by_group = rm.open(path, group=f"/{part}/")
            assert sorted(by_group.columns) == ["deep/y", "x"]
            assert len(by_pattern) == len(by_group) == rows
            assert by_group["x"][:].tolist() == ARRAYS[f"{part}/x"].tolist()
        assert rm.open(path, group="test", columns=["x"]).columns == ["x"]
        assert rm.open(path, group="test", columns=["x", "*"]).columns == ["x", "deep/y"]
        assert rm.open(path, {"x": "int64", ...: None}, group="test").columns == ["x", "deep/y"]
        assert rm.open(path, group="train/deep").columns == ["y"]
    for wrong in ({"columns": ["tain/*"]}, {"group": "tain"}):
        with pytest.raises(rm.FieldNotFoundError, match=r"no column matches 'tain/\*'; there are"):
            rm.open(path, **wrong)
    with pytest.raises(rm.OptionTypeError, match="name of a group"):
        rm.open(path, group="/")


def test_what_a_pattern_matches_with_other_lengths_is_left_out_with_a_warning() -> None:
    with pytest.warns(rm.LeftOutWarning, match="test/x"):
        assert rm.open(write_hdf5(), columns=["*/x"]).columns == ["train/x"]


def test_members_of_a_table_match_and_names_with_brackets_are_literal() -> None:
    with h5py.File("t.h5", "w") as file:
        file["a/t"] = np.zeros(3, [("p", "i4"), ("q", "f4")])
        file["a/t[1]"] = np.arange(3)
    assert rm.open("t.h5", columns=["a/t.*"]).columns == ["a/t.p", "a/t.q"]
    assert rm.open("t.h5", columns=["a/t[1]"]).columns == ["a/t[1]"]
    assert rm.open("t.h5", columns=["a/t.q", "a/*"]).columns == ["a/t.q", "a/t.p", "a/t[1]"]


@pytest.mark.parametrize("suffix", ["tfrecord", "parquet", "arrow", "npz", "h5", "zarr"])
def test_every_format_with_names_has_patterns_and_groups(suffix: str) -> None:
    columns = {name: np.arange(3) for name in ("image/a", "image/b", "label")}
    path = f"x.{suffix}"
    rm.from_arrays(columns).save(path)
    assert rm.open(path, columns=["image/*"]).columns == ["image/a", "image/b"]
    assert rm.open(path, columns={"*b*": "int64"}).columns == ["image/b", "label"]
    assert rm.open(path, group="image").columns == ["a", "b"]
    with pytest.raises(rm.FieldNotFoundError, match="no column matches"):
        rm.open(path, columns=["q*"])


def test_columns_of_objects_are_selected_by_pattern() -> None:
    frame = pd.DataFrame({"xa": [1, 2], "xb": [3, 4], "y": [5, 6]})
    assert rm.open(frame, columns=["x*"]).columns == ["xa", "xb"]
    assert rm.open(rm.open(frame), columns=["x*"]).columns == ["xa", "xb"]
    assert rm.open({"xa": np.arange(2), "y": np.arange(2)}, columns=["x*"]).columns == ["xa"]


def same(row: dict[str, Any]) -> dict[str, Any]:
    return row


@pytest.mark.slow
def test_a_group_is_read_in_workers_and_saved() -> None:
    ds = rm.open(write_hdf5(), group="test")
    spawned = ds.map(same, workers="spawn:1").batch(2)
    assert [batch["x"].tolist() for batch in spawned] == [[100, 101], [102, 103]]
    assert ds.save("out.npz").rows == 4
    assert rm.diff(ds, "out.npz").same
    report = rm.open("x.h5", group="test").save("out/", shards=2)
    assert report.resumed == 0
    assert rm.open("x.h5", group="test").save("out/", shards=2).resumed == 2


def test_the_command_line_takes_groups_and_patterns(capsys: pytest.CaptureFixture[str]) -> None:
    path = write_hdf5()
    assert main(["head", path, "--group", "test", "--json"]) == 0
    assert '"x":100' in capsys.readouterr().out.replace(" ", "")
    assert main(["convert", path, "y.npz", "--field", "train/*"]) == 0
    assert sorted(np.load("y.npz")) == ["train/deep/y", "train/x"]
