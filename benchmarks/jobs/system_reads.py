"""The bytes of a file read with pread alone, by several threads: what the disk allows."""

from __future__ import annotations

import functools
import itertools
import os
import threading
from collections.abc import Iterator

import numpy as np

from benchmarks.tasks import drop_from_cache
from benchmarks.timing import Clock, Measure, fastest

__all__ = ["JOBS"]

# A trial finds the fastest.
_THREADS = (1, 2, 4, 8, 16, 32, 64)
_BLOCK, _TRIAL_BLOCKS, _TRIAL_ROWS = 1 << 20, 512, 16_384


def in_order(path: str, row_bytes: int) -> Measure:
    """Read all of a file that is not cached."""
    run = _read(path, _BLOCK, range(0, os.path.getsize(path), _BLOCK), _threads(path, _BLOCK))
    return Measure(run.seconds, run.rows * _BLOCK // row_bytes)


def at_random(path: str, row_bytes: int, rows: int) -> Measure:
    """Read rows at random from a file that is not cached."""
    return _read(path, row_bytes, _random(path, row_bytes, rows), _threads(path, row_bytes))


@functools.cache
def _threads(path: str, block: int) -> int:
    if block == _BLOCK:
        places: list[int] | range = range(0, _TRIAL_BLOCKS * _BLOCK, _BLOCK)
    else:
        places = _random(path, block, _TRIAL_ROWS)
    return fastest(_THREADS, lambda threads: _read(path, block, places, threads))


def _random(path: str, row_bytes: int, rows: int) -> list[int]:
    order = np.random.default_rng(1).permutation(os.path.getsize(path) // row_bytes)
    places: list[int] = (order[:rows] * row_bytes).tolist()
    return places


def _read(path: str, size: int, places: list[int] | range, threads: int) -> Measure:
    drop_from_cache(path)
    file = os.open(path, os.O_RDONLY)
    try:
        if size != _BLOCK:
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_RANDOM)
        # One iterator for all threads: next() of it is atomic.
        left = itertools.chain(places)
        workers = [
            threading.Thread(target=_read_places, args=(file, size, left)) for _ in range(threads)
        ]
        with Clock() as clock:
            for worker in workers:
                worker.start()
            for worker in workers:
                worker.join()
    finally:
        os.close(file)
    return Measure(clock.seconds, len(places))


def _read_places(file: int, size: int, places: Iterator[int]) -> None:
    buffer = bytearray(size)
    for place in places:
        os.preadv(file, [buffer], place)


JOBS = {"at_random": at_random, "in_order": in_order}
