"""Buckets of each kind of store, seen through a proxy that counts requests and can be faulty.

A test reaches a bucket through recmap with ``url`` and ``storage``, which go through the proxy.
What it does with ``put``, ``get``, ``delete``, ``keys`` and ``uploads`` does not, and does not use
obstore, so that it checks what recmap does with obstore.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import itertools
import json
import re
import struct
import urllib.request
from abc import ABC, abstractmethod
from email.utils import formatdate
from typing import Any
from urllib.parse import quote, urlencode, urlsplit
from xml.sax.saxutils import unescape

from recmap.store.object_store import ObjectStore
from recmap.store.storage import Storage, parse_url
from recmap.tfrecord.embedded_schema import checksum
from tests.fake_gcs import TOKEN, FakeGcs
from tests.faulty_proxy import FaultyProxy
from tests.store_servers import ACCESS_KEY, AZURE_ACCOUNT, AZURE_KEY, SECRET_KEY, FileServer

__all__ = [
    "AzureContainer",
    "Bucket",
    "GcsBucket",
    "HttpFolder",
    "S3Bucket",
    "as_written_locally",
    "s3_client",
]

_numbers = itertools.count()


class Bucket(ABC):
    """A new and empty bucket. ``url`` has no slash at its end."""

    # What does not depend on the bucket: whether recmap can list and write there.
    listed = writable = True
    # The option with the secret, where there is one.
    secret: str | None = None

    def __init__(
        self, scheme: str, name: str | None, proxy: FaultyProxy, storage: dict[str, Any]
    ) -> None:
        self.name = name or f"bucket-{next(_numbers)}"
        self.proxy = proxy
        self.url = f"{scheme}://{self.name}"
        self.storage: dict[str, Any] = {"retries": 3, **storage}

    def url_of(self, key: str) -> str:
        return f"{self.url}/{key}"

    def store(self, **options: object) -> ObjectStore:
        return ObjectStore(parse_url(self.url), Storage({**self.storage, **options}))

    @abstractmethod
    def put(self, key: str, data: bytes) -> None: ...

    @abstractmethod
    def get(self, key: str) -> bytes: ...

    @abstractmethod
    def delete(self, key: str) -> None: ...

    @abstractmethod
    def keys(self) -> list[str]:
        """Return all keys, sorted."""

    @abstractmethod
    def uploads(self) -> list[str]:
        """Return the keys of uploads that were neither completed nor aborted."""


def s3_client(server: str, access_key: str = ACCESS_KEY, secret_key: str = SECRET_KEY) -> Any:
    """Return a client of AWS's own library."""
    import boto3
    from botocore.config import Config

    return boto3.client(
        "s3",
        endpoint_url=server,
        aws_access_key_id=access_key,
        aws_secret_access_key=secret_key,
        region_name="us-east-1",
        config=Config(
            request_checksum_calculation="when_required",
            s3={"addressing_style": "path"},
            max_pool_connections=32,
        ),
    )


class S3Bucket(Bucket):
    secret = "secret_access_key"

    def __init__(self, client: Any, proxy: FaultyProxy, name: str | None = None) -> None:
        storage = {
            "endpoint": proxy.url,
            "access_key_id": ACCESS_KEY,
            "secret_access_key": SECRET_KEY,
            "region": "us-east-1",
        }
        super().__init__("s3", name, proxy, storage)
        self._client = client
        if name is None:
            client.create_bucket(Bucket=self.name)

    def put(self, key: str, data: bytes) -> None:
        self._client.put_object(Bucket=self.name, Key=key, Body=data)

    def get(self, key: str) -> bytes:
        body: bytes = self._client.get_object(Bucket=self.name, Key=key)["Body"].read()
        return body

    def delete(self, key: str) -> None:
        self._client.delete_object(Bucket=self.name, Key=key)

    def keys(self) -> list[str]:
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.name)
        return sorted(each["Key"] for page in pages for each in page.get("Contents", []))

    def uploads(self) -> list[str]:
        return sorted(each["Key"] for each in self._uploads())

    def abort_uploads(self) -> None:
        for each in self._uploads():
            self._client.abort_multipart_upload(
                Bucket=self.name, Key=each["Key"], UploadId=each["UploadId"]
            )

    def _uploads(self) -> list[dict[str, Any]]:
        answer = self._client.list_multipart_uploads(Bucket=self.name)
        assert not answer.get("IsTruncated")
        return list(answer.get("Uploads", []))


