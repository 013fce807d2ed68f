"""How the chunks of Zarr arrays are encoded, as their metadata tell."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.chunks import codecs
from recmap.chunks.codecs import Bytes, Codec, CodecChain
from recmap.chunks.stored import Grid, Values

_ENTRY = np.dtype([("offset", "<u8"), ("size", "<u8")])
# No array has so many rows, and no chunk or shard so many bytes.
_TOO_MANY = 1 << 62
_CODECS = {"zlib": codecs.ZLIB, "gzip": codecs.GZIP, "crc32c": codecs.CRC32C}


@dataclass(frozen=True)
class ShardLayout:
    """How shards are divided: their shape in chunks, and where and how the index is stored."""

    shape: tuple[int, ...]
    index: CodecChain
    at_end: bool

    @property
    def index_size(self) -> int:
        return self.index.nbytes + sum(codec.added or 0 for codec in self.index.codecs)

    def entries(self, stored: Bytes) -> npt.NDArray[Any]:
        """Decode an index."""
        return self.index.undo(stored).view(_ENTRY)


@dataclass(frozen=True)
class ChunkEncoding:
    """How the chunks of an array are encoded. ``layout`` is for ``ChunkedArray``."""

    grid: Grid
    chain: CodecChain
    layout: Callable[[Bytes], Values] | None
    shards: ShardLayout | None = None


def encoding_of(array: Any) -> ChunkEncoding | None:
    """Return how an array is encoded; None if only zarr can decode it."""
    told = array.metadata.to_dict()
    dtype = np.dtype(array.dtype)
    if dtype.hasobject or not dtype.itemsize or 0 in array.shape or not array.shape:
        return None
    try:
        return _encoding_2(array, told) if told["zarr_format"] == 2 else _encoding_3(array, told)
    except (AttributeError, LookupError, TypeError, ValueError):  # something we do not know
        return None


def _encoding_2(array: Any, told: Mapping[str, Any]) -> ChunkEncoding | None:
    dtype = np.dtype(array.dtype)
    applied = [*(told["filters"] or ()), *filter(None, [told["compressor"]])]
    found = [_codec(each["id"], each, dtype) for each in applied]
    axes = range(len(array.shape))
    order = tuple(reversed(axes)) if told["order"] == "F" else tuple(axes)
    return _encoding(array, tuple(array.chunks), dtype, order, found)


def _encoding_3(array: Any, told: Mapping[str, Any]) -> ChunkEncoding | None:
    grid, applied = told["chunk_grid"], [*told["codecs"]]
    if grid["name"] != "regular" or told.get("storage_transformers"):
        return None
    chunk = tuple(grid["configuration"]["chunk_shape"])
    shards = None
    if applied[0]["name"] == "sharding_indexed":
        options = applied[0]["configuration"]
        inner = tuple(options["chunk_shape"])
        divided = tuple(whole // part for whole, part in zip(chunk, inner, strict=True))
        index = _index_codecs(options["index_codecs"])
        if len(applied) > 1 or index is None:
            return None
        chain = CodecChain(index, math.prod(divided) * _ENTRY.itemsize)
        shards = ShardLayout(divided, chain, options["index_location"] == "end")
        chunk, applied = inner, [*options["codecs"]]
    axes = tuple(range(len(chunk)))
    if applied[0]["name"] == "transpose":
        axes = tuple(applied.pop(0)["configuration"]["order"])
    order = _byte_order(applied.pop(0))
    dtype = np.dtype(array.dtype)
    if order is None or dtype.kind not in "biufcmM":
        return None
    found = [_codec(each["name"], each.get("configuration", {}), dtype) for each in applied]
    return _encoding(array, chunk, dtype.newbyteorder(order), axes, found, shards)


def _encoding(
    array: Any,
    chunk: tuple[int, ...],
    dtype: np.dtype[Any],
    axes: tuple[int, ...],
    found: Sequence[Codec | None],
    shards: ShardLayout | None = None,
) -> ChunkEncoding | None:
    """Return the encoding of chunks whose values are stored as a dtype, with axes in an order."""
    known = [codec for codec in found if codec is not None]
    chain = CodecChain(known, math.prod(chunk) * dtype.itemsize)
    if len(known) < len(found) or not chain.known:
        return None
    sizes = chain.nbytes, 1 if shards is None else shards.index.nbytes
    if not all(0 < size < _TOO_MANY for size in sizes):  # zarr says what is wrong
        return None
    plain = dtype == np.dtype(array.dtype) and axes == tuple(range(len(chunk)))
    layout = None if plain else partial(_arranged, dtype, chunk, axes)
    return ChunkEncoding(Grid(tuple(array.shape), chunk), chain, layout, shards)


def _arranged(
    dtype: np.dtype[Any], shape: tuple[int, ...], axes: tuple[int, ...], data: Bytes
) -> Values:
    """Return decoded bytes as a chunk of this shape."""
    stored = tuple(shape[axis] for axis in axes)
    return np.ndarray(stored, dtype, data).transpose(np.argsort(axes).tolist())


def _byte_order(codec: Mapping[str, Any]) -> str | None:
    """Return the order of bytes that the codec ``bytes`` has; None if it is another codec."""
    if codec["name"] != "bytes":
        return None
    told = codec.get("configuration", {}).get("endian", "little")
    return {"little": "<", "big": ">"}[str(getattr(told, "value", told))]


def _index_codecs(told: Sequence[Mapping[str, Any]]) -> list[Codec] | None:
    names = [codec["name"] for codec in told]
    if names not in (["bytes"], ["bytes", "crc32c"]) or _byte_order(told[0]) != "<":
        return None
    return [codecs.CRC32C for name in names if name == "crc32c"]


def _codec(name: str, told: Mapping[str, Any], dtype: np.dtype[Any]) -> Codec | None:
    if name == "shuffle":
        return codecs.shuffle(int(told["elementsize"]))
    if name == "delta":
        same = np.dtype(told["dtype"]) == np.dtype(told["astype"]) == dtype
        return codecs.delta(dtype) if same and dtype.kind in "iuf" else None
    if name == "crc32c" and told.get("location", "end") != "end":
        return None
    return _CODECS.get(name) or codecs.packed(name)
