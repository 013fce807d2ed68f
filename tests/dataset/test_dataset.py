"""Looking at a dataset, and deriving others from it with rename and cast."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm

FORMATS = ["x.tfrecord", "x.tfrecord.gz", "x.npz", "x.h5", "x.zarr"]


def columns() -> dict[str, Any]:
    return {"x": np.arange(24, dtype=np.int32).reshape(6, 4), "y": np.arange(6), "t": [b"a"] * 6}


def dataset(name: str = "x.tfrecord") -> rm.Dataset:
    rm.from_arrays(columns()).save(name)
    return rm.open(name)


def test_head_reads_the_first_rows() -> None:
    ds = dataset()
    assert ds.head()["y"].tolist() == [0, 1, 2, 3, 4]
    assert ds.head(2)["x"].shape == (2, 4)
    assert len(ds.head(100)["y"]) == 6
    assert len(ds.head(0)["y"]) == 0
    with pytest.raises(rm.OptionError, match="n=-1"):
        ds.head(-1)


def test_columns_are_the_names_in_order() -> None:
    assert dataset().columns == ["x", "y", "t"]


@pytest.mark.parametrize("name", FORMATS)
def test_renamed_columns_hold_the_same_values(name: str) -> None:
    ds = dataset(name).rename({"x": "pixels", "t": "text"})
    assert ds.columns == ["pixels", "y", "text"]
    assert np.array_equal(np.asarray(ds["pixels"]), columns()["x"])
    assert ds[3]["text"] == b"a"
    assert np.array_equal(ds[[5, 0]]["pixels"], columns()["x"][[5, 0]])
    assert [batch["pixels"].shape for batch in ds.batches(4)] == [(4, 4), (2, 4)]


@pytest.mark.parametrize("name", FORMATS)
def test_cast_columns_have_the_new_type_and_the_same_values(name: str) -> None:
    ds = dataset(name).cast({"x": "float32", "y": np.uint8})
    assert str(ds.schema["x"]) == "float32[4]"
    assert str(ds.schema["y"]) == "uint8"
    assert ds[:]["x"].dtype == np.float32
    assert np.array_equal(ds[:]["x"], columns()["x"])
    assert next(iter(ds.batch(3)))["y"].tolist() == [0, 1, 2]


def test_a_renamed_column_is_still_mapped() -> None:
    np.save("x.npy", np.arange(12))
    renamed = rm.open("x.npy").rename({"data": "x"})
    assert isinstance(renamed["x"], np.ndarray)
    assert renamed["x"].base is not None


def test_values_that_the_new_type_cannot_hold_are_refused_unless_unsafe() -> None:
    ds = rm.from_arrays({"x": np.array([1.5, 2.0])})
    with pytest.raises(rm.FieldMismatchError, match="would lose values") as caught:
        ds.cast({"x": "int8"})[:]
    assert [option.name for option in caught.value.options] == ["casting"]
    assert ds.cast({"x": "int8"}, casting="unsafe")[:]["x"].tolist() == [1, 2]


def test_wrong_names_and_types_are_refused_at_once() -> None:
    ds = dataset()
    with pytest.raises(rm.FieldNotFoundError, match="'z'"):
        ds.rename({"z": "a"})
    with pytest.raises(rm.OptionError, match="same name"):
        ds.rename({"x": "y"})
    with pytest.raises(rm.OptionTypeError, match="names="):
        ds.rename(["x"])  # type: ignore[arg-type]
    with pytest.raises(rm.FieldNotFoundError, match="'z'"):
        ds.cast({"z": "f4"})
    with pytest.raises(rm.OptionError, match="'t' is bytes, which can be cast only to text"):
        ds.cast({"t": "f4"})
    with pytest.raises(rm.OptionError, match="casting="):
        ds.cast({"x": "f4"}, casting="maybe")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "derive",
    [
        lambda ds: ds.rename({"x": "a"}),
        lambda ds: ds.cast({"x": "float64"}),
        lambda ds: ds.rename({"x": "a"}).cast({"a": "float64"}).split({"s": 0.5})["s"],
        lambda ds: ds.split({"s": 0.5})["s"].rename({"x": "a"}),
    ],
)
def test_derived_datasets_pickle_and_reopen(derive: Any) -> None:
    ds = derive(dataset())
    again = pickle.loads(pickle.dumps(ds))
    assert again.schema == ds.schema
    for name in ds.columns[:2]:
        assert np.array_equal(again[:][name], ds[:][name])


def double(row: dict[str, Any]) -> dict[str, Any]:
    return {"a": row["a"] * 2}


@pytest.mark.parametrize("workers", ["fork:2", "spawn:2"])
def test_derived_datasets_are_read_by_workers(workers: str) -> None:
    ds = dataset().rename({"x": "a"}).cast({"a": "float64"})
    batches = list(ds.map(double, workers=workers).batch(6))
    assert np.array_equal(batches[0]["a"], columns()["x"] * 2.0)


def test_a_state_restores_only_to_the_same_renames_and_casts() -> None:
    ds = dataset()

    def half_way(of: rm.Dataset) -> Any:
        pipeline = of.batch(2)
        next(iter(pipeline))
        return pipeline.state()

    state = half_way(ds.rename({"x": "a"}))
    ds.rename({"x": "a"}).batch(2).restore(state)
    with pytest.raises(rm.OptionError):
        ds.batch(2).restore(state)
    with pytest.raises(rm.OptionError):
        ds.rename({"x": "b"}).batch(2).restore(state)
    with pytest.raises(rm.OptionError):
        ds.cast({"y": "float32"}).batch(2).restore(half_way(ds.cast({"y": "float64"})))


def test_another_cast_is_not_resumed_as_the_same_conversion() -> None:
    ds = dataset()
    ds.cast({"y": "int16"}).save("out/", shards=2)
    assert ds.cast({"y": "int16"}).save("out/", shards=2).resumed == 2
    with pytest.raises(rm.OutputExistsError):
        ds.cast({"y": "int8"}).save("out/", shards=2)
    assert str(rm.open("out/").schema["y"]) == "int16"


def test_a_dataset_is_converted_with_its_new_names() -> None:
    rm.convert(dataset().rename({"x": "pixels"}), "y.npz")
    assert rm.open("y.npz").columns == ["pixels", "y", "t"]


def test_threads_that_share_an_iterator_get_whole_rows_each_once(tmp_path: Path) -> None:
    rows = 20_000
    path = tmp_path / "x.tfrecord"
    numbers = np.arange(rows)
    rm.from_arrays({"x": numbers, "y": -numbers}).save(
        path, progress=False, options={"durable": False}
    )
    found: list[tuple[int, int]] = []

    def take(shared: Iterator[Any]) -> None:
        while True:
            with suppress(rm.OptionError):  # another thread reads the next block
                row = next(shared, None)
                if row is None:
                    return
                found.append((int(row["x"]), int(row["y"])))

    shared = iter(rm.open(path))
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(take, [shared] * 4))
    assert sorted(found) == [(x, -x) for x in range(rows)]


def test_columns_may_be_given_by_their_earlier_name() -> None:
    ds = rm.from_arrays({"x": np.arange(3), "y": np.arange(3)})
    ds.save("x.npz")
    for opened in (rm.open("x.npz", columns=["y"]), rm.open("x.npz", fields=["y"])):
        assert opened.columns == ["y"]
    assert rm.open("x.npz", ["y"]).columns == rm.open("x.npz", columns="y").columns == ["y"]
    with pytest.raises(rm.OptionTypeError, match="give only one"):
        rm.open("x.npz", columns=["x"], fields=["y"])


def test_ipython_completes_the_names_of_columns() -> None:
    ds = rm.from_arrays({"x": np.arange(3), "y": np.arange(3)})
    derived = {
        "x y": ds,
        "y": ds.select("y"),
        "z y": ds.rename({"x": "z"}),
        "new": ds.map(lambda row: {"new": row["x"]}),
        "x y ": ds.filter(len).shuffle(seed=1),
        "": ds.map(lambda row: row["nope"]),
    }
    for names, each in derived.items():
        assert each._ipython_key_completions_() == names.split()


def test_paths_and_datasets_are_taken_alike() -> None:
    ds: Any = rm.from_arrays({"x": np.arange(6)})
    ds.save("a.npy")
    ds.rename({"x": "y"}).save("b.npz")
    ds.save("c.tfrecord")
    for one in ("a.npy", Path("a.npy"), rm.open("a.npy"), ["a.npy"]):
        assert rm.diff(one, rm.open("a.npy")).same
        assert rm.verify(one).files == 1
    paths: list[Any] = ["a.npy", Path("b.npz")]
    assert rm.zip(*paths).columns == ["x", "y"]
    assert len(rm.mix(paths[0], ds)) == 12
    assert rm.index(rm.open("c.tfrecord")) == [".c.tfrecord.recmap"]
    with pytest.raises(rm.OptionTypeError, match="in memory"):
        rm.verify(ds)


def test_a_path_without_a_suffix_is_a_folder() -> None:
    ds = rm.from_arrays({"x": np.arange(6)})
    files = ds.save(Path("out/"), shards=2).files
    assert files == ["out/data-00000-of-00002.tfrecord", "out/data-00001-of-00002.tfrecord"]
    assert ds.save("one/").files == ["one/data.tfrecord"]
    assert rm.convert("one/", Path("two")).files == ["two/data.tfrecord"]
    assert rm.convert("one/", "two/").resumed == 1
    # A suffix or a format says that it is a file.
    assert ds.save(Path("x.npy")).files == ["x.npy"]
    assert ds.save(Path("x"), format="npy").files == ["x"]
    for wrong in (Path("x.what"), "y"):
        with pytest.raises(rm.OptionError, match="what format"):
            ds.save(wrong)
