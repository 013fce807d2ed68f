"""ds.where: the rows for which a condition holds.

They are found when they are first needed, in one pass over the columns that the condition names:
as many as are asked for, or all if their number is. Row numbers are remembered, also by the
processes that get the dataset afterwards.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from threading import RLock
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.dataset.rows import read_blocks
from recmap.errors import OptionError
from recmap.machine.cpus import pool_size
from recmap.machine.mapped import guarded
from recmap.machine.threads import Threads
from recmap.model.batch import Positions, RowArray
from recmap.model.expression import Expression, Predicate, as_expression
from recmap.model.expression_text import parse_expression
from recmap.model.nulls import with_masks
from recmap.model.order import ENDLESS, Order, Span
from recmap.model.ordered_rows import OrderedRows
from recmap.model.progress import Counter, ProgressOption, check_progress
from recmap.model.row_sizes import measure
from recmap.model.schema import Batch
from recmap.model.source import Source
from recmap.model.table_notes import decimals_as_text
from recmap.model.value_test import ValueRange

# The rows found in some of them, the row where these end, and their bytes.
_Matches: TypeAlias = tuple[npt.NDArray[Any], int, int]
# Bytes that a thread tests at a time: few enough for its cache, enough to be worth a task.
_PIECE = 1 << 21
# Row numbers in one array, which take 4 bytes each up to this one.
_CHUNK, _NARROW = 1 << 24, (1 << 31) - 1


def where(
    source: Source, condition: Expression | str, progress: ProgressOption
) -> tuple[Expression, Callable[[Source], Source]]:
    """Check a condition; return it, and what reduces a source to its rows."""
    check_progress(progress)
    expression = as_expression(
        parse_expression(condition) if isinstance(condition, str) else condition
    )
    expression.bind(source.schema)  # raises if a column is missing, or compared with a wrong value
    facts = source.facts
    for name in sorted(expression.compared):
        if decimals_as_text(facts, name, source.schema[name]):
            raise OptionError(
                f"where: {name!r} has decimal numbers of more digits than float64 keeps, which are "
                f'read as text; compare them with ds.filter(lambda row: Decimal(row["{name}"]) > 1)'
            )
    if facts.once:
        raise OptionError("where: rows that come only once cannot be searched; save them first")
    if facts.endless or facts.varies:
        raise OptionError(
            "where: use it before repeat and shuffle, which then take these rows only"
        )
    return expression, partial(matching_rows, search=Search(expression, progress))


def matching_rows(source: Source, search: Search) -> Source:
    """Return the rows that a search finds in a source."""
    return OrderedRows(source, Matching(source, search))


class Matching(Order):
    """The rows of a source that a search finds, in file order."""

    def __init__(self, source: Source, search: Search) -> None:
        self._source, self._search = source, search

    @property
    def count(self) -> int:
        return self._search.up_to(self._source, None)

    @property
    def counted(self) -> bool:
        return self._search.done

    @property
    def endless(self) -> bool:
        return False

    def up_to(self, stop: int) -> int:
        return min(stop, self._search.up_to(self._source, stop))

    def numbers(self, positions: Positions, epoch: int = 0) -> RowArray:
        del epoch
        return self._search.at(self._source, positions)

    @property
    def gap(self) -> int:
        return self._search.gap  # on average: rows so close to each other are read together


class Search:
    """Finds the rows for which a condition holds, from the first one on. Threads may share it."""

    def __init__(self, expression: Expression, progress: ProgressOption = None) -> None:
        self._expression, self._progress = expression, progress
        self._rows = _RowNumbers()
        self._next = 0  # rows before this one were searched
        self.done = False
        self._lock = RLock()

    def __getstate__(self) -> dict[str, Any]:
        with self._lock:
            found = self._rows.parts()
            return {"of": self._expression, "rows": found, "next": self._next, "done": self.done}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__init__(state["of"])  # type: ignore[misc]
        for rows in state["rows"]:
            self._rows.append(rows)
        self._next, self.done = state["next"], state["done"]

    @property
    def gap(self) -> int:
        """The average distance of the rows found so far; 0 if there are none."""
        return self._rows.gap

    def at(self, source: Source, positions: Positions) -> RowArray:
        """Return the numbers of the rows at these positions among those that are found."""
        self.up_to(source, int(positions.max(initial=-1)) + 1)
        return self._rows.at(positions)

    def up_to(self, source: Source, count: int | None) -> int:
        """Search until ``count`` rows are found, or all; return how many are."""
        if not self.done and (count is None or len(self._rows) < count):
            with self._lock:
                self._search(source, count)
        return len(self._rows)

    def _search(self, source: Source, count: int | None) -> None:
        # A search for a few rows goes on later, so its progress is not shown.
        with Counter(source.known_rows(), self._progress if count is None else False) as counter:
            counter.add(self._next)

            def take(found: _Matches) -> bool:
                rows, stop, size = found
                self._rows.append(rows)
                counter.add(stop - self._next, size)
                self._next = stop
                return count is None or len(self._rows) < count

            self.done = _search(source, self._expression, self._next, take)
            counter.finish()


@guarded
def _search(
    source: Source, expression: Expression, start: int, take: Callable[[_Matches], bool]
) -> bool:
    """Pass what is found from row ``start`` on to ``take``, until it returns False.

    Return whether all rows were searched. This thread reads them, and a pool tests them.
    """
    predicate = expression.bind(source.schema)
    columns = source.select(with_masks(sorted(expression.names), source.schema))
    more, ended, waiting = True, True, deque[Future[_Matches]]()
    with Threads(pool_size(), "recmap-where") as pool:
        for number, (first, block) in enumerate(_blocks(columns, predicate, start)):
            for begin, piece in _pieces(first, block):
                waiting.append(pool.submit(_test, predicate, piece, begin))
                if len(waiting) > 2 * pool_size():
                    more = take(waiting.popleft().result())
            while waiting and number == 0:  # the first block is small, and often enough
                more = take(waiting.popleft().result())
            if not more:
                ended = False
                break
        while waiting:
            take(waiting.popleft().result())
    return ended


def _test(predicate: Predicate, batch: Batch, first: int) -> _Matches:
    rows, size = measure(batch)
    found = np.flatnonzero(predicate.rows(batch))
    found += first
    narrow = first + rows <= _NARROW
    return found.astype(np.int32) if narrow else found, first + rows, size


def _pieces(first: int, block: Batch) -> Iterator[tuple[int, Batch]]:
    rows, size = measure(block)
    step = max(1, rows * _PIECE // max(1, size))
    for start in range(0, rows, step):
        yield first + start, {n: column[start : start + step] for n, column in block.items()}


def _blocks(source: Source, predicate: Predicate, start: int) -> Iterator[tuple[int, Batch]]:
    """Yield the first row of each block that may have rows to find, and the block."""
    for span in _spans(source, predicate, start):
        whole = span.start == 0 and span.stop >= ENDLESS
        first = span.start
        for block in read_blocks(source if whole else OrderedRows(source, Span(span)), 1):
            yield first, block
            first += measure(block)[0]


def _spans(source: Source, predicate: Predicate, start: int) -> list[range]:
    """Return where rows from ``start`` on may match, by what is known without reading them."""
    known = source.known_rows()
    end = ENDLESS if known is None else known
    told = {name: source.value_ranges(name) for name in source.schema}
    ranges = {name: each for name, each in told.items() if each is not None}
    spans: list[range] = []
    for first, stop, values in _together(ranges, end):
        begin = max(first, start)
        if begin >= stop or not predicate.possible(values):
            continue
        if spans and spans[-1].stop == begin:
            begin = spans.pop().start
        spans.append(range(begin, stop))
    return spans


def _together(
    ranges: Mapping[str, Sequence[ValueRange]], end: int
) -> Iterator[tuple[int, int, dict[str, ValueRange]]]:
    """Yield spans of rows in which every column has one known range."""
    stops = {each.stop for column in ranges.values() for each in column}
    first, at = 0, dict.fromkeys(ranges, 0)
    for stop in sorted({end, *(stop for stop in stops if 0 < stop < end)}):
        for name, column in ranges.items():
            while at[name] < len(column) and column[at[name]].stop <= first:
                at[name] += 1
        yield first, stop, {n: ranges[n][i] for n, i in at.items() if i < len(ranges[n])}
        first = stop


class _RowNumbers:
    """Row numbers in ascending order, in chunks, so that adding some copies no others."""

    def __init__(self) -> None:
        self._chunks: list[npt.NDArray[Any]] = []
        self._count, self._last = 0, -1

    def __len__(self) -> int:
        return self._count

    def append(self, numbers: npt.NDArray[Any]) -> None:
        while len(numbers):
            place = self._count & (_CHUNK - 1)
            some, numbers = numbers[: _CHUNK - place], numbers[_CHUNK - place :]
            if place == 0:
                self._chunks.append(np.empty(_CHUNK, np.int32))  # no memory until it is filled
            self._last = int(some[-1])
            if self._last > _NARROW and self._chunks[-1].dtype == np.int32:
                self._chunks[-1] = self._chunks[-1].astype(np.int64)
            self._chunks[-1][place : place + len(some)] = some
            self._count += len(some)

    def parts(self) -> list[npt.NDArray[Any]]:
        """Return all numbers, in one or more arrays."""
        sizes = [_CHUNK] * (len(self._chunks) - 1) + [(self._count - 1) % _CHUNK + 1]
        return [chunk[:size] for chunk, size in zip(self._chunks, sizes, strict=False)]

    def at(self, positions: Positions) -> RowArray:
        """Return the numbers at these positions."""
        if len(self._chunks) == 1:
            return self._chunks[0][positions].astype(np.int64)
        found = np.empty(len(positions), np.int64)
        owners = positions // _CHUNK
        for owner in np.unique(owners).tolist():
            mine = owners == owner
            found[mine] = self._chunks[owner][positions[mine] % _CHUNK]
        return found

    @property
    def gap(self) -> int:
        """The average distance from one number to the next; 0 if there are none."""
        return (self._last - int(self._chunks[0][0])) // self._count + 1 if self._count else 0
