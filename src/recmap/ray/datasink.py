"""A Ray Data datasink that writes files of any format."""

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
from recmap.model.field import Field
from recmap.model.schema import Schema
from recmap.model.sink import Sink
from recmap.ray.arrow_tables import batch_of, schema_of, table_of_block
from recmap.ray.ray_data import Datasink
from recmap.ray.staging import StagedOutput, StagedShard

__all__ = ["RecmapDatasink"]


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
        if not os.path.isdir(self._stage):
            raise OutputError(
                f"{self._stage} does not exist on {socket.gethostname()}: write to storage that "
                "all nodes of the cluster share"
            )
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
            for table in tables:
                rows += _write_table(sink, table, schema, name)
            self._check(sink, name, schema, rows)
            sink.commit()
        except BaseException:
            sink.abort()
            raise
        return StagedShard(task, path, rows, schema)

    def _path(self, task: int) -> str:
        # The name is unique to this attempt. The suffix stays: it can select the compression.
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
                f"{self._output.dst}: the dataset has no rows to tell its columns; give "
                "fields={...}"
            )
        return schema


def _write_table(sink: Sink, table: Any, schema: Schema, name: str) -> int:
    try:
        sink.write(batch_of(table, schema))
    except ColumnError as e:
        raise ColumnError(f"{name}: {e}") from e
    rows: int = table.num_rows
    return rows
