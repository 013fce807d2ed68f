"""The rows that the page shows: of a dataset (``RowTable``), or of a pipeline (``BatchTable``)."""

from __future__ import annotations

import importlib
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from threading import RLock
from typing import Any, Literal, NamedTuple

import numpy as np

from recmap.dataset.dataset import Dataset, opened_rows
from recmap.dataset.sort import Sorted
from recmap.errors import CompressionError, DataError, MemoryLimitError, OptionError, RecmapError
from recmap.local.inflate import inflate
from recmap.local.local_path import located
from recmap.machine.lru import Lru
from recmap.model.order import Order
from recmap.model.ragged import Ragged
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch, Schema
from recmap.pipeline.stream import Stream

# The limits of one read, of a large row, of the rows of one answer, and of those kept for the next.
_READ_SIZE = 16 << 20
_LARGEST_ROW = 256 << 20
_ANSWER_SIZE = 64 << 20
_KEPT_SIZE = 64 << 20
# How far records are searched at a time. A reader waits for that long at most.
_FIND_SIZE = 64 << 20
_SHOWN_DAMAGE = 512
# Batches taken at a time, unless they are larger than this.
_BATCHES = 16
_SIZE = 64 << 20
# The rows of a batch if the pipeline has no batches.
_BATCH_ROWS = 32


@dataclass(frozen=True)
class Damage:
    """Why a row cannot be read, where it lies, and the bytes that are there."""

    reason: str
    file: str | None = None
    byte: int | None = None
    data: bytes = b""


@dataclass(frozen=True)
class TableRow:
    """A row by number: its values by column, or the damage."""

    number: int
    values: Mapping[str, Any]
    damage: Damage | None = None

    @property
    def size(self) -> int:
        return 128 + sum(_size(value) for value in self.values.values())


class Count(NamedTuple):
    """How many rows there are. Unless it is ``exact``, ``rows`` is an estimate."""

    rows: int
    exact: bool
    found: int


