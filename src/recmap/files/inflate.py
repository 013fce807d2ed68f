"""Deflate, both ways: the libraries, and the threads they run on."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from typing import Any, Literal

from isal import isal_zlib
from zlib_ng import zlib_ng

from recmap.files.cpus import pool_size
from recmap.files.threads import Threads

__all__ = ["deflate", "inflater", "threads"]

# Measured on ARM: zlib-ng inflates 1.5 times as fast as ISA-L, whose fast paths are
# written for x86.
_INFLATE = isal_zlib if platform.machine() in ("x86_64", "AMD64") else zlib_ng
# ISA-L compresses 2 to 4 times as fast as zlib does by default, to about the same size.
_LEVEL = 3
_RAW = -15
_WBITS = {"gzip": 31, "zlib": 15}


def inflater(
    compression: Literal["gzip", "zlib"], *, whole: bool = False
) -> tuple[Any, type[Exception]]:
    """A new decompressor of one member, and the error it raises. It is given the ``whole`` of
    it in one call, with room for all it holds, or piece by piece.
    """
    # Piece by piece, ISA-L loses its place near the end of a zlib stream, whose trailer is
    # shorter than what it reads ahead: up to three bytes behind it vanish, and some streams
    # seem to be cut. In a gzip member this does not happen.
    library = _INFLATE if whole or compression == "gzip" else zlib_ng
    return library.decompressobj(wbits=_WBITS[compression]), library.error


def deflate(block: bytes, last: bool) -> bytes:
    """The block alone, without header or checksum. If it is not the last of its stream
    it ends at a whole byte, where the next one can be appended.
    """
    engine = isal_zlib.compressobj(_LEVEL, isal_zlib.DEFLATED, _RAW)
    end = isal_zlib.Z_FINISH if last else isal_zlib.Z_SYNC_FLUSH
    return engine.compress(block) + engine.flush(end)


def threads() -> Threads:
    """One for each processor that may be used, for all streams of this process."""
    return _threads(os.getpid(), pool_size())


# Some conversions in little memory may run beside others.
@lru_cache(maxsize=4)
def _threads(process: int, count: int) -> Threads:
    """A fork has no threads, and makes its own."""
    return Threads(count, f"recmap-deflate-{process}")
