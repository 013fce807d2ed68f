"""Pools take requests and return results in the same order.

The work is done by the caller (``SerialPool``), by threads (``ThreadPool``), or by processes
(processes.py).
"""

from __future__ import annotations

import os
import queue
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import CancelledError, Future, wait
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError, RecmapError
from recmap.machine.cpus import work_beside
from recmap.machine.threads import start_thread
from recmap.model.fetching import FetchCounts
from recmap.model.schema import Batch
from recmap.pipeline.workers.errors import StallTimer, map_error, thread_stack

# A request is the only item of a list, and the thread that works on it empties the list.
_Queue: TypeAlias = "queue.SimpleQueue[tuple[list[Request], Answer] | None]"
# Seconds between checks whether another thread has closed the pool.
_WATCH = 1.0
# Seconds a closing pool waits for threads in the middle of a request. A thread cannot be
# killed, and one that runs native code while the interpreter exits may crash.
_THREAD_GRACE = 1.0


class UnpicklableError(OptionError):
    """Raised for work that cannot be pickled and so cannot reach a process that was not forked."""


@dataclass(frozen=True)
class Request:
    """The positions of the rows to work on, and their columns if they have been read.

    ``ends`` says where batches of different sizes end. Requests for processes have one batch.
    """

    number: int
    epoch: int
    positions: npt.NDArray[np.int64]
    batch: Batch | None = None
    ends: Sequence[int] | None = None

    def batch_ends(self, size: int) -> Sequence[int]:
        """Return where each batch ends. Unless ``ends`` says it, they have ``size`` rows."""
        return self.ends or range(size, size + max(1, len(self.positions)), size)


@dataclass(frozen=True)
class Result:
    """The result of a request.

    ``batches`` is empty if they were too large to make together and have to be made one by
    one. Taking a batch removes it from the list. ``kept`` says which rows were kept, None if
    all were. ``reached`` says which rows reached each ``take`` or ``skip`` between
    transforms. ``seconds`` is the time each stage took. ``fetched`` is what another process
    has fetched from stores since its last result.
    """

    batches: list[Batch]
    kept: npt.NDArray[np.int64] | None = None
    reached: Sequence[npt.NDArray[np.int64]] = ()
    seconds: Sequence[float] = ()
    fetched: FetchCounts | None = None


Work: TypeAlias = Callable[[Request], Result]


class SerialPool:
    """A pool without workers: the caller does the work when it asks for a result."""

    def __init__(self, work: Work) -> None:
        self._work = work
        self._busy = 0.0
        self._closed = False

    def run(self, requests: Iterable[Request], ahead: int) -> Iterator[tuple[Request, Result]]:
        del ahead
        # A generator would keep the last request and what was read for it.
        return map(self._answer, requests)

    def _answer(self, request: Request) -> tuple[Request, Result]:
        if self._closed:
            raise _closed_error()
        begin = time.perf_counter()
        try:
            return request, self._work(request)
        except RecmapError:
            self.close()
            raise
        except Exception as e:
            self.close()
            raise map_error(e) from e
        finally:
            self._busy += time.perf_counter() - begin

    def close(self) -> None:
        self._closed = True

    def busy(self) -> list[float]:
        return [self._busy]


# The result is the only item of a list. After popping it, the caller holds the only reference,
# even if the thread that made it has not reached its next line yet.
Answer: TypeAlias = "Future[list[Result]]"
_Pending: TypeAlias = tuple[Request, Answer]


class OrderedPool(ABC):
    """Workers that share the requests of a run, and may finish in any order."""

    def __init__(self, end: Callable[..., None], *arguments: Any) -> None:
        """Call ``end(*arguments)`` once: in close(), on garbage collection, or at exit."""
        self._process = os.getpid()
        self._ending = weakref.finalize(self, end, *arguments)

    @abstractmethod
    def _submit(self, request: Request) -> Answer:
        """Queue a request."""

    @abstractmethod
    def _wait(self, answer: Answer) -> None:
        """Return once the answer is ready; raise if the pool is closed first."""

    @abstractmethod
    def busy(self) -> list[float]:
        """Return the seconds each worker has worked so far, excluding the time it waited."""

    def run(self, requests: Iterable[Request], ahead: int) -> Iterator[tuple[Request, Result]]:
        """Yield each request with its result, in the order of the requests.

        At most ``ahead`` requests beyond the current one are taken, in the caller's thread.
        An error closes the pool.
        """
        intake = Intake(requests)
        pending: deque[_Pending] = deque()
        try:
            while self._fill(pending, intake, ahead):
                # A variable for the result would keep the batch alive until the next one is
                # asked for.
                yield self._finish(pending.popleft())
            intake.raise_error()
        except GeneratorExit:
            raise
        except BaseException:
            self.close()
            raise
        finally:
            for _, answer in pending:
                answer.cancel()

    def close(self) -> None:
        """End the workers at once. Calling it again does nothing."""
        self._ending()

    def _fill(self, pending: deque[_Pending], intake: Intake, ahead: int) -> bool:
        self._check_open()
        while len(pending) <= ahead and (request := intake.next()) is not None:
            pending.append((request, self._submit(request)))
        return bool(pending)

    def _finish(self, pending: _Pending) -> tuple[Request, Result]:
        request, answer = pending
        # Another thread may close the pool at any moment.
        self._check_open()
        try:
            self._wait(answer)
            return request, answer.result().pop()
        except CancelledError:
            self._check_open()
            raise

    def _check_open(self) -> None:
        if not self._ending.alive:
            raise _closed_error()
        if os.getpid() != self._process:
            raise OptionError(
                "the pool of workers was opened before this process was forked; open another one"
            )


