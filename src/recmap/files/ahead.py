"""An iterator that works ahead, in a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Generator, Iterator
from queue import SimpleQueue
from typing import TypeVar

from recmap.files.threads import start_thread

__all__ = ["read_ahead"]

_T = TypeVar("_T")


def read_ahead(items: Iterator[_T], depth: int) -> Generator[_T, None, None]:
    """The same items, the next few of which are made while one is used. What the
    iterator raises is raised here. The thread ends soon after this does, or is dropped.
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
            yield made.pop()  # so that nobody here keeps it
    finally:
        # The garbage collector may do this, in a thread that holds some lock: nothing here
        # waits, neither for the thread nor for a lock.
        stop.set()
        room.put(None)


def _work(
    items: Iterator[_T],
    ready: SimpleQueue[list[_T] | BaseException],
    room: SimpleQueue[None],
    stop: threading.Event,
) -> None:
    try:
        for item in items:
            room.get()
            if stop.is_set():
                return
            made = [item]
            del item  # before another thread gets it, and lets go of it
            ready.put(made)
        ready.put([])
    except BaseException as e:  # raised in the reader's thread
        ready.put(e)
