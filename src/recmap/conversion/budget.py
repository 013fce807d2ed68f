"""How much is held in memory on the way from one file to another."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

from recmap.errors import MemoryLimitError, OptionError
from recmap.files.cpus import Share, thread_count
from recmap.files.memory_usage import anonymous_memory, give_back
from recmap.model.byte_size import parse_size, size_text
from recmap.model.source import Source

__all__ = ["Budget", "choose_budget", "least_budget"]

# Times a step of rows is in memory: as it was read, encoded, in the writer's queue, and
# what the allocator keeps.
_COPIES = 8
# Times a chunk is that is larger than a step and is decoded whole: as it is stored, without
# each of two filters, kept for the next step, and what the allocator and a library keep.
_CHUNK_COPIES = 6
# Held whatever the rows are: windows of compressed files, chunks, queues, offsets.
_FIXED = 10 * 10**6
_MIN_STEP, _MAX_STEP = 1 << 16, 16 << 20
# A conversion in so much memory keeps one processor busy: a worker has queues, and blocks
# that are compressed and inflated at a time, whatever its rows are.
_PER_THREAD = 12 * 10**6
# Freed memory is given back when the memory divided by this is taken. Not always: it would
# often be taken again, and to have it anew takes longer.
_TIDY_FROM = 2


@dataclass(frozen=True)
class Budget:
    """What follows from the memory that may be used."""

    memory: int
    workers: int
    chunk_rows: int
    row_bytes: int
    why: str
    copies: int = _COPIES
    # Taken by chunks that are decoded whole.
    chunks: int = 0
    # Taken by the columns of a file that is written, whatever their rows are.
    columns: int = 0
    # What the process held before.
    begun: int = field(default_factory=anonymous_memory)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # In another process it is about the memory of that one.
        self.__dict__.update(state, begun=anonymous_memory())

    @property
    def limit(self) -> int:
        """Bytes that the rows of one step may take, so that all that is held fits."""
        left = max(0, self._left)
        return (left - min(_FIXED, left // 2)) // (self.copies * self.workers)

    @property
    def _left(self) -> int:
        """For the rows."""
        return self.memory - self.chunks - self.columns * self.workers

    @property
    def share(self) -> Share:
        """The threads beside the workers, whose blocks in flight fit into the memory."""
        together = max(self.workers, self.memory // _PER_THREAD)
        return Share(together // self.workers, together)

    def needed(self, size: int) -> int:
        """The memory that steps of so many bytes take."""
        held = self.copies * self.workers * size
        return held + min(_FIXED, held) + self.chunks + self.columns * self.workers

    def tidy(self) -> None:
        """Gives freed memory back to the system, if much of the budget is taken."""
        if anonymous_memory() - self.begun > self.memory // _TIDY_FROM:
            give_back()

    def too_little(self, row: int, size: int) -> MemoryLimitError:
        """The error that a row which takes so much is."""
        fewer = f", or workers={self.workers - 1}" if self.workers > 1 else ""
        return MemoryLimitError(
            f"memory={size_text(self.memory)} is too little: row {row:,} takes {size_text(size)}, "
            f"and rows are held up to {self.copies} times, by {self.workers} workers"
            f'{self._beside()}; give memory="{_megabytes(self.needed(size))}" or more{fewer}',
            size=size,
            limit=self.limit,
        )

    def _beside(self) -> str:
        beside = []
        if self.chunks:
            size = size_text(self.chunks // _CHUNK_COPIES)
            beside.append(f"chunks of {size} that are decoded whole")
        if self.columns:
            beside.append(f"{size_text(self.columns)} that so many columns take")
        return f", beside {' and '.join(beside)}" if beside else ""

    @property
    def limit_back(self) -> int:
        """Bytes that the rows of a step may take when they are read back to be compared."""
        return self.limit * (1 + self.copies - _COPIES)

    def check(self, memory: int | str) -> None:
        """Refuses what is too little for any row; ``memory`` is what was asked for."""
        least = self.needed(max(_MIN_STEP, self.row_bytes))
        if self._left < self.copies * _MIN_STEP or self.limit < self.row_bytes:
            raise MemoryLimitError(
                f"memory={memory!r} is too little: a row takes about "
                f"{size_text(self.row_bytes)}, and {self.copies} times a step of rows are held"
                f'{self._beside()}; give memory="{_megabytes(least)}" or more',
                size=self.row_bytes,
                limit=self.limit,
            )

    def __str__(self) -> str:
        return (
            f"memory {size_text(self.memory)}: {self.workers} at a time, {self.chunk_rows:,} rows "
            f"({size_text(self.chunk_rows * self.row_bytes)}) each step; {self.why}"
        )


def least_budget(source: Source, memory: int | str, more_copies: int, columns: int = 0) -> Budget:
    """That of one worker who reads row by row, if the memory is enough for it.
    ``more_copies`` of a step are held beside those that always are, and the ``columns`` of
    the output take so many bytes.
    """
    least = Budget(
        parse_size(memory), 1, 1, source.row_bytes(), "", _COPIES + more_copies, columns=columns
    )
    if source.band_bytes > least.limit:
        least = replace(least, chunks=_CHUNK_COPIES * source.band_bytes)
    least.check(memory)
    return least


def choose_budget(
    least: Budget,
    source: Source,
    memory: int | str,
    workers: int | None,
    shards: int,
    row_bytes: int,
) -> Budget:
    """How many files are written at a time, and how many rows are read for each step."""
    if workers is not None and workers < 1:
        raise OptionError("workers must be 1 or more")
    wanted = min(workers or thread_count(), shards)
    one = replace(least, row_bytes=row_bytes)
    one.check(memory)
    least_step = max(row_bytes, _MIN_STEP)
    largest = source.largest_row(replace(one, workers=wanted).limit)
    if largest is not None:
        row, size = largest
        if size > one.limit:
            raise one.too_little(row, size)
        least_step = max(least_step, size)
    busy = max(1, min(wanted, one.limit // least_step, one.memory // _PER_THREAD))
    if one.columns:  # of each file that is written
        busy = max(1, min(busy, (one.memory - one.chunks) // (2 * one.columns)))
    chunk = min(_MAX_STEP, replace(one, workers=busy).limit)
    rows = max(1, chunk // row_bytes)
    why = f"rows of about {size_text(row_bytes)}, {thread_count()} processors, {shards:,} files"
    if largest is not None:
        why += f", the largest row {size_text(largest[1])}"
    unit = source.chunk_rows
    if unit > 1:
        busy = max(1, min(busy, one.limit // (unit * row_bytes)))
        whole = max(1, rows // unit) * unit
        if whole * row_bytes <= one.limit:
            rows = whole
            why += f", stored in chunks of {unit:,} rows"
        else:
            why += f"; the chunks of {unit:,} rows are larger than a step"
    return replace(one, workers=busy, chunk_rows=rows, why=why)


def _megabytes(size: int) -> str:
    """Rounded up, as an option would be given."""
    return f"{-(-size // 10**6)}MB"
