"""What goes wrong at a store is told in the same words for each, and without secrets."""

from __future__ import annotations

import itertools
import json
import pickle
import traceback
import urllib.request
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

import recmap as rm
from recmap.store.find_objects import find_objects
from recmap.store.object_store import ObjectInfo, ObjectStore
from recmap.store.storage import Storage, parse_url
from tests.buckets import s3_client
from tests.fake_gcs import DENIED_TOKEN
from tests.faulty_proxy import Cut, Drop, Status
from tests.http_server import Handler, serve
from tests.store_servers import GUEST_KEY

if TYPE_CHECKING:
    from tests.buckets import AzureContainer, Bucket, GcsBucket, HttpFolder, S3Bucket

# Base64, because keys of Azure are.
CANARY = "Y2FuYXJ5LWNhbmFyeS1jYW5hcnk="


def shown(error: BaseException) -> str:
    """Return all that an error and its traceback may show, with the values of variables."""
    lines = traceback.TracebackException.from_exception(error, capture_locals=True).format()
    # Variables of the test itself are left out; it knows the secrets.
    frames = [each for each in lines if f'"{__file__}"' not in each]
    return "".join([*frames, str(error), repr(error), repr(vars(error))])


def requests_of(store: ObjectStore, info: ObjectInfo) -> list[Callable[[], object]]:
    return [
        lambda: store.head(info.key),
        lambda: store.folder(""),
        lambda: store.read(info, 0, 1),
        lambda: store.read_many(info, [(0, 1), (2, 3)]),
    ]


def stored(bucket: Bucket) -> ObjectInfo:
    bucket.put("x.bin", b"hello")
    return bucket.store().head("x.bin")


def test_a_missing_object_is_named(any_store: Bucket) -> None:
    url = parse_url(any_store.url_of("d/missing"))
    with pytest.raises(rm.PathNotFoundError, match="d/missing: no such object") as caught:
        ObjectStore(url, Storage(any_store.storage)).head(url.key)
    assert caught.value.__context__ is None
    with pytest.raises(rm.PathNotFoundError, match="d/missing: no such object"):
        find_objects(ObjectStore(url, Storage(any_store.storage)), url)


def test_a_missing_bucket_is_named(any_bucket: Bucket) -> None:
    place = any_bucket.url.replace(any_bucket.name, "no-such-bucket")
    store = ObjectStore(parse_url(place), Storage(any_bucket.storage))
    for key in ("", "x.bin", "d/", "*.npy"):
        with pytest.raises(rm.PathNotFoundError, match=f"{place}: no such bucket"):
            find_objects(store, parse_url(f"{place}/{key}"))
    with pytest.raises(rm.PathNotFoundError, match=place):
        store.head("x.bin")


def test_a_wrong_secret_is_denied(any_bucket: Bucket) -> None:
    info = stored(any_bucket)
    assert any_bucket.secret is not None
    store = any_bucket.store(**{any_bucket.secret: CANARY})
    for request in requests_of(store, info):
        with pytest.raises(rm.AccessDeniedError, match="access denied") as caught:
            request()
        assert caught.value.status in (401, 403)
        assert CANARY not in shown(caught.value)
    with pytest.raises(rm.AccessDeniedError):
        find_objects(store, parse_url(f"{any_bucket.url}/*.npy"))


def test_what_the_credentials_do_not_allow_is_denied(
    bucket: S3Bucket, gcs_bucket: GcsBucket
) -> None:
    for each, options in (
        (bucket, {"access_key_id": GUEST_KEY}),
        (gcs_bucket, {"bearer_token": DENIED_TOKEN}),
    ):
        info = stored(each)
        for request in requests_of(each.store(**options), info):
            with pytest.raises(rm.AccessDeniedError, match="access denied") as caught:
                request()
            assert caught.value.status == 403


def test_a_signature_of_azure_allows_what_it_was_made_for(azure_container: AzureContainer) -> None:
    import obstore

    info = stored(azure_container)
    azure_container.put("other.bin", b"hello")
    store = azure_container.store()
    signed = obstore.sign(store._store, "GET", "x.bin", timedelta(hours=1)).partition("?")[2]
    secret = signed.partition("sig=")[2]
    assert len(secret) > 20
    del azure_container.storage["account_key"]
    store = azure_container.store(sas_key=signed, retries=0)
    assert store.read(info, 1, 3).tobytes() == b"el"
    for fault in (None, Status(500), Status(404), Status(412), Status(403), Drop(), Cut(0)):
        azure_container.proxy.faults.extend([] if fault is None else [fault] * 3)
        with pytest.raises(OSError) as caught:  # noqa: PT011 (which is each in its own test)
            store.read(ObjectInfo("other.bin", 5, info.etag, info.modified), 0, 1)
        azure_container.proxy.faults.clear()
        assert secret not in shown(caught.value)
        assert "sig=" not in shown(caught.value)


