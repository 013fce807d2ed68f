"""Files that are read in order are loaded ahead, and rows are the same."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.machine.mapped import MappedFile
from tests.jobs import until
from tests.tfrecord.test_prefetch import Cached

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells what is cached")

ROWS, WIDTH = 6000, 1024
MB = 1 << 20


def saved(name: str) -> np.ndarray[Any, np.dtype[np.float32]]:
    values = np.random.default_rng(0).random((ROWS, WIDTH), np.float32)
    rm.from_arrays({"data": values}).save(name)
    return values


@pytest.mark.parametrize("name", ["d.npy", "d.tfrecord", "d.h5", "d.arrow", "d.zarr"])
def test_rows_in_order_are_the_same_when_pages_are_absent(name: str) -> None:
    values = saved(name)
    for batch in (7, 256, 5000):
        for path in [Path(name), *Path(name).rglob("*")]:
            if path.is_file():
                Cached(str(path))
        ds = rm.open(name)
        read = [rows["data"] for rows in ds.batch(batch)]
        assert np.array_equal(np.concatenate(read), values)


def loading() -> bool:
    """Return whether threads of this process load pages."""
    for task in os.listdir("/proc/self/task"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            if Path(f"/proc/self/task/{task}/comm").read_text() == "recmap-pages\n":
                return True
    return False


def test_threads_end_that_loaded_pages() -> None:
    saved("d.npy")
    Cached("d.npy")
    file = MappedFile("d.npy")
    for begin in range(0, 8 * MB, MB):
        file.will_read(begin, begin + MB)
    del file
    until(lambda: not loading())


def test_a_column_that_takes_little_of_a_file_does_not_load_the_rest() -> None:
    np.save("d.npy", np.zeros((24, MB), np.uint8))
    cached, file = Cached("d.npy"), MappedFile("d.npy")
    for begin in range(0, 16 * MB, MB):
        file.will_read(begin, begin + MB, read=100)
    assert not cached.dropped or not cached.pages().any()
