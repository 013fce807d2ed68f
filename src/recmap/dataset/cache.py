"""ds.cache: rows that are made once, and then read at the speed of a mapped file.

When a row is first needed, all rows are saved as a conversion saves them: in order, within a
memory budget, in the workers of ``map``. They go to an entry of the disk cache
(``cache/rows_entry.py``), which is opened like any other files. The key of the entry tells the
files, the verbs and the code of the functions, so what has changed is made again.

Rows of plain numbers become a .npy file, which is the fastest to gather. Others become TFRecord
files, which hold almost every schema, are padded while they are read, and can be written by
several workers at once.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property, partial
from hashlib import sha256
from importlib.metadata import version
from typing import Any, TypeVar
from uuid import uuid4

from recmap.cache.block_cache import default_cache
from recmap.cache.rows_entry import CacheRoom, RowsEntry, open_rows
from recmap.conversion.cast import cast_columns
from recmap.conversion.options import SaveOptions
from recmap.conversion.plan import Sharding
from recmap.dataset.held_rows import held_rows
from recmap.dataset.rows import OpenedRows, numbered_rows
from recmap.errors import (
    ColumnError,
    DataError,
    MemoryLimitError,
    NoCacheWarning,
    OptionError,
    OutputError,
    shown_url,
    without_secrets,
)
from recmap.formats.npy import header_keeps
from recmap.formats.open_spec import Opening, OpenOptions
from recmap.formats.registry import check_output
from recmap.local.local_path import located
from recmap.machine.mapped import guarded
from recmap.model.arguments import Workers
from recmap.model.batch import Allocate, PaddedRows, PadSpec, RowArray, RowNumbers
from recmap.model.description import Description
from recmap.model.facts import LargestChunk, SourceFacts, each_alone
from recmap.model.field import Field
from recmap.model.info import Info
from recmap.model.progress import Bar, Progress, ProgressOption
from recmap.model.ragged import Column
from recmap.model.remembered import Remembered
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, WrappedSource, reseeded, row_name, uncopied
from recmap.pipeline.plan import Plan
from recmap.pipeline.row_source import SourceRows
from recmap.warn import warn

_T = TypeVar("_T")

# A fill that is interrupted goes on with the first file that is missing, so they are not too large.
_FILE_SIZE = 1 << 30
# Rows that tell how much room all take.
_SAMPLE = 64
_SAMPLE_SIZE = 16 << 20


class RowCache:
    """The rows of a dataset, made when they are first needed, and shared by this machine.

    ``memory`` is how many bytes of them may be held in memory instead.
    """

    def __init__(
        self,
        rows: OpenedRows,
        plan: Plan,
        memory: int | None,
        progress: ProgressOption,
        by: int = 0,
    ) -> None:
        self._rows, self._plan = rows, plan
        self._memory, self._progress, self._by = memory, progress, by
        # Rows that cannot be recognized later are kept for this process.
        self._process = os.getpid()
        self._forget()

    def _forget(self) -> None:
        self._made = Remembered[int, Source](self._make, 0)
        self._entry: RowsEntry | None = None

    @property
    def source(self) -> Source:
        """The rows of the dataset."""
        return self._rows.source

    def rows(self) -> Source:
        """Return the rows as they are kept, or those of the dataset if they cannot be kept."""
        return self._made.at(0)

    def known(self) -> Source | None:
        """Return the rows if they have been made, else None."""
        return self._made.known(0)

    def reseeded(self, by: int) -> RowCache:
        """Return a cache of the rows for another branch of a pipeline."""
        rows = replace(self._rows, source=reseeded(self.source, by))
        assert self._plan is not None
        return RowCache(rows, self._plan, self._memory, self._progress, self._by + by)

    def discard(self) -> None:
        """Forget rows that turned out to be damaged, so that they are made again."""
        if self._entry is not None:
            self._entry.discard()
        self._forget()

    @guarded
    def _make(self, _: int) -> Source:
        if self._memory is not None:
            held = held_rows(self.source, self._memory, self._progress)
            if held is not None:
                return SourceRows(held, None)
        try:
            return self._kept()
        except (ColumnError, MemoryLimitError, OSError, OutputError) as e:
            warn(
                f"cache: the rows of {self._about} are not kept, and are made again in every "
                f"epoch: {e}",
                NoCacheWarning,
            )
            return self.source

    def _kept(self) -> Source:
        """Open the entry of the disk cache, which this process may have to fill."""
        cache = default_cache()
        if cache is None:
            raise OutputError("the disk cache is off (RECMAP_CACHE_SIZE=0) or cannot be used")
        key, lasting = self._key
        private = not lasting and self._process == os.getpid()
        fill = partial(_save, self._rows, self._progress)
        about = f"rows of {self._about}"
        while True:
            entry = open_rows(cache, key, about, fill, private=private)
            reopen = partial(_open, entry.files, entry.facts)
            try:
                made = SourceRows(reopen(), reopen)
            except DataError:
                entry.discard()  # somebody has changed what lies beside the files
            else:
                self._entry = entry
                return made

    @cached_property
    def _key(self) -> tuple[str, bool]:
        """The key of the entry, and whether it is the same in another process."""
        assert self._plan is not None
        found = _fingerprint(self._rows, self._plan, self._by)
        return (sha256(uuid4().bytes).hexdigest(), False) if found is None else (found, True)

    @cached_property
    def _about(self) -> str:
        assert self._plan is not None
        files = [shown_url(without_secrets(str(file))) for file in self.source.facts.files]
        more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
        verbs = [record.shown() for record in self._plan.records]
        return " > ".join([files[0] + more if files else "in memory", *verbs])

    def __getstate__(self) -> dict[str, Any]:
        # Another process opens the entry itself, or fills it, if it is on another machine. What the
        # functions are known by is found here: not all of them can be sent.
        known = {"_key": self._key, "_about": self._about, "_plan": None}
        return {**self.__dict__, **known, "_made": None, "_entry": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._forget()


def _save(
    rows: OpenedRows, progress: ProgressOption, folder: str, room: CacheRoom
) -> tuple[list[str], dict[str, Any]]:
    """Save rows to files in a folder, within the room that the cache has."""
    source = rows.source
    size = _expected_size(source)
    room.reserve(size)
    workers = rows.workers
    if workers is None or multiprocessing.current_process().daemon:
        # One thread reads all rows in order, so that every chunk is decoded once.
        workers = Workers("threads", 1)
    format = _format(source.schema, workers, folder)
    files = 1 if format == "npy" else max(workers.count, -(-size // _FILE_SIZE))
    options = SaveOptions(
        format=format,
        shards=Sharding(files=files),
        workers=workers,
        verify=False,  # there are checksums
        overwrite=True,
        options={"durable": False},
        progress=_watched(progress, room),
    )
    report = rows.save(os.path.join(folder, ""), options)
    facts = {"format": format, "schema": Description(source.schema).texts}
    return [os.path.basename(file) for file in report.files], facts


def _format(schema: Schema, workers: Workers, folder: str) -> str:
    """Return the format to keep rows in."""
    fields = schema.values()
    plain = all(header_keeps(each.dtype) and not _varies(each) for each in fields)
    if plain and workers.count == 1:
        return "npy"
    # Only lists with null items do not fit into TFRecord files.
    format = "npz" if any(field.null_items for field in fields) else "tfrecord"
    check_output(folder, format, schema, {})
    return format


def _varies(field: Field) -> bool:
    """Return whether rows differ in size, or have none."""
    return bool(field.ragged or field.is_bytes or field.has_nulls or 0 in field.shape)


def _expected_size(source: Source) -> int:
    """Return about how many bytes all rows take."""
    rows = len(source)
    if not rows or source.facts.calls_user_code:  # functions may be slow
        return rows * source.row_bytes()
    count, size = measure(source.read(0, _SAMPLE, _SAMPLE_SIZE))
    return rows * -(-size // count)


def _watched(progress: ProgressOption, room: CacheRoom) -> Callable[[Progress], None]:
    """Return a watcher that makes room for the rows, and shows the progress if that is wanted."""
    shown = Bar() if progress is True else progress

    def watch(now: Progress) -> None:
        room.reserve(now.bytes)
        if callable(shown):
            shown(now)

    return watch


def _open(files: Sequence[str], facts: Mapping[str, Any]) -> Source:
    """Open the files of an entry, with the types that the rows had."""
    schema = Description.decode(facts["schema"]).schema
    source = Opening(list(files), None, OpenOptions(format=facts["format"]))()
    dtypes = {
        name: field.dtype
        for name, field in schema.items()
        if name in source.schema and field.dtype != source.schema[name].dtype
    }
    source = cast_columns(source, dtypes) if dtypes else source
    if Description(source.schema).texts != facts["schema"]:
        raise DataError(f"{files[0]}: holds {source.schema}, not {schema}", file=files[0])
    return source


class CachedRows(WrappedSource):
    """The rows of a cache. Nothing is made before a row, or a number of rows, is needed."""

    keeps_rows = True

    def __init__(self, cache: RowCache, names: Sequence[str] | None = None) -> None:
        self._cache, self._names = cache, names
        self._plain = cache.source if names is None else cache.source.select(names)
        self._last: tuple[Source, Source] | None = None

    @property
    def _source(self) -> Source:  # type: ignore[override]  # made when it is asked for
        return self._selected(self._cache.rows())

    def _selected(self, rows: Source) -> Source:
        if rows is self._cache.source:
            return self._plain
        if self._names is None:
            return rows
        if self._last is None or self._last[0] is not rows:
            self._last = rows, rows.select(self._names)
        return self._last[1]

    @property
    def _known(self) -> Source | None:
        """The rows, if they have been made."""
        rows = self._cache.known()
        return None if rows is None else self._selected(rows)

    @property
    def _now(self) -> Source:
        """The rows if they have been made, else those of the dataset."""
        known = self._known
        return self._plain if known is None else known

    # What is known without making the rows.

    @property
    def schema(self) -> Schema:
        return self._now.schema

    @property
    def facts(self) -> SourceFacts:
        plain, known = self._plain.facts, self._known
        if known is self._plain:
            return plain
        here = SourceFacts() if known is None else known.facts
        return replace(
            plain,
            chunk_rows=each_alone,
            largest_chunk=LargestChunk,
            owns_rows=True,
            remote=False,
            can_pad=here.can_pad,
            searched=known is not None,
            varies=False,
            functions=plain.functions if known is None else (),
            compressed_files={},
            checksums=(),
            record_files=(),
            rows_before_damage=None if known is not None else plain.rows_before_damage,
            sound_rows=None,
            largest_row=self._largest_row,
        )

    def _largest_row(self, above: int) -> tuple[int, int] | None:
        return self._source.facts.largest_row(above)

    def __len__(self) -> int:
        known = self.known_rows()
        return len(self._source) if known is None else known

    def known_rows(self) -> int | None:
        return self._now.known_rows()

    def row_bytes(self) -> int:
        return self._now.row_bytes()

    def row_name(self, row: int) -> str:
        return row_name(self._plain, row)

    def info(self) -> Info:
        return replace(self._plain.info(), rows=len(self))

    # Reading.

    def _from(self, read: Callable[[Source], _T]) -> _T:
        """Read from the rows that were made; make them again if they are damaged."""
        source = self._source
        try:
            return read(source)
        except DataError:
            if source is self._plain:
                raise
        self._cache.discard()
        return read(self._source)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        return self._from(lambda source: source.read(start, stop, limit))

    def gather(self, rows: RowArray) -> Batch:
        return self._from(lambda source: source.gather(rows))

    def column(self, name: str) -> Column | None:
        return self._from(lambda source: source.column(name))

    def read_padded(
        self, rows: RowNumbers, pads: Mapping[str, PadSpec], size: int, allocate: Allocate
    ) -> PaddedRows | None:
        return self._from(lambda source: source.read_padded(rows, pads, size, allocate))

    # Other views of the same rows.

    def select(self, names: Sequence[str]) -> CachedRows:
        return CachedRows(self._cache, list(names))

    def at_epoch(self, epoch: int) -> CachedRows:
        del epoch  # what is kept is the same in every epoch
        return self

    def reseeded(self, by: int) -> CachedRows:
        varies = self._cache.source.facts.varies
        return CachedRows(self._cache.reseeded(by), self._names) if varies else self

    def prepare(self) -> None:
        self._source  # noqa: B018  # made when it is asked for

    def uncopied(self) -> Source:
        return uncopied(self._source)

    def rebuilt(self, change: Callable[[Source], Source]) -> Source:
        return change(self._plain)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}


def cached(plan: Plan, memory: int | None, progress: ProgressOption) -> CachedRows:
    """Return the rows of a plan, as they are in the first epoch."""
    _check_of_use(plan)
    return CachedRows(RowCache(numbered_rows(plan), plan, memory, progress))


def _check_of_use(plan: Plan) -> None:
    plan.check_before_batch("cache")
    plan.check_images_on_host("cache")
    if plan.rank is not None:
        raise OptionError("cache comes before shard: all ranks share what is kept")
    if plan.rows.facts.endless or plan.repeat is None:
        raise OptionError("cache: the rows have no end; put cache before repeat")
    for each in plan.records:
        if each.draws:
            raise OptionError(
                f"cache comes before {each.name}: it would keep the order of the first epoch; for "
                "one order in all epochs, shuffle(..., reshuffle=False)"
            )


def _fingerprint(rows: OpenedRows, plan: Plan, by: int) -> str | None:
    """Return a digest of what makes the rows of a plan, or None if not all of it can be told.

    Rows in memory cannot, nor can functions that use objects which cannot be pickled. Other
    branches of a pipeline, ``by`` functions later, have other random numbers.
    """
    if not rows.lasting:
        return None
    files = dict.fromkeys(file for source in plan.sources for file in source.facts.files)
    parts = [_file_state(file) for file in files] + [each.fingerprint() for each in plan.records]
    if not all(parts):
        return None
    opened = [[source.how, str(source.schema)] for source in plan.sources]
    text = json.dumps(
        [version("recmap"), parts, opened, plan.caches, by], default=str
    )  # the time of an object
    return sha256(text.encode()).hexdigest()


def _file_state(path: str) -> list[Any] | None:
    """Return what changes if a file does, or any file in a folder; None if that cannot be told."""
    place = located(path)
    place.check_unchanged()
    if place.remote:
        return [path, *place.stat()] if place.pinned else None
    status = os.stat(path)
    if not stat.S_ISDIR(status.st_mode):
        return [os.path.realpath(path), *_times(status)]
    walked = [os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names]
    return [os.path.realpath(path), *([name, *_times(os.stat(name))] for name in sorted(walked))]


def _times(status: os.stat_result) -> tuple[int, int, int, int]:
    # The system sets the time of the last change, whatever a program makes of the other one.
    return status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns
