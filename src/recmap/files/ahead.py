"""An iterator that works ahead, in a thread of its own."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from typing import TypeVar

__all__ = ["read_ahead"]

_T = TypeVar("_T")


def read_ahead(items: Iterator[_T], depth: int) -> Iterator[_T]:
    """The same items, the next few of which are made while one is used. What the
    iterator raises is raised here. The thread ends when this does, or is dropped.
    """
    ready: queue.Queue[tuple[bool, _T | BaseException | None]] = queue.Queue(depth)
    stop = threading.Event()
    thread = threading.Thread(
        target=_work, args=(items, ready, stop), name="recmap-ahead", daemon=True
    )
    thread.start()
    try:
        while True:
            more, item = ready.get()
            if isinstance(item, BaseException):
                raise item
            if not more:
                return
            yield item  # type: ignore[misc]  # an item, for there are more
    finally:
        stop.set()
        while thread.is_alive():  # it may wait for room
            _drain(ready)
            thread.join(0.01)


def _work(
    items: Iterator[_T],
    ready: queue.Queue[tuple[bool, _T | BaseException | None]],
    stop: threading.Event,
) -> None:
    try:
        for item in items:
            if stop.is_set():
                return
            ready.put((True, item))
        ready.put((False, None))
    except BaseException as e:  # raised in the reader's thread
        ready.put((False, e))


def _drain(ready: queue.Queue[tuple[bool, _T | BaseException | None]]) -> None:
    try:
        while True:
            ready.get_nowait()
    except queue.Empty:
        pass