def test_what_a_server_repeats_is_not_shown(any_store: Bucket) -> None:
    """Servers put signatures, and even whole requests, into their errors."""
    any_store.put("x.bin", b"hello")
    url = parse_url(any_store.url_of("x.bin"))
    store = ObjectStore(url, Storage({**any_store.storage, "retries": 0}))
    info = store.head(url.key)
    body = f"<Error><Code>Hello</Code><StringToSign>{CANARY}</StringToSign></Error>".encode()
    codes = [400, 401, 403, 404, 409, 412, 416, 500]
    for code, request in itertools.product(codes, requests_of(store, info)[2:]):
        any_store.proxy.faults.extend([Status(code, {"x-canary": CANARY}, body)] * 2)
        with pytest.raises(OSError, match="x.bin: ") as caught:
            request()
        any_store.proxy.faults.clear()
        assert isinstance(caught.value, rm.RecmapError)
        assert CANARY not in shown(caught.value)


def test_a_key_of_a_google_service_account_is_taken(gcs_bucket: GcsBucket) -> None:
    gcs_bucket._server.put("public", "x.bin", b"hello")
    account = {
        "gcs_base_url": gcs_bucket.proxy.url,
        "disable_oauth": True,
        "client_email": "",
        "private_key": "",
        "private_key_id": "",
    }
    storage = {
        "endpoint": gcs_bucket.proxy.url,
        "service_account_key": json.dumps(account, indent=2),
    }
    store = ObjectStore(parse_url("gs://public"), Storage(storage))
    assert store.read(store.head("x.bin"), 0, 5).tobytes() == b"hello"


def test_data_that_is_not_public_is_denied(any_bucket: Bucket) -> None:
    info = stored(any_bucket)
    kept = ("endpoint", "account_name", "retries")
    storage = {name: value for name, value in any_bucket.storage.items() if name in kept}
    store = ObjectStore(parse_url(any_bucket.url), Storage({**storage, "anonymous": True}))
    for request in requests_of(store, info):
        with pytest.raises(rm.AccessDeniedError, match="access denied"):
            request()


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """A machine that has no credentials to give. What it is asked for goes nowhere else."""
    asked: list[str] = []

    class MetadataHandler(Handler):
        def _answer(self) -> None:
            asked.append(self.path)
            self.reply(404)

        do_GET = do_PUT = _answer  # noqa: N815

    with serve(MetadataHandler) as url:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", url)
        monkeypatch.setenv("AZURE_MSI_ENDPOINT", url)
        monkeypatch.setenv("HTTP_PROXY", url)  # Google's address is fixed
        yield asked


def test_missing_credentials_are_an_error(any_bucket: Bucket, bare_machine: list[str]) -> None:
    kept = ("endpoint", "account_name")
    storage = {name: value for name, value in any_bucket.storage.items() if name in kept}
    store = ObjectStore(parse_url(any_bucket.url), Storage({**storage, "retries": 0}))
    info = ObjectInfo("x.bin", 5, '"1"', datetime.now(UTC))
    for request in requests_of(store, info):
        with pytest.raises(rm.AccessDeniedError, match="no credentials were found"):
            request()
    assert bare_machine


def test_who_may_list_a_folder_finds_objects_in_it(any_bucket: Bucket) -> None:
    any_bucket.put("d/x.npy", b"x")
    for key in ("d/*.npy", "d"):
        # The question for an object of this name is refused, as S3 does without s3:ListBucket.
        any_bucket.proxy.faults.append(Status(403))
        url = parse_url(any_bucket.url_of(key))
        assert [each.key for each in find_objects(any_bucket.store(), url).objects] == ["d/x.npy"]
    any_bucket.proxy.faults.append(Status(403))
    with pytest.raises(rm.AccessDeniedError, match="nothing-"):
        find_objects(any_bucket.store(), parse_url(any_bucket.url_of("nothing-*")))


def test_a_secret_with_a_line_break_is_refused(any_bucket: Bucket) -> None:
    assert any_bucket.secret is not None
    with pytest.raises(rm.OptionError, match=f"{any_bucket.secret}: the value has a line") as e:
        any_bucket.store(**{any_bucket.secret: f"{CANARY}\n"})
    assert CANARY not in "".join(traceback.format_exception(e.value)) + repr(e.value)


