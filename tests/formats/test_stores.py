"""Every format is read from every kind of store as it is read from disk."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import recmap as rm

if TYPE_CHECKING:
    from tests.buckets import Bucket

ROWS = 500


def columns(rows: int = ROWS, seed: int = 1) -> dict[str, Any]:
    """Return numbers, lists, strings and lists of strings."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(0, 9, rows)
    ends = np.cumsum([0, *lengths])
    words = [rng.bytes(int(n)) for n in rng.integers(0, 12, int(ends[-1]))]
    return {
        "image": rng.integers(0, 256, (rows, 31, 7), np.uint8),
        "label": np.arange(rows),
        "tokens": rm.Ragged(rng.integers(0, 1 << 40, int(ends[-1])), ends),
        "name": rm.Ragged.from_bytes([rng.bytes(int(n)) for n in rng.integers(0, 40, rows)]),
        "words": rm.Ragged(rm.Ragged.from_bytes(words), ends),
    }


def fixed(rows: int = ROWS, seed: int = 1) -> dict[str, Any]:
    made = columns(rows, seed)
    return {"image": made["image"], "label": made["label"]}


@dataclass(frozen=True)
class Case:
    """A format: how the files of ``folder`` are made, and the path of the dataset in it."""

    name: str
    path: str
    make: Callable[[str], object]

    @property
    def is_zarr(self) -> bool:
        return self.name.startswith("zarr")


def saved(name: str, make: Callable[[], dict[str, Any]] = columns, **options: Any) -> Any:
    return lambda folder: rm.from_arrays(make()).save(f"{folder}/{name}", **options)


def zlib_records(folder: str) -> None:
    rm.from_arrays(columns()).save(f"{folder}/x.tfrecord.zlib", compression="zlib")


def gzip_stream(folder: str) -> None:
    """Write a file with one member, as other programs do."""
    import gzip

    rm.from_arrays(columns()).save(f"{folder}/plain.tfrecord")
    with open(f"{folder}/plain.tfrecord", "rb") as file:
        data = file.read()
    os.unlink(f"{folder}/plain.tfrecord")
    with gzip.open(f"{folder}/x.tfrecord.gz", "wb") as packed:
        packed.write(data)


def hdf5_layouts(folder: str) -> None:
    """Write contiguous, compact, chunked, virtual and compound datasets, and lists."""
    import h5py

    made = columns()
    with h5py.File(f"{folder}/x.h5", "w") as file:
        file["contiguous"] = made["image"]
        file["strings"] = [f"row {i}" for i in range(ROWS)]
        file["bytes"] = np.array([b"%d" % i for i in range(ROWS)])
        table = np.zeros(ROWS, [("a", "<i4"), ("b", "<f8", 3)])
        table["a"], table["b"] = made["label"], np.random.default_rng(2).random((ROWS, 3))
        file["table"] = table
        file.create_dataset("tiles", data=made["image"], chunks=(7, 16, 3), compression="lzf")
        file.create_dataset("big-endian", data=made["label"].astype(">i8"), chunks=(64,))
        file.create_dataset("scaled", data=made["label"], chunks=(64,), scaleoffset=0)
        lists = file.create_dataset("lists", ROWS, h5py.vlen_dtype("<i4"))
        for i in range(ROWS):
            lists[i] = np.arange(i % 5)
        whole = h5py.VirtualLayout(ROWS, "<i8")
        whole[:] = h5py.VirtualSource(".", "big-endian", ROWS)
        file.create_virtual_dataset("virtual", whole)


