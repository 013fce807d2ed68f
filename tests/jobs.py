"""Jobs for workers: functions that other processes can import."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Self

import numpy as np

import recmap as rm
from recmap.model.arguments import parse_workers
from recmap.model.schema import Batch
from recmap.pipeline.workers import open_pool
from recmap.pipeline.workers.pool import Pool, Request, Result

__all__ = [
    "BatchPool",
    "alive",
    "augment",
    "crash",
    "deadline",
    "dies_at_thirteen",
    "echo",
    "first_waits_for_second",
    "halves",
    "holding",
    "is_elsewhere",
    "is_even",
    "keep_first",
    "leave",
    "leave_with",
    "meanwhile",
    "negate",
    "pool_of",
    "process",
    "raise_corrupt",
    "raise_own",
    "refuses_the_parent",
    "requests",
    "same",
    "shared_memory",
    "shares",
    "sized",
    "stuck",
    "summed",
    "third_fails",
    "unlucky",
    "until",
    "who",
    "whose",
    "worker",
]


class _BatchWork:
    """A job that returns a single batch."""

    def __init__(self, work: Callable[[Request], Batch]) -> None:
        self._work = work

    def __call__(self, request: Request) -> Result:
        return Result([self._work(request)])


class BatchPool:
    """A pool that yields batches instead of results, for jobs that return a single batch."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool

    def run(self, requests: Iterable[Request], ahead: int) -> Iterator[tuple[Request, Batch]]:
        return map(_only_batch, self.pool.run(requests, ahead))

    def close(self) -> None:
        self.pool.close()

    def busy(self) -> list[float]:
        return self.pool.busy()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _only_batch(answer: tuple[Request, Result]) -> tuple[Request, Batch]:
    return answer[0], answer[1].batches.pop()


def pool_of(work: Callable[[Request], Batch], kind: str) -> BatchPool:
    """Open a pool as ``map`` does for ``workers=``; "serial" means no workers."""
    return BatchPool(open_pool(_BatchWork(work), parse_workers(0 if kind == "serial" else kind)))


def requests(count: int | None = None, batch: Batch | None = None) -> Iterator[Request]:
    """Yield requests 0, 1, 2, ...; forever if ``count`` is None."""
    number = 0
    while count is None or number < count:
        yield Request(number, 7, np.arange(number, number + 3), batch)
        number += 1


def until(done: Callable[[], bool], seconds: float = 60) -> None:
    """Wait until a condition is true. Raise TimeoutError if that takes too long."""
    end = time.monotonic() + seconds
    while not done():
        if time.monotonic() > end:
            raise TimeoutError("waited for nothing")
        time.sleep(0.005)


@contextmanager
def meanwhile(done: Callable[[], bool], then: Callable[[], object]) -> Iterator[None]:
    """Call ``then`` in another thread once ``done`` returns true."""

    def wait() -> None:
        until(done)
        then()

    thread = threading.Thread(target=wait)
    thread.start()
    try:
        yield
    finally:
        thread.join()


@contextmanager
def deadline(seconds: int = 120) -> Iterator[None]:
    """Fail if the block takes too long."""

    def late(*_: object) -> None:
        raise TimeoutError(f"took longer than {seconds} seconds")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def worker(number: int) -> int:
    """Return the id of the process that holds a request, or 0 if there is none."""
    try:
        with open(f"worker-{number}") as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def alive(process: int) -> bool:
    """Return whether a process is running. A zombie is not."""
    try:
        with open(f"/proc/{process}/stat") as stat:
            return stat.read().rpartition(")")[2].split()[0] not in "ZX"
    except (FileNotFoundError, ProcessLookupError):
        return False


def shared_memory() -> set[str]:
    """Return the names of the files in shared memory.

    Locks of multiprocessing, tensors of PyTorch and folders of temporary files are left out,
    because other programs may create some in the meantime.
    """
    with os.scandir("/dev/shm") as found:
        return {
            each.name
            for each in found
            if not each.name.startswith(("sem.", "sm_segment.", "torch_")) and not each.is_dir()
        }


def echo(request: Request) -> Batch:
    """Return the request itself."""
    if request.batch is not None:
        return request.batch
    return {
        "number": np.full(len(request.positions), request.number),
        "epoch": np.full(len(request.positions), request.epoch),
        "positions": request.positions,
    }


def shares(_: Request) -> Batch:
    """Return the ids of the process and thread that ran this."""
    return {"process": np.array([os.getpid()]), "thread": np.array([threading.get_ident()])}


