"""The disk cache of blocks: against a dict, with several processes, killed, damaged and full."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
import signal
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from recmap.errors import NoCacheWarning, OptionError
from recmap.files.block_cache import BLOCK, BlockCache, CacheEntry, default_cache
from recmap.files.cache_folder import CacheFolder
from tests.processes import WITH_WORKERS, running

pytestmark = WITH_WORKERS

URL = "s3://bucket/train.tfrecord"
AMPLE = 1 << 30


def make_cache(
    budget: int = AMPLE, *, folder: str = "cache", since: float | None = None
) -> BlockCache:
    made = CacheFolder(folder)
    made.make()
    return BlockCache(made, budget, since)


def opened(cache: BlockCache, name: str = URL, size: int = 3 * BLOCK) -> CacheEntry:
    entry = cache.entry(name, "v1", size)
    assert entry is not None
    return entry


def content(name: str, block: int, size: int) -> npt.NDArray[np.uint8]:
    """The bytes of a block, which its object and its number determine."""
    numbers = np.random.default_rng([block, *name.encode()])
    length = min(BLOCK, size - block * BLOCK)
    return numbers.integers(0, 256, length, np.uint8)


def fill(entry: CacheEntry, blocks: Any = None, name: str = URL) -> None:
    for block in range(entry.blocks) if blocks is None else blocks:
        assert entry.admit(1)
        assert entry.store(block, content(name, block, entry.size))


def bytes_in(entry: CacheEntry, block: int) -> bytes:
    return os.pread(entry.fd, min(BLOCK, entry.size - block * BLOCK), block * BLOCK)


def sound_blocks(entry: CacheEntry, name: str = URL) -> set[int]:
    """Return the blocks that the entry claims to have, all of which must be right."""
    there = np.flatnonzero(entry.present(0, entry.blocks)).tolist()
    for block in there:
        assert bytes_in(entry, block) == content(name, block, entry.size).tobytes()
    return set(there)


def allocated(path: str = "cache") -> int:
    """Return the disk space of all entries, counted by a way of its own."""
    root = CacheFolder(path).path
    total = 0
    for folder, _, names in os.walk(root):
        total += os.lstat(folder).st_blocks * 512 if folder != root else 0
        total += sum(os.lstat(os.path.join(folder, n)).st_blocks * 512 for n in names)
    return total - os.lstat(os.path.join(root, "usage")).st_blocks * 512


def place(entry: CacheEntry) -> str:
    return os.path.dirname(entry.file("index"))


# -- one process ---------------------------------------------------------------------------------


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
                assert entry.store(block, memoryview(data) if block % 2 else data)
                kept[name, block] = data.tobytes()
        elif action == 2:
            entries.pop(name).close()
        else:
            cache = make_cache()  # as another process would
        if name in entries:
            for block in np.flatnonzero(entry.present(first, stop)):
                assert bytes_in(entry, first + block) == kept[name, first + int(block)]
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


# -- the budget ----------------------------------------------------------------------------------


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
    there = {(i, b) for i, entry in enumerate(entries) for b in sound_blocks(entry, f"{URL}-{i}")}
    assert there == set(stored)
    assert len(there) >= 17
    assert allocated() <= 20 * BLOCK


# -- a disk that refuses -------------------------------------------------------------------------


@pytest.fixture
def failing_pwrite(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Let writes to data files fail after the first half of a block, while the list is empty."""
    real, off = os.pwrite, []

    def pwrite(fd: int, data: Any, offset: int) -> int:
        data = memoryview(data)
        if off or len(data) < BLOCK // 2:
            return real(fd, data, offset)
        if len(data) <= BLOCK // 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return real(fd, data[: len(data) - BLOCK // 2], offset)

    monkeypatch.setattr(os, "pwrite", pwrite)
    yield off


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


# -- damage --------------------------------------------------------------------------------------


def rewrite(path: str, change: Callable[[bytearray], Any]) -> None:
    with open(path, "rb") as file:
        data = bytearray(file.read())
    data = change(data) or data
    with open(path, "wb") as file:
        file.write(data)


