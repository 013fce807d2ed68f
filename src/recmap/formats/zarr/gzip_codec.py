"""gzip for Zarr without the time of writing, so that equal rows give equal bytes."""

from __future__ import annotations

import asyncio
import gzip
import io
from typing import Any

import numcodecs
from zarr.codecs import GzipCodec

__all__ = ["TimelessGzip2", "TimelessGzip3"]


def _compressed(data: Any, level: int) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=level, mtime=0) as stream:
        stream.write(data)
    return out.getvalue()


class TimelessGzip2(numcodecs.GZip):  # type: ignore[misc]
    """That of version 2, which has the same name in the store."""

    def encode(self, buf: Any) -> bytes:
        return _compressed(numcodecs.compat.ensure_contiguous_ndarray(buf), self.level)


class TimelessGzip3(GzipCodec):  # type: ignore[misc]
    """That of version 3, which has the same name in the store."""

    def _encode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        packed = _compressed(chunk_bytes.as_numpy_array(), self.level)
        return chunk_spec.prototype.buffer.from_bytes(packed)

    async def _encode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return await asyncio.to_thread(self._encode_sync, chunk_bytes, chunk_spec)
