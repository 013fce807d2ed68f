"""Read record files one after another, while those that follow are fetched."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import accumulate

from recmap.local.local_path import any_remote, located
from recmap.machine.mapped import Guard
from recmap.machine.threads import Threads
from recmap.model.fetching import Coming, Fetching
from recmap.store.files_ahead import files_in_turn
from recmap.tfrecord.decoder import ExampleDecoder
from recmap.tfrecord.plain_file import PlainFile
from recmap.tfrecord.record_file import RecordFile

# Counting the rows of one object takes up to this much memory, and of several at a time this much.
_SCANNED, _MEMORY = 128 << 20, 512 << 20


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