def test_a_variable_with_a_line_break_is_an_error(
    gcs_bucket: GcsBucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    info = stored(gcs_bucket)
    del gcs_bucket.storage["bearer_token"]
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", f"{CANARY}\n")
    for request in requests_of(gcs_bucket.store(), info):
        with pytest.raises(rm.StoreError, match="line break in the credentials") as caught:
            request()
        assert CANARY not in shown(caught.value)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": "soon"},
        {"hello": "x"},
        {"skip_signature": "perhaps"},
        {"retries": -1},
    ],
    ids=str,
)
def test_wrong_options_show_no_secrets(any_bucket: Bucket, options: dict[str, Any]) -> None:
    assert any_bucket.secret is not None
    with pytest.raises(rm.OptionError) as caught:
        any_bucket.store(**{any_bucket.secret: CANARY}, **options)
    assert CANARY not in "".join(traceback.format_exception(caught.value)) + repr(caught.value)


def test_a_wrong_endpoint_is_refused(any_bucket: Bucket) -> None:
    with pytest.raises(rm.OptionError, match="endpoint: give a URL"):
        any_bucket.store(endpoint="127.0.0.1:80")


def test_azure_needs_an_account(azure_container: AzureContainer) -> None:
    del azure_container.storage["account_name"]
    with pytest.raises(rm.OptionError, match="give the account"):
        azure_container.store()


def test_options_of_other_stores_are_refused_over_http(http_folder: HttpFolder) -> None:
    with pytest.raises(
        rm.OptionError, match="secret_access_key is not an option of http"
    ) as caught:
        http_folder.store(secret_access_key=CANARY)
    assert CANARY not in "".join(traceback.format_exception(caught.value))


def test_a_store_shows_no_secrets(any_bucket: Bucket) -> None:
    assert any_bucket.secret is not None
    store = any_bucket.store(**{any_bucket.secret: CANARY})
    again = pickle.loads(pickle.dumps(store))
    for each in (store, again, store.storage, parse_url(any_bucket.url)):
        assert CANARY not in f"{each!r}{each!s}{each}"


@pytest.fixture
def aws(moto_server: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, Any]]:
    """Options of a user of moto who may list the bucket "shared" and read nothing."""
    import boto3

    def tell(what: str, body: bytes = b"") -> None:
        headers = {"Content-Type": "text/plain"}
        request = urllib.request.Request(f"{moto_server}/moto-api/{what}", body, headers)
        urllib.request.urlopen(request, timeout=30).close()

    client = s3_client(moto_server)
    client.create_bucket(Bucket="shared")
    client.put_object(Bucket="shared", Key="x.bin", Body=b"hello")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "any")
    iam = boto3.client("iam", endpoint_url=moto_server, region_name="us-east-1")
    iam.create_user(UserName="reader")
    key = iam.create_access_key(UserName="reader")["AccessKey"]
    statement = {"Effect": "Allow", "Action": ["s3:ListBucket"], "Resource": "*"}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    iam.put_user_policy(UserName="reader", PolicyName="list", PolicyDocument=policy)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    tell("reset-auth", b"0")  # from here on, who asks is checked
    yield {
        "endpoint": moto_server,
        "region": "us-east-1",
        "access_key_id": key["AccessKeyId"],
        "secret_access_key": key["SecretAccessKey"],
        "retries": 0,
    }
    tell("reset-auth", b"1000000")
    tell("reset")


def test_error_codes_of_aws_are_told(aws: dict[str, Any]) -> None:
    store = ObjectStore(parse_url("s3://shared"), Storage(aws))
    [info] = store.folder("").objects
    with pytest.raises(rm.AccessDeniedError, match=r"s3://shared/x.bin: .*\(403, AccessDenied\)"):
        store.read(info, 0, 1)
    for options, code in (
        ({"secret_access_key": CANARY}, "SignatureDoesNotMatch"),
        ({"access_key_id": "AKIAMISSING"}, "InvalidAccessKeyId"),
    ):
        other = ObjectStore(parse_url("s3://shared"), Storage({**aws, **options}))
        for request in requests_of(other, info)[1:]:
            with pytest.raises(rm.AccessDeniedError, match=code) as caught:
                request()
            assert CANARY not in shown(caught.value)
            assert str(aws["secret_access_key"]) not in shown(caught.value)


def test_moto_is_read_like_a_bucket_of_aws(
    moto_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = s3_client(moto_server)
    client.create_bucket(Bucket="plain")
    client.put_object(Bucket="plain", Key="d/a b%.bin", Body=b"hello")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", moto_server)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "any")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", CANARY)
    url = parse_url("s3://plain/d/*.bin")
    store = ObjectStore(url, Storage({"region": "us-east-1"}))
    [info] = find_objects(store, url).objects
    assert store.read(info, 1, 4).tobytes() == b"ell"
    client.put_object(Bucket="plain", Key="d/a b%.bin", Body=b"HELLO")
    with pytest.raises(rm.ObjectChangedError):
        store.read(info, 1, 4)
    client.delete_object(Bucket="plain", Key="d/a b%.bin")
    with pytest.raises(rm.PathNotFoundError):
        store.head(info.key)
