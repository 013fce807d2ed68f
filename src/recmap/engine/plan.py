"""Which rows go into which file, and how much is held in memory on the way."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass

from recmap.errors import MemoryLimitError, OptionError
from recmap.files.machine import parse_size, size_text, thread_count
from recmap.files.paths import is_store, shard_names
from recmap.formats.registry import FORMATS, format_of
from recmap.sources import Source

__all__ = ["Budget", "Shard", "choose_budget", "is_folder", "output_format", "plan_shards"]

# Times a chunk is in memory: as it was read, encoded, in the writer's queue, and what
# the allocator keeps.
_COPIES = 8
# Held whatever the rows are: windows of compressed files, chunks, queues, offsets.
_FIXED = 10 * 10**6
_MIN_CHUNK, _MAX_CHUNK = 1 << 16, 16 << 20


@dataclass(frozen=True)
class Shard:
    """Rows ``start`` to ``stop`` go into this file; ``stop`` is None if nobody knows."""

    path: str
    start: int
    stop: int | None


@dataclass(frozen=True)
class Budget:
    """What follows from the memory that may be used."""

    memory: int
    workers: int
    chunk_rows: int
    row_bytes: int
    why: str

    @property
    def limit(self) -> int:
        """Bytes that the rows of one step may take."""
        return _step_limit(self.memory, self.workers)

    def too_little(self, row: int, size: int) -> MemoryLimitError:
        """The error that a row which takes so much is."""
        enough = _needed(size, self.workers)
        fewer = f", or workers={self.workers - 1}" if self.workers > 1 else ""
        return MemoryLimitError(
            f"memory={size_text(self.memory)} is too little: row {row:,} takes {size_text(size)}, "
            f"and rows are held up to {_COPIES} times, by {self.workers} workers; give "
            f'memory="{_megabytes(enough)}" or more{fewer}',
            size=size,
            limit=self.limit,
        )

    def __str__(self) -> str:
        return (
            f"memory {size_text(self.memory)}: {self.workers} at a time, {self.chunk_rows:,} rows "
            f"({size_text(self.chunk_rows * self.row_bytes)}) each step; {self.why}"
        )


def is_folder(dst: str) -> bool:
    """Whether files go into a folder of that name; a Zarr store is one file, so to say."""
    if dst.endswith(os.sep):
        return True
    return os.path.isdir(dst) and format_of(dst) != "zarr" and not is_store(dst)


def output_format(dst: str, asked: str | None) -> str:
    """The format to write: as asked, else by the end of the name; a folder of TFRecord."""
    found = asked or format_of(dst)
    if found is None and is_folder(dst):
        found = "tfrecord"
    if found is None:
        known = ", ".join(suffix for format in FORMATS.values() for suffix in format.suffixes)
        raise OptionError(
            f"{dst}: what format? End the name with one of {known}, end it with / for a folder of "
            "TFRecord files, or give to="
        )
    if found not in FORMATS:
        raise OptionError(f"to={found!r} is not one of {', '.join(FORMATS)}")
    return found


def plan_shards(
    dst: str,
    format: str,
    rows: int | None,
    row_bytes: int,
    shards: int | None,
    rows_per_shard: int | None,
    shard_size: int | str | None,
) -> list[Shard]:
    """The files and their rows."""
    if sum(option is not None for option in (shards, rows_per_shard, shard_size)) > 1:
        raise OptionError("give one of shards, rows_per_shard and shard_size")
    if shard_size is not None:
        rows_per_shard = max(1, parse_size(shard_size) // row_bytes)
    if rows_per_shard is not None:
        if rows_per_shard < 1:
            raise OptionError("rows_per_shard must be 1 or more")
        shards = None if rows is None else max(1, math.ceil(rows / rows_per_shard))
    if rows is None:
        if rows_per_shard is not None or (shards or 1) > 1:
            raise OptionError(
                "the number of rows is not known in advance, so that they cannot be dealt out; "
                "save them as one file first"
            )
        return [Shard(_paths(dst, format, 1)[0], 0, None)]
    count = 1 if shards is None else shards
    if count < 1:
        raise OptionError("shards must be 1 or more")
    paths = _paths(dst, format, count)
    if rows_per_shard is not None:
        edges = [min(i * rows_per_shard, rows) for i in range(count + 1)]
    else:
        edges = [rows * i // count for i in range(count + 1)]
    return [Shard(path, a, b) for path, a, b in zip(paths, edges, edges[1:], strict=False)]


def _paths(dst: str, format: str, count: int) -> list[str]:
    suffix = FORMATS[format].suffixes[0]
    if is_folder(dst):
        dst = os.path.join(dst, f"data{suffix}")
    if count == 1:
        return [dst]
    ends = [s for f in FORMATS.values() for s in f.suffixes if dst.lower().endswith(s)]
    suffix = dst[-len(max(ends, key=len)) :] if ends else ""
    stem = dst.removesuffix(suffix) if suffix else dst
    return shard_names(stem, suffix, count)


def choose_budget(
    source: Source, memory: int | str, workers: int | None, shards: int, row_bytes: int
) -> Budget:
    """How many files are written at a time, and how many rows are read for each step."""
    total = parse_size(memory)
    if workers is not None and workers < 1:
        raise OptionError("workers must be 1 or more")
    wanted = min(workers or thread_count(), shards)
    if total < _COPIES * _MIN_CHUNK or _step_limit(total, 1) < row_bytes:
        least = max(_COPIES * _MIN_CHUNK, _needed(row_bytes, 1))
        raise OptionError(
            f"memory={memory!r} is too little: a row takes about {size_text(row_bytes)}, and "
            f"{_COPIES} times a step of rows are held; give {_megabytes(least)} or more"
        )
    least_step = max(row_bytes, _MIN_CHUNK)
    largest = source.largest_row(_step_limit(total, wanted))
    if largest is not None:
        row, size = largest
        if size > _step_limit(total, 1):
            raise Budget(total, 1, 1, size, "").too_little(row, size)
        least_step = max(least_step, size)
    busy = max(1, min(wanted, _step_limit(total, 1) // least_step))
    chunk = min(_MAX_CHUNK, _step_limit(total, busy))
    rows = max(1, chunk // row_bytes)
    why = f"rows of about {size_text(row_bytes)}, {thread_count()} processors, {shards:,} files"
    if largest is not None:
        why += f", the largest row {size_text(largest[1])}"
    unit = source.chunk_rows
    if unit > 1:
        busy = max(1, min(busy, _step_limit(total, 1) // (unit * row_bytes)))
        whole = max(1, rows // unit) * unit
        if whole * row_bytes <= _step_limit(total, 1):
            rows = whole
            why += f", stored in chunks of {unit:,} rows"
        else:
            why += f"; the chunks of {unit:,} rows are too large for it and are read several times"
    return Budget(total, busy, rows, row_bytes, why)


def _step_limit(memory: int, workers: int) -> int:
    """Bytes that the rows of a step may take, so that all that is held fits."""
    return (memory - min(_FIXED, memory // 2)) // (_COPIES * workers)


def _needed(size: int, workers: int) -> int:
    """The memory that such a step takes."""
    held = _COPIES * workers * size
    return held + min(_FIXED, held)


def _megabytes(size: int) -> str:
    """Rounded up, as an option would be given."""
    return f"{-(-size // 10**6)}MB"
