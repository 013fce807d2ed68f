"""Machines with many CPUs, and systems that refuse to start threads."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pytest

import recmap as rm
from recmap.conversion.budget import Budget
from recmap.machine.cpus import ThreadLimit, pool_size, thread_count, within
from recmap.machine.threads import Threads, start_thread
from tests import jobs
from tests.limited import MB, peak_of, run_limited

ROWS = 60_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write numbers that compress badly, to files that threads inflate."""
    folder = tmp_path_factory.mktemp("threads")
    x = np.random.default_rng(0).random((ROWS, 64), np.float32)
    rm.from_arrays({"x": x}).save(folder / "x.tfrecord.gz", options={"durable": False})
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=x, chunks=(500, 64), compression="gzip")
    return folder


def pretend_many_cpus(monkeypatch: pytest.MonkeyPatch, count: int = 64) -> None:
    monkeypatch.setenv("RECMAP_THREADS", str(count))


def test_the_environment_sets_the_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RECMAP_THREADS", "5")
    assert thread_count() == pool_size() == 5
    for wrong in ("0", "many", "-1", "2.5"):
        monkeypatch.setenv("RECMAP_THREADS", wrong)
        with pytest.raises(rm.OptionError, match=r"RECMAP_THREADS=.*a number of threads"):
            thread_count()


def test_a_small_memory_budget_uses_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend_many_cpus(monkeypatch)
    small = Budget(28 * 10**6, 1, 1, 8, "")
    large = Budget(10**9, 8, 1, 8, "")
    with within(small.thread_limit):
        assert (thread_count(), pool_size()) == (2, 2)
        seen: list[int] = []
        thread = start_thread(lambda: seen.append(thread_count()), name="other")
        assert thread is not None
        thread.join()
        assert seen == [2]
    with within(large.thread_limit):
        assert (thread_count(), pool_size()) == (10, 64)
    assert thread_count() == 64
    assert Budget(10**6, 3, 1, 8, "").thread_limit == ThreadLimit(1, 3)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.tfrecord.gz", "x.h5"])
@pytest.mark.parametrize("shards", [1, 16])
def test_many_cpus_do_not_exceed_the_budget(
    folder: Path, name: str, shards: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_many_cpus(monkeypatch)
    path = str(folder / name)
    statement = (
        f"rm.convert({path!r}, 'out/', memory='28MB', shards={shards}, verify='full', "
        "compression='gzip', options={'durable': False})"
    )
    assert peak_of(statement) < 28 * 10**6


BODIES = {
    "convert": """
report = rm.convert({path!r}, "y.tfrecord.gz", memory="28MB", shards=8)
print(report.rows)""",
    "read": "print(len(rm.open({path!r})[:]['x']))",
    "pipeline": """
ds = rm.open({path!r}).map(lambda batch: batch, batched=True, workers="threads:64")
print(sum(len(batch["x"]) for batch in ds.batch(1000).prefetch(memory="10MB")))""",
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["x.tfrecord.gz", "x.h5"])
@pytest.mark.parametrize("what", BODIES)
def test_a_memory_limit_without_room_for_all_threads_is_respected(
    folder: Path, name: str, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend_many_cpus(monkeypatch)
    # The rows take 15 MB, but 64 stacks of 8 MB would take 512 MB.
    assert run_limited(BODIES[what].format(path=str(folder / name)), 200 * MB) == str(ROWS)


@pytest.fixture
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    def refused(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        yield


@pytest.mark.slow
@pytest.mark.usefixtures("_no_threads")
def test_without_threads_the_caller_does_the_work(folder: Path) -> None:
    rm.convert(
        folder / "x.h5", "y.tfrecord.gz", shards=2, verify="full", options={"durable": False}
    )
    found = rm.open("y-*.tfrecord.gz")
    assert np.array_equal(found[:]["x"], rm.open(folder / "x.h5")[:]["x"])
    chain = found.map(lambda row: row, workers="threads:2").batch(1000)
    assert sum(len(batch["x"]) for batch in chain) == ROWS
    assert rm.verify("y-*.tfrecord.gz").ok
    assert rm.verify("y-*.tfrecord.gz").records == ROWS


@pytest.mark.usefixtures("_no_threads")
def test_an_error_in_work_done_by_the_caller_is_raised_with_the_result() -> None:
    def fails() -> None:
        raise ValueError("no good")

    with Threads(2) as pool:
        future = pool.submit(fails)
        assert isinstance(future.exception(), ValueError)
        assert list(pool.map(abs, [-1, -2])) == [1, 2]
    with pytest.raises(rm.MapError, match="three is too many"):
        list(jobs.pool_of(jobs.third_fails, "threads:2").run(jobs.requests(9), ahead=3))


def test_a_pool_goes_on_if_its_next_thread_cannot_start(monkeypatch: pytest.MonkeyPatch) -> None:
    start, count = threading.Thread.start, 0

    def one_only(self: threading.Thread) -> None:
        nonlocal count
        count += 1
        if count > 1:
            raise RuntimeError("can't start new thread")
        start(self)

    monkeypatch.setattr(threading.Thread, "start", one_only)
    with Threads(8) as pool:
        futures: list[Any] = [pool.submit(abs, -i) for i in range(100)]
        assert [future.result() for future in futures] == list(range(100))
    assert count > 1


def test_work_that_waits_can_be_cancelled() -> None:
    begun, go_on = threading.Event(), threading.Event()

    def wait() -> None:
        begun.set()
        go_on.wait()

    pool = Threads(1)
    first, second, third = (pool.submit(each) for each in (wait, int, int))
    begun.wait()
    assert third.cancel()
    pool.shutdown(wait=False, cancel_futures=True)
    assert second.cancelled()
    go_on.set()
    assert first.result() is None