class RowTable:
    """The rows of a dataset by number. Threads may share it: one reads at a time."""

    def __init__(self, dataset: Dataset, name: str | None = None) -> None:
        """Show a dataset under a name, by default that of its files."""
        self.dataset, self.name = dataset, name or _files_text(dataset.files)
        self._source = opened_rows(dataset).source
        self._lock = RLock()
        self._kept = Lru[int, TableRow](_KEPT_SIZE, lambda row: row.size)
        self._sorted: tuple[tuple[str, bool], Sorted] | None = None
        self._found = 0
        self._end: int | None = None  # after a damaged record that hides all later ones

    @property
    def schema(self) -> Schema:
        return self.dataset.schema

    @property
    def labels(self) -> Mapping[str, Sequence[str]]:
        return self.dataset.labels

    @property
    def format(self) -> str:
        return self._source.facts.format

    @cached_property
    def size(self) -> int | None:
        """The size of the files in bytes; None if it is unknown, as for rows in memory."""
        if not self.dataset.files:
            return None
        with suppress(OSError, RecmapError):
            return sum(located(file).stat().size for file in self.dataset.files)
        return None

    @cached_property
    def _row_bytes(self) -> int:
        return max(1, self._source.row_bytes())

    def storage(self, name: str) -> str:
        """Return how a column is stored, in a word or two."""
        # To look for an array among records could mean to read all of them.
        if not self._source.facts.owns_rows and self._source.column(name) is not None:
            return "mapped in place"
        compressed = set(self._source.facts.compressed_files.values())
        return f"decoded, {', '.join(sorted(compressed))}" if compressed else "decoded"

    def count(self) -> Count:
        """Return the number of rows, as far as it is known without counting them."""
        if self._end is not None:
            return Count(self._end, exact=True, found=self._end)
        known = self._source.known_rows()
        if known is not None:
            return Count(known, exact=True, found=known)
        guess = (self.size or 0) // self._row_bytes
        return Count(max(guess, self._found + 1), exact=False, found=self._found)

    def find(self, row: int, seconds: float) -> bool:
        """Search for rows up to ``row``, for some time; return whether they were found.

        Records without an index are found one after another. The search continues where the last
        one stopped.
        """
        until = time.monotonic() + seconds
        step = max(1, _FIND_SIZE // self._row_bytes)
        while True:
            count = self.count()
            if count.exact or row < count.found:
                return True
            if time.monotonic() > until:
                return False
            with self._lock:
                self._find(min(row + 1, self._found + step))

    def _find(self, rows: int) -> None:
        try:
            found = measure(self._source.read(rows - 1, rows))[0]
        except DataError:
            self._note_damage(rows - 1)
            found = 1
        if found:
            self._found = max(self._found, rows)
        elif self._source.known_rows() is None:
            self._end = len(self._source)

    def _note_damage(self, row: int) -> None:
        """Note whether records after a damaged one cannot be found: it is the last row then."""
        count = self._source.facts.rows_before_damage
        sound = None if count is None else count()
        if sound is not None and sound <= row:
            self._end = sound + 1

    def sorted(self, name: str, descending: bool) -> Order:
        """Return the order of the rows by a column. The first row asked for reads the column."""
        with self._lock:
            if self._sorted is None or self._sorted[0] != (name, descending):
                order = Sorted(self._source, name, descending, progress=False, reopen=None)
                order.prepare()
                self._sorted = (name, descending), order
            return self._sorted[1]

    def rows(self, numbers: Iterable[int]) -> list[TableRow]:
        """Return rows by number. Large rows end the list early; ask for the others again."""
        wanted = list(numbers)
        found: dict[int, TableRow] = {}
        taken = 0
        with self._lock:
            for number in wanted:
                row = self._kept.get(number)
                if row is not None:
                    found[number] = row
            for start, stop in _spans([n for n in wanted if n not in found]):
                for row in self._read(start, stop):
                    found[row.number] = row
                    taken += row.size
                    if row.size <= _KEPT_SIZE:
                        self._kept.put(row.number, row)
                    if taken > _ANSWER_SIZE:
                        break
                if taken > _ANSWER_SIZE:
                    break
        return [found[number] for number in wanted if number in found]

    def row(self, number: int) -> TableRow | None:
        """Return one row, or None if there is none."""
        return next(iter(self.rows([number])), None)

    def part(self, number: int, columns: Sequence[str]) -> TableRow | None:
        """Return some columns of a row, or None if there is no such row."""
        batch, damage = self.read(columns, number, number + 1)
        if damage is not None:
            return TableRow(number, {}, damage)
        values = {name: column[0] for name, column in batch.items() if len(column)}
        return TableRow(number, values) if values else None

    def _read(self, start: int, stop: int) -> Iterator[TableRow]:
        while start < stop and (self._end is None or start < self._end):
            batch, damage = read_some(self._source, start, stop)
            if damage is not None:
                self._note_damage(start)
                yield TableRow(start, {}, damage)
                start += 1
                continue
            rows = measure(batch)[0]
            if not rows:
                return
            self._found = max(self._found, start + rows)
            for i in range(rows):
                yield TableRow(start + i, {name: column[i] for name, column in batch.items()})
            start += rows

    def read(
        self, columns: Sequence[str], start: int, stop: int, limit: int = _READ_SIZE
    ) -> tuple[Batch, Damage | None]:
        """Return some of the rows from ``start``, of some columns, or the damage of the first."""
        with self._lock:
            source = self._source.select(columns)
            if self._end is not None and start >= self._end:
                return source.read(0, 0), None
            batch, damage = read_some(source, start, stop, limit)
            if damage is not None:
                self._note_damage(start)
            return batch, damage


def _files_text(files: Sequence[str]) -> str:
    more = f" and {len(files) - 1:,} more" if len(files) > 1 else ""
    return f"{files[0]}{more}" if files else "in memory"


def read_some(
    source: Any, start: int, stop: int, limit: int = _READ_SIZE
) -> tuple[Batch, Damage | None]:
    """Read rows from ``start``, as many as fit; return the damage if the first is damaged."""
    while True:
        try:
            return source.read(start, stop, limit), None
        except MemoryLimitError as e:
            if all(source.column(name) is not None for name in source.schema):
                return source.read(start, start + 1), None  # a view of the file takes no memory
            if limit < _LARGEST_ROW:
                stop, limit = start + 1, _LARGEST_ROW
                continue
            return {}, Damage(f"too large to show: {e}")
        except DataError as e:
            if stop > start + 1:
                stop = start + 1  # another of the rows may be the damaged one
                continue
            return {}, _damage(e, source.facts.compressed_files)


def _damage(error: DataError, compressed: Mapping[str, Any]) -> Damage:
    data = b""
    if error.file is not None and error.byte is not None:
        # Where a compressed stream itself is damaged, the error gives the place in the file.
        how = None if isinstance(error, CompressionError) else compressed.get(error.file)
        with suppress(OSError, RecmapError):
            data = _bytes_at(error.file, error.byte, how)
    return Damage(str(error), error.file, error.byte, data)


def _bytes_at(path: str, begin: int, compression: Literal["gzip", "zlib"] | None) -> bytes:
    """Return the bytes at a place in a file, or in the inflated data of a compressed one."""
    if compression is None:
        with located(path).open() as file:
            return file.pread(_SHOWN_DAMAGE, begin)
    held, base = b"", 0
    for part in inflate(path, compression):
        held += part.plain
        if base + len(held) >= begin + _SHOWN_DAMAGE:
            break
        if base + len(held) <= begin:
            base, held = base + len(held), b""
    return held[begin - base :][:_SHOWN_DAMAGE]


def _spans(numbers: list[int]) -> Iterator[tuple[int, int]]:
    """Yield runs of consecutive numbers.

    >>> list(_spans([3, 4, 5, 9, 2]))
    [(3, 6), (9, 10), (2, 3)]
    """
    start = 0
    for i in range(1, len(numbers) + 1):
        if i == len(numbers) or numbers[i] != numbers[i - 1] + 1:
            yield numbers[start], numbers[i - 1] + 1
            start = i


def _size(value: Any) -> int:
    if isinstance(value, bytes | str):
        return len(value)
    return int(value.nbytes) if isinstance(value, np.ndarray | Ragged) else 8


def load_pipeline(name: str) -> Stream:
    """Import a pipeline, or a function that makes one, from ``module:attribute``."""
    module, colon, attribute = name.partition(":")
    if not colon or not module or not attribute:
        raise OptionError(f"--pipeline {name}: write module:name, such as train:pipeline")
    if "" not in sys.path:
        sys.path.insert(0, "")  # the working directory, as `python -c` does
    try:
        found = importlib.import_module(module)
        for part in attribute.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError) as e:
        raise OptionError(f"--pipeline {name}: {e}") from None
    made: Any = found() if callable(found) and not isinstance(found, Stream) else found
    if not isinstance(made, Stream):
        raise OptionError(f"--pipeline {name} is a {type(made).__name__}, not a pipeline of recmap")
    return made.pipeline()


