"""A Ray Data datasource that reads files."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from recmap.errors import DataError, MemoryLimitError
from recmap.model.coerce import empty_column
from recmap.model.row_sizes import measure
from recmap.model.schema import Schema
from recmap.model.source import Partition
from recmap.ray.arrow_tables import table_of
from recmap.ray.file_partitions import RowSpan, assign_rows
from recmap.ray.ray_data import BlockMetadata, DataContext, Datasource, ReadTask

__all__ = ["RecmapDatasource"]

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
            "input_files": [file for span in spans for file in span.partition.files],
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
            reader = span.partition.open(list(names))
            wanted = max(1, block_size // row_bytes)
            unit = span.partition.unit
            row = span.start
            while span.stop is None or row < span.stop:
                whole = wanted // unit * unit or wanted
                stop = row + whole if span.stop is None else min(row + whole, span.stop)
                try:
                    batch = reader.read(row, stop, block_size)
                except MemoryLimitError:  # a single row is larger than a block
                    batch = reader.read(row, row + 1)
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

    return read_recmap


def _empty(schema: Schema) -> Any:
    return table_of({name: empty_column(field) for name, field in schema.items()}, schema)
