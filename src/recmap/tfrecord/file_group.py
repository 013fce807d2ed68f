"""Several record files: rows of plain ones in one call, or one file after another.

While files are read one after another, those that follow are fetched.
"""

from __future__ import annotations

import time
from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, closing
from functools import partial
from itertools import accumulate
from threading import RLock
from typing import Any, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.local.local_path import any_remote, located
from recmap.machine.cpus import thread_count
from recmap.machine.mapped import Guard, MappedFile, scattered_reads
from recmap.machine.threads import Threads
from recmap.model.batch import divide_rows
from recmap.model.fetching import Coming, Fetching, fetching_all
from recmap.native import _core
from recmap.store.files_ahead import files_in_turn
from recmap.store.mapped_files import MappedFiles
from recmap.store.paths import for_each
from recmap.tfrecord.decoder import Decoder, ExampleDecoder, Records
from recmap.tfrecord.index import Offsets
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.record_file import RecordFile, first_beyond
from recmap.tfrecord.sidecar import misplaced

# The most files mapped at once for a span of rows.
_MAX_SPAN_FILES = 512

# Seconds between looks whether all objects are in the cache. Looking takes at most a twentieth of
# the time.
_LOOK_EVERY, _LOOK_PART = 0.05, 20

# Counting the rows of one object takes up to this much memory, and of several at a time this much.
_SCANNED, _MEMORY = 128 << 20, 512 << 20

_T = TypeVar("_T")
_RowNumbers: TypeAlias = npt.NDArray[np.int64]


class FileGroup:
    """Fully indexed files that stay mapped as long as this object lives.

    Their rows are numbered consecutively, beginning with the first file.
    """

    def __init__(self, files: Sequence[PlainFile], mapped: Sequence[MappedFile]) -> None:
        self.files, self._mapped = list(files), mapped
        self._starts = np.cumsum([0, *(file.count() for file in files)], dtype=np.int64)
        self._native = _core.Files()
        for file, mapping in zip(files, mapped, strict=True):
            if mapping.size < file.size:  # the file was replaced
                mapping.check_size(file.size)
            with file.index.lock:
                index = file.index
                self._native.add(mapping.bytes, index.stride or 0, *index.anchors, index.lead)
        self._unchecked = set(range(len(files)))
        self._record_bytes = sum(file.size for file in files) // max(1, int(self._starts[-1]))
        self.whole = all(mapping.whole for mapping in mapped)
        #: Whether some are objects, which the cache may have, or have no longer.
        self.kept = not all(mapping.lends for mapping in mapped)

    def has(self, mapped: Sequence[MappedFile]) -> bool:
        """Return whether these are the mapped files that are read."""
        return all(one is other for one, other in zip(self._mapped, mapped, strict=True))

    def gather(
        self, decoder: Decoder[_T], rows: _RowNumbers, verify: bool, *, ask: bool = True
    ) -> _T:
        """Read rows by number, and decode each into its place in one call.

        With ``ask``, ask the system to load the records ahead if the rows are not in order.
        """
        numbers, owners = self._divided(rows)
        read = [0] if owners is None else np.flatnonzero(np.bincount(owners)).tolist()
        self._check(read, by_page=verify)

        def where(row: int) -> tuple[str, int]:
            owner = 0 if owners is None else owners[row]
            return self.files[owner].path, int(numbers[row])

        # Use more threads than this thread's share: they mostly wait for the disk.
        files, threads = self._native, thread_count() if len(rows) > 1 else 1
        with self._hold(read, numbers, owners):
            absent = ask and self.whole and _core.prefetch_records(files, owners, numbers)
            mapped = (self._mapped[i] for i in read)
            with scattered_reads(mapped, self._record_bytes, absent=absent):
                offsets, fault = _core.locate(files, owners, numbers, threads)
                if fault is None:
                    self._check_held(read, numbers, owners, offsets)
                    records = Records(files, offsets, owners)
                    decoded, fault = decoder.decode(records, verify, threads, where)
                    if fault is None:
                        return decoded
        self._check(read, by_page=False)
        path, record = where(fault.row)
        raise decoder.error(fault, path, record)

    def fetch_ahead(self, rows: _RowNumbers) -> Fetching | None:
        """Begin to fetch rows that are going to be gathered."""
        if self.whole:
            return None
        divided = divide_rows(self._starts[:-1], rows)
        return fetching_all(self.files[i].fetch_into(self._mapped[i], mine) for i, mine in divided)

    def _hold(
        self, read: Sequence[int], numbers: _RowNumbers, owners: npt.NDArray[np.uint32] | None
    ) -> AbstractContextManager[Any]:
        """Make the records of these rows available, in the files that are read."""
        stack = ExitStack()
        if self.whole:
            return stack
        # Begin to fetch from all files before waiting for the first.
        holds = [
            self._mapped[i].hold(
                *self.files[i].index.spans(numbers if owners is None else numbers[owners == i])
            )
            for i in read
        ]
        for hold in holds:
            stack.callback(hold.__exit__, None, None, None)
        with stack:
            for hold in holds:
                hold.__enter__()
            return stack.pop_all()

    def _check_held(
        self,
        read: Sequence[int],
        numbers: _RowNumbers,
        owners: npt.NDArray[np.uint32] | None,
        offsets: Offsets,
    ) -> None:
        """Raise if a record of an object is longer than what is held of it."""
        for i in () if self.whole else read:
            mine = np.arange(len(numbers)) if owners is None else np.flatnonzero(owners == i)
            if self._mapped[i].whole:
                continue
            _, ends = self.files[i].index.spans(numbers[mine])
            bad = first_beyond(self._mapped[i].bytes, offsets[mine], ends)
            if bad is not None:
                row, at = int(numbers[mine[bad]]), int(offsets[mine[bad]])
                raise misplaced(self.files[i].path, row, at)

    def _divided(self, rows: _RowNumbers) -> tuple[_RowNumbers, npt.NDArray[np.uint32] | None]:
        """Return each row's number in its file, and the files; None if there is only one file."""
        if len(self.files) == 1:
            return rows, None
        return _core.divide_among_files(self._starts, np.ascontiguousarray(rows), thread_count())

    def _check(self, files: Sequence[int], *, by_page: bool) -> None:
        """Raise if one of these files has shrunk, or fails its deferred check."""
        local = [self._mapped[i] for i in files if self.whole or self._mapped[i].whole]
        MappedFile.check_sizes(local, by_page=by_page)
        if self._unchecked:
            unchecked = self._unchecked.intersection(files)
            _check_before_read([self.files[i] for i in sorted(unchecked)])
            self._unchecked -= unchecked


