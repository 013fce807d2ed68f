"""The cache is damaged while it is read: the data stays right, and nothing crashes."""

from __future__ import annotations

import glob
import io
import os
import shutil
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import h5py
import numpy as np
import pytest

import recmap as rm

if TYPE_CHECKING:
    from tests.buckets import HttpFolder

ROWS = 3_000
X = np.random.default_rng(0).integers(0, 255, (ROWS, 1_000), np.uint8)


def npy() -> bytes:
    file = io.BytesIO()
    np.save(file, X)
    return file.getvalue()


def npz(save: Callable[..., None]) -> bytes:
    file = io.BytesIO()
    save(file, x=X)
    return file.getvalue()


def hdf5(**options: Any) -> bytes:
    with h5py.File("x.h5", "w") as file:
        file.create_dataset("x", data=X, **options)
    with open("x.h5", "rb") as made:
        return made.read()


def written(name: str) -> bytes:
    rm.from_arrays({"x": X}).save(name, options={"durable": False})
    with open(name, "rb") as made:
        return made.read()


FILES: dict[str, Callable[[], bytes]] = {
    "x.npy": npy,
    "x.npz": lambda: npz(np.savez),
    "deflated.npz": lambda: npz(np.savez_compressed),
    "x.h5": hdf5,
    "chunked.h5": lambda: hdf5(chunks=(500, 1_000)),
    "x.parquet": lambda: written("x.parquet"),
    "x.arrow": lambda: written("x.arrow"),
    "x.bin": X.tobytes,
}


def kept() -> list[str]:
    """The files with the blocks of objects."""
    return glob.glob(f"{glob.escape(os.environ['RECMAP_CACHE'])}/*/*/data")


def flip(path: str) -> None:
    with open(path, "r+b") as file:
        for at in range(5_000, os.path.getsize(path), 100_000):
            file.seek(at)
            (byte,) = file.read(1)
            file.seek(at)
            file.write(bytes([byte ^ 0x10]))


def cut_and_extend(path: str) -> None:
    size = os.path.getsize(path)
    os.truncate(path, size // 3)
    os.truncate(path, size)


DAMAGES: dict[str, Callable[[str], None]] = {
    "flipped": flip,
    "cut": lambda path: os.truncate(path, os.path.getsize(path) // 2),
    "emptied": lambda path: os.truncate(path, 0),
    "cut and extended": cut_and_extend,
    "without its table": lambda path: os.unlink(os.path.join(os.path.dirname(path), "table")),
    "removed": lambda path: shutil.rmtree(os.path.dirname(path)),
}


def opened(folder: HttpFolder, name: str) -> rm.Dataset:
    options: Any = {"dtype": "uint8", "shape": (-1, 1_000)} if name == "x.bin" else {}
    return rm.open(folder.url_of(name), storage=folder.storage, **options)


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_damage_in_use_never_gives_wrong_data(http_folder: HttpFolder, name: str) -> None:
    http_folder.put(name, FILES[name]())
    ds = opened(http_folder, name)
    [column] = ds.schema
    held = []
    for damage in DAMAGES.values():
        for _ in range(2):  # fetched, and then from the cache
            assert np.array_equal(ds[:][column], X)
        held.append(ds[1_000:2_500][column])
        assert kept()
        for path in kept():
            damage(path)
        assert np.array_equal(ds[[2_999, 7, 1_500]][column], X[[2_999, 7, 1_500]])
        assert np.array_equal(ds[100:2_900][column], X[100:2_900])
        batches = [batch[column] for batch in ds.batch(500)]
        assert sum(batch.sum() for batch in batches) == X.sum()
    for each in held:  # what was given away does not change, and can be read
        assert np.array_equal(each, X[1_000:2_500])


@pytest.mark.parametrize("damage", ["flipped", "cut", "cut and extended"])
def test_damage_between_two_reads_of_parts_is_noticed(http_folder: HttpFolder, damage: str) -> None:
    """The object is not in the cache as a whole, so it is never mapped."""
    http_folder.put("x.npy", npy())
    ds = opened(http_folder, "x.npy")
    first = ds[:1_200]["data"].copy()
    for path in kept():
        DAMAGES[damage](path)
    assert np.array_equal(ds[:1_200]["data"], first)
    assert np.array_equal(ds[5:9]["data"], X[5:9])
    http_folder.proxy.reset()
    assert np.array_equal(ds[5:1_100]["data"], X[5:1_100])
    assert http_folder.proxy.count("GET") == 0  # the cache is sound again


@pytest.mark.slow
@pytest.mark.parametrize("damage", ["flipped", "cut", "emptied", "cut and extended"])
def test_damaged_records_are_errors_or_fetched_again(http_folder: HttpFolder, damage: str) -> None:
    rm.from_arrays({"x": X}).save("x.tfrecord", options={"durable": False})
    for name in ("x.tfrecord", ".x.tfrecord.recmap"):
        with open(name, "rb") as file:
            http_folder.put(name, file.read())
    ds = rm.open(http_folder.url_of("x.tfrecord"), storage=http_folder.storage)
    for _ in range(3):
        assert np.array_equal(ds[:]["x"], X)
    column = ds["x"]
    for path in kept():
        DAMAGES[damage](path)
    for rows in (slice(0, ROWS), [1, 2_999, 1_400]):
        try:
            assert np.array_equal(ds[rows]["x"], X[rows])
        except rm.DataError as e:
            assert "x.tfrecord" in str(e)  # noqa: PT017
        try:
            assert np.array_equal(np.asarray(column[rows]), X[rows])
        except rm.DataError as e:
            assert "x.tfrecord" in str(e)  # noqa: PT017
    again = rm.open(http_folder.url_of("x.tfrecord"), storage=http_folder.storage)
    assert np.array_equal(again[:]["x"], X)
