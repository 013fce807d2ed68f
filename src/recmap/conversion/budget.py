"""The memory budget of a conversion: how it is chosen, and how reading keeps within it.

The budget decides how large a slab is and how many workers run. ``BoundedReader`` reads a
source in slabs that fit.
"""

from __future__ import annotations

import time
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Self

from recmap.errors import MemoryLimitError, Message, Option, OptionError
from recmap.machine.cpus import ThreadLimit, thread_count
from recmap.machine.memory import anonymous_memory, give_back
from recmap.model.arguments import parse_size, size_text
from recmap.model.ragged import Column, Ragged
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch
from recmap.model.source import Source
from recmap.store.fetch import LEAST_FETCH_MEMORY, MOST_FETCH_MEMORY, fetching_within
from recmap.store.files_ahead import FilesAhead
from recmap.store.object_writer import UploadParts, choose_parts
from recmap.tfrecord.decoder import refuse_unknown_features

# Copies of a slab in memory: as read, encoded, in the writer's queue, and kept by the
# allocator.
_COPIES = 8
# Copies in memory of a chunk that is larger than a slab and has to be decoded whole: as stored,
# after each of two filters, kept for the next slab, and kept by the allocator and the library of
# the format.
_CHUNK_COPIES = 6
# Memory used regardless of the rows: windows of compressed files, chunks, queues, offsets.
_FIXED = 10 * 10**6
_MIN_SLAB, _MAX_SLAB = 1 << 16, 16 << 20
# Memory for each busy CPU. Regardless of its rows, a worker has queues, and blocks that are
# being compressed or decompressed.
_PER_THREAD = 12 * 10**6
# The part of the memory that the rows collected for a row group may take, and how small and large
# that may be. They are in memory as often: collected, joined, and encoded.
_ROOM_PART, _LEAST_ROOM, _MOST_ROOM = 64, 1 << 18, 16 << 20
_ROOM_COPIES = 4
# Return freed memory to the system once more than the budget divided by this is in use. Earlier
# would be slower, because the memory is often allocated again at once.
_RELEASE_FROM = 4
# Rows and bytes of the sample. They must not depend on the memory, because the number of rows
# in a shard follows from the sample.
_SAMPLE_ROWS, _SAMPLE_SIZE = 32, 1 << 20
# Bytes to read to measure the read speed, and the size of the inputs from which it is measured.
_TIMED_SIZE, _TIMED_FROM = 4 << 20, 64 << 20


