"""recmap cache: what is kept of objects, and clearing it."""

from __future__ import annotations

import json
import os
import re

import pytest

from recmap.cache.block_cache import BLOCK, default_cache
from recmap.cli import main
from tests.cache.cached_blocks import fill, opened
from tests.command import run, run_in_terminal


@pytest.fixture(autouse=True)
def _folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECMAP_CACHE", os.path.abspath("cache"))
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "100MB")


@pytest.mark.slow
def test_info_shows_what_is_kept_and_by_whom(capsys: pytest.CaptureFixture[str]) -> None:
    cache = default_cache()
    assert cache is not None
    held = opened(cache, "https://me:secret@host/a/x.npy?sig=secret", 4 * BLOCK)
    fill(held, [0, 2])
    for name in ("s3://bucket/b/y.npy", "s3://bucket/b/z.npy"):
        entry = opened(cache, name)
        fill(entry)
        entry.close()
    os.unlink("cache/objects-v1/usage")
    done = run("cache", "info")
    assert (done.returncode, done.stderr) == (0, "")
    assert "secret" not in done.stdout
    folder, used, objects, empty, *table = done.stdout.splitlines()
    assert folder == f"folder   {os.path.abspath('cache/objects-v1')}"
    assert re.fullmatch(r"used     8\.4\d MB of 100 MB", used)  # file systems differ
    assert objects == "objects  3 (1 in use)"
    assert empty == ""
    assert [re.sub(r"(\.\d)\d* MB", r"\1 MB", line).split() for line in table] == [
        ["folder", "objects", "in", "use", "kept", "size"],
        ["https://host/a/", "1", "1", "2.1", "MB", "4.1", "MB"],
        ["s3://bucket/b/", "2", "0", "6.3", "MB", "6.2", "MB"],
    ]
    assert main(["cache", "info", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["used"] == sum(one["allocated"] for one in found["objects"])
    assert found["used"] == cache.folder.used()  # counted anew
    assert found["budget"] == 100_000_000
    kept = {one["url"]: (one["size"], one["in_use"]) for one in found["objects"]}
    assert kept["https://host/a/x.npy?..."] == (4 * BLOCK, True)
    assert kept["s3://bucket/b/y.npy"] == (3 * BLOCK, False)
    code, shown = run_in_terminal("cache", "info")
    assert code == 0
    assert "s3://bucket/b/" in shown


def test_clear_removes_what_nobody_has_open() -> None:
    cache = default_cache()
    assert cache is not None
    held = opened(cache, "s3://bucket/a/x.npy")
    fill(held, [1], "s3://bucket/a/x.npy")
    fill(opened(cache, "s3://bucket/b/y.npy"))
    done = run("cache", "clear")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.splitlines() == [
        "removed  1 object, 3.16 MB",
        "in use   1 object, 1.06 MB; not removed",
        "         s3://bucket/a/",
    ]
    assert held.present(0, 3).tolist() == [False, True, False]
    assert opened(cache, "s3://bucket/a/x.npy").present(1, 2).all()
    assert not opened(cache, "s3://bucket/b/y.npy").present(0, 3).any()
    held.close()
    done = run("cache", "clear", "--json")
    found = json.loads(done.stdout)
    assert (found["removed"], found["in_use"]) == (2, [])
    assert os.listdir("cache/objects-v1") == ["usage"]
    assert cache.folder.used() == 0


@pytest.mark.parametrize("action", ["info", "clear"])
def test_without_a_cache_there_is_nothing_to_show(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["cache", action]) == 0
    assert ("objects  0" if action == "info" else "removed  0 objects") in capsys.readouterr().out
    assert not os.path.exists("cache")


def test_damaged_entries_are_shown_and_cleared(capsys: pytest.CaptureFixture[str]) -> None:
    cache = default_cache()
    assert cache is not None
    damages = [b"", b"{", b"[" * 60_000, b'{"url": 1, "size": "x"}', b"\xff", bytes(1 << 17), None]
    for i, damage in enumerate(damages):
        entry = opened(cache, f"s3://bucket/{i}")
        path = os.path.join(os.path.dirname(entry.file("index")), "object.json")
        if damage is None:
            os.unlink(path)
            os.mkfifo(path)
        else:
            with open(path, "wb") as file:
                file.write(damage)
        entry.close()
    assert main(["cache", "info"]) == 0
    out = capsys.readouterr().out
    assert "objects  7\n" in out
    assert "(damaged)" in out
    assert main(["cache", "clear"]) == 0
    assert "removed  7 objects" in capsys.readouterr().out
    assert os.listdir("cache/objects-v1") == ["usage"]


@pytest.mark.parametrize("action", ["info", "clear"])
def test_a_folder_that_is_no_cache_is_refused(
    action: str, capsys: pytest.CaptureFixture[str]
) -> None:
    os.makedirs("precious/objects-v1")
    os.makedirs("cache")
    os.symlink(os.path.abspath("precious/objects-v1"), "cache/objects-v1")
    assert main(["cache", action]) == 1
    assert "not a folder" in capsys.readouterr().err
    assert os.listdir("precious/objects-v1") == []


def test_a_size_that_is_none_is_a_usage_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "much")
    assert main(["cache", "info"]) == 2
    assert "RECMAP_CACHE_SIZE: cannot read the size 'much'" in capsys.readouterr().err
