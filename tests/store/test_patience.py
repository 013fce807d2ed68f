"""A store that is away for a while: requests are repeated, as long as the options say."""

from __future__ import annotations

import itertools
import socket
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from http.server import ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import recmap as rm
from recmap.store import object_store, object_writer, patience
from recmap.store.object_path import ObjectPath, object_path, tree_of
from recmap.store.object_store import ObjectStore
from recmap.store.object_writer import (
    Upload,
    UploadParts,
    copy_object,
    delete_object,
    put_if,
    put_object,
    read_object,
)
from recmap.store.s3_uploads import find_s3_uploads
from recmap.store.storage import Storage, parse_url
from tests.faulty_proxy import Drop, Status
from tests.http_server import Handler

if TYPE_CHECKING:
    from tests.buckets import AzureContainer, GcsBucket, HttpFolder, S3Bucket
    from tests.buckets import S3Bucket as Bucket

# On a busy machine, any of these tests may wait so long that it is said.
pytestmark = pytest.mark.filterwarnings("default::recmap.StoreWaitWarning")

DATA = bytes(range(256)) * 100
PART = 5 << 20


def patient(bucket: Any, **options: Any) -> Storage:
    """Options that do not limit how often requests are repeated."""
    return Storage({**{n: v for n, v in bucket.storage.items() if n != "retries"}, **options})


def requests_to(bucket: Bucket, storage: Storage) -> dict[str, Callable[[], object]]:
    """Every kind of request that recmap makes."""
    store = ObjectStore(parse_url(bucket.url), storage)
    info = bucket.store().head("x.bin")
    uploads = find_s3_uploads(parse_url(bucket.url), storage)
    assert uploads is not None

    def at(key: str) -> ObjectPath:
        return object_path(bucket.url_of(key), storage)

    def send_parts() -> None:
        upload = Upload(at("parts.bin"), UploadParts(PART, 2))
        for _ in range(3):
            upload.write(np.zeros(PART, np.uint8))
        upload.complete()

    return {
        "head": lambda: store.head("x.bin"),
        "range": lambda: store.read(info, 5, 500),
        "ranges": lambda: store.read_many(info, [(0, 9), (50, 90)]),
        "list": lambda: store.folder(""),
        "tree": lambda: tree_of(at("")),
        "get": lambda: read_object(at("x.bin")),
        "put": lambda: put_object(at("put.bin"), DATA),
        "create": lambda: put_if(at("new.bin"), DATA, None),
        "parts": send_parts,
        "copy": lambda: copy_object(at("x.bin"), at("copy.bin")),
        "delete": lambda: delete_object(at("old.bin")),
        "signed here": lambda: uploads.unfinished(""),
        "open": lambda: rm.open(bucket.url_of("x.npy"), storage=dict(storage))[:],
        "zarr": lambda: rm.open(bucket.url_of("x.zarr"), storage=dict(storage))[:],
    }


@pytest.mark.parametrize("fault", [Status(503), Drop()], ids=str)
def test_all_requests_outlast_an_outage(bucket: S3Bucket, fault: Any) -> None:
    bucket.put("x.bin", DATA)
    bucket.put("old.bin", DATA)
    rm.from_arrays({"x": np.arange(9)}).save(bucket.url_of("x.npy"), storage=bucket.storage)
    rm.from_arrays({"x": np.arange(9)}).save(bucket.url_of("x.zarr"), storage=bucket.storage)
    requests = requests_to(bucket, patient(bucket))
    # More than any of them repeats quickly, one after the other.
    bucket.proxy.faults.extend([fault] * 6 * len(requests))
    with ThreadPoolExecutor(len(requests)) as pool:
        for done in [pool.submit(request) for request in requests.values()]:
            done.result()
    assert not bucket.proxy.faults
    keys = bucket.keys()
    assert {"put.bin", "new.bin", "copy.bin", "parts.bin"} <= set(keys)
    assert "old.bin" not in keys
    assert bucket.get("put.bin") == bucket.get("new.bin") == bucket.get("copy.bin") == DATA
    assert bucket.get("parts.bin") == bytes(3 * PART)


@pytest.mark.parametrize("option", ["max_retries", "retry_timeout"])
def test_the_options_say_when_to_give_up(bucket: S3Bucket, option: str) -> None:
    bucket.put("x.bin", DATA)
    bucket.put("old.bin", DATA)
    rm.from_arrays({"x": np.arange(9)}).save(bucket.url_of("x.npy"), storage=bucket.storage)
    rm.from_arrays({"x": np.arange(9)}).save(bucket.url_of("x.zarr"), storage=bucket.storage)
    requests = requests_to(bucket, patient(bucket, **{option: 1}))
    bucket.proxy.reset()
    bucket.proxy.faults.extend([Status(503)] * 10_000)
    with ThreadPoolExecutor(len(requests)) as pool:
        started = {name: pool.submit(request) for name, request in requests.items()}
        failures = {name: done.exception() for name, done in started.items()}
    asked = bucket.proxy.count()
    bucket.proxy.faults.clear()
    assert {name: type(failure) for name, failure in failures.items()} == dict.fromkeys(
        requests, rm.StoreError
    )
    if option != "retry_timeout":  # "ranges" are two requests, and so may be an aborted upload
        assert asked <= 2 * (len(requests) + 2)