class AzureContainer(Bucket):
    """``account`` is the URL of an account of Azurite."""

    secret = "account_key"

    def __init__(self, account: str, proxy: FaultyProxy) -> None:
        path = urlsplit(account).path
        storage = {
            "endpoint": proxy.url + path,
            "account_name": AZURE_ACCOUNT,
            "account_key": AZURE_KEY,
        }
        super().__init__("az", None, proxy, storage)
        self._account = account
        self._ask("PUT", "", {"restype": "container"})

    def put(self, key: str, data: bytes) -> None:
        self._ask("PUT", key, data=data)

    def get(self, key: str) -> bytes:
        return self._ask("GET", key)

    def delete(self, key: str) -> None:
        self._ask("DELETE", key)

    def keys(self) -> list[str]:
        return self._names({})

    def uploads(self) -> list[str]:
        # A blob that is written again is listed as it was, so its blocks are asked for.
        every = self._names({"include": "uncommittedblobs"})
        blocks = {"comp": "blocklist", "blocklisttype": "uncommitted"}
        return [key for key in every if b"<Block>" in self._ask("GET", key, blocks)]

    def _names(self, query: dict[str, str]) -> list[str]:
        names: list[str] = []
        marker = ""
        while True:
            asked = {"restype": "container", "comp": "list", **query}
            if marker:
                asked["marker"] = marker
            page = self._ask("GET", "", asked).decode()
            names += [unescape(each) for each in re.findall("<Name>(.*?)</Name>", page, re.DOTALL)]
            found = re.search("<NextMarker>(.+?)</NextMarker>", page)
            if found is None:
                return sorted(names)
            marker = unescape(found[1])

    def _ask(
        self, method: str, key: str, query: dict[str, str] | None = None, data: bytes = b""
    ) -> bytes:
        """Send a request signed with the key of the account."""
        query = query or {}
        url = f"{self._account}/{self.name}" + (f"/{quote(key)}" if key else "")
        headers = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": "2021-12-02"}
        if key and method == "PUT":
            headers["x-ms-blob-type"] = "BlockBlob"
        content_type = "application/octet-stream" if data else ""
        resource = f"/{AZURE_ACCOUNT}{urlsplit(url).path}"
        lines = [
            *(method, "", "", str(len(data) or ""), "", content_type, "", "", "", "", "", ""),
            *(f"{name}:{value}" for name, value in sorted(headers.items())),
            resource,
            *(f"{name}:{value}" for name, value in sorted(query.items())),
        ]
        signed = hmac.new(base64.b64decode(AZURE_KEY), "\n".join(lines).encode(), hashlib.sha256)
        signature = base64.b64encode(signed.digest()).decode()
        headers["Authorization"] = f"SharedKey {AZURE_ACCOUNT}:{signature}"
        if data:
            headers["Content-Type"] = content_type
        elif method == "PUT":
            headers["Content-Length"] = "0"
        request = urllib.request.Request(
            f"{url}?{urlencode(query, quote_via=quote)}" if query else url,
            data or None,
            headers,
            method=method,
        )
        with urllib.request.urlopen(request, timeout=60) as answer:
            body: bytes = answer.read()
        return body


class GcsBucket(Bucket):
    secret = "bearer_token"

    def __init__(self, server: FakeGcs, proxy: FaultyProxy) -> None:
        super().__init__("gs", None, proxy, {"endpoint": proxy.url, "bearer_token": TOKEN})
        self._server = server
        server.buckets[self.name] = {}

    def put(self, key: str, data: bytes) -> None:
        self._server.put(self.name, key, data)

    def get(self, key: str) -> bytes:
        return self._server.buckets[self.name][key].data

    def delete(self, key: str) -> None:
        del self._server.buckets[self.name][key]

    def keys(self) -> list[str]:
        return sorted(self._server.buckets[self.name])

    def uploads(self) -> list[str]:
        all_uploads = self._server.uploads.values()
        return sorted(each.key for each in all_uploads if each.bucket == self.name)


class HttpFolder(Bucket):
    """A folder of an HTTP server, which recmap can neither list nor write."""

    listed = writable = False

    def __init__(self, server: FileServer, proxy: FaultyProxy) -> None:
        place = f"{urlsplit(proxy.url).netloc}/data"
        super().__init__("http", place, proxy, {})
        self._server = server

    def url_of(self, key: str) -> str:
        return f"{self.url}/{quote(key)}"

    def put(self, key: str, data: bytes) -> None:
        self._server.files[f"/data/{key}"] = data

    def get(self, key: str) -> bytes:
        return self._server.files[f"/data/{key}"]

    def delete(self, key: str) -> None:
        del self._server.files[f"/data/{key}"]

    def keys(self) -> list[str]:
        return sorted(path.removeprefix("/data/") for path in self._server.files)

    def uploads(self) -> list[str]:
        return []


def as_written_locally(key: str, content: bytes) -> bytes:
    """Return what a file would be on a disk: the index of an object also tells its ETag."""
    if not key.endswith(".recmap"):
        return content
    head = struct.Struct("<8sIIII")
    magic, version, size, _, anchors_crc = head.unpack(content[: head.size])
    info = json.loads(content[head.size : head.size + size])
    info["file"].pop("etag", None)
    text = json.dumps(info).encode()
    text += b" " * (-(head.size + len(text)) % 8)
    begin = head.pack(magic, version, len(text), checksum(text), anchors_crc)
    return begin + text + content[head.size + size :]
