"""An object as memory: what is held is there, and what is no longer held takes no memory."""

from __future__ import annotations

import itertools
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import numpy as np
import numpy.typing as npt
import pytest

import recmap as rm
from recmap.cache.block_cache import CacheEntry, default_cache
from recmap.machine.spans import Places
from recmap.store import fetched_file, read_ahead
from recmap.store.fetched_file import FetchedFile
from recmap.store.object_path import ObjectPath, object_path
from recmap.store.storage import Storage
from tests.buckets import S3Bucket
from tests.faulty_proxy import Hold, Stall, Status

PAGE = 4096
SIZE = 5 * (1 << 20) + 1234
DATA = np.random.default_rng(1).integers(0, 256, SIZE, np.uint8)


@pytest.fixture(params=["cache", "no cache"])
def cached(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    if request.param == "no cache":
        monkeypatch.setenv("RECMAP_CACHE_SIZE", "0")
    return bool(request.param == "cache")


@pytest.fixture
def path(bucket: S3Bucket, cached: bool) -> ObjectPath:  # noqa: ARG001  # it sets the scene
    bucket.put("x.bin", DATA.tobytes())
    return object_path(f"{bucket.url}/x.bin", Storage(bucket.storage))


def spans(random: np.random.Generator, most: int) -> tuple[Places, Places]:
    begins = random.integers(0, SIZE, random.integers(0, most))
    return begins, np.minimum(begins + random.integers(0, 50_000, len(begins)), SIZE)


def assert_held(file: FetchedFile, begins: Places, ends: Places) -> None:
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        np.testing.assert_array_equal(file.bytes[begin:end], DATA[begin:end])


def memory(file: FetchedFile) -> int:
    """Return how many pages hold something else than zeros."""
    whole = file.bytes[: SIZE // PAGE * PAGE].reshape(-1, PAGE)
    return int(np.count_nonzero(whole.any(axis=1)))


def test_what_is_held_is_there_and_nothing_stays(path: ObjectPath) -> None:
    random = np.random.default_rng(2)
    file = FetchedFile(path)
    held: list[tuple[ExitStack, Places, Places]] = []
    for _ in range(150):
        if held and random.random() < 0.5:
            held.pop(random.integers(len(held)))[0].close()
        else:
            stack, span = ExitStack(), spans(random, 8)
            stack.enter_context(file.hold(*span))
            held.append((stack, *span))
        for _, begins, ends in held:
            assert_held(file, begins, ends)
    for stack, _, _ in held:
        stack.close()
    file.drop_ahead()
    assert memory(file) == 0


def test_several_threads_hold_the_same_pages(path: ObjectPath) -> None:
    file = FetchedFile(path)

    def work(seed: int) -> None:
        random = np.random.default_rng(seed)
        for _ in range(20):
            begins, ends = spans(random, 6)
            with file.hold(begins % (1 << 20), np.minimum(ends % (1 << 20) + 1, SIZE)):
                some = begins % (1 << 20) < ends % (1 << 20) + 1
                assert_held(file, begins[some] % (1 << 20), ends[some] % (1 << 20) + 1)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(work, seed) for seed in range(8)]:
            done.result()
    file.drop_ahead()
    assert memory(file) == 0


def test_a_failed_fetch_is_an_error_for_everybody_who_needs_it(
    path: ObjectPath, bucket: S3Bucket
) -> None:
    file = FetchedFile(path)
    path.info  # noqa: B018  # found before the trouble begins
    bucket.proxy.faults.extend([Status(403)] * 1000)
    first = file.start(np.array([0]), np.array([10]))
    second = file.start(np.array([5]), np.array([20]))
    for hold in (first, second):
        with pytest.raises(rm.StoreError), hold:
            pass
    bucket.proxy.faults.clear()
    with file.hold(0, 20):
        assert_held(file, np.array([0]), np.array([20]))


def test_giving_up_a_fetch_does_not_disturb_others(path: ObjectPath, bucket: S3Bucket) -> None:
    path.info  # noqa: B018
    bucket.proxy.delay = 0.2
    file = FetchedFile(path)
    for _ in range(3):
        given_up = file.start(np.array([0]), np.array([SIZE]))
        needed = file.start(np.array([1000]), np.array([2000]))
        given_up.close()
        with needed:
            assert_held(file, np.array([1000]), np.array([2000]))
    assert memory(file) == 0


def test_reading_in_order_is_ahead_and_bounded(
    path: ObjectPath, bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, cached: bool
) -> None:
    monkeypatch.setattr(read_ahead, "request_size", lambda: 1 << 18)
    monkeypatch.setattr(read_ahead, "bytes_ahead", lambda _: 1 << 20)
    file = FetchedFile(path)
    most, step = 0, 10_000
    bucket.proxy.reset()
    for begin in range(0, SIZE, step):
        end = min(begin + step, SIZE)
        with file.hold(begin, end):
            assert_held(file, np.array([begin]), np.array([end]))
            most = max(most, memory(file) if begin % 500_000 == 0 else 0)
    assert most * PAGE < 2.5 * (1 << 20)
    assert bucket.proxy.count("GET") < (12 if cached else 60)
    assert bucket.proxy.body_bytes < 1.1 * SIZE
    file.drop_ahead()
    assert memory(file) == 0


def test_the_cache_serves_the_next_reader_and_the_next_process(
    path: ObjectPath, bucket: S3Bucket, cached: bool
) -> None:
    with FetchedFile(path).hold(0, SIZE):
        pass
    bucket.proxy.reset()
    file = FetchedFile(path)
    with file.hold(1_000_000, 2_000_000):
        assert_held(file, np.array([1_000_000]), np.array([2_000_000]))
    assert bucket.proxy.count("GET") == (0 if cached else 1)
    with file.hold(0, SIZE):
        pass
    local = file.current()
    assert local.whole == cached
    if local.whole:
        np.testing.assert_array_equal(local.bytes, DATA)


@pytest.mark.parametrize("lookups", [1, 2, 3])
def test_a_block_that_arrives_while_it_is_looked_up_is_not_fetched_again(
    bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch, lookups: int
) -> None:
    # So large that one block of it is not reason enough to fetch its neighbours.
    bucket.put("x.bin", DATA.tobytes() + bytes(3 * SIZE))
    path = object_path(f"{bucket.url}/x.bin", Storage(bucket.storage))
    file, other = FetchedFile(path), FetchedFile(path)
    other._reader = file._reader
    seen, numbers = CacheEntry.seen, itertools.count(1)

    def slowly_seen(entry: CacheEntry, first: int, stop: int) -> npt.NDArray[np.bool_]:
        found = seen(entry, first, stop)
        if next(numbers) == lookups:
            with other.hold(0, 10):
                pass
        return found

    monkeypatch.setattr(CacheEntry, "seen", slowly_seen)
    bucket.proxy.reset()
    with file.hold(0, 10):
        assert_held(file, np.array([0]), np.array([10]))
    assert next(numbers) > lookups
    assert (bucket.proxy.count("GET"), bucket.proxy.body_bytes) == (1, 1 << 20)


def test_blocks_come_with_their_neighbours_once_much_of_an_object_is_cached(
    bucket: S3Bucket,
) -> None:
    block, count = 1 << 20, 32
    data = np.random.default_rng(4).integers(0, 256, count * block - 99, np.uint8)
    bucket.put("x.bin", data.tobytes())
    file = FetchedFile(object_path(f"{bucket.url}/x.bin", Storage(bucket.storage)))
    bucket.proxy.reset()
    first = [0, 8, 16, 24, 30]
    for i, number in enumerate(first, 1):
        with file.hold(number * block + 10, number * block + 20):
            pass
        assert (bucket.proxy.count("GET"), bucket.proxy.body_bytes) == (i, i * block)
    for number in np.random.default_rng(5).permutation(count).tolist():
        begin = number * block + 100
        with file.hold(begin, begin + 2000):
            np.testing.assert_array_equal(file.bytes[begin : begin + 2000], data[begin:][:2000])
    # Each group of four in one request, but two for the group of which the third was there.
    assert bucket.proxy.count("GET") == len(first) + count // 4 + 1
    assert bucket.proxy.body_bytes == data.size


def test_what_the_cache_refuses_is_read_exactly(
    path: ObjectPath, bucket: S3Bucket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RECMAP_CACHE_SIZE", "2MB")
    file = FetchedFile(path)
    bucket.proxy.reset()
    random = np.random.default_rng(3)
    for _ in range(30):
        begins, ends = spans(random, 8)
        with file.hold(begins, ends):
            assert_held(file, begins, ends)
    assert file.current() is file


def test_a_changed_object_is_an_error(path: ObjectPath, bucket: S3Bucket) -> None:
    file = FetchedFile(path)
    with file.hold(0, 10):
        pass
    bucket.put("x.bin", DATA[::-1].tobytes())
    with pytest.raises(rm.ObjectChangedError), file.hold(3 << 20, (3 << 20) + 10):
        pass


def test_bytes_cannot_be_written(path: ObjectPath) -> None:
    file = FetchedFile(path)
    with file.hold(0, 10), pytest.raises(ValueError, match="read-only"):
        file.bytes[0] = 1


def test_a_held_span_waits_only_for_its_own_bytes(path: ObjectPath, bucket: S3Bucket) -> None:
    path.info  # noqa: B018  # found before
    file = FetchedFile(path)
    arrived, gate = threading.Event(), threading.Event()

    def wait() -> None:
        arrived.set()
        gate.wait(60)

    bucket.proxy.faults.append(Hold(wait))
    late = file.start(np.array([2 << 20]), np.array([(2 << 20) + 10]))
    assert arrived.wait(60)
    with file.hold(0, 10):
        assert_held(file, np.array([0]), np.array([10]))
    gate.set()
    with late:
        assert_held(file, np.array([2 << 20]), np.array([(2 << 20) + 10]))


def test_what_failed_is_fetched_again(path: ObjectPath, bucket: S3Bucket) -> None:
    path.info  # noqa: B018  # found before the trouble begins
    file = FetchedFile(path)
    bucket.proxy.faults.extend([Status(403)] * 100)
    for begin in (0, 1 << 20):  # also what is read ahead fails
        with pytest.raises(rm.StoreError), file.hold(begin, begin + (1 << 20)):
            pass
    bucket.proxy.faults.clear()
    for begin in range(0, SIZE, 1 << 20):
        end = min(begin + (1 << 20), SIZE)
        with file.hold(begin, end):
            assert_held(file, np.array([begin]), np.array([end]))


def test_gaps_take_no_more_memory_than_rows(
    path: ObjectPath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fetched_file, "_LEAST_WASTE", 0)
    begins = np.arange(0, SIZE - 100, 8 * PAGE)
    with FetchedFile(path).start(begins, begins + 100) as _:
        pass
    hold = FetchedFile(path).start(begins, begins + 100)
    assert hold.size <= 2 * len(begins) * PAGE
    hold.close()


def test_an_entry_that_was_evicted_and_made_again_is_not_trusted(
    path: ObjectPath, cached: bool
) -> None:
    if not cached:
        return
    file = FetchedFile(path)
    with file.hold(0, SIZE):
        pass
    file.drop_ahead()
    assert file._reader.close()
    # Another process needs the room, and then reads a few bytes of the same object.
    cache = default_cache()
    assert cache is not None
    (one,) = cache.folder.objects()
    cache.folder.drop(one.key)
    other = FetchedFile(path)
    with other.hold(0, 10):
        pass
    assert file.current() is file
    with file.hold(0, SIZE):
        assert_held(file, np.array([0]), np.array([SIZE]))
    local = file.current()
    assert local.whole
    np.testing.assert_array_equal(local.bytes, DATA)


def test_a_process_ends_while_a_server_does_not_answer(bucket: S3Bucket) -> None:
    bucket.put("x.bin", DATA.tobytes())
    bucket.proxy.faults.extend([None, *[Stall()] * 50])
    program = "\n".join(
        [
            "import numpy as np",
            "from recmap.store.fetched_file import FetchedFile",
            "from recmap.store.object_path import object_path",
            "from recmap.store.storage import Storage",
            f"path = object_path({bucket.url + '/x.bin'!r}, Storage({bucket.storage!r}))",
            "file = FetchedFile(path)",
            f"hold = file.start(np.array([0]), np.array([{SIZE}]))",
            "print('begun', flush=True)",
        ]
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=600, check=False
    )
    assert (done.returncode, done.stdout) == (0, "begun\n"), done.stderr
