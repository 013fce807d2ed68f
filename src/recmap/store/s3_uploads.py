"""List and abort unfinished multipart uploads on S3.

A killed process leaves the parts that it sent, which nobody sees but the owner of the bucket pays
for. obstore neither lists nor aborts them, so these requests are signed here, with version 4 of
AWS signatures.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit
from xml.etree import ElementTree as ET

from recmap.errors import AccessDeniedError, RecmapError, StoreError
from recmap.store.patience import UNREACHABLE, Patience
from recmap.store.storage import ObjectUrl, Storage, profile_options

_SECONDS = 30.0
# A page lists 1,000 uploads; a longer answer is not one.
_MAX_ANSWER = 16 << 20
_EMPTY_SHA256 = hashlib.sha256(b"").hexdigest()
# Variables that set an option, in the order in which they count.
_VARIABLES = {
    "access_key_id": ("AWS_ACCESS_KEY_ID",),
    "secret_access_key": ("AWS_SECRET_ACCESS_KEY",),
    "session_token": ("AWS_SESSION_TOKEN",),
    "region": ("AWS_REGION", "AWS_DEFAULT_REGION"),
    "endpoint": ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT"),
    "virtual_hosted_style_request": ("AWS_VIRTUAL_HOSTED_STYLE_REQUEST",),
}
_ALIASES = {"token": "session_token", "default_region": "region", "endpoint_url": "endpoint"}


@dataclass(frozen=True)
class UnfinishedUpload:
    """A multipart upload that was begun and neither completed nor aborted."""

    key: str
    id: str
    began: datetime


@dataclass(frozen=True)
class S3Uploads:
    """The unfinished uploads of a bucket. ``endpoint`` includes the bucket."""

    url: ObjectUrl
    endpoint: str
    region: str
    access_key_id: str
    secret_access_key: str = field(repr=False)
    session_token: str = field(default="", repr=False)
    patience: Patience = field(default_factory=Patience)

    def unfinished(self, prefix: str) -> list[UnfinishedUpload]:
        """List the uploads whose keys begin with ``prefix``."""
        found: list[UnfinishedUpload] = []
        query = {"uploads": "", "prefix": prefix}
        while True:
            page = self._page(prefix, query)
            found += [_upload(each) for each in page.findall("{*}Upload")]
            if _text(page, "IsTruncated") != "true":
                return found
            markers = {
                "key-marker": _text(page, "NextKeyMarker"),
                "upload-id-marker": _text(page, "NextUploadIdMarker"),
            }
            if markers.items() <= query.items():
                raise self._failed(prefix, "the list of unfinished uploads does not end")
            query |= markers

    def _page(self, prefix: str, query: Mapping[str, str]) -> ET.Element:
        answer = self._send("GET", "", query, prefix)
        try:
            return ET.fromstring(answer)  # noqa: S314 - expat limits expansion
        except ET.ParseError:
            pass
        raise self._failed(prefix, "the list of unfinished uploads cannot be read")

    def abort(self, upload: UnfinishedUpload) -> None:
        """Delete the parts of an upload; one that has ended in the meantime is not an error."""
        self._send("DELETE", upload.key, {"uploadId": upload.id}, upload.key)

    def _send(self, method: str, key: str, query: Mapping[str, str], place: str) -> bytes:
        answer = partial(self._answer, method, key, query, place)
        return self.patience.repeat(self.url.root, answer, alone=True)

    def _answer(self, method: str, key: str, query: Mapping[str, str], place: str) -> bytes:
        answer: tuple[int, bytes] | None = None
        with suppress(OSError, http.client.HTTPException):
            answer = self._send_once(method, key, query)
        if answer is None:
            raise self._failed(place, UNREACHABLE, transient=True)
        status, body = answer
        if status < 300 or (method == "DELETE" and status == 404):
            return body
        raise self._refused(place, status, body)

    def _send_once(self, method: str, key: str, query: Mapping[str, str]) -> tuple[int, bytes]:
        parts = urlsplit(self.endpoint)
        secure = parts.scheme == "https"
        connect = http.client.HTTPSConnection if secure else http.client.HTTPConnection
        path = f"{parts.path.rstrip('/')}/{quote(key, safe='/-_.~')}"
        target = f"{path}?{_canonical_query(query)}"
        headers = self.signed_headers(method, path, query, datetime.now(UTC))
        connection = connect(parts.hostname or "", parts.port, timeout=_SECONDS)
        try:
            connection.request(method, target, headers=headers)
            answer = connection.getresponse()
            return answer.status, answer.read(_MAX_ANSWER)
        finally:
            connection.close()

    def signed_headers(
        self, method: str, path: str, query: Mapping[str, str], now: datetime
    ) -> dict[str, str]:
        """Return the headers of a request without a body; ``path`` is encoded already."""
        moment = now.strftime("%Y%m%dT%H%M%SZ")
        headers = {
            "host": urlsplit(self.endpoint).netloc,
            "x-amz-content-sha256": _EMPTY_SHA256,
            "x-amz-date": moment,
        }
        if self.session_token:
            headers["x-amz-security-token"] = self.session_token
        names = ";".join(sorted(headers))
        lines = [f"{name}:{headers[name]}" for name in sorted(headers)]
        request = [method, path, _canonical_query(query), *lines, "", names, _EMPTY_SHA256]
        digest = hashlib.sha256("\n".join(request).encode()).hexdigest()
        scope = f"{moment[:8]}/{self.region}/s3/aws4_request"
        key = f"AWS4{self.secret_access_key}".encode()
        for part in scope.split("/"):
            key = hmac.digest(key, part.encode(), "sha256")
        text = f"AWS4-HMAC-SHA256\n{moment}\n{scope}\n{digest}"
        signature = hmac.digest(key, text.encode(), "sha256").hex()
        headers["authorization"] = (
            f"AWS4-HMAC-SHA256 Credential={self.access_key_id}/{scope}, SignedHeaders={names}, "
            f"Signature={signature}"
        )
        return headers

    def _refused(self, key: str, status: int, body: bytes) -> RecmapError:
        code = re.search(rb"<Code>([A-Za-z]{1,60})</Code>", body)
        told = f"{status}, {code[1].decode()}" if code is not None else str(status)
        url = self.url.at(key)
        if status in (401, 403):
            return AccessDeniedError(
                f"{url}: access denied ({told}) to unfinished uploads; allow "
                "s3:ListBucketMultipartUploads and s3:AbortMultipartUpload",
                url=url,
                status=status,
            )
        return StoreError(
            f"{url}: the store failed ({told}) to list or abort unfinished uploads",
            url=url,
            status=status,
            transient=status in (408, 429) or status >= 500,
        )

    def _failed(self, key: str, why: str, *, transient: bool = False) -> StoreError:
        url = self.url.at(key)
        return StoreError(f"{url}: {why}", url=url, transient=transient)


def find_s3_uploads(url: ObjectUrl, storage: Storage) -> S3Uploads | None:
    """Return the uploads of a bucket; None if it is not on S3, or if there are no keys to sign
    with, only a role of the machine.
    """
    if url.scheme != "s3":
        return None
    options = _options(storage)
    if "access_key_id" not in options or "secret_access_key" not in options:
        return None
    region = str(options.get("region") or "us-east-1")
    endpoint = str(options.get("endpoint") or "").rstrip("/")
    hosted = str(options.get("virtual_hosted_style_request", "")).lower() == "true"
    if not endpoint:
        host = f"s3.{region}.amazonaws.com"
        place = f"https://{url.bucket}.{host}" if hosted else f"https://{host}/{url.bucket}"
    else:
        # As in obstore: such an endpoint has the name of the bucket already.
        place = endpoint if hosted else f"{endpoint}/{url.bucket}"
    return S3Uploads(
        url,
        place,
        region,
        str(options["access_key_id"]),
        str(options["secret_access_key"]),
        str(options.get("session_token") or ""),
        Patience.of(storage),
    )


def _options(storage: Storage) -> dict[str, Any]:
    """Collect the options as obstore does: those given, then variables, then the profile."""
    given: dict[str, Any] = {}
    for name, value in storage.items():
        plain = name.lower().removeprefix("aws_")
        given[_ALIASES.get(plain, plain)] = value
    if given.get("anonymous") or given.get("skip_signature"):
        return {}
    options = {**profile_options(given.pop("profile", None), given), **given}
    own_keys = "access_key_id" in options
    for name, variables in _VARIABLES.items():
        if own_keys and name in ("access_key_id", "secret_access_key", "session_token"):
            continue  # keys of two sources do not fit together
        for variable in variables:
            if name not in options and os.environ.get(variable):
                options[name] = os.environ[variable]
    return options


def _canonical_query(query: Mapping[str, str]) -> str:
    encoded = sorted((quote(n, safe="-_.~"), quote(v, safe="-_.~")) for n, v in query.items())
    return "&".join(f"{name}={value}" for name, value in encoded)


def _upload(element: ET.Element) -> UnfinishedUpload:
    began = _text(element, "Initiated").replace("Z", "+00:00")
    try:
        moment = datetime.fromisoformat(began)
    except ValueError:
        moment = datetime.max.replace(tzinfo=UTC)  # unknown, so never known to be old
    return UnfinishedUpload(_text(element, "Key"), _text(element, "UploadId"), moment)


def _text(element: ET.Element, name: str) -> str:
    return element.findtext(f"{{*}}{name}") or ""
