"""Verify a shard before it gets its final name."""

from __future__ import annotations

import mmap
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.conversion.budget import BoundedReader, Budget
from recmap.errors import MemoryLimitError, VerificationError
from recmap.formats.column_source import ColumnsSource
from recmap.formats.combined import SideBySideSource
from recmap.formats.open_spec import OpenOptions, open_source
from recmap.formats.raw import packed_dtype
from recmap.formats.registry import FORMATS, parameters
from recmap.formats.sink import Sink
from recmap.local.local_path import located
from recmap.machine.cpus import thread_count
from recmap.model.comparison import same_bits
from recmap.model.field import BYTES, TEXT
from recmap.model.ragged import BYTE, TEXT_BYTE, Column, Ragged, has_mask, null_mask
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, reference
from recmap.native import _core

# Bytes to check at a time while the file grows.
_FOLLOW_SIZE = 16 << 20
# Bytes of a slab for each column below which fewer columns are compared at a time.
_COLUMN_SIZE = 1 << 11
_CUT_OFF = {_core.FaultCode.header_cut, _core.FaultCode.data_cut}


class RecordCheck:
    """Checks the records of a file while the rest of it is still being written.

    This is almost free, because writing mostly waits for the disk.
    """

    def __init__(self) -> None:
        self._records = self._at = 0
        #: Whether the records were checked before they were sent.
        self.sent = False

    @classmethod
    def of(cls, sink: Sink) -> RecordCheck | None:
        """Return a check if the records of a sink can be checked while they are written."""
        if sink.records is None:
            return None
        check = cls()
        check.sent = not sink.output.path
        if check.sent:
            sink.records.watcher = check.see
        return check

    def follow(self, path: str, size: int, name: str, *, last: bool = False) -> None:
        """Check those records in the first ``size`` bytes that have not been checked yet."""
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
        if found.fault is not None and (last or found.fault.code not in _CUT_OFF):
            raise VerificationError(
                f"{name}: the record at byte {base + found.fault.offset:,} is not what was written"
            )

    def see(self, data: npt.NDArray[np.uint8]) -> None:
        """Check whole records that are about to be sent."""
        found = _core.scan(data, _core.ScanRequest(0, verify=True, threads=1))
        if found.fault is not None or found.end != len(data):
            raise VerificationError(
                f"the record at byte {self._at + found.end:,} is not what was encoded"
            )
        self._at += len(data)
        self._records += found.records

    def finish(self, path: str, name: str, rows: int) -> None:
        """Check the rest of the file, or the size of an object, and the number of records."""
        size = located(path).stat().size
        if not self.sent:
            self.follow(path, size, name, last=True)
        elif size != self._at:
            raise VerificationError(f"{name}: {self._at:,} bytes were sent, but it has {size:,}")
        if self._records != rows:
            raise VerificationError(
                f"{name}: {rows:,} rows were written, but the file has {self._records:,} records"
            )


def check_written(
    path: str, name: str, format: str, schema: Schema, rows: int, records: RecordCheck | None
) -> None:
    """Check the number of rows, the checksums and the column types of a file.

    ``records`` has checked most of it already, if it is not None.
    """
    if records is not None:
        records.finish(path, name, rows)
        return
    written = _reopened(path, format, schema)
    if len(written) != rows:
        raise VerificationError(
            f"{name}: {rows:,} rows were written, but the file has {len(written):,}"
        )
    for checksums in written.facts.checksums:
        checksums.check()
    untyped = FORMATS[format].sink_kind().untyped
    if not untyped and rows and _types(written.schema) != _types(schema):
        raise VerificationError(f"{name}: {schema} was written, but the file has {written.schema}")


def _types(schema: Schema) -> list[tuple[str, str]]:
    return sorted((_kept(field.dtype), str(field.shape)) for field in schema.values())


