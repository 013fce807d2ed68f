"""A pool of threads, for work that releases the GIL."""

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
from recmap.pipeline.workers.pool import Answer, OrderedPool, Request, Work
from recmap.pipeline.workers.stalls import StallTimer, thread_stack

# A request is the only item of a list, and the thread that works on it empties the list.
_Queue: TypeAlias = "queue.SimpleQueue[tuple[list[Request], Answer] | None]"

# Seconds between checks whether another thread has closed the pool.
_WATCH = 1.0
# Seconds a closing pool waits for threads in the middle of a request. A thread cannot be
# killed, and one that runs native code while the interpreter exits may crash.
_GRACE = 1.0


class ThreadPool(OrderedPool):
    """Threads that take requests from one queue."""

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


def _end(requests: _Queue, threads: list[threading.Thread], process: int) -> None:
    if os.getpid() != process:
        return  # a forked process has none of the threads
    _cancel_queued(requests)
    for _ in threads:
        requests.put(None)
    deadline = time.monotonic() + _GRACE
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
