"""Writes Zarr stores: one array per column."""

from __future__ import annotations

import asyncio
import gzip
import io
import math
import re
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numcodecs
import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from recmap.errors import OptionError
from recmap.formats.ragged_layout import ArraysSink, ColumnPart
from recmap.formats.sink import SinkKind
from recmap.formats.zarr.attributes import ZarrColumn, column_attributes, refuse_foreign
from recmap.formats.zarr.source import limit_threads, stored, stored_as
from recmap.local.output import Output
from recmap.model.arguments import as_whole, check_choice
from recmap.model.schema import Schema

ZarrCompression: TypeAlias = Literal["zstd", "blosc", "gzip"] | None

_GZIP_LEVEL = 5
_CODECS: dict[int, dict[str | None, Any]] = {
    3: {
        "zstd": lambda: ZstdCodec(level=3),
        "blosc": lambda: BloscCodec(cname="zstd", clevel=5, shuffle="shuffle"),
        "gzip": lambda: _TimelessGzip3(level=_GZIP_LEVEL),
        None: lambda: None,
    },
    2: {
        "zstd": lambda: numcodecs.Zstd(level=3),
        "blosc": lambda: numcodecs.Blosc("zstd", 5, numcodecs.Blosc.SHUFFLE),
        "gzip": lambda: _TimelessGzip2(level=_GZIP_LEVEL),
        None: lambda: None,
    },
}
_CHUNK, _LEAST_CHUNK = 1 << 20, 1 << 10
# Bytes of rows that may wait to fill a chunk, for all columns together.
_HELD = 32 << 20
# Codecs accept at most 2 GB at once, and smaller chunks are easier to read.
_MAX_ROW = 64 << 20


