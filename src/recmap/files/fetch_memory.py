"""The memory that may be used to fetch objects, in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Lock

#: No less makes sense, and more does not help.
LEAST_FETCH_MEMORY, MOST_FETCH_MEMORY = 16 << 20, 384 << 20
# Stores are fastest with requests of this size, several at a time.
_REQUEST = 8 << 20
_MOST_AHEAD = 64 << 20

_limits: list[int] = []
_lock = Lock()


def fetch_memory() -> int:
    """Return how many bytes may be used."""
    return min([MOST_FETCH_MEMORY, *_limits])


@contextmanager
def fetching_within(memory: int) -> Iterator[None]:
    """Use less memory inside the context, in all threads of the process."""
    limit = max(memory, LEAST_FETCH_MEMORY)
    with _lock:
        _limits.append(limit)
    try:
        yield
    finally:
        with _lock:
            _limits.remove(limit)


def request_size() -> int:
    """Return the largest part of an object to ask for at once."""
    return min(_REQUEST, fetch_memory() // 32)


def bytes_in_flight() -> int:
    """Return how many bytes may be asked for at the same time."""
    return fetch_memory() // 4


def bytes_ahead(objects: int) -> int:
    """Return how much to fetch ahead of each of several objects that are read in order."""
    return min(_MOST_AHEAD, fetch_memory() // 3 // max(objects, 1))


def bytes_behind(objects: int) -> int:
    """Return how much to keep behind, for other threads that still read there."""
    return bytes_ahead(objects) // 2