@dataclass(frozen=True)
class Budget:
    """The memory that a conversion may use, and the limits derived from it."""

    memory: int
    workers: int
    slab_rows: int
    row_bytes: int
    why: str
    copies: int = _COPIES
    # Memory for chunks that are decoded whole.
    chunk_memory: int = 0
    # Where they are, for messages.
    chunk_place: str = ""
    # Memory for the columns of each file that is written, regardless of its rows.
    column_bytes: int = 0
    # Bytes of rows that each file that is written may collect.
    room: int = 0
    # The parts of each object that is sent while it is written.
    parts: UploadParts | None = None
    # Memory to fetch objects that are read.
    fetch_memory: int = 0
    # Processes among which the user's memory is divided; ``memory`` is the share of each.
    processes: int = 1
    # Memory that the process used before the conversion.
    baseline: int = field(default_factory=anonymous_memory)

    def __setstate__(self, state: dict[str, Any]) -> None:
        # After unpickling in another process, use the baseline of that process.
        self.__dict__.update(state, baseline=anonymous_memory())

    @property
    def limit(self) -> int:
        """The maximum size of a slab in bytes."""
        left = max(0, self._row_memory)
        return (left - min(_FIXED, left // 2)) // (self.copies * self.workers)

    @property
    def read_back_limit(self) -> int:
        """The maximum size in bytes of a slab that is read back to be compared."""
        return self.limit * (1 + self.copies - _COPIES)

    @property
    def _row_memory(self) -> int:
        return self.memory - self._shared - self.file_bytes * self.workers

    @property
    def _shared(self) -> int:
        """Memory that all workers use together, regardless of the rows."""
        return self.chunk_memory + self.fetch_memory

    @property
    def file_bytes(self) -> int:
        """Memory for each file that is written, regardless of its rows."""
        sent = 0 if self.parts is None else self.parts.memory
        return self.column_bytes + sent + _ROOM_COPIES * self.room

    @property
    def thread_limit(self) -> ThreadLimit:
        """The threads that each worker may use, few enough that their blocks fit in memory."""
        return _thread_limit(self.memory, self.workers)

    def needed(self, size: int) -> int:
        """Return the memory needed for slabs of ``size`` bytes."""
        held = self.copies * self.workers * size
        return held + min(_FIXED, held) + self._shared + self.file_bytes * self.workers

    def fetching(self) -> AbstractContextManager[None]:
        """Let objects be fetched within the budget, inside the context."""
        return fetching_within(self.fetch_memory) if self.fetch_memory else nullcontext()

    def release_freed(self) -> None:
        """Return freed memory to the system if much of the budget is in use."""
        if anonymous_memory() - self.baseline > self.memory // _RELEASE_FROM:
            give_back()

    def too_little(self, row: int, size: int) -> MemoryLimitError:
        """Return the error for a row of ``size`` bytes that does not fit."""
        workers = "1 worker" if self.workers == 1 else f"{self.workers} workers"
        given = size_text(self.memory * self.processes).replace(" ", "")
        return MemoryLimitError(
            Message(
                *self._too_little(given),
                f"row {row:,} takes {size_text(size)}, and rows are held up to "
                f"{self.copies} times by {workers}{self._also_held()}; ",
                *self._remedy(size),
            ),
            size=size,
            limit=self.limit,
        )

    def check(self, memory: int | str) -> None:
        """Raise if the budget is too small for a row; ``memory`` is the value the user gave."""
        if self._row_memory < self.copies * _MIN_SLAB or self.limit < self.row_bytes:
            raise MemoryLimitError(
                Message(
                    *self._too_little(memory),
                    f"a row takes about {size_text(self.row_bytes)}, and rows are "
                    f"held up to {self.copies} times{self._also_held()}; ",
                    *self._remedy(max(_MIN_SLAB, self.row_bytes)),
                ),
                size=self.row_bytes,
                limit=self.limit,
            )

    def _too_little(self, memory: int | str) -> tuple[str | Option, ...]:
        given = Option("memory", memory)
        if self.processes == 1:
            return given, " is too little: "
        share = f"{size_text(self.memory)} for each of {self.processes} processes"
        return given, f" is too little, because it is {share}: "

    def _remedy(self, size: int) -> tuple[str | Option, ...]:
        """Return what to do so that slabs of ``size`` bytes fit."""
        needed = self.needed(size)
        more = ("give ", Option("memory", _megabytes(needed * self.processes)), " or more")
        if self.workers > 1:
            return *more, ", or ", Option("workers", self.workers - 1)
        fitting = self.memory * self.processes // needed
        if self.processes > 1 and fitting:
            return *more, ", or ", Option("workers", f"processes:{fitting}")
        return more

    def _also_held(self) -> str:
        held = []
        if self.chunk_memory:
            size = size_text(self.chunk_memory // _CHUNK_COPIES)
            where = f" ({self.chunk_place})" if self.chunk_place else ""
            held.append(f"chunks of {size} that are decoded whole{where}")
        if self.column_bytes:
            held.append(f"{size_text(self.column_bytes)} for so many columns")
        if self.room:
            held.append(f"{size_text(_ROOM_COPIES * self.room)} for the rows of a row group")
        if self.fetch_memory:
            held.append(f"{size_text(self.fetch_memory)} to fetch objects")
        if self.parts is not None:
            held.append(f"{size_text(self.parts.memory)} to send each file")
        return f", in addition to {' and '.join(held)}" if held else ""

    def __str__(self) -> str:
        files = "1 file" if self.workers == 1 else f"{self.workers} files"
        return (
            f"memory {size_text(self.memory)}: {files} at a time, {self.slab_rows:,} rows "
            f"({size_text(self.slab_rows * self.row_bytes)}) at once; {self.why}"
        )


def threads_within(memory: int | str, processes: int) -> ThreadLimit:
    """Return the threads that may be used before the budget is known."""
    return _thread_limit(parse_size(memory) // processes, 1)


def _thread_limit(memory: int, workers: int) -> ThreadLimit:
    together = max(workers, memory // _PER_THREAD)
    return ThreadLimit(together // workers, together)


def least_budget(
    source: Source,
    memory: int | str,
    more_copies: int,
    columns: int = 0,
    processes: int = 1,
    parts: UploadParts | None = None,
    *,
    collects: bool = False,
) -> Budget:
    """Return the budget of one worker that reads row by row, or raise if memory is too small.

    ``more_copies`` is the number of copies of a slab in addition to the usual ones, and
    ``columns`` the bytes that the columns of the output take. Each of ``processes`` gets an
    equal share of the memory. ``parts`` are the smallest ones to send an object in. An output
    that ``collects`` rows gets room for them.
    """
    share = max(1, parse_size(memory) // processes)
    fetched = min(max(share // 4, LEAST_FETCH_MEMORY), MOST_FETCH_MEMORY)
    remote = source.facts.remote or parts is not None
    least = Budget(
        share,
        1,
        1,
        source.row_bytes(),
        "",
        _COPIES + more_copies,
        column_bytes=columns,
        room=min(max(share // _ROOM_PART, _LEAST_ROOM), _MOST_ROOM) if collects else 0,
        parts=parts,
        fetch_memory=fetched if remote else 0,
        processes=processes,
    )
    chunk = source.facts.largest_chunk()
    if chunk.size > least.limit:
        memory_of_chunk = _CHUNK_COPIES * chunk.size
        least = replace(least, chunk_memory=memory_of_chunk, chunk_place=chunk.place)
    least.check(memory)
    return least


def choose_budget(
    least: Budget,
    source: Source,
    memory: int | str,
    workers: int | None,
    shards: int,
    row_bytes: int,
    expected: int | None = None,
) -> Budget:
    """Choose how many shards to write at a time, and how many rows a slab has.

    ``expected`` is the size of the largest shard in bytes, if that is known.
    """
    if workers is not None and workers < 1:
        raise OptionError("workers must be 1 or more")
    one = replace(least, row_bytes=row_bytes)
    one.check(memory)
    why = f"rows of about {size_text(row_bytes)}, {thread_count()} CPUs, {shards:,} files"
    wanted = min(workers or thread_count(), shards)
    least_slab = max(row_bytes, _MIN_SLAB)
    largest = source.facts.largest_row(replace(one, workers=wanted).limit)
    if largest is not None:
        row, size = largest
        if size > one.limit:
            raise one.too_little(row, size)
        least_slab = max(least_slab, size)
        why += f", the largest row {size_text(size)}"
    busy = max(1, min(wanted, one.limit // least_slab, one.memory // _PER_THREAD))
    if one.file_bytes:
        busy = max(
            1, min(busy, (one.memory - one.chunk_memory - one.fetch_memory) // (2 * one.file_bytes))
        )
    if one.parts is not None:
        # Larger parts, and more of them at a time, take up to a quarter of the memory.
        share = max(one.parts.memory, one.memory // (4 * busy))
        one = replace(one, parts=choose_parts(expected, share))
        one.check(memory)
    rows = max(1, min(_MAX_SLAB, replace(one, workers=busy).limit) // row_bytes)
    unit = source.facts.chunk_rows()
    if unit > 1:
        busy = max(1, min(busy, one.limit // (unit * row_bytes)))
        whole = max(1, rows // unit) * unit
        if whole * row_bytes <= one.limit:
            rows = whole
            why += f", stored in chunks of {unit:,} rows"
        else:
            why += f"; the chunks of {unit:,} rows are larger than a slab"
    return replace(one, workers=busy, slab_rows=rows, why=why)


def _megabytes(size: int) -> str:
    """Round up to megabytes, spelled as the user would write them."""
    return f"{-(-size // 10**6)}MB"


class BoundedReader:
    """Reads the rows from ``row`` to ``stop``, or to the end of the source, slab by slab."""

    def __init__(self, source: Source, budget: Budget, row: int, stop: int | None) -> None:
        self._source, self._budget, self._stop = source, budget, stop
        self._rows = budget.slab_rows
        #: The first row of the next slab.
        self.row = row
        self._ahead: FilesAhead | None = None

    def __enter__(self) -> Self:
        """Fetch the objects that follow while rows are read, until the context ends."""
        self._ahead = FilesAhead(self._source.coming(self.row, self._stop), sure=True)
        return self

    def __exit__(self, *error: object) -> None:
        if self._ahead is not None:
            self._ahead.__exit__(*error)

    def _reading(self) -> AbstractContextManager[None]:
        return nullcontext() if self._ahead is None else self._ahead.reading()

    def next(self) -> Batch | None:
        """Read the next slab; return None after the last."""
        asked = self._rows if self._stop is None else min(self._rows, self._stop - self.row)
        if asked <= 0:
            return None
        self._budget.release_freed()
        try:
            with refuse_unknown_features(), self._reading():
                batch = self._source.read(self.row, self.row + asked, self._budget.limit)
        except MemoryLimitError as e:
            raise self._budget.too_little(self.row, e.size * self._budget.limit // e.limit) from e
        rows, _ = measure(batch)
        self.row += rows
        # If only a few rows fit, ask for only a few next time, too.
        self._rows = min(self._budget.slab_rows, 2 * (rows if rows < asked else self._rows))
        return batch if rows else None


def take_sample(source: Source, rows: int | None, least: Budget) -> tuple[int, str]:
    """Read the first of the ``rows`` rows of a source to find out how large they are.

    Return the bytes of a row, in the file or in memory, whichever is larger, and how fast rows are
    read, if that was measured.
    """
    if rows is None:
        return source.row_bytes(), ""  # they can be read only once
    first = _first_rows(source, least)
    count, size = measure(first)
    row_bytes = max(source.row_bytes(), size // max(count, 1), 1)
    if row_bytes * rows < _TIMED_FROM:
        return row_bytes, ""
    budget = replace(least, slab_rows=max(1, _TIMED_SIZE // row_bytes))
    begun = time.perf_counter()
    timed = BoundedReader(source, budget, 0, rows).next() or {}
    seconds = time.perf_counter() - begun
    # If two reads return the same address, nothing was copied.
    if all(_address(first[name]) == _address(timed[name]) for name in timed):
        return row_bytes, "; rows are read in place, without a copy"
    return row_bytes, f"; rows are read at {size_text(measure(timed)[1] / seconds)}/s"


def _address(column: Column) -> int:
    while isinstance(column, Ragged):
        column = column.flat
    return column.ctypes.data


def _first_rows(source: Source, least: Budget) -> Batch:
    # Small objects are fetched whole, one request for each.
    coming = FilesAhead(source.coming(0, _SAMPLE_ROWS), sure=False)
    try:
        with coming, coming.reading():
            return source.read(0, _SAMPLE_ROWS, _SAMPLE_SIZE)
    except MemoryLimitError:
        return BoundedReader(source, least, 0, None).next() or {}
