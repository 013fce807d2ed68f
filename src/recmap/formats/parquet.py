"""Parquet files, read and written through pyarrow."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, partial
from itertools import islice
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from recmap.errors import DataError, OptionError, RecmapError, UnknownFormatError
from recmap.formats.arrow_columns import ARROW_FAILURES, ArrowColumns, check_values, decoding
from recmap.formats.column_source import warn_of_left_out
from recmap.formats.exact_types import ParquetNulls, parquet_fields, with_fewer_digits
from recmap.formats.parquet_pages import PageRows
from recmap.formats.parquet_sizes import CODECS, LEVELS, ParquetSizes
from recmap.formats.parquet_statistics import value_ranges
from recmap.formats.parquet_thrift import THRIFT_FAILURES, ThriftReader
from recmap.formats.row_group_file import Cuts, RowGroupFile, check_groups, cut, even_cuts
from recmap.formats.row_group_sink import RowGroupSink
from recmap.formats.row_groups import RowGroupSource
from recmap.formats.sink import SinkKind
from recmap.formats.stored_columns import noted_fields
from recmap.local.local_path import located
from recmap.local.output import Output
from recmap.machine.mapped import guarded
from recmap.machine.memory import also_give_back
from recmap.model.arguments import as_whole, check_choice
from recmap.model.batch import RowArray
from recmap.model.nulls import Nulls
from recmap.model.schema import Batch, FieldsLike, Schema
from recmap.model.table_notes import arrow_types, stored_types
from recmap.model.value_test import ValueRange
from recmap.store.open_object import SeekableMapping

also_give_back(pa.default_memory_pool().release_unused)

# The end of every file: the size of the footer, and the magic number.
_END = 8
# What 64 bits of nanoseconds hold, in seconds.
_SECONDS = (1 << 63) // 10**9
# Numbers of fields in the footer: the row groups, the columns of one, how a column is encrypted.
_ROW_GROUPS, _CHUNKS, _ENCRYPTION = 4, 1, 8
_COMPRESSIONS = ("zstd", "snappy", "gzip", "lz4", "brotli", None)
# Rows and bytes to read to estimate the size of a row, and how large pages may be for that.
_SAMPLED, _SAMPLE_SIZE, _SAMPLED_PAGES = 32, 1 << 20, 8 << 20
# What is read at once of an object, instead of a whole column of a row group.
_BUFFER = 1 << 20
# Bytes to decode at once to check a file.
_CHECKED = 32 << 20
_PARTITION = re.compile(r"([A-Za-z_][\w.-]*)=.*")


def open_parquet(
    path: str, fields: FieldsLike | None = None, *, nulls: Nulls = "keep", verify: bool = True
) -> RowGroupSource:
    """Open a file, or some of its columns. ``verify`` checks the checksums of pages."""
    file = _ParquetFile(path, fields, nulls, verify)
    names = file.columns.choose(fields, file.index_names)
    if fields is None:
        _warn_of_partitions(path, file.schema)
    # Reopen by name, so that the warning about columns left out is not repeated.
    reopen = partial(open_parquet, path, file.columns.fields(names), nulls=nulls, verify=verify)
    return RowGroupSource(file, names, reopen)


def _warn_of_partitions(path: str, schema: Schema) -> None:
    """Warn of columns that are only in the names of folders: ``year=2026/x.parquet``."""
    folder, missing = os.path.dirname(path), []
    while match := _PARTITION.fullmatch(os.path.basename(folder)):
        if match[1] not in schema:
            missing.append(match[1])
        folder = os.path.dirname(folder)
    if missing:
        named = ", ".join(map(repr, reversed(missing)))
        warn_of_left_out(
            f"{folder or '.'}: {named} in the names of folders is not read as a column; add it "
            "with map, or write it into the files"
        )


class _ParquetFile(RowGroupFile):
    format = "parquet"

    def __init__(self, path: str, fields: FieldsLike | None, nulls: Nulls, verify: bool) -> None:
        super().__init__(path, located(path).map())
        self._verify, self._given_nulls = verify, nulls
        self._checked_int96: set[tuple[int, int]] = set()
        try:
            footer = self._footer()
            with self.mapped.hold(*footer):
                self._metadata: Any = None
                file = self._open()
                self._metadata = file.metadata
                self._check_encryption(footer)
                self._sizes = ParquetSizes(self.mapped, footer, self._metadata, self._open)
                if not self.mapped.whole:
                    self._sizes.read_footer()  # it would have to be fetched again
            schema = file.schema_arrow
            noted = noted_fields(schema.metadata)
            known = nulls in ("keep", "mask")
            exact: Iterable[Any] = with_fewer_digits(schema, self._metadata)
            if known:
                exact = parquet_fields(exact, self._nulls(footer), noted)
            alone = [
                (field.name, pa.RecordBatchReader.from_batches(pa.schema([field]), []))
                for field in exact
            ]
            types = arrow_types(schema)
        except RecmapError:
            raise
        except ARROW_FAILURES as e:
            raise DataError(f"{path}: not a valid Parquet file: {e}", file=path) from e
        groups = range(self._metadata.num_row_groups)
        self.group_rows = np.array([self._metadata.row_group(i).num_rows for i in groups], np.int64)
        self._check_rows()
        self.columns = ArrowColumns(path, alone, noted, nulls, fields)
        self.alternatives = self.columns.alternatives
        self._leaves = _leaves(schema, self.columns.owners)
        self._pages = PageRows(
            self.mapped, footer, self._sizes, self._metadata, schema, verify, self.columns
        )
        self.columns.compare_notes(self)
        self.table_types = stored_types(types, schema.metadata, self.schema)

    def _footer(self) -> tuple[int, int]:
        """Return where the footer is, which says where all else is."""
        size = self.mapped.size
        if size < _END + 4:
            raise DataError(
                f"{self.path}: a damaged Parquet file: {size:,} bytes hold no footer",
                file=self.path,
                byte=size,
            )
        with self.mapped.hold(size - _END, size):
            length = int.from_bytes(self.mapped.bytes[-_END:-4].tobytes(), "little")
        if length > size - _END - 4:
            raise DataError(
                f"{self.path}: a Parquet file, cut or damaged: its footer would have {length:,} "
                f"bytes, and the file has {size:,}",
                file=self.path,
                byte=size,
            )
        return size - _END - length, size

    def _check_encryption(self, footer: tuple[int, int]) -> None:
        """Refuse encrypted columns: pyarrow ends the process when it is asked about one."""
        begin, end = footer[0], footer[1] - _END
        if self._metadata.serialized_size == end - begin:
            return
        # The footer is signed, as it is if some columns are encrypted but it is not.
        try:
            content = ThriftReader(self.mapped.bytes[begin:end].tobytes()).struct()
            groups = content.get(_ROW_GROUPS) or [{_CHUNKS: []}]
            encrypted = [
                repr(self._metadata.schema.column(leaf).path)
                for leaf, chunk in enumerate(groups[0][_CHUNKS])
                if _ENCRYPTION in chunk
            ]
        except THRIFT_FAILURES as e:
            raise DataError(f"{self.path}: a damaged footer: {e}", file=self.path) from e
        if encrypted:
            raise UnknownFormatError(
                f"{self.path}: encrypted Parquet: {', '.join(encrypted)}. Decrypt it: write it "
                "again with pyarrow.parquet",
                file=self.path,
            )

    def _nulls(self, footer: tuple[int, int]) -> ParquetNulls:
        def read() -> bytes:
            with self.mapped.hold(*footer):
                return self.mapped.bytes[slice(*footer)].tobytes()

        return ParquetNulls(self._metadata, read)

    def _open(self, dictionaries: Sequence[str] = (), int96: str | None = None) -> Any:
        """Open the file.

        The strings of some columns are left in their ``dictionaries``. ``int96`` is the unit of
        times of 96 bits.
        """
        # Each thread opens the file for itself: an open one remembers the size of batches.
        file = self.mapped
        source = pa.BufferReader(pa.py_buffer(file.bytes)) if file.whole else SeekableMapping(file)
        return pq.ParquetFile(
            source,
            metadata=self._metadata,
            read_dictionary=list(dictionaries) or None,
            pre_buffer=False,
            buffer_size=0 if file.whole else _BUFFER,
            page_checksum_verification=self._verify,
            coerce_int96_timestamp_unit=int96,
        )

    def _check_rows(self) -> None:
        rows, total = self.group_rows, self._metadata.num_rows
        counted = sum(rows.tolist())
        # Some writers leave out the total, which is 0 then. What row groups hold is checked below.
        if bool((rows < 0).any()) or total not in (0, counted) or counted >= 1 << 62:
            raise DataError(
                f"{self.path}: damaged: {total:,} rows, but {counted:,} in its row groups",
                file=self.path,
            )
        # A row group without rows is never read. Those of others are counted when they are.
        for group in np.flatnonzero(rows == 0).tolist():
            values = max((chunk.values for chunk in self._sizes.chunks(group)), default=0)
            if values:
                raise self.damaged(group, f"0 rows, but {values:,} values in a column")

    @property
    def note(self) -> str:
        # The first row group stands for all: programs compress them alike.
        codecs = {chunk.codec for chunk in self._sizes.chunks(0)}
        return ", ".join([super().note, *sorted(map(_codec_name, codecs))])

    @property
    def schema(self) -> Schema:
        return self.columns.schema

    @cached_property
    def _sample(self) -> dict[str, int]:
        """The bytes of a row of each column whose rows differ in size, in some rows."""
        varying = [name for name, field in self.schema.items() if field.row_bytes is None]
        group = int(np.argmax(self.group_rows > 0)) if len(self.group_rows) else 0
        sizes, rows = dict.fromkeys(varying, 0), 0
        if not varying or not self.group_rows.any():
            return sizes
        if self._sizes.unit(group, self._leaves_of(varying)) > _SAMPLED_PAGES:
            # Reading any row would take much memory.
            return {name: self._sizes.stored_row(group, self._leaves[name]) for name in varying}
        count = int(self.group_rows[group])
        few = np.unique([*range(min(_SAMPLED, count) + 1), count])
        with suppress(DataError):  # raised when these rows are asked for
            for batch in islice(self.batches(group, varying, Cuts(few, few)), _SAMPLED):
                rows += 1
                for name, column in batch.items():
                    sizes[name] += column.nbytes
                if sum(sizes.values()) > _SAMPLE_SIZE:
                    break
        return {name: size // max(1, rows) for name, size in sizes.items()}

    def row_bytes(self, name: str) -> int:
        size = self.schema[name].row_bytes
        return size if size is not None else self._sample[name]

    def decoding_bytes(self, name: str, row_bytes: int) -> int:
        field = self.schema[name]
        if not field.shape:
            return row_bytes
        return row_bytes + LEVELS * (row_bytes // max(1, field.dtype.itemsize))

    def value_ranges(self, name: str) -> Sequence[ValueRange] | None:
        leaves = self._leaves[name]
        if len(leaves) != 1:
            return None
        return value_ranges(self._metadata, leaves[0], name, self.schema[name], self._given_nulls)

    def _leaves_of(self, names: Sequence[str]) -> list[int]:
        """Return the numbers of the stored columns that these columns need."""
        return sorted({leaf for name in names for leaf in self._leaves[name]})

    def largest_unit(self, names: Sequence[str]) -> tuple[int, int]:
        return self._sizes.largest_unit(self._leaves_of(names))

    def cuts(
        self, group: int, row_bytes: Mapping[str, int], size: int, whole: int | None = None
    ) -> Cuts:
        varying = [name for name in row_bytes if self.schema[name].row_bytes is None]
        if whole is None or not varying:
            return super().cuts(group, row_bytes, size)
        rows, leaves = int(self.group_rows[group]), self._leaves_of(varying)
        same = {name: each for name, each in row_bytes.items() if name not in varying}
        each = sum(self.decoding_bytes(*column) for column in same.items())
        most = self._sizes.most(group, leaves)
        if most is not None and most + each * rows <= whole:
            return even_cuts(rows, each + most // max(1, rows), size)
        cells = self._sizes.cells(group, leaves, size)
        if cells is None:
            return super().cuts(group, row_bytes, size)
        return cut(cells, rows, each, size)

    def batches(self, group: int, names: Sequence[str], cuts: Cuts) -> Iterator[Batch]:
        self._check_int96(group, names)
        with decoding(self, group):
            reader = self._open().reader
            rows = np.diff(cuts.starts).tolist()
            found = reader.iter_batches(
                rows[0],
                row_groups=[group],
                column_indices=self._leaves_of(names),
                use_threads=False,
            )
            row, piece, left = self.first_row(group), 0, rows[0]
            for batch in found:
                left -= batch.num_rows
                if left <= 0 and piece + 1 < len(rows):
                    piece += 1
                    left = rows[piece]
                    reader.set_batch_size(left)
                yield self.columns.batch(batch, names, row)
                row += batch.num_rows

    def take_few(self, group: int, names: Sequence[str], rows: RowArray) -> Batch | None:
        try:
            self._check_int96(group, names)
            return self._pages.take(group, names, rows)
        except (*ARROW_FAILURES, *THRIFT_FAILURES, DataError):
            return None  # decoding all of the row group tells what is wrong

    @cached_property
    def _int96(self) -> frozenset[int]:
        schema = self._metadata.schema
        leaves = range(self._metadata.num_columns)
        return frozenset(i for i in leaves if schema.column(i).physical_type == "INT96")

    def _check_int96(self, group: int, names: Sequence[str]) -> None:
        """Refuse times of 96 bits that pyarrow would turn into others: it does not check."""
        for leaf in self._int96.intersection(self._leaves_of(names) if self._int96 else ()):
            if (group, leaf) in self._checked_int96:
                continue
            with decoding(self, group):
                reader = self._open(int96="s").reader
                found = [
                    _bounds(batch.column(0))
                    for batch in reader.iter_batches(
                        _CHECKED // 16, row_groups=[group], column_indices=[leaf], use_threads=False
                    )
                ]
            most = max((abs(each) for pair in found for each in pair), default=0)
            if most >= _SECONDS:
                unit = "us" if most < _SECONDS * 1000 else "ms"
                raise DataError(
                    f"{self.path}: column {self._metadata.schema.column(leaf).path!r}, row group "
                    f"{group}: a time is out of the range of nanoseconds; rm.open(pyarrow.parquet."
                    f"read_table(..., coerce_int96_timestamp_unit={unit!r})) reads it",
                    file=self.path,
                )
            self._checked_int96.add((group, leaf))

    @guarded
    def check(self, group: int) -> None:
        with decoding(self, group):
            try:
                self._decode(group, None)
            except pa.ArrowNotImplementedError:  # pyarrow does not read one of the columns
                for leaf in range(self._metadata.num_columns):
                    with suppress(pa.ArrowNotImplementedError):
                        self._decode(group, [leaf])

    def _decode(self, group: int, leaves: list[int] | None) -> None:
        """Decode stored columns of a row group, without keeping their values."""
        expected = int(self.group_rows[group])
        size = self._metadata.row_group(group).total_byte_size // max(1, expected)
        rows = max(1, min(expected, _CHECKED // max(1, size)))
        found = 0
        for batch in self._open().reader.iter_batches(
            rows, row_groups=[group], column_indices=leaves, use_threads=False
        ):
            check_values(batch)
            found += batch.num_rows
        if found != expected:
            raise self.damaged(group, f"{found:,} rows were found, not {expected:,}")


def check_parquet(path: str) -> Iterator[tuple[int, DataError | None]]:
    """Decode all of a file, and yield the rows of each row group and what is wrong with it."""
    return check_groups(_ParquetFile(path, None, "keep", verify=True))


def _bounds(times: Any) -> tuple[int, int]:
    """Return the first and last of times in seconds, which may be in structs and lists."""
    type = times.type
    if pa.types.is_struct(type):
        return _bounds(times.flatten()[0])
    if pa.types.is_map(type):  # of which one stored column was read
        return _bounds(times.keys if pa.types.is_timestamp(type.key_type) else times.items)
    if pa.types.is_nested(type):
        return _bounds(times.flatten())
    valid = times.drop_null().cast(pa.int64()).to_numpy()
    return (int(valid.min()), int(valid.max())) if valid.size else (0, 0)


def _codec_name(number: int) -> str:
    if not 0 <= number < len(CODECS):
        return "an unknown compression"
    return CODECS[number].partition("_")[0] or "uncompressed"


def _leaves(schema: Any, owners: Mapping[str, int]) -> dict[str, range]:
    """Return the numbers of the stored columns of each column. A struct or map has several."""
    inside: list[dict[str, range]] = []
    end = 0
    for field in schema:
        found, end = _leaves_within(field.name, field.type, end)
        inside.append(found)
    leaves = {}
    for name, number in owners.items():
        mine = inside[number]
        # A mask column is made from the column that it belongs to.
        leaves[name] = mine.get(name) or mine.get(name.rpartition("/")[0]) or _all(mine)
    return leaves


def _leaves_within(name: str, type: Any, first: int) -> tuple[dict[str, range], int]:
    found: dict[str, range] = {}
    if isinstance(type, pa.BaseExtensionType):
        found, end = _leaves_within(name, type.storage_type, first)
        return dict.fromkeys(found, range(first, end)), end  # pyarrow reads only all of it
    end = first
    for i in range(type.num_fields):
        inner = type.field(i)
        called = f"{name}/{inner.name}" if pa.types.is_struct(type) else name
        more, end = _leaves_within(called, inner.type, end)
        found.update(more)
    if not type.num_fields and not pa.types.is_struct(type):  # a struct may be empty
        end += 1
    return {**found, name: range(first, end)}, end


def _all(leaves: Mapping[str, range]) -> range:
    return range(
        min(leaf.start for leaf in leaves.values()), max(leaf.stop for leaf in leaves.values())
    )


class ParquetSink(RowGroupSink):
    """Writes row groups, each of as many rows as fit into the memory.

    ``row_group_rows`` sets a number of rows instead. ``level`` is that of the compression.
    Rows of several axes are written as tensors, an extension of Arrow that other programs read
    as lists. With ``tensors="list"`` they are lists of lists.
    """

    def __init__(
        self,
        output: Output,
        schema: Schema,
        *,
        compression: Literal["zstd", "snappy", "gzip", "lz4", "brotli"] | None = "zstd",
        level: int | None = None,
        row_group_rows: int | None = None,
        tensors: Literal["extension", "list"] = "extension",
        room: int | None = None,
        table_types: Mapping[str, Any] | None = None,
    ) -> None:
        check_choice("compression", compression, _COMPRESSIONS)
        if level is not None:
            level = as_whole("level", level, most=22)
            if compression not in ("zstd", "gzip", "brotli"):
                raise OptionError(f"level={level}: {compression} has no levels")
        self._compression, self._level = compression or "none", level
        self._writer: Any = None
        super().__init__(output, schema, row_group_rows, tensors, room, table_types)

    def begin(self, file: Any, empty: Any, metadata: Mapping[bytes, bytes]) -> None:
        arrow = pa.RecordBatchReader.from_stream(empty).schema
        self._open_writer(file, arrow.with_metadata(metadata))

    def _open_writer(self, file: Any, arrow: Any) -> None:
        # Strings repeat. Numbers rarely do, and looking for that takes longer than all else.
        strings = [
            ".".join([name, *["list.element"] * len(field.shape)])
            for name, field in self.schema.items()
            if field.is_bytes
        ]
        self._writer = pq.ParquetWriter(
            file,
            arrow,
            use_dictionary=strings or False,
            compression=self._compression,
            compression_level=self._level,
            write_page_checksum=True,
            # With it, pages of lists begin with a row, so that rows can be read at random.
            write_page_index=True,
        )

    def write_group(self, rows: Any) -> None:
        table = pa.RecordBatchReader.from_stream(rows).read_all()
        self._writer.write_table(table, row_group_size=table.num_rows)

    def end_groups(self) -> None:
        self._writer.close()


SINK = SinkKind(ParquetSink, streams=True, nulls="values", column_bytes=12_000)
