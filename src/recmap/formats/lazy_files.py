"""Files of which there are too many to be open at once."""

from __future__ import annotations

import resource
import weakref
from collections import OrderedDict
from collections.abc import Callable, Sequence
from copy import copy
from dataclasses import dataclass
from itertools import count
from threading import RLock
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.formats.column_source import ColumnsSource
from recmap.model.ragged import owned
from recmap.model.row_sizes import RowSizes
from recmap.model.schema import Batch, Schema
from recmap.model.source import Info, Skipped, Source, reference

__all__ = ["OpenSources", "ReopenedSource", "most_open"]

_MOST = 64
# Of the descriptors that a process has, so many for each file that is kept open: HDF5 takes
# two, and others need some as well.
_DESCRIPTORS = 4
# Datasets of a format that takes descriptors, which may be open at once.
_DATASETS = 8


def most_open(descriptors: int = 0) -> int:
    """How many files a dataset keeps open at once, of a format that takes so many
    descriptors for each: there may be several datasets.
    """
    return max(1, _most_kept() // _DATASETS) if descriptors else _MOST


def _most_kept() -> int:
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = limit == resource.RLIM_INFINITY
    return _MOST if unlimited else max(1, min(_MOST, limit // _DESCRIPTORS))


class OpenSources:
    """The files of a dataset that stay open. Those of all datasets of a process are counted
    together, and the one that was not used for longest is closed first.
    """

    def __init__(self) -> None:
        self._number = next(_numbers)
        weakref.finalize(self, _forget, self._number).atexit = False

    def __reduce__(self) -> tuple[Any, ...]:
        return OpenSources, ()  # another process opens them itself

    def get(self, path: str) -> Source | None:
        key = self._number, path
        with _lock:
            if key in _kept:
                _kept.move_to_end(key)
            return _kept.get(key)

    def keep(self, path: str, source: Source) -> None:
        with _lock:
            _kept[self._number, path] = source
            while len(_kept) > _most_kept():
                _kept.popitem(last=False)


_numbers = count()
_kept: OrderedDict[tuple[int, str], Source] = OrderedDict()
# The garbage collector may forget a dataset at any moment, also while the lock is held.
_lock = RLock()


def _forget(number: int) -> None:
    with _lock:
        for key in [key for key in _kept if key[0] == number]:
            _kept.pop(key, None)


@dataclass(frozen=True)
class _Weight:
    """What is known of a column without opening its file."""

    row_bytes: int = 1
    chunk_rows: int = 1
    band_bytes: int = 0

    @classmethod
    def of(cls, column: Source) -> _Weight:
        return cls(column.row_bytes(), column.chunk_rows, column.band_bytes)


class ReopenedSource:
    """One of many files: what is known of it is kept, and it is opened when its rows are
    read. ``reopen`` is given the columns that it had.
    """

    def __init__(
        self, source: Source, reopen: Callable[[Schema], Source], kept: OpenSources
    ) -> None:
        self._schema, self._files, self._origin = source.schema, source.files, source.origin
        self._rows = len(source)
        self._parts = {name: _Weight.of(source.select([name])) for name in source.schema}
        self._reopen, self._kept = reopen, kept
        self._whole = source.schema
        self._direct = True
        # Whether it has been read before, and checked if it is small.
        self._read = False

    def _open(self) -> Source:
        path = self._files[0]
        key = path if self._direct else f"{path}\0"
        source = self._kept.get(key)
        if source is None:
            source = self._reopen(self._whole)
            source = source if self._direct else reference(source)
            if (source.schema, len(source)) != (self._whole, self._rows):
                raise DataError(
                    f"{path}: it has {len(source):,} rows of {source.schema}, but had "
                    f"{self._rows:,} of {self._whole} when it was opened; open it again",
                    file=path,
                )
            if self._read and isinstance(source, ColumnsSource):
                source.trust()
            self._kept.keep(key, source)
        return source if self._schema is self._whole else source.select(list(self._schema))

    def select(self, names: Sequence[str]) -> ReopenedSource:
        chosen = copy(self)
        schema = self._schema.select(names)
        chosen._schema = schema  # noqa: SLF001  # it is one of these
        return chosen

    def reference(self) -> Source:
        """The same rows, read through the library of the format."""
        other = copy(self)
        other._direct = False  # noqa: SLF001  # it is one of these
        return other

    @property
    def schema(self) -> Schema:
        return self._schema

    @property
    def files(self) -> list[str]:
        return self._files

    @property
    def origin(self) -> str:
        return self._origin

    @property
    def skipped(self) -> Sequence[Skipped]:
        return ()

    @property
    def chunk_rows(self) -> int:
        # Of the column that weighs most, as in a file that is open.
        heaviest = max(self._weights(), key=lambda part: part.row_bytes, default=_Weight())
        return heaviest.chunk_rows

    @property
    def band_bytes(self) -> int:
        return sum(part.band_bytes for part in self._weights())

    def _weights(self) -> list[_Weight]:
        return [self._parts[name] for name in self._schema]

    def __len__(self) -> int:
        return self._rows

    def known_rows(self) -> int | None:
        return self._rows

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        # A view would keep the file open for as long as it is in use.
        batch = self._open().read(start, stop, limit)
        self._read = True
        return {name: owned(column) for name, column in batch.items()}

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        batch = self._open().gather(rows)
        self._read = True
        return batch

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        return self._open().row_sizes(rows)

    def largest_row(self, above: int) -> tuple[int, int] | None:
        return self._open().largest_row(above)

    def column(self, name: str) -> npt.NDArray[Any] | None:
        return self._open().column(name)

    def row_bytes(self) -> int:
        return max(1, sum(part.row_bytes for part in self._weights()))

    def check_sums(self) -> None:
        check = getattr(self._open(), "check_sums", None)
        if check is not None:
            check()

    def info(self) -> Info:
        return self._open().info()
