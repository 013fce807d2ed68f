"""Parts of objects on their way into memory: the threads, the memory and the counts of requests."""

from __future__ import annotations

import atexit
import os
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from threading import Condition, Lock
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.machine.threads import start_thread
from recmap.model.fetching import FetchCounts

_Bytes = npt.NDArray[np.uint8]

#: The memory to fetch objects with. No less makes sense, and more does not help.
LEAST_FETCH_MEMORY, MOST_FETCH_MEMORY = 16 << 20, 384 << 20
# Stores are fastest with requests of this size, several at a time.
_REQUEST = 8 << 20
# What is fetched ahead takes this part of the memory, and requests in flight as much.
_PART_AHEAD, _MOST_AHEAD = 4, 64 << 20
# Requests at a time.
_MOST = 64
# Seconds to wait at exit for requests in flight. A thread that comes back after the interpreter
# has ended could abort the process.
_GRACE = 2.0


# -- how much memory is used ----------------------------------------------------------------------

_limits: list[int] = []
_in_flight: list[int] = []
_room = Condition()


def fetch_memory() -> int:
    """Return how many bytes may be used to fetch objects, in this process."""
    return min([MOST_FETCH_MEMORY, *_limits])


@contextmanager
def fetching_within(memory: int) -> Iterator[None]:
    """Use less memory inside the context, in all threads of the process."""
    limit = max(memory, LEAST_FETCH_MEMORY)
    _limits.append(limit)
    try:
        yield
    finally:
        _limits.remove(limit)


def request_size() -> int:
    """Return the largest part of an object to ask for at once."""
    return min(_REQUEST, fetch_memory() // 32)


def bytes_ahead(objects: int = 1, memory: int | None = None) -> int:
    """Return how much to fetch ahead of each of several objects that are read in order.

    It is a part of the memory to fetch with, or of the ``memory`` given.
    """
    within = fetch_memory() if memory is None else memory
    return max(1, min(_MOST_AHEAD, within // _PART_AHEAD // max(objects, 1)))


@contextmanager
def room_for(size: int) -> Iterator[None]:
    """Wait until a request for so many bytes may be made, and count them inside the context."""
    with _room:
        # One may always go, however large it is.
        _room.wait_for(
            lambda: not _in_flight or sum(_in_flight) + size <= fetch_memory() // _PART_AHEAD
        )
        _in_flight.append(size)
    try:
        yield
    finally:
        with _room:
            _in_flight.remove(size)
            _room.notify_all()


# -- what was fetched -----------------------------------------------------------------------------


class FetchCounter:
    """Counts what is fetched from a store, in any thread. A copy in another process is at zero."""

    def __init__(self) -> None:
        self._lock = Lock()
        #: What was counted so far.
        self.counts = FetchCounts()
        _counters.add(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return FetchCounter, ()

    def add(
        self,
        requests: int = 0,
        fetched: int = 0,
        used: int = 0,
        cache_hits: int = 0,
        waited: float = 0.0,
    ) -> None:
        """Add to what ``FetchCounts`` tells."""
        more = FetchCounts(requests, fetched, used, cache_hits, waited)
        with self._lock:
            self.counts = self.counts.plus(more)


_counters: weakref.WeakSet[FetchCounter] = weakref.WeakSet()


def counted(counters: Iterable[FetchCounter]) -> FetchCounts:
    """Return the sum of several counters."""
    total = FetchCounts()
    for counter in counters:
        total = total.plus(counter.counts)
    return total


def counted_here() -> FetchCounts:
    """Return what this process has fetched from all stores."""
    return counted(list(_counters))


# -- threads that wait for the answers of stores --------------------------------------------------

_Work: TypeAlias = tuple["Future[None]", Callable[[Any], None], Any]


class _FetchThreads:
    """Threads that all stores of the process share.

    They are daemons: a server that does not answer must not keep the process from ending.
    """

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
        """Begin nothing more, and wait a little for what is in flight."""
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


def _after_fork() -> None:
    global _threads  # noqa: PLW0603  # a forked process has none of the threads
    _threads = _FetchThreads()


os.register_at_fork(after_in_child=_after_fork)


@atexit.register
def _end() -> None:
    _threads.end()


# -- parts of objects ------------------------------------------------------------------------------


class Fetch:
    """A part of an object on its way into an array, which ``prepare`` makes ready for it."""

    def __init__(
        self, begin: int, end: int, target: _Bytes, prepare: Callable[[], None] | None = None
    ) -> None:
        self.begin, self.end = begin, end
        self._prepare = prepare
        self._target: _Bytes | None = target
        self._lock = Lock()
        self._future: Future[None] | None = None

    def start(self, work: Callable[[Fetch], None]) -> None:
        """Do the work in another thread."""
        self._future = _threads.submit(work, self)

    @property
    def arrived(self) -> bool:
        """Whether the bytes are there."""
        future = self._future
        return (
            future is not None
            and future.done()
            and not future.cancelled()
            and future.exception() is None
        )

    @property
    def future(self) -> Future[None]:
        """The work, once it was started."""
        assert self._future is not None
        return self._future

    @property
    def failed(self) -> bool:
        """Whether the bytes will not come."""
        return self._future is not None and self._future.done() and not self.arrived

    def give_up(self) -> None:
        """Write nothing from here on. A request in flight may take minutes to end."""
        if self._future is not None:
            self._future.cancel()
        with self._lock:
            self._target = None

    @property
    def given_up(self) -> bool:
        return self._target is None

    @contextmanager
    def _ready_target(self) -> Iterator[_Bytes | None]:
        """Yield the place to write to, or None if nobody wants the bytes. Giving up has to wait."""
        with self._lock:
            if self._target is not None and self._prepare is not None:
                self._prepare()
            yield self._target

    def put(self, data: Any) -> None:
        """Write the bytes."""
        with self._ready_target() as target:
            if target is not None:
                target[:] = np.frombuffer(data, np.uint8)

    def fill(self, read: Callable[[int, _Bytes], bool]) -> bool:
        """Let a function write the bytes. Return whether it could, or nobody wants them."""
        with self._ready_target() as target:
            return target is None or read(self.begin, target)


def wait_for(parts: Sequence[Fetch]) -> None:
    """Wait until all parts have arrived, and raise the first error at once."""
    for future in wait([part.future for part in parts], return_when=FIRST_EXCEPTION).done:
        future.result()
