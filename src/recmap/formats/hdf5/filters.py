"""The filters HDF5 applies to a chunk before writing it, and how to undo them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.local.gzip import inflater
from recmap.native import _core

DEFLATE, SHUFFLE, FLETCHER32, SZIP, LZO, LZF = 1, 2, 3, 4, 305, 32000

_NAMES = {
    DEFLATE: "gzip",
    SHUFFLE: "shuffle",
    FLETCHER32: "fletcher32",
    SZIP: "szip",
    5: "nbit",
    6: "scaleoffset",
    LZO: "lzo",
    LZF: "lzf",
}
# The filters in the package hdf5plugin.
_PLUGINS = {
    307: "bzip2",
    32001: "blosc",
    32004: "lz4",
    32008: "bitshuffle",
    32013: "zfp",
    32015: "zstd",
    32017: "sz",
    32018: "fcidecomp",
    32024: "sz3",
    32026: "blosc2",
    32028: "sperr",
    32033: "htj2k",
}
_NAMES |= _PLUGINS
_CHECKSUM = 4
# Words summed at once: few enough that the weighted sum stays far below 2**63.
_WORDS = 1 << 16
_WEIGHTS = np.arange(_WORDS, 0, -1, dtype=np.int64)

Bytes = npt.NDArray[np.uint8]
# The number of a filter, and its parameters.
Filter = tuple[int, tuple[int, ...]]


class FilterError(ValueError):
    """A chunk is damaged: its bytes are not what was written."""


def filters_of(storage: Any) -> list[tuple[int, int, tuple[int, ...], bytes]]:
    """Return the number, flags, parameters and name of each filter of a dataset. Calls h5py."""
    return [storage.get_filter(i) for i in range(storage.get_nfilters())]


def filter_names(filters: Sequence[tuple[int, int, tuple[int, ...], bytes]]) -> str:
    """Format the names of filters for display, like ``gzip+shuffle``."""
    names = {n: name.decode("utf-8", "replace") or f"filter {n}" for n, _, _, name in filters}
    return "+".join(_NAMES.get(n, names[n]) for n in sorted(names))


def how_to_get(number: int) -> str:
    """Say what to do about a filter that the library is missing."""
    if number in _PLUGINS:
        return "pip install hdf5plugin and import it"
    repack = "h5repack -f GZIP=4 old.h5 new.h5"
    if number == LZO:
        return (
            "hdf5plugin does not have it. Rewrite the file with a PyTables that does, such as "
            "conda-forge's: ptrepack --complib=zlib old.h5 new.h5; or, with an LZO plugin in "
            f"HDF5_PLUGIN_PATH, {repack}"
        )
    if number == SZIP:
        return "this h5py was built without it; the one from PyPI has it: pip install h5py"
    return (
        "hdf5plugin does not have it either. Put its plugin into HDF5_PLUGIN_PATH, or rewrite "
        f"the file on a machine that can read it: {repack}"
    )


class FilterPipeline:
    """The filters of a dataset, in the order they were applied."""

    def __init__(self, filters: Sequence[Filter], nbytes: int) -> None:
        """``nbytes`` is the size of a decoded chunk."""
        self._filters = list(filters)
        self._nbytes = nbytes

    @classmethod
    def of(cls, storage: Any, chunk: tuple[int, ...], dtype: np.dtype[Any]) -> FilterPipeline:
        """Return the filters of a dataset with chunks of this shape. Calls h5py."""
        filters = [(number, values) for number, _, values, _ in filters_of(storage)]
        return cls(filters, math.prod(chunk) * dtype.itemsize)

    def __bool__(self) -> bool:
        return bool(self._filters)

    @property
    def known(self) -> bool:
        """Whether recmap can undo the filters.

        At most one may compress: with two, the size in between is unknown.
        """
        numbers = [number for number, _ in self._filters]
        compressed = sum(number in _EXPAND for number in numbers)
        return {*numbers} <= {SHUFFLE, FLETCHER32, *_EXPAND} and compressed <= 1

    def undo(self, stored: bytes, mask: int) -> Bytes:
        """Decode a chunk. If bit ``i`` of the mask is set, filter ``i`` was not applied."""
        data: Bytes = np.frombuffer(stored, np.uint8)
        used = [f for i, f in enumerate(self._filters) if not mask >> i & 1]
        while used:
            number, values = used.pop()
            if number in _EXPAND:
                sums = sum(before == FLETCHER32 for before, _ in used)
                data = _EXPAND[number](data, self._nbytes + _CHECKSUM * sums)
            elif number == SHUFFLE:
                data = unshuffle(data, values[0] if values else 1)
            else:
                data = _without_checksum(data)
        if len(data) != self._nbytes:
            raise FilterError(f"it has {len(data):,} bytes, not {self._nbytes:,}")
        return data


def _inflate(data: Bytes, size: int) -> Bytes:
    engine, error = inflater("zlib", whole=True)
    try:
        # Ask for one byte too many, to detect a stream that is too long.
        out = engine.decompress(data, size + 1)
    except error as e:
        raise FilterError(f"its deflate stream is damaged: {e}") from e
    if len(out) > size:
        raise FilterError(f"it inflates to more than {size:,} bytes")
    if len(out) < size or not engine.eof:
        raise FilterError(f"its deflate stream ends after {len(out):,} of {size:,} bytes")
    return np.frombuffer(out, np.uint8)


def _expand_lzf(data: Bytes, size: int) -> Bytes:
    # The size comes from the file, so do not allocate more than the stream could fill.
    if size > len(data) * _core.LZF_MOST_GROWTH:
        raise FilterError(f"{len(data):,} bytes of LZF cannot make {size:,}")
    out = np.empty(size, np.uint8)
    fault, made = _core.lzf_expand(data, out)
    if fault is not _core.LzfFault.none:
        raise FilterError(f"its LZF stream {_LZF_FAULTS[fault]} after {made:,} of {size:,} bytes")
    return out


_EXPAND = {DEFLATE: _inflate, LZF: _expand_lzf}
_LZF_FAULTS = {
    _core.LzfFault.cut: "is cut off",
    _core.LzfFault.too_long: "overflows",
    _core.LzfFault.too_short: "ends",
    _core.LzfFault.before_start: "points before its start",
}


def unshuffle(data: Bytes, size: int) -> Bytes:
    """Undo the shuffle filter, which stores the first bytes of all items, then the second ones.

    >>> unshuffle(np.frombuffer(b"aceXbdfY?", np.uint8), 2).tobytes()
    b'abcdefXY?'
    """
    count = len(data) // size if size else 0
    if size < 2 or count < 2:
        return data
    out = np.empty_like(data)
    end = count * size
    planes, items = data[:end].reshape(size, count), out[:end].reshape(count, size)
    # Copying plane by plane is several times as fast as a transposed copy.
    if size <= count:
        for i in range(size):
            items[:, i] = planes[i]
    else:
        for i in range(count):
            items[i] = planes[:, i]
    out[end:] = data[end:]
    return out


def _without_checksum(data: Bytes) -> Bytes:
    if len(data) < _CHECKSUM:
        raise FilterError("it is too short for its checksum")
    data, end = data[:-_CHECKSUM], data[-_CHECKSUM:]
    stored = int.from_bytes(end.tobytes(), "little")
    found = fletcher32(data)
    # HDF5 up to 1.6.2 swapped the two bytes of each half.
    if stored not in (found, _swapped(found)):
        raise FilterError(f"its checksum is {found:#010x}, but {stored:#010x} was written")
    return data


def _swapped(number: int) -> int:
    return (number & 0x00FF00FF) << 8 | number >> 8 & 0x00FF00FF


def fletcher32(data: Bytes) -> int:
    """Return HDF5's checksum of big-endian words; an odd last byte is the high byte of a word.

    >>> hex(fletcher32(np.frombuffer(b"abcde", np.uint8)))
    '0x4ff029c7'
    """
    even = len(data) // 2 * 2
    words = data[:even].view(">u2")
    low = high = 0
    for start in range(0, len(words), _WORDS):
        some = words[start : start + _WORDS].astype(np.int64)
        high += len(some) * low + int(some @ _WEIGHTS[-len(some) :])
        low += int(some.sum())
    if even < len(data):
        low += int(data[-1]) << 8
        high += low
    return _folded(high) << 16 | _folded(low)


def _folded(number: int) -> int:
    # Carries are added back, so that only empty or all-zero data sums to 0.
    return (number - 1) % 0xFFFF + 1 if number else 0