class ZarrSink(ArraysSink):
    """Writes a group with one array per column; ragged columns become values and offsets.

    The folder has a temporary name until it is complete.
    """

    def __init__(
        self,
        output: Output,
        schema: Schema,
        *,
        compression: ZarrCompression = "zstd",
        chunk_rows: int | None = None,
        version: Literal[2, 3] = 3,
        expected: int | None = None,
        table_note: Mapping[str, Any] | None = None,
    ) -> None:
        number = as_whole("version", version)
        if number not in _CODECS:
            raise OptionError(f"{output.target}: version={number}: use 2 or 3")
        check_choice("compression", compression, _CODECS[number])
        chunk_rows = None if chunk_rows is None else as_whole("chunk_rows", chunk_rows, 1, 2**31)
        limit_threads()
        super().__init__(output, schema)
        codec = _CODECS[number][compression]()
        paths = _paths(schema)
        self._arrays: dict[tuple[str, str], _Array] = {}
        group = zarr.create_group(
            output.path,
            zarr_format=number,
            attributes=column_attributes(
                [ZarrColumn(name, paths[name], field) for name, field in schema.items()], table_note
            ),
        )
        for column, splitter in self.splitters.items():
            for part in splitter.parts:
                name = f"{paths[column]}/{part.key}" if part.key else paths[column]
                self._arrays[column, part.key] = _Array(
                    group,
                    name,
                    part,
                    codec,
                    None if part.key else chunk_rows,
                    None if part.key else expected,
                    max(_LEAST_CHUNK, min(_CHUNK, _HELD // len(schema))),
                )
        self.begin()

    def append(self, name: str, key: str, items: npt.NDArray[Any]) -> None:
        self._arrays[name, key].append(items)

    def end(self) -> None:
        for array in self._arrays.values():
            array.finish()

    def commit(self) -> None:
        """Finish the store and give it its name, replacing an older store written by recmap."""
        self.finish()
        refuse_foreign(self.output.target)
        super().commit()


class _Array:
    """An array that grows by whole chunks, so that no chunk is written twice."""

    def __init__(
        self,
        group: Any,
        name: str,
        part: ColumnPart,
        codec: Any,
        rows: int | None,
        expected: int | None,
        size: int,
    ) -> None:
        """Chunks have ``rows`` rows. If that is None, they have about ``size`` bytes and at most
        ``expected`` rows.
        """
        dtype, more = stored_as(part.dtype) if part.dtype.kind != "S" else (np.dtype("u1"), ())
        inner = (*part.inner, *more)
        chunk = _chunk(inner, dtype.itemsize, rows, expected, size)
        self._chunk_rows = chunk[0]
        self._written = self._held = 0
        self._pending: list[npt.NDArray[Any]] = []
        self._bytes = part.dtype.kind == "S"
        self._array = group.create_array(
            name,
            shape=(0, *inner),
            chunks=chunk,
            dtype=dtype,
            compressors=codec,
            # Otherwise zarr would treat a chunk of -0j as empty.
            config={"write_empty_chunks": True},
        )

    def append(self, rows: npt.NDArray[Any]) -> None:
        self._pending.append(rows.view(np.uint8) if self._bytes else stored(rows))
        self._held += len(rows)
        if self._held >= self._chunk_rows:
            held = np.concatenate(self._pending)
            whole = len(held) - len(held) % self._chunk_rows
            self._write(held[:whole])
            # Copy the remaining rows, so that they do not keep the whole array alive.
            self._pending, self._held = [held[whole:].copy()], len(held) - whole

    def _write(self, rows: npt.NDArray[Any]) -> None:
        start, stop = self._written, self._written + len(rows)
        self._array.resize((stop, *rows.shape[1:]))
        self._array[start:stop] = rows
        self._written = stop

    def finish(self) -> None:
        if self._held:
            self._write(np.concatenate(self._pending))
            self._pending, self._held = [], 0


def _chunk(
    inner: tuple[int, ...], itemsize: int, rows: int | None, expected: int | None, size: int
) -> tuple[int, ...]:
    """Choose a chunk shape of ``size`` bytes in whole rows; only very large rows are split."""
    axes = [max(1, axis) for axis in inner]
    for i in range(len(axes)):
        while axes[i] > 1 and math.prod(axes) * itemsize > _MAX_ROW:
            axes[i] = -(-axes[i] // 2)
    if rows is None:
        rows = max(1, size // (math.prod(axes) * itemsize))
        rows = rows if expected is None else max(1, min(rows, expected))
    return (rows, *axes)


def _paths(schema: Schema) -> dict[str, str]:
    """Choose a path for each column: its name, if that is a valid folder name."""
    paths: dict[str, str] = {}
    names = {name.casefold() for name in schema}
    for number, name in enumerate(schema):
        folders = name.split("/")
        plain = all(re.fullmatch(r"(?!__)\w[\w\-+=@ ]{0,80}", folder) for folder in folders)
        above = {"/".join(folders[:i]).casefold() for i in range(1, len(folders))}
        # Some file systems do not distinguish "x" from "X".
        twin = name.casefold() in {path.casefold() for path in paths.values()}
        paths[name] = name if plain and not twin and not above & names else f"column.{number}"
    return paths


class _TimelessGzip2(numcodecs.GZip):  # type: ignore[misc]
    """The gzip codec of version 2 without a timestamp, so that equal rows give equal bytes.

    The store lists it under the name of the original codec.
    """

    def encode(self, buf: Any) -> bytes:
        return _gzipped(numcodecs.compat.ensure_contiguous_ndarray(buf), self.level)


class _TimelessGzip3(GzipCodec):  # type: ignore[misc]
    """The gzip codec of version 3 without a timestamp."""

    def _encode_sync(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        packed = _gzipped(chunk_bytes.as_numpy_array(), self.level)
        return chunk_spec.prototype.buffer.from_bytes(packed)

    async def _encode_single(self, chunk_bytes: Any, chunk_spec: Any) -> Any:
        return await asyncio.to_thread(self._encode_sync, chunk_bytes, chunk_spec)


def _gzipped(data: Any, level: int) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=level, mtime=0) as stream:
        stream.write(data)
    return out.getvalue()


SINK = SinkKind(ZarrSink, nulls="masks", column_bytes=8_000)
