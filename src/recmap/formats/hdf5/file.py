"""An HDF5 file that is being read: through h5py, or its bytes beside it."""

from __future__ import annotations

import os
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import RLock
from typing import Any, TypeVar

from recmap.errors import DataError, PathNotFoundError, RecmapError
from recmap.files.cpus import pool_size, thread_count
from recmap.files.mapped import MappedFile
from recmap.files.threads import Threads
from recmap.formats.hdf5.chunk_cache import Bands
from recmap.formats.hdf5.library import h5py, keep_little

__all__ = ["Hdf5File"]

Item = TypeVar("Item")

# What h5py raises when a file is damaged, or holds what numpy has no type for.
_FAILURES = (
    AttributeError,
    LookupError,
    MemoryError,
    NotImplementedError,
    OSError,
    OverflowError,
    RuntimeError,
    SystemError,
    TypeError,
    ValueError,
)
# The library's own caches, for chunks that only it can read, together.
_LIBRARY_CACHE = 4 << 20
# Slots of each: HDF5 2 gives every dataset 8,191, which take more than the chunks.
_SLOTS = 521
# Datasets that stay open. The library takes some 25 kB for each.
_OPEN_DATASETS = 256
# Work is dealt out in a few portions per thread: chunks may be many and small.
_PORTIONS = 4


class Hdf5File:
    """A file that stays open while its columns are used. Open it with ``of``."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.mapped = MappedFile(path)
        self.size = self.mapped.size
        self.bands = Bands()
        self._lock = RLock()
        self._datasets: OrderedDict[str, Any] = OrderedDict()
        self._pool: tuple[int, Threads] | None = None
        self._descriptor = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._descriptor)
        with self.locked():
            self.root: Any = h5py.File(path, "r", rdcc_nbytes=_LIBRARY_CACHE, rdcc_nslots=_SLOTS)
            objects: list[str] = []
            self.root.visit(objects.append)
            if len(objects) > 1:
                # Each dataset has a cache of its own.
                self.root.close()
                share = _LIBRARY_CACHE // len(objects)
                self.root = h5py.File(path, "r", rdcc_nbytes=share, rdcc_nslots=_SLOTS)
            keep_little(self.root)

    @staticmethod
    def of(path: str) -> Hdf5File:
        """The file, which is opened once: HDF5 up to 2.2 crashes on lists in compound
        types if one of two handles on a file was closed.
        """
        try:
            status = os.stat(path)
        except FileNotFoundError:
            raise PathNotFoundError(f"{path}: no such file") from None
        key = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
        with _opening:
            file = _open.get(key)
            if file is None:
                file = _open[key] = Hdf5File(path)
            return file

    @contextmanager
    def locked(self, name: str | None = None) -> Iterator[None]:
        """Around calls of h5py: one at a time, and what they raise says where."""
        with self._lock:
            try:
                yield
            except RecmapError:
                raise
            except _FAILURES as e:
                where = self.path if name is None else f"{self.path}: dataset {name!r}"
                raise DataError(
                    f"{where}: the HDF5 library cannot read it: {e}", file=self.path, field=name
                ) from e

    def dataset(self, path: str) -> Any:
        """The dataset at a path, opened again if others were used since; only while locked.
        Columns hold no datasets themselves, because a file may have thousands of them.
        """
        dataset = self._datasets.pop(path, None)
        if dataset is None:
            while len(self._datasets) >= _OPEN_DATASETS:
                self._datasets.popitem(last=False)
            dataset = self.root[path]
        self._datasets[path] = dataset
        return dataset

    def pread(self, offset: int, size: int) -> bytes:
        """Bytes of the file, fewer where it ends before."""
        size = max(0, min(size, self.size - offset))
        pieces = []
        while size and (piece := os.pread(self._descriptor, size, offset)):
            pieces.append(piece)
            offset, size = offset + len(piece), size - len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def for_each(self, items: Sequence[Item], work: Callable[[Item], None]) -> None:
        """Does the work for all items, on as many threads as there are processors."""
        threads = thread_count()
        if threads == 1 or len(items) < 2:
            for item in items:
                work(item)
            return
        portion = -(-len(items) // (threads * _PORTIONS))

        def some(start: int) -> None:
            for item in items[start : start + portion]:
                work(item)

        pool = self._threads(pool_size())
        futures = [pool.submit(some, start) for start in range(0, len(items), portion)]
        try:
            for future in futures:
                future.result()
        except BaseException:
            for future in futures:
                future.cancel()
            raise

    def _threads(self, count: int) -> Threads:
        with self._lock:
            # A process that was forked has none of the threads of the one before.
            if self._pool is None or self._pool[0] != os.getpid():
                self._pool = os.getpid(), Threads(count, "recmap-hdf5")
            return self._pool[1]


_opening = RLock()
_open: weakref.WeakValueDictionary[tuple[int, ...], Hdf5File] = weakref.WeakValueDictionary()
