"""Shared memory of worker processes: never overwritten while in use, never left behind."""

from __future__ import annotations

import gc
import os
import resource
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.model.schema import Batch
from recmap.pipeline.workers.pool import Request
from tests import jobs
from tests.frameworks import jax, torch
from tests.jobs import pool_of
from tests.processes import WITH_WORKERS

pytestmark = [
    *WITH_WORKERS,
    pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="looks into /proc"),
]


def run(
    pool: jobs.BatchPool, requests: Iterable[Request], ahead: int
) -> Iterator[tuple[Request, dict[str, Any]]]:
    return pool.run(requests, ahead)


def sizes(*rows: int) -> Iterator[Request]:
    for number, row in enumerate(rows):
        yield Request(number, 0, np.array([row]))


def slots() -> int:
    """Count the slots this process has mapped."""
    with open("/proc/self/maps") as maps:
        return sum("recmap-slot" in line for line in maps)


def slots_of_others() -> int:
    """Count the slots of batches that other tests or a framework still hold."""
    gc.collect()
    return slots()


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def address(column: Any) -> int:
    return int(column.ctypes.data)


def test_columns_are_aligned_and_writable() -> None:
    batch: Batch = {
        "a": np.arange(3, dtype=np.int8),
        "b": np.arange(5.0),
        "c": rm.Ragged(np.arange(2), [0, 2]),
    }
    with pool_of(jobs.echo, "fork:2") as pool:
        ((_, result),) = run(pool, jobs.requests(1, batch), ahead=0)
    a, b, c = result.values()
    for array in (a, b, c.values, c.offsets):
        assert isinstance(array, np.ndarray)
        assert array.flags.writeable
        assert array.flags.c_contiguous
        assert address(array) % 64 == 0
    b[0] = 9
    assert b[0] == 9


# Frameworks are imported when these are called.
def tensor(x: Any) -> Any:
    return torch.from_numpy(x)


def tensor_by_dlpack(x: Any) -> Any:
    return torch.from_dlpack(x)


def array_of_jax(x: Any) -> Any:
    return jax.numpy.asarray(x)


@pytest.mark.parametrize(
    "keep",
    [
        lambda x: x,
        lambda x: x.reshape(-1)[4:8],
        lambda x: x.view(np.uint8).reshape(4, -1)[1:, ::2].T,
        memoryview,
        lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, 0)[5:6],
        tensor,
        lambda x: torch.from_numpy(x)[3:4].view(-1),
        tensor_by_dlpack,
        lambda x: np.from_dlpack(torch.from_dlpack(x)),
        array_of_jax,
    ],
)
def test_every_view_of_a_batch_keeps_its_memory(keep: Callable[[Any], Any]) -> None:
    with pool_of(jobs.sized, "fork:2") as pool:
        kept = []
        for request, batch in run(pool, sizes(*[100] * 60), ahead=4):
            if request.number % 10 == 3:
                kept.append((request.number, keep(batch["x"])))
            del batch
            gc.collect(0)
        for number, x in kept:
            values = np.frombuffer(np.ascontiguousarray(x).tobytes(), np.uint8)
            assert set(values.tolist()) <= {number, 0}
            assert values.max() == number


def test_memory_is_reused_when_no_view_is_left() -> None:
    others = slots_of_others()
    with pool_of(jobs.sized, "fork:2") as pool:
        seen = {address(batch["x"]) for _, batch in run(pool, sizes(*[1000] * 200), ahead=4)}
        assert len(seen) <= 20
        assert slots() - others <= 30


def test_memory_grows_with_the_batches() -> None:
    rows = [1, 10, 10_000, 3, 200_000, 0, 50_000, 1_000_000, 7]
    with pool_of(jobs.sized, "fork:2") as pool:
        for request, batch in run(pool, sizes(*rows, *rows), ahead=3):
            assert batch["x"].shape == (rows[request.number % len(rows)], 4)
            assert (batch["x"] == request.number).all()


def test_a_consumer_may_keep_every_batch() -> None:
    before, others = descriptors(), slots_of_others()
    with pool_of(jobs.sized, "fork:2") as pool:
        kept = list(run(pool, sizes(*[100] * 600), ahead=8))
        assert all((batch["x"] == request.number).all() for request, batch in kept)
        # Many are in shared memory, but not enough to run out of descriptors.
        assert 64 < slots() - others < 200
        assert descriptors() - before < 200
        # Their memory is returned when they are freed, and the worker that made them works again.
        kept.clear()
        for _ in run(pool, sizes(*[100] * 600), ahead=0):
            if slots() - others < 20:
                break
        assert slots() - others < 20


def test_batches_outlive_their_pool() -> None:
    others = slots_of_others()
    with pool_of(jobs.sized, "fork:2") as pool:
        kept = [batch["x"] for _, batch in run(pool, sizes(*[100] * 5), ahead=8)]
    del pool
    gc.collect()
    assert [x[99, 3] for x in kept] == [0, 1, 2, 3, 4]
    assert slots() - others == 5
    del kept[:3]
    assert slots() - others == 2


@pytest.mark.parametrize("kind", ["fork:2", "spawn:2"])
@pytest.mark.parametrize("end", ["closed", "dropped", "left", "failed", "killed"])
def test_nothing_is_left_behind(kind: str, end: str) -> None:
    # The first spawned process starts a resource tracker, which stays.
    pool_of(jobs.echo, kind).close()
    gc.collect()
    files, mapped, shared = descriptors(), slots(), jobs.shared_memory()

    def use() -> None:
        work = {"failed": jobs.third_fails, "killed": jobs.leave}.get(end, jobs.echo)
        pool = pool_of(work, kind)
        results = run(pool, jobs.requests(50, {"x": np.arange(1000)}), ahead=5)
        if end in {"failed", "killed"}:
            with pytest.raises((rm.MapError, rm.WorkerDiedError)):
                list(results)
        elif end == "left":
            next(results)
        else:
            list(results)
        if end == "closed":
            pool.close()

    use()
    gc.collect()
    assert descriptors() <= files  # connections of earlier tests may be closed meanwhile
    assert slots() <= mapped
    assert jobs.shared_memory() <= shared


def test_too_many_open_files_give_a_clear_error() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with pool_of(jobs.sized, "fork:2") as pool:
        list(run(pool, sizes(100, 100), ahead=0))
        resource.setrlimit(resource.RLIMIT_NOFILE, (8, hard))
        try:
            with pytest.raises(rm.OptionError, match="too many files .* ulimit -n"):
                list(run(pool, sizes(*[100] * 100), ahead=4))
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_work_may_change_what_it_was_given() -> None:
    x = np.arange(100)
    with pool_of(jobs.negate, "fork:2") as pool:
        for _, batch in run(pool, jobs.requests(20, {"x": x}), ahead=3):
            assert np.array_equal(batch["x"], -np.arange(100))
    assert np.array_equal(x, np.arange(100))


def test_work_may_keep_what_it_was_given() -> None:
    with pool_of(jobs.keep_first, "fork:1") as pool:
        batches = (Request(i, 0, np.empty(0, np.int64), {"x": np.full(9, i)}) for i in range(50))
        for _, batch in run(pool, batches, ahead=3):
            assert batch["x"].tolist() == [0] * 9


def test_workers_work_without_memfd_create(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "memfd_create")
    with pool_of(jobs.echo, "fork:2") as pool:
        x = np.arange(50_000)
        for _, batch in run(pool, jobs.requests(20, {"x": x}), ahead=3):
            assert np.array_equal(batch["x"], x)
    assert os.listdir() == []