class FileGroups:
    """Groups the files of a source once their records are known."""

    def __init__(self, files: Sequence[RecordFile], mapped: MappedFiles) -> None:
        self._record_files, self._mapped = files, mapped
        self._all: FileGroup | None = None
        self._look_again = 0.0
        self._lock = RLock()

    def __reduce__(self) -> tuple[type[FileGroups], tuple[Any, ...]]:
        return FileGroups, (self._record_files, self._mapped)  # another process maps its own

    def all(self) -> FileGroup | None:
        """Return the group of all files, which stays mapped.

        Return None if a file is compressed or not fully indexed yet, or if there are too many.
        """
        with self._lock:
            if self._all is None:
                plain = _plain_files(self._record_files)
                if plain is None or any(file.known_count() is None for file in plain):
                    return None
                held = self._mapped.hold([file.path for file in plain])
                if held is not None:
                    self._all = FileGroup(plain, held)
            elif self._all.kept and time.monotonic() >= self._look_again:
                self._map_kept_objects(self._all)
            return self._all

    def _map_kept_objects(self, group: FileGroup) -> None:
        """Read the objects as files from now on, if the cache has all of them, and only then."""
        began = time.monotonic()
        held = self._mapped.hold([file.path for file in group.files])
        if held is not None and group.whole | all(file.whole for file in held):
            self._all = group if group.has(held) else FileGroup(group.files, held)
        now = time.monotonic()
        self._look_again = now + max(_LOOK_EVERY, _LOOK_PART * (now - began))

    def span(self, first: int, last: int) -> FileGroup | None:
        """Return a group of the files from ``first`` to ``last``, which must be fully indexed.

        Return None if a file is compressed, or if there are too many.
        """
        files = self._record_files[first : last + 1]
        plain = None if len(files) > _MAX_SPAN_FILES else _plain_files(files)
        if plain is None:
            return None
        _check_before_read(plain)
        return FileGroup(plain, [file.file for file in plain])


def _check_before_read(files: Sequence[PlainFile]) -> None:
    """Run the deferred checks of files; for objects, many at once."""
    unchecked = [file for file in files if file.before_read is not None]
    for_each(PlainFile.check_before_read, unchecked, [file.path for file in unchecked])


