"""Several conversions to one place in a store: locks keep them apart."""

from __future__ import annotations

import json
import os
import pickle
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.errors import OutputExistsError
from recmap.store import store_lock
from recmap.store.object_path import object_path
from recmap.store.storage import Storage
from recmap.store.store_lock import StoreLock
from tests.buckets import S3Bucket

pytestmark = pytest.mark.usefixtures("small_parts")


@pytest.fixture(scope="module")
def rows() -> rm.Dataset:
    """Return rows that are sent in two parts."""
    return rm.from_arrays({"x": np.random.default_rng(1).random((8000, 100))})


def _lock(bucket: S3Bucket, **changes: Any) -> None:
    content = {
        "recmap": 1,
        "run": "another",
        "machine": "elsewhere_123",
        "process": 77,
        "started": "",
        "begun": "2026-01-01T00:00:00+00:00",
        "renewed": "2026-01-01T00:00:00+00:00",
    }
    bucket.put("d/..x.npy.manifest.json.lock", json.dumps({**content, **changes}).encode())


def test_a_running_conversion_is_left_alone(bucket: S3Bucket, rows: rm.Dataset) -> None:
    _lock(bucket)
    with pytest.raises(OutputExistsError, match="written by process 77 on elsewhere.*delete"):
        rows.save(f"{bucket.url}/d/x.npy", storage=bucket.storage)
    assert bucket.keys() == ["d/..x.npy.manifest.json.lock"]


def test_an_expired_lock_is_taken_over(
    bucket: S3Bucket, rows: rm.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    _lock(bucket)
    monkeypatch.setattr(store_lock, "_EXPIRES", -5.0)
    rows.save(f"{bucket.url}/d/x.npy", storage=bucket.storage)
    assert not any(key.endswith(".lock") for key in bucket.keys())  # noqa: SIM118


def test_the_lock_of_a_killed_process_of_this_machine_is_taken_over(
    bucket: S3Bucket, rows: rm.Dataset
) -> None:
    from recmap.local.temporary import this_process

    _lock(bucket, machine=this_process().machine, process=2**22 + 1)
    rows.save(f"{bucket.url}/d/x.npy", storage=bucket.storage)
    _lock(bucket, machine=this_process().machine, process=os.getppid())
    with pytest.raises(OutputExistsError, match="is being written by process"):
        rows.save(f"{bucket.url}/d/x.npy", storage=bucket.storage, overwrite=True)


def test_a_lock_that_is_not_ours_is_not_touched(bucket: S3Bucket, rows: rm.Dataset) -> None:
    for content in (b"", b"[]", b"mine", b'{"recmap": 1, "renewed": 3}'):
        bucket.put("d/..x.npy.manifest.json.lock", content)
        with pytest.raises(OutputExistsError, match="not a run lock"):
            rows.save(f"{bucket.url}/d/x.npy", storage=bucket.storage)
        assert bucket.get("d/..x.npy.manifest.json.lock") == content


def test_a_conversion_that_lost_its_lock_gives_up(
    bucket: S3Bucket, rows: rm.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lock, "_TRUSTED", -1.0)

    def take_over(progress: Any) -> None:
        del progress
        _lock(bucket)

    with pytest.raises(OutputExistsError, match="taken over"):
        rows.save(f"{bucket.url}/d/x.npy", storage=bucket.storage, progress=take_over)
    assert "d/x.npy" not in bucket.keys()  # noqa: SIM118
    assert json.loads(bucket.get("d/..x.npy.manifest.json.lock"))["run"] == "another"


def test_the_lock_is_renewed(
    bucket: S3Bucket, rows: rm.Dataset, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_lock, "_RENEWED_EVERY", 0.05)
    seen: set[bytes] = set()

    def wait(progress: Any) -> None:
        del progress
        while len(seen) < 3:
            seen.add(bucket.get("d/..x.npy.manifest.json.lock"))

    rows.save(f"{bucket.url}/d/x.npy", storage=bucket.storage, progress=wait)
    runs = {json.loads(content)["run"] for content in seen}
    assert len(runs) == 1


def test_a_conversion_that_stops_its_tasks_keeps_its_lock(bucket: S3Bucket) -> None:
    path = object_path(f"{bucket.url}/d/x.lock", Storage(bucket.storage))
    lock = StoreLock(path, "x")
    lock.acquire()
    sent = pickle.dumps(lock)
    task: StoreLock = pickle.loads(sent)
    assert task.exists
    lock.stop()
    task = pickle.loads(sent)
    assert not task.exists
    assert not lock.lost
    assert bucket.keys() == ["d/x.lock"]
    lock.release()
    assert bucket.keys() == []
    assert not lock.lost


def test_the_manifest_of_another_writer_is_not_replaced(bucket: S3Bucket, rows: rm.Dataset) -> None:
    def interfere(progress: Any) -> None:
        del progress
        bucket.put("d/_manifest.json", b'{"recmap": 1, "complete": true}')

    with pytest.raises(OutputExistsError, match="another conversion has written it"):
        rows.save(f"{bucket.url}/d/", storage=bucket.storage, progress=interfere)
    assert bucket.get("d/_manifest.json") == b'{"recmap": 1, "complete": true}'
