"""Datasets with more files than a process may have open."""

from __future__ import annotations

import os
from pathlib import Path

import h5py
import numpy as np
import pytest

import recmap as rm
from tests.forked import run_program

pytestmark = pytest.mark.slow

FILES, ROWS = 200, 3

PROGRAM = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
import numpy as np
import recmap as rm
ds = rm.open("{pattern}"{options})
total = sum(int(batch["{name}"].sum()) for batch in ds.batches(100))
print(len(ds), ds[[0, 599, 300]]["{name}"].tolist(), total, ds.info().rows)
rm.convert(ds, "y.npy")
print(int(np.load("y.npy").sum()))
"""


def run(pattern: str, options: str = "", name: str = "data") -> list[str]:
    program = PROGRAM.format(pattern=pattern, options=options, name=name)
    done = run_program(program)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def values(i: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.arange(i * ROWS, (i + 1) * ROWS)


@pytest.mark.parametrize("format", ["npy", "raw", "npz", "hdf5"])
def test_more_files_than_descriptors_are_read(format: str) -> None:
    for i in range(FILES):
        if format == "npy":
            np.save(f"{i:04}.npy", values(i))
        elif format == "raw":
            values(i).tofile(f"{i:04}.bin")
        elif format == "npz":
            np.savez(f"{i:04}.npz", data=values(i))
        else:
            with h5py.File(f"{i:04}.h5", "w") as file:
                file["data"] = values(i)
    suffix = {"raw": "bin", "hdf5": "h5"}.get(format, format)
    total = sum(range(FILES * ROWS))
    assert run(f"*.{suffix}", ', dtype="int64"' if format == "raw" else "") == [
        f"600 [0, 599, 300] {total} 600",
        str(total),
    ]


EVERYTHING = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
import os
import numpy as np
import recmap as rm

def same(row):
    return row

total = {rows} * ({rows} - 1) // 2
datasets = [rm.open("{pattern}") for _ in range(2)]
for ds in datasets:
    assert len(ds) == {rows}
    assert sum(int(batch["data"].sum()) for batch in ds.batches(10)) == total
    shuffled = [batch["data"] for batch in ds.shuffle(seed=1).batch(32)]
    assert int(np.concatenate(shuffled).sum()) == total
    assert ds.stats()["data"].values.max == {rows} - 1
    assert ds[[{rows} - 1, 0]]["data"].tolist() == [{rows} - 1, 0]
before = len(os.listdir("/proc/self/fd"))
ds.shuffle(seed=1).save("y.npy")
assert int(np.load("y.npy").sum()) == total
mapped = sum(int(b["data"].sum()) for b in ds.shuffle(seed=2).map(same, workers=1).batch(32))
assert mapped == total
print(before)
"""


@pytest.mark.parametrize("format", ["tfrecord", "unindexed", "gzip", "npy", "chunked"])
def test_every_way_of_reading_needs_few_descriptors(format: str) -> None:
    files = 70
    for i in range(files):
        if format == "npy":
            np.save(f"{i:04}.npy", values(i))
        elif format == "chunked":
            with h5py.File(f"{i:04}.h5", "w") as file:
                file.create_dataset("data", data=values(i), chunks=(2,))
        else:
            suffix = ".gz" if format == "gzip" else ""
            with rm.TFRecordWriter(
                f"{i:04}.tfrecord{suffix}",
                index=format == "tfrecord",
                compression="gzip" if suffix else None,
            ) as w:
                w.write({"data": values(i)})
    pattern = {"npy": "*.npy", "chunked": "*.h5"}.get(format, "*.tfrecord*")
    program = EVERYTHING.format(rows=files * ROWS, pattern=pattern)
    done = run_program(f"import warnings; warnings.simplefilter('ignore')\n{program}")
    assert done.returncode == 0, done.stderr
    if format != "chunked":
        assert int(done.stdout) < 10


def test_mapped_files_hold_no_descriptors() -> None:
    np.save("d.npy", np.arange(10))
    np.savez("d.npz", x=np.arange(10))
    with h5py.File("d.h5", "w") as file:
        file["x"] = np.arange(10)
    before = len(os.listdir("/proc/self/fd"))
    kept = [rm.open(f"d.{end}") for end in ("npy", "npz", "h5") for _ in range(10)]
    assert all(ds[3] for ds in kept)
    assert len(os.listdir("/proc/self/fd")) <= before


def test_arrays_left_out_are_warned_about_once_per_file() -> None:
    for i in range(100):
        np.savez(f"{i:03}.npz", data=values(i), more=values(i), other=np.arange(7))
    with pytest.warns(rm.LeftOutWarning) as warned:
        ds = rm.open("*.npz")
    assert len(warned) == 100
    assert ds[0]["more"] == 0
    assert ds[299]["data"] == 299


def test_keeping_rows_keeps_no_files_open() -> None:
    for i in range(FILES):
        np.save(f"{i:04}.npy", values(i))
    program = """
import resource
resource.setrlimit(resource.RLIMIT_NOFILE, (96, 96))
import numpy as np
import recmap as rm
ds = rm.open("*.npy")
parts = [ds[i : i + 3]["data"] for i in range(0, 600, 3)]
print(np.array_equal(np.concatenate(parts), np.arange(600)))
"""
    done = run_program(program)
    assert done.stdout == "True\n", done.stderr


def test_a_file_that_has_changed_is_an_error() -> None:
    for i in range(100):
        np.save(f"{i:03}.npy", values(i))
    ds = rm.open("*.npy")
    Path("007.npy").unlink()
    np.save("007.npy", np.arange(9))
    with pytest.raises(rm.FileChangedError, match="007.npy: was .* open it again"):
        ds[21]


def test_files_with_different_schemas_are_refused_at_once() -> None:
    for i in range(100):
        np.save(f"{i:03}.npy", values(i).astype("int32" if i == 70 else "int64"))
    with pytest.raises(rm.FieldMismatchError, match="070.npy"):
        rm.open("*.npy")


def test_workers_do_not_read_files_added_later() -> None:
    for i in range(3):
        np.save(f"{i}.npy", np.arange(4) + 4 * i)
    ds = rm.open("*.npy")
    np.save("9.npy", np.arange(100))
    read = [int(n) for batch in ds.map(dict, workers=2).batch(5) for n in batch["data"]]
    assert read == list(range(12))
