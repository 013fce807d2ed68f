"""rm.open and rm.convert take NumPy arrays and memory maps of any layout."""

from __future__ import annotations

import multiprocessing
import os
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st

import recmap as rm
from tests.limited import MB, run_limited

DTYPES = ("u1", "<i2", ">i4", "<f4", ">f8", "<c8", "?", "<M8[s]", "S3", "<U2")


def random_array(draw: Any, folder: str | None) -> npt.NDArray[Any]:
    """Return an array of a random dtype, shape and layout, in memory or mapped from a file."""
    dtype = np.dtype(draw(st.sampled_from(DTYPES)))
    shape = tuple(draw(st.lists(st.integers(1, 7), min_size=1, max_size=3)))
    order = draw(st.sampled_from("CF"))
    count = int(np.prod(shape))
    seed = draw(st.integers(0, 1 << 30))
    offset = draw(st.sampled_from([0, 3, 128, 5000]))
    raw = np.random.default_rng(seed).integers(65, 91, count * dtype.itemsize, np.uint8)
    values = raw.view("?") if dtype == "?" else raw.view(dtype) if dtype.kind != "U" else None
    if values is None:
        values = np.array([chr(65 + n % 26) for n in range(count)], dtype)
    if dtype.kind == "b":
        values = raw[:count] % 2 == 0
    if folder is None:
        array: npt.NDArray[Any] = np.asarray(values.reshape(shape), order=order)
    else:
        path = f"{folder}/{seed}.dat"
        mapped = np.memmap(path, dtype, "w+", offset, shape, order=order)
        mapped[...] = values.reshape(shape)
        array = mapped
    step = st.sampled_from([1, 1, 2, -1, -2])
    array = array[tuple(slice(None, None, draw(step)) for _ in shape)]
    if draw(st.booleans()):
        array = np.moveaxis(array, -1, 0)
    if draw(st.booleans()):
        array = np.asarray(array)
    return array


def plain(rows: Any) -> Any:
    """Return rows as plain values, text as bytes."""
    if isinstance(rows, list):
        return [plain(row) for row in rows]
    return rows.encode() if isinstance(rows, str) else rows


def assert_same(found: Any, wanted: npt.NDArray[Any]) -> None:
    if wanted.dtype.kind in "SU":
        assert found.tolist() == plain(wanted.tolist())
    else:
        assert found.dtype == wanted.dtype
        assert np.array_equal(found, wanted)


@pytest.mark.parametrize("mapped", [False, True])
@given(data=st.data())
def test_arrays_of_any_layout_are_read_as_numpy_reads_them(
    mapped: bool, data: st.DataObject
) -> None:
    folder = os.getcwd() if mapped else None
    array = random_array(data.draw, folder)
    if array.ndim == 1 and array.dtype.kind in "SU":
        array = array[:, None]  # otherwise its text would be paths
    ds = rm.open(array)
    assert len(ds) == len(array)
    assert list(ds.schema) == ["data"]
    rows = np.random.default_rng(0).integers(0, len(array), 9)
    start, stop = sorted(rows[:2].tolist())
    assert_same(ds[start:stop]["data"], array[start:stop])
    assert_same(ds[rows]["data"], array[rows])
    again = pickle.loads(pickle.dumps(ds))
    assert_same(again[rows]["data"], array[rows])
    assert (ds.files != []) == mapped


def test_a_memmap_becomes_tfrecord_in_one_line() -> None:
    x = np.memmap("x.dat", np.float32, "w+", shape=(1000, 10))
    x[:] = np.random.default_rng(0).random(x.shape)
    report = rm.convert(x, "x.tfrecord", verify="full")
    assert report.rows == 1000
    assert np.array_equal(rm.open("x.tfrecord")[:]["data"], x)
    rm.convert("x.dat", "y.tfrecord", dtype="float32", shape=(-1, 10))
    assert Path("x.tfrecord").read_bytes() == Path("y.tfrecord").read_bytes()


def memmap(rows: int = 100) -> np.memmap[Any, Any]:
    x = np.memmap("x.dat", np.int32, "w+", 12, (rows, 4))
    x[:] = np.arange(rows * 4).reshape(x.shape)
    return x


def windows(x: npt.NDArray[Any]) -> npt.NDArray[Any]:
    return np.lib.stride_tricks.sliding_window_view(x, 3, axis=0)


