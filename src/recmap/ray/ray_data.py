"""What Ray Data calls to read and write files of any format. Importing this imports Ray."""

from __future__ import annotations

import dataclasses
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any
from uuid import uuid4

from ray.data import DataContext, Datasink, Datasource, ReadTask, read_datasource
from ray.data.block import BlockMetadata

from recmap.conversion.verify import RecordCheck, check_written
from recmap.errors import ColumnError, DataError, MemoryLimitError, OptionError
from recmap.formats.registry import FORMATS, create_sink
from recmap.formats.sink import Sink
from recmap.formats.tfrecord_partitions import Partition
from recmap.local.local_path import check_all_unchanged, located
from recmap.model.field import Field
from recmap.model.null_columns import empty_column
from recmap.model.row_sizes import measure
from recmap.model.schema import Schema
from recmap.ray.arrow_tables import batch_of, schema_of, table_of, table_of_block
from recmap.ray.file_partitions import RowSpan, assign_rows
from recmap.ray.staging import StagedOutput, StagedShard

__all__ = ["RecmapDatasink", "RecmapDatasource", "read_datasource"]

# Block size in bytes if Ray sets no limit.
_BLOCK_SIZE = 128 << 20
# The arguments of Ray's classes differ between releases.
_METADATA_FIELDS = {field.name for field in dataclasses.fields(BlockMetadata)}
_TASK_ARGUMENTS = inspect.signature(ReadTask.__init__).parameters


class RecmapDatasource(Datasource):  # type: ignore[misc]  # untyped
    """The rows of files. Each takes about ``row_bytes`` of memory, and all together ``size``."""

    def __init__(
        self, schema: Schema, partitions: Sequence[Partition], row_bytes: int, size: int
    ) -> None:
        super().__init__()
        self._schema, self._partitions = schema, list(partitions)
        self._row_bytes, self._size = row_bytes, size
        # Maps the columns to read to their new names. Ray sets this attribute.
        self._projection_map: dict[str, str] | None = None

    def get_name(self) -> str:
        return "Recmap"

    def estimate_inmemory_data_size(self) -> int | None:
        return self._size

    def supports_projection_pushdown(self) -> bool:
        return True

    def apply_projection(self, projection_map: dict[str, str] | None) -> Datasource:
        if projection_map is not None and not projection_map:
            # Ray asks for no columns to count rows, but a table without columns has no rows.
            first = next(iter(self._names()))
            projection_map = {first: first}
        return super().apply_projection(projection_map)

    def get_read_tasks(
        self,
        parallelism: int,
        per_task_row_limit: int | None = None,
        data_context: Any = None,
    ) -> list[Any]:
        context = data_context or DataContext.get_current()
        block_size = context.target_max_block_size or _BLOCK_SIZE
        names = self._names()
        named = Schema({new: self._schema[old] for old, new in names.items()})
        schema = _empty(named).schema
        return [
            self._task(spans, names, schema, block_size, per_task_row_limit)
            for spans in assign_rows(self._partitions, max(1, parallelism))
        ]

    def _names(self) -> Mapping[str, str]:
        names = self._projection_map
        return {name: name for name in self._schema} if names is None else names

    def _task(
        self,
        spans: list[RowSpan],
        names: Mapping[str, str],
        schema: Any,
        block_size: int,
        limit: int | None,
    ) -> Any:
        counts = [span.rows for span in spans]
        known = [count for count in counts if count is not None]
        rows = sum(known) if len(known) == len(counts) else None
        metadata = {
            "num_rows": rows,
            "size_bytes": None if rows is None else rows * self._row_bytes,
            "input_files": [str(file) for span in spans for file in span.partition.files],
            "exec_stats": None,
        }
        arguments: dict[str, Any] = {}
        if "schema" in _METADATA_FIELDS:
            metadata["schema"] = schema
        else:
            arguments["schema"] = schema
        if "per_task_row_limit" in _TASK_ARGUMENTS:
            arguments["per_task_row_limit"] = limit
        read = _read_function(spans, names, self._schema, self._row_bytes, block_size)
        return ReadTask(read, BlockMetadata(**metadata), **arguments)


