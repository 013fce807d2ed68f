"""An input that changes while it is converted, indexed or repaired: an error, and no output."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

import recmap as rm

ROWS = 40_000


def rewrite(path: str) -> None:
    """Change a file in place, with rows of the same size."""
    with open(path, "r+b") as file:
        file.seek(-8, os.SEEK_END)
        file.write(b"\x07" * 8)
    # Kernels count time in steps of some milliseconds.
    os.utime(path, ns=(0, os.stat(path).st_mtime_ns + 1_000_000))


class Once:
    """Does something when a conversion first reports progress."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.work, self.done = work, False

    def __call__(self, *_: Any) -> None:
        if not self.done:
            self.done = True
            self.work()


def left(folder: str = ".") -> list[str]:
    return sorted(os.listdir(folder))


@pytest.mark.parametrize("src", ["x.npy", "x.tfrecord", "x.tfrecord.gz", "x.parquet", "x.h5"])
@pytest.mark.parametrize("dst", ["y.npy", "y.tfrecord", "y.zarr"])
def test_an_input_rewritten_in_place_is_an_error_and_the_old_output_stays(
    src: str, dst: str
) -> None:
    rm.from_arrays({"x": np.arange(ROWS)}).save(src)
    rm.from_arrays({"x": np.arange(5)}).save(dst)
    before = left()
    change = Once(lambda: rewrite(src))
    with pytest.raises(rm.DataError, match=src) as failed:
        rm.convert(src, dst, overwrite=True, memory="4MB", progress=change, verify=False)
    if src == "x.npy":  # others may notice it earlier
        assert isinstance(failed.value, rm.FileChangedError)
        assert "changed while it was converted" in str(failed.value)
    assert change.done
    assert left() == before
    assert len(rm.open(dst)) == 5


def test_several_shards_of_an_input_that_changed_are_not_a_finished_output() -> None:
    np.save("x.npy", np.arange(ROWS))
    for workers in (1, 2):
        with pytest.raises(rm.FileChangedError, match=r"x\.npy: changed while it was converted"):
            rm.convert(
                "x.npy",
                "out/",
                shards=4,
                workers=workers,
                overwrite=True,
                progress=Once(lambda: rewrite("x.npy")),
            )
    # The next conversion replaces what is there.
    rm.convert("x.npy", "out/", shards=3, overwrite=True)
    assert len(rm.open("out/")) == ROWS
    assert [name for name in left("out") if name.endswith(".tfrecord")] == [
        f"data-0000{i}-of-00003.tfrecord" for i in range(3)
    ]


def test_a_chunk_of_a_zarr_input_that_changes_is_noticed() -> None:
    array = zarr.create_array("x.zarr", shape=(ROWS,), chunks=(1000,), dtype="int64")
    array[:] = np.arange(ROWS)
    with pytest.raises(rm.FileChangedError, match=r"x\.zarr: changed while it was converted"):
        rm.convert("x.zarr", "y.npy", progress=Once(lambda: rewrite("x.zarr/c/39")))
    assert left() == ["x.zarr"]


def test_a_dataset_whose_file_changed_before_it_is_saved_is_refused() -> None:
    np.save("x.npy", np.arange(ROWS))
    ds = rm.open("x.npy")
    np.save("y.npy", np.arange(ROWS) + 5)
    os.replace("y.npy", "x.npy")
    with pytest.raises(rm.FileChangedError, match=r"x\.npy: was replaced by another file"):
        ds.save("z.npy")
    assert left() == ["x.npy"]


def test_an_input_that_changes_is_not_repaired_or_indexed() -> None:
    rm.from_arrays({"x": np.arange(ROWS)}).save("x.tfrecord")
    Path(".x.tfrecord.recmap").unlink()

    def touch() -> None:
        os.utime("x.tfrecord", ns=(0, os.stat("x.tfrecord").st_mtime_ns + 1_000_000))

    with pytest.raises(rm.FileChangedError, match=r"x\.tfrecord: was changed"):
        rm.repair("x.tfrecord", "y.tfrecord", progress=Once(touch))
    for text in (False, True):
        with pytest.raises(rm.FileChangedError, match=r"x\.tfrecord: was changed"):
            rm.index("x.tfrecord", text=text, progress=Once(touch))
    assert left() == ["x.tfrecord"]
