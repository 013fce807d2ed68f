"""Inflate between two places of a stream, straight into memory.

The Python packages of zlib-ng and ISA-L do not stop between the blocks of a stream, cannot begin
there, and allocate what they return in steps, each of which takes the GIL. Their C libraries can do
all of that without it, and most builds of the packages export them. The native core calls them,
except to find points. Where one is missing, files are read as streams, and nothing else changes.

We measured rapidgzip 0.16 and indexed_gzip 1.10, too, on one stream of 200 MB, in GB per second of
CPU time: ISA-L 0.45, zlib-ng 0.32, indexed_gzip 0.26 (which makes such an index, with zlib),
rapidgzip 0.23 with one thread. rapidgzip inflates a first pass on all cores, but aborts the
process if a file is still open at its end.
"""

from __future__ import annotations

import ctypes
import platform
from functools import cache
from typing import Literal, NamedTuple, cast

import numpy as np
import numpy.typing as npt
from isal import isal_zlib
from zlib_ng import zlib_ng

from recmap.native import _core

Bytes = npt.NDArray[np.uint8]

_X86 = platform.machine() in ("x86_64", "AMD64")
_WBITS = {"gzip": 31, "zlib": 15}
_WINDOW_SIZE = 1 << 15
# zlib's results, and its flush values.
_OK, _STREAM_END, _BUF_ERROR, _BLOCK = 0, 1, -5, 5
# Of data_type: the unused bits of the last byte read, and flags for the place between two blocks.
_UNUSED_BITS, _LAST_BLOCK, _BETWEEN_BLOCKS = 7, 64, 128
#: Plain bytes between two points, at least.
SPACING = 1 << 20


class DeflateError(Exception):
    """A stream is damaged."""


class Point(NamedTuple):
    """Where inflating can resume within a stream.

    ``position`` is the byte of the file that comes next; the last ``bits`` bits of the one before
    are not used yet. ``window`` are the plain bytes that the following ones may repeat, compressed.
    """

    position: int
    bits: int
    window: bytes


class _Zlib(ctypes.Structure):
    """zlib-ng's ``zng_stream``."""

    _fields_ = (
        ("next_in", ctypes.c_void_p),
        ("avail_in", ctypes.c_uint32),
        ("total_in", ctypes.c_size_t),
        ("next_out", ctypes.c_void_p),
        ("avail_out", ctypes.c_uint32),
        ("total_out", ctypes.c_size_t),
        ("msg", ctypes.c_char_p),
        ("state", ctypes.c_void_p),
        ("zalloc", ctypes.c_void_p),
        ("zfree", ctypes.c_void_p),
        ("opaque", ctypes.c_void_p),
        ("data_type", ctypes.c_int),
        ("adler", ctypes.c_uint32),
        ("reserved", ctypes.c_ulong),
    )


@cache
def _zlib() -> ctypes.CDLL | None:
    names = ("zng_inflate", "zng_inflateInit2", "zng_inflateEnd", "zng_inflateGetDictionary")
    try:
        library = ctypes.CDLL(zlib_ng.__file__)
        return library if all(hasattr(library, name) for name in names) else None
    except (OSError, AttributeError, TypeError):
        return None


@cache
def can_inflate() -> bool:
    """Return whether the native core has found a library. On ARM, zlib-ng is faster."""
    return (_X86 and _core.use_isal_of(isal_zlib.__file__)) or _core.use_zlib_ng_of(
        zlib_ng.__file__
    )


def can_resume() -> bool:
    """Return whether points can be found, and inflated from."""
    return can_inflate() and _zlib() is not None


class BlockInflater:
    """A decompressor for one stream, like those of ``zlib``, that finds points.

    After ``decompress``, ``found`` has the unused bits and the window of the point at which it
    stopped, if any.
    """

    def __init__(self, compression: Literal["gzip", "zlib"]) -> None:
        library = _zlib()
        assert library is not None
        self._library, self._stream = library, _Zlib()
        if library.zng_inflateInit2(ctypes.byref(self._stream), _WBITS[compression]) != _OK:
            raise MemoryError("zlib-ng")
        self._last = 0  # plain bytes before the last point
        self.eof = False
        self.unused_data = self.unconsumed_tail = b""
        self.found: tuple[int, bytes] | None = None

    def __del__(self) -> None:
        if hasattr(self, "_stream"):
            self._library.zng_inflateEnd(ctypes.byref(self._stream))

    def decompress(self, data: bytes, most: int) -> bytes:
        """Return up to ``most`` plain bytes, fewer if a point follows them."""
        stream, out = self._stream, np.empty(most, np.uint8)
        stream.next_in, stream.avail_in = _address(np.frombuffer(data, np.uint8)), len(data)
        stream.next_out, stream.avail_out = _address(out), most
        self.found, result = None, _OK
        while stream.avail_in and stream.avail_out and self.found is None and result == _OK:
            result = self._library.zng_inflate(ctypes.byref(stream), _BLOCK)
            between = stream.data_type & _BETWEEN_BLOCKS and not stream.data_type & _LAST_BLOCK
            if between and stream.total_out - self._last >= SPACING:
                self.found, self._last = self._window(), stream.total_out
        self.eof = result == _STREAM_END
        if result not in (_OK, _STREAM_END, _BUF_ERROR):
            raise DeflateError((stream.msg or b"damaged data").decode("ascii", "replace"))
        rest = data[len(data) - stream.avail_in :]
        self.unused_data, self.unconsumed_tail = (rest, b"") if self.eof else (b"", rest)
        return out[: most - stream.avail_out].tobytes()

    def _window(self) -> tuple[int, bytes]:
        window, size = np.empty(_WINDOW_SIZE, np.uint8), ctypes.c_uint32(0)
        self._library.zng_inflateGetDictionary(
            ctypes.byref(self._stream), ctypes.c_void_p(_address(window)), ctypes.byref(size)
        )
        packed: bytes = isal_zlib.compress(window[: size.value], 1)
        return self._stream.data_type & _UNUSED_BITS, packed


def open_window(packed: bytes) -> bytes:
    """Return the plain bytes of a window; raise a ValueError if it is not one."""
    engine, error = isal_zlib.decompressobj(), cast(type[Exception], isal_zlib.error)
    try:
        window: bytes = engine.decompress(packed, _WINDOW_SIZE + 1)
    except error as e:
        raise ValueError(f"window: {e}") from e
    if not engine.eof or len(window) > _WINDOW_SIZE:
        raise ValueError("window")
    return window


def _address(array: Bytes) -> int:
    return array.ctypes.data