def process(_: Request) -> Batch:
    """Return the id of the process that ran this."""
    return {"process": np.array([os.getpid()])}


def first_waits_for_second(request: Request) -> Batch:
    """Finish request 0 only after request 1 has started."""
    if request.number == 0:
        until(lambda: os.path.exists("second"))
    if request.number == 1:
        open("second", "w").close()
    return echo(request)


def third_fails(request: Request) -> Batch:
    if request.number == 3:
        raise ValueError("three is too many")  # the user's own line
    return echo(request)


def sized(request: Request) -> Batch:
    """Return as many rows as the request's first position, filled with its number."""
    return {"x": np.full((int(request.positions[0]), 4), request.number)}


def negate(request: Request) -> Batch:
    """Negate the given column in place."""
    assert request.batch is not None
    x = request.batch["x"]
    assert isinstance(x, np.ndarray)
    np.negative(x, out=x)
    return request.batch


_kept: list[Any] = []


def keep_first(request: Request) -> Batch:
    """Return the column of the first request, every time."""
    assert request.batch is not None
    _kept.append(request.batch["x"])
    return {"x": _kept[0]}


class OwnError(rm.FieldMismatchError):
    """A user's error class, derived from one of recmap's."""


def raise_corrupt(_: Request) -> Batch:
    error = rm.CorruptRecordError("x.tfrecord: broken", file="x.tfrecord", record=4, byte=88)
    error.add_note("row 4 of the batch")
    raise error


def raise_own(_: Request) -> Batch:
    (record,) = np.array([5])  # a NumPy integer, as an index may be
    raise OwnError("row 5: not a number", record=record, field="x")


def crash(_: Request) -> Batch:
    """Cause a segmentation fault."""
    faulthandler.disable()  # pytest enables it, and it would print the crash
    ctypes.string_at(0)
    return {}


def leave(_: Request) -> Batch:
    os._exit(3)


def leave_with(code: int, _: Request) -> Batch:
    os._exit(code)


def holding(request: Request) -> Batch:
    """Write the process id to a file, and never return."""
    with open(f"worker-{request.number}.part", "w") as file:
        file.write(str(os.getpid()))
    os.replace(f"worker-{request.number}.part", f"worker-{request.number}")
    until(lambda: False, 600)
    return {}


def same(a: Any, b: Any) -> None:
    """Assert that columns have the same dtypes, shapes and values."""
    assert type(a) is type(b)
    if isinstance(a, rm.Ragged):
        assert np.array_equal(a.lengths, b.lengths)
        same(a.flat, b.flat)
    else:
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        assert a.tobytes() == b.tobytes() if a.dtype.names is None else (a == b).all()


def augment(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Add random numbers to a row."""
    return {**row, "noise": rng.random(4), "tokens": np.repeat(row["x"], int(row["x"]) % 4)}


def summed(batch: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """Add random numbers to a batch."""
    return {**batch, "sum": batch["noise"].sum(axis=1), "together": rng.random(len(batch["x"]))}


def is_even(row: dict[str, Any]) -> bool:
    return bool(row["x"] % 2 == 0)


def unlucky(row: dict[str, Any]) -> dict[str, Any]:
    if row["x"] == 13:
        raise ValueError("thirteen")  # the user's own line
    return row


def dies_at_thirteen(row: dict[str, Any]) -> dict[str, Any]:
    if row["x"] == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return row


def who(row: dict[str, Any]) -> dict[str, Any]:
    """Add the id of the process that got the row."""
    return {**row, "process": os.getpid()}


def whose(batch: dict[str, Any]) -> dict[str, Any]:
    """Add the id of the process that got the batch."""
    return {**batch, "by": np.full(len(batch["x"]), os.getpid())}


def is_elsewhere(row: dict[str, Any]) -> bool:
    return bool(row["process"] != int(os.environ["RECMAP_TEST_PARENT"]))


def halves(batch: dict[str, Any]) -> dict[str, Any]:
    return {"x": batch["x"][::2], "half": batch["x"][::2] / 2}


def refuses_the_parent(row: dict[str, Any]) -> dict[str, Any]:
    if os.getpid() == int(os.environ["RECMAP_TEST_PARENT"]):
        raise AssertionError("called in the parent")
    return {"x": row["x"], "y": row["x"] * 0.5}


def stuck(request: Request) -> Batch:
    """Answer the first request, and hang on the next."""
    if request.number:
        until(lambda: os.path.exists("go"), 600)
    return {"x": request.positions}
