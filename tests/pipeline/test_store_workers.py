"""Worker processes that read from a store."""

from __future__ import annotations

import io
import pickle
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.buckets import Bucket
from tests.frameworks import torch
from tests.numbered import double, ids, numbered
from tests.processes import WITH_WORKERS

pytestmark = [*WITH_WORKERS, pytest.mark.slow]

ROWS = 60


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "0")


@pytest.fixture
def local() -> rm.Dataset:
    return numbered(ROWS)


@pytest.fixture
def ds(bucket: Bucket, local: rm.Dataset) -> rm.Dataset:
    """Return the same rows, in three objects."""
    for shard in range(3):
        with rm.TFRecordWriter("shard.tfrecord", overwrite=True) as w:
            w.write(local[shard * 20 : shard * 20 + 20])
        with open("shard.tfrecord", "rb") as file:
            bucket.put(f"x-{shard}.tfrecord", file.read())
    return rm.open(bucket.url_of("x-*.tfrecord"), storage=bucket.storage)


def rows_of(batches: Any) -> list[Any]:
    return [{name: np.asarray(batch[name]).tolist() for name in ("id", "x")} for batch in batches]


@pytest.mark.parametrize("workers", [2, "threads:2"])
def test_every_kind_of_worker_reads_from_a_store(
    ds: rm.Dataset, local: rm.Dataset, workers: int | str
) -> None:
    expected = rows_of(local.shuffle(seed=1).map(double).batch(7))
    assert rows_of(ds.shuffle(seed=1).map(double, workers=workers).batch(7)) == expected


def test_forked_workers_are_refused_with_the_reason(ds: rm.Dataset, local: rm.Dataset) -> None:
    with pytest.raises(rm.OptionError, match=r'cannot read from a store; use workers="spawn:2"'):
        ds.map(double, workers="fork:2")
    with pytest.raises(rm.OptionError, match="cannot read from a store"):
        rm.mix(local.map(double, workers="fork:2"), ds.map(double))


def test_one_pool_of_a_mix_is_spawned_if_one_of_its_branches_is_in_a_store(
    ds: rm.Dataset, local: rm.Dataset
) -> None:
    made = rm.mix(local.map(double, workers=2), ds.map(double), weights=[1, 1], seed=3)
    expected = rm.mix(local.map(double), local.map(double), weights=[1, 1], seed=3)
    assert rows_of(made.batch(9)) == rows_of(expected.batch(9))


@pytest.mark.usefixtures("real_spawn")
def test_a_loader_of_torch_reads_in_spawned_workers(ds: rm.Dataset, local: rm.Dataset) -> None:
    stream = ds.shuffle(seed=1).batch(8).to_torch()
    loader = torch.utils.data.DataLoader(
        stream, batch_size=None, num_workers=1, multiprocessing_context="spawn"
    )
    assert ids(loader) == ids(local.shuffle(seed=1).batch(8))


# Workers of a fork server get pickled work, as spawned ones do, but need not import PyTorch.
def test_a_loader_of_torch_reads_rows_by_number_in_workers(ds: rm.Dataset) -> None:
    rows = ds.select("id", "x").to_torch()
    loader = torch.utils.data.DataLoader(
        rows, batch_size=20, num_workers=2, multiprocessing_context="forkserver"
    )
    assert ids(loader) == [[*range(i, i + 20)] for i in (0, 20, 40)]


@pytest.mark.parametrize("batched", [True, False])
def test_a_forked_worker_of_a_loader_says_what_to_do_instead(ds: rm.Dataset, batched: bool) -> None:
    rows = ds.select("id", "x")
    dataset = rows.batch(8).to_torch() if batched else rows.to_torch()
    loader = torch.utils.data.DataLoader(
        dataset, batch_size=None, num_workers=1, multiprocessing_context="fork"
    )
    with pytest.raises(rm.StoreError, match='multiprocessing_context="spawn"'):
        list(loader)


def test_a_pipeline_that_has_run_can_still_be_sent_to_another_process(ds: rm.Dataset) -> None:
    stream = ds.batch(8).to_torch()
    first = ids(stream)
    stream.set_epoch(0)
    loader = torch.utils.data.DataLoader(
        stream, batch_size=None, num_workers=1, multiprocessing_context="forkserver"
    )
    assert ids(loader) == first


def test_workers_ask_neither_for_the_list_nor_for_the_index_again(
    ds: rm.Dataset, bucket: Bucket
) -> None:
    pipeline = ds.select("id", "x").batch(20)
    len(pipeline)
    bucket.proxy.reset()
    sent = pickle.loads(pickle.dumps(ds.pipeline()._plan))
    assert sent.rows.gather(np.arange(3))["id"].tolist() == [0, 1, 2]
    assert {(method, path.rpartition("/")[2]) for method, path, _ in bucket.proxy.requests} == {
        ("GET", "x-0.tfrecord")
    }


def test_a_worker_refuses_an_object_that_changed_after_it_was_opened(
    ds: rm.Dataset, bucket: Bucket
) -> None:
    len(ds.batch(4))
    bucket.put("x-1.tfrecord", bucket.get("x-2.tfrecord"))
    with pytest.raises(rm.ObjectChangedError, match=r"x-1\.tfrecord: changed while it was open"):
        list(ds.map(double, workers="spawn:1").batch(10))


def test_columns_of_arrays_in_a_store_reach_workers(bucket: Bucket) -> None:
    data = io.BytesIO()
    np.save(data, np.arange(40).reshape(20, 2))
    bucket.put("x.npy", data.getvalue())
    np.save("id.npy", np.arange(20))
    ds = rm.open({"x": rm.open(bucket.url_of("x.npy"), storage=bucket.storage), "id": "id.npy"})
    batches = list(ds.shuffle(seed=4).map(double, workers=2).batch(6))
    found = np.concatenate([batch["x"] for batch in batches])
    order = np.concatenate([batch["id"] for batch in batches])
    assert sorted(order.tolist()) == list(range(20))
    assert found.tolist() == (np.arange(40).reshape(20, 2) * 2)[order].tolist()
