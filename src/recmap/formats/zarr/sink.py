"""Writes Zarr stores: one array per column."""

from __future__ import annotations

import asyncio
import gzip
import io
import math
import os
import re
import shutil
from collections.abc import Mapping
from typing import Any, Literal, TypeAlias

import numcodecs
import numpy as np
import numpy.typing as npt
import zarr
from zarr.codecs import BloscCodec, GzipCodec, ZstdCodec

from recmap.errors import OptionError
from recmap.files.atomic_write import exchange, make_folder, sync
from recmap.files.temporary import remove, temporary_path
from recmap.formats.ragged_layout import ArraysSink, ColumnPart
from recmap.formats.zarr.attributes import ZarrColumn, column_attributes, refuse_foreign
from recmap.formats.zarr.source import limit_threads, stored, stored_as
from recmap.model.arguments import as_whole, check_choice
from recmap.model.schema import Schema
from recmap.model.sink import SinkKind

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
        path: str,
        schema: Schema,
        *,
        durable: bool = True,
        compression: ZarrCompression = "zstd",
        chunk_rows: int | None = None,
        version: Literal[2, 3] = 3,
        expected: int | None = None,
    ) -> None:
        number = as_whole("version", version)
        if number not in _CODECS:
            raise OptionError(f"{path}: version={number}: use 2 or 3")
        check_choice("compression", compression, _CODECS[number])
        chunk_rows = None if chunk_rows is None else as_whole("chunk_rows", chunk_rows, 1, 2**31)
        limit_threads()
        super().__init__(path, schema)
        self.path = path.rstrip(os.sep)
        self._durable = durable
        self._finished = False
        make_folder(self.path)
        self._temporary = temporary_path(self.path)
        codec = _CODECS[number][compression]()
        paths = _paths(schema)
        self._arrays: dict[tuple[str, str], _Array] = {}
        try:
            group = zarr.create_group(
                self._temporary,
                zarr_format=number,
                attributes=column_attributes(
                    [ZarrColumn(name, paths[name], field) for name, field in schema.items()]
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
                self.append(column, splitter.head())
        except BaseException:
            self.abort()
            raise

    def append(self, name: str, arrays: Mapping[str, npt.NDArray[Any]]) -> None:
        """Append items to the arrays of a column."""
        for key, rows in arrays.items():
            self._arrays[name, key].append(rows)

    def finish(self) -> str:
        """Write the remaining rows, and return the temporary name."""
        if not self._finished:
            for array in self._arrays.values():
                array.finish()
            if self._durable:
                for folder, _, files in os.walk(self._temporary):
                    for name in [*files, "."]:
                        sync(os.path.join(folder, name))
            self._finished = True
        return self._temporary

    def commit(self) -> None:
        """Finish the store and give it its name, replacing an older store written by recmap."""
        self.finish()
        # Replace the target of a link, not the link.
        target = os.path.realpath(self.path) if os.path.islink(self.path) else self.path
        finished = _on_same_file_system(target, self._temporary)
        previous = temporary_path(target)
        if not os.path.lexists(target):
            os.rename(finished, target)
        else:
            refuse_foreign(target)
            if not exchange(finished, target):
                os.rename(target, previous)
                os.rename(finished, target)
        for old in (finished, previous, self._temporary):
            remove(old)
        if self._durable:
            sync(os.path.dirname(target))

    def abort(self) -> None:
        """Remove everything written so far."""
        remove(self._temporary)


def _on_same_file_system(path: str, folder: str) -> str:
    """Return the folder, or a copy of it next to ``path`` if it is on another file system."""
    parent = os.path.dirname(path) or "."
    os.makedirs(parent, exist_ok=True)
    if os.stat(parent).st_dev == os.stat(folder).st_dev:
        return folder
    copy = temporary_path(path)
    try:
        shutil.copytree(folder, copy)
    except BaseException:
        remove(copy)
        raise
    return copy


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


SINK = SinkKind(ZarrSink, column_bytes=8_000)
