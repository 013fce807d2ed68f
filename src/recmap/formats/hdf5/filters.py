"""The filters HDF5 applies to a chunk before writing it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from recmap.chunks import codecs
from recmap.chunks.codecs import Codec, CodecChain, bitshuffle, packed, shuffle
from recmap.formats.hdf5.file import h5py

DEFLATE, SHUFFLE, FLETCHER32, SZIP, LZO, LZF, BITSHUFFLE = 1, 2, 3, 4, 305, 32000, 32008

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
    BITSHUFFLE: "bitshuffle",
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
_CODECS = {DEFLATE: codecs.ZLIB, FLETCHER32: codecs.FLETCHER32, LZF: codecs.LZF}
_IN_BITSHUFFLE = {0: "", 2: "lz4", 3: "zstd"}
_PACKED = {32001: "blosc", 32004: "hdf5_lz4", 32015: "zstd"}


def filters_of(storage: Any) -> list[tuple[int, int, tuple[int, ...], bytes]]:
    """Return the number, flags, parameters and name of each filter of a dataset. Calls h5py."""
    return [storage.get_filter(i) for i in range(storage.get_nfilters())]


def missing_filters(storage: Any) -> list[tuple[int, int, tuple[int, ...], bytes]]:
    """Return those filters of a dataset that the library does not have. Calls h5py."""
    return [f for f in filters_of(storage) if not h5py.h5z.filter_avail(f[0])]


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


def codecs_of(storage: Any, chunk: tuple[int, ...], itemsize: int) -> CodecChain | None:
    """Return the codecs of a dataset with chunks of this shape; None if recmap has not all.

    Calls h5py.
    """
    found = [_codec(number, values) for number, _, values, _ in filters_of(storage)]
    known = [codec for codec in found if codec is not None]
    chain = CodecChain(known, math.prod(chunk) * itemsize)
    return chain if len(known) == len(found) and chain.known else None


def _codec(number: int, values: tuple[int, ...]) -> Codec | None:
    if number == SHUFFLE:
        return shuffle(values[0] if values else 1)
    if number == BITSHUFFLE:
        _, _, item_size, block_items, compression = (*values, 0, 0, 0, 0, 0)[:5]
        return bitshuffle(item_size, block_items, _IN_BITSHUFFLE.get(compression, "?"))
    return packed(_PACKED[number]) if number in _PACKED else _CODECS.get(number)