def _kept(dtype: np.dtype[Any]) -> str:
    """Return the part of a dtype that a file preserves under its temporary name.

    For dtypes that NumPy does not define, such as bfloat16, that is only the size. Text may be
    read back as bytes.
    """
    if dtype in (TEXT, TEXT_BYTE):
        dtype = BYTES if dtype == TEXT else BYTE
    return dtype.str if dtype.kind != "V" else f"V{dtype.itemsize}"


def _reopened(path: str, format: str, schema: Schema) -> Source:
    """Open a file under its temporary name, without a sidecar or description next to it."""
    kind = FORMATS[format]
    if not kind.sink_kind().untyped:
        opened = open_source(path, None, OpenOptions(format=format))
        index = opened.facts.table_index
        # What was written as the index of a table is not shown as columns.
        return opened if index is None else SideBySideSource({"rows": opened, "index": index})
    if "dtype" in parameters(kind.opener()):
        return open_source(path, None, OpenOptions(format=format, dtype=packed_dtype(schema)))
    return open_source(path, dict(schema), OpenOptions(format=format))


def check_values(
    path: str, name: str, format: str, source: Source, start: int, stop: int, budget: Budget
) -> None:
    """Compare every value of a file with the rows of the source."""
    # Read both with the libraries of their formats: recmap's own readers would repeat their
    # own mistakes.
    original = reference(source)
    written = reference(_reopened(path, format, source.schema))
    counted = FORMATS[format].sink_kind().counted
    pairs = zip(source.schema, written.schema, strict=True)
    names = {column: own for column, own in pairs if column not in counted}
    columns = list(names)
    together = max(1, len(columns))
    if isinstance(original, ColumnsSource) and isinstance(written, ColumnsSource):
        # Slabs of thousands of columns may have a single row, and each of its values would be
        # read on its own. Compare a few columns at a time instead.
        together = max(1, min(together, budget.limit // _COLUMN_SIZE))
    if together >= len(columns):
        _compare(name, original, written, names, start, stop, budget)
        return
    slab = replace(budget, slab_rows=max(1, budget.slab_rows * len(columns) // together))
    for at in range(0, len(columns), together):
        some = {column: names[column] for column in columns[at : at + together]}
        parts = original.select(list(some)), written.select(list(some.values()))
        _compare(name, *parts, some, start, stop, slab)


def _compare(
    name: str,
    original: Source,
    written: Source,
    names: Mapping[str, str],
    start: int,
    stop: int,
    budget: Budget,
) -> None:
    """Compare columns of the source with those of the file; ``names`` are their names there."""
    row = start
    with BoundedReader(original, budget, start, stop) as reader:
        while (wanted := reader.next()) is not None:
            first = row
            while row < reader.row:
                budget.release_freed()
                found = _read_back(written, row - start, reader.row - start, budget.read_back_limit)
                end = row + max(1, measure(found)[0])
                for column, written_as in names.items():
                    if not _equal(wanted[column][row - first : end - first], found[written_as]):
                        raise VerificationError(
                            f"{name}: column {column!r}: rows {row - start:,} to {end - start:,} "
                            f"are not those that were read ({row:,} to {end:,} of the source)"
                        )
                row = end
                del found  # free it before the next one is read
            del wanted


def _read_back(written: Source, start: int, stop: int, limit: int) -> Batch:
    try:
        return written.read(start, stop, limit)
    except MemoryLimitError:
        # The row fit when it was written, so do not fail because this format needs more memory.
        return written.read(start, start + 1)


def _equal(a: Column, b: Column) -> bool:
    if (has_mask(a) or has_mask(b)) and not np.array_equal(null_mask(a), null_mask(b)):
        return False
    if isinstance(a, Ragged) or isinstance(b, Ragged):
        if not isinstance(a, Ragged) or not isinstance(b, Ragged) or len(a) != len(b):
            return False
        return bool(np.array_equal(a.lengths, b.lengths)) and _equal(a.flat, b.flat)
    if a.shape != b.shape or _kept(a.dtype) != _kept(b.dtype):
        return False
    return same_bits(np.asarray(a), np.asarray(b))
