"""A few of the faults that ``python -m hostile.faults`` enumerates, the same ones every time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
# One operation of each kind, of different formats.
LOCAL = (
    "write a file: (npy|hdf5)",
    "overwrite a file: (tfrecord.gz|zarr)",
    "write shards: raw",
    "resume shards: npz",
    "overwrite shards: (parquet|tfds)",
    "append shards: tfrecord",
    "overwrite appended shards: npz",
    "shuffle into shards",
    "TFRecordWriter",
    "TFRecordWriter overwrites shards",
    "tfrecord.write_records",
    "index as text",
    "repair overwrites",
)
STORE = (
    "write a file, in a store: tfrecord",
    "overwrite shards, in a store: hdf5",
    "append shards, in a store: npy",
    "fill the cache: npy",
)


def examine(operations: tuple[str, ...], points: int) -> None:
    """Disturb a few calls of each operation, and expect nothing but what is known."""
    only = "|".join(f"^{each}$" for each in operations)
    done = subprocess.run(
        [sys.executable, "-m", "hostile.faults", "--only", only, "--points", str(points)],
        cwd=ROOT,
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    # All of them were found and disturbed.
    assert len(done.stdout.splitlines()) >= len(operations)


@pytest.mark.skipif(
    sys.platform != "linux" or shutil.which("cc") is None,
    reason="it preloads a library written in C",
)
@pytest.mark.parametrize(("operations", "points"), [(LOCAL, 3), (STORE, 4)], ids=["disk", "store"])
def test_a_fault_at_any_call_leaves_the_old_output_or_the_new_one(
    operations: tuple[str, ...], points: int
) -> None:
    examine(operations, points)
