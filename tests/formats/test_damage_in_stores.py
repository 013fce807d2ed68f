"""Damage in an object is reported like damage in a file, with the URL in place of the path."""

from __future__ import annotations

import gc
import os
import re
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import recmap as rm
from tests.formats.test_stores import columns, uploaded

if TYPE_CHECKING:
    from tests.buckets import Bucket

FORMATS: dict[str, tuple[str, dict[str, Any]]] = {
    "tfrecord": ("x.tfrecord", {}),
    "tfrecord-gzip": ("x.tfrecord.gz", {}),
    "tfrecord-zlib": ("x.tfrecord.zlib", {}),
    "npz": ("x.npz", {}),
    "npz-deflated": ("x.npz", {"compression": "deflate"}),
    "hdf5": ("x.h5", {"options": {"chunk_rows": 16}}),
    "hdf5-gzip": ("x.h5", {"compression": "gzip"}),
    "zarr": ("x.zarr", {"options": {"chunk_rows": 32}}),
}
ROWS = 100


def damage(data: bytes, rng: np.random.Generator) -> bytes:
    """Cut the data, or change a few bytes of it, often near an end, where headers are."""
    if rng.random() < 0.25:
        return data[: int(rng.integers(0, len(data)))]
    changed = bytearray(data)
    for _ in range(int(rng.integers(1, 4))):
        place = int(rng.integers(0, len(data)))
        if rng.random() < 0.5:
            place = min(int(rng.integers(0, 300)), len(data) - 1)
        elif rng.random() < 0.5:
            place = max(0, len(data) - 1 - int(rng.integers(0, 600)))
        changed[place] ^= int(rng.integers(1, 256))
    return bytes(changed)


def outcome(path: str, **options: Any) -> Any:
    """Return what reading a file gives: digests of the columns, or the facts of the error."""
    place = path.rstrip("/")

    def plain(text: object) -> str:
        named = str(text).replace(f"{place}/", "PATH").replace(place, "PATH")
        return re.sub(" at 0x[0-9a-f]+", "", named)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            ds = rm.open(path, **options)
            found: Any = {name: hash(column_bytes(column)) for name, column in ds[:].items()}
            rows = np.arange(len(ds))[::-3]
            found["gathered"] = [hash(column_bytes(column)) for column in ds[rows].values()]
        except rm.RecmapError as e:
            text = plain(e)
            # The libraries say where they read from.
            text = re.sub("(HDF5 library cannot read it|not a valid Zarr store).*", r"\1", text)
            facts = [getattr(e, name, None) for name in ("byte", "record", "field")]
            found = type(e).__name__, text, facts
    return found, sorted(plain(each.message) for each in caught if "cannot be" not in str(each))


def column_bytes(column: Any) -> bytes:
    if isinstance(column, rm.Ragged):
        return column.offsets.tobytes() + column_bytes(column.flat)
    return bytes(column.tobytes())


@pytest.fixture
def _no_garbage_collection() -> Iterator[None]:
    """Keep threads of the servers from waiting for h5py, whose objects they might collect."""
    gc.disable()
    yield
    gc.enable()


@pytest.mark.slow
@pytest.mark.usefixtures("_no_garbage_collection")
@pytest.mark.parametrize("format", FORMATS)
def test_damage_is_reported_as_on_disk(gcs_bucket: Bucket, format: str) -> None:
    name, options = FORMATS[format]
    os.mkdir("local")
    rm.from_arrays(columns(ROWS)).save(f"local/{name}", **options)
    for index in Path("local").glob(".*.recmap"):
        index.unlink()
    keys = uploaded(gcs_bucket, "local")
    rng = np.random.default_rng(5)
    found = set()
    for _ in range(8):
        key = keys[int(rng.integers(0, len(keys)))]
        with open(f"local/{key}", "rb") as file:
            sound = file.read()
        damaged = damage(sound, rng)
        with open(f"local/{key}", "wb") as file:
            file.write(damaged)
        gcs_bucket.put(key, damaged)
        wanted = outcome(f"local/{name}")
        assert outcome(gcs_bucket.url_of(name), storage=gcs_bucket.storage) == wanted
        found.add(str(wanted))
        with open(f"local/{key}", "wb") as file:
            file.write(sound)
        gcs_bucket.put(key, sound)
    assert len(found) > 1
