"""Checks of what was written, before it gets its name."""

from __future__ import annotations

import mmap
import os
from typing import Any

import numpy as np

from recmap.conversion.bounded_reader import Steps
from recmap.conversion.budget import Budget
from recmap.errors import MemoryLimitError, VerificationError
from recmap.files.cpus import thread_count
from recmap.formats.raw import packed_dtype
from recmap.formats.registry import OpenOptions, open_source
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source
from recmap.native import _core

__all__ = ["RecordCheck", "check_values", "check_written"]

# Checked at a time, while the file grows.
_FOLLOW_SIZE = 16 << 20
_COMPARED_SIZE = 1 << 18
_CUT = {_core.FaultCode.header_cut, _core.FaultCode.data_cut}


class RecordCheck:
    """Checks the records of a file while the rest of it is still being written, which
    takes little time that would not be spent waiting for the disk.
    """

    def __init__(self) -> None:
        self._records = self._at = 0

    def follow(self, path: str, size: int, name: str, *, last: bool = False) -> None:
        """Checks what lies in the first ``size`` bytes and was not checked before."""
        if size - self._at < (1 if last else _FOLLOW_SIZE):
            return
        base = self._at - self._at % mmap.ALLOCATIONGRANULARITY
        with open(path, "rb") as file:
            mapped = mmap.mmap(file.fileno(), size - base, access=mmap.ACCESS_READ, offset=base)
        data = np.frombuffer(mapped, np.uint8)
        threads = thread_count() if last else 1
        found = _core.scan(data, _core.ScanRequest(self._at - base, verify=True, threads=threads))
        self._at = base + found.end
        self._records += found.records
        if found.fault is not None and (last or found.fault.code not in _CUT):
            raise VerificationError(
                f"{name}: the record at byte {base + found.fault.offset:,} is not what was written"
            )

    def finish(self, path: str, name: str, rows: int) -> None:
        """Checks the rest, and the number of records."""
        self.follow(path, os.path.getsize(path), name, last=True)
        if self._records != rows:
            raise VerificationError(
                f"{name}: {rows:,} rows were written, but {self._records:,} records are there"
            )


def check_written(path: str, name: str, format: str, schema: Schema, rows: int) -> None:
    """Counts the rows of a file."""
    written = _reopened(path, format, schema)
    if len(written) != rows:
        raise VerificationError(
            f"{name}: {rows:,} rows were written, but {len(written):,} are there"
        )
    written.check_sums()
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
    path: str, name: str, format: str, source: Source, start: int, stop: int, budget: Budget
) -> None:
    """Compares every value of a file with the rows it was made of."""
    # Through the libraries of the formats: what was read or written wrongly would be wrong
    # in the same way if it were read as before.
    written = _reopened(path, format, source.schema).reference()
    names = dict(zip(source.schema, written.schema, strict=True))
    steps = Steps(source.reference(), budget, start, stop)
    row = start
    while (wanted := steps.next()) is not None:
        first = row
        while row < steps.row:
            budget.tidy()
            found = _read_back(written, row - start, steps.row - start, budget.limit_back)
            end = row + max(1, measure(found)[0])
            for column in source.schema:
                if not _equal(wanted[column][row - first : end - first], found[names[column]]):
                    raise VerificationError(
                        f"{name}: column {column!r}: rows {row - start:,} to {end - start:,} are "
                        f"not those that were read ({row:,} to {end:,} of the source)"
                    )
            row = end
            del found  # before the next are read
        del wanted


def _read_back(written: Source, start: int, stop: int, limit: int) -> Batch:
    try:
        return written.read(start, stop, limit)
    except MemoryLimitError:
        # It was held to be written, and must not fail because it takes more in this format.
        return written.read(start, start + 1)


def _equal(a: Column, b: Column) -> bool:
    if isinstance(a, Ragged) or isinstance(b, Ragged):
        if not isinstance(a, Ragged) or not isinstance(b, Ragged) or len(a) != len(b):
            return False
        return bool(np.array_equal(a.lengths, b.lengths)) and _equal(a.flat, b.flat)
    if a.shape != b.shape or _kept(a.dtype) != _kept(b.dtype):
        return False
    # Bit for bit, so that NaN is NaN and -0.0 is not 0.0.
    one, other = np.ascontiguousarray(a), np.ascontiguousarray(b)
    if one.dtype.hasobject:
        return one.tobytes() == other.tobytes()
    one, other = one.reshape(-1).view(np.uint8), other.reshape(-1).view(np.uint8)
    # A piece at a time: what numpy makes of a comparison is as large as what it compares.
    pieces = (slice(at, at + _COMPARED_SIZE) for at in range(0, len(one), _COMPARED_SIZE))
    return all(np.array_equal(one[piece], other[piece]) for piece in pieces)
