"""Run an iterator ahead of its consumer, in a thread of its own."""

from __future__ import annotations

import atexit
import os
import threading
import time
from collections.abc import Generator, Iterator
from contextlib import suppress
from queue import SimpleQueue
from typing import TypeVar

from recmap.files.threads import start_thread

__all__ = ["read_ahead"]

_T = TypeVar("_T")

# Seconds to wait at exit for threads in the middle of a read. A thread that returns from
# native code after the interpreter has ended aborts the process.
_GRACE = 5.0
# The running threads, and how to signal each to end.
_reading: dict[threading.Thread, tuple[threading.Event, SimpleQueue[None]]] = {}


def read_ahead(items: Iterator[_T], depth: int) -> Generator[_T, None, None]:
    """Yield the same items, while a thread makes up to ``depth`` of the next ones.

    Errors of the iterator are raised here. The thread ends soon after this generator does.
    """
    ready: SimpleQueue[list[_T] | BaseException] = SimpleQueue()
    room: SimpleQueue[None] = SimpleQueue()
    stop = threading.Event()
    for _ in range(depth):
        room.put(None)
    if start_thread(_work, items, ready, room, stop, name="recmap-ahead") is None:
        yield from items
        return
    try:
        while True:
            made = ready.get()
            if isinstance(made, BaseException):
                raise made
            if not made:
                return
            room.put(None)
            yield made.pop()  # keeps no reference here
    finally:
        # Do not wait here: the garbage collector may run this in a thread that holds a lock.
        stop.set()
        room.put(None)


def _work(
    items: Iterator[_T],
    ready: SimpleQueue[list[_T] | BaseException],
    room: SimpleQueue[None],
    stop: threading.Event,
) -> None:
    _reading[threading.current_thread()] = stop, room
    try:
        for item in items:
            room.get()
            if stop.is_set():
                return
            made = [item]
            del item  # the consumer decides when it is freed
            ready.put(made)
        ready.put([])
    except BaseException as e:  # raised in the consumer's thread
        ready.put(e)
    finally:
        _reading.pop(threading.current_thread(), None)


def _end_all() -> None:
    threads = list(_reading.items())
    for _, (stop, room) in threads:
        stop.set()
        room.put(None)
    deadline = time.monotonic() + _GRACE
    for thread, _ in threads:
        with suppress(RuntimeError):  # it has not quite started
            thread.join(max(0.0, deadline - time.monotonic()))


atexit.register(_end_all)
# A forked process has none of these threads.
os.register_at_fork(after_in_child=_reading.clear)
