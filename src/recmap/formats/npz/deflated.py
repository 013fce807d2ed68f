"""A deflated stretch of a file, read by offset as if it were plain."""

from __future__ import annotations

from threading import Lock

import numpy as np
import numpy.typing as npt
from isal import isal_zlib

from recmap.errors import CompressionError
from recmap.files.cpus import thread_count
from recmap.files.mapped import MappedFile

__all__ = ["Deflated"]

_PIECE = 1 << 18
# Bytes behind a pass that can be read again: the offsets of ragged rows are read with
# one of overlap, which must not make it begin anew.
_LOOK_BACK = 1 << 12
# Deflate cannot do better: a stream that claims to would only be believed to reserve memory.
_MAX_RATIO = 1032


class Deflated:
    """``size`` plain bytes, deflated in ``packed`` bytes of a file from ``start`` on.

    A read goes on where an earlier one ended, so that a pass inflates once; one that
    goes back begins anew. Every thread may have its pass.
    """

    def __init__(
        self, file: MappedFile, name: str, start: int, packed: int, size: int, crc: int
    ) -> None:
        self.file, self.name = file, name
        self.start, self.packed, self.size, self.crc = start, packed, size, crc
        self._passes: list[_Pass] = []
        self._lock = Lock()
        self._known = size == 0
        if size > (packed + 16) * _MAX_RATIO:
            raise self.error(f"{packed:,} bytes cannot be {size:,} when inflated")

    def read(self, offset: int, size: int) -> npt.NDArray[np.uint8]:
        """Plain bytes; ``offset + size`` is not beyond the end."""
        out = np.empty(size, np.uint8)
        begun = self._begun(offset)
        begun.read(offset, out)
        with self._lock:
            self._passes.append(begun)
            del self._passes[: -thread_count()]
        return out

    @property
    def known(self) -> bool:
        """Whether all of it was inflated in one pass, and its CRC was right."""
        return self._known

    @property
    def ahead(self) -> int:
        """None: it would be inflated twice."""
        return 0

    def passed(self, start: int, stop: int, rows: int, *, in_order: bool) -> None:
        """Nothing: bytes are checked as they are inflated."""

    def check(self) -> None:
        """Inflate all of it, unless that has been done."""
        whole = _Pass(self)
        piece = np.empty(_PIECE, np.uint8)
        while not self._known and whole.position < self.size:
            whole.read(whole.position, piece[: self.size - whole.position])

    def whole(self, crc: int) -> None:
        """All of it was inflated."""
        if crc != self.crc:
            raise self.error(
                f"the CRC is {crc:#010x}, expected {self.crc:#010x}: it is damaged; make it anew, "
                "or copy it again"
            )
        self._known = True

    def _begun(self, offset: int) -> _Pass:
        """The pass that has least to skip until ``offset``."""
        with self._lock:
            fit = [p for p in self._passes if p.earliest <= offset]
            if not fit:
                return _Pass(self)
            best = max(fit, key=lambda p: p.position)
            self._passes.remove(best)
            return best

    def error(self, why: str) -> CompressionError:
        return CompressionError(
            f"{self.file.path}: {self.name}: {why}", file=self.file.path, byte=self.start
        )


class _Pass:
    """Inflates from the beginning on; belongs to one thread at a time."""

    def __init__(self, source: Deflated) -> None:
        self._source = source
        self._engine = isal_zlib.decompressobj(wbits=-15)
        self._at = source.start
        self._pending = b""
        self._crc = 0
        self._tail = b""
        # Plain bytes that were passed.
        self.position = 0

    @property
    def earliest(self) -> int:
        """Where a read may begin without beginning anew."""
        return self.position - len(self._tail)

    def read(self, offset: int, out: npt.NDArray[np.uint8]) -> None:
        while self.position < offset:
            self._next(min(_PIECE, offset - self.position))
        held = self._tail[offset - self.earliest :][: len(out)]
        out[: len(held)] = np.frombuffer(held, np.uint8)
        filled = len(held)
        while filled < len(out):
            piece = self._next(min(_PIECE, len(out) - filled))
            out[filled : filled + len(piece)] = np.frombuffer(piece, np.uint8)
            filled += len(piece)

    def _next(self, most: int) -> bytes:
        """The next plain bytes, ``most`` or fewer, but one at least."""
        source = self._source
        end = source.start + source.packed
        piece = b""
        while not piece:
            ended = self._engine.eof or (not self._pending and self._at == end)
            if not self._pending:
                stop = min(self._at + _PIECE, end)
                self._pending = source.file.bytes[self._at : stop].tobytes()
                self._at = stop
            try:
                # With nothing left to read, what the engine still holds is asked for.
                piece = b"" if self._engine.eof else self._engine.decompress(self._pending, most)
            except isal_zlib.error as e:  # type: ignore[misc]  # isal's stub errs
                raise source.error(f"damaged deflate stream near byte {self._at:,}: {e}") from e
            self._pending = self._engine.unconsumed_tail
            if ended and not piece:
                raise source.error(
                    f"the deflate stream ends after {self.position:,} of {source.size:,} bytes"
                )
        self._pass_by(piece)
        return piece

    def _pass_by(self, piece: bytes) -> None:
        self.position += len(piece)
        self._tail = (self._tail + piece[-_LOOK_BACK:])[-_LOOK_BACK:]
        self._crc = isal_zlib.crc32(piece, self._crc)
        if self.position == self._source.size:
            self._source.whole(self._crc)
