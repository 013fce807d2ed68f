"""A small server with the XML API of Google Cloud Storage, as far as recmap uses it.

It has objects with ranges and preconditions, listings in pages, multipart uploads, and the error
codes of the service. It does not imitate: the JSON API, signed URLs, OAuth (a request carries a
fixed token, or none), permissions of single objects, older generations, copies, metadata,
checksums of uploads, the least size of a part, requests that are throttled, and the expiry of
uploads.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import UTC, datetime
from email.utils import format_datetime
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from tests.http_server import Handler, serve

__all__ = ["DENIED_TOKEN", "TOKEN", "FakeGcs", "fake_gcs"]

TOKEN, DENIED_TOKEN = "token-secret", "token-that-allows-nothing"
# Keys on a page of a listing.
_PAGE = 1000


@dataclass(frozen=True)
class _Object:
    data: bytes
    generation: int
    modified: datetime
    etag: str


@dataclass
class _Upload:
    bucket: str
    key: str
    parts: dict[int, bytes] = field(default_factory=dict)


class FakeGcs:
    """The contents of the server. Everybody may read the bucket called "public"."""

    def __init__(self) -> None:
        self.url = ""
        self.buckets: dict[str, dict[str, _Object]] = {"public": {}}
        self.uploads: dict[str, _Upload] = {}
        self.lock = threading.RLock()
        self._numbers = itertools.count(1_700_000_000_000_000)

    def put(self, bucket: str, key: str, data: bytes) -> _Object:
        with self.lock:
            made = _Object(
                data,
                next(self._numbers),
                datetime.now(UTC),
                f'"{hashlib.md5(data).hexdigest()}"',
            )
            self.buckets[bucket][key] = made
            return made

    def new_upload(self, bucket: str, key: str) -> str:
        with self.lock:
            name = f"upload-{next(self._numbers)}"
            self.uploads[name] = _Upload(bucket, key)
            return name


class _RefusedError(Exception):
    """A request that gets an error as its answer."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(status, code)
        self.status, self.code = status, code


@contextmanager
def fake_gcs() -> Iterator[FakeGcs]:
    state = FakeGcs()

    class GcsHandler(_GcsHandler):
        gcs = state

    with serve(GcsHandler) as state.url:
        yield state


