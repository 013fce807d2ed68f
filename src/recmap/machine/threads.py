"""Start threads, or do without them if the system refuses.

``Threads`` is a pool, ``start_thread`` starts a single thread, and ``read_ahead`` runs an
iterator ahead of its consumer.
"""

from __future__ import annotations

import atexit
import os
import resource
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from queue import SimpleQueue
from typing import Any, Generic, ParamSpec, TypeVar

from recmap.machine.cpus import ThreadLimit, own_limit, within
from recmap.machine.mapped import guarded_here
from recmap.machine.memory import locks_pages, page_locking

_T = TypeVar("_T")
_P = ParamSpec("_P")

# Enough for Python and the libraries that these threads call.
_STACK = 1 << 20
_starting = threading.Lock()
# Seconds to wait at exit for threads in the middle of a read. A thread that returns from
# native code after the interpreter has ended aborts the process.
_GRACE = 5.0
# The running threads, and how to signal each to end.
_reading: dict[threading.Thread, tuple[threading.Event, SimpleQueue[None]]] = {}


class Threads(ThreadPoolExecutor):
    """A pool that makes do with fewer threads if the system refuses more.

    The caller then does the work. All work runs inside a guard, so truncating a mapped file in the
    meantime raises an error.
    """

    def submit(self, fn: Callable[_P, _T], /, *args: _P.args, **kwargs: _P.kwargs) -> Future[_T]:
        future: Future[_T] = Future()
        task = _Task(future, partial(guarded_here(fn), *args, **kwargs))
        refused = True
        with _small_stack(), _none_if_refused():
            waiting = super().submit(task.run)
            # shutdown(cancel_futures=True) cancels what waits in the pool.
            waiting.add_done_callback(task.done)
            refused = False
        if refused:
            task.run()
        return future


class _Task(Generic[_T]):
    """Work that is done once, although a pool that was refused a thread keeps it in its queue."""

    def __init__(self, future: Future[_T], work: Callable[[], _T]) -> None:
        # Taking it is atomic. What was taken is not kept alive by the queue.
        self._todo = [(future, work)]

    def run(self) -> None:
        while self._todo:
            with suppress(IndexError):  # another thread took it
                self._do(*self._todo.pop())

    def done(self, waiting: Future[None]) -> None:
        """Pass on that the pool has cancelled it."""
        while waiting.cancelled() and self._todo:
            with suppress(IndexError):
                future, _ = self._todo.pop()
                future.cancel()
                future.set_running_or_notify_cancel()

    @staticmethod
    def _do(future: Future[_T], work: Callable[[], _T]) -> None:
        if not future.set_running_or_notify_cancel():
            return
        try:
            future.set_result(work())
        except BaseException as e:  # raised when the caller gets the result
            future.set_exception(e)


def start_thread(target: Callable[..., None], *args: Any, name: str) -> threading.Thread | None:
    """Start a daemon thread; return None if the system refuses."""
    target = _inheriting(target, own_limit(), locks_pages())
    thread = threading.Thread(target=target, args=args, name=name, daemon=True)
    with _small_stack(), _none_if_refused():
        thread.start()
    return None if thread.ident is None else thread


def _inheriting(
    target: Callable[..., None], limit: ThreadLimit | None, locks: bool
) -> Callable[..., None]:
    def run(*args: Any) -> None:
        with within(limit), page_locking(locks):
            target(*args)

    return run


@contextmanager
def _none_if_refused() -> Iterator[None]:
    try:
        yield
    except (RuntimeError, MemoryError) as e:
        if isinstance(e, RuntimeError) and "start new thread" not in str(e):
            raise


@contextmanager
def _small_stack() -> Iterator[None]:
    """Make stacks small where the memory of the process is limited.

    The whole stack counts, 8 MB by default, whether it is used or not.
    """
    limits = (resource.RLIMIT_DATA, resource.RLIMIT_AS)
    if all(resource.getrlimit(limit)[0] == resource.RLIM_INFINITY for limit in limits):
        yield
        return
    with _starting:  # the stack size is global
        before = threading.stack_size(_STACK)
        try:
            yield
        finally:
            threading.stack_size(before)


def _forked() -> None:
    global _starting  # noqa: PLW0603 - another thread may have held it
    _starting = threading.Lock()


os.register_at_fork(after_in_child=_forked)


def read_ahead(items: Iterator[_T], depth: int) -> Generator[_T, None, None]:
    """Yield the same items, while a thread makes up to ``depth`` of the next ones.

    Errors of the iterator are raised here. The thread ends soon after this generator does.
    """
    ready: SimpleQueue[list[_T] | BaseException] = SimpleQueue()
    room: SimpleQueue[None] = SimpleQueue()
    stop = threading.Event()
    for _ in range(depth):
        room.put(None)
    if start_thread(_run_ahead, items, ready, room, stop, name="recmap-ahead") is None:
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


def _run_ahead(
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


def _end_readers() -> None:
    threads = list(_reading.items())
    for _, (stop, room) in threads:
        stop.set()
        room.put(None)
    deadline = time.monotonic() + _GRACE
    for thread, _ in threads:
        with suppress(RuntimeError):  # it has not quite started
            thread.join(max(0.0, deadline - time.monotonic()))


atexit.register(_end_readers)
# A forked process has none of these threads.
os.register_at_fork(after_in_child=_reading.clear)
