"""Writes HDF5 files: one dataset per column."""

from __future__ import annotations

import heapq
import json
from collections.abc import Mapping
from typing import Any, Literal

from recmap.errors import ColumnError, Message, Option, OptionError
from recmap.formats.hdf5.column_writer import ColumnWriter, NestedWriter
from recmap.formats.hdf5.file import Hdf5Output, h5py, limit_metadata_cache
from recmap.formats.hdf5.types import TABLE_ATTRIBUTE, is_nested
from recmap.formats.sink import Sink, SinkKind
from recmap.local.atomic_write import writing
from recmap.local.output import Output
from recmap.model.arguments import as_whole, check_choice, check_flag
from recmap.model.coerce import as_columns, fit
from recmap.model.schema import Schema

# Bytes of rows that may wait to fill a chunk, for all columns together.
_HELD = 16 << 20
# Maximum bytes of the library's own cache per column; chunks are written whole.
_CACHE = 1 << 20


class Hdf5Sink(Sink):
    """Writes datasets named after the columns; ``group/x`` is ``x`` in a group.

    Ragged columns and byte strings become variable-length lists, which HDF5 does not
    compress. Lists of lists become groups of values and offsets. ``level`` is the gzip level,
    0 to 9. ``shuffle`` defaults to True with compression.
    """

    def __init__(
        self,
        output: Output,
        schema: Schema,
        *,
        compression: Literal["gzip", "lzf"] | None = None,
        level: int | None = None,
        shuffle: bool | None = None,
        chunk_rows: int | None = None,
        expected: int | None = None,
        table_note: Mapping[str, Any] | None = None,
    ) -> None:
        filters = _filters(compression, level, shuffle)
        chunk_rows = None if chunk_rows is None else as_whole("chunk_rows", chunk_rows, 1, 2**31)
        _check_names(output.target, schema)
        super().__init__(output, schema)
        with writing(output.target):
            self._written = Hdf5Output(output.path)
        self._file: Any = None
        try:
            room = _HELD // len(schema)
            # The cache size is per dataset.
            self._file = h5py.File(
                self._written,
                "w",
                libver="earliest",
                rdcc_nbytes=min(room, _CACHE),
                rdcc_nslots=101,
            )
            limit_metadata_cache(self._file)
            if table_note:
                self._file.attrs[TABLE_ATTRIBUTE] = json.dumps(table_note)
            self._columns: dict[str, ColumnWriter | NestedWriter] = {
                name: NestedWriter(self._file, name, field, i, filters, room)
                if is_nested(field)
                else ColumnWriter(self._file, name, field, i, chunk_rows, filters, room, expected)
                for i, (name, field) in enumerate(schema.items())
            }
            self._written.check()
        except BaseException:
            self.close()
            raise

    def write(self, batch: Mapping[str, Any]) -> None:
        """Append rows."""
        columns, rows = fit(as_columns(batch), self.schema)
        if rows == 0:
            return
        for name, column in columns.items():
            self._columns[name].add(column)
        # Write spans in the order of their last rows, so that the file does not depend on
        # how the rows were batched.
        writers = self._writers
        ready = [(end, i) for i, writer in enumerate(writers) if (end := writer.next) is not None]
        heapq.heapify(ready)
        while ready:
            _, i = heapq.heappop(ready)
            writers[i].write()
            self._written.check()
            if (end := writers[i].next) is not None:
                heapq.heappush(ready, (end, i))
        for writer in writers:
            writer.keep()

    @property
    def _writers(self) -> list[ColumnWriter]:
        return [writer for column in self._columns.values() for writer in column.writers]

    def end(self) -> None:
        for writer in self._writers:
            writer.write()
            self._written.check()
        self.close()
        self._written.check()

    def close(self) -> None:
        try:
            if self._file is not None:
                self._file.close()
        finally:
            self._written.close()


def _filters(compression: str | None, level: int | None, shuffle: bool | None) -> dict[str, Any]:
    check_choice("compression", compression, ("gzip", "lzf", None))
    if level is not None and (compression != "gzip" or as_whole("level", level) > 9):
        raise OptionError(f'level={level!r}: 0 to 9, and with compression="gzip"')
    if shuffle is not None:
        check_flag("shuffle", shuffle)
    return {
        "compression": compression,
        "compression_opts": level,
        "shuffle": compression is not None if shuffle is None else shuffle,
    }


def _check_names(path: str, schema: Schema) -> None:
    if not schema:
        raise ColumnError(f"{path}: there are no columns to write")
    for name in schema:
        names = name.split("/")
        if "\0" in name or "" in names or "." in names:
            raise ColumnError(f"{path}: {name!r} cannot be a path in an HDF5 file; rename it")
        for outer in _around(name, schema):
            within = [each for each in schema if _around(each, schema)]
            raise ColumnError(
                Message(
                    f"{path}: {name!r} would be inside {outer!r}, which is a column, not a group; "
                    "rename one of them, as in ",
                    Option("rename", {each: each.replace("/", "_") for each in within}, verb=True),
                )
            )


def _around(name: str, schema: Schema) -> list[str]:
    """Return the columns that a column of this name would be inside."""
    names = name.split("/")
    outer = ["/".join(names[:end]) for end in range(1, len(names))]
    return [each for each in outer if each in schema]


SINK = SinkKind(
    Hdf5Sink,
    nulls="masks",
    column_bytes=6_000,
    ready_bytes=90_000,
    waiting_bytes=24 * 10**6,
    list_copies=3,
)
