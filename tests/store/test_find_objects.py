"""Patterns and folders find the same names in a bucket as on a disk."""

from __future__ import annotations

import glob
import os
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import recmap as rm
from recmap.store.find_objects import find_objects
from recmap.store.object_store import ObjectStore
from recmap.store.paths import expand
from recmap.store.storage import Storage, parse_url

if TYPE_CHECKING:
    from tests.buckets import Bucket

KEYS = [
    "train-0.npy",
    "train-1.npy",
    "train-10.npy",
    "train-x.tfrecord",
    "train-x.tfrecord.idx",
    "alone.idx",
    "raw.bin",
    "raw.bin.recmap.json",
    ".hidden.npy",
    "_manifest.json",
    "a/train-2.npy",
    "a/b/train-3.npy",
    "a/b/c/train-4.npy",
    "a/.secret/train-5.npy",
    "ab/train-6.npy",
    "s[1]/x.npy",
    "odd*.npy",
]
PATTERNS = [
    "train-*.npy",
    "train-?.npy",
    "train-[0-9].npy",
    "train-[!0].npy",
    "train-x*",
    "*",
    ".*",
    "*.idx",
    "*/*.npy",
    "a*/*.npy",
    "a/*/*.npy",
    "a/.secret/*",
    "a/.*/*.npy",
    "**/*.npy",
    "a/**/*.npy",
    "a/**",
    "**/b/*.npy",
    "**/**/train-4.npy",
    "s[[]1]/*.npy",
    "s[1]/x.npy",
    "odd*.npy",
    "train-0.npy",
    "a",
    "a/",
    "a/b",
    "",
]


def plant(bucket: Bucket) -> Bucket:
    for key in KEYS:
        bucket.put(key, b"x")
        Path(key).parent.mkdir(parents=True, exist_ok=True)
        Path(key).write_bytes(b"x")
    return bucket


@pytest.fixture
def tree(gcs_bucket: Bucket) -> Bucket:
    return plant(gcs_bucket)


def found(bucket: Bucket, pattern: str) -> list[str]:
    url = parse_url(f"{bucket.url}/{pattern}")
    store = ObjectStore(url, Storage(bucket.storage))
    return [each.key for each in find_objects(store, url).objects]


def test_patterns_and_folders_match_as_on_a_disk(any_bucket: Bucket) -> None:
    tree = plant(any_bucket)
    here = os.getcwd()
    for pattern in PATTERNS:
        local = [os.path.relpath(path, here) for path in expand(os.path.join(here, pattern))]
        assert found(tree, pattern) == sorted(local), pattern


@pytest.mark.parametrize("pattern", ["nothing-*.npy", "nothing", "nothing/", "a/b/c/train-9.npy"])
def test_what_does_not_exist_is_an_error(tree: Bucket, pattern: str) -> None:
    assert not glob.glob(pattern)
    with pytest.raises(rm.PathNotFoundError, match=f"{tree.url}/"):
        found(tree, pattern)


@pytest.mark.parametrize("key", ["train-x.tfrecord.idx", "raw.bin.recmap.json"])
def test_companions_of_data_are_not_data(tree: Bucket, key: str) -> None:
    with pytest.raises(rm.PathNotFoundError):
        expand(key)
    with pytest.raises(rm.PathNotFoundError):
        found(tree, key)
    assert found(tree, "alone.idx") == expand("alone.idx")


def test_a_folder_costs_one_listing(tree: Bucket) -> None:
    tree.proxy.requests.clear()
    assert len(found(tree, "a/b/")) == 1
    assert len(tree.proxy.requests) == 1
    tree.proxy.requests.clear()
    assert len(found(tree, "train-?.npy")) == 2
    assert len(tree.proxy.requests) == 2  # it might be the name of an object


def test_a_folder_may_have_more_objects_than_a_listing_has_on_a_page(bucket: Bucket) -> None:
    keys = [f"d/{i:05d}.npy" for i in range(1100)]
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda key: bucket.put(key, b"x"), keys))
    assert found(bucket, "d/") == keys
    assert bucket.proxy.count() == 2
    assert found(bucket, "d/*9.npy") == keys[9::10]


@pytest.mark.slow
def test_ten_thousand_objects_are_found_with_ten_listings(gcs_bucket: Bucket) -> None:
    keys = [f"d/{i:05d}.npy" for i in range(10_000)]
    for key in ("d/.hidden.npy", "e/x.npy", *keys):
        gcs_bucket.put(key, b"x")
    assert found(gcs_bucket, "d/*.npy") == keys
    assert gcs_bucket.proxy.count("HEAD") == 1  # it might be the name of an object
    assert gcs_bucket.proxy.count("GET") == 11
    gcs_bucket.proxy.reset()
    assert found(gcs_bucket, "d/") == keys
    assert gcs_bucket.proxy.count() == 11


def test_the_size_and_version_come_with_the_listing(any_bucket: Bucket) -> None:
    any_bucket.put("d/x.npy", b"hello")
    store = any_bucket.store()
    [listed] = store.folder("d").objects
    one = store.head("d/x.npy")
    assert (listed.key, listed.size, listed.etag) == (one.key, one.size, one.etag)
    assert abs(listed.modified - one.modified) < timedelta(seconds=1)
    assert store.read(listed, 1, 3).tobytes() == b"el"
