"""Zarr stores that are damaged, hostile, or change while they are read."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import recmap as rm


def group(version: int = 3) -> Any:
    return zarr.create_group("x.zarr", zarr_format=version)


def test_a_damaged_chunk_names_the_column() -> None:
    group().create_array("x", data=np.random.default_rng(7).random(1000))
    [chunk] = [file for file in Path("x.zarr/x/c").rglob("*") if file.is_file()]
    chunk.write_bytes(b"not zstd")
    with pytest.raises(rm.DataError, match="x.zarr: 'x' cannot be read"):
        rm.open("x.zarr")[:]


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"zarr_format": 9}', '{"zarr_format": 3, "node_type": "array"}', "7"]
)
def test_damaged_metadata_is_refused(text: str) -> None:
    os.mkdir("x.zarr")
    with open("x.zarr/zarr.json", "w", encoding="utf-8") as file:
        file.write(text)
    with pytest.raises(rm.DataError, match="x.zarr: not a valid Zarr store"):
        rm.open("x.zarr")


@pytest.mark.parametrize("version", [2, 3])
@pytest.mark.parametrize(
    ("shape", "chunk"),
    [((9,), (0,)), ((9,), (1 << 61,)), ((9,), (1 << 70,)), ((9, 3), (4, 1 << 61)),
     ((1 << 70,), (4,)), ((9, 1 << 40, 1 << 40), (9, 1 << 40, 1 << 40))],
)  # fmt: skip
def test_numbers_that_no_array_has_are_refused(
    version: int, shape: tuple[int, ...], chunk: tuple[int, ...]
) -> None:
    group(version).create_array("x", data=np.arange(9.0), chunks=(4,), fill_value=0)
    told: dict[str, Any] = {"chunks": chunk}
    if version == 3:
        told = {"chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk}}}
    damage("x.zarr/x", shape=shape, **told)
    wanted: list[Any] = [slice(3), 3, np.array([1, 7])]
    for rows in wanted:
        with suppress(rm.DataError):
            assert np.asarray(rm.open("x.zarr")[rows]["x"]).size


def damage(path: str, **changes: Any) -> None:
    """Change the metadata of an array; without changes, cut its file."""
    (file,) = (f for n in ("zarr.json", ".zarray") if os.path.exists(f := f"{path}/{n}"))
    text = Path(file).read_text("utf-8")
    Path(file).write_text(json.dumps(json.loads(text) | changes) if changes else text[:40], "utf-8")


@pytest.mark.parametrize(
    ("version", "changes"),
    [
        (2, {}),
        (2, {"dtype": "<q99"}),
        (2, {"compressor": {"id": "no such codec"}}),
        (2, {"shape": "many"}),
        (3, {}),
        (3, {"data_type": "no such type"}),
        (3, {"codecs": [{"name": "no such codec"}]}),
        (3, {"shape": "many"}),
        (3, {"node_type": "leaf"}),
    ],
    ids=str,
)
@pytest.mark.parametrize("consolidated", [False, True])
def test_an_array_that_cannot_be_opened_is_left_out(
    version: int, changes: dict[str, Any], consolidated: bool
) -> None:
    root = group(version)
    for name in ("a", "deep/b", "deep/bad", "deep/er/c"):
        root.create_array(name, data=np.arange(5))
    if consolidated:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about features that version 3 does not specify yet
            zarr.consolidate_metadata("x.zarr")
        damage_consolidated("deep/bad", changes)
    damage("x.zarr/deep/bad", **changes)
    with pytest.warns(rm.LeftOutWarning, match=r"x\.zarr: .* 'deep/bad' cannot be opened: \w+"):
        ds = rm.open("x.zarr")
    assert list(ds.schema) == ["a", "deep/b", "deep/er/c"]
    assert ds[:]["deep/er/c"].tolist() == list(range(5))
    assert rm.open("x.zarr", ["deep/b"])[:]["deep/b"].tolist() == list(range(5))
    with pytest.raises(rm.DataError, match="'deep/bad' cannot be opened"):
        rm.open("x.zarr", ["deep/bad"])


def damage_consolidated(name: str, changes: dict[str, Any]) -> None:
    """The same damage in a store with consolidated metadata."""
    for file in filter(os.path.exists, ("x.zarr/.zmetadata", "x.zarr/zarr.json")):
        whole = json.loads(Path(file).read_text("utf-8"))
        inside = whole.get("consolidated_metadata", whole)["metadata"]
        key = name if name in inside else f"{name}/.zarray"
        inside[key] = inside[key] | changes if changes else "cut"
        Path(file).write_text(json.dumps(whole), "utf-8")


def test_a_ragged_column_with_damaged_metadata_is_left_out() -> None:
    rm.from_arrays({"s": [b"a", b"b"], "x": np.arange(2), "y": np.arange(2)}).save("x.zarr")
    damage("x.zarr/s/offsets")
    damage("x.zarr/x")
    with pytest.warns(rm.LeftOutWarning, match="'s' cannot be opened.*'x' cannot be opened"):
        assert list(rm.open("x.zarr").schema) == ["y"]


def test_a_pickled_array_is_left_out_and_others_are_read() -> None:
    group(2).create_array("x", data=np.arange(3))
    text = [{"id": "vlen-utf8"}]
    pickled("x.zarr/p", "|O", {"compressor": {"id": "pickle"}, "filters": text})
    with pytest.warns(rm.LeftOutWarning, match="'p' is pickled"):
        assert list(rm.open("x.zarr").schema) == ["x"]


def test_links_in_circles_are_not_followed() -> None:
    root = group()
    root.create_array("a", data=np.arange(5))
    root.create_array("g/bad", data=np.arange(5))
    damage("x.zarr/g/bad")
    os.symlink("..", "x.zarr/g/back")
    with pytest.warns(rm.LeftOutWarning, match="'g/bad' cannot be opened"):
        assert list(rm.open("x.zarr").schema) == ["a"]


def test_an_empty_group_is_refused() -> None:
    group()
    with pytest.raises(rm.DataError, match="no arrays with rows"):
        rm.open("x.zarr")


@pytest.mark.parametrize("told", [7, {"columns": 7}, {"columns": [{"name": "x"}]}, {}], ids=str)
def test_malformed_attributes_are_refused(told: Any) -> None:
    root = group()
    root.create_array("x", data=np.arange(3))
    root.attrs["recmap"] = told
    with pytest.raises(rm.DataError, match="attribute 'recmap' cannot be read"):
        rm.open("x.zarr")


def test_attributes_that_do_not_match_an_array_are_ignored() -> None:
    rm.from_arrays({"x": np.arange(3)}).save("x.zarr")
    root = zarr.open_group("x.zarr")
    root.create_array("x", data=np.arange(4.0).reshape(2, 2), overwrite=True)
    with pytest.warns(rm.StaleIndexWarning, match="'x' is int64, but it holds float64"):
        assert rm.open("x.zarr").schema == {"x": "float64[2]"}


def test_a_ragged_column_with_a_missing_array_is_refused() -> None:
    rm.from_arrays({"s": [b"a", b"b"]}).save("x.zarr")
    del zarr.open_group("x.zarr")["s/offsets"]
    with pytest.raises(rm.DataError, match="'s' is bytes, but s/offsets is missing"):
        rm.open("x.zarr")


class _Trap:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("sprung",)


def pickled(path: str, dtype: str, codecs: dict[str, Any]) -> None:
    """Write an array of one row, which is a pickle."""
    os.mkdir(path)
    array = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": dtype, "fill_value": 0}
    Path(path, ".zarray").write_text(json.dumps({**array, "order": "C", **codecs}), "utf-8")
    Path(path, "0").write_bytes(pickle.dumps(_Trap()))


@pytest.mark.parametrize(
    ("dtype", "codecs"),
    [
        ("<i4", {"compressor": {"id": "pickle"}, "filters": None}),
        ("<i4", {"compressor": None, "filters": [{"id": "delta", "dtype": "<i4"},
                                                 {"id": "pickle"}]}),
        ("|O", {"compressor": None, "filters": [{"id": "pickle"}]}),
    ],
    ids=["compressor", "filter", "objects"],
)  # fmt: skip
def test_pickles_are_refused_and_never_unpickled(dtype: str, codecs: dict[str, Any]) -> None:
    pickled("x.zarr", dtype, codecs)
    with pytest.raises(rm.DataError, match="pickle"):
        rm.open("x.zarr")[:]
    assert not os.path.exists("sprung")


@pytest.mark.parametrize("options", [{}, {"shards": (20, 3)}])
@pytest.mark.parametrize("change", ["removed", "replaced"])
def test_chunks_of_a_store_that_is_gone_are_not_taken_for_unwritten_ones(
    options: dict[str, Any], change: str
) -> None:
    def write(path: str, values: Any) -> None:
        group = zarr.create_group(path)
        group.create_array("x", data=values, chunks=(10, 3), compressors=None, **options)

    x = np.arange(300, dtype="<f4").reshape(100, 3)
    write("x.zarr", x)
    ds = rm.open("x.zarr")
    assert np.array_equal(ds[:10]["x"], x[:10])
    shutil.rmtree("x.zarr")
    if change == "replaced":
        write("x.zarr", -x)
    for _ in range(2):
        with pytest.raises((rm.FileChangedError, rm.PathNotFoundError)):
            ds[95]
        with pytest.raises((rm.FileChangedError, rm.PathNotFoundError)):
            ds[50:70]
