"""Checks of what was written, before it gets its name."""

from __future__ import annotations

from typing import Any

import numpy as np

from recmap import _core
from recmap.errors import VerificationError
from recmap.files.machine import thread_count
from recmap.files.mapped import MappedFile
from recmap.formats.raw import packed_dtype
from recmap.formats.registry import OpenOptions, open_source
from recmap.ragged import Column, Ragged
from recmap.sources import Source
from recmap.tfrecord.inflate import check_compression
from recmap.types import Schema

__all__ = ["check_values", "check_written"]


def check_written(path: str, name: str, format: str, schema: Schema, rows: int) -> None:
    """Counts the rows of a file, and checks its CRCs where it has some."""
    if format == "tfrecord" and check_compression(path, "auto") is None:
        file = MappedFile(path)
        found = _core.scan(file.bytes, 0, file.size, _core.NO_LIMIT, 0, True, thread_count())
        if found.fault is not None or found.records != rows:
            raise VerificationError(
                f"{name}: {rows:,} rows were written, but {found.records:,} sound records are there"
            )
        return
    written = _reopened(path, format, schema)
    if len(written) != rows:
        raise VerificationError(
            f"{name}: {rows:,} rows were written, but {len(written):,} are there"
        )
    if format != "tfrecord" and rows and _types(written.schema) != _types(schema):
        raise VerificationError(f"{name}: {schema} was written, but {written.schema} is there")


def _types(schema: Schema) -> list[tuple[str, str]]:
    return sorted((_kept(field.dtype), str(field.shape)) for field in schema.values())


def _kept(dtype: np.dtype[Any]) -> str:
    """What of a dtype is kept under a temporary name: of those numpy does not know by
    itself, such as bfloat16, only the size.
    """
    return dtype.str if dtype.kind != "V" else f"V{dtype.itemsize}"


def _reopened(path: str, format: str, schema: Schema) -> Source:
    """The file under its temporary name, beside which nothing lies that describes it."""
    fields = dict(schema) if format == "tfrecord" else None
    dtype = packed_dtype(schema) if format == "raw" else None
    return open_source(path, fields, OpenOptions(format=format, dtype=dtype))


def check_values(
    path: str, name: str, format: str, source: Source, start: int, stop: int, step: int
) -> None:
    """Compares every value of a file with the rows it was made of."""
    written = _reopened(path, format, source.schema)
    names = dict(zip(source.schema, written.schema, strict=True))
    for row in range(start, stop, step):
        end = min(row + step, stop)
        wanted = source.read(row, end)
        found = written.read(row - start, end - start)
        for column in source.schema:
            if not _equal(wanted[column], found[names[column]]):
                raise VerificationError(
                    f"{name}: column {column!r}: rows {row - start:,} to {end - start:,} are not "
                    f"those that were read ({row:,} to {end:,} of the source)"
                )


def _equal(a: Column, b: Column) -> bool:
    if isinstance(a, Ragged) or isinstance(b, Ragged):
        if not isinstance(a, Ragged) or not isinstance(b, Ragged) or len(a) != len(b):
            return False
        return bool(np.array_equal(a.lengths, b.lengths)) and _equal(a.flat, b.flat)
    if a.shape != b.shape or _kept(a.dtype) != _kept(b.dtype):
        return False
    # Bit for bit, so that NaN is NaN and -0.0 is not 0.0.
    one, other = np.ascontiguousarray(a), np.ascontiguousarray(b)
    return (
        one.tobytes() == other.tobytes()
        if one.dtype.hasobject
        else bool(np.array_equal(one.view(np.uint8), other.view(np.uint8)))
    )