def replace_by(make: Callable[[str], Any]) -> Callable[[str], None]:
    def damage(path: str) -> None:
        shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
        make(path)

    return damage


def flip(data: bytearray) -> None:
    for i in range(0, len(data), 1000):
        data[i] ^= 0x5A


DAMAGES: dict[str, Callable[[str], Any]] = {
    "flipped": lambda path: rewrite(path, flip),
    "cut": lambda path: rewrite(path, lambda data: data[: len(data) // 2]),
    "cut by a byte": lambda path: rewrite(path, lambda data: data[:-1]),
    "longer": lambda path: rewrite(path, lambda data: data + b"x"),
    "empty": lambda path: rewrite(path, lambda data: bytearray() if data.clear() else None),
    "zeros": lambda path: rewrite(path, lambda data: bytearray(len(data))),
    "ones": lambda path: rewrite(path, lambda data: bytearray(b"\xff" * len(data))),
    "missing": os.unlink,
    "folder": replace_by(os.mkdir),
    "pipe": replace_by(os.mkfifo),
    "link outside": replace_by(lambda path: os.symlink(os.path.abspath("outside"), path)),
    "broken link": replace_by(lambda path: os.symlink("nowhere", path)),
    "link to itself": replace_by(lambda path: os.symlink(path, path)),
}


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("file", ["data", "table", "object.json", "index", "usage"])
@pytest.mark.parametrize("in_use", [False, True])
def test_damage_never_gives_wrong_data(file: str, damage: str, in_use: bool) -> None:
    with open("outside", "wb") as outside:
        outside.write(bytes(3 * BLOCK + 99))
    cache = make_cache()
    entry = opened(cache, size=3 * BLOCK + 99)
    fill(entry, [0, 1, 3])
    with open(entry.file("index"), "wb") as index:
        index.write(b"anchors")
    folder = cache.folder.path if file == "usage" else place(entry)
    if not in_use:
        entry.close()
    DAMAGES[damage](os.path.join(folder, file))
    for reader in (cache, make_cache()):
        again = opened(reader, size=3 * BLOCK + 99)
        assert not os.path.islink(again.file("index"))
        fill(again, set(range(4)) - sound_blocks(again))
        assert sound_blocks(again) == {0, 1, 2, 3}
    assert sound_blocks(opened(make_cache(), size=3 * BLOCK + 99)) == {0, 1, 2, 3}
    with open("outside", "rb") as outside:
        assert outside.read() == bytes(3 * BLOCK + 99)
    cache.folder.count(lambda: 0)
    assert cache.folder.used() == allocated()


@pytest.mark.parametrize("damage", ["file", "link", "empty", "unknown files", "folder inside"])
def test_a_damaged_folder_is_started_afresh(damage: str) -> None:
    cache = make_cache()
    entry = opened(cache)
    fill(entry)
    folder = place(entry)
    entry.close()
    if damage in ("file", "link", "empty"):
        os.rename(folder, "outside")
    if damage == "file":
        with open(folder, "wb"):
            pass
    elif damage == "link":
        os.symlink(os.path.abspath("outside"), folder)
    elif damage == "empty":
        os.mkdir(folder)
    elif damage == "unknown files":
        with open(os.path.join(folder, ".index.what.tmp"), "wb"):
            pass
    else:
        os.mkdir(os.path.join(folder, "index"))
    again = opened(make_cache())
    assert sound_blocks(again) == ({0, 1, 2} if damage == "unknown files" else set())
    fill(again)
    if damage == "link":
        assert sorted(os.listdir("outside")) == ["data", "object.json", "table"]
    assert sound_blocks(opened(make_cache())) == {0, 1, 2}
    again.close()


@pytest.mark.parametrize("damage", ["file", "link", "empty", "data is a pipe", "no data"])
def test_damaged_entries_make_room_for_others(damage: str) -> None:
    entry = opened(make_cache())
    fill(entry)
    folder = place(entry)
    entry.close()
    if damage == "data is a pipe":
        replace_by(os.mkfifo)(os.path.join(folder, "data"))
    elif damage == "no data":
        os.unlink(os.path.join(folder, "data"))
    else:
        os.rename(folder, "outside")
        if damage == "file":
            with open(folder, "wb") as file:
                file.write(bytes(3 * BLOCK))
        elif damage == "link":
            os.symlink(os.path.abspath("outside"), folder)
        else:
            os.mkdir(folder)
    # Something of others, which is none of the cache's business.
    stranger = os.path.join(os.path.dirname(folder), "notes.txt")
    with open(stranger, "w"):
        pass
    cache = make_cache()
    for one in cache.folder.objects():
        assert not cache.folder.in_use(one.key)
        assert cache.folder.drop(one.key) is not None
    assert not os.path.lexists(folder)
    assert os.path.exists(stranger)
    assert os.path.exists("outside") == (damage in ("file", "link", "empty"))


def test_a_block_whose_data_the_disk_lost_is_absent() -> None:
    """After a power failure, the table may be ahead of the data."""
    entry = opened(make_cache())
    fill(entry)
    os.pwrite(entry.fd, bytes(BLOCK), BLOCK)
    again = opened(make_cache())
    assert sound_blocks(again) == {0, 2}
    assert not again.complete
    fill(again, [1])
    assert again.complete
    assert sound_blocks(opened(make_cache())) == {0, 1, 2}


def test_blocks_at_another_place_or_of_another_object_are_not_mistaken() -> None:
    cache = make_cache()
    one, other = opened(cache), opened(cache, "other")
    fill(one)
    fill(other, name="other")
    for name in ("data", "table"):
        shutil.copyfile(os.path.join(place(one), name), os.path.join(place(other), name))
    assert sound_blocks(opened(make_cache(), "other"), "other") == set()
    for name, size in (("data", BLOCK), ("table", 4)):
        path = os.path.join(place(one), name)
        rewrite(path, lambda data, n=size: data[n : 2 * n] + data[:n] + data[2 * n :])
    assert sound_blocks(opened(make_cache())) == {2}


# -- several processes ---------------------------------------------------------------------------

OBJECTS = {f"{URL}-{i}": size for i, size in enumerate((BLOCK // 2, 3 * BLOCK, 7 * BLOCK + 5))}
PROGRAM = """
import sys
from tests.files.test_block_cache import use_at_random
use_at_random(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4]))
"""


def use_at_random(folder: str, budget: int, seed: int, rounds: int) -> None:
    """Read and store blocks of the objects, and fail if one is wrong."""
    choose = random.Random(seed)
    print("begins", flush=True)
    for _ in range(rounds):
        # Everything may be evicted.
        cache = make_cache(budget, folder=folder, since=time.time() + 1000)
        with ExitStack() as stack:
            for name in choose.sample(list(OBJECTS), 2):
                size = OBJECTS[name]
                entry = cache.entry(name, "v1", size)
                if entry is None:
                    continue
                stack.callback(entry.close)
                for block in choose.sample(range(entry.blocks), min(3, entry.blocks)):
                    data = content(name, block, size)
                    if entry.present(block, block + 1)[0] or (
                        entry.admit(2) and entry.store(block, data)
                    ):
                        assert bytes_in(entry, block) == data.tobytes(), (name, block)
            if choose.random() < 0.1:
                for one in cache.folder.count(lambda: 0):
                    cache.folder.drop(one.key)
    print("ends", flush=True)


def check_all(budget: int) -> None:
    cache = make_cache(budget)
    for name, size in OBJECTS.items():
        sound_blocks(opened(cache, name, size), name)
    cache.folder.count(lambda: 0)
    assert cache.folder.used() == allocated()
    names = {one.key for one in cache.folder.objects()} | {"usage"}
    assert set(os.listdir(cache.folder.path)) == names


@pytest.mark.parametrize("budget", [AMPLE, 6 * BLOCK])
def test_processes_share_the_cache(budget: int) -> None:
    with ExitStack() as stack:
        started = [
            stack.enter_context(running(PROGRAM, "cache", str(budget), str(seed), "60"))
            for seed in range(4)
        ]
        for process in started:
            out, err = process.communicate()
            assert process.returncode == 0, err
            assert out.split() == ["begins", "ends"]
    check_all(budget)
    # Each process may be in the middle of writing two blocks while another counts.
    assert allocated() <= budget + 4 * 4 * BLOCK


def test_processes_killed_at_any_moment_leave_nothing_wrong() -> None:
    choose = random.Random(1)
    for seed in range(6):
        with ExitStack() as stack:
            started = [
                stack.enter_context(running(PROGRAM, "cache", str(AMPLE), str(n), "1000000"))
                for n in (2 * seed, 2 * seed + 1)
            ]
            for process in started:
                assert process.stdout is not None
                assert process.stdout.readline() == "begins\n"
            time.sleep(choose.random() / 2)
            for process in started:
                process.kill()
                _, err = process.communicate()
                assert process.returncode == -signal.SIGKILL, err
        check_all(AMPLE)


def test_what_a_killed_process_reserved_is_found_by_a_count() -> None:
    program = """
import os, signal
from tests.files.test_block_cache import make_cache, opened, BLOCK
assert opened(make_cache(10 * BLOCK)).admit(9)
os.kill(os.getpid(), signal.SIGKILL)
"""
    with running(program) as process:
        _, err = process.communicate()
        assert process.returncode == -signal.SIGKILL, err
    cache = make_cache(10 * BLOCK)
    used = cache.folder.used()
    assert used is not None
    assert used >= 9 * BLOCK
    assert opened(cache).admit(9)


def test_a_process_that_has_an_entry_open_keeps_it() -> None:
    program = """
from tests.files.test_block_cache import fill, make_cache, opened, sound_blocks
entry = opened(make_cache())
fill(entry)
print("open", flush=True)
input()
assert sound_blocks(entry) == {0, 1, 2}
"""
    with running(program) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "open\n"
        cache = make_cache(4 * BLOCK)
        [one] = cache.folder.objects()
        assert cache.folder.in_use(one.key)
        assert cache.folder.drop(one.key) is None
        assert not opened(cache, "other").admit(2)
        _, err = process.communicate("\n")
        assert process.returncode == 0, err
    assert cache.folder.drop(one.key) is not None


def in_child(work: Callable[[], object]) -> None:
    """Run a function in a forked process."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as e:
            print(repr(e), file=sys.stderr, flush=True)
        finally:
            os._exit(code)
    assert os.waitpid(child, 0)[1] == 0


def test_a_forked_process_shares_an_entry() -> None:
    cache = make_cache(10 * BLOCK)
    entry = opened(cache)
    fill(entry, [0])
    key = os.path.basename(place(entry))
    assert entry.admit(4)

    def child() -> None:
        assert sound_blocks(entry) == {0}
        assert not entry.store(1, content(URL, 1, entry.size))  # its parent has reserved
        fill(entry, [1])
        entry.close()
        assert cache.folder.in_use(key)

    used = cache.folder.used()
    assert used is not None
    in_child(child)
    assert cache.folder.used() == used + BLOCK
    assert cache.folder.in_use(key)
    assert entry.store(2, content(URL, 2, entry.size))
    assert sound_blocks(entry) == {0, 1, 2}
    entry.close()
    assert not cache.folder.in_use(key)


def test_a_forked_process_keeps_an_entry_that_its_parent_has_closed() -> None:
    cache = make_cache()
    entry = opened(cache)
    fill(entry)
    key = os.path.basename(place(entry))
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(write)
        os.read(read, 1)
        os._exit(0 if sound_blocks(entry) == {0, 1, 2} else 1)
    entry.close()
    assert cache.folder.drop(key) is None
    os.close(write)
    os.close(read)
    assert os.waitpid(child, 0)[1] == 0
    assert cache.folder.drop(key) is not None


# -- settings ------------------------------------------------------------------------------------


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


def test_by_default_the_cache_takes_a_tenth_of_the_free_disk(settings: pytest.MonkeyPatch) -> None:
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
