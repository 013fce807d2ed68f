"""Datasets of the Hugging Face Hub."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.fake_hub import FakeHub

ROOT = "hf://datasets/owner/name"


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[FakeHub]:
    made = FakeHub()
    for name in ("HF_TOKEN", "HF_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "home"))
    with made.serving() as url:
        monkeypatch.setenv("HF_ENDPOINT", url)
        yield made


def saved(name: str, **columns: Any) -> bytes:
    rm.from_arrays(columns).save(name, overwrite=True)
    return Path(name).read_bytes()


def files(first: int = 0) -> dict[str, bytes]:
    made = {"README.md": b"# A dataset", ".gitattributes": b""}
    for i in range(5):
        rows = np.arange(1000 * i, 1000 * (i + 1)) + first
        made[f"data/train-0000{i}.parquet"] = saved("a.parquet", x=rows)
    made["wds/ä b-0.tar"] = saved("a.tar", x=np.arange(9.0).reshape(3, 3))
    made["x.tfrecord"] = saved("a.tfrecord", x=np.arange(4))
    return made


@pytest.mark.slow
def test_files_of_any_format_are_read_by_pattern_and_folder(hub: FakeHub) -> None:
    commit = hub.push(files())
    ds = rm.open(f"{ROOT}/data/*.parquet")
    assert len(ds) == 5000
    rows = np.random.default_rng(0).permutation(5000)[:50]
    assert np.array_equal(ds[rows]["x"], rows)
    batches = ds.shuffle(seed=1, window=2000).batch(64)
    assert sorted(row for batch in batches for row in batch["x"].tolist()) == list(range(5000))
    assert len(rm.open(f"{ROOT}/data/")) == 5000
    assert len(rm.open(f"{ROOT}/**/train-0000[12].parquet")) == 2000
    assert rm.open(f"{ROOT}@main/wds/ä b-{{0..0}}.tar")[1]["x"].tolist() == [3, 4, 5]
    assert rm.open(f"{ROOT}@{commit}/x.tfrecord")["x"].tolist() == [0, 1, 2, 3]
    assert rm.convert(f"{ROOT}/x.tfrecord", "x.npy", verify="full").rows == 4
    # The tree has several pages, and the CDN is asked for parts of files.
    assert any("cursor=" in path for path, _ in hub.asked)
    assert all("range" in {n.lower() for n in headers} for _, headers in hub.fetched)


@pytest.mark.slow
def test_a_dataset_does_not_change_while_it_is_read(hub: FakeHub) -> None:
    hub.push(files())
    ds = rm.open(f"{ROOT}/data/*.parquet")
    hub.push(files(first=7))
    assert ds[:]["x"].tolist() == list(range(5000))
    sent = pickle.loads(pickle.dumps(ds._source))
    assert sent.gather(np.array([4999]))["x"].tolist() == [4999]
    assert rm.open(f"{ROOT}/data/*.parquet")[0]["x"] == 7
    hub.push({"old.npy": saved("a.npy", data=np.arange(2))}, "refs/convert/parquet")
    hub.push({"new.npy": saved("a.npy", data=np.arange(3))}, "a/branch")
    assert len(rm.open(f"{ROOT}@refs/convert/parquet/old.npy")) == 2
    assert len(rm.open(f"{ROOT}@a%2Fbranch/new.npy")) == 3


def test_the_api_is_not_followed_to_another_server(hub: FakeHub) -> None:
    hub.push({"x.npy": saved("a.npy", data=np.arange(5))})
    hub.moved = f"{hub.cdn}/elsewhere"
    with pytest.raises(rm.StoreError, match="does not answer like the Hub"):
        rm.open(f"{ROOT}/x.npy", storage={"token": "hf_secret"})
    assert not hub.fetched


@pytest.mark.parametrize("where", ["variable", "file", "storage"])
def test_the_token_is_sent_to_the_hub_and_to_nobody_else(
    hub: FakeHub, where: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hub.push({"x.npy": saved("a.npy", data=np.arange(5))})
    hub.token = "hf_secret"
    with pytest.raises(rm.AccessDeniedError, match=r"401, RepoNotFound\).*gated.*HF_TOKEN"):
        rm.open(f"{ROOT}/x.npy")
    storage = None
    if where == "variable":
        monkeypatch.setenv("HF_TOKEN", "hf_secret\n")
    elif where == "file":
        (tmp_path / "home").mkdir()
        (tmp_path / "home" / "token").write_text("hf_secret\n")
    else:
        storage = {"token": "hf_secret"}
    ds = rm.open(f"{ROOT}/x.npy", storage=storage)
    assert ds[:]["data"].tolist() == list(range(5))
    assert "hf_secret" not in repr(ds) + str(ds.files)
    assert hub.fetched
    for _, headers in hub.fetched:
        assert "authorization" not in {name.lower() for name in headers}


@pytest.mark.slow
def test_failures_are_repeated_and_told(hub: FakeHub) -> None:
    hub.push({"x.npy": saved("a.npy", data=np.arange(5))})
    hub.failures = [429, 503]
    assert len(rm.open(f"{ROOT}/x.npy")) == 5
    ds = rm.open(f"{ROOT}/x.npy")
    hub.failures = [503, 429]
    assert ds[:]["data"].tolist() == list(range(5))
    for url, why in (
        (f"{ROOT}/y.npy", "no such"),
        (f"{ROOT}/folder/", "no objects in this folder"),
        (f"{ROOT}@v2/x.npy", "no such dataset, revision"),
        ("hf://datasets/owner/other/x.npy", "no such dataset"),
    ):
        with pytest.raises(rm.PathNotFoundError, match=why):
            rm.open(url)
    for url in ("hf://datasets/x.npy", "hf://owner/name/x.npy", "hf://datasets/../name/x.npy"):
        with pytest.raises(rm.OptionError, match="hf://datasets/OWNER/NAME"):
            rm.open(url)
    with pytest.raises(rm.OptionError, match="does not write to them"):
        rm.from_arrays({"x": [1]}).save(f"{ROOT}/x.npy")
    with pytest.raises(rm.OptionError, match="region is not an option of hf"):
        rm.open(f"{ROOT}/x.npy", storage={"region": "x"})


def test_what_was_read_once_comes_from_the_cache(hub: FakeHub) -> None:
    hub.push({"x.npy": saved("a.npy", data=np.arange(300_000))})
    assert rm.open(f"{ROOT}/x.npy")["data"][:].sum() == 300_000 * 299_999 // 2
    hub.fetched.clear()
    assert rm.open(f"{ROOT}/x.npy")["data"][:].sum() == 300_000 * 299_999 // 2
    # Only what says whether the format is another one is asked for again.
    assert sum("range" in {n.lower() for n in headers} for _, headers in hub.fetched) <= 2
