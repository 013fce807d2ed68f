"""Arrays that grow side by side in unnamed files, until they are joined into one file."""

from __future__ import annotations

import os
import resource
import struct
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, Generic, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.local.output import Output, OutputStream, Spooler

_Key = TypeVar("_Key", bound=Hashable)

# Bytes of an array written at once, and bytes of all arrays that may wait to be written.
_SPAN_SIZE = 1 << 20
_MAX_HELD = 8 << 20
# The most spool files to use, and the number of allowed file descriptors per spool file.
_MOST_SPOOLS, _DESCRIPTORS = 64, 32
# Precedes each span of an array: its size, and where the previous one begins (-1 if first).
_LINK = struct.Struct("<qq")


class SpooledArrays(Generic[_Key]):
    """Arrays of known dtypes and unknown lengths."""

    def __init__(self, output: Output, dtypes: Mapping[_Key, np.dtype[Any]]) -> None:
        self._held = 0
        self._arrays: dict[_Key, SpooledArray] = {}
        self._spools: list[_Spool] = []
        spooler = Spooler()
        # Neighbours share a spool file, which is deleted before the next file is joined.
        share = -(-len(dtypes) // _most_spools())
        for i, (key, dtype) in enumerate(dtypes.items()):
            if i % share == 0:
                self._spools.append(_Spool(output.scratch(spooler)))
            self._arrays[key] = SpooledArray(dtype, self._spools[-1])

    def append(self, key: _Key, rows: npt.NDArray[Any]) -> None:
        """Append rows to an array, and write all arrays if much waits."""
        self._arrays[key].append(rows)
        self._held += rows.nbytes
        # Each array holds few bytes, but there may be many.
        if self._held > _MAX_HELD:
            self._flush()

    def _flush(self) -> None:
        for array in self._arrays.values():
            array.flush()
        for spool in self._spools:
            spool.stream.flush()
        self._held = 0

    def finish(self) -> dict[_Key, SpooledArray]:
        """Write what waits, and return the arrays, to be read in this order."""
        self._flush()
        for spool in self._spools:
            spool.stream.finish()
        return self._arrays


class SpooledArray:
    """One of the arrays, while the output is being written."""

    def __init__(self, dtype: np.dtype[Any], spool: _Spool) -> None:
        #: The number of rows, and their bytes.
        self.rows = self.size = 0
        self._dtype, self._spool = dtype, spool
        self._pending: list[npt.NDArray[np.uint8]] = []
        self._held = 0
        self._last = -1
        spool.arrays += 1

    def append(self, rows: npt.NDArray[Any]) -> None:
        self.rows += len(rows)
        if rows.size:
            data = np.ascontiguousarray(rows, self._dtype).reshape(-1).view(np.uint8)
            # Copy pending data, because a view would keep all columns of its batch alive.
            self._pending.append(data if len(data) >= _SPAN_SIZE else data.copy())
            self._held += len(data)
            self.size += len(data)
            if self._held >= _SPAN_SIZE:
                self.flush()

    def flush(self) -> None:
        """Write pending data to the spool file."""
        pending, self._pending, self._held = self._pending, [], 0
        if pending:
            self._last = self._spool.append(pending, self._last)

    def read(self) -> Iterator[bytes]:
        """Read the bytes of the rows, once all arrays are finished, and give their space back."""
        yield from self._spool.read(self._last)
        # Free the disk space early, so that few arrays are on disk twice at any time.
        self._spool.leave()


class _Spool:
    """A file with spans of several arrays, in the order they were added.

    Each span is preceded by its size and the start of the previous span of the same array.
    """

    def __init__(self, stream: OutputStream) -> None:
        self.stream = stream
        self.arrays = 0
        self._size = 0

    def append(self, buffers: list[npt.NDArray[np.uint8]], previous: int) -> int:
        """Append a span, given as buffers, and return its start."""
        size, begin = sum(map(len, buffers)), self._size
        self.stream.write(_LINK.pack(size, previous))
        for buffer in buffers:
            self.stream.write(buffer)
        self._size += _LINK.size + size
        return begin

    def read(self, last: int) -> Iterator[bytes]:
        """Read the bytes of an array, given the start of its last span.

        Finish the stream first.
        """
        file = self.stream.reader().fileno()
        found: list[tuple[int, int]] = []
        while last >= 0:
            size, previous = _LINK.unpack(os.pread(file, _LINK.size, last))
            found.append((last + _LINK.size, size))
            last = previous
        for begin, size in reversed(found):
            for at in range(begin, begin + size, _SPAN_SIZE):
                yield os.pread(file, min(_SPAN_SIZE, begin + size - at), at)

    def leave(self) -> None:
        """Note that one of the arrays has been read; delete the file after the last one."""
        self.arrays -= 1
        if self.arrays == 0:
            self.stream.output.discard()


def _most_spools() -> int:
    """Return how many spool files to use: few enough that several sinks can run at once."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    unlimited = limit == resource.RLIM_INFINITY
    return _MOST_SPOOLS if unlimited else max(1, min(_MOST_SPOOLS, limit // _DESCRIPTORS))