@pytest.mark.parametrize("fault", [Status(400), Status(403), Status(404), Status(412)], ids=str)
def test_what_will_not_get_better_is_not_repeated(bucket: S3Bucket, fault: Any) -> None:
    bucket.put("x.bin", DATA)
    info = bucket.store().head("x.bin")
    store = ObjectStore(parse_url(bucket.url), patient(bucket))
    bucket.proxy.reset()
    bucket.proxy.faults.extend([fault] * 10)
    with pytest.raises(OSError, match="x.bin: "):
        store.read(info, 0, 9)
    assert bucket.proxy.count() == 1
    bucket.proxy.faults.clear()


def test_other_stores_outlast_an_outage(
    azure_container: AzureContainer, gcs_bucket: GcsBucket, http_folder: HttpFolder
) -> None:
    for each in (azure_container, gcs_bucket, http_folder):
        each.put("x.bin", DATA)
        url = parse_url(each.url_of("x.bin"))
        store = ObjectStore(url, patient(each))
        each.proxy.faults.extend([Status(503)] * 5)
        info = store.head(url.key)
        each.proxy.faults.extend([Drop()] * 5)
        assert store.read(info, 0, 500).tobytes() == DATA[:500]


@pytest.mark.slow
def test_a_server_that_refuses_connections_is_waited_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class OneFile(Handler):
        def do_GET(self) -> None:  # noqa: N802
            self.reply_with_part(DATA, {"ETag": '"1"', "Last-Modified": DATE})

        do_HEAD = do_GET  # noqa: N815

    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = free.getsockname()
    servers: list[ThreadingHTTPServer] = []
    pauses = itertools.count()

    def start_at_the_second_pause(_: float) -> None:
        if next(pauses) == 1:
            servers.append(ThreadingHTTPServer(address, OneFile))
            threading.Thread(target=servers[0].serve_forever, args=(0.05,), daemon=True).start()

    monkeypatch.setattr("recmap.store.patience.time.sleep", start_at_the_second_pause)
    url = parse_url(f"http://127.0.0.1:{address[1]}/x.bin")
    try:
        assert ObjectStore(url, Storage()).head("x.bin").size == len(DATA)
    finally:
        for server in servers:
            server.shutdown()
            server.server_close()
    assert len(servers) == 1


def test_waiting_is_said_with_its_reason(bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    bucket.put("x.bin", DATA)
    store = ObjectStore(parse_url(bucket.url), patient(bucket, retry_timeout=90))
    monkeypatch.setattr(patience, "SILENCE", 0.0)
    bucket.proxy.faults.extend([Status(503)] * 5)
    with pytest.warns(rm.StoreWaitWarning) as told:
        store.head("x.bin")
    assert str(told[0].message).startswith(
        f"s3://{bucket.name}: the store failed (503); recmap tries again for up to 90 s"
    )


def test_an_upload_that_waits_is_said(bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    said, told = threading.Event(), []

    def tell(place: str, error: rm.StoreError, _: float) -> None:
        told.append((place, error.status))
        bucket.proxy.faults.clear()  # the store is back
        said.set()

    monkeypatch.setattr(object_writer, "SILENCE", 0.01)
    monkeypatch.setattr(object_store, "tell", tell)
    upload = Upload(object_path(bucket.url_of("x.bin"), patient(bucket)), UploadParts(PART, 1))
    bucket.proxy.faults.extend([Status(503)] * 10_000)
    for _ in range(3):
        upload.write(np.zeros(PART, np.uint8))
    upload.complete()
    assert said.wait(60)
    assert told == [(f"s3://{bucket.name}", 503)]
    assert bucket.get("x.bin") == bytes(3 * PART)


def test_wrong_options_are_refused() -> None:
    for options, words in (
        ({"retry_timeout": "long"}, "retry_timeout: give a number of seconds"),
        ({"retry_timeout": -1}, "retry_timeout: give a number of seconds"),
        ({"max_retries": "many"}, "max_retries='many': give a whole number"),
        ({"retries": 1, "max_retries": 1}, "give one of them"),
    ):
        with pytest.raises(rm.OptionError, match=words):
            ObjectStore(parse_url("http://127.0.0.1:9/x"), Storage(options))


DATE = "Wed, 21 Oct 2020 07:28:00 GMT"


@pytest.mark.slow
def test_a_server_name_that_does_not_exist_is_not_waited_for() -> None:
    name = "a" * 64  # longer than a name can be, so that no name server is asked
    keys = {"access_key_id": "a", "secret_access_key": "b"}
    for url, storage, said in (
        (f"http://{name}/x.npy", {}, "check the URL"),
        ("s3://b/x.npy", {"endpoint": f"http://{name}", **keys}, "check the endpoint"),
    ):
        with pytest.raises(rm.StoreError, match=f"no server with this name; {said}") as caught:
            rm.open(url, storage={"retry_timeout": 600, **storage})
        assert not caught.value.transient
