"""What ``timings()`` says about rows in a store."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import recmap as rm
from tests.buckets import Bucket
from tests.fetched import drop_ahead
from tests.processes import WITH_WORKERS

pytestmark = WITH_WORKERS

ROWS, ROW = 80, 100_000


@pytest.fixture
def ds(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> rm.Dataset:
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "0")
    return put(bucket)


def put(bucket: Bucket) -> rm.Dataset:
    x = np.random.default_rng(1).integers(0, 255, (ROWS, ROW), np.uint8)
    with rm.TFRecordWriter("x.tfrecord") as w:
        w.write({"x": x})
    bucket.put("x.tfrecord", Path("x.tfrecord").read_bytes())
    return rm.open(bucket.url_of("x.tfrecord"), storage=bucket.storage)


def same(row: dict[str, object]) -> dict[str, object]:
    return row


@pytest.mark.parametrize("workers", [None, "threads:2", "spawn:2"])
def test_timings_count_what_is_fetched(ds: rm.Dataset, bucket: Bucket, workers: str | None) -> None:
    pipeline = ds.shuffle(seed=1).map(same, workers=workers).batch(8)
    assert list(pipeline.schema) == ["x"]  # this tries the function on the first rows
    drop_ahead()
    bucket.proxy.delay = 0.05
    bucket.proxy.reset()
    assert sum(len(batch["x"]) for batch in pipeline) == ROWS
    timings = pipeline.timings()
    assert timings.requests == bucket.proxy.count() > 0
    assert timings.fetched == bucket.proxy.body_bytes
    assert ROWS * ROW <= timings.used <= 1.01 * ROWS * ROW
    assert 1 <= timings.amplification < 1.2
    assert timings.cache_hits == 0
    # The first rows are fetched while processes start.
    assert timings.store_waiting > 0 or workers == "spawn:2"
    assert f"{timings.requests:,} requests" in str(timings)


def test_timings_of_one_dataset_do_not_count_others(ds: rm.Dataset, bucket: Bucket) -> None:
    other = rm.open(bucket.url_of("x.tfrecord"), storage=bucket.storage)
    pipeline = ds.shuffle(seed=1).batch(8)
    batches = iter(pipeline)
    next(batches)
    other[:50]
    list(batches)
    assert pipeline.timings().fetched < 1.5 * ROWS * ROW
    requests = pipeline.timings().requests
    ds[:10]
    assert pipeline.timings().requests == requests


def test_bytes_from_the_cache_are_counted(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "4MB")  # less than the object
    pipeline = put(bucket).select(range(15)).batch(5)
    for _ in range(3):  # the first rows were fetched to find their types, and held in memory
        drop_ahead()
        list(pipeline)
    timings = pipeline.timings()
    assert 15 * ROW <= timings.cache_hits <= 2 << 20
    assert timings.fetched == timings.requests == 0
    assert "from the cache" in str(timings)


def test_local_files_count_nothing(ds: rm.Dataset) -> None:
    del ds
    pipeline = rm.open("x.tfrecord").shuffle(seed=1).batch(8)
    list(pipeline)
    timings = pipeline.timings()
    assert (timings.requests, timings.fetched, timings.used, timings.cache_hits) == (0, 0, 0, 0)
    assert timings.amplification == timings.store_waiting == 0
    assert "requests" not in str(timings)
