"""Objects that a store copies by itself."""

from __future__ import annotations

import numpy as np
import pytest

import recmap as rm
from recmap.store import object_writer
from recmap.store.object_path import ObjectPath, copy_tree, object_path
from recmap.store.object_writer import copy_object
from recmap.store.storage import Storage
from tests.buckets import Bucket, S3Bucket


def at(bucket: Bucket, key: str) -> ObjectPath:
    return object_path(bucket.url_of(key), Storage(bucket.storage))


@pytest.mark.parametrize("key", ["a/x.bin", "a b/100%.bin", "ä/+&=.bin"])
def test_an_object_is_copied_within_its_store(any_bucket: Bucket, key: str) -> None:
    any_bucket.put(key, b"new")
    any_bucket.put("to/y.bin", b"older")
    copy_object(at(any_bucket, key), at(any_bucket, "to/y.bin"))
    copy_object(at(any_bucket, "to/y.bin"), at(any_bucket, f"to/{key}"))
    assert any_bucket.get("to/y.bin") == any_bucket.get(f"to/{key}") == b"new"
    with pytest.raises(rm.PathNotFoundError, match="missing: no such object"):
        copy_object(at(any_bucket, "missing"), at(any_bucket, "to/y.bin"))
    assert any_bucket.get("to/y.bin") == b"new"


def test_an_object_that_is_too_large_for_that_is_sent_again(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_writer, "_MOST_COPIED", 10)
    data = np.random.default_rng(0).bytes(20_000_001)
    bucket.put("x.bin", data)
    bucket.proxy.reset()
    copy_object(at(bucket, "x.bin"), at(bucket, "y.bin"))
    assert bucket.get("y.bin") == data
    assert bucket.proxy.uploaded_bytes > len(data)
    assert bucket.uploads() == []


def test_a_tree_is_copied_with_its_metadata_last(bucket: S3Bucket) -> None:
    for name in ("zarr.json", "x/c/0", "x/zarr.json"):
        bucket.put(f"new/{name}", name.encode())
    for name in ("zarr.json", "x/zarr.json", "x/c/0", "x/c/1"):
        bucket.put(f"old/{name}", b"old")
    bucket.proxy.reset()
    copy_tree(at(bucket, "new"), at(bucket, "old"))
    assert [key for key in bucket.keys() if key.startswith("old/")] == [  # noqa: SIM118
        f"old/{name}" for name in ("x/c/0", "x/zarr.json", "zarr.json")
    ]
    assert bucket.get("old/x/c/0") == b"x/c/0"
    changes = [(method, path) for method, path, _ in bucket.proxy.requests if method != "GET"]
    assert [method for method, _ in changes[:2]] in (["DELETE"] * 2, ["POST"] * 2)
    put = [path.partition("/old/")[2] for method, path in changes if method == "PUT"]
    assert put == ["x/c/0", "x/zarr.json", "zarr.json"]
