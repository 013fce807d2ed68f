"""Write one shard of a conversion, in a thread, in a process or on another machine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from recmap.conversion.budget import BoundedReader, Budget
from recmap.conversion.cleanup import BEGUN, remove_output, state_of
from recmap.conversion.manifest import FinishedShards
from recmap.conversion.options import Verify
from recmap.conversion.plan import Inputs, Shard
from recmap.conversion.verify import RecordCheck, check_values, check_written
from recmap.errors import DataError
from recmap.formats.array_sidecar import remove_description
from recmap.formats.registry import FORMATS, create_sink
from recmap.formats.sink import Sink
from recmap.local.atomic_write import writing
from recmap.local.local_path import located
from recmap.local.run_lock import RunLock
from recmap.machine.cpus import within
from recmap.machine.mapped import Guard
from recmap.model.row_sizes import measure
from recmap.model.source import Source
from recmap.store.object_writer import sending

# Called with the number of rows and bytes of every slab.
Count = Callable[[int, int], None]


class StoppedError(Exception):
    """Raised in a writer when another shard failed or the user interrupted the conversion."""


@dataclass(frozen=True)
class ShardWriter:
    """Writes any shard of a conversion; can be pickled and sent to another process."""

    source: Source
    format: str
    budget: Budget
    verify: Verify
    durable: bool
    options: Mapping[str, Any]
    finished: FinishedShards
    lock: RunLock
    inputs: Inputs

    def write(self, shard: Shard, count: Count, stopped: Callable[[], bool]) -> None:
        """Write the rows of a shard, check them, record the shard as finished, and rename it.

        If that fails, or ``stopped`` returns True, no file is left behind. Only an object that may
        be whole stays: it may have replaced another.
        """
        budget = self.budget
        with (
            within(budget.thread_limit),
            sending(budget.parts),
            budget.fetching(),
        ):
            self._write(shard, count, stopped)

    def _write(self, shard: Shard, count: Count, stopped: Callable[[], bool]) -> None:
        with writing(shard.path):
            sink = create_sink(
                shard.path,
                self.format,
                self.source.schema,
                expected=None if shard.stop is None else shard.stop - shard.start,
                room=self.budget.room or None,
                durable=self.durable,
                **self.options,
            )
        try:
            with Guard(self.source):
                check = RecordCheck.of(sink) if self.verify else None
                rows = self._copy_rows(shard, sink, check, count, stopped)
                with writing(shard.path):
                    written = sink.finish()
                if written:
                    self._check(shard, written, rows, check)
            self.inputs.check_before_shard()
            if not self.lock.exists:
                raise self.lock.taken_over(shard.path)
            self._publish(shard, sink, rows, check)
        except BaseException:
            sink.abort()
            raise

    def _publish(self, shard: Shard, sink: Sink, rows: int, check: RecordCheck | None) -> None:
        """Record a shard as finished, and let it appear.

        If its state is known only then, as in a store, it is recorded as begun before. What was
        not checked before, because it had no name to be read by, is checked then.
        """
        path, sent = located(shard.path), not sink.output.path
        with writing(shard.path):
            state = sink.output.state()
            self.finished.add(shard.number, state or BEGUN)
            self._forget_description(shard)
        try:
            with writing(shard.path):
                sink.commit()
            if sent:
                with Guard():
                    self._check(shard, path.anew(), rows, check)
        except DataError:
            # It is not what was sent. After any other error it may be, and the old one is gone.
            if self.lock.exists:  # otherwise it may be that of another conversion
                remove_output(path)
            raise
        if state is None:
            self.finished.add(shard.number, state_of(path))

    def _forget_description(self, shard: Shard) -> None:
        """Remove an old description, which belongs to a file of another format with this name."""
        if not FORMATS[self.format].sink_kind().describes:
            remove_description(shard.path)

    def _copy_rows(
        self,
        shard: Shard,
        sink: Sink,
        check: RecordCheck | None,
        count: Count,
        stopped: Callable[[], bool],
    ) -> int:
        """Copy the rows of a shard from the source to the sink, and return how many there are."""
        with BoundedReader(self.source, self.budget, shard.start, shard.stop) as reader:
            while (slab := reader.next()) is not None:
                with writing(shard.path):
                    sink.write(slab)
                count(*measure(slab))
                del slab  # free it before the next one is read
                if check is not None and sink.records is not None and sink.output.path:
                    check.follow(sink.output.path, sink.records.written, shard.path)
                if stopped():
                    raise StoppedError
        if shard.stop is not None and reader.row < shard.stop:
            raise DataError(
                f"{shard.path}: the source ended at row {reader.row:,}, not {shard.stop:,}"
            )
        return reader.row - shard.start

    def _check(self, shard: Shard, path: str, rows: int, check: RecordCheck | None) -> None:
        """Check what was written, which is at ``path``."""
        if self.verify:
            check_written(path, shard.path, self.format, self.source.schema, rows, check)
        if self.verify == "full":
            stop = shard.start + rows
            check_values(path, shard.path, self.format, self.source, shard.start, stop, self.budget)
