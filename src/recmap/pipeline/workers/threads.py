"""A pool of threads, for work that leaves the GIL alone."""

from __future__ import annotations

import os
import queue
import threading
import time
from concurrent.futures import Future, wait
from typing import TypeAlias

from recmap.errors import RecmapError
from recmap.files.cpus import work_beside
from recmap.files.threads import start_thread
from recmap.pipeline.workers.errors import map_error
from recmap.pipeline.workers.patience import Patience, stack_of
from recmap.pipeline.workers.pool import Answer, OrderedPool, Request, Work

__all__ = ["ThreadPool"]

# A request is the only item of a list, too, which whoever does it empties.
_Queue: TypeAlias = "queue.SimpleQueue[tuple[list[Request], Answer] | None]"

# Seconds between looks at whether another thread has closed the pool.
_WATCH = 1.0
# Seconds a closing pool waits for threads in the middle of a request. Nobody can end
# a thread, and one that runs native code when the interpreter ends may crash.
_GRACE = 1.0


class ThreadPool(OrderedPool):
    """Threads; every request goes to one that is free."""

    def __init__(self, work: Work, count: int) -> None:
        self._queue: _Queue = queue.SimpleQueue()
        self._busy = [0.0] * count
        self._work = work
        self._threads: list[threading.Thread] = []
        self._advice = f"If the function hangs, try workers={count}: processes of their own"
        super().__init__(_end, self._queue, self._threads, os.getpid())
        for index in range(count):
            name = f"recmap-worker-{index}"
            thread = start_thread(_serve, work, self._queue, self._busy, index, name=name)
            if thread is None:
                break  # fewer do the work, or the caller alone
            self._threads.append(thread)

    def busy(self) -> list[float]:
        return list(self._busy)

    def _submit(self, request: Request) -> Answer:
        future: Answer = Future()
        self._queue.put(([request], future))
        return future

    def _wait(self, future: Answer) -> None:
        if not self._threads:
            _work_off(self._work, self._queue, self._busy, 0)
        patience, before = Patience(self._where, self._advice), list(self._busy)
        while not future.done():
            wait([future], _WATCH)
            self._check()
            if self._busy != before:
                before = list(self._busy)
                patience.answered()
            patience.check()

    def _where(self) -> str:
        return "\n".join(f"{each.name}:\n{stack_of(each.ident)}" for each in self._threads)


def _serve(work: Work, requests: _Queue, busy: list[float], index: int) -> None:
    work_beside(len(busy))
    while (item := requests.get()) is not None:
        begin = time.perf_counter()
        _answer(work, *item)
        # An answer that nobody takes is not kept while this thread waits.
        del item
        busy[index] += time.perf_counter() - begin


def _work_off(work: Work, requests: _Queue, busy: list[float], index: int) -> None:
    """Does all that waits, in the caller's thread."""
    begin = time.perf_counter()
    while not requests.empty():
        item = requests.get()
        if item is not None:
            _answer(work, *item)
    busy[index] += time.perf_counter() - begin


def _answer(work: Work, request: list[Request], future: Answer) -> None:
    """Does the only request of a list. When the answer can be seen, nothing here holds it,
    nor what it was made from.
    """
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result([work(request.pop())])
    except RecmapError as e:
        future.set_exception(e)
    except BaseException as e:
        error = map_error(e)
        error.__cause__ = e
        future.set_exception(error)


def _end(requests: _Queue, threads: list[threading.Thread], process: int) -> None:
    if os.getpid() != process:
        return  # a fork has none of the threads
    while not requests.empty():
        try:
            item = requests.get_nowait()
        except queue.Empty:
            break  # a thread was faster
        if item is not None:
            item[1].cancel()
    for _ in threads:
        requests.put(None)
    deadline = time.monotonic() + _GRACE
    for thread in threads:
        # The last to hold the pool may have been one of its own threads.
        if thread is not threading.current_thread() and thread.ident is not None:
            thread.join(max(deadline - time.monotonic(), 0))