def _read_function(
    spans: list[RowSpan],
    names: Mapping[str, str],
    schema: Schema,
    row_bytes: int,
    block_size: int,
) -> Callable[[], Iterator[Any]]:
    """Return the function that a task calls to read its blocks."""
    named = Schema({new: schema[old] for old, new in names.items()})

    def read_recmap() -> Iterator[Any]:
        if all(span.rows == 0 for span in spans):
            yield _empty(named)
        for span in spans:
            read = span.partition.open(list(names))
            wanted = max(1, block_size // row_bytes)
            unit = span.partition.unit
            row = span.start
            while span.stop is None or row < span.stop:
                whole = wanted // unit * unit or wanted
                stop = row + whole if span.stop is None else min(row + whole, span.stop)
                try:
                    batch = read(row, stop, block_size)
                except MemoryLimitError:  # a single row is larger than a block
                    batch = read(row, row + 1, None)
                rows, size = measure(batch)
                if not rows:
                    break
                yield table_of({new: batch[old] for old, new in names.items()}, named)
                row += rows
                wanted = max(1, block_size * rows // max(size, 1))
            if span.stop is not None and row < span.stop:
                raise DataError(
                    f"{span.partition.files[0]}: it ended at row {row:,}, not {span.stop:,}"
                )
            check_all_unchanged(span.partition.files)

    return read_recmap


def _empty(schema: Schema) -> Any:
    return table_of({name: empty_column(field) for name, field in schema.items()}, schema)


class RecmapDatasink(Datasink):  # type: ignore[misc]  # untyped
    """Writes one file per task, in a hidden folder until all of them are complete."""

    def __init__(
        self,
        output: StagedOutput,
        stage: str,
        schema: Schema | None,
        fields: Mapping[str, Field],
        verify: bool,
        options: Mapping[str, Any],
        min_rows: int | None,
    ) -> None:
        self._output, self._stage = output, stage
        # Without a schema, each task derives one from its first block and the given fields.
        self._schema, self._fields = schema, fields
        self._verify, self._options, self._min_rows = verify, dict(options), min_rows
        #: The published files and their total number of rows.
        self.files: list[str] = []
        self.rows = 0

    def get_name(self) -> str:
        return "Recmap"

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    def check(self) -> None:
        """Raise if the format rejects the columns or options. Skipped if the schema is unknown."""
        if self._schema:
            create_sink(self._path(0), self._output.format, self._schema, **self._options).abort()

    def write(self, blocks: Iterable[Any], ctx: Any) -> StagedShard | None:
        """Write the blocks of one task. Return None if they have no rows."""
        self._output.check_stage(self._stage)
        tables = map(table_of_block, blocks)
        filled = (table for table in tables if table.num_rows)
        first = next(filled, None)
        if first is None:
            return None
        schema = self._schema or schema_of(first.schema, self._fields)
        return self._write_file(ctx.task_idx, schema, chain([first], filled))

    def _write_file(self, task: int, schema: Schema, tables: Iterable[Any]) -> StagedShard:
        name = f"{self._output.dst} (task {task:,})"
        path, rows = self._path(task), 0
        sink = create_sink(path, self._output.format, schema, **self._options)
        try:
            check = RecordCheck.of(sink) if self._verify else None
            for table in tables:
                rows += _write_table(sink, table, schema, name)
            written = sink.finish()
            if written and self._verify:
                check_written(written, name, self._output.format, schema, rows, check)
            self._output.check_stage(self._stage)
            sink.commit()
            if not written and self._verify:
                sent = located(path).anew()
                check_written(sent, name, self._output.format, schema, rows, check)
        except BaseException:
            sink.abort()
            raise
        return StagedShard(task, path, rows, schema)

    def _path(self, task: int) -> str:
        # The name is unique to this attempt. The suffix stays: it can select the compression.
        given = os.path.basename(self._output.dst).lower()
        suffixes = FORMATS[self._output.format].suffixes
        suffix = max((s for s in suffixes if given.endswith(s)), key=len, default=suffixes[0])
        return located(self._stage).child(f"{task}-{uuid4().hex[:12]}{suffix}")

    def on_write_complete(self, write_result: Any) -> None:
        """Publish the files of all tasks."""
        staged = [file for file in write_result.write_returns if file is not None]
        if not staged:
            staged = [self._write_file(0, self._schema_without_rows(), ())]
        self.files = self._output.publish(staged, self._stage)
        self.rows = sum(file.rows for file in staged)

    def _schema_without_rows(self) -> Schema:
        schema = self._schema or Schema(self._fields)
        if not schema:
            raise OptionError(
                f"{self._output.dst}: the dataset has no rows to infer its columns from; give "
                "columns={...}"
            )
        return schema


def _write_table(sink: Sink, table: Any, schema: Schema, name: str) -> int:
    try:
        sink.write(batch_of(table, schema))
    except ColumnError as e:
        raise ColumnError(f"{name}: {e}") from e
    rows: int = table.num_rows
    return rows
