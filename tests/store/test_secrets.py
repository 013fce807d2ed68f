"""What is secret in a URL or an option is shown nowhere."""

from __future__ import annotations

import os
import pathlib
import pickle
import traceback
from collections.abc import Callable

import numpy as np
import pytest

import recmap as rm
from recmap.cli import main
from recmap.errors import without_secrets
from recmap.store.object_path import object_path
from recmap.store.object_reader import ObjectReader
from recmap.store.storage import Storage
from tests.faulty_proxy import FaultyProxy
from tests.store_servers import file_server

CANARY = "wJalrXUtnFEMIK7MDENG"
SIGNED = [
    f"https://bucket.s3.amazonaws.com/x.npy?X-Amz-Algorithm=AWS4&X-Amz-Signature={CANARY}",
    f"https://storage.googleapis.com/b/x.npy?X-Goog-Credential=me&X-Goog-Signature={CANARY}",
    f"https://mine.blob.core.windows.net/c/x.npy?sv=2024&se=2030&sig={CANARY}%3D",
    f"https://host/x.npy?access_token={CANARY}",
    f"https://host/x.npy?file=3&x-amz-security-token={CANARY}#there",
    f"s3://bucket/x.npy?X-Amz-Signature={CANARY}",
    f"az://container/x.npy?sig={CANARY}",
    f"gs://bucket/x-*.npy?X-Goog-Signature={CANARY}",
    f"https://me:{CANARY}@host/x.npy",
    f"s3://AKIA:{CANARY}@bucket/x.npy",
    f"https://me:pa/{CANARY}@host/x.npy",
    f"ftp://me:{CANARY}@host/x.npy",
    f"hdfs://host/x.npy?token={CANARY}",
    f"bucket.s3.amazonaws.com/x.npy?X-Amz-Signature={CANARY}",
    f"nothing.npy?sig={CANARY}",
]


@pytest.mark.parametrize("url", SIGNED)
def test_signed_urls_and_passwords_are_not_shown(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[Callable[[], object]] = [
        lambda: rm.open(url),
        lambda: rm.open([url, "x.npy"]),
        lambda: rm.open({"x": url}),
        lambda: rm.open(pathlib.Path(url)),
        lambda: rm.convert(url, "out.npy"),
        lambda: rm.from_arrays({"x": np.arange(3)}).save(url.replace(".npy", ".what")),
        lambda: rm.index(url),
        lambda: rm.verify(url),
    ]
    for call in calls:
        with pytest.raises(rm.RecmapError) as caught:
            call()
        error = caught.value
        shown = "".join(traceback.format_exception(error)) + repr(error) + str(error.args)
        assert CANARY not in shown
        assert CANARY not in str(pickle.loads(pickle.dumps(error)))
    for verb in (["info", url], ["convert", url, "out.npy"], ["head", url], ["view", url]):
        assert main(verb) != 0
    said = capsys.readouterr()
    assert CANARY not in said.out + said.err


@pytest.mark.parametrize(
    "words",
    [
        ["--storage", CANARY],
        ["--storage", f"{CANARY}="],
        ["--storage", f"{CANARY}=="],
        ["--storage", f"={CANARY}"],
        ["--storage", f'{{"secret_access_key": "{CANARY}"}}'],
        ["--storage", f'{{"secret_access_key"="{CANARY}"}}'],
        ["--storage", "secret_access_key", CANARY],
        ["--storage", f"sekret={CANARY}"],
        ["--storag", CANARY],
        [f"--storag={CANARY}"],
        [f"--store=secret_access_key={CANARY}"],
        [f"--sto-rage=secret_access_key={CANARY}"],
        [f"--s=secret_access_key={CANARY}"],
    ],
    ids=" ".join,
)
def test_storage_without_a_name_is_not_shown(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    for verb in (["info"], ["convert"], ["head"]):
        paths = ["s3://bucket/x.npy", *(["out.npy"] if verb == ["convert"] else [])]
        try:
            code = main([*verb, *paths, *words])
        except SystemExit as e:
            code = int(str(e.code))
        assert code == 2
    said = capsys.readouterr()
    assert CANARY not in said.out + said.err


def test_names_that_may_be_secrets_are_not_shown() -> None:
    for name in (CANARY, "deadbeef0123456789abcdef", "a" * 60, "with space"):
        with pytest.raises(rm.OptionError, match="may be a secret") as caught:
            rm.open("s3://bucket/x.npy", storage={name: "x"})
        assert name not in str(caught.value)
    with pytest.raises(rm.OptionError, match="sekret is not an option"):
        rm.open("s3://bucket/x.npy", storage={"sekret": "x"})


def test_a_password_in_the_endpoint_is_not_kept_in_the_cache() -> None:
    with file_server() as server, FaultyProxy(server.url) as proxy:
        server.files["/bucket/x.bin"] = bytes(1000)
        endpoint = proxy.url.replace("://", f"://me:{CANARY}@")
        path = object_path(
            "s3://bucket/x.bin",
            Storage({"endpoint": endpoint, "anonymous": True, "region": "us-east-1"}),
        )
        with ObjectReader(path)._open_entry() as entry:
            assert entry is not None
        for folder, _, names in os.walk(os.environ["RECMAP_CACHE"]):
            for name in names:
                with open(os.path.join(folder, name), "rb") as file:
                    assert CANARY.encode() not in file.read()
        assert CANARY not in f"{path!r}{path}{path.store!r}"


def test_what_is_not_secret_is_shown() -> None:
    for text in (
        "http://127.0.0.1:9000/b/x.npy?versionId=3: no such object",
        "s3://bucket/what?.npy: no object matches",
        "user@host:/data/x.npy",
        "s3://bucket/me@home/x.npy",
        "x.npy: what is this? token=3",
    ):
        assert without_secrets(text) == text
