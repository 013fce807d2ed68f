"""A small value that a process shares with the processes it starts."""

from __future__ import annotations

import fcntl
import os
import pickle
import tempfile
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import reduction
from multiprocessing.context import get_spawning_popen
from typing import Any, Generic, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class SharedValue(Generic[T]):
    """A value that can be pickled, shared with forked and spawned processes.

    It lies in a file without a name. Forked processes inherit the file, and spawned ones are
    handed it. Its lock is one that the system releases when a process dies. Any other copy, such
    as one that is pickled into a file, begins with the same value and is independent.
    """

    def __init__(self, value: T) -> None:
        self._own(_nameless_file())
        self._write(value)

    def _own(self, file: int) -> None:
        self._file = file
        weakref.finalize(self, os.close, file).atexit = False

    def get(self) -> T:
        """Return the value."""
        with self._locked():
            return self._read()

    def update(self, change: Callable[[T], tuple[T, R]]) -> R:
        """Replace the value, while no other process does; ``change`` also returns a result."""
        with self._locked():
            value, result = change(self._read())
            self._write(value)
            return result

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fcntl.lockf(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.lockf(self._file, fcntl.LOCK_UN)

    def _read(self) -> T:
        value: T = pickle.loads(os.pread(self._file, os.fstat(self._file).st_size, 0))  # noqa: S301
        return value

    def _write(self, value: T) -> None:
        data = pickle.dumps(value)
        os.pwrite(self._file, data, 0)
        os.ftruncate(self._file, len(data))

    def __getstate__(self) -> dict[str, Any]:
        if get_spawning_popen() is None:
            return {"value": self.get()}
        return {"file": reduction.DupFd(self._file)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        if "file" in state:
            self._own(state["file"].detach())
        else:
            SharedValue.__init__(self, state["value"])


def _nameless_file() -> int:
    """Return the descriptor of a new file: in memory on Linux, else among temporary files."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("recmap")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())
