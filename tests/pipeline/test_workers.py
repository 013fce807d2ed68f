"""Pools of workers: their results, and the order of these."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator

import ml_dtypes
import numpy as np
import pytest

import recmap as rm
from recmap.model.arguments import Workers, parse_workers
from recmap.model.schema import Batch
from recmap.pipeline.workers.pool import Request, SerialPool
from tests import jobs
from tests.jobs import BatchPool, pool_of
from tests.processes import WITH_WORKERS

pytestmark = WITH_WORKERS

KINDS = ["serial", "threads:3", "fork:3", "spawn:2"]
POOLS = KINDS[1:]


@pytest.fixture(scope="module", params=KINDS)
def echo(request: pytest.FixtureRequest) -> Iterator[BatchPool]:
    """Return a pool whose workers answer with what they are given."""
    with pool_of(jobs.echo, request.param) as pool:
        yield pool


def test_workers_are_parsed() -> None:
    assert parse_workers(None) == parse_workers(0) == Workers("serial", 0, None)
    assert parse_workers("threads:4") == Workers("threads", 4, None)
    assert parse_workers("fork:2") == Workers("processes", 2, "fork")
    assert parse_workers("spawn:2") == Workers("processes", 2, "spawn")
    assert parse_workers(4) == parse_workers("processes:4")
    assert parse_workers(4).kind == "processes"
    assert parse_workers(4, number="threads") == parse_workers("threads:4")
    assert parse_workers("processes:4", number="threads") == parse_workers(4)


@pytest.mark.parametrize(
    "workers", [-1, True, False, 2.0, "4", "threads", "threads:0", "fork:-1", "forkserver:2", ""]
)
def test_invalid_workers_are_refused(workers: object) -> None:
    with pytest.raises(rm.OptionError, match='use a number of processes .* or "threads:4"'):
        parse_workers(workers)


def test_results_come_in_order_with_their_requests(echo: BatchPool) -> None:
    results = list(echo.run(jobs.requests(50), ahead=5))
    for number, (request, batch) in enumerate(results):
        assert request.number == number
        assert batch["number"].tolist() == [number] * 3
        assert batch["epoch"].tolist() == [7] * 3
        assert batch["positions"].tolist() == [number, number + 1, number + 2]


@pytest.mark.parametrize("kind", POOLS)
def test_results_come_in_order_when_the_first_takes_longest(kind: str) -> None:
    with pool_of(jobs.first_waits_for_second, kind) as pool:
        results = pool.run(jobs.requests(6), ahead=3)
        assert [int(batch["number"][0]) for _, batch in results] == list(range(6))


@pytest.mark.parametrize("kind", POOLS)
def test_every_worker_works(kind: str) -> None:
    with pool_of(jobs.shares, kind) as pool:
        seen = set()
        for _, batch in pool.run(jobs.requests(), ahead=20):
            seen.add((int(batch["process"][0]), int(batch["thread"][0])))
            if len(seen) == int(kind[-1]):
                break
    assert (os.getpid() in {process for process, _ in seen}) == kind.startswith("threads")


@pytest.mark.parametrize("ahead", [0, 1, 7])
def test_no_more_requests_are_taken_than_asked_for(echo: BatchPool, ahead: int) -> None:
    taken = 0

    def endless() -> Iterator[Request]:
        nonlocal taken
        for request in jobs.requests():
            assert threading.current_thread() is threading.main_thread()
            taken += 1
            yield request

    results = echo.run(endless(), ahead)
    assert taken == 0
    for given in range(1, 30):
        next(results)
        assert taken == given + (0 if isinstance(echo.pool, SerialPool) else ahead)


def test_without_requests_there_are_no_results(echo: BatchPool) -> None:
    assert list(echo.run([], ahead=4)) == []
    empty = Request(0, 0, np.empty(0, np.int64))
    assert [len(b["positions"]) for _, b in echo.run([empty], ahead=4)] == [0]


@pytest.mark.parametrize("kind", KINDS)
def test_an_error_in_the_requests_comes_after_the_earlier_results(kind: str) -> None:
    def failing() -> Iterator[Request]:
        yield from jobs.requests(5)
        raise rm.CorruptRecordError("row 5 is broken")

    numbers = []
    with pool_of(jobs.echo, kind) as pool:
        with pytest.raises(rm.CorruptRecordError, match="row 5 is broken"):
            for request, _ in pool.run(failing(), ahead=3):
                numbers.append(request.number)
    assert numbers == [0, 1, 2, 3, 4]


RECORD = np.dtype([("a", "<i2"), ("b", ">f8", (2, 3)), ("c", [("d", "S3"), ("e", "?")])])
COLUMNS: Batch = {
    "float32": np.random.default_rng(0).random((5, 3, 2), np.float32),
    "fortran": np.asfortranarray(np.arange(20.0).reshape(5, 4)),
    "strided": np.arange(40)[::-8],
    "big": np.arange(5, dtype=">i4"),
    "bool": np.array([True, False, True, True, False]),
    "complex": np.arange(5) * 1j,
    "half": np.arange(5, dtype=np.float16),
    "bfloat16": np.arange(5).astype(ml_dtypes.bfloat16),
    "int4": np.arange(5).astype(ml_dtypes.int4),
    "days": np.array(["2024-02-29", "NaT", "1970-01-01", "1900-01-01", "2100-12-31"], "M8[D]"),
    "seconds": np.arange(5).astype(">m8[25s]"),
    "strings": np.array([b"a", b"", b"ccc", b"\0\0", b"e"]),
    "text": np.array(["ä", "b", "", "dd", "e"]),
    "record": np.array([(i, np.full((2, 3), i / 2), (b"ab", i % 2)) for i in range(5)], RECORD),
    "aligned": np.zeros(5, np.dtype([("a", "u1"), ("b", "f8")], align=True)),
    "turned": np.ones(5, [("a", "i4"), ("b", "i8")])[["b", "a"]],
    "void": np.array([b"12", b"34", b"56", b"78", b"90"]).view("V2"),
    "none": np.empty((5, 0, 3), np.int8),
    "ragged": rm.Ragged.from_rows([[1, 2], [], [3], [], [4, 5, 6]]),
    "part": rm.Ragged.from_rows([[9.0] * 1000, [1.0], [], [2.0, 3.0], [4.0], [5.0]])[1:],
    "boxes": rm.Ragged(np.arange(24, dtype=">f4").reshape(6, 4), [0, 2, 2, 3, 3, 6]),
    "bytes": rm.Ragged.from_bytes([b"one", b"", b"three\0", b"4", b""]),
    "words": rm.Ragged(rm.Ragged.from_bytes([b"a", b"", b"bc"]), [0, 1, 1, 3, 3, 3]),
    "": np.arange(5, dtype=np.uint64),
    "ünïcode \ud800": np.arange(5, dtype=np.int8),
}


def test_every_kind_of_column_survives_in_both_directions(echo: BatchPool) -> None:
    for _, batch in echo.run(jobs.requests(3, COLUMNS), ahead=2):
        assert list(batch) == list(COLUMNS)
        for name, column in COLUMNS.items():
            jobs.same(batch[name], column)


@pytest.mark.parametrize("batch", [{}, {name: column[:0] for name, column in COLUMNS.items()}])
def test_batches_without_rows_or_columns_arrive(echo: BatchPool, batch: Batch) -> None:
    ((_, result),) = echo.run(jobs.requests(1, batch), ahead=2)
    assert list(result) == list(batch)
    for name, column in batch.items():
        jobs.same(result[name], column)


@pytest.mark.parametrize("column", [np.array([1, "a"], object), np.array(["a"], "T"), [1, 2], 3])
def test_columns_that_cannot_be_shared_are_refused(column: object) -> None:
    def work(_: Request) -> Batch:
        return {"x": column}  # type: ignore[dict-item]

    with pool_of(work, "fork:2") as pool:
        with pytest.raises(rm.ColumnError, match="column 'x': a column"):
            list(pool.run(jobs.requests(1), ahead=0))


def test_functions_that_cannot_be_pickled_work_with_fork_only() -> None:
    factor = 3
    with pool_of(lambda request: {"x": request.positions * factor}, "fork:2") as pool:
        assert [b["x"].tolist() for _, b in pool.run(jobs.requests(1), ahead=0)] == [[0, 3, 6]]
    with pytest.raises(rm.OptionError, match='cannot be pickled.*"fork:2" or "threads:2"'):
        pool_of(lambda request: {"x": request.positions * factor}, "spawn:2")


def test_a_pool_can_be_used_again_after_a_run_is_abandoned(echo: BatchPool) -> None:
    for _ in range(5):
        for request, _ in echo.run(jobs.requests(), ahead=9):
            if request.number == 4:
                break
    one, two = (echo.run(jobs.requests(9), ahead=2) for _ in range(2))
    for (a, _), (b, _) in zip(one, two, strict=True):
        assert a.number == b.number


@pytest.mark.parametrize("kind", KINDS)
def test_a_closed_pool_says_so(kind: str) -> None:
    pool = pool_of(jobs.echo, kind)
    results = pool.run(jobs.requests(), ahead=3)
    next(results)
    pool.close()
    pool.close()
    for run in (results, pool.run(jobs.requests(), ahead=3)):
        with pytest.raises(rm.OptionError, match="pool of workers is closed"):
            next(run)


@pytest.mark.parametrize("kind", ["fork:2", "spawn:2"])
def test_another_thread_may_close_while_the_consumer_waits(kind: str) -> None:
    with (
        pool_of(jobs.holding, kind) as pool,
        jobs.meanwhile(lambda: jobs.worker(0) > 0, pool.close),
        pytest.raises(rm.OptionError, match="closed"),
    ):
        next(pool.run(jobs.requests(), ahead=3))


@pytest.mark.slow
def test_another_thread_may_close_while_the_consumer_waits_for_a_thread() -> None:
    started, go = threading.Event(), threading.Event()

    def work(_: Request) -> Batch:
        started.set()
        go.wait()
        return {}

    with pool_of(work, "threads:2") as pool, jobs.meanwhile(started.is_set, pool.close):
        with pytest.raises(rm.OptionError, match="closed"):
            next(pool.run(jobs.requests(), ahead=3))
        go.set()


@pytest.mark.parametrize("kind", KINDS)
def test_busy_seconds_grow_with_the_work(kind: str) -> None:
    with pool_of(jobs.echo, kind) as pool:
        assert sum(pool.busy()) == 0
        list(pool.run(jobs.requests(20), ahead=3))
        before = pool.busy()
        assert len(before) == (1 if kind == "serial" else int(kind[-1]))
        assert sum(before) > 0
        list(pool.run(jobs.requests(20), ahead=3))
        assert sum(pool.busy()) > sum(before)


def test_threads_end_with_their_pool() -> None:
    before = set(threading.enumerate())
    pool = pool_of(jobs.echo, "threads:3")
    next(pool.run(jobs.requests(), ahead=9))
    started = set(threading.enumerate()) - before
    workers = [each for each in started if each.name.startswith("recmap-worker-")]
    assert len(workers) == 3
    del pool
    jobs.until(lambda: not any(each.is_alive() for each in workers))


def _in_daemon() -> None:
    try:
        pool_of(jobs.echo, "fork:2")
    except rm.OptionError as e:
        os._exit(5 if "is a daemon" in str(e) and "threads:N" in str(e) else 1)


def test_a_daemon_may_not_start_processes() -> None:
    daemon = multiprocessing.get_context("fork").Process(target=_in_daemon, daemon=True)
    daemon.start()
    daemon.join()
    assert daemon.exitcode == 5


@pytest.mark.parametrize("kind", ["threads:2", "fork:2"])
def test_a_forked_process_leaves_the_pool_alone(kind: str) -> None:
    with pool_of(jobs.echo, kind) as pool:
        results = pool.run(jobs.requests(9), ahead=2)
        next(results)
        child = os.fork()
        if child == 0:
            try:
                next(results)
            except rm.OptionError as e:
                pool.close()
                os._exit(0 if "forked" in str(e) else 1)
            os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert [request.number for request, _ in results] == list(range(1, 9))
