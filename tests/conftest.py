"""Fixtures: servers of object stores, started when a test of a process first needs one."""

from __future__ import annotations

import gc
import itertools
import multiprocessing.context
import os
from collections import deque
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.buckets import AzureContainer, Bucket, GcsBucket, HttpFolder, S3Bucket, s3_client
from tests.fake_gcs import fake_gcs
from tests.faulty_proxy import FaultyProxy
from tests.forked import QuickSpawn
from tests.store_servers import azurite, file_server, moto, seaweedfs

_BUCKETS_AHEAD = 4


# Tests see no settings of one's own.
for _name in list(os.environ):
    if _name.startswith(("AWS_", "AZURE_", "GOOGLE_")) or _name.upper().endswith("_PROXY"):
        del os.environ[_name]
os.environ["AWS_CONFIG_FILE"] = os.environ["AWS_SHARED_CREDENTIALS_FILE"] = "missing"
os.environ["AWS_EC2_METADATA_DISABLED"] = "true"

# Spawned processes come from the fork server, except where a test wants real ones.
_CONTEXTS = multiprocessing.context._concrete_contexts  # type: ignore[attr-defined]
_REAL_SPAWN, _CONTEXTS["spawn"] = _CONTEXTS["spawn"], QuickSpawn()


@pytest.fixture
def real_spawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start a new interpreter for each spawned process, as users do."""
    monkeypatch.setitem(_CONTEXTS, "spawn", _REAL_SPAWN)


@pytest.fixture(scope="session")
def s3_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with seaweedfs(tmp_path_factory.mktemp("seaweedfs")) as url:
        yield url


@pytest.fixture(scope="session")
def _s3_client(s3_server: str) -> Any:
    client = s3_client(s3_server)
    client.create_bucket(Bucket="public")
    return client


@pytest.fixture(scope="session")
def azure_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with azurite(tmp_path_factory.mktemp("azurite")) as url:
        yield url


@pytest.fixture(scope="session")
def moto_server() -> Iterator[str]:
    with moto() as url:
        yield url


@pytest.fixture(scope="session")
def _empty_buckets(_s3_client: Any) -> Iterator[Iterator[str]]:
    """Names of new buckets, made ahead: the server waits 0.2 s before the first object of each."""

    def make(number: int) -> str:
        name = f"empty-{number}"
        _s3_client.create_bucket(Bucket=name)
        _s3_client.put_object(Bucket=name, Key="first", Body=b"first")
        _s3_client.delete_object(Bucket=name, Key="first")
        return name

    def names() -> Iterator[str]:
        coming = deque(pool.submit(make, number) for number in range(_BUCKETS_AHEAD))
        for number in itertools.count(_BUCKETS_AHEAD):
            coming.append(pool.submit(make, number))
            yield coming.popleft().result()

    with ThreadPoolExecutor(_BUCKETS_AHEAD) as pool:
        yield names()


@pytest.fixture
def bucket(s3_server: str, _s3_client: Any, _empty_buckets: Iterator[str]) -> Iterator[S3Bucket]:
    """A bucket of an S3 server."""
    with FaultyProxy(s3_server) as proxy:
        yield S3Bucket(_s3_client, proxy, next(_empty_buckets))


@pytest.fixture
def public(s3_server: str, _s3_client: Any) -> Iterator[S3Bucket]:
    """The bucket of an S3 server that needs no credentials."""
    with FaultyProxy(s3_server) as proxy:
        bucket = S3Bucket(_s3_client, proxy, "public")
        bucket.storage = {"endpoint": proxy.url, "anonymous": True}
        yield bucket
        left = bucket.keys()
        for key in left:
            bucket.delete(key)


@pytest.fixture
def azure_container(azure_server: str) -> Iterator[AzureContainer]:
    with FaultyProxy(azure_server) as proxy:
        yield AzureContainer(azure_server, proxy)


@pytest.fixture
def gcs_bucket() -> Iterator[GcsBucket]:
    with fake_gcs() as server, FaultyProxy(server.url) as proxy:
        yield GcsBucket(server, proxy)


@pytest.fixture
def http_folder() -> Iterator[HttpFolder]:
    with file_server() as server, FaultyProxy(server.url) as proxy:
        yield HttpFolder(server, proxy)


@pytest.fixture(params=["bucket", "azure_container", "gcs_bucket", "http_folder"])
def any_store(request: pytest.FixtureRequest) -> Bucket:
    """A place in each kind of store that recmap reads."""
    found: Bucket = request.getfixturevalue(request.param)
    return found


@pytest.fixture(params=["bucket", "azure_container", "gcs_bucket"])
def any_bucket(request: pytest.FixtureRequest) -> Bucket:
    """A place in each kind of store that recmap lists and writes."""
    found: Bucket = request.getfixturevalue(request.param)
    return found


def pytest_collection_finish() -> None:
    # The frameworks that tests import have half a million objects. Garbage collections, of which
    # some tests make many, need not look at them again.
    gc.collect()
    gc.freeze()


def pytest_sessionfinish() -> None:
    gc.unfreeze()  # packages check at the end that their objects were freed