VIEWS = {
    "all": lambda x: x,
    "rows": lambda x: x[10:50],
    "every third row, backwards": lambda x: x[::-3],
    "columns": lambda x: x[:, 1:3],
    "one column": lambda x: x[:, 2],
    "transposed": lambda x: x.T,
    "reshaped": lambda x: x.reshape(-1, 2, 2),
    "another dtype": lambda x: x.view(">u2"),
    "a plain array": lambda x: np.asarray(x[3:]),
    "windows": windows,
    "fields": lambda x: x.view([("a", "i4"), ("b", [("c", "i4", 2), ("d", "i4")])])[:, 0],
}


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
def test_views_of_a_memmap_are_found_in_its_file(view: Any) -> None:
    array = view(memmap())
    ds = rm.open(array)
    assert ds.files == [os.path.abspath("x.dat")]
    assert len(pickle.dumps(ds)) < 2000
    again = pickle.loads(pickle.dumps(ds))
    expected = rm.from_arrays(
        {"data": array}
        if array.dtype.names is None
        else {"a": array["a"], "b.c": array["b"]["c"], "b.d": array["b"]["d"]}
    )
    for opened in (ds, again):
        assert opened.columns == expected.columns
        for name in expected.columns:
            assert np.array_equal(opened[name], expected[name])
    ds.save("y.npz", verify="full", overwrite=True)
    assert np.array_equal(rm.open("y.npz")[:][ds.columns[0]], expected[ds.columns[0]])


@pytest.mark.parametrize("start", ["fork", "spawn"])
def test_processes_map_a_memmap_themselves(start: str) -> None:
    x = memmap(64)[::2]
    train = rm.open({"x": x, "y": np.arange(32)}).shuffle(seed=1)
    train = train.map(_twice, workers=f"{start}:2")
    found = {int(b["y"][i]): b["x"][i] for b in train.batch(5) for i in range(len(b["y"]))}
    assert sorted(found) == list(range(32))
    assert all(np.array_equal(found[i], 2 * x[i]) for i in found)


def _twice(row: dict[str, Any]) -> dict[str, Any]:
    return {**row, "x": row["x"] * 2}


def test_processes_convert_a_memmap() -> None:
    x = memmap(1000)[::-1]
    rm.convert(x, "out/", shards=3, workers="processes:2", verify="full")
    assert np.array_equal(rm.open("out/")[:]["data"], x)


@pytest.mark.slow
def test_changes_to_a_writable_memmap_are_seen_without_flushing() -> None:
    x = memmap()
    ds = rm.open(x)
    x[5] = -1
    assert ds[5]["data"].tolist() == [-1] * 4
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(_row, (ds, 5)) == [-1] * 4


def _row(ds: Any, number: int) -> Any:
    return ds[number]["data"].tolist()


def copy_on_write() -> np.memmap[Any, Any]:
    memmap().flush()
    x = np.memmap("x.dat", np.int32, "c", 12, (100, 4))
    x[7] = 0
    return x


def replaced() -> np.memmap[Any, Any]:
    x = memmap()
    other = np.memmap("other.dat", np.int32, "w+", 12, (100, 4))
    other.flush()
    os.replace("other.dat", "x.dat")
    return x


def removed() -> np.memmap[Any, Any]:
    x = memmap()
    os.remove("x.dat")
    return x


def nameless() -> np.memmap[Any, Any]:
    memmap().flush()
    descriptor = os.open("x.dat", os.O_RDONLY)
    try:
        with os.fdopen(descriptor, "rb", closefd=False) as file:
            return np.memmap(file, np.int32, "r", 12, (100, 4))
    finally:
        os.close(descriptor)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (copy_on_write, 'mode is "c"'),
        (replaced, "removed or replaced"),
        (removed, "removed or replaced"),
        (nameless, "does not know the path"),
    ],
)
def test_a_memmap_whose_file_is_not_certain_is_read_only_here(make: Any, why: str) -> None:
    x = make()
    ds = rm.open(x)
    assert ds.files == []
    assert np.array_equal(ds[:]["data"], x)
    assert np.array_equal(ds[[7, 0, 99]]["data"], x[[7, 0, 99]])
    with pytest.raises(rm.OptionError, match=why):
        pickle.dumps(ds)
    with pytest.raises(rm.OptionError, match="use threads"):
        ds.save("out/", shards=2, workers="processes:2")
    ds.save("y.npy", verify="full")
    assert np.array_equal(np.load("y.npy"), x)
    train = ds.shuffle(seed=1).map(_first, workers="processes:2").batch(50)
    assert sum(int(batch["data"].sum()) for batch in train) == int(x[:, 0].sum())


def _first(row: dict[str, Any]) -> dict[str, Any]:
    return {"data": row["data"][0]}


def test_a_copy_of_a_memmap_is_in_memory() -> None:
    x = memmap().copy()
    assert isinstance(x, np.memmap)
    ds = rm.open(x)
    assert ds.files == []
    assert np.array_equal(pickle.loads(pickle.dumps(ds))[:]["data"], x)


def stop_after(files: int) -> Any:
    def watch(progress: Any) -> None:
        if progress.rows >= files * 250:
            raise KeyboardInterrupt

    return watch


def begin(x: Any) -> None:
    with pytest.raises(KeyboardInterrupt):
        rm.convert(x, "out/", shards=4, workers=1, progress=stop_after(2))


