"""The codecs that chunks were encoded with, and how to undo them.

We measured the packages that decode without the GIL, on chunks of 1 MB. For deflate, ISA-L, which
recmap needs anyway, is about twice as fast as zlib, 1.6 times as fast as zlib-ng, and 0.93 times as
fast as libdeflate. For zstd, LZ4 and Blosc, numcodecs, which comes with zarr, is as fast as cramjam
and imagecodecs, and decodes into memory that it is given. So no other package is needed. Where
numcodecs is not installed, h5py decodes.

The native core decodes many chunks in one call, with the C libraries in these packages, where they
can be found (``CodecChain.native``). What is here decodes the others, says what is wrong with a
chunk, and is what the native core is compared with.

Sizes and checksums are compared before they are believed: nothing that a chunk claims is allocated.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import cache, cached_property, partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.local.deflate import can_inflate
from recmap.local.gzip import inflater
from recmap.machine.memory import empty_bytes
from recmap.native import _core

Bytes = npt.NDArray[np.uint8]
# What decodes bytes to so many, and writes them to the array that it is given, if any.
Undo = Callable[[Bytes, int, "Bytes | None"], Bytes]

_CHECKSUM = 4
_BLOSC_HEADER = 16
_LZ4_GROWTH = 255
# Of the blocks of HDF5's LZ4 and bitshuffle: before all, and before each.
_BLOCKS_HEADER, _BLOCK_HEADER = 12, 4
# Bytes of a block that bitshuffle makes unless it is told otherwise, and the least items.
_BITSHUFFLE_BLOCK, _BITSHUFFLE_LEAST = 8192, 128


class ChunkError(Exception):
    """A chunk is damaged: its bytes are not what was written."""


class Codec(NamedTuple):
    """A codec: its name, how to undo it, and the bytes that it adds; None if it compresses.

    ``native`` is the same codec in the native core, if it has it.
    """

    name: str
    undo: Undo
    added: int | None = 0
    native: _core.ChunkCodec | None = None


class CodecChain:
    """The codecs of an array, in the order they were applied, and the size of a decoded chunk."""

    def __init__(self, codecs: Sequence[Codec], nbytes: int) -> None:
        self.codecs, self.nbytes = tuple(codecs), nbytes

    def __bool__(self) -> bool:
        return bool(self.codecs)

    @property
    def known(self) -> bool:
        """Whether sizes are known after every step: at most one codec may compress."""
        return sum(codec.added is None for codec in self.codecs) <= 1

    @cached_property
    def native(self) -> list[_core.ChunkCodec] | None:
        """The codecs for the native core; None if it cannot undo all of them."""
        found = [codec.native for codec in self.codecs if codec.native is not None]
        return found if self.known and len(found) == len(self.codecs) else None

    def undo(self, stored: Bytes, mask: int = 0, out: Bytes | None = None) -> Bytes:
        """Decode a chunk. If bit ``i`` of the mask is set, codec ``i`` was not applied.

        The result may be ``out``, which has the size of a chunk, or any other array.
        """
        used = [codec for i, codec in enumerate(self.codecs) if not mask >> i & 1]
        while used:
            codec = used.pop()
            size = self.nbytes + sum(before.added or 0 for before in used)
            stored = codec.undo(stored, size, None if used else out)
        if len(stored) != self.nbytes:
            raise ChunkError(f"it has {len(stored):,} bytes, not {self.nbytes:,}")
        return stored


def _inflate(compression: Any, data: Bytes, size: int, out: Bytes | None) -> Bytes:
    del out  # ISA-L allocates what it returns
    found: list[bytes] = []
    rest: Any = data
    while True:
        engine, error = inflater(compression, whole=True)
        room = size - sum(len(part) for part in found)
        try:
            # Ask for one byte too many, to detect a stream that is too long.
            found.append(engine.decompress(rest, room + 1))
        except error as e:
            raise ChunkError(f"its deflate stream is damaged: {e}") from e
        if len(found[-1]) > room:
            raise ChunkError(f"it inflates to more than {size:,} bytes")
        # A gzip file may have several members.
        if compression != "gzip" or not engine.eof or not engine.unused_data.strip(b"\0"):
            break
        rest = engine.unused_data
    inflated = found[0] if len(found) == 1 else b"".join(found)
    if len(inflated) < size or not engine.eof:
        raise ChunkError(f"its deflate stream ends after {len(inflated):,} of {size:,} bytes")
    return np.frombuffer(inflated, np.uint8)


def _expand_lzf(data: Bytes, size: int, out: Bytes | None) -> Bytes:
    # The size comes from the file, so do not allocate more than the stream could fill.
    if size > len(data) * _core.LZF_MOST_GROWTH:
        raise ChunkError(f"{len(data):,} bytes of LZF cannot make {size:,}")
    out = empty_bytes(size) if out is None else out
    fault, made = _core.lzf_expand(data, out)
    if fault is not _core.LzfFault.none:
        raise ChunkError(f"its LZF stream {_LZF_FAULTS[fault]} after {made:,} of {size:,} bytes")
    return out


_LZF_FAULTS = {
    _core.LzfFault.cut: "is cut off",
    _core.LzfFault.too_long: "overflows",
    _core.LzfFault.too_short: "ends",
    _core.LzfFault.before_start: "points before its start",
}


def _unshuffle(item_size: int, data: Bytes, size: int, out: Bytes | None) -> Bytes:
    del size  # that of what is shuffled, which may be compressed
    if item_size < 2:
        return data
    out = empty_bytes(len(data)) if out is None or len(out) != len(data) else out
    _core.unshuffle(data, item_size, out)
    return out


def _check_fletcher32(data: Bytes, size: int, out: Bytes | None) -> Bytes:
    del size, out
    data, stored = _without_checksum(data)
    found = _core.fletcher32(data)
    # HDF5 up to 1.6.2 swapped the two bytes of each half.
    swapped = (found & 0x00FF00FF) << 8 | found >> 8 & 0x00FF00FF
    return _checked(data, stored, found, swapped)


def _check_crc32c(data: Bytes, size: int, out: Bytes | None) -> Bytes:
    del size, out
    data, stored = _without_checksum(data)
    return _checked(data, stored, _core.crc32c(data))


def _without_checksum(data: Bytes) -> tuple[Bytes, int]:
    if len(data) < _CHECKSUM:
        raise ChunkError("it is too short for its checksum")
    return data[:-_CHECKSUM], int.from_bytes(data[-_CHECKSUM:].tobytes(), "little")


def _checked(data: Bytes, stored: int, *found: int) -> Bytes:
    if stored not in found:
        raise ChunkError(f"its checksum is {found[0]:#010x}, but {stored:#010x} was written")
    return data


def _sum_up(dtype: np.dtype[Any], data: Bytes, size: int, out: Bytes | None) -> Bytes:
    """Undo ``delta``, which stores the differences between numbers."""
    if len(data) != size or size % dtype.itemsize:
        raise ChunkError(f"it has {len(data):,} bytes of differences, not {size:,}")
    out = empty_bytes(size) if out is None else out
    np.cumsum(data.view(dtype), dtype=dtype, out=out.view(dtype))
    return out


def _expand_zstd(data: Bytes, size: int, out: Bytes | None) -> Bytes:
    out = empty_bytes(size) if out is None else out
    decompress = _numcodecs().zstd.decompress
    try:
        decompress(data, out)
    except (RuntimeError, ValueError) as e:
        raise ChunkError(f"its zstd frame is damaged or has another size: {e}") from e
    # numcodecs does not say how much it has written. If the header does not either, the content
    # fills the room if it does not fit into less.
    if _zstd_size(data) != size:
        with suppress(RuntimeError, ValueError):
            decompress(data, empty_bytes(size - 1))
            raise ChunkError(f"its zstd frame has fewer than {size:,} bytes")
    return out


def _zstd_size(data: Bytes) -> int | None:
    """Return the size of the content of a frame, if its header says so."""
    head = data[:18].tobytes()
    sizes, one_segment, dictionary = head[4] >> 6, head[4] >> 5 & 1, head[4] & 3
    at = 5 + (not one_segment) + (0, 1, 2, 4)[dictionary]
    length = (one_segment, 2, 4, 8)[sizes]
    told = int.from_bytes(head[at : at + length], "little") + (256 if length == 2 else 0)
    return told if length and len(head) >= at + length else None


def _expand_lz4(data: Bytes, size: int, out: Bytes | None) -> Bytes:
    """Undo LZ4 as numcodecs stores it: a block after its decoded size."""
    told = int.from_bytes(data[:4].tobytes(), "little")
    if told != size or size > len(data) * _LZ4_GROWTH:
        raise ChunkError(f"its LZ4 block has {told:,} bytes, not {size:,}")
    out = empty_bytes(size) if out is None else out
    try:
        _numcodecs().lz4.decompress(data, out)
    except (RuntimeError, ValueError) as e:
        raise ChunkError(f"its LZ4 block is damaged: {e}") from e
    return out


def _expand_lz4_block(data: Bytes, size: int, out: Bytes | None) -> Bytes:
    header = np.frombuffer(size.to_bytes(4, "little"), np.uint8)
    return _expand_lz4(np.concatenate([header, data]), size, out)


def _expand_or_copy(data: Bytes, size: int, out: Bytes | None) -> Bytes:
    if len(data) < size or out is None:
        return _expand_lz4_block(data, size, out)
    if len(data) > size:
        raise ChunkError(f"a block of {size:,} bytes takes {len(data):,}")
    out[:] = data
    return out


def _expand_hdf5_lz4(data: Bytes, size: int, out: Bytes | None) -> Bytes:
    """Undo the LZ4 filter of HDF5: blocks of one size, those that did not shrink as they were."""
    return _expand_blocks(_expand_or_copy, data, size, size, out)[0]


def _expand_bitshuffle(
    item_size: int, block_items: int, expand: Undo | None, data: Bytes, size: int, out: Bytes | None
) -> Bytes:
    """Undo bitshuffle, whose blocks may be compressed; items of no whole eight are as they were."""
    if expand is not None:
        whole = size // item_size // 8 * 8 * item_size
        planes, block, end = _expand_blocks(expand, data, size, whole, None)
        rest = data[end:]
        if len(rest) != size - whole or block % (8 * item_size):
            raise ChunkError(f"its blocks of {block:,} bytes are followed by {len(rest):,} bytes")
        planes[whole:] = rest
        data, block_items = planes, block // item_size
    out = empty_bytes(len(data)) if out is None or len(out) != len(data) else out
    _core.unbitshuffle(data, item_size, block_items, out)
    return out


def _expand_blocks(
    expand: Undo, data: Bytes, size: int, whole: int, out: Bytes | None
) -> tuple[Bytes, int, int]:
    """Decode the first ``whole`` bytes of a chunk from blocks, as two filters of HDF5 store them.

    Return the chunk, the size of a decoded block, and where the last one ends.
    """
    told = int.from_bytes(data[:8].tobytes(), "big")
    block = int.from_bytes(data[8:_BLOCKS_HEADER].tobytes(), "big")
    if told != size or size > len(data) * block:
        raise ChunkError(f"its blocks of {block:,} bytes have {told:,} bytes, not {size:,}")
    out = empty_bytes(size) if out is None else out
    at, done = _BLOCKS_HEADER, 0
    while done < whole:
        room = out[done : min(done + block, whole)]
        packed = int.from_bytes(data[at : at + _BLOCK_HEADER].tobytes(), "big")
        at += _BLOCK_HEADER
        part = data[at : at + packed]
        if len(part) < packed or packed == 0:
            raise ChunkError(f"its blocks end after {done:,} of {whole:,} bytes")
        expand(part, len(room), room)
        at, done = at + packed, done + len(room)
    return out, block, at


def _expand_blosc(data: Bytes, size: int, out: Bytes | None) -> Bytes:
    blosc = _numcodecs().blosc
    if len(data) < _BLOSC_HEADER:
        raise ChunkError("it is too short for the header of Blosc")
    told, _, packed = np.frombuffer(data[4:16].tobytes(), "<u4").tolist()
    if (told, packed) != (size, len(data)):
        raise ChunkError(
            f"its header says {told:,} bytes in {packed:,}, not {size:,} in {len(data):,}"
        )
    out = empty_bytes(size) if out is None else out
    try:
        blosc.decompress(data, out)
    except (RuntimeError, ValueError) as e:
        raise ChunkError(f"its Blosc blocks are damaged: {e}") from e
    return out


@cache
def _numcodecs() -> Any:
    """Return numcodecs; None if it is not installed."""
    try:
        import numcodecs
        import numcodecs.blosc
        import numcodecs.lz4
        import numcodecs.zstd
    except ImportError:
        return None
    return numcodecs


def _native(
    kind: _core.CodecKind, item_size: int = 1, block_items: int = 0, inner: str = ""
) -> _core.ChunkCodec | None:
    """Return a codec of the native core; None if it has none, or lacks a library for it."""
    within = _KINDS[inner] if inner else None
    if not all(map(_has_library, (within or kind, kind))):
        return None
    return _core.ChunkCodec(kind, item_size, block_items, within)


@cache
def _has_library(kind: _core.CodecKind) -> bool:
    if kind in (_Kind.zlib, _Kind.gzip):
        return can_inflate()
    if kind not in _KINDS.values():
        return True  # it is its own
    kind = _Kind.lz4 if kind is _Kind.hdf5_lz4 else kind
    module = getattr(_numcodecs(), kind.name, None)
    return module is not None and _core.use_codec_of(kind, module.__file__)


_Kind = _core.CodecKind
_KINDS = {"zstd": _Kind.zstd, "lz4": _Kind.lz4, "hdf5_lz4": _Kind.hdf5_lz4, "blosc": _Kind.blosc}
ZLIB = Codec("gzip", partial(_inflate, "zlib"), None, _native(_Kind.zlib))
GZIP = Codec("gzip", partial(_inflate, "gzip"), None, _native(_Kind.gzip))
LZF = Codec("lzf", _expand_lzf, None, _native(_Kind.lzf))
FLETCHER32 = Codec("fletcher32", _check_fletcher32, _CHECKSUM, _native(_Kind.fletcher32))
CRC32C = Codec("crc32c", _check_crc32c, _CHECKSUM, _native(_Kind.crc32c))


def shuffle(item_size: int) -> Codec:
    """Return the codec that stores the first bytes of all items, then the second ones."""
    native = None if item_size < 0 else _native(_Kind.shuffle, item_size)
    return Codec("shuffle", partial(_unshuffle, item_size), 0, native)


def bitshuffle(item_size: int, block_items: int = 0, compression: str = "") -> Codec | None:
    """Return the codec that stores the first bits of all items of a block, then the second ones.

    Blocks may be compressed by ``lz4`` or ``zstd``. None if these or their parameters are not
    known.
    """
    inner = packed(_IN_BITSHUFFLE.get(compression, compression)) if compression else None
    if item_size < 1 or block_items % 8 or (compression and inner is None):
        return None
    if not block_items:
        block_items = max(_BITSHUFFLE_BLOCK // item_size // 8 * 8, _BITSHUFFLE_LEAST)
    undo = partial(_expand_bitshuffle, item_size, block_items, inner and inner.undo)
    native = _native(_Kind.bitshuffle, item_size, block_items, compression)
    return Codec("bitshuffle", undo, None if inner else 0, native)


def delta(dtype: np.dtype[Any]) -> Codec:
    """Return the codec that stores differences."""
    return Codec("delta", partial(_sum_up, dtype))


def packed(name: str) -> Codec | None:
    """Return ``zstd``, ``lz4``, ``hdf5_lz4`` or ``blosc``; None without numcodecs."""
    undo = _PACKED.get(name)
    if undo is None or _numcodecs() is None:
        return None
    return Codec(name, undo, None, _native(_KINDS[name]) if name in _KINDS else None)


_IN_BITSHUFFLE = {"lz4": "lz4_block"}
_PACKED: dict[str, Undo] = {
    "zstd": _expand_zstd,
    "lz4": _expand_lz4,
    "lz4_block": _expand_lz4_block,
    "hdf5_lz4": _expand_hdf5_lz4,
    "blosc": _expand_blosc,
}