CASES = [
    Case("tfrecord", "x.tfrecord", saved("x.tfrecord")),
    Case("tfrecord-shards", "x-*.tfrecord", saved("x.tfrecord", shards=3)),
    Case("tfrecord-gzip", "x.tfrecord.gz", saved("x.tfrecord.gz")),
    Case("tfrecord-gzip-stream", "x.tfrecord.gz", gzip_stream),
    Case("tfrecord-gzip-shards", "x-*", saved("x.tfrecord.gz", shards=3)),
    Case("tfrecord-zlib", "x.tfrecord.zlib", zlib_records),
    Case("npy", "x.npy", saved("x.npy", fixed)),
    Case("npz", "x.npz", saved("x.npz")),
    Case("npz-shards", "x-*.npz", saved("x.npz", shards=3)),
    Case("npz-deflated", "x.npz", saved("x.npz", compression="deflate")),
    Case("hdf5", "x.h5", saved("x.h5", options={"chunk_rows": 16})),
    Case("hdf5-gzip", "x.h5", saved("x.h5", compression="gzip")),
    Case("hdf5-shards", "x-*.h5", saved("x.h5", shards=3)),
    Case("hdf5-layouts", "x.h5", hdf5_layouts),
    Case("zarr", "x.zarr", saved("x.zarr", options={"chunk_rows": 100})),
    Case("zarr-2", "x.zarr", saved("x.zarr", options={"version": 2})),
    Case("zarr-shards", "x-*.zarr", saved("x.zarr", shards=2)),
    Case("raw-shards", "x-*.bin", saved("x.bin", fixed, shards=3)),
]
every_case = pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)


def uploaded(store: Bucket, folder: str) -> list[str]:
    """Upload a folder, and return the keys."""
    keys = []
    for inside, _, names in os.walk(folder):
        for name in names:
            path = os.path.join(inside, name)
            key = os.path.relpath(path, folder)
            with open(path, "rb") as file:
                store.put(key, file.read())
            keys.append(key)
    return sorted(keys)


def urls(store: Bucket, case: Case, folder: str) -> str | list[str]:
    """Return what opens the dataset; an HTTP server has no patterns."""
    if store.listed or "*" not in case.path:
        return store.url_of(case.path)
    names = rm.open(f"{folder}/{case.path}").files
    return [store.url_of(os.path.relpath(name, folder)) for name in names]


def assert_same(found: Any, wanted: Any) -> None:
    if isinstance(wanted, dict):
        assert list(found) == list(wanted)
        for name in wanted:
            assert_same(found[name], wanted[name])
    elif isinstance(wanted, rm.Ragged):
        assert isinstance(found, rm.Ragged)
        assert found.lengths.tolist() == wanted.lengths.tolist()
        assert_same(found.flat, wanted.flat)
    else:
        wanted = np.asarray(wanted)
        assert (found.dtype, found.shape) == (wanted.dtype, wanted.shape)
        assert found.tobytes() == wanted.tobytes()


@every_case
@pytest.mark.filterwarnings("ignore::recmap.errors.SlowOrderWarning")
def test_rows_in_a_store_equal_those_on_disk(any_store: Bucket, case: Case) -> None:
    os.mkdir("local")
    case.make("local")
    uploaded(any_store, "local")
    ds = rm.open(urls(any_store, case, "local"), storage=any_store.storage)
    local = rm.open(f"local/{case.path}")
    assert ds.schema == local.schema
    assert len(ds) == len(local) == ROWS
    rng = np.random.default_rng(2)
    for a, b in [(0, ROWS), (0, 1), (ROWS - 1, ROWS), *np.sort(rng.integers(0, ROWS, (3, 2)))]:
        assert_same(ds[int(a) : int(b)], local[int(a) : int(b)])
    for count in (1, 7, 200):
        rows = rng.integers(0, ROWS, count)
        assert_same(ds[rows], local[rows])
    batches = zip(ds.shuffle(seed=3).batch(64), local.shuffle(seed=3).batch(64), strict=True)
    for batch, wanted in batches:
        assert_same(dict(batch), dict(wanted))
    info, wanted_info = ds.info(), local.info()
    assert (info.format, info.rows) == (wanted_info.format, wanted_info.rows)
    if any_store.listed or not case.is_zarr:  # a server does not tell the size of a folder
        assert info.size == wanted_info.size