def _plain_files(files: Sequence[RecordFile]) -> list[PlainFile] | None:
    """Return the files if all of them are plain, else None."""
    plain = [file for file in files if isinstance(file, PlainFile)]
    return plain if len(plain) == len(files) else None


def in_turn(files: Sequence[RecordFile]) -> Generator[RecordFile, None, None]:
    """Yield files that are read whole, while those that follow are fetched."""
    with files_in_turn([file.path for file in files]) as reading:
        for number, file in enumerate(files):
            with reading(number):
                yield file


def uncounted_files(files: Sequence[RecordFile]) -> list[RecordFile]:
    """Return the files that have to be read to count their rows."""
    return [file for file in files if file.known_count() is None]


def unindexed_files(files: Sequence[RecordFile]) -> list[PlainFile]:
    """Return the plain files whose records are yet to be found, by any number of readers."""
    return [file for file in uncounted_files(files) if isinstance(file, PlainFile)]


def rows_before_damage(files: Sequence[RecordFile], starts: Sequence[int]) -> int:
    """Return how many rows were found before the damage at which counting them stopped.

    ``starts`` are the numbers of the first rows of files, as far as they were counted.
    """
    last = len(starts) - 1
    return starts[last] + files[last].found_rows()


def count_objects(files: Sequence[PlainFile]) -> None:
    """Count the rows of those files that are objects, several at a time."""
    objects = [file for file in files if located(file.path).remote]
    if len(objects) > 1:
        scanned = min(max(file.size for file in objects), _SCANNED)
        at_once = min(len(objects), max(1, _MEMORY // max(scanned, 8 << 20)))
        with Threads(at_once, "recmap-count") as pool:
            list(pool.map(PlainFile.count, objects))


def count_before(files: Sequence[RecordFile], i: int, starts: list[int]) -> None:
    """Count the rows before file ``i``, and add to the numbers of the first rows of files."""
    some = files[len(starts) - 1 : i]
    with closing(in_turn(uncounted_files(some))) as uncounted:
        for file in some:
            if file.known_count() is None:
                next(uncounted)
            starts.append(starts[-1] + file.count())


def largest_row(
    files: Sequence[RecordFile], decoder: ExampleDecoder, above: int
) -> tuple[int, int] | None:
    """Return the number and size of the largest row, if it takes more than ``above`` bytes.

    Compressed files are counted. Return None if finding it would take another pass over them.
    """
    found = None
    # Only these are read.
    compressed = [file for file in uncounted_files(files) if file.compression]
    with Guard(tuple(file.path for file in files)), closing(in_turn(compressed)) as uncounted:
        for i, file in enumerate(files):
            if file.compression and file.known_count() is None:
                next(uncounted)
            row = file.largest_row(decoder, above)
            if row is not None:
                first = sum(each.count() for each in files[:i])
                found, above = (first + row[0], row[1]), row[1]
    return found


def coming_files(
    source: object, files: Sequence[RecordFile], starts: list[int], start: int, stop: int | None
) -> Iterator[Coming]:
    """Yield the files after the one with row ``start``, up to that of row ``stop``.

    ``starts`` are the numbers of the first rows of files, as far as they were counted. More may be
    added meanwhile.
    """
    first = bisect_right(starts, start)
    if first >= len(files) or not any_remote([files[first].path]):
        return
    ends = [0, *accumulate(located(file.path).stat().size for file in files)]

    def known(i: int) -> int | None:
        if i == len(files) == len(starts):
            count = files[-1].known_count()
            return None if count is None else starts[-1] + count
        return starts[i] if i < len(starts) else None

    def about(i: int) -> float:
        """Estimate the number of the first row of a file, judging by those counted so far."""
        last = min(i, len(starts) - 1)
        rows, size = (starts[last], ends[last]) if last else (1, files[0].row_bytes())
        return starts[last] + (ends[i] - ends[last]) * rows / max(size, 1)

    for i in range(first, len(files)):
        if stop is not None and about(i) >= stop:
            return
        fetch = partial(_fetch, files[i], partial(known, i), stop)
        yield Coming(source, ends[i + 1] - ends[i], fetch, partial(known, i + 1))


def _fetch(file: RecordFile, start: partial[int | None], stop: int | None) -> Fetching | None:
    """Begin to fetch the rows of a file, up to row ``stop`` of the source if that is known."""
    count, first = file.known_count(), start()
    if count is None or first is None:
        return file.fetch_whole()
    return file.fetch_ahead(range(count if stop is None else min(count, stop - first)))