#: Works on the requests of a run; ``OrderedPool`` says what each method does.
Pool: TypeAlias = SerialPool | OrderedPool


def _closed_error() -> OptionError:
    """Return the error for using a closed pool."""
    return OptionError("the pool of workers is closed; open another one")


class Intake:
    """Requests, one by one.

    If their source fails, the error is raised after the results of the earlier requests, so
    that the outcome does not depend on the number of workers.
    """

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = iter(requests)
        self._ended = False
        self._error: Exception | None = None

    def next(self) -> Request | None:
        """Return the next request; None at the end."""
        if self._ended:
            return None
        try:
            return next(self._requests)
        except StopIteration:
            self._ended = True
        except Exception as e:
            self._ended, self._error = True, e
        return None

    def raise_error(self) -> None:
        """Raise the error at which the requests ended, once."""
        error, self._error = self._error, None
        if error is not None:
            raise error


class ThreadPool(OrderedPool):
    """Threads that take requests from one queue."""

    def __init__(self, work: Work, count: int) -> None:
        self._queue: _Queue = queue.SimpleQueue()
        self._busy = [0.0] * count
        self._work = work
        self._threads: list[threading.Thread] = []
        self._advice = f"If the function hangs, try workers={count}, which uses processes"
        super().__init__(_end_threads, self._queue, self._threads, os.getpid())
        for index in range(count):
            name = f"recmap-worker-{index}"
            thread = start_thread(_serve, work, self._queue, self._busy, index, name=name)
            if thread is None:
                break  # the threads started so far do the work, or the caller if there are none
            self._threads.append(thread)

    def busy(self) -> list[float]:
        return list(self._busy)

    def _submit(self, request: Request) -> Answer:
        answer: Answer = Future()
        self._queue.put(([request], answer))
        return answer

    def _wait(self, answer: Answer) -> None:
        if not self._threads:
            _serve_queued(self._work, self._queue, self._busy)
        if answer.done():
            return
        timer, before = StallTimer(self._where, self._advice), list(self._busy)
        while not answer.done():
            wait([answer], _WATCH)
            self._check_open()
            if self._busy != before:
                before = list(self._busy)
                timer.reset()
            timer.check()

    def _where(self) -> str:
        return "\n".join(f"{each.name}:\n{thread_stack(each.ident)}" for each in self._threads)


def _serve(work: Work, requests: _Queue, busy: list[float], index: int) -> None:
    """Work until None arrives in the queue."""
    work_beside(len(busy))
    while (item := requests.get()) is not None:
        begin = time.perf_counter()
        _answer(work, *item)
        # A waiting thread must not keep alive an answer that was dropped.
        del item
        busy[index] += time.perf_counter() - begin


def _serve_queued(work: Work, requests: _Queue, busy: list[float]) -> None:
    """Do the queued work in the caller's thread, because no thread could be started."""
    begin = time.perf_counter()
    while not requests.empty():
        item = requests.get()
        if item is not None:
            _answer(work, *item)
    busy[0] += time.perf_counter() - begin


def _answer(work: Work, request: list[Request], answer: Answer) -> None:
    """Do the only request of a list.

    Once the answer is visible, nothing here refers to it or to what it was made from.
    """
    if not answer.set_running_or_notify_cancel():
        return
    try:
        answer.set_result([work(request.pop())])
    except RecmapError as e:
        answer.set_exception(e)
    except BaseException as e:
        error = map_error(e)
        error.__cause__ = e
        answer.set_exception(error)


def _end_threads(requests: _Queue, threads: list[threading.Thread], process: int) -> None:
    if os.getpid() != process:
        return  # a forked process has none of the threads
    _cancel_queued(requests)
    for _ in threads:
        requests.put(None)
    deadline = time.monotonic() + _THREAD_GRACE
    for thread in threads:
        # One of the pool's own threads may have held the last reference to it.
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(max(deadline - time.monotonic(), 0))


def _cancel_queued(requests: _Queue) -> None:
    while not requests.empty():
        try:
            item = requests.get_nowait()
        except queue.Empty:
            return  # a thread was faster
        if item is not None:
            item[1].cancel()
