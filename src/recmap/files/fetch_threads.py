"""Threads that wait for the answers of stores, shared by all stores of the process.

They are daemons: a server that does not answer must not keep the process from ending.
"""

from __future__ import annotations

import atexit
import os
import time
from collections.abc import Callable
from concurrent.futures import Future
from queue import Empty, SimpleQueue
from threading import Lock
from typing import Any, TypeAlias

from recmap.files.threads import start_thread

# Requests at a time.
_MOST = 64
# Seconds to wait at exit for requests under way. A thread that comes back after the interpreter
# has ended could abort the process.
_GRACE = 2.0

_Work: TypeAlias = tuple["Future[None]", Callable[[Any], None], Any]


class _FetchThreads:
    def __init__(self) -> None:
        self._waiting: SimpleQueue[_Work] = SimpleQueue()
        self._lock = Lock()
        self._started = self._busy = self._queued = 0
        self._ending = False

    def submit(self, work: Callable[[Any], None], argument: Any) -> Future[None]:
        future: Future[None] = Future()
        with self._lock:
            self._queued += 1
            more = self._started < _MOST and self._started - self._busy < self._queued
            self._started += more
        self._waiting.put((future, work, argument))
        if more and start_thread(self._run, name="recmap-fetch") is None:
            with self._lock:
                self._started -= 1
            if not self._started:
                self._do(self._waiting.get())  # the caller does the work
        return future

    def _run(self) -> None:
        while not self._ending:
            self._do(self._waiting.get())

    def _do(self, item: _Work) -> None:
        future, work, argument = item
        with self._lock:
            self._queued -= 1
            self._busy += 1
        try:
            if not self._ending and future.set_running_or_notify_cancel():
                try:
                    work(argument)
                except BaseException as e:  # raised by whoever waits for the result
                    future.set_exception(e)
                else:
                    future.set_result(None)
        finally:
            with self._lock:
                self._busy -= 1

    def end(self) -> None:
        """Begin nothing more, and wait a little for what is under way."""
        self._ending = True
        try:
            while True:
                self._waiting.get_nowait()[0].cancel()
        except Empty:
            pass
        deadline = time.monotonic() + _GRACE
        while self._busy and time.monotonic() < deadline:
            time.sleep(0.01)


_threads = _FetchThreads()


def submit(work: Callable[[Any], None], argument: Any) -> Future[None]:
    """Do work in one of the threads."""
    return _threads.submit(work, argument)


def _after_fork() -> None:
    global _threads  # noqa: PLW0603  # a forked process has none of the threads
    _threads = _FetchThreads()


os.register_at_fork(after_in_child=_after_fork)


def _end() -> None:
    _threads.end()


atexit.register(_end)
