"""Writing one file of a conversion: the same in a thread and on another machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from recmap.conversion.bounded_reader import Steps
from recmap.conversion.budget import Budget
from recmap.conversion.finished_shards import Notes
from recmap.conversion.plan import Shard
from recmap.conversion.run_lock import Mark
from recmap.conversion.verify import RecordCheck, check_values, check_written
from recmap.errors import DataError
from recmap.files.array_sidecar import remove_description
from recmap.files.cpus import within
from recmap.files.mapped import Guard
from recmap.formats.registry import create_sink
from recmap.model.row_sizes import measure
from recmap.model.sink import Sink
from recmap.model.source import Source

__all__ = ["Count", "Job", "StoppedError", "Verify"]

Verify = bool | Literal["full"]
# Told the rows and bytes of every step.
Count = Callable[[int, int], None]


class StoppedError(Exception):
    """Another file failed, or the user has had enough."""


@dataclass(frozen=True)
class Job:
    """What is the same for all files of a conversion. Another process can be sent it."""

    source: Source
    format: str
    budget: Budget
    verify: Verify
    durable: bool
    options: Mapping[str, Any]
    notes: Notes
    mark: Mark

    def write(self, shard: Shard, count: Count, stopped: Callable[[], bool]) -> None:
        """Writes the rows of a file, checks it, notes that it is finished, and gives it its
        name. Nothing is left if that fails, or if it is ``stopped`` meanwhile.
        """
        with within(self.budget.share):
            self._write(shard, count, stopped)

    def _write(self, shard: Shard, count: Count, stopped: Callable[[], bool]) -> None:
        sink = create_sink(
            shard.path,
            self.format,
            self.source.schema,
            expected=None if shard.stop is None else shard.stop - shard.start,
            durable=self.durable,
            **self.options,
        )
        try:
            with Guard():
                check = self._record_check(sink)
                rows = self._move(shard, sink, check, count, stopped)
                temporary = sink.finish()
                self._check(shard, temporary, rows, check)
            if not self.mark.there:
                raise self.mark.taken_over(shard.path)
            self.notes.add(shard.number, temporary)
            if self.format not in ("raw", "npy"):
                remove_description(shard.path)  # of a file of another format before
            sink.commit()
        except BaseException:
            sink.abort()
            raise

    def _record_check(self, sink: Sink) -> RecordCheck | None:
        """For files whose records can be checked while they are written."""
        return RecordCheck() if self.verify and sink.records_written() is not None else None

    def _move(
        self,
        shard: Shard,
        sink: Sink,
        check: RecordCheck | None,
        count: Count,
        stopped: Callable[[], bool],
    ) -> int:
        """Reads and writes the rows of a file, a step at a time; how many they were."""
        steps = Steps(self.source, self.budget, shard.start, shard.stop)
        while (batch := steps.next()) is not None:
            sink.write(batch)
            count(*measure(batch))
            del batch  # before the next is read
            written = sink.records_written()
            if check is not None and written is not None:
                check.follow(*written, shard.path)
            if stopped():
                raise StoppedError
        if shard.stop is not None and steps.row < shard.stop:
            raise DataError(
                f"{shard.path}: the source ended at row {steps.row:,}, not {shard.stop:,}"
            )
        return steps.row - shard.start

    def _check(self, shard: Shard, temporary: str, rows: int, check: RecordCheck | None) -> None:
        if check is not None:
            check.finish(temporary, shard.path, rows)
        elif self.verify:
            check_written(temporary, shard.path, self.format, self.source.schema, rows)
        if self.verify == "full":
            check_values(
                temporary,
                shard.path,
                self.format,
                self.source,
                shard.start,
                shard.start + rows,
                self.budget,
            )
