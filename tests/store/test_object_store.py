"""Objects are read exactly, or an error says why: against a real S3 server and a faulty proxy."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import textwrap
import threading
import time
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import recmap as rm
from recmap.store import fetch
from recmap.store.object_store import ObjectStore
from recmap.store.storage import Storage, parse_url
from tests.faulty_proxy import Cut, Drop, FaultyProxy, Hold, Stall, Status
from tests.store_servers import file_server

if TYPE_CHECKING:
    from tests.buckets import Bucket, HttpFolder

DATA = np.random.default_rng(1).integers(0, 256, 20 << 20, np.uint8).tobytes()
SMALL = DATA[: 1 << 20]


def test_an_object_is_looked_up(bucket: Bucket) -> None:
    bucket.put("a/x.bin", SMALL)
    info = bucket.store().head("a/x.bin")
    assert (info.key, info.size, info.pinned) == ("a/x.bin", len(SMALL), True)
    assert len(bucket.proxy.requests) == 1


def test_spans_are_read_exactly(bucket: Bucket) -> None:
    bucket.put("x.bin", DATA)
    store = bucket.store()
    info = store.head("x.bin")
    rng = np.random.default_rng(2)
    spans = [(0, 0), (0, 1), (len(DATA) - 1, len(DATA)), (5, 9 << 20), (0, len(DATA))]
    spans += [tuple(sorted(rng.integers(0, len(DATA), 2).tolist())) for _ in range(5)]
    for (begin, end), found in zip(spans, store.read_many(info, spans), strict=True):
        assert found.tobytes() == DATA[begin:end]


def test_one_span_is_one_request_and_a_long_one_is_divided(bucket: Bucket) -> None:
    bucket.put("x.bin", DATA)
    store = bucket.store()
    info = store.head("x.bin")
    for span, requests in (((7, 1000), 1), ((0, 8 << 20), 1), ((0, 20 << 20), 3), ((5, 5), 0)):
        bucket.proxy.requests.clear()
        bucket.proxy.body_bytes = 0
        store.read(info, *span)
        assert len(bucket.proxy.requests) == requests
        assert bucket.proxy.body_bytes == span[1] - span[0]


def test_spans_are_read_into_given_arrays(bucket: Bucket) -> None:
    bucket.put("x.bin", SMALL)
    store = bucket.store()
    target = np.zeros(30, np.uint8)
    store.read_many(store.head("x.bin"), [(0, 10), (50, 60)], [target[:10], target[20:]])
    assert target.tobytes() == SMALL[:10] + bytes(10) + SMALL[50:60]


@pytest.mark.parametrize("span", [(-1, 5), (5, 4), (0, (1 << 20) + 1)])
def test_spans_outside_the_object_are_refused(bucket: Bucket, span: tuple[int, int]) -> None:
    bucket.put("x.bin", SMALL)
    store = bucket.store()
    with pytest.raises(ValueError, match="span"):
        store.read(store.head("x.bin"), *span)


@pytest.mark.parametrize(
    "faults",
    [
        [Status(503)],
        [Status(429)],
        [Status(500), Status(503), Status(502)],
        [Drop()],
        [Cut(0)],
        [Cut(1000), Cut(5000)],
    ],
    ids=str,
)
def test_passing_faults_do_not_show(bucket: Bucket, faults: list[Any]) -> None:
    bucket.put("x.bin", SMALL)
    store = bucket.store()
    info = store.head("x.bin")
    bucket.proxy.faults.extend(faults)
    assert store.read(info, 10, 900_000).tobytes() == SMALL[10:900_000]
    assert not bucket.proxy.faults
    assert len(bucket.proxy.requests) == 2 + len(faults)  # the head, the faults, the answer


def test_a_body_that_breaks_off_is_resumed(bucket: Bucket) -> None:
    bucket.put("x.bin", SMALL)
    store = bucket.store()
    info = store.head("x.bin")
    bucket.proxy.faults.append(Cut(1000))
    store.read(info, 0, 2000)
    assert [each[2] for each in bucket.proxy.requests[1:]] == ["bytes=0-1999", "bytes=1000-1999"]


def test_faults_among_parallel_requests_do_not_show(bucket: Bucket) -> None:
    bucket.put("x.bin", DATA)
    store = bucket.store()
    info = store.head("x.bin")
    spans = [(i << 20, (i << 20) + 70_000) for i in range(20)]
    bucket.proxy.faults.extend([Status(503), None, Drop(), Cut(20), None, Status(429)] * 3)
    for (begin, end), found in zip(spans, store.read_many(info, spans), strict=True):
        assert found.tobytes() == DATA[begin:end]


@pytest.mark.parametrize(
    ("fault", "kind", "word"),
    [
        (Status(503), rm.StoreError, "503"),
        (Status(403, body=b"<Code>AccessDenied</Code>"), rm.AccessDeniedError, "AccessDenied"),
        (Status(401), rm.AccessDeniedError, "401"),
        (Status(301), rm.StoreError, "in another region"),
        (Status(400, body=b"<Code>PermanentRedirect</Code>"), rm.StoreError, "another region"),
        (Status(400), rm.StoreError, r"refuses the request \(400\); check"),
        (Status(429), rm.StoreError, r"failed \(429\), after several attempts"),
        (Status(404), rm.PathNotFoundError, "no such object"),
        (Status(404, body=b"<Code>NoSuchBucket</Code>"), rm.PathNotFoundError, "no such bucket"),
        (Status(412), rm.ObjectChangedError, "open it again"),
        (Status(416), rm.ObjectChangedError, "open it again"),
        (Drop(), rm.StoreError, "cannot reach"),
        (Stall(), rm.StoreTimeoutError, "no answer in time"),
    ],
    ids=str,
)
def test_lasting_faults_are_errors(
    bucket: Bucket, fault: Any, kind: type[Exception], word: str
) -> None:
    bucket.put("x.bin", SMALL)
    info = bucket.store().head("x.bin")
    store = bucket.store(retries=1, **({"read_timeout": 0.3} if fault == Stall() else {}))
    bucket.proxy.faults.extend([fault] * 10)
    with pytest.raises(kind, match=word) as caught:
        store.read(info, 0, 1000)
    assert f"s3://{bucket.name}" in str(caught.value)


def test_an_error_among_parallel_requests_is_raised(bucket: Bucket) -> None:
    bucket.put("x.bin", DATA)
    store = bucket.store(retries=0)
    info = store.head("x.bin")
    bucket.proxy.faults.extend([None, None, Status(403)])
    with pytest.raises(rm.AccessDeniedError):
        store.read(info, 0, len(DATA))


def test_nothing_is_written_after_an_error(bucket: Bucket) -> None:
    bucket.put("x.bin", DATA)
    store = bucket.store(retries=0)
    info = store.head("x.bin")
    target = np.zeros(len(DATA), np.uint8)
    under_way, over = threading.Barrier(3), threading.Event()

    def wait() -> None:
        under_way.wait()
        over.wait()

    bucket.proxy.faults.extend([Hold(under_way.wait, Status(403)), Hold(wait), Hold(wait)])
    with pytest.raises(rm.AccessDeniedError):
        store.read_many(info, [(0, len(DATA))], [target])
    over.set()
    while fetch._threads._busy:  # the late answers
        time.sleep(0.01)
    assert not bucket.proxy.faults
    assert not target.any()


@pytest.mark.parametrize("etag", ['"%d"', 'W/"%d"', None])
def test_a_file_that_changes_during_a_read_is_never_mixed(etag: str | None) -> None:
    with file_server() as server, FaultyProxy(server.url) as proxy:

        def change() -> None:
            server.files["/x.bin"] = SMALL[::-1]
            server.modified = "Thu, 22 Oct 2020 07:28:00 GMT"
            server.etag = None if etag is None else etag % 2

        server.files["/x.bin"] = SMALL
        server.etag = None if etag is None else etag % 1
        store = ObjectStore(parse_url(f"{proxy.url}/x.bin"), Storage({"retries": 2}))
        info = store.head("x.bin")
        proxy.faults.append(Cut(1000, then=change))
        with pytest.raises(rm.StoreError):
            store.read(info, 0, 2000)


@pytest.mark.slow
@pytest.mark.parametrize("etag", ['"1"', None])
def test_a_broken_read_of_a_file_is_repeated(etag: str | None) -> None:
    with file_server() as server, FaultyProxy(server.url) as proxy:
        server.files["/x.bin"], server.etag = SMALL, etag
        store = ObjectStore(parse_url(f"{proxy.url}/x.bin"), Storage({"retries": 2}))
        info = store.head("x.bin")
        proxy.faults.extend([Cut(1000), Cut(10)])
        assert store.read(info, 5, 5000).tobytes() == SMALL[5:5000]
        proxy.faults.extend([Cut(1000)] * 9)
        with pytest.raises(rm.StoreError, match="cannot reach"):
            store.read(info, 5, 500_000)


def test_public_data_needs_no_credentials(public: Bucket) -> None:
    public.put("x.bin", b"x")
    store = public.store()
    assert store.read(store.head("x.bin"), 0, 1).tobytes() == b"x"


def test_an_absent_server_is_an_error() -> None:
    storage = {"endpoint": "http://127.0.0.1:9", "anonymous": True, "retries": 0}
    with pytest.raises(rm.StoreError, match="cannot reach the server"):
        ObjectStore(parse_url("s3://bucket/x"), Storage(storage)).head("x")


@pytest.mark.parametrize(
    ("storage", "word"),
    [
        ({"hello": "x"}, "hello is not an option"),
        ({"timeout": "soon"}, "timeout: give a number"),
        ({"read_timeout": 0}, "read_timeout: give a number"),
        ({"region": ["eu"]}, "region: give text"),
        ({"retries": "many"}, "retries='many': give a whole number"),
        ({"virtual_hosted_style_request": "perhaps"}, "has a wrong value"),
        ({3: "x"}, "names of options"),
    ],
    ids=str,
)
def test_wrong_options_are_refused(storage: dict[Any, Any], word: str) -> None:
    with pytest.raises(rm.OptionError, match=word):
        ObjectStore(parse_url("s3://bucket/x"), Storage(storage))


def test_a_store_is_opened_again_in_another_process(bucket: Bucket) -> None:
    bucket.put("x.bin", SMALL)
    again = pickle.loads(pickle.dumps(bucket.store()))
    assert again.head("x.bin").size == len(SMALL)


def test_a_forked_process_gets_an_error_instead_of_hanging(bucket: Bucket) -> None:
    bucket.put("x.bin", SMALL)
    program = f"""
        import os
        from recmap.store.object_store import ObjectStore
        from recmap.store.storage import Storage, parse_url
        store = ObjectStore(parse_url("s3://{bucket.name}/x.bin"), Storage({bucket.storage!r}))
        info = store.head("x.bin")
        store.read_many(info, [(0, 1), (2, 3)])
        for read in (lambda: store.head("x.bin"), lambda: store.read_many(info, [(0, 1), (2, 3)])):
            if os.fork() == 0:
                try:
                    read()
                except Exception as e:
                    print(type(e).__name__, e, flush=True)
                os._exit(0)
            os.wait()
    """
    run = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        check=True,
        timeout=600,
    )
    lines = run.stdout.splitlines()
    assert len(lines) == 2
    assert all(line.startswith("StoreError") and '"spawn:N"' in line for line in lines)


def test_files_of_http_servers_are_read() -> None:
    with file_server() as server:
        server.files["/d/a b.bin"] = SMALL
        url = parse_url(f"{server.url}/d/a%20b.bin")
        for etag, dated in (('"1"', True), ('W/"1"', True), (None, True), ('"1"', False)):
            server.etag, server.dated = etag, dated
            store = ObjectStore(url, Storage())
            info = store.head(url.key)
            assert info.pinned
            assert store.read(info, 5, 500).tobytes() == SMALL[5:500]
            if etag is not None:
                server.etag = etag.replace("1", "2")
                with pytest.raises(rm.ObjectChangedError):
                    store.read(info, 5, 500)
        server.etag, server.dated = None, False
        assert not ObjectStore(url, Storage()).head(url.key).pinned


def test_redirects_of_http_servers_are_followed(http_folder: HttpFolder) -> None:
    http_folder.put("x.bin", SMALL)
    store, proxy = http_folder.store(retries=0), http_folder.proxy
    info = store.head("data/x.bin")
    for code in (301, 302, 303, 307, 308):
        there = Status(code, {"Location": f"{http_folder._server.url}/data/x.bin?key=canary"})
        proxy.faults.append(there)
        assert store.head("data/x.bin") == info
        proxy.faults.append(there)
        assert store.read(info, 5, 10).tobytes() == SMALL[5:10]
    nowhere = Status(302, {"Location": "http://127.0.0.1:9/x.bin?key=canary"})
    for fault in (nowhere, Status(302), Status(302, {"Location": f"{proxy.url}/data/x.bin"})):
        proxy.faults.extend([fault] * 30)
        with pytest.raises(rm.StoreError) as caught:
            store.read(info, 5, 10)
        proxy.faults.clear()
        assert "canary" not in "".join(traceback.format_exception(caught.value))


def test_http_servers_without_ranges_or_listings_are_refused() -> None:
    with file_server() as server:
        server.files["/x.bin"] = SMALL
        server.ranges = False
        url = parse_url(f"{server.url}/x.bin")
        store = ObjectStore(url, Storage())
        with pytest.raises(rm.StoreError, match="does not send parts of files"):
            store.read(store.head("x.bin"), 0, 10)
        with pytest.raises(rm.OptionError, match="does not list its files"):
            store.folder("")


@pytest.mark.slow
def test_obstore_is_imported_only_for_urls() -> None:
    run = subprocess.run(
        [sys.executable, "-c", "import recmap, sys; recmap.open; print('obstore' in sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ,
    )
    assert run.stdout == "False\n"


def test_a_file_that_may_change_unnoticed_is_read_only_if_asked_for() -> None:
    with file_server() as server:
        server.files["/x.bin"], server.etag, server.dated = SMALL, None, False
        url = parse_url(f"{server.url}/x.bin")
        store = ObjectStore(url, Storage())
        with pytest.raises(rm.StoreError, match="neither an ETag nor a date"):
            store.read(store.head("x.bin"), 0, 10)
        store = ObjectStore(url, Storage({"unpinned": True}))
        assert store.read(store.head("x.bin"), 0, 10).tobytes() == SMALL[:10]
