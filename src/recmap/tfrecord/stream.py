"""The plain bytes of a compressed file, as far as they have been inflated."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from recmap import _core
from recmap.errors import CompressionError
from recmap.files.ahead import read_ahead
from recmap.tfrecord.inflate import inflate

__all__ = ["Entry", "Stream"]

# Held while the next sound record is searched: larger ones are not found.
_SEARCH_SIZE = 16 << 20
# Pieces, of 128 or 256 KB mostly, that are inflated while records are decoded.
_AHEAD = 32


@dataclass(frozen=True)
class Entry:
    """Where a file can be entered: a member, and the plain bytes before it."""

    position: int = 0
    base: int = 0


class Stream:
    """The plain bytes from ``base`` on, which is that of the entry at first.

    With ``skip`` a stream that breaks ends there, and ``failure`` says why.
    """

    def __init__(
        self, path: str, compression: Literal["gzip", "zlib"], skip: bool, entry: Entry
    ) -> None:
        self.base = entry.base
        self.ended = False
        self.failure: str | None = None
        self._held = b""
        self._skip = skip
        self._entries: list[Entry] = []
        self._pieces = inflate(path, compression, entry.position)
        self._begun = self._ahead = False

    def fill(self, size: int) -> bool:
        """Inflates until so much is held, or all there is; False if nothing is left."""
        if len(self._held) < size and not self.ended:
            if self._begun and not self._ahead:
                # Not for the first bytes: often no others are asked for.
                self._pieces, self._ahead = read_ahead(self._pieces, _AHEAD), True
            self._begun = True
            self._held = b"".join([self._held, *self._more(size - len(self._held))])
        return len(self._held) > 0

    def _more(self, size: int) -> Iterator[bytes]:
        at = self.base + len(self._held)
        end = at + size
        try:
            while at < end:
                begin, piece = next(self._pieces, (None, None))
                if piece is None:
                    self.ended = True
                    return
                if begin is not None:
                    self._entries.append(Entry(begin, at))
                at += len(piece)
                yield piece
        except CompressionError as e:
            if not self._skip:
                raise
            self.ended, self.failure = True, str(e)

    def drop(self, size: int) -> None:
        """Moves on."""
        self._held = self._held[size:]
        self.base += size
        while len(self._entries) > 1 and self._entries[1].base <= self.base:
            del self._entries[0]

    @property
    def entry(self) -> Entry:
        """The nearest before ``base``, once something is held."""
        return self._entries[0]

    @property
    def bytes(self) -> npt.NDArray[np.uint8]:
        """What is held. Stays valid when the stream moves on."""
        return np.frombuffer(self._held, np.uint8)

    def seek_record(self) -> bool:
        """Moves to the next sound record; False if none is in sight."""
        size = len(self._held)
        at = _core.find_record(self.bytes, 0, size)
        if at < size or self.ended:
            self.drop(at)
            return at < size
        # It may have begun near the end of what is held.
        self.drop(max(0, size - _SEARCH_SIZE))
        self.fill(len(self._held) + _SEARCH_SIZE)
        return False
