"""The threads that decode chunks."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import cache
from typing import ParamSpec, TypeVar

from recmap.machine.cpus import pool_size, thread_count
from recmap.machine.threads import Threads

Item = TypeVar("Item")
_T = TypeVar("_T")
_P = ParamSpec("_P")


def for_each(items: Iterable[Item], work: Callable[[Item], None]) -> None:
    """Call ``work`` on each item, on this thread and as many others as there are CPUs."""
    waiting = deque(items)

    def help_out() -> None:
        try:
            while True:
                try:
                    item = waiting.popleft()
                except IndexError:
                    return
                work(item)
        except BaseException:
            waiting.clear()
            raise

    helpers = min(thread_count(), len(waiting)) - 1
    futures = [submit(help_out) for _ in range(helpers)]
    try:
        help_out()
    finally:
        for future in futures:
            # One that has not begun finds nothing to do.
            if not future.cancel():
                future.exception()
    for future in futures:
        if not future.cancelled():
            future.result()


def submit(function: Callable[_P, _T], *args: _P.args, **options: _P.kwargs) -> Future[_T]:
    """Call a function on another thread."""
    return _threads(os.getpid(), pool_size()).submit(function, *args, **options)


@cache
def _threads(process: int, count: int) -> Threads:
    """Return a pool. Threads do not survive a fork, and a memory budget may allow fewer."""
    return Threads(count, f"recmap-chunks-{process}")
