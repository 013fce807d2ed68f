"""Row groups that are decoded ahead while rows are read in order."""

from __future__ import annotations

import os
import random
import warnings
from concurrent.futures import Future
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import recmap as rm
from recmap.chunks import groups

X = np.arange(6000, dtype="<f4").reshape(1000, 6)


@pytest.fixture(params=["x.h5", "x.zarr", "tiles.zarr", "bz2.zarr"])
def path(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Write chunks of 50 rows, and let recmap use more threads than a read has chunks."""
    monkeypatch.setenv("RECMAP_THREADS", "6")
    name: str = request.param
    if name == "x.h5":
        with h5py.File(name, "w") as file:
            file.create_dataset("x", data=X, chunks=(50, 6), compression="gzip", shuffle=True)
        return name
    options: dict[str, Any] = {"chunks": (50, 4 if name == "tiles.zarr" else 6)}
    if name == "bz2.zarr":  # only zarr decodes it
        import numcodecs

        options["compressors"] = numcodecs.BZ2()
    zarr.create_group(name, zarr_format=2).create_array("x", data=X, **options)
    return name


def test_rows_read_in_order_and_after_a_jump_are_right(path: str) -> None:
    ds, rng = rm.open(path), random.Random(0)
    at = 0
    for _ in range(300):
        size = rng.choice([1, 7, 30, 50, 120])
        if rng.random() < 0.05:
            at = rng.randrange(1000)
        stop = min(at + size, 1000)
        assert np.array_equal(ds[at:stop]["x"], X[at:stop])
        at = stop % 1000


def _damage(path: str) -> None:
    """Overwrite a part of the chunk with rows 600 to 650."""
    if path == "x.h5":
        with h5py.File(path) as file:
            place = file["x"].id.get_chunk_info(12)
        with open(path, "r+b") as raw:
            raw.seek(place.byte_offset + 2)
            raw.write(b"\xff" * 8)
    else:
        with open(f"{path}/x/12.0", "r+b") as raw:
            raw.write(b"\xff" * 8)


@pytest.mark.parametrize("size", [50, 60, 100, 125])
def test_reads_of_one_size_are_decoded_into_their_place(path: str, size: int) -> None:
    ds = rm.open(path)
    taken = [ds[start : start + size]["x"] for start in range(0, 700, size)]
    # A read that is not the one expected, the rest in the old size, and all once more.
    taken.append(ds[len(taken) * size : len(taken) * size + 70]["x"])
    at = len(np.concatenate(taken))
    taken += [ds[start : start + size]["x"] for start in range(at, 1000, size)]
    assert np.array_equal(np.concatenate(taken), X)
    again = np.concatenate([batch["x"] for batch in ds.batches(size)])
    assert np.array_equal(again, X)


@pytest.mark.parametrize("size", [50, 100])
def test_damage_in_a_read_that_was_expected_is_an_error_of_that_read(path: str, size: int) -> None:
    _damage(path)
    ds = rm.open(path)
    for start in range(0, 600, size):
        assert np.array_equal(ds[start : start + size]["x"], X[start : start + size])
    for _ in range(2):
        with pytest.raises(rm.DataError, match="'x'"):
            ds[600 : 600 + size]
    assert np.array_equal(ds[700:800]["x"], X[700:800])


def test_damage_is_an_error_when_its_rows_are_read(path: str) -> None:
    _damage(path)
    ds = rm.open(path)
    for start in range(0, 600, 20):
        assert np.array_equal(ds[start : start + 20]["x"], X[start : start + 20])
    for _ in range(2):
        with pytest.raises(rm.DataError, match="'x'"):
            ds[600:620]
    assert np.array_equal(ds[650:700]["x"], X[650:700])


def test_a_forked_process_reads_on(path: str) -> None:
    ds = rm.open(path)
    for start in range(0, 200, 20):
        assert np.array_equal(ds[start : start + 20]["x"], X[start : start + 20])
    if path == "bz2.zarr":
        return  # zarr has a thread of its own, which does not survive a fork
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about forking with threads
        process = os.fork()
    if not process:
        os._exit(0 if np.array_equal(ds[200:300]["x"], X[200:300]) else 1)
    assert os.waitpid(process, 0)[1] == 0


@pytest.mark.parametrize("size", [7, 50, 100])
def test_a_read_decodes_itself_what_no_thread_has_begun(
    path: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(groups, "submit", lambda *_, **__: Future())
    ds = rm.open(path)
    taken = [ds[start : start + size]["x"] for start in range(0, 1000, size)]
    assert np.array_equal(np.concatenate(taken), X)
    assert np.array_equal(ds[999]["x"], X[999])
