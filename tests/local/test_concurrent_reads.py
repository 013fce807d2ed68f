"""Datasets read from many Python threads, and after a fork."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import recmap as rm
from tests import wire


@pytest.fixture(params=["uniform", "mixed", "gzip"])
def ds(request: pytest.FixtureRequest) -> rm.Dataset:
    rows = 20_000
    columns: dict[str, object] = {"i": np.arange(rows, dtype=np.float32)}
    if request.param == "mixed":
        columns["t"] = [b"x" * (i % 13) for i in range(rows)]
    with rm.TFRecordWriter(
        "x.tfrecord", compression="gzip" if request.param == "gzip" else None, index=False
    ) as w:
        w.write(columns)
    return rm.open("x.tfrecord")


@pytest.mark.slow
def test_many_threads_read_two_datasets(ds: rm.Dataset) -> None:
    other = rm.open("x.tfrecord")

    def work(seed: int) -> bool:
        rng = np.random.default_rng(seed)
        for _ in range(20):
            rows = rng.integers(0, 20_000, 50)
            for dataset in (ds, other):
                if not np.array_equal(dataset[rows]["i"], rows.astype(np.float32)):
                    return False
                start = int(rng.integers(0, 19_000))
                part = dataset[start : start + 500]["i"]
                if not np.array_equal(part, np.arange(start, start + 500)):
                    return False
        return True

    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(16)))


def test_many_threads_read_batches(ds: rm.Dataset) -> None:
    def work(size: int) -> float:
        return float(sum(batch["i"].sum(dtype=np.float64) for batch in ds.batches(size)))

    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(work, [7, 100, 333, 1000, 5000, 20_000])) == {19_999 * 10_000.0}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*fork.*:RuntimeWarning")
def test_a_forked_process_can_go_on_reading(ds: rm.Dataset) -> None:
    assert ds[5]["i"] == 5
    child = os.fork()
    if child == 0:
        good = ds[19_999]["i"] == 19_999 and len(ds[0:20_000]["i"]) == 20_000
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.mark.slow
def test_damage_is_reported_alike_with_any_number_of_threads() -> None:
    records = [wire.example(a=wire.int64_list(i)) for i in range(50_000)]
    for i in (12_345, 40_000, 30_000):
        records[i] = wire.example(a=wire.int64_list(i, i))
    wire.write("x.tfrecord", *records)
    ds = rm.open("x.tfrecord", {"a": "int64"})
    for _ in range(20):
        with pytest.raises(rm.FieldMismatchError, match="record 12,345 "):
            ds[:]


ENDS = """
import atexit, itertools, threading

@atexit.register
def report():  # runs last: handlers run in reverse order
    print([thread.name for thread in threading.enumerate() if "ahead" in thread.name])

from recmap.machine.threads import read_ahead

numbers = read_ahead(itertools.count(), 3)
next(numbers)
"""


def test_a_program_that_ends_waits_for_its_read_ahead_threads() -> None:
    done = subprocess.run([sys.executable, "-c", ENDS], check=True, capture_output=True, text=True)
    assert done.stdout == "[]\n"
    assert done.stderr == ""
