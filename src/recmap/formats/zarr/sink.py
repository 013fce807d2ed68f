"""Columns as the arrays of a Zarr store."""

from __future__ import annotations

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
from zarr.codecs import BloscCodec, ZstdCodec

from recmap.errors import ColumnError, OptionError
from recmap.files.atomic_write import make_folder, sync
from recmap.files.temporary import remove, temporary_path
from recmap.formats.ragged_layout import Part, Splitter, check_names
from recmap.formats.zarr.attributes import Mark, marks, stored, stored_as
from recmap.formats.zarr.gzip_codec import TimelessGzip2, TimelessGzip3
from recmap.formats.zarr.ownership import refuse_foreign
from recmap.formats.zarr.store import limit_threads
from recmap.model.arguments import as_whole, check_choice
from recmap.model.coerce import as_columns, fit
from recmap.model.schema import Schema
from recmap.model.sink import Sink

__all__ = ["ZarrSink"]

ZarrCompression: TypeAlias = Literal["zstd", "blosc", "gzip"] | None

_GZIP_LEVEL = 5
_CODECS: dict[int, dict[str | None, Any]] = {
    3: {
        "zstd": lambda: ZstdCodec(level=3),
        "blosc": lambda: BloscCodec(cname="zstd", clevel=5, shuffle="shuffle"),
        "gzip": lambda: TimelessGzip3(level=_GZIP_LEVEL),
        None: lambda: None,
    },
    2: {
        "zstd": lambda: numcodecs.Zstd(level=3),
        "blosc": lambda: numcodecs.Blosc("zstd", 5, numcodecs.Blosc.SHUFFLE),
        "gzip": lambda: TimelessGzip2(level=_GZIP_LEVEL),
        None: lambda: None,
    },
}
_CHUNK, _LEAST_CHUNK = 1 << 20, 1 << 10
# Bytes of rows that wait until they fill a chunk, of all columns.
_HELD = 32 << 20
# Codecs take no more than 2 GB at a time, and readers would rather have less.
_MAX_ROW = 64 << 20


class ZarrSink(Sink):
    """A group with an array for each column, ragged ones as their values and offsets, in
    a folder that has another name until it is whole.
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
        if not schema:
            raise ColumnError(f"{path}: there are no columns to write")
        self.path, self.schema = path.rstrip(os.sep), schema
        self._durable = durable
        self._finished = False
        self._splitters = {name: Splitter(name, field) for name, field in schema.items()}
        check_names(schema)
        make_folder(self.path)
        self._temporary = temporary_path(self.path)
        codec = _CODECS[number][compression]()
        paths = _paths(schema)
        self._arrays: dict[tuple[str, str], _Array] = {}
        try:
            group = zarr.create_group(
                self._temporary,
                zarr_format=number,
                attributes=marks([Mark(n, paths[n], f) for n, f in schema.items()]),
            )
            for column, splitter in self._splitters.items():
                for part in splitter.parts:
                    at = f"{paths[column]}/{part.key}" if part.key else paths[column]
                    self._arrays[column, part.key] = _Array(
                        group,
                        at,
                        part,
                        codec,
                        None if part.key else chunk_rows,
                        None if part.key else expected,
                        max(_LEAST_CHUNK, min(_CHUNK, _HELD // len(schema))),
                    )
                self._append(column, splitter.head())
        except BaseException:
            self.abort()
            raise

    def write(self, batch: Mapping[str, Any]) -> None:
        """Appends rows."""
        columns, rows = fit(as_columns(batch), self.schema)
        for name, column in columns.items() if rows else ():
            self._append(name, self._splitters[name].split(column))

    def _append(self, name: str, pieces: Mapping[str, npt.NDArray[Any]]) -> None:
        for key, rows in pieces.items():
            self._arrays[name, key].append(rows)

    def finish(self) -> str:
        """Writes what is left; the temporary name."""
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
        """Finishes the store and gives it its name; an older one of recmap's goes."""
        self.finish()
        # A link stays a link: what it leads to is replaced.
        target = os.path.realpath(self.path) if os.path.islink(self.path) else self.path
        whole = _beside(target, self._temporary)
        before = temporary_path(target) if os.path.lexists(target) else None
        if before is not None:
            refuse_foreign(target)
            os.rename(target, before)
        os.rename(whole, target)
        for left in (before, self._temporary):
            if left is not None:
                remove(left)
        if self._durable:
            sync(os.path.dirname(target))

    def abort(self) -> None:
        """Leaves nothing behind."""
        remove(self._temporary)


