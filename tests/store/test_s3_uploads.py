"""Unfinished uploads are found and aborted, with requests that are signed as AWS wants them."""

from __future__ import annotations

import http.client
from datetime import UTC, datetime
from typing import TYPE_CHECKING
from urllib.parse import quote, urlsplit

import pytest

import recmap as rm
from recmap.store.s3_uploads import S3Uploads, UnfinishedUpload, find_s3_uploads
from recmap.store.storage import Storage, parse_url
from tests.faulty_proxy import Drop, Status
from tests.store_servers import ACCESS_KEY, SECRET_KEY

if TYPE_CHECKING:
    from tests.buckets import S3Bucket as Bucket

KEYS = ["d/one.bin", "d/two x+%41é~*", "e/three.bin"]


def _uploads(bucket: Bucket, **options: object) -> S3Uploads:
    storage = Storage({**bucket.storage, **options})
    found = find_s3_uploads(parse_url(f"s3://{bucket.name}"), storage)
    assert found is not None
    return found


def _begin(uploads: S3Uploads, key: str) -> None:
    parts = urlsplit(uploads.endpoint)
    path = f"{parts.path}/{quote(key, safe='/-_.~')}"
    headers = uploads.signed_headers("POST", path, {"uploads": ""}, datetime.now(UTC))
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port)
    connection.request("POST", f"{path}?uploads=", headers=headers)
    answer = connection.getresponse()
    assert answer.status == 200, answer.read()
    connection.close()


@pytest.fixture
def uploads(bucket: Bucket) -> S3Uploads:
    bucket.put("x", b"")
    found = _uploads(bucket)
    for key in KEYS:
        _begin(found, key)
    return found


def test_unfinished_uploads_are_listed_by_prefix(uploads: S3Uploads) -> None:
    assert sorted(each.key for each in uploads.unfinished("")) == KEYS
    assert sorted(each.key for each in uploads.unfinished("d/")) == KEYS[:2]
    (found,) = uploads.unfinished("e/")
    assert abs((datetime.now(UTC) - found.began).total_seconds()) < 60


def test_uploads_are_aborted_one_by_one(uploads: S3Uploads) -> None:
    for each in uploads.unfinished("d/"):
        uploads.abort(each)
        uploads.abort(each)  # which is gone
    assert [each.key for each in uploads.unfinished("")] == KEYS[2:]


def test_a_wrong_key_is_denied_without_showing_it(bucket: Bucket, uploads: S3Uploads) -> None:
    del uploads
    wrong = _uploads(bucket, secret_access_key="wrong-secret")
    with pytest.raises(rm.AccessDeniedError, match="SignatureDoesNotMatch") as caught:
        wrong.unfinished("")
    assert "wrong-secret" not in repr(wrong) + str(caught.value)


def test_requests_are_repeated(bucket: Bucket, uploads: S3Uploads) -> None:
    bucket.proxy.faults.extend([Status(503), Drop()])
    assert len(uploads.unfinished("")) == 3


def test_a_server_that_stays_away_is_an_error(bucket: Bucket, uploads: S3Uploads) -> None:
    bucket.proxy.faults.extend([Drop()] * 4)
    with pytest.raises(rm.StoreError, match="cannot reach"):
        uploads.unfinished("")


def test_lists_of_several_pages_are_joined(bucket: Bucket, uploads: S3Uploads) -> None:
    one, two, _ = uploads.unfinished("")
    pages = [_page([one], more=True), _page([two])]
    bucket.proxy.faults.extend(Status(200, body=page.encode()) for page in pages)
    assert uploads.unfinished("") == [one, two]
    assert f"upload-id-marker={one.id}" in bucket.proxy.requests[-1][1]
    bucket.proxy.faults.extend([Status(200, body=pages[0].encode())] * 3)
    with pytest.raises(rm.StoreError, match="does not end"):
        uploads.unfinished("")


