"""HDF5 files, open for reading or writing. The only module that imports h5py."""

from __future__ import annotations

import atexit
import io
import os
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.chunks.groups import chunk_cache
from recmap.errors import DataError, MissingPackageError, RecmapError
from recmap.local.local_path import located
from recmap.machine.lru import Lru
from recmap.machine.spans import Places, merge_spans
from recmap.store.open_object import SeekableObject

try:
    import h5py
except ImportError as e:
    raise MissingPackageError("HDF5 files need h5py", extra="hdf5") from e

__all__ = ["Hdf5File", "Hdf5Output", "h5py", "limit_metadata_cache"]

Numbers = npt.NDArray[Any]

# What h5py raises for damaged files, and for types that NumPy does not have.
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
# Bytes of metadata that the library may cache. The default is 32 MB and can grow.
_METADATA_CACHE = 2 << 20
# Bytes of the library's own chunk caches, for all datasets together. Only chunks that recmap
# cannot decode itself use them.
_LIBRARY_CACHE = 4 << 20
# Slots per chunk cache. The HDF5 2 default of 8,191 takes more memory than the chunks.
_SLOTS = 521
# Datasets kept open. Each takes about 25 kB in the library.
_OPEN_DATASETS = 256
# Chunks this close to each other are fetched together.
_NEAR = 64 << 10


def limit_metadata_cache(file: Any) -> None:
    """Limit how much metadata the library caches for an open file."""
    config = file.id.get_mdc_config()
    config.max_size = _METADATA_CACHE
    config.flash_incr_mode = 0
    file.id.set_mdc_config(config)


class Hdf5File:
    """A file that stays open while its columns are in use. Open it with ``of``."""

    def __init__(self, path: str, stored: SeekableObject | None) -> None:
        self.path = path
        self.mapped = located(path).map()
        self.size = self.mapped.size
        self._object = stored
        self.chunk_cache = chunk_cache()
        # By process: another thread may have a lock when a process is forked. h5py waits until none
        # is inside the library, so what the lock guards is whole.
        self._locks = cache(lambda _: RLock())
        self._datasets = Lru[str, Any](_OPEN_DATASETS)
        self._descriptor = -1
        if self._object is None:
            self._descriptor = os.open(path, os.O_RDONLY)
            weakref.finalize(self, os.close, self._descriptor)
        with self.locked():
            self.h5py_cache = _LIBRARY_CACHE
            self.root: Any = self._opened()
            objects: list[str] = []
            self.root.visit(objects.append)
            if len(objects) > 1:
                # Each dataset gets a cache of the given size, so divide the total by their number.
                self.root.close()
                self.h5py_cache //= len(objects)
                self.root = self._opened()
            limit_metadata_cache(self.root)
        located(path).check_unchanged()  # the library opens it by its name, too

    def _opened(self) -> Any:
        file = self.path if self._object is None else self._object
        return h5py.File(file, "r", rdcc_nbytes=self.h5py_cache, rdcc_nslots=_SLOTS)

    @staticmethod
    def of(path: str) -> Hdf5File:
        """Open a file, or return the one already open.

        There is only ever one handle per file: HDF5 up to 2.2 crashes on lists in compound
        types after one of two handles on a file is closed.
        """
        key = located(path).identity()
        stored: Any = located(path).seekable() if located(path).remote else None
        if stored is not None and key not in _open:
            stored.fetch_beginning()  # here, while others are opened
        with _opening(os.getpid()):
            file = _open.get(key)
            if file is None:
                file = _open[key] = Hdf5File(path, stored)
            return file

    def close_object(self) -> None:
        """Close the file if it is in a store. It cannot be used any more."""
        if self._object is not None:
            self._datasets.shrink(0)
            self.root.close()

    @contextmanager
    def locked(self, name: str | None = None) -> Iterator[None]:
        """Hold the lock around calls to h5py, and add the file and dataset to its errors."""
        with self._locks(os.getpid()):
            try:
                yield
            except RecmapError:
                raise
            except _FAILURES as e:
                self._raise_request_error()
                where = self.path if name is None else f"{self.path}: dataset {name!r}"
                raise DataError(
                    f"{where}: the HDF5 library cannot read it: {e}", file=self.path, field=name
                ) from e
            # The library may take a failed request for something that is not there.
            self._raise_request_error()

    def _raise_request_error(self) -> None:
        if self._object is not None:
            self._object.raise_error()

    def dataset(self, path: str) -> Any:
        """Return the dataset at a path, opening it if needed. Call only while locked.

        Columns do not hold datasets themselves, because a file may have thousands.
        """
        dataset = self._datasets.get(path)
        if dataset is None:
            dataset = self.root[path]
            self._datasets.put(path, dataset)
        return dataset

    def place(self, offset: int, size: int) -> tuple[int | Numbers, int, int]:
        """Return where bytes of the file are read from: its descriptor, or memory that is held."""
        if self.mapped.whole:
            return self._descriptor, offset, size
        return self.mapped.bytes[offset : offset + size], 0, size

    def spans(self, offsets: Numbers, sizes: Numbers) -> tuple[Places, Places]:
        """Return the spans of parts of the file, as far as the file goes."""
        begins = np.minimum(offsets, self.size).astype(np.int64)
        ends = begins + np.minimum(sizes, self.size).astype(np.int64)
        # Chunks that follow one another are one span, so that what comes after is fetched ahead.
        return merge_spans(begins, np.minimum(ends, self.size), _NEAR)


_opening = cache(lambda _: RLock())
_open: weakref.WeakValueDictionary[tuple[Any, ...], Hdf5File] = weakref.WeakValueDictionary()


@atexit.register
def _close_objects() -> None:
    """Close what is still open in stores.

    The library would close it after the interpreter has ended, and call Python code for that.
    """
    for file in list(_open.values()):
        file.close_object()


class Hdf5Output(io.FileIO):
    """A new file for HDF5 to write to, which never reports an error to the library.

    HDF5 1.14 crashes when it closes a file after a failed write, for example on a full disk.
    So every write appears to succeed. Data that could not be written is held in memory,
    because HDF5 may read it again. ``check`` raises the error; write nothing more after that.
    """

    def __init__(self, path: str) -> None:
        super().__init__(path, "x+")
        self._error: BaseException | None = None
        self._lost: list[tuple[int, bytes]] = []

    def check(self) -> None:
        """Raise the first error."""
        if self._error is not None:
            raise self._error

    def write(self, data: Any) -> int:
        """Write all of the data, or appear to."""
        view = memoryview(data).cast("B")
        size = len(view)
        at = self.tell()
        try:
            while view:
                done = super().write(view) or 0
                at, view = at + done, view[done:]
        except BaseException as e:  # check() raises it, outside of HDF5
            self._error = self._error or e
            self._lost.append((at, bytes(view)))
        return size

    def readinto(self, buffer: Any) -> int:
        """Fill the buffer, with zeros beyond the end of the file."""
        view = memoryview(buffer).cast("B")
        at = self.tell()
        done = 0
        while done < len(view) and (count := super().readinto(view[done:])):
            done += count
        view[done:] = bytes(len(view) - done)
        for begin, data in self._lost:
            first, last = max(begin, at), min(begin + len(data), at + len(view))
            if first < last:
                view[first - at : last - at] = data[first - begin : last - begin]
        return len(view)

    def truncate(self, size: int | None = None) -> int:
        """Set the size of the file, or appear to."""
        try:
            return super().truncate(size)
        except OSError as e:
            self._error = self._error or e
            return size or 0