def test_a_conversion_of_a_memmap_resumes() -> None:
    x = memmap(1000)
    begin(x)
    again = np.memmap("x.dat", np.int32, "r", 12, (1000, 4))
    assert rm.convert(again, "out/", shards=4).resumed >= 1
    assert np.array_equal(rm.open("out/")[:]["data"], x)


@pytest.mark.parametrize("other", [lambda x: x[::-1], lambda x: x.view("f4"), np.array])
def test_a_conversion_of_other_rows_is_not_resumed(other: Any) -> None:
    x = memmap(1000)
    begin(x)
    with pytest.raises(rm.OutputExistsError, match="another conversion"):
        rm.convert(other(x), "out/", shards=4)


def test_a_conversion_of_rows_in_memory_starts_over() -> None:
    x = np.arange(4000).reshape(1000, 4)
    begin(x)
    with pytest.raises(rm.OutputExistsError):
        rm.convert(x, "out/", shards=4)
    assert rm.convert(x, "out/", shards=4, overwrite=True).resumed == 0


def test_the_output_is_not_written_over_the_memmap_it_is_read_from() -> None:
    np.save("x.npy", np.arange(10))
    with pytest.raises(rm.OptionError, match="while it is read"):
        rm.convert(np.load("x.npy", mmap_mode="r"), "x.npy", overwrite=True)


def test_structured_arrays_have_a_column_per_field() -> None:
    array = np.zeros(3, [("at", [("x", "<f4"), ("y", ">f4", 2)]), ("name", "S4")])
    array["at"]["y"] = [[1, 2], [3, 4], [5, 6]]
    array["name"] = [b"a", b"bc", b""]
    np.save("x.npy", array)
    for opened in (array, np.load("x.npy", mmap_mode="r"), array.view(np.recarray), "x.npy"):
        ds = rm.open(opened)
        assert ds.schema == {"at.x": "float32", "at.y": ">f4[2]", "name": "bytes"}
        assert np.array_equal(ds["at.y"], array["at"]["y"])
        assert ds[:]["name"].tolist() == [b"a", b"bc", b""]


def test_arrays_are_not_copied() -> None:
    x = np.zeros((1000, 4), ">f4")[::2]
    assert np.shares_memory(rm.open(x)["data"], x)
    assert not rm.open(x)["data"].flags.writeable
    assert np.shares_memory(rm.open({"x": x})["x"], x)


def test_masked_values_of_an_array_are_nulls() -> None:
    masked = np.ma.masked_array([1, 2, 3], [False, True, False])
    assert rm.open(masked)[:]["data"].tolist() == [1, None, 3]
    assert rm.open(np.ma.masked_array([1, 2]))["data"].tolist() == [1, 2]


@pytest.mark.slow
def test_a_memmap_larger_than_the_limit_is_converted_and_shuffled(tmp_path: Path) -> None:
    path = str(tmp_path / "x.dat")
    x = np.memmap(path, np.float32, "w+", shape=(200_000, 256))
    x[:, 0] = np.arange(200_000)
    x.flush()
    del x
    limit = 60 * MB + 10 * 8 * MB  # ten threads, whose stacks count
    body = f"""
x = np.memmap({path!r}, np.float32, "r", shape=(200_000, 256))
for rows in (x, x[::-1]):
    print(rm.open(rows).shuffle(seed=1).save("y.tfrecord", memory="60MB", overwrite=True).rows)
    print(rm.convert(rows, "z.npy", memory="60MB", verify="full", overwrite=True).rows)
total = 0
for batch in rm.open(x).shuffle(seed=1).batch(64).take(1000):
    total += len(batch["data"])
print(total)
"""
    assert run_limited(body, limit).split() == ["200000"] * 4 + ["64000"]


def folder_of_paths() -> Iterator[Any]:
    for n in range(3):
        np.save(f"{n}.npy", np.full(2, n))
    names = [f"{n}.npy" for n in range(3)]
    yield names
    yield tuple(map(Path, names))
    yield map(os.fsencode, names)
    yield np.array(names)
    yield np.array(names, object)
    yield (name for name in names)
    yield sorted(Path().glob("*.npy"))


def test_paths_come_in_any_collection() -> None:
    for paths in folder_of_paths():
        assert rm.open(paths)["data"][:].tolist() == [0, 0, 1, 1, 2, 2]


def test_a_path_may_be_bytes_or_begin_with_a_tilde(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", os.getcwd())
    np.save("x.npy", np.arange(3))
    for path in (b"x.npy", "~/x.npy", Path("~/x.npy"), b"~/x.npy"):
        assert len(rm.open(path)) == 3
        assert rm.convert(path, "~/y.npy", overwrite=True).rows == 3
    assert os.path.exists("y.npy")


def test_text_that_names_no_file_says_how_to_open_a_column() -> None:
    with pytest.raises(rm.PathNotFoundError, match="column of text"):
        rm.open(np.array(["a cat", "a dog"]))
    assert rm.open({"text": np.array(["a cat", "a dog"])})[1]["text"] == b"a dog"