@pytest.mark.parametrize("body", [b"", b"<", b"\xff", b"<a/>"])
def test_an_answer_that_is_no_list_is_an_error_or_empty(
    bucket: Bucket, uploads: S3Uploads, body: bytes
) -> None:
    bucket.proxy.faults.append(Status(200, body=body))
    if body == b"<a/>":
        assert uploads.unfinished("") == []
        return
    with pytest.raises(rm.StoreError, match="cannot be read"):
        uploads.unfinished("")


def _page(uploads: list[UnfinishedUpload], more: bool = False) -> str:
    listed = "".join(
        f"<Upload><Key>{each.key}</Key><UploadId>{each.id}</UploadId>"
        f"<Initiated>{each.began.isoformat()}</Initiated></Upload>"
        for each in uploads
    )
    last = uploads[-1]
    return (
        '<ListMultipartUploadsResult xmlns="http://s3.amazonaws.com/doc/2006-03-01/">'
        f"<IsTruncated>{str(more).lower()}</IsTruncated><NextKeyMarker>{last.key}</NextKeyMarker>"
        f"<NextUploadIdMarker>{last.id}</NextUploadIdMarker>{listed}</ListMultipartUploadsResult>"
    )


@pytest.mark.parametrize(
    ("query", "signature"),
    [
        # From the examples in the AWS documentation of signatures.
        ({"lifecycle": ""}, "fea454ca298b7da1c68078a5d1bdbfbbe0d65c699e0f91ac7a200a0136783543"),
        (
            {"max-keys": "2", "prefix": "J"},
            "34b48302e7b5fa45bde8084f4b7868a86f0a534bc59db6670ed5711ef69dc6f7",
        ),
    ],
)
def test_signatures_are_those_of_the_aws_documentation(
    query: dict[str, str], signature: str
) -> None:
    uploads = S3Uploads(
        parse_url("s3://examplebucket"),
        "https://examplebucket.s3.amazonaws.com",
        "us-east-1",
        "AKIAIOSFODNN7EXAMPLE",
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
    )
    headers = uploads.signed_headers("GET", "/", query, datetime(2013, 5, 24, tzinfo=UTC))
    assert headers["authorization"].endswith(f"Signature={signature}")
    assert "x-amz-security-token" not in headers


def test_a_session_token_is_signed() -> None:
    found = _found(token="a-token")
    headers = found.signed_headers("GET", "/", {}, datetime(2013, 5, 24, tzinfo=UTC))
    assert headers["x-amz-security-token"] == "a-token"
    assert ";x-amz-security-token," in headers["authorization"]
    assert "a-token" not in repr(found)


def test_endpoints_are_those_of_the_reader(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _found().endpoint == "https://s3.eu-west-1.amazonaws.com/bucket"
    hosted = _found(virtual_hosted_style_request=True)
    assert hosted.endpoint == "https://bucket.s3.eu-west-1.amazonaws.com"
    assert _found(endpoint="http://host:9/").endpoint == "http://host:9/bucket"
    own = _found(endpoint="http://bucket.host:9", virtual_hosted_style_request="true")
    assert own.endpoint == "http://bucket.host:9"
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://other:1")
    assert _found().endpoint == "http://other:1/bucket"


def test_keys_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    url = parse_url("s3://bucket")
    assert find_s3_uploads(url, Storage()) is None
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "variable")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of the variable")
    found = find_s3_uploads(url, Storage())
    assert found is not None
    assert (found.access_key_id, found.session_token) == ("variable", "of the variable")
    # Keys of two sources do not fit together.
    assert _found().session_token == ""


def test_other_stores_have_none() -> None:
    storage = Storage({"access_key_id": "a", "secret_access_key": "b"})
    assert find_s3_uploads(parse_url("gs://bucket"), storage) is None
    anonymous = Storage({**storage, "anonymous": True})
    assert find_s3_uploads(parse_url("s3://bucket"), anonymous) is None


def _found(**options: object) -> S3Uploads:
    keys = {"access_key_id": ACCESS_KEY, "secret_access_key": SECRET_KEY, "region": "eu-west-1"}
    found = find_s3_uploads(parse_url("s3://bucket"), Storage({**keys, **options}))
    assert found is not None
    return found
