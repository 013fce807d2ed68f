"""The buckets that other tests use do what those rely on, seen by a client of another make."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.buckets import AzureContainer, Bucket, GcsBucket, S3Bucket

PART = bytes(5 << 20)


def connected(bucket: Bucket) -> Any:
    """Return obstore's own view of the bucket."""
    return bucket.store()._store


def test_objects_are_put_listed_and_deleted(any_store: Bucket) -> None:
    keys = ["a b", "d/100%", "é&<"]
    for key in keys:
        any_store.put(key, key.encode())
    assert any_store.keys() == sorted(keys)
    assert [any_store.get(key) for key in keys] == [key.encode() for key in keys]
    any_store.put("empty", b"")
    assert any_store.get("empty") == b""
    any_store.delete("empty")
    any_store.delete("a b")
    assert any_store.keys() == ["d/100%", "é&<"]
    assert any_store.uploads() == []
    assert any_store.proxy.count() == 0


def test_the_proxy_counts(any_bucket: Bucket) -> None:
    import obstore

    obstore.put(connected(any_bucket), "x", b"12345", use_multipart=False)
    assert obstore.get(connected(any_bucket), "x").bytes() == b"12345"
    proxy = any_bucket.proxy
    assert (proxy.count(), proxy.count("PUT"), proxy.count("GET", "HEAD")) == (2, 1, 1)
    assert (proxy.uploaded_bytes, proxy.body_bytes) == (5, 5)
    proxy.reset()
    assert (proxy.count(), proxy.uploaded_bytes, proxy.body_bytes) == (0, 0, 0)


def test_objects_are_uploaded_in_parts(any_bucket: Bucket) -> None:
    import obstore

    obstore.put(connected(any_bucket), "x", iter([PART, PART, b"end"]), chunk_size=len(PART))
    assert any_bucket.get("x") == PART + PART + b"end"
    assert any_bucket.uploads() == []
    assert any_bucket.proxy.count("PUT") >= 3


def test_an_object_is_made_only_once(any_bucket: Bucket) -> None:
    import obstore

    made = obstore.put(connected(any_bucket), "x", b"1", mode="create", use_multipart=False)
    with pytest.raises(obstore.exceptions.AlreadyExistsError):
        obstore.put(connected(any_bucket), "x", b"2", mode="create", use_multipart=False)
    again = {name: value for name, value in made.items() if value is not None}
    obstore.put(connected(any_bucket), "x", b"3", mode=again, use_multipart=False)
    with pytest.raises(obstore.exceptions.PreconditionError):
        obstore.put(connected(any_bucket), "x", b"4", mode=again, use_multipart=False)
    assert any_bucket.get("x") == b"3"


def test_an_unfinished_upload_to_s3_is_seen(bucket: S3Bucket) -> None:
    bucket.put("a/x", b"")
    bucket._client.create_multipart_upload(Bucket=bucket.name, Key="a/x")
    assert bucket.uploads() == ["a/x"]


def test_an_unfinished_upload_to_azure_is_seen(azure_container: AzureContainer) -> None:
    azure_container.put("x", b"")
    for key in ("a/x", "x"):
        azure_container._ask("PUT", key, {"comp": "block", "blockid": "MQ=="}, data=b"1")
    assert azure_container.uploads() == ["a/x", "x"]
    assert azure_container.keys() == ["x"]


def test_an_unfinished_upload_to_gcs_is_seen(gcs_bucket: GcsBucket) -> None:
    import obstore

    def parts() -> Iterator[bytes]:
        yield PART
        assert gcs_bucket.uploads() == ["x"]
        raise KeyError

    with pytest.raises(KeyError):
        obstore.put(connected(gcs_bucket), "x", parts(), chunk_size=len(PART) // 2)
    assert gcs_bucket.uploads() == []  # obstore aborts it
    assert gcs_bucket.keys() == []
