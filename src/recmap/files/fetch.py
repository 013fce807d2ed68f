"""Parts of objects on their way into memory, and the memory that requests take."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, Future, wait
from contextlib import AbstractContextManager, contextmanager
from threading import Condition, Lock
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.files.fetch_memory import bytes_in_flight
from recmap.files.fetch_threads import submit

_Bytes = npt.NDArray[np.uint8]


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
        self._future = submit(work, self)

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
        """Write nothing from here on. A request under way may take minutes to end."""
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


class _InFlight:
    """Limits the memory that requests take."""

    def __init__(self) -> None:
        self._taken = 0
        self._changed = Condition()

    @contextmanager
    def room(self, size: int) -> Iterator[None]:
        with self._changed:
            # One may always go, however large it is.
            self._changed.wait_for(
                lambda: not self._taken or self._taken + size <= bytes_in_flight()
            )
            self._taken += size
        try:
            yield
        finally:
            with self._changed:
                self._taken -= size
                self._changed.notify_all()


_in_flight = _InFlight()


def room_for(size: int) -> AbstractContextManager[None]:
    """Wait until a request for so many bytes may be made, and count them inside the context."""
    return _in_flight.room(size)