class BatchTable:
    """Some of the batches of a pipeline. ``advance`` takes the next ones.

    It has the members of a ``RowTable`` that the page needs.
    """

    format = "pipeline"
    size = None

    def __init__(self, pipeline: Stream, name: str) -> None:
        self.name, self.labels = name, dict[str, Sequence[str]]()
        try:
            self._pipeline = pipeline.batch(_BATCH_ROWS)
        except RecmapError:
            self._pipeline = pipeline  # it has batches already
        self._lock = RLock()
        self._first = 0  # the number of the first batch held
        self._held: list[Batch] = []
        self._rest: Iterator[dict[str, Any]] = iter(self._pipeline)
        self.advance()

    @property
    def schema(self) -> Schema:
        return self._pipeline.schema

    @property
    def batches(self) -> tuple[int, int]:
        """The span of the batches held."""
        return self._first, self._first + len(self._held)

    def advance(self) -> None:
        """Replace the batches held by the next ones. After the last, begin the next epoch."""
        with self._lock:
            first = self._first + len(self._held)
            held = self._take()
            if not held:
                self._rest, first = iter(self._pipeline), 0
                held = self._take()
            self._first, self._held = first, held

    def _take(self) -> list[Batch]:
        held: list[Batch] = []
        size = 0
        for batch in islice(self._rest, _BATCHES):
            held.append({name: column[:] for name, column in batch.items()})
            size += measure(held[-1])[1]
            if size > _SIZE:
                break
        return held

    def count(self) -> Count:
        rows = sum(measure(batch)[0] for batch in self._held)
        return Count(rows, exact=True, found=rows)

    def find(self, row: int, seconds: float) -> bool:
        """Return True: all rows are held."""
        del row, seconds
        return True

    def rows(self, numbers: Iterable[int]) -> list[TableRow]:
        """Return rows by their place among those held."""
        with self._lock:
            found = []
            for number in numbers:
                batch, _, i = self._place(number)
                if batch is not None:
                    values = {name: column[i] for name, column in batch.items()}
                    found.append(TableRow(number, values))
            return found

    def row(self, number: int) -> TableRow | None:
        """Return one row, or None if there is none."""
        return next(iter(self.rows([number])), None)

    def title(self, number: int) -> str:
        """Return the batch of a row, and its place there."""
        _, batch, i = self._place(number)
        return f"{batch}:{i}"

    def read(
        self, columns: Sequence[str], start: int, stop: int, limit: int = 0
    ) -> tuple[Batch, Damage | None]:
        """Return rows of one batch."""
        del limit
        batch, _, i = self._place(start)
        if batch is None:
            return {name: column[:0] for name, column in self._held[0].items()}, None
        return {name: batch[name][i : i + stop - start] for name in columns}, None

    def _place(self, row: int) -> tuple[Batch | None, int, int]:
        for k, batch in enumerate(self._held):
            rows = measure(batch)[0]
            if row < rows:
                return batch, self._first + k, row
            row -= rows
        return None, 0, 0
