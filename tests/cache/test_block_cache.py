"""The disk cache of blocks: compared with a dict, with too little room, and its settings."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import stat
import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from recmap.cache.block_cache import BLOCK, CacheEntry, default_cache
from recmap.cache.cache_folder import CacheFolder, StoredObject
from recmap.errors import NoCacheWarning, OptionError
from tests.cache.cached_blocks import (
    URL,
    allocated,
    bytes_in,
    content,
    fill,
    make_cache,
    opened,
    place,
    sound_blocks,
)

# -- one process


@pytest.mark.parametrize("seed", range(4))
def test_blocks_are_kept_as_in_a_dict(seed: int) -> None:
    choose = random.Random(seed)
    sizes = [0, 1, 4096, BLOCK - 1, BLOCK, BLOCK + 1, 5 * BLOCK, 5 * BLOCK + 4097]
    names = {f"{URL}-{size}": size for size in sizes}
    kept: dict[tuple[str, int], bytes] = {}
    entries: dict[str, CacheEntry] = {}
    cache = make_cache()
    for _ in range(150):
        name = choose.choice(list(names))
        size = names[name]
        entry = entries.get(name) or entries.setdefault(name, opened(cache, name, size))
        assert entry.blocks == -(-size // BLOCK)
        first = choose.randint(0, entry.blocks)
        stop = choose.randint(first, entry.blocks)
        expected = [(name, block) in kept for block in range(first, stop)]
        action = choose.randrange(4)
        if action == 0:
            assert entry.present(first, stop).tolist() == expected
        elif action == 1 and stop > first:
            assert entry.admit(stop - first)
            for block in range(first, stop):
                data = content(name, block, size)
                assert entry.store(block, data.tobytes() if block % 2 else data)
                kept[name, block] = data.tobytes()
        elif action == 2:
            entries.pop(name).close()
        else:
            cache = make_cache()  # as another process would
        if name in entries:
            for i in np.flatnonzero(entry.present(first, stop)).tolist():
                assert bytes_in(entry, first + i) == kept[name, first + i]
    for name, size in names.items():
        entry = opened(make_cache(), name, size)
        assert sound_blocks(entry, name) == {b for n, b in kept if n == name}
        assert entry.complete == (len(sound_blocks(entry, name)) == entry.blocks)


def test_every_version_of_an_object_has_an_entry_of_its_own() -> None:
    cache = make_cache()
    fill(opened(cache))
    for name, version, size in (
        (URL, "v2", 3 * BLOCK),
        (URL, "v1", 2 * BLOCK),
        ("s3://x", "v1", 9),
    ):
        other = cache.entry(name, version, size)
        assert other is not None
        assert not other.present(0, other.blocks).any()
    assert opened(cache).present(0, 3).all()


def test_absent_blocks_take_no_room() -> None:
    entry = opened(make_cache(), size=1 << 40)
    fill(entry, [777_777])
    assert os.fstat(entry.fd).st_size == 1 << 40
    assert os.fstat(entry.fd).st_blocks * 512 <= BLOCK + 65536
    assert np.flatnonzero(entry.present(777_000, 778_000)).tolist() == [777]


def test_a_size_that_no_file_can_have_gets_no_entry() -> None:
    cache = make_cache()
    assert cache.entry(URL, "v1", 1 << 62) is None
    assert os.listdir(cache.folder.path) == []


def test_only_whole_blocks_of_an_open_entry_are_stored() -> None:
    entry = opened(make_cache(), size=BLOCK + 7)
    assert entry.admit(2)
    for block, size in ((0, BLOCK - 1), (1, BLOCK), (1, 6), (2, BLOCK), (-1, BLOCK)):
        with pytest.raises(ValueError, match="block"):
            entry.store(block, bytes(size))
    assert entry.store(1, bytes(7))
    entry.close()
    entry.close()
    for use in (lambda: entry.present(0, 2), lambda: entry.store(0, bytes(BLOCK))):
        with pytest.raises(ValueError, match="closed"):
            use()
    assert opened(make_cache(), size=BLOCK + 7).present(0, 2).tolist() == [False, True]


def test_small_files_live_and_die_with_the_entry() -> None:
    cache = make_cache()
    entry = opened(cache)
    with open(entry.file("index"), "wb") as file:
        file.write(b"anchors")
    key = os.path.basename(place(entry))
    assert cache.folder.drop(key) is None
    entry.close()
    again = opened(cache)
    with open(again.file("index"), "rb") as file:
        assert file.read() == b"anchors"
    again.close()
    assert cache.folder.drop(key) is not None
    assert not os.path.exists(again.file("index"))
    for name in ("", "data", "table", "object.json", "../x", "a/b", ".", "x\0", "x\n"):
        with pytest.raises(ValueError, match="not the name"):
            again.file(name)


def test_no_file_of_the_cache_holds_a_secret_or_is_for_others() -> None:
    cache = make_cache()
    fill(opened(cache, "https://me:PASSWORD@host/x.npy?X-Amz-Signature=SIGNATURE"))
    assert stat.S_IMODE(os.stat(cache.folder.path).st_mode) == 0o700
    seen = b""
    for folder, _, names in os.walk("cache"):
        for path in (os.path.join(folder, name) for name in names):
            assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
            with open(path, "rb") as file:
                seen += os.fsencode(path) + file.read()
    assert b"https://host/x.npy" in seen
    assert b"PASSWORD" not in seen
    assert b"SIGNATURE" not in seen


# -- the budget


def test_a_scan_over_too_much_keeps_a_fixed_part() -> None:
    names = [f"{URL}-{i}" for i in range(8)]
    before: set[tuple[str, int]] | None = None
    cache = make_cache(10 * BLOCK)
    for epoch in range(3):
        there = set()
        for name in random.Random(epoch).sample(names, len(names)):
            entry = opened(cache, name)
            there |= {(name, block) for block in sound_blocks(entry, name)}
            for block in range(entry.blocks):
                if not entry.present(block, block + 1)[0] and entry.admit(1):
                    assert entry.store(block, content(name, block, entry.size))
            cache.budget._look_again = 0  # it may evict at any time, and must not
            entry.close()
        assert allocated() <= 10 * BLOCK
        if epoch:
            assert len(there) == 9
            assert before in (None, there)
            before = there


def test_entries_of_earlier_runs_make_room_least_recently_opened_first() -> None:
    names = [f"{URL}-{i}" for i in range(4)]
    earlier = make_cache(13 * BLOCK)
    for name in names:
        with_it = opened(earlier, name)
        fill(with_it, name=name)
        with_it.close()
    opened(earlier, names[0]).close()
    in_use = opened(earlier, names[1])
    now = make_cache(13 * BLOCK)
    fill(opened(now, "new-1"), name="new-1")
    fill(opened(now, "new-2"), name="new-2")
    left = {one.key for one in now.folder.objects()}
    there = [opened(now, name).present(0, 3).all() for name in names]
    assert there == [True, True, False, False]
    assert len(left) == 4
    assert sound_blocks(in_use, names[1]) == {0, 1, 2}
    assert allocated() <= 13 * BLOCK


def test_entries_opened_by_this_run_stay() -> None:
    cache = make_cache(4 * BLOCK)
    fill(opened(cache))
    gc.collect()
    cache.budget._look_again = 0
    assert not opened(cache, "other").admit(2)
    assert opened(cache).present(0, 3).all()


def test_a_date_in_the_future_does_not_protect_an_entry() -> None:
    old = opened(make_cache(4 * BLOCK))
    fill(old)
    os.utime(os.path.join(place(old), "object.json"), (4e9, 4e9))
    old.close()
    assert opened(make_cache(4 * BLOCK), "other").admit(3)


def test_a_block_needs_a_reservation() -> None:
    entry = opened(make_cache())
    assert not entry.store(0, bytes(BLOCK))
    assert not entry.present(0, 1)[0]
    assert entry.admit(1)
    assert entry.store(0, bytes(BLOCK))
    assert entry.store(0, bytes(BLOCK))  # it is there already
    assert not entry.store(1, bytes(BLOCK))
    assert entry.admit(1)
    assert entry.store(0, bytes(BLOCK))  # and uses up the reservation
    assert not entry.store(1, bytes(BLOCK))


@pytest.mark.parametrize("how", ["close", "give_back", "collect"])
def test_reservations_that_are_not_used_are_given_back(how: str) -> None:
    cache = make_cache(10 * BLOCK)
    other = opened(cache, "other")
    entry: CacheEntry | None = opened(cache)
    assert entry is not None
    assert entry.admit(8)
    assert entry.store(0, bytes(BLOCK))
    cache.budget._look_again = time.monotonic() + 1000  # without a count
    assert not other.admit(8)
    if how == "close":
        entry.close()
    elif how == "give_back":
        entry.give_back(100)
    else:
        del entry
        gc.collect()
    assert not other.admit(9)
    assert other.admit(8)


def test_a_count_includes_what_is_reserved() -> None:
    cache = make_cache(10 * BLOCK)
    entry = opened(cache)
    assert entry.admit(3)
    assert entry.store(0, bytes(BLOCK))
    cache.budget._look_again = 0
    assert not opened(cache, "other").admit(7)
    used = cache.folder.used()
    assert used is not None
    assert used >= 3 * BLOCK
    assert opened(cache, "other").admit(6)


def test_what_is_written_during_a_count_is_not_missed(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = make_cache(10 * BLOCK)
    early, late = opened(cache), opened(cache, "other")
    assert early.admit(1)
    real = CacheFolder.objects

    def objects(folder: CacheFolder) -> Iterator[StoredObject]:
        yield from list(real(folder))
        assert early.store(0, bytes(BLOCK))
        fill(late)

    with monkeypatch.context() as patch:
        patch.setattr(CacheFolder, "objects", objects)
        cache.folder.count(cache.budget._pending)
    used = cache.folder.used()
    assert used is not None
    assert abs(used - allocated()) < 65536  # parts of tables, at most


def test_what_somebody_removed_is_noticed_before_a_refusal() -> None:
    cache = make_cache(5 * BLOCK)
    entry = opened(cache)
    fill(entry)
    shutil.rmtree(place(entry))
    cache.budget._look_again = 0
    assert opened(cache, "other").admit(4)
    assert entry.present(0, 3).all()  # it still has the file


def test_small_objects_take_little_of_the_budget() -> None:
    cache = make_cache(10 * BLOCK)
    entries = [opened(cache, f"{URL}-{i}", 10_000) for i in range(100)]
    for i, entry in enumerate(entries):
        fill(entry, name=f"{URL}-{i}")
    assert all(entry.complete for entry in entries)
    assert allocated() <= 10 * BLOCK


def test_a_full_budget_gets_no_new_entries() -> None:
    cache = make_cache(40_000)
    entries = [cache.entry(f"{URL}-{i}", "v1", BLOCK) for i in range(5)]
    assert [entry is not None for entry in entries] == [True, True, False, False, False]
    assert all(entry is None or not entry.admit(1) for entry in entries)


def test_threads_keep_to_the_budget() -> None:
    cache = make_cache(20 * BLOCK)
    entries = [opened(cache, f"{URL}-{i}", 12 * BLOCK) for i in range(4)]
    stored: list[tuple[int, int]] = []

    def work(seed: int) -> None:
        choose = random.Random(seed)
        for _ in range(60):
            i, block = choose.randrange(4), choose.randrange(12)
            if not entries[i].present(block, block + 1)[0] and entries[i].admit(1):
                data = content(f"{URL}-{i}", block, 12 * BLOCK)
                if entries[i].store(block, data):
                    stored.append((i, block))
            cache.budget._look_again = 0

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert allocated() <= 20 * BLOCK
    cache.budget._look_again = 0
    work(7)  # what was counted twice in the meantime is counted again
    there = {(i, b) for i, entry in enumerate(entries) for b in sound_blocks(entry, f"{URL}-{i}")}
    assert there == set(stored)
    assert len(there) == 19
    assert allocated() <= 20 * BLOCK


# -- a disk that refuses


@pytest.fixture
def failing_pwrite(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Let writes to data files fail after the first half of a block, while the list is empty."""
    real = os.pwrite
    off: list[int] = []

    def pwrite(fd: int, data: Any, offset: int) -> int:
        data = memoryview(data)
        if off or len(data) < BLOCK // 2:
            return real(fd, data, offset)
        if len(data) <= BLOCK // 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[: len(data) - BLOCK // 2], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    return off


