"""Objects appear complete or not at all: against a real S3 server and a faulty proxy."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import TYPE_CHECKING

import numpy as np
import pytest

import recmap as rm
from recmap.machine.memory import anonymous_memory
from recmap.store.object_path import ObjectPath, object_path
from recmap.store.object_writer import (
    Upload,
    UploadParts,
    choose_parts,
    delete_object,
    put_file,
    put_if,
    put_object,
    read_object,
)
from recmap.store.s3_uploads import S3Uploads, find_s3_uploads
from recmap.store.storage import Storage
from tests.faulty_proxy import Drop, Status
from tests.store_servers import SECRET_KEY

if TYPE_CHECKING:
    from pathlib import Path

    from tests.buckets import S3Bucket as Bucket

DATA = np.random.default_rng(1).integers(0, 256, 24 << 20, np.uint8)
SMALL_PARTS = UploadParts(5 << 20, 2)


def _path(bucket: Bucket, key: str = "a/x.bin") -> ObjectPath:
    return object_path(f"s3://{bucket.name}/{key}", Storage(bucket.storage))


def _uploads(bucket: Bucket) -> S3Uploads:
    found = find_s3_uploads(_path(bucket).store.url, Storage(bucket.storage))
    assert found is not None
    return found


def _content(path: ObjectPath) -> bytes:
    info = path.anew().info
    return path.store.read(info, 0, info.size).tobytes()


def test_an_object_is_put_and_deleted(bucket: Bucket) -> None:
    path = _path(bucket)
    version = put_object(path, b"one")
    assert path.info.etag == version.etag
    assert read_object(path) == (b"one", version)
    put_object(path, b"two")
    assert _content(path) == b"two"
    delete_object(path)
    delete_object(path)
    assert read_object(path) is None


def test_an_object_is_created_only_once(bucket: Bucket) -> None:
    path = _path(bucket)
    assert put_if(path, b"one", None) is not None
    assert put_if(path, b"two", None) is None
    assert _content(path) == b"one"


def test_an_object_is_replaced_only_if_it_is_the_one_seen(bucket: Bucket) -> None:
    path = _path(bucket)
    first = put_object(path, b"one")
    second = put_if(path, b"two", first)
    assert second is not None
    assert put_if(path, b"three", first) is None
    assert _content(path) == b"two"
    delete_object(path)
    assert put_if(path, b"three", second) is None
    assert read_object(path) is None


def test_a_condition_holds_if_the_answer_to_it_was_lost(bucket: Bucket) -> None:
    path = _path(bucket)
    put_object(path, b"one")
    # The server has made the object, but a proxy says that it failed: the second attempt finds
    # the object of the first.
    bucket.proxy.faults.extend([Status(412)])
    assert put_if(path, b"one", None) is not None
    assert put_if(path, b"other", None) is None


def test_requests_are_repeated(bucket: Bucket) -> None:
    path = _path(bucket)
    bucket.proxy.faults.extend([Status(503), Drop()])
    put_object(path, b"one")
    assert _content(path) == b"one"


@pytest.mark.parametrize("size", [0, 1, 5 << 20, (5 << 20) + 1, 15 << 20, len(DATA)])
def test_uploads_have_all_bytes_in_order(bucket: Bucket, size: int) -> None:
    path = _path(bucket)
    upload = Upload(path, SMALL_PARTS)
    rng = np.random.default_rng(size)
    at = 0
    while at < size:
        step = int(rng.integers(1, 3 << 20))
        upload.write(DATA[at : min(at + step, size)])
        at += step
    version = upload.complete()
    assert upload.size == size
    assert path.info.etag == version.etag
    assert _content(path) == DATA[:size].tobytes()
    assert _uploads(bucket).unfinished("") == []


def test_an_upload_of_several_parts_is_repeated_where_it_failed(bucket: Bucket) -> None:
    path = _path(bucket)
    bucket.proxy.faults.extend([None, Status(500), None, Drop(), Status(503)])
    upload = Upload(path, SMALL_PARTS)
    upload.write(DATA)
    upload.complete()
    assert _content(path) == DATA.tobytes()


def test_an_aborted_upload_leaves_nothing(bucket: Bucket) -> None:
    path = _path(bucket)
    upload = Upload(path, SMALL_PARTS)
    for at in range(0, len(DATA), 1 << 20):
        upload.write(DATA[at : at + (1 << 20)])
    (open_upload,) = _uploads(bucket).unfinished("a/")
    assert open_upload.key == path.key
    upload.abort()
    assert _uploads(bucket).unfinished("") == []
    assert not path.exists()


def test_an_upload_that_is_refused_raises_and_leaves_nothing(bucket: Bucket) -> None:
    path = _path(bucket)
    upload = Upload(path, SMALL_PARTS)
    bucket.proxy.faults.extend([None, *[Status(403)] * 20])
    with pytest.raises(rm.AccessDeniedError, match=r"a/x\.bin: access denied"):
        for _ in range(20):
            upload.write(DATA)
    bucket.proxy.faults.clear()
    upload.abort()
    for left in _uploads(bucket).unfinished(""):
        _uploads(bucket).abort(left)  # even the abort was refused
    assert not path.exists()


def test_an_upload_left_open_at_exit_is_aborted(bucket: Bucket) -> None:
    program = f"""
        import numpy as np
        from recmap.store.object_path import object_path
        from recmap.store.object_writer import Upload, UploadParts
        from recmap.store.storage import Storage
        storage = Storage({bucket.storage!r})
        upload = Upload(object_path("s3://{bucket.name}/a", storage), UploadParts(5 << 20, 2))
        for _ in range(20):
            upload.write(np.zeros(1 << 20, np.uint8))
    """
    subprocess.run([sys.executable, "-c", textwrap.dedent(program)], check=True, timeout=600)
    assert any(method == "POST" for method, _, _ in bucket.proxy.requests)
    assert _uploads(bucket).unfinished("") == []


def test_a_file_is_put(bucket: Bucket, tmp_path: Path) -> None:
    file = tmp_path / "x.bin"
    file.write_bytes(DATA.tobytes())
    put_file(_path(bucket), str(file), SMALL_PARTS)
    assert _content(_path(bucket)) == DATA.tobytes()


def test_uploads_keep_within_their_memory(bucket: Bucket) -> None:
    upload = Upload(_path(bucket), SMALL_PARTS)
    before, peak = anonymous_memory(), 0
    for _ in range(150):
        upload.write(np.zeros(1 << 20, np.uint8))
        peak = max(peak, anonymous_memory())
    upload.complete()
    # Threads and connections take some megabytes, too.
    assert peak - before < SMALL_PARTS.memory + (16 << 20)


@pytest.mark.parametrize("expected", [0, 1, 10**8, 10**10, 10**12, 5 * 10**12])
@pytest.mark.parametrize("memory", [None, 10**7, 10**8, 10**9])
def test_parts_suit_every_size(expected: int, memory: int | None) -> None:
    parts = choose_parts(expected, memory)
    assert parts.size >= 5 << 20
    assert parts.size * 10_000 >= expected
    if memory is not None and 8 * parts.size < memory:
        assert parts.memory <= memory


def test_http_servers_are_not_written_to() -> None:
    path = object_path("https://127.0.0.1/x.npy")
    for write in (
        lambda: put_object(path, b""),
        lambda: delete_object(path),
        lambda: Upload(path, UploadParts()),
    ):
        with pytest.raises(rm.OptionError, match="does not write to them"):
            write()


def test_errors_show_no_secrets(bucket: Bucket) -> None:
    bucket.proxy.faults.extend([Status(403, body=SECRET_KEY.encode())] * 5)
    with pytest.raises(rm.AccessDeniedError) as caught:
        put_object(_path(bucket), b"")
    assert SECRET_KEY not in repr(caught.getrepr(showlocals=False))
