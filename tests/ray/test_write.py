"""What ``rm.ray.write`` refuses, and which files it leaves alone."""

from __future__ import annotations

import gzip
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd  # type: ignore[import-untyped]
import pytest

import recmap as rm
from tests.frameworks import ray

pytestmark = [
    pytest.mark.usefixtures("cluster"),
    # Ray leaves pipes and logs of its processes to the garbage collector.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    # Ray reads settings that it has deprecated itself.
    pytest.mark.filterwarnings(r"ignore:.use_\w+. is deprecated:DeprecationWarning"),
]


@pytest.mark.parametrize("option", ["shards", "min_rows_per_file"])
@pytest.mark.parametrize("count", [0, -1])
def test_zero_files_and_zero_rows_per_file_are_refused(option: str, count: int) -> None:
    np.save("x.npy", np.arange(5))
    with pytest.raises(rm.OptionError, match=f"{option}={count}: give a whole number of 1 or more"):
        rm.ray.write(ray.data.range(5), "x.npy", overwrite=True, **{option: count})  # type: ignore[arg-type]
    assert np.load("x.npy").tolist() == list(range(5))


def test_a_field_of_an_unknown_column_is_refused() -> None:
    with pytest.raises(rm.FieldNotFoundError, match="no column 'idd'; there are: id"):
        rm.ray.write(ray.data.range(5), "out/", columns={"idd": "int32"})
    unknown = ray.data.range(5).map_batches(lambda batch: batch)
    with pytest.raises(rm.FieldNotFoundError, match="no column 'idd'; there are: id"):
        rm.ray.write(unknown, "out/", columns={"idd": "int32"})


def test_files_of_other_formats_in_the_folder_are_left_alone() -> None:
    Path("out").mkdir()
    others = ["data.npy", "data.bin", "data-1-of-2.raw"]
    for name in others:
        Path("out", name).write_text("precious")
    rm.ray.write(ray.data.range(5), "out/", shards=1)
    rm.ray.write(ray.data.range(5), "out/", shards=2, overwrite=True)
    assert {name for name in os.listdir("out") if name[0] not in "._"} == {
        *others,
        "data-00000-of-00002.tfrecord",
        "data-00001-of-00002.tfrecord",
    }


def test_files_that_the_manifest_names_are_replaced_whatever_their_format() -> None:
    rm.from_arrays({"x": np.arange(4)}).save("out/", format="npz", shards=2)
    with pytest.raises(rm.OutputExistsError, match=r"data-00000-of-00002\.npz"):
        rm.ray.write(ray.data.range(5), "out/", shards=1)
    rm.ray.write(ray.data.range(5), "out/", shards=1, overwrite=True)
    assert [name for name in os.listdir("out") if name[0] not in "._"] == ["data.tfrecord"]


@pytest.mark.parametrize(
    ("field", "rows"),
    [
        ("int64[*]", [[1, 2], []]),
        ("bytes[*]", [[b"a"], []]),
        ("int64[*,*]", [[[1], [2, 3]], []]),
        ("int64[*,*]", [[[1], [2, 3]], [[], []]]),
    ],
)
def test_a_block_of_empty_lists_has_the_type_of_its_field(field: str, rows: list[Any]) -> None:
    ds = ray.data.from_items([{"l": row} for row in rows], override_num_blocks=2)
    rm.ray.write(ds, "out.npz", columns={"l": field})
    back = rm.open("out-*.npz")
    assert back.schema == rm.Schema({"l": field})
    assert [row["l"].tolist() for row in back] == rows


