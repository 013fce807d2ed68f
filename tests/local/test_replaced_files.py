"""A file that is replaced or rewritten while it is open: the rows of one file, or an error."""

from __future__ import annotations

import os
import pickle
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest
import zarr

import recmap as rm
from tests.processes import WITH_WORKERS

pytestmark = [
    *WITH_WORKERS,
    pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning"),
    # The new file has no index, and that of the old one stays.
    pytest.mark.filterwarnings("ignore::recmap.StaleIndexWarning"),
]

ROWS = 20_000
OLD, NEW = np.arange(ROWS), np.arange(ROWS) + 1_000_000
SUFFIXES = (
    ".npy",
    ".npz",
    ".h5",
    ".tfrecord",
    ".tfrecord.gz",
    ".tfrecord.zlib",
    ".parquet",
    ".arrow",
    ".zarr",
    ".bin",
)
READS: dict[str, Callable[[Any], Any]] = {
    "slice": lambda ds: ds[: len(ds)]["x"],
    "gather": lambda ds: ds[np.random.default_rng(0).permutation(ROWS)]["x"],
    "column": lambda ds: np.asarray(ds["x"][:]),
    "back and forth": lambda ds: [ds[i]["x"] for i in (ROWS - 1, 0, ROWS // 2)],
    "batches": lambda ds: np.concatenate([batch["x"] for batch in ds.batches(500)]),
    "pipeline": lambda ds: np.concatenate([b["x"] for b in ds.shuffle(seed=0).batch(500)]),
    "another process": lambda ds: pickle.loads(pickle.dumps(ds))[:]["x"],
}


def put(path: str, values: Any) -> None:
    """Write a file, without anything beside it."""
    if path.endswith(".npy"):
        np.save(path, values)
    elif path.endswith(".bin"):
        values.tofile(path)
    else:
        rm.from_arrays({"x": values}).save(path)


def opened(path: str) -> Any:
    """Open a file. Its column is called x."""
    if path.endswith(".bin"):
        return rm.open({"x": path}, dtype="int64")
    return rm.open({"x": path}) if path.endswith(".npy") else rm.open(path)


def replace(new: str, path: str) -> None:
    """Let another file or folder take the place of one, as programs do that write atomically."""
    if os.path.isdir(path):
        os.rename(path, f"{path}.before")
    os.rename(new, path)


def old_or_refused(read: Callable[[], Any], path: str) -> None:
    """Check that rows are those of the old file, or that the error names it."""
    refused = None
    try:
        assert (np.asarray(read()) < 1_000_000).all(), f"{path}: rows of the new file"
    except rm.FileChangedError as e:
        refused = e
    assert refused is None or (path in str(refused.file) and "open it again" in str(refused))


@pytest.mark.slow
@pytest.mark.parametrize("suffix", SUFFIXES)
def test_rows_of_a_replaced_file_are_never_mixed_with_those_of_the_new_one(suffix: str) -> None:
    for way, read in READS.items():
        path = f"{way}{suffix}"
        put(path, OLD)
        put(f"new-{path}", NEW)
        ds = opened(path)
        assert ds[5]["x"] == 5
        replace(f"new-{path}", path)
        old_or_refused(lambda: read(ds), path)  # noqa: B023
        assert opened(path)[5]["x"] == 1_000_005


@pytest.mark.parametrize("suffix", [".tfrecord.gz", ".tfrecord.zlib", ".zarr", ".npy"])
def test_an_epoch_does_not_switch_files_in_the_middle(suffix: str) -> None:
    put(f"x{suffix}", np.arange(200_000))
    put(f"y{suffix}", np.arange(200_000) + 1_000_000)
    batches = opened(f"x{suffix}").batches(1000)
    seen = [next(batches)["x"]]
    replace(f"y{suffix}", f"x{suffix}")

    def rest() -> Any:
        seen.extend(batch["x"] for batch in batches)
        return np.concatenate(seen)

    old_or_refused(rest, f"x{suffix}")
    assert (np.concatenate(seen) < 1_000_000).all()


@pytest.mark.slow
@pytest.mark.parametrize("workers", ["fork:2", "spawn:1"])
def test_workers_read_the_file_that_was_opened(workers: str) -> None:
    for suffix in [".npy", ".npz", ".h5", ".tfrecord", ".parquet", ".tfrecord.gz"]:
        put(f"x{suffix}", OLD[:2000])
        put(f"y{suffix}", NEW[:2000])
        pipeline = opened(f"x{suffix}").map(_same, workers=workers).batch(100)
        os.replace(f"y{suffix}", f"x{suffix}")
        old_or_refused(
            lambda: np.concatenate([b["x"] for b in pipeline]),  # noqa: B023
            f"x{suffix}",
        )
        if workers != "fork:2":
            break  # starting one takes a second


def _same(row: Any) -> Any:
    return row


def test_a_file_rewritten_in_place_is_not_read_by_another_process() -> None:
    for suffix in [s for s in SUFFIXES if s != ".zarr"]:
        path = f"x{suffix}"
        put(path, OLD)
        put(f"y{suffix}", NEW)
        ds = opened(path)
        sent = pickle.dumps(ds)
        Path(path).write_bytes(Path(f"y{suffix}").read_bytes())
        with pytest.raises(rm.FileChangedError, match=f"{path}: was changed after it was opened"):
            pickle.loads(sent)


def test_one_of_many_files_is_replaced_while_it_is_closed() -> None:
    put("00.npy", OLD[:10])
    for i in range(1, 70):  # more than are kept open
        shutil.copy("00.npy", f"{i:02}.npy")
    ds = rm.open("*.npy")
    put("new.npy", NEW[:10])
    os.replace("new.npy", "03.npy")
    with pytest.raises(rm.FileChangedError, match="03.npy"):
        ds[:]


def test_a_memory_map_is_opened_in_another_process_only_if_its_file_is_still_there() -> None:
    np.save("x.npy", OLD)
    np.save("y.npy", NEW)
    ds = rm.open(np.load("x.npy", mmap_mode="r"))
    sent = pickle.dumps(ds)
    os.replace("y.npy", "x.npy")
    with pytest.raises(rm.FileChangedError, match="was replaced by another file"):
        pickle.loads(sent)
    np.save("z.npy", OLD)
    writable = np.load("z.npy", mmap_mode="r+")
    ds = rm.open(writable)
    writable[0] = 7  # both processes see it
    assert pickle.loads(pickle.dumps(ds))[0]["data"] == 7


def test_an_h5py_dataset_whose_file_was_replaced_is_refused() -> None:
    for name, values in (("x.h5", OLD), ("y.h5", NEW)):
        with h5py.File(name, "w") as file:
            file["x"] = values
    with h5py.File("x.h5", "r") as file:
        ds = rm.open(file["x"])
        os.replace("y.h5", "x.h5")
        old_or_refused(lambda: pickle.loads(pickle.dumps(ds))[:]["x"], "x.h5")
        with pytest.raises(rm.FileChangedError, match="x.h5"):
            rm.open(file["x"])


def test_an_array_that_zarr_writes_again_is_noticed() -> None:
    group = zarr.create_group("x.zarr")
    group.create_array("x", data=OLD, chunks=(1000,))
    ds = rm.open("x.zarr")
    sent = pickle.dumps(ds)
    group.create_array("x", data=NEW, chunks=(1000,), overwrite=True)
    old_or_refused(lambda: ds[:]["x"], "x.zarr")
    with pytest.raises(rm.FileChangedError, match="x.zarr"):
        pickle.loads(sent)


def test_a_shard_of_a_tfds_folder_is_replaced() -> None:
    rm.from_arrays({"x": OLD}).save(
        "set/1.0.0", format="tfds", shards=2, options={"name": "set", "split": "train"}
    )
    shutil.copytree("set", "other")
    ds = rm.open("set/1.0.0", split="train")
    sent = pickle.dumps(ds)
    rm.from_arrays({"x": OLD}).save(
        "set/1.0.0", format="tfds", options={"name": "set", "split": "test"}
    )
    assert len(pickle.loads(sent)) == ROWS  # another split does not matter
    shard = "set-train.tfrecord-00001-of-00002"
    shutil.copy(f"other/1.0.0/{shard}", "copy")
    os.replace("copy", f"set/1.0.0/{shard}")
    with pytest.raises(rm.FileChangedError, match="set/1.0.0"):
        pickle.loads(sent)


def test_files_of_another_dataset_are_looked_up_again() -> None:
    put("x.npy", OLD)
    ds = rm.open("x.npy")
    put("y.npy", NEW)
    os.replace("y.npy", "x.npy")
    assert rm.open(ds.info().files)[0]["data"] == 1_000_000


def test_a_file_that_was_removed_is_missing_in_another_process() -> None:
    for suffix in SUFFIXES:
        put(f"x{suffix}", OLD[:10])
        sent = pickle.dumps(opened(f"x{suffix}"))
        os.rename(f"x{suffix}", f"gone{suffix}")
        with pytest.raises(rm.PathNotFoundError, match=f"x{suffix}: no such file"):
            pickle.loads(sent)
    rm.tfrecord.write_records("y.tfrecord.gz", [b"a" * 1000] * 1000)
    records = rm.tfrecord.records("y.tfrecord.gz")
    os.unlink("y.tfrecord.gz")
    with pytest.raises(rm.PathNotFoundError, match=r"y\.tfrecord\.gz"):
        next(records)
