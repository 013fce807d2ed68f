"""Blocks of Ray's into files of any format: what a task does, and the end of all."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any
from uuid import uuid4

from recmap.conversion.verify import RecordCheck, check_written
from recmap.errors import ColumnError, OptionError, OutputError
from recmap.formats.registry import FORMATS, create_sink
from recmap.model.schema import Field, Schema
from recmap.model.sink import Sink
from recmap.ray.base_classes import Datasink
from recmap.ray.from_arrow import batch_of, schema_of, table_of_block
from recmap.ray.staging import Output, Part

__all__ = ["RecmapDatasink"]


class RecmapDatasink(Datasink):  # type: ignore[misc]  # untyped
    """A file for each task, in a hidden folder until all are written."""

    def __init__(
        self,
        output: Output,
        stage: str,
        schema: Schema | None,
        told: Mapping[str, Field],
        verify: bool,
        options: Mapping[str, Any],
        min_rows: int | None,
    ) -> None:
        self._output, self._stage = output, stage
        # That of all blocks, if it is known before they are; else what is told of some columns.
        self._schema, self._told = schema, told
        self._verify, self._options, self._min_rows = verify, dict(options), min_rows
        #: The files, once they have their names, and how many rows are in them.
        self.files: list[str] = []
        self.rows = 0

    def get_name(self) -> str:
        return "Recmap"

    @property
    def min_rows_per_write(self) -> int | None:
        return self._min_rows

    def check(self) -> None:
        """Refuses options and columns that the format does not take, if the columns are
        known before any task is.
        """
        if self._schema:
            create_sink(self._path(0), self._output.format, self._schema, **self._options).abort()

    def write(self, blocks: Iterable[Any], ctx: Any) -> Part | None:
        """Writes the blocks of one task; None if they have no rows."""
        if not os.path.isdir(self._stage):
            raise OutputError(
                f"{self._stage} is not there on {socket.gethostname()}: write to storage that all "
                "nodes of the cluster share"
            )
        tables = map(table_of_block, blocks)
        filled = (table for table in tables if table.num_rows)
        first = next(filled, None)
        if first is None:
            return None
        schema = self._schema or schema_of(first.schema, self._told)
        return self._part(ctx.task_idx, schema, chain([first], filled))

    def _part(self, task: int, schema: Schema, tables: Iterable[Any]) -> Part:
        name = f"{self._output.dst} (task {task:,})"
        path, rows = self._path(task), 0
        sink = create_sink(path, self._output.format, schema, **self._options)
        try:
            for table in tables:
                rows += _put(sink, table, schema, name)
            self._check(sink, name, schema, rows)
            sink.commit()
        except BaseException:
            sink.abort()
            raise
        return Part(task, path, rows, schema)

    def _path(self, task: int) -> str:
        # A name that no other try has. Its end may tell how the file is compressed.
        given = os.path.basename(self._output.dst).lower()
        suffixes = FORMATS[self._output.format].suffixes
        suffix = max((s for s in suffixes if given.endswith(s)), key=len, default=suffixes[0])
        return os.path.join(self._stage, f"{task}-{uuid4().hex[:12]}{suffix}")

    def _check(self, sink: Sink, name: str, schema: Schema, rows: int) -> None:
        temporary = sink.finish()
        if not self._verify:
            return
        if sink.records_written() is not None:
            RecordCheck().finish(temporary, name, rows)
        else:
            check_written(temporary, name, self._output.format, schema, rows)

    def on_write_complete(self, write_result: Any) -> None:
        """Gives the files their names."""
        parts = [part for part in write_result.write_returns if part is not None]
        if not parts:
            parts = [self._part(0, self._columns_of_nothing(), ())]
        self.files = self._output.publish(parts, self._stage)
        self.rows = sum(part.rows for part in parts)

    def _columns_of_nothing(self) -> Schema:
        schema = self._schema or Schema(self._told)
        if not schema:
            raise OptionError(
                f"{self._output.dst}: the dataset has no rows that would tell its columns; give "
                "fields={...}"
            )
        return schema


def _put(sink: Sink, table: Any, schema: Schema, name: str) -> int:
    try:
        sink.write(batch_of(table, schema))
    except ColumnError as e:
        raise ColumnError(f"{name}: {e}") from e
    rows: int = table.num_rows
    return rows