def _beside(path: str, folder: str) -> str:
    """A folder, copied beside the path if it lies on another file system."""
    parent = os.path.dirname(path) or "."
    os.makedirs(parent, exist_ok=True)
    if os.stat(parent).st_dev == os.stat(folder).st_dev:
        return folder
    near = temporary_path(path)
    try:
        shutil.copytree(folder, near)
    except BaseException:
        remove(near)
        raise
    return near


class _Array:
    """An array that grows by whole chunks, so that none is written twice."""

    def __init__(
        self,
        group: Any,
        at: str,
        part: Part,
        codec: Any,
        rows: int | None,
        expected: int | None,
        size: int,
    ) -> None:
        """Chunks have so many ``rows``; if that is None, about ``size`` bytes, and no more
        rows than are ``expected``.
        """
        dtype, more = stored_as(part.dtype) if part.dtype.kind != "S" else (np.dtype("u1"), ())
        inner = (*part.inner, *more)
        chunk = _chunk(inner, dtype.itemsize, rows, expected, size)
        self._rows = chunk[0]
        self._written = self._pending = 0
        self._pieces: list[npt.NDArray[Any]] = []
        self._bytes = part.dtype.kind == "S"
        self._array = group.create_array(
            at,
            shape=(0, *inner),
            chunks=chunk,
            dtype=dtype,
            compressors=codec,
            # Zarr takes a chunk of -0j for an empty one.
            config={"write_empty_chunks": True},
        )

    def append(self, rows: npt.NDArray[Any]) -> None:
        self._pieces.append(rows.view(np.uint8) if self._bytes else stored(rows))
        self._pending += len(rows)
        if self._pending >= self._rows:
            held = np.concatenate(self._pieces)
            whole = len(held) - len(held) % self._rows
            self._write(held[:whole])
            # A copy, so that the rest does not hold on to all of it.
            self._pieces, self._pending = [held[whole:].copy()], len(held) - whole

    def _write(self, rows: npt.NDArray[Any]) -> None:
        start, stop = self._written, self._written + len(rows)
        self._array.resize((stop, *rows.shape[1:]))
        self._array[start:stop] = rows
        self._written = stop

    def finish(self) -> None:
        if self._pending:
            self._write(np.concatenate(self._pieces))
            self._pieces, self._pending = [], 0


def _chunk(
    inner: tuple[int, ...], itemsize: int, rows: int | None, expected: int | None, size: int
) -> tuple[int, ...]:
    """The shape of a chunk: about so many bytes of whole rows. Only a very large row is cut."""
    axes = [max(1, axis) for axis in inner]
    for i in range(len(axes)):
        while axes[i] > 1 and math.prod(axes) * itemsize > _MAX_ROW:
            axes[i] = -(-axes[i] // 2)
    if rows is None:
        rows = max(1, size // (math.prod(axes) * itemsize))
        rows = rows if expected is None else max(1, min(rows, expected))
    return (rows, *axes)


def _paths(schema: Schema) -> dict[str, str]:
    """Where columns are in the store: under their names, where a folder may be called so."""
    paths: dict[str, str] = {}
    names = {name.casefold() for name in schema}
    for number, name in enumerate(schema):
        folders = name.split("/")
        plain = all(re.fullmatch(r"(?!__)\w[\w\-+=@ ]{0,80}", folder) for folder in folders)
        above = {"/".join(folders[:i]).casefold() for i in range(1, len(folders))}
        # Some file systems do not tell "x" from "X".
        twin = name.casefold() in {path.casefold() for path in paths.values()}
        paths[name] = name if plain and not twin and not above & names else f"column.{number}"
    return paths