def test_a_column_of_empty_lists_needs_its_field() -> None:
    ds = ray.data.from_items([{"l": []}])
    with pytest.raises(rm.ColumnError, match=r'\'l\' has no values.*columns={"l": "int64'):
        rm.ray.write(ds, "out.npz")


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_nan_in_a_pandas_block_is_a_number(dtype: str) -> None:
    x = np.array([[1, np.nan, 2], [np.nan] * 3], dtype)
    frames = [pd.DataFrame({"x": row, "n": np.arange(3)}) for row in x]
    rm.ray.write(ray.data.from_pandas(frames), "a.npz", shards=1)
    rm.ray.write(
        ray.data.from_numpy(x.reshape(-1)).map_batches(
            lambda frame: frame.rename(columns={"data": "x"}), batch_format="pandas"
        ),
        "b.npz",
        shards=1,
    )
    for name in ("a.npz", "b.npz"):
        written = rm.open(name)[:]["x"]
        assert written.dtype == dtype
        np.testing.assert_array_equal(written, x.reshape(-1))


def test_none_in_a_pandas_block_is_a_missing_value() -> None:
    frame = pd.DataFrame({"x": pd.array([1.0, None], "Float64")})
    with pytest.raises(rm.ColumnError, match="'x' has 1 rows or items without a value"):
        rm.ray.write(ray.data.from_pandas(frame), "out.npz")


def known() -> ray.data.Dataset:
    return ray.data.range(4)


def unknown() -> ray.data.Dataset:
    return ray.data.range(4).map_batches(lambda batch: batch)


@pytest.mark.parametrize("make", [known, unknown])
def test_an_error_names_the_output_and_hides_the_traceback_of_ray(
    make: Callable[[], ray.data.Dataset],
) -> None:
    with pytest.raises(rm.OptionError) as caught:
        rm.ray.write(make(), "out/", options={"nope": 1})
    text = str(caught.value)
    assert text.startswith(f"{os.path.abspath('out')}/: options of tfrecord files: ")
    assert "'nope'" in text
    with pytest.raises(rm.ColumnError) as unfit:
        rm.ray.write(make(), "x.npy", columns={"id": "int64[*]"})
    assert "x.npy" in str(unfit.value)
    assert ".tmp" not in str(unfit.value)
    assert "\n" not in str(unfit.value)
    assert not os.path.exists("out")


def test_an_unknown_option_is_refused_before_any_row_is_made() -> None:
    rm.from_arrays({"x": np.arange(3)}).save("x.npy")
    ds = rm.ray.read("x.npy")
    os.unlink("x.npy")  # a task would find it missing
    with pytest.raises(rm.OptionError, match="nope"):
        rm.ray.write(ds, "out/", options={"nope": 1})


@pytest.mark.parametrize("way", ["write", "convert"])
def test_each_file_keeps_its_types_when_it_is_copied(way: str) -> None:
    images = np.arange(60 * 6, dtype=np.uint8).reshape(60, 2, 3)
    np.save("x.npy", images)
    if way == "convert":
        rm.convert({"x": "x.npy"}, "out/", format="tfrecord", shards=3, engine="ray")
    else:
        rows = ray.data.from_items([{"x": image} for image in images])
        rm.ray.write(rows, "out/", format="tfrecord", shards=3)
    Path("elsewhere").mkdir()
    for path in Path("out").glob("*.tfrecord"):
        shutil.copyfile(path, Path("elsewhere", path.name))
        alone = rm.open(Path("elsewhere", path.name))
        assert len(alone)
        assert alone.schema == {"x": "uint8[2,3]"}
    assert rm.open("elsewhere/*")[:]["x"].tolist() == images.tolist()


@pytest.mark.parametrize("compression", [None, "gzip"])
def test_joined_files_with_different_types_are_an_error(compression: Any) -> None:
    column = np.arange(80, dtype=np.float16).reshape(20, 4)
    parts = []
    for values in (column, column.view(np.float64)):
        with rm.TFRecordWriter("part.tfrecord", overwrite=True) as w:
            w.write({"x": values})
        parts.append(Path("part.tfrecord").read_bytes())
    data = b"".join(parts)
    Path("x.tfrecord").write_bytes(gzip.compress(data) if compression else data)
    with pytest.raises(rm.FieldMismatchError, match=r"record 20 says 'x' is float64\[1\]"):
        rm.convert("x.tfrecord", "out/", format="npy", shards=2, engine="ray")
