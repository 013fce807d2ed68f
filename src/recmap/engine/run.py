"""The engine: rows from any source into files of any format, in bounded memory."""

from __future__ import annotations

import errno
import os
import threading
import time
from collections.abc import Mapping
from concurrent.futures import FIRST_EXCEPTION, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from typing import Any, Literal

from recmap.engine.budget import Budget, choose_budget, least_budget
from recmap.engine.check import RecordCheck, check_values, check_written
from recmap.engine.manifest import Manifest
from recmap.engine.plan import Shard, is_folder, output_format, plan_shards
from recmap.engine.progress import Counter, Report, Watcher
from recmap.engine.sample import take_sample
from recmap.engine.shuffling import shuffled
from recmap.engine.steps import Steps
from recmap.errors import DataError, OptionError, OutputError
from recmap.files.description import description_path
from recmap.files.disk import remove, size_on_disk
from recmap.formats.registry import create_sink, read_copies
from recmap.formats.tfrecord_sink import TFRecordWriter
from recmap.sizes import measure
from recmap.sources import Sink, Source

__all__ = ["Verify", "convert_source"]

Verify = bool | Literal["full"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def convert_source(
    source: Source,
    dst: str,
    *,
    to: str | None = None,
    memory: int | str = "512MB",
    workers: int | None = None,
    shards: int | None = None,
    rows_per_shard: int | None = None,
    shard_size: int | str | None = None,
    resume: bool = True,
    overwrite: bool = False,
    verify: Verify = True,
    durable: bool = True,
    progress: Watcher | None = None,
    shuffle: int | None = None,
    described: Mapping[str, Any] | None = None,
    options: Mapping[str, Any] | None = None,
) -> Report:
    """Writes all rows of a source. ``described`` says how the source was changed, so
    that another conversion is not taken for this one; ``options`` are the sink's.
    """
    if verify not in (True, False, "full"):
        raise OptionError(f'verify={verify!r}: use True, False or "full"')
    if verify == "full" and source.known_rows() is None and not source.files:
        raise OptionError('verify="full" reads the rows twice, which come only once here')
    begun = time.monotonic()
    format = output_format(dst, to)
    more = read_copies(format, source.schema) if verify == "full" else 0
    least = least_budget(source, memory, more)
    rows = _rows(source, least)
    sample = take_sample(source, rows, least)
    shard_list = plan_shards(
        dst, format, rows, sample.row_bytes, shards, rows_per_shard, shard_size
    )
    budget = choose_budget(least, source, memory, workers, len(shard_list), sample.row_bytes)
    manifest = Manifest(
        _manifest_path(dst, shard_list),
        shard_list,
        source.schema,
        format,
        source.files,
        {**(described or {}), "shuffle": shuffle, **(options or {})},
    )
    todo: list[Shard] = []
    try:
        with manifest.running(), ExitStack() as stack:
            todo = manifest.begin(resume, overwrite)
            counter = Counter(None if rows is None else _count(todo), progress)
            ordered = source
            if shuffle is not None and todo:
                place = shuffled(source, shuffle, manifest.path, budget)
                ordered = stack.enter_context(place)
            job = _Job(ordered, format, budget, verify, durable, dict(options or {}), counter)
            job.run(todo, manifest)
            sizes = {shard.path: size_on_disk(shard.path) for shard in shard_list}
            rows = len(source) if rows is None else rows
            manifest.finish({"rows": rows, "bytes": list(sizes.values())}, manifest.worth_keeping)
    except BaseException as e:
        done = manifest.done if manifest.begun else 0
        if manifest.begun and done == 0:
            manifest.discard()
        explained = _explained(e, done, len(shard_list))
        if explained is e:
            raise
        raise explained from e
    return Report(
        files=list(sizes),
        rows=rows,
        written=sum(sizes.values()),
        skipped=len(source.skipped),
        seconds=time.monotonic() - begun,
        resumed=len(shard_list) - len(todo),
        explanation=f"{budget}{sample}",
    )


class _StoppedError(Exception):
    """Another file failed, or the user has had enough."""


class _Job:
    """One conversion: its files are written by a few threads, each a file at a time."""

    def __init__(
        self,
        source: Source,
        format: str,
        budget: Budget,
        verify: Verify,
        durable: bool,
        options: dict[str, Any],
        counter: Counter,
    ) -> None:
        self._source, self._format, self._budget = source, format, budget
        self._verify, self._durable, self._options = verify, durable, options
        self._counter = counter
        self._stop = threading.Event()

    def run(self, shards: list[Shard], manifest: Manifest) -> None:
        with ThreadPoolExecutor(self._budget.workers, "recmap-convert") as pool:
            futures = [pool.submit(self._write, shard, manifest) for shard in shards]
            try:
                _wait(futures)
            except BaseException:
                self._stop.set()
                for future in futures:
                    future.cancel()
                raise
        self._counter.finish()

    def _write(self, shard: Shard, manifest: Manifest) -> None:
        sink = create_sink(
            shard.path, self._format, self._source.schema, durable=self._durable, **self._options
        )
        try:
            check = self._record_check(sink)
            rows = self._move(shard, sink, check)
            temporary = sink.finish()
            if check is not None:
                check.finish(temporary, shard.path, rows)
            elif self._verify:
                check_written(temporary, shard.path, self._format, self._source.schema, rows)
            if self._verify == "full":
                check_values(
                    temporary,
                    shard.path,
                    self._format,
                    self._source,
                    shard.start,
                    shard.start + rows,
                    self._budget,
                )
            manifest.note(shard, temporary)
            if self._format not in ("raw", "npy"):
                remove(description_path(shard.path))  # of a file of another format before
            sink.commit()
        except BaseException:
            sink.abort()
            raise

    def _record_check(self, sink: Sink) -> RecordCheck | None:
        """For plain TFRecord files, whose records can be checked one by one."""
        plain = isinstance(sink, TFRecordWriter) and not sink.compressed
        return RecordCheck() if self._verify and plain else None

    def _move(self, shard: Shard, sink: Sink, check: RecordCheck | None) -> int:
        """Reads and writes the rows of a file, a step at a time; how many they were."""
        steps = Steps(self._source, self._budget, shard.start, shard.stop)
        while (batch := steps.next()) is not None:
            sink.write(batch)
            self._counter.add(*measure(batch))
            del batch  # before the next is read
            if check is not None and isinstance(sink, TFRecordWriter):
                check.follow(*sink.written, shard.path)
            if self._stop.is_set():
                raise _StoppedError
        if shard.stop is not None and steps.row < shard.stop:
            raise DataError(
                f"{shard.path}: the source ended at row {steps.row:,}, not {shard.stop:,}"
            )
        return steps.row - shard.start


def _count(shards: list[Shard]) -> int:
    return sum((shard.stop or 0) - shard.start for shard in shards)


def _wait(futures: list[Future[None]]) -> None:
    pending = set(futures)
    while pending:
        # Short waits, so that an interrupt is heard.
        done, pending = wait(pending, timeout=0.2, return_when=FIRST_EXCEPTION)
        for future in done:
            future.result()


def _rows(source: Source, least: Budget) -> int | None:
    if source.known_rows() is None and source.files:
        # They are counted on the way, and what does not fit is not held for it.
        large = source.largest_row(least.limit)
        if large is not None:
            raise least.too_little(*large)
        return len(source)
    return source.known_rows()


def _manifest_path(dst: str, shards: list[Shard]) -> str:
    folder, name = os.path.split(shards[0].path)
    if is_folder(dst):
        return os.path.join(folder, "_manifest.json")
    return os.path.join(folder, f".{os.path.basename(dst) or name}.manifest.json")


def _explained(error: BaseException, done: int, total: int) -> BaseException:
    """The error, with what has been done and how to go on."""
    left = (
        f"{done:,} of {total:,} files are finished, and the same call goes on from there"
        if done
        else "nothing was left behind; the same call begins anew"
    )
    if isinstance(error, KeyboardInterrupt):
        return KeyboardInterrupt(f"interrupted: {left}")
    if isinstance(error, OSError) and error.errno in _FULL:
        return OutputError(f"the disk is full ({error.strerror}): {left}")
    return error
