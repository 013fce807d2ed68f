"""Gzip files as memory: the plain bytes of a span are inflated before they are read.

The memory has the size of the plain file, but only what is held takes space. So everything that
reads mapped files reads these, too. The first pass over a file notes where inflating can begin, in
the index that compressed TFRecord files have.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cache
from itertools import count
from threading import Lock

import numpy as np
import numpy.typing as npt

from recmap.errors import CompressionError, DataError
from recmap.local.deflate import can_resume
from recmap.local.gzip import GZIP_MAGIC, stream_threads
from recmap.local.inflate import inflate
from recmap.local.local_path import located
from recmap.local.location import OpenFile
from recmap.machine.cpus import thread_count
from recmap.machine.lru import Lru
from recmap.machine.spans import (
    Places,
    as_places,
    merge_spans,
    numbers_within,
    within_pages,
)
from recmap.machine.sparse_memory import PAGE, SparseFile
from recmap.tfrecord.sidecar import stream_index_path
from recmap.tfrecord.stream_index import (
    IndexBuilder,
    StreamIndex,
    load_stream_index,
    save_stream_index,
)

# Plain bytes of chunks that this process keeps, of all files together.
_KEPT = 32 << 20
# Bytes that are read at once by what reads in order.
_WINDOW = 1 << 20

Bytes = npt.NDArray[np.uint8]


class InflatedFile(SparseFile):
    """The plain bytes of a gzip file. Only the spans that are held can be read."""

    def __init__(self, path: str, index: StreamIndex) -> None:
        super().__init__(path, index.size)
        self._index, self._number = index, next(_numbers)
        # By process: another thread may have a lock when a process is forked.
        self._locks = cache(lambda _: Lock())

    @property
    def chunks(self) -> int:
        """How many parts are inflated on their own."""
        return len(self._index)

    def opened(self) -> OpenFile:
        """Return the plain file for what reads it in order."""
        return _OpenInflated(self)

    def hold(
        self, begins: int | npt.ArrayLike, ends: int | npt.ArrayLike
    ) -> AbstractContextManager[None]:
        return self._held(*merge_spans(*as_places(begins, ends)))

    @contextmanager
    def _held(self, begins: Places, ends: Places) -> Iterator[None]:
        """Inflate the bytes of spans that ascend, and keep them while inside the context."""
        pages = numbers_within(*merge_spans(*within_pages(begins, ends, PAGE)))
        with self._locks(os.getpid()):
            self._users[pages] += 1
        try:
            self._fill(begins, ends)
            yield
        finally:
            with self._locks(os.getpid()):
                self._users[pages] -= 1
                self._free(pages)

    def _fill(self, begins: Places, ends: Places) -> None:
        """Copy spans from the chunks that they are in, some chunks at a time."""
        bases = self._index.bases
        first = np.searchsorted(bases, begins, "right") - 1
        chunks = np.unique(numbers_within(first, np.searchsorted(bases, ends, "left")))
        at_once = thread_count()
        for start in range(0, len(chunks), at_once):
            some = chunks[start : start + at_once].tolist()
            for chunk, plain in zip(some, self._inflated(some), strict=True):
                low, high = int(bases[chunk]), int(bases[chunk + 1])
                there = slice(
                    int(np.searchsorted(ends, low, "right")), int(np.searchsorted(begins, high))
                )
                for begin, end in zip(begins[there].tolist(), ends[there].tolist(), strict=True):
                    a, b = max(begin, low), min(end, high)
                    self._memory.bytes[a:b] = plain[a - low : b - low]

    def _inflated(self, chunks: Sequence[int]) -> list[Bytes]:
        if len(chunks) == 1:
            return [self._chunk(chunks[0])]
        return list(stream_threads().map(self._chunk, chunks))

    def _chunk(self, chunk: int) -> Bytes:
        """Return the plain bytes of a chunk, which may have been inflated before."""
        kept = _plain.get((self._number, chunk))
        if kept is not None:
            return kept
        with located(self.path).open() as file:
            plain, sound = self._index.chunks(file, "gzip", chunk, chunk + 1)
        if not sound:
            byte = int(self._index.bases[chunk])
            raise CompressionError(
                f"{self.path}: the gzip stream is damaged near byte {byte:,} of the plain data, or "
                f"{stream_index_path(self.path)} was made from other data; delete that, and open "
                "the file again",
                file=self.path,
                byte=byte,
            )
        _plain.put((self._number, chunk), plain)
        return plain


_numbers = count()
_plain = Lru[tuple[int, int], Bytes](_KEPT, len)


class _OpenInflated(OpenFile):
    """Reads an inflated file in windows."""

    def __init__(self, file: InflatedFile) -> None:
        self._file = file

    @property
    def size(self) -> int:
        return self._file.size

    def pread(self, count: int, at: int) -> bytes:
        end = min(at + count, self._file.size)
        with self._file.hold(at, max(at, end)):
            return self._file.bytes[at:end].tobytes()


def is_gzip(path: str) -> bool:
    """Return whether a file is compressed with gzip. The names of objects say so."""
    if located(path).remote:
        return path.lower().endswith((".gz", ".tgz"))
    with located(path).open() as file:
        return file.pread(len(GZIP_MAGIC), 0) == GZIP_MAGIC


def inflated_file(path: str) -> InflatedFile:
    """Open a gzip file, with the index next to it, or with one that a pass over the file makes."""
    index = load_stream_index(path)
    if index is None:
        if not can_resume():
            raise _refused(path, "the installed zlib-ng cannot resume inflating")
        changed = located(path).last_change()
        index = _noted(path)
        save_stream_index(path, index, changed)
    return InflatedFile(path, index)


def _noted(path: str) -> StreamIndex:
    builder, empty = IndexBuilder(), True
    for block in inflate(path, "gzip", points=True):
        if block.failure is not None:
            raise block.failure
        builder.add(block)
        if empty and len(block.plain):
            builder.add_records(0, np.zeros(1, np.int64))
            empty = False
    if empty:
        raise DataError(f"{path}: there is nothing in this gzip file", file=path)
    index = builder.finished(1, alone=True)
    if index is None:
        raise _refused(path, "it is too large for an index of its gzip stream")
    return index


def _refused(path: str, why: str) -> CompressionError:
    return CompressionError(
        f"{path}: rows of this compressed file cannot be read by number: {why}; decompress it, "
        f"gunzip {path}",
        file=path,
    )
