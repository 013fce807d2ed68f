"""The disk cache shared by processes, which may be forked, or killed at any moment."""

from __future__ import annotations

import os
import random
import signal
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack

import pytest

from recmap.cache import block_cache
from recmap.cache.block_cache import BLOCK, CacheEntry
from recmap.cache.cache_folder import lock
from recmap.local.temporary import temporary_path
from tests.cache.cached_blocks import (
    AMPLE,
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
from tests.processes import WITH_WORKERS, running

pytestmark = [*WITH_WORKERS, pytest.mark.slow]


OBJECTS = {f"{URL}-{i}": size for i, size in enumerate((BLOCK // 2, 3 * BLOCK, 7 * BLOCK + 5))}
PROGRAM = """
import sys
from tests.cache.test_shared_cache import use_at_random
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
            stack.enter_context(running(PROGRAM, "cache", str(budget), str(seed), "30"))
            for seed in range(3)
        ]
        for process in started:
            out, err = process.communicate()
            assert process.returncode == 0, err
            assert out.split() == ["begins", "ends"]
    check_all(budget)
    # Each process may be in the middle of writing two blocks while another counts.
    assert allocated() <= budget + 3 * 4 * BLOCK


def test_processes_killed_at_any_moment_leave_nothing_wrong() -> None:
    choose = random.Random(1)
    for seed in range(4):
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
from recmap.cache.block_cache import BLOCK
from tests.cache.cached_blocks import make_cache, opened
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
from tests.cache.cached_blocks import fill, make_cache, opened, sound_blocks
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


def test_a_forked_process_does_not_give_back_what_its_parent_does() -> None:
    cache = make_cache()
    entry = opened(cache)
    assert entry.admit(3)
    entry.give_back(3)  # this is subtracted with the next reservation, or when it is closed
    before = cache.folder.used()
    assert before is not None
    in_child(lambda: opened(cache).close())
    assert cache.folder.used() == before
    entry.close()
    assert cache.folder.used() == before - 3 * BLOCK


def test_what_killed_processes_were_making_is_removed() -> None:
    cache = make_cache()
    in_child(lambda: os.mkdir(temporary_path(cache.folder.place("0" * 64))))
    mine = temporary_path(cache.folder.place("1" * 64))
    os.mkdir(mine)
    assert len(os.listdir(cache.folder.path)) == 2
    assert list(cache.folder.objects()) == []
    assert os.listdir(cache.folder.path) == [os.path.basename(mine)]


def test_an_entry_replaced_while_it_is_opened_is_opened_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = make_cache()
    entry = opened(cache)
    fill(entry)
    key = os.path.basename(place(entry))
    entry.close()
    others: list[CacheEntry] = []
    evicted: list[int | None] = []

    def replace_first(fd: int, kind: int) -> bool:
        if not evicted:
            evicted.append(cache.folder.drop(key))
            others.append(opened(make_cache()))
            fill(others[0], [1])
        return lock(fd, kind)

    monkeypatch.setattr(block_cache, "lock", replace_first)
    again = opened(cache)
    assert None not in evicted
    assert sound_blocks(again) == {1}
    assert os.path.samestat(os.fstat(again.fd), os.fstat(others[0].fd))


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