class _GcsHandler(Handler):
    gcs: FakeGcs

    def _answer(self) -> None:
        sent = self.body()
        parts = urlsplit(self.path)
        bucket, _, key = map(unquote, parts.path.lstrip("/").partition("/"))
        query = dict(parse_qsl(parts.query, keep_blank_values=True))
        try:
            self._check_access(bucket)
            if bucket not in self.gcs.buckets:
                raise _RefusedError(404, "NoSuchBucket")
            # Objects do not change, so they are read without the lock.
            with nullcontext() if self.command in ("GET", "HEAD") else self.gcs.lock:
                if key:
                    self._object(bucket, key, query, sent)
                else:
                    self._list(self.gcs.buckets[bucket], query)
        except _RefusedError as e:
            body = f"<?xml version='1.0'?><Error><Code>{e.code}</Code></Error>"
            self.reply(e.status, body.encode())

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _answer  # noqa: N815

    def _check_access(self, bucket: str) -> None:
        given = self.headers.get("Authorization")
        if given is None or given.strip() == "Bearer":
            if bucket != "public" or self.command not in ("GET", "HEAD"):
                raise _RefusedError(403, "AccessDenied")
        elif given == f"Bearer {DENIED_TOKEN}":
            raise _RefusedError(403, "AccessDenied")
        elif given != f"Bearer {TOKEN}":
            raise _RefusedError(401, "AuthenticationRequired")

    def _object(self, bucket: str, key: str, query: dict[str, str], sent: bytes) -> None:
        if "uploads" in query or "uploadId" in query:
            self._multipart(bucket, key, query, sent)
            return
        objects = self.gcs.buckets[bucket]
        if self.command == "PUT":
            self._check_generation(objects.get(key))
            copied = self.headers.get("x-goog-copy-source")
            if copied is not None:
                of, _, name = unquote(copied).lstrip("/").partition("/")
                if name not in self.gcs.buckets[of]:
                    raise _RefusedError(404, "NoSuchKey")
                sent = self.gcs.buckets[of][name].data
            self._made(self.gcs.put(bucket, key, sent))
            return
        found = objects.get(key)
        if found is None:
            raise _RefusedError(404, "NoSuchKey")
        if self.command == "DELETE":
            self._check_generation(found)
            del objects[key]
            self.reply(204)
            return
        self._check_etag(found)
        headers = {
            "ETag": found.etag,
            "Last-Modified": format_datetime(found.modified, usegmt=True),
            "x-goog-generation": str(found.generation),
        }
        self.reply_with_part(found.data, headers)

    def _check_generation(self, found: _Object | None) -> None:
        wanted = self.headers.get("x-goog-if-generation-match")
        if wanted is not None and int(wanted) != (0 if found is None else found.generation):
            raise _RefusedError(412, "PreconditionFailed")

    def _check_etag(self, found: _Object) -> None:
        wanted = self.headers.get("If-Match")
        if wanted is not None and found.etag not in re.split(r",\s*", wanted):
            raise _RefusedError(412, "PreconditionFailed")

    def _made(self, made: _Object, body: bytes = b"") -> None:
        self.reply(200, body, {"ETag": made.etag, "x-goog-generation": str(made.generation)})

    def _multipart(self, bucket: str, key: str, query: dict[str, str], sent: bytes) -> None:
        if self.command == "POST" and "uploads" in query:
            name = self.gcs.new_upload(bucket, key)
            self._xml(
                "InitiateMultipartUploadResult",
                f"<Bucket>{bucket}</Bucket><Key>{escape(key)}</Key><UploadId>{name}</UploadId>",
            )
            return
        upload = self.gcs.uploads.get(query["uploadId"])
        if upload is None or (upload.bucket, upload.key) != (bucket, key):
            raise _RefusedError(404, "NoSuchUpload")
        if self.command == "PUT":
            upload.parts[int(query["partNumber"])] = sent
            self.reply(200, b"", {"ETag": f'"{hashlib.md5(sent).hexdigest()}"'})
        elif self.command == "DELETE":
            del self.gcs.uploads[query["uploadId"]]
            self.reply(204)
        else:
            self._complete(upload, query["uploadId"], sent.decode())

    def _complete(self, upload: _Upload, name: str, sent: str) -> None:
        self._check_generation(self.gcs.buckets[upload.bucket].get(upload.key))
        numbers = [int(each) for each in re.findall(r"<PartNumber>(\d+)</PartNumber>", sent)]
        etags = re.findall(r"<ETag>(?:&quot;|\")?(\w+)(?:&quot;|\")?</ETag>", sent)
        if not numbers or any(each not in upload.parts for each in numbers):
            raise _RefusedError(400, "InvalidPart")
        if etags != [hashlib.md5(upload.parts[each]).hexdigest() for each in numbers]:
            raise _RefusedError(400, "InvalidPart")
        if numbers != sorted(set(numbers)):
            raise _RefusedError(400, "InvalidPartOrder")
        data = b"".join(upload.parts[each] for each in numbers)
        made = self.gcs.put(upload.bucket, upload.key, data)
        del self.gcs.uploads[name]
        kind = "CompleteMultipartUploadResult"
        self._made(made, f"<{kind}><ETag>{escape(made.etag)}</ETag></{kind}>".encode())

    def _list(self, objects: dict[str, _Object], query: dict[str, str]) -> None:
        if self.command != "GET" or query.get("list-type") != "2":
            raise _RefusedError(405, "MethodNotAllowed")
        prefix, delimiter = query.get("prefix", ""), query.get("delimiter", "")
        after = query.get("continuation-token") or query.get("start-after", "")
        most = min(int(query.get("max-keys", _PAGE)), _PAGE)
        # What a page holds, in order: keys, and folders that end with the delimiter.
        entries: dict[str, _Object | None] = {}
        for key in sorted(objects):
            if key.startswith(prefix):
                folder, found, _ = key[len(prefix) :].partition(delimiter or "\0")
                inside = delimiter and found
                name = prefix + folder + delimiter if inside else key
                if name > after:
                    entries[name] = None if inside else objects[key]
        page = list(entries)[:most]
        body = ["".join(_contents(name, entries[name]) for name in page)]
        if len(page) < len(entries):
            body.append(f"<NextContinuationToken>{escape(page[-1])}</NextContinuationToken>")
        body.append(f"<IsTruncated>{str(len(page) < len(entries)).lower()}</IsTruncated>")
        self._xml("ListBucketResult", "".join(body))

    def _xml(self, kind: str, inside: str) -> None:
        text = f"<?xml version='1.0' encoding='UTF-8'?><{kind}>{inside}</{kind}>"
        self.reply(200, text.encode(), {"Content-Type": "application/xml"})


def _contents(name: str, each: _Object | None) -> str:
    if each is None:
        return f"<CommonPrefixes><Prefix>{escape(name)}</Prefix></CommonPrefixes>"
    modified = each.modified.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    return (
        f"<Contents><Key>{escape(name)}</Key><Generation>{each.generation}</Generation>"
        f"<LastModified>{modified}</LastModified><ETag>{escape(each.etag)}</ETag>"
        f"<Size>{len(each.data)}</Size></Contents>"
    )
