"""TFDS folders in a bucket."""

from __future__ import annotations

import numpy as np
import pytest

import recmap as rm
from tests.buckets import S3Bucket


def test_a_bucket_has_datasets_with_splits(bucket: S3Bucket) -> None:
    x = np.arange(40, dtype="float32").reshape(10, 4)
    ds = rm.from_arrays({"x": x, "name": rm.Ragged.from_text([f"n{i}" for i in range(10)])})
    root, storage = f"{bucket.url}/data", bucket.storage
    ds.save(
        f"{root}/",
        format="tfds",
        shards=2,
        storage=storage,
        options={"name": "mine", "split": "train"},
    )
    ds.take(3).save(f"{root}/mine/1.0.0", format="tfds", storage=storage, options={"split": "test"})
    found = rm.open(f"{root}/mine/1.0.0", split="train[:80%]+test", storage=storage)
    assert found[:]["x"].tolist() == [*x[:8].tolist(), *x[:3].tolist()]
    assert found[[9, 0]]["name"].tolist() == ["n1", "n0"]
    with pytest.raises(rm.PathNotFoundError, match=r"mine/1.0.0/?: 'train' \(10 rows\), 'test'"):
        rm.open(f"{root}/mine/", split="train", storage=storage)
    bucket.delete("data/mine/1.0.0/mine-train.tfrecord-00001-of-00002")
    with pytest.raises(rm.PathNotFoundError, match="mine-train.tfrecord-00001-of-00002: no such"):
        rm.open(f"{root}/mine/1.0.0", split="train", storage=storage)
