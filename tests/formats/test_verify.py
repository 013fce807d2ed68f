"""rm.verify finds the same damage in threads and in processes."""

import os
from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from recmap.model.progress import Progress


@pytest.fixture(autouse=True)
def files() -> None:
    for i in range(4):
        rm.from_arrays({"x": np.arange(100 + i)}).save(f"{i}.tfrecord")
    damaged = bytearray(Path("2.tfrecord").read_bytes())
    damaged[20] ^= 1
    Path("2.tfrecord").write_bytes(damaged)
    np.savez("a.npz", x=np.arange(9))
    np.save("b.npy", np.arange(9))


@pytest.mark.parametrize("workers", [1, "threads:2", "processes:2", "fork:3", "spawn:2"])
def test_threads_and_processes_find_the_same(workers: int | str) -> None:
    files = sorted(name for name in os.listdir() if not name.startswith("."))
    found, expected = rm.verify(files, workers=workers), rm.verify(files)
    assert (found.files, found.size, found.records) == (6, expected.size, expected.records)
    assert found.damage == expected.damage
    assert [damage.file for damage in found.damage] == ["2.tfrecord"]
    assert found.unchecked == expected.unchecked == ["b.npy"]


def test_progress_in_processes_ends_with_all_bytes() -> None:
    told: list[Progress] = []
    found = rm.verify("*.tfrecord", workers="processes:2", progress=told.append)
    assert (told[-1].bytes, told[-1].total_bytes) == (found.size, found.size)


@pytest.mark.parametrize("workers", [0, "many", "processes:0", 1.5])
def test_invalid_workers_are_refused(workers: object) -> None:
    with pytest.raises(rm.OptionError, match="workers="):
        rm.verify("0.tfrecord", workers=workers)  # type: ignore[arg-type]