def test_a_full_disk_is_no_error(failing_pwrite: list[int]) -> None:
    cache = make_cache()
    entry = opened(cache)
    assert entry.admit(3)
    assert not entry.store(0, content(URL, 0, entry.size))
    assert not entry.present(0, 3).any()
    assert not entry.admit(1)
    assert not opened(cache, "other").admit(1)
    failing_pwrite.append(1)
    assert entry.store(1, content(URL, 1, entry.size))  # what was reserved before
    assert not entry.admit(1)
    entry.close()
    used = cache.folder.used()
    assert used is not None
    assert BLOCK <= used <= BLOCK + 65536
    assert sound_blocks(opened(make_cache())) == {1}


def test_a_block_may_be_written_in_several_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda fd, data, at: real(fd, bytes(data[:100_001]), at))
    fill(opened(make_cache()))
    assert sound_blocks(opened(make_cache())) == {0, 1, 2}


def test_a_disk_that_takes_no_new_file_gives_no_entry(monkeypatch: pytest.MonkeyPatch) -> None:
    cache = make_cache()

    def refuse(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "ftruncate", refuse)
        cache.folder.count(lambda: 0)
        assert cache.entry(URL, "v1", BLOCK) is None
    assert [name for name in os.listdir(cache.folder.path) if name != "usage"] == []
    fill(opened(cache, size=BLOCK))


