"""States of pipelines over objects, slow orders, and what must not appear anywhere."""

from __future__ import annotations

import io
import json
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.pipeline.workers.lookahead import requests_of_shuffle
from tests.buckets import Bucket
from tests.fetched import drop_ahead
from tests.numbered import double, ids, numbered
from tests.processes import WITH_WORKERS
from tests.store_servers import SECRET_KEY

pytestmark = [*WITH_WORKERS, pytest.mark.slow]

ROWS = 60


@pytest.fixture
def local() -> rm.Dataset:
    return numbered(ROWS)


def put(bucket: Bucket, name: str, batch: Any) -> None:
    with rm.TFRecordWriter("shard.tfrecord", overwrite=True) as w:
        w.write(batch)
    bucket.put(name, Path("shard.tfrecord").read_bytes())


@pytest.fixture
def shards(bucket: Bucket, local: rm.Dataset) -> Bucket:
    for shard in range(3):
        put(bucket, f"x-{shard}.tfrecord", local[shard * 20 : shard * 20 + 20])
    return bucket


def opened(bucket: Bucket) -> rm.Dataset:
    return rm.open(bucket.url_of("x-*.tfrecord"), storage=bucket.storage)


@pytest.mark.parametrize("workers", [None, "spawn:2"])
def test_a_pipeline_over_urls_resumes_from_its_state(shards: Bucket, workers: str | None) -> None:
    def make(workers: str | None = workers) -> rm.Stream:
        return opened(shards).shuffle(seed=3).map(double, workers=workers).batch(7)

    expected = ids(make(None))
    first = make()
    batches = iter(first)
    begun = ids([next(batches) for _ in range(4)])
    state = json.loads(json.dumps(first.state()))
    del batches
    assert begun + ids(make().restore(state)) == expected


def test_a_state_of_an_object_that_has_changed_is_refused(
    shards: Bucket, local: rm.Dataset
) -> None:
    state = opened(shards).batch(7).state()
    opened(shards).batch(7).restore(state)
    put(shards, "x-1.tfrecord", {n: c[::-1] for n, c in local[20:40].items()})
    with pytest.raises(rm.OptionError, match="the contents of 3 files .* are not those"):
        opened(shards).batch(7).restore(state)


def test_no_secret_appears_in_states_texts_errors_and_the_cache(
    shards: Bucket, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ds = opened(shards)
    pipeline = ds.shuffle(seed=1).map(double, workers="spawn:1").batch(7)
    list(pipeline)
    told = [repr(ds), str(ds), str(ds.info()), repr(pipeline), repr(pipeline._plan)]
    told += [json.dumps(pipeline.state()), str(pipeline.timings()), repr(pipeline.timings())]
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "0")
    ds = opened(shards)
    len(ds)
    shards.delete("x-1.tfrecord")
    drop_ahead()
    for failing in (ds.batch(20), ds.map(double, workers="spawn:1").batch(20)):
        with pytest.raises(rm.PathNotFoundError) as failure:
            list(failing)
        told.append("".join(traceback.format_exception(failure.value)))
        told.append(repr(vars(failure.value)))
    kept = [path for path in Path(f"{tmp_path}-cache").rglob("*") if path.is_file()]
    assert kept
    told += [path.read_bytes().decode("latin-1") for path in (*kept, *tmp_path.iterdir())]
    assert "x-1.tfrecord" in "".join(told)
    assert SECRET_KEY not in "".join(told)


# Shuffling small rows.


def put_rows(bucket: Bucket, rows: int, size: int) -> rm.Dataset:
    data = io.BytesIO()
    np.save(data, np.zeros((rows, size), np.uint8))
    bucket.put("x.npy", data.getvalue())
    return rm.open(bucket.url_of("x.npy"), storage=bucket.storage)


def test_a_shuffle_of_small_rows_that_the_cache_does_not_take_warns_once(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "0")
    ds = put_rows(bucket, 300, 60_000)
    with pytest.warns(rm.SlowOrderWarning, match=r"about 1\d\d requests .*window=100_000"):
        pipeline = ds.shuffle(seed=1).batch(10)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        next(iter(pipeline))
        ds.shuffle(seed=1, window=50).batch(10)
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "1GB")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ds.shuffle(seed=1).batch(10)


@pytest.mark.parametrize(("rows", "size"), [(100, 70_000), (20_000, 20)])
def test_no_warning_of_large_rows_and_of_small_objects(
    bucket: Bucket, monkeypatch: pytest.MonkeyPatch, rows: int, size: int
) -> None:
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "0")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        put_rows(bucket, rows, size).shuffle(seed=1)


@pytest.mark.parametrize(("rows", "size"), [(100_000, 1000), (2_000_000, 200), (5000, 50_000)])
def test_the_requests_of_a_shuffle_are_estimated_well(rows: int, size: int) -> None:
    order = np.random.default_rng(1).permutation(rows)
    together, counted = (8 << 20) // size, 0
    for start in range(0, rows, together):
        places = np.sort(order[start : start + together]) * size
        counted += 1 + int(np.count_nonzero(np.diff(places) - size > 64 << 10))
    estimate = requests_of_shuffle(rows, size, rows * size)
    assert 0.8 * counted - 100 <= estimate <= 1.2 * counted + 100


def test_a_window_is_read_in_pieces(bucket: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "0")
    ds = put_rows(bucket, 20_000, 1000)
    drop_ahead()
    bucket.proxy.reset()
    pipeline = ds.shuffle(seed=1, window=8000).batch(100)
    assert sum(len(batch["data"]) for batch in pipeline) == 20_000
    assert bucket.proxy.count() < 60
    assert bucket.proxy.body_bytes < 1.1 * 20e6
