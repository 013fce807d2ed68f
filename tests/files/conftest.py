"""Fixtures: an S3 server for all tests of a process, and a bucket for each test."""

from __future__ import annotations

import itertools
import os
from collections.abc import Iterator

import pytest

from recmap.files.object_store import ObjectStore
from recmap.files.storage import Storage, parse_url
from tests.faulty_proxy import FaultyProxy
from tests.store_servers import ACCESS_KEY, SECRET_KEY, seaweedfs

_numbers = itertools.count()


class Bucket:
    """A new bucket, seen through a proxy that a test can make faulty."""

    def __init__(self, server: str, proxy: FaultyProxy, name: str | None = None) -> None:
        import obstore.store

        self.name = name or f"bucket-{next(_numbers)}"
        self.proxy = proxy
        self.storage = {
            "endpoint": proxy.url,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "region": "us-east-1",
            "retries": 3,
        }
        self._direct = obstore.store.S3Store(
            self.name,
            endpoint=server,
            access_key_id=ACCESS_KEY,
            secret_access_key=SECRET_KEY,
            region="us-east-1",
            client_options={"allow_http": True},
        )

    def put(self, key: str, data: bytes) -> None:
        self._direct.put(key, data)

    def delete(self, key: str) -> None:
        self._direct.delete(key)

    def store(self, **options: object) -> ObjectStore:
        url = parse_url(f"s3://{self.name}")
        return ObjectStore(url, Storage({**self.storage, **options}))


@pytest.fixture(autouse=True)
def _no_settings_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", "missing")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "missing")


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as url:
        yield url


@pytest.fixture
def bucket(s3_server: str) -> Iterator[Bucket]:
    with FaultyProxy(s3_server) as proxy:
        yield Bucket(s3_server, proxy)


@pytest.fixture
def public(s3_server: str) -> Iterator[Bucket]:
    """A bucket that needs no credentials."""
    with FaultyProxy(s3_server) as proxy:
        bucket = Bucket(s3_server, proxy, "public")
        bucket.put("x.bin", b"x")
        bucket.storage = {"endpoint": proxy.url, "anonymous": True}
        yield bucket
