"""The plain bytes of a compressed file, as far as they have been inflated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from recmap.errors import CompressionError
from recmap.files.read_ahead import read_ahead
from recmap.native import _core
from recmap.tfrecord.inflate import inflate

__all__ = ["Entry", "Stream"]

# Held while the next sound record is searched: larger ones are not found.
_SEARCH_SIZE = 16 << 20
# What is made room for at first.
_FIRST_SIZE = 1 << 20
# Pieces, of up to 256 KB mostly, that are inflated while records are decoded.
_AHEAD = 8


@dataclass(frozen=True)
class Entry:
    """Where a file can be entered: a member, and the plain bytes before it."""

    position: int = 0
    base: int = 0


class Stream:
    """The plain bytes from ``base`` on, which is that of the entry at first.

    A stream that breaks ends there, or goes on behind the damage with ``skip``; ``failures``
    says why, and where in the plain bytes.
    """

    def __init__(
        self, path: str, compression: Literal["gzip", "zlib"], skip: bool, entry: Entry
    ) -> None:
        self.base = entry.base
        # Bytes of the file that have been inflated.
        self.passed = entry.position
        self.ended = False
        self.failures: list[tuple[int, CompressionError]] = []
        # Stays valid when the stream moves on.
        self.held: npt.NDArray[np.uint8] = np.empty(0, np.uint8)
        self._rest = memoryview(b"")
        self._entries: list[Entry] = []
        self._pieces = inflate(path, compression, entry.position, salvage=skip)
        self._begun = self._ahead = False

    def fill(self, size: int) -> bool:
        """Inflates until so much is held, or all there is; False if nothing is left."""
        if len(self.held) < size and not self.ended:
            if self._begun and not self._ahead:
                # Not for the first bytes: often no others are asked for.
                self._pieces, self._ahead = read_ahead(self._pieces, _AHEAD), True
            self._begun = True
        while len(self.held) < size and not self.ended:
            # A size that a record claims is not believed at once.
            self._extend(min(size, max(2 * len(self.held), _FIRST_SIZE)))
        return len(self.held) > 0

    def _extend(self, size: int) -> None:
        buffer, at = np.empty(size, np.uint8), len(self.held)
        buffer[:at] = self.held
        while at < size and (self._rest or self._next_piece(at)):
            count = min(len(self._rest), size - at)
            buffer[at : at + count] = np.frombuffer(self._rest, np.uint8, count)
            self._rest = self._rest[count:]
            at += count
        self.held = buffer[:at]
        self.held.flags.writeable = False

    def _next_piece(self, at: int) -> bool:
        """False if there is none. Its place is ``at`` bytes behind ``base``."""
        piece = next(self._pieces, None)
        while piece is not None and piece.failure is not None:
            self.failures.append((self.base + at, piece.failure))
            self.passed = piece.end
            piece = next(self._pieces, None)
        self.ended = piece is None
        if piece is None:
            return False
        if piece.begin is not None:
            self._entries.append(Entry(piece.begin, self.base + at))
        self._rest, self.passed = memoryview(piece.plain), piece.end
        return True

    def drop(self, size: int) -> None:
        """Moves on."""
        self.held = self.held[size:].copy()  # not to keep all of it
        self.base += size
        while len(self._entries) > 1 and self._entries[1].base <= self.base:
            del self._entries[0]

    @property
    def entry(self) -> Entry:
        """The nearest before ``base``, once something is held."""
        return self._entries[0]

    def behind(self, offset: int) -> int | None:
        """The end of the record at an offset, of which all is held, if another one begins
        there or the stream ends; else its length cannot be trusted.
        """
        length = int.from_bytes(self.held[offset : offset + 8], "little")
        after = offset + _core.FRAME_SIZE + length
        self.fill(after + _core.HEADER_SIZE)
        if self.ended and after == len(self.held):
            return after
        fault = _core.scan(self.held, _core.ScanRequest(after, limit=1)).fault
        return after if fault is None or fault.code == _core.FaultCode.data_cut else None

    def seek_record(self) -> bool:
        """Moves to the next sound record; False if none is in sight."""
        size = len(self.held)
        at = _core.find_record(self.held, 0, size)
        if at < size or self.ended:
            self.drop(at)
            return at < size
        # It may have begun near the end of what is held.
        self.drop(max(0, size - _SEARCH_SIZE))
        self.fill(len(self.held) + _SEARCH_SIZE)
        return False
