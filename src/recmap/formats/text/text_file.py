"""The bytes of a text file: mapped, or inflated again from the beginning when rows go back."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from threading import RLock
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import CompressionError, MissingPackageError
from recmap.formats.inflated_file import InflatedFile, inflated_file
from recmap.local.inflate import inflate
from recmap.local.local_path import located
from recmap.recognise.sniff import sniff
from recmap.tfrecord.stream_index import load_stream_index

Packing: TypeAlias = Literal["gzip", "zstd"] | None
Bytes: TypeAlias = npt.NDArray[np.uint8]

_PACKINGS: tuple[Literal["gzip", "zstd"], ...] = ("gzip", "zstd")
_MARK = b"\xef\xbb\xbf"
# Mapped bytes that are scanned at once: few at first, so that the first rows come soon. Those of an
# object are in memory meanwhile.
_FIRST_WINDOW, _WINDOW, _FETCHED = 1 << 20, 64 << 20, 8 << 20
# Inflated bytes that are handed on at once, and that are kept for rows read after they were found.
_INFLATED, _KEPT = 1 << 20, 32 << 20
_LEVEL = 3


class TextFile(ABC):
    """The bytes of a text, by their place in it."""

    packing: Packing = None
    #: Where the rows begin: after a byte order mark.
    begin: int

    def __init__(self, path: str) -> None:
        self.path = path

    @abstractmethod
    def window(self, at: int) -> tuple[Bytes, int]:
        """Return the bytes from a place on, some at a time; none at the end of the file.

        The second value is the byte that follows, or -1 at the end of the file.
        """

    @abstractmethod
    def span(self, begin: int, end: int) -> Any:
        """Return a context with the bytes of a span."""

    def refuse_changed(self) -> None:
        """Raise if the file was truncated, if reading it would not."""
        return


class PlainText(TextFile):
    """A mapped file, or one whose bytes are fetched or inflated when they are held."""

    def __init__(self, path: str, inflated: InflatedFile | None = None) -> None:
        """``inflated`` is the plain file, if it is compressed with gzip."""
        super().__init__(path)
        self.packing = None if inflated is None else "gzip"
        #: The parts of the file that are inflated on their own.
        self.parts = 0 if inflated is None else inflated.chunks
        self.mapped = located(path).map() if inflated is None else inflated
        with self.span(0, min(len(_MARK), self.mapped.size)) as head:
            self.begin = len(_MARK) if head.tobytes() == _MARK else 0

    def window(self, at: int) -> tuple[Bytes, int]:
        size = min(_WINDOW if self.mapped.whole else _FETCHED, max(_FIRST_WINDOW, at))
        end = min(at + size, self.mapped.size)
        with self.mapped.hold(at, min(end + 1, self.mapped.size)):
            after = int(self.mapped.bytes[end]) if end < self.mapped.size else -1
            found = self.mapped.bytes[at:end]
            if not self.mapped.whole:
                found = found.copy()
        self.mapped.will_read(at, end)
        return found, after

    @contextmanager
    def span(self, begin: int, end: int) -> Iterator[Bytes]:
        with self.mapped.hold(begin, min(end, self.mapped.size)):
            yield self.mapped.bytes[begin:end]

    @contextmanager
    def spans(self, begins: npt.ArrayLike, ends: npt.ArrayLike) -> Iterator[Bytes]:
        """Return a context with all bytes of the file, of which only these spans may be read."""
        with self.mapped.hold(begins, ends):
            yield self.mapped.bytes

    def refuse_changed(self) -> None:
        self.mapped.check_size()


class PackedText(TextFile):
    """The plain bytes of a compressed file, in one pass that starts again to go back.

    The first time that it goes back in a file of gzip, it notes where inflating can begin.
    """

    def __init__(self, path: str, packing: Packing) -> None:
        super().__init__(path)
        self.packing = packing
        self._lock = RLock()
        self._indexed: PlainText | None = None
        self._tried = packing != "gzip"
        self._restart()
        self.begin = len(_MARK) if self._bytes(0, len(_MARK)).tobytes() == _MARK else 0

    def _restart(self) -> None:
        located(self.path).check_unchanged()
        self._process = os.getpid()
        self._chunks: deque[tuple[int, Bytes]] = deque()
        self._inflating = _inflated(self.path, self.packing)
        self._passed = 0
        # After an error, the rest of the stream is not its end.
        self._ended = self._failed = False

    def _advance(self) -> None:
        """Inflate another chunk, and drop the oldest ones."""
        parts, size = [], 0
        try:
            for plain in self._inflating:
                parts.append(plain)
                size += len(plain)
                if size >= _INFLATED:
                    break
        except BaseException:
            self._failed = True
            raise
        self._ended = size < _INFLATED
        if size:
            self._chunks.append((self._passed, np.frombuffer(b"".join(parts), np.uint8)))
            self._passed += size

    def _reach(self, begin: int, end: int) -> None:
        """Inflate up to a place, keeping what comes after ``begin``."""
        passed = bool(self._chunks) and self._chunks[0][0] > begin
        if passed and not self._tried:
            self._tried = True
            with suppress(CompressionError):  # the rows before the damage are read without an index
                self._indexed = PlainText(self.path, inflated_file(self.path))
                self._chunks.clear()
        if self._indexed is not None:
            return
        if self._failed or passed or self._process != os.getpid():
            self._restart()
        while self._passed < end and not self._ended:
            self._advance()
            while (
                len(self._chunks) > 1
                and self._chunks[1][0] <= begin
                and self._passed - self._chunks[0][0] > _KEPT
            ):
                self._chunks.popleft()

    def window(self, at: int) -> tuple[Bytes, int]:
        with self._lock:
            self._reach(at, at + _INFLATED + 1)
            if self._indexed is not None:
                return self._indexed.window(at)
            found = self._bytes(at, min(at + _INFLATED, self._passed))
            end = at + len(found)
            after = -1 if self._ended and end >= self._passed else int(self._bytes(end, end + 1)[0])
            return found, after

    def _bytes(self, begin: int, end: int) -> Bytes:
        self._reach(begin, end)
        if self._indexed is not None:
            with self._indexed.span(begin, end) as found:
                return found.copy()
        parts = [
            chunk[max(0, begin - first) : max(0, end - first)]
            for first, chunk in self._chunks
            if first < end and first + len(chunk) > begin
        ]
        return np.concatenate(parts) if parts else np.empty(0, np.uint8)

    @contextmanager
    def span(self, begin: int, end: int) -> Iterator[Bytes]:
        with self._lock:
            found = self._bytes(begin, end)
        yield found


def open_text(path: str) -> TextFile:
    """Open the bytes of a text, which may be compressed with gzip or zstd."""
    found = sniff(path)
    packing = next((p for p in _PACKINGS if found is not None and found.packed == p), None)
    if packing == "gzip" and (index := load_stream_index(path)) is not None:
        return PlainText(path, InflatedFile(path, index))
    return PlainText(path) if packing is None else PackedText(path, packing)


def _inflated(path: str, packing: Packing) -> Iterator[bytes]:
    if packing == "zstd":
        yield from _expand_zstd(path)
        return
    for part in inflate(path, "gzip"):
        if part.failure is not None:
            raise part.failure
        yield bytes(part.plain)


def _expand_zstd(path: str) -> Iterator[bytes]:
    """Yield the plain bytes of a file of one or more frames, through pyarrow."""
    pa = _pyarrow(path)
    with located(path).seekable() as file:
        stream = pa.CompressedInputStream(pa.PythonFile(file, "r"), "zstd")
        try:
            while plain := stream.read(_INFLATED):
                yield plain
        except (OSError, pa.ArrowException) as e:
            raise CompressionError(f"{path}: the zstd stream is damaged: {e}", file=path) from e


def zstd_compressor(path: str) -> Callable[[bytes], bytes]:
    """Return what compresses bytes as a frame of zstd."""
    codec = _pyarrow(path).Codec("zstd", compression_level=_LEVEL)
    return partial(codec.compress, asbytes=True)


def _pyarrow(path: str) -> Any:
    try:
        import pyarrow as pa
    except ModuleNotFoundError as e:
        raise MissingPackageError(f"{path}: zstd needs the package {e.name}", extra="arrow") from e
    return pa
