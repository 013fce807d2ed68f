"""URLs: file:// is a path, unknown schemes are refused, and names with colons are files."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap import tfrecord
from recmap.cli import main

URL = "hdfs://host:1/folder/x.tfrecord"
STORE_URL = "s3://bucket/folder/x.tfrecord"


def data() -> rm.Dataset:
    return rm.from_arrays({"x": np.arange(4)})


# Every call that takes a path for reading or writing.
CALLS: dict[str, Callable[[Any], Any]] = {
    "open": rm.open,
    "open a list": lambda url: rm.open(["x.npy", url]),
    "open a column": lambda url: rm.open({"y": url}),
    "open columns": lambda url: rm.open({"x": "x.npy", "y": url}),
    "open with an index": lambda url: rm.open("x.tfrecord", index=url),
    "convert from": lambda url: rm.convert(url, "y.npy"),
    "convert to": lambda url: rm.convert("x.npy", url),
    "convert to shards": lambda url: rm.convert("x.npy", url, shards=2, format="npy"),
    "convert on Ray": lambda url: rm.convert("x.npy", url, engine="ray"),
    "save": lambda url: data().save(url),
    "write": rm.TFRecordWriter,
    "write shards": lambda url: rm.TFRecordWriter(url, shards=2),
    "index": rm.index,
    "verify": rm.verify,
    "repair from": lambda url: rm.repair(url, "y.tfrecord"),
    "repair to": lambda url: rm.repair("x.tfrecord", url),
    "read records": lambda url: list(tfrecord.records(url)),
    "write records": lambda url: tfrecord.write_records(url, [b"x"]),
    "read on Ray": rm.ray.read,
    "write on Ray": lambda url: rm.ray.write(None, url),
}

COMMANDS = [
    ["info", URL],
    ["info", f"x={URL}"],
    ["info", "hdfs://host/year=2026/x.npy"],
    ["head", URL],
    ["stats", URL],
    ["schema", URL],
    ["convert", URL, "y.npy"],
    ["convert", "x.npy", "hdfs://host/folder/"],
    ["index", URL],
    ["verify", URL],
    ["repair", URL, "y.tfrecord"],
    ["repair", "x.tfrecord", URL],
    ["repair", "x.tfrecord", "y.tfrecord", "--report", URL],
    ["bench", URL],
    ["tune", URL],
]


@pytest.fixture
def _files() -> None:
    np.save("x.npy", np.arange(4))
    rm.convert("x.npy", "x.tfrecord")


def names() -> list[str]:
    return sorted(os.listdir())


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("call", CALLS)
@pytest.mark.parametrize(
    "url", [URL, URL.encode(), "HDFS://b/", "ftp://b/x-*.npy", "oss://bucket/x.npy"]
)
def test_other_schemes_are_refused_wherever_a_path_is_taken(call: str, url: str | bytes) -> None:
    before = names()
    with pytest.raises(rm.UnknownSchemeError, match="local or mounted") as caught:
        CALLS[call](url)
    assert caught.value.scheme == os.fsdecode(url).partition(":")[0].lower()
    assert names() == before


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("args", COMMANDS, ids=" ".join)
def test_the_command_line_refuses_other_schemes(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    before = names()
    assert main(args) == 2
    assert "recmap does not read or write hdfs:// URLs" in capsys.readouterr().err
    assert names() == before


# Where only a local file can be given.
LOCAL: dict[str, Callable[[Any], Any]] = {
    name: CALLS[name] for name in ("open with an index", "repair to")
}


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("call", LOCAL)
@pytest.mark.parametrize("url", [STORE_URL, "https://host/x.tfrecord"])
def test_store_urls_are_refused_where_only_a_local_file_can_be_given(call: str, url: str) -> None:
    before = names()
    with pytest.raises(rm.OptionError, match="only a local path can be given here"):
        LOCAL[call](url)
    assert names() == before


@pytest.mark.usefixtures("_files")
@pytest.mark.parametrize("call", ["write", "write records", "convert to", "save"])
def test_nothing_is_written_to_an_http_server(call: str) -> None:
    before = names()
    with pytest.raises(rm.OptionError, match="does not write"):
        CALLS[call]("https://host/x.tfrecord")
    assert names() == before


@pytest.mark.parametrize(
    "url",
    [
        "https://me:hunter2@host/x.npy",
        "https://me:hun/hunter2@host/x.npy",
        "https://me:hun?hunter2@host/x.npy",
        "https://hunter2@host:80/x.npy",
        "https://host/x.npy?X-Amz-Signature=hunter2",
        "https://host/x.npy#hunter2",
        "file://me:hunter2@host/x.npy",
        "file://me:x/hunter2@host/x.npy",
    ],
)
def test_a_refusal_shows_no_secrets(url: str) -> None:
    with pytest.raises(rm.OptionError) as caught:
        rm.open(url)
    assert "hunter2" not in str(caught.value)
    assert url.partition(":")[0] in str(caught.value)


def test_a_refusal_keeps_its_scheme_between_processes() -> None:
    with pytest.raises(rm.UnknownSchemeError) as caught:
        rm.open(URL)
    assert pickle.loads(pickle.dumps(caught.value)).scheme == "hdfs"


@pytest.mark.parametrize("name", ["plain.npy", "a b%41#?.npy", "é[1].npy", "\udcff.npy"])
def test_file_urls_are_paths(name: str, tmp_path: Path) -> None:
    x = np.arange(4)
    np.save(tmp_path / name, x)
    url = (tmp_path / name).as_uri()
    local_host = url.replace("file://", "FILE://localhost")
    assert rm.open(url).files == [str(tmp_path / name)]
    for given in (url, local_host, url.encode(), [url]):
        np.testing.assert_array_equal(rm.open(given)["data"][:], x)


def test_patterns_in_file_urls_match(tmp_path: Path) -> None:
    for i in range(3):
        np.save(f"x-{i}.npy", np.array([i]))
    for pattern in ("x-?.npy", "x-*.npy", "x-[0-2].npy", ""):
        assert rm.open(f"file://{tmp_path}/{pattern}")["data"][:].tolist() == [0, 1, 2]


def test_outputs_go_to_file_urls(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    url = tmp_path.as_uri()
    rm.convert({"x": np.arange(4)}, f"{url}/out/", shards=2)
    with rm.TFRecordWriter(f"{url}/y.tfrecord") as w:
        w.write({"x": [1]})
    rm.index(f"{url}/y.tfrecord")
    assert main(["convert", f"{url}/y.tfrecord", f"{url}/y=1.npz"]) == 0
    assert main(["info", f"{url}/y=1.npz"]) == 0
    assert "rows     1" in capsys.readouterr().out
    assert names() == [".y.tfrecord.recmap", "out", "y.tfrecord", "y=1.npz"]
    assert len(rm.open(f"{url}/out/").files) == 2


@pytest.mark.parametrize(
    "url", ["file://", "file://x.npy", "file://host/x.npy", "file://~/x.npy", "file:///a%00b"]
)
def test_a_file_url_without_an_absolute_path_is_refused(url: str) -> None:
    for call in (rm.open, rm.TFRecordWriter):
        with pytest.raises(rm.OptionError):
            call(url)
    assert names() == []


def test_names_with_colons_are_files() -> None:
    x = np.arange(4)
    os.makedirs("s3:/bucket")
    for name in ("a:b.npy", "s3:x.npy", "s3:/bucket/x.npy", "./s3:/y.npy", "file:x.npy"):
        rm.convert({"data": x}, name)
        for path in (name, Path(name), name.encode()):
            np.testing.assert_array_equal(rm.open(path)["data"][:], x)
    assert len(rm.open("s3:/")) == 4
    assert len(rm.open("s3:*.npy")) == 4


def test_a_url_is_refused_even_if_it_exists_as_a_local_path() -> None:
    os.makedirs("hdfs:/host")
    np.save("hdfs:/host/x.npy", np.arange(4))
    with pytest.raises(rm.UnknownSchemeError, match=r"'\./hdfs:/host/x\.npy' for that local file"):
        rm.open("hdfs://host/x.npy")
    assert len(rm.open("./hdfs:/host/x.npy")) == 4


TAKING_PATHS: list[Callable[[Any], Any]] = [
    rm.open,
    rm.TFRecordWriter,
    lambda path: data().save(path, format="npy"),
]


@pytest.mark.parametrize("url", [STORE_URL, "gs://b/x", "https://host/x.npy", "S3://b/x"])
def test_a_store_url_made_into_a_path_object_is_refused(url: str) -> None:
    for call in TAKING_PATHS:
        with pytest.raises(rm.OptionError, match="give it as text, '.*://.*'"):
            call(Path(url))
    assert names() == []


@pytest.mark.parametrize("url", [URL, "ftp://b/x", "HDFS://b/x"])
def test_a_url_made_into_a_path_object_is_refused_like_its_text(url: str) -> None:
    for call in TAKING_PATHS:
        with pytest.raises(rm.UnknownSchemeError) as of_text:
            call(url)
        with pytest.raises(rm.UnknownSchemeError) as of_path:
            call(Path(url))
        assert str(of_path.value) == str(of_text.value)
        assert of_path.value.scheme == of_text.value.scheme == url.partition(":")[0].lower()
    assert names() == []


def test_a_file_url_made_into_a_path_object_is_refused_with_its_path(tmp_path: Path) -> None:
    for url in ("file:///data/x.npy", "FILE:///data/x.npy", "file:///data/%78.npy"):
        for call in TAKING_PATHS:
            with pytest.raises(rm.OptionError, match="the path '/data/x.npy'") as caught:
                call(Path(url))
            assert not isinstance(caught.value, rm.UnknownSchemeError)
            assert "://" not in str(caught.value)
    np.save("a b.npy", np.arange(4))
    with pytest.raises(rm.OptionError) as caught:
        rm.open(Path((tmp_path / "a b.npy").as_uri()))
    assert repr(str(tmp_path / "a b.npy")) in str(caught.value)
    assert names() == ["a b.npy"]