# -- settings


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in ("RECMAP_CACHE", "RECMAP_CACHE_SIZE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", os.path.abspath("home"))
    return monkeypatch


def test_the_environment_chooses_folder_and_size(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("RECMAP_CACHE_SIZE", "2MB")
    for name, value, expected in (
        ("XDG_CACHE_HOME", "relative", "home/.cache/recmap"),
        ("XDG_CACHE_HOME", os.path.abspath("xdg"), "xdg/recmap"),
        ("RECMAP_CACHE", "own", "own"),
        ("RECMAP_CACHE", "~/cached", "home/cached"),
    ):
        settings.setenv(name, value)
        cache = default_cache()
        assert cache is not None
        assert cache.folder.path == os.path.abspath(f"{expected}/objects-v1")
        assert cache.budget.size == 2_000_000
        assert default_cache() is cache


@pytest.mark.usefixtures("settings")
def test_by_default_the_cache_takes_a_tenth_of_the_free_disk() -> None:
    cache = default_cache()
    assert cache is not None
    disk = os.statvfs("home")
    assert cache.budget.size == pytest.approx(disk.f_bavail * disk.f_frsize / 10, rel=0.2)


def test_a_size_of_zero_switches_the_cache_off(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("RECMAP_CACHE_SIZE", "0")
    assert default_cache() is None
    assert not os.path.exists("home")


def test_a_size_that_is_none_is_refused(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("RECMAP_CACHE_SIZE", "much")
    with pytest.raises(OptionError, match="RECMAP_CACHE_SIZE: cannot read the size 'much'"):
        default_cache()


@pytest.mark.parametrize("what", ["file", "link", "file above", "another user's"])
def test_a_folder_that_cannot_be_used_is_a_warning(what: str, settings: pytest.MonkeyPatch) -> None:
    settings.setenv("RECMAP_CACHE", f"cache of {what}")
    path = f"cache of {what}/objects-v1"
    os.makedirs("elsewhere")
    if what == "file above":
        path = f"cache of {what}"
    else:
        os.mkdir(f"cache of {what}")
    if what == "link":
        os.symlink(os.path.abspath("elsewhere"), path)
    elif what == "another user's":
        os.mkdir(path)
        settings.setattr(os, "geteuid", lambda: os.getuid() + 1)
    else:
        with open(path, "w"):
            pass
    with pytest.warns(NoCacheWarning, match=r"cache of .* cannot be used.*RECMAP_CACHE_SIZE=0"):
        assert default_cache() is None
    assert default_cache() is None  # without another warning
    assert os.listdir("elsewhere") == []


def test_a_folder_open_to_others_is_closed_to_them(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("RECMAP_CACHE", "cache")
    os.makedirs("cache/objects-v1", 0o777)
    os.chmod("cache/objects-v1", 0o777)
    assert default_cache() is not None
    assert stat.S_IMODE(os.stat("cache/objects-v1").st_mode) == 0o700
