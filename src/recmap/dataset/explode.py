"""ds.explode: a row for every item of a list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.dataset.column_scan import check_same_rows, from_rows
from recmap.dataset.derived_rows import DerivedRows
from recmap.dataset.rows import read_blocks
from recmap.errors import DataError, OptionError, OptionTypeError
from recmap.machine.mapped import guarded
from recmap.model.batch import Positions, RowArray
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.field import Field
from recmap.model.progress import Counter, ProgressOption
from recmap.model.ragged import Column, Ragged, has_mask, null_mask
from recmap.model.remembered import Remembered
from recmap.model.row_sizes import RowSizes, fitting, measure
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, row_name


class Items:
    """The items of all lists, end to end: which row each belongs to.

    Row ``i`` has items ``offsets[i]`` to ``offsets[i + 1]``; without ``offsets``, every row has
    ``each`` of them.
    """

    def __init__(self, rows: int, each: int, offsets: RowArray | None = None) -> None:
        self._each, self._offsets = each, offsets
        self.count = rows * each if offsets is None else int(offsets[-1])

    def row(self, item: int) -> int:
        """Return the row of an item."""
        return int(self.rows(np.array([item]))[0])

    def rows(self, items: Positions) -> RowArray:
        """Return the row of each item."""
        if self._offsets is None:
            return items // max(1, self._each)
        return np.searchsorted(self._offsets, items, side="right") - 1

    def first(self, rows: RowArray) -> Positions:
        """Return the first item of each row."""
        return rows * self._each if self._offsets is None else self._offsets[rows]


def counted_items(
    source: Source,
    columns: Sequence[str],
    progress: ProgressOption,
    reopen: Callable[[], Source] | None,
) -> Remembered[int, Items]:
    """Return the items of these columns, which are counted when they are first needed."""
    check_same_rows("explode", source)
    if not columns:
        raise OptionTypeError('explode: give the columns to divide, such as explode("boxes")')
    for name in columns:
        if not isinstance(name, str):
            raise OptionTypeError(f"explode: {name!r}: the name of a column is text")
        field = source.schema[name]
        if not field.shape:
            raise OptionError(f"explode: column {name!r} is {field}, one value per row, not a list")
    fixed = {n: length for n in columns if (length := source.schema[n].shape[0]) is not None}
    if len(set(fixed.values())) > 1:
        listed = " and ".join(f"{length:,} in {name!r}" for name, length in fixed.items())
        raise OptionError(f"explode: every row has {listed}; the numbers must be equal")
    compute = partial(_counted, columns=list(columns), progress=progress)
    return from_rows(source, compute, reopen)


@guarded
def _counted(source: Source, columns: list[str], progress: ProgressOption) -> Items:
    fields = [source.schema[name] for name in columns]
    fixed = [length for f in fields if (length := f.shape[0]) is not None and not f.nullable]
    rows = len(source)
    if len(fixed) == len(columns):
        return Items(rows, fixed[0])
    offsets, start, lists = np.zeros(rows + 1, np.int64), 0, source.select(columns)
    with Counter(rows, progress) as counter:
        for batch in read_blocks(lists, 1):
            count, size = measure(batch)
            offsets[start + 1 : start + count + 1] = _lengths(source, batch, start)
            counter.add(count, size)
            start += count
        counter.finish()
    np.cumsum(offsets, out=offsets)
    return Items(rows, 0, offsets)


def _lengths(source: Source, batch: Batch, start: int) -> npt.NDArray[np.int64]:
    """Return the number of items in each row; raise if columns differ."""
    first: tuple[str, npt.NDArray[np.int64]] | None = None
    for name, column in batch.items():
        lengths = (
            column.lengths
            if isinstance(column, Ragged)
            else np.full(len(column), column.shape[1], np.int64)
        )
        if has_mask(column):
            lengths = np.where(null_mask(column), 0, lengths)
        if first is None:
            first = name, lengths
        elif (lengths != first[1]).any():
            row = int(np.argmax(lengths != first[1]))
            raise DataError(
                f"explode: {row_name(source, start + row)} has {first[1][row]:,} items in "
                f"{first[0]!r} and {lengths[row]:,} in {name!r}; the numbers must be equal",
                record=start + row,
                field=name,
            )
    assert first is not None
    return first[1]


class ExplodedRows(DerivedRows[Items]):
    """The rows of a source, once for each item of their lists."""

    def __init__(
        self, source: Source, columns: Sequence[str], items: Remembered[int, Items]
    ) -> None:
        super().__init__(source, items)
        self._columns = tuple(columns)

    @cached_property
    def schema(self) -> Schema:
        fields = self._source.schema
        return Schema({n: _item(fields[n]) if n in self._columns else fields[n] for n in fields})

    @property
    def facts(self) -> SourceFacts:
        facts = super().facts
        told = {n: text for n, text in facts.descriptions.items() if n not in self._columns}
        return with_facts(facts, descriptions=told, sized=False)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        stop = min(stop, len(self))
        if start >= stop:
            return self._of_rows(self._source.read(0, 0), np.empty(0, np.int64), 0)
        first, last = self._layout.row(start), self._layout.row(stop - 1) + 1
        # The rows that are read are in memory together with those that are made of them.
        batch = self._source.read(first, last, None if limit is None else limit // 2)
        read = first + measure(batch)[0]
        end = stop if read >= last else int(self._layout.first(np.array([read]))[0])
        items = np.arange(start, end, dtype=np.int64)
        if limit is not None:
            items = items[: fitting(self._sizes(batch, items, first), len(items), limit // 2)]
        return self._of_rows(batch, items, first)

    def gather(self, rows: RowArray) -> Batch:
        sources, places = np.unique(self._layout.rows(rows), return_inverse=True)
        batch = self._source.gather(sources)
        within = rows - self._layout.first(sources[places.reshape(-1)])
        return self._picked(batch, places.reshape(-1), within)

    def _of_rows(self, batch: Batch, items: Positions, first: int) -> Batch:
        """Return items of rows that were read from row ``first`` on."""
        rows = self._layout.rows(items) if len(items) else items
        within = items - self._layout.first(rows) if len(items) else items
        return self._picked(batch, rows - first, within)

    def _picked(self, batch: Batch, places: Positions, within: Positions) -> Batch:
        """Return item ``within`` of the row at each of these places."""
        return {
            name: _items_of(column, places, within) if name in self._columns else column[places]
            for name, column in batch.items()
        }

    def _sizes(self, batch: Batch, items: Positions, first: int) -> npt.NDArray[np.int64]:
        """Return the bytes that each item takes, with all that is repeated for it."""
        rows = self._layout.rows(items)
        places, within = rows - first, items - self._layout.first(rows)
        sizes = np.zeros(len(items), np.int64)
        for name, column in batch.items():
            if name not in self._columns:
                sizes += _row_sizes(column)[places]
            elif isinstance(column, Ragged):
                sizes += _row_sizes(column.values)[column.offsets[:-1][places] + within]
            else:
                sizes += column.nbytes // max(1, len(column) * column.shape[1])
        return sizes

    def row_sizes(self, rows: RowArray) -> RowSizes | None:
        sources, places = np.unique(self._layout.rows(rows), return_inverse=True)
        sizes = self._source.row_sizes(sources)  # of all the items of a row
        return sizes if sizes is None or isinstance(sizes, int) else sizes[places.reshape(-1)]

    def _needed(self, rows: RowArray) -> RowArray:
        return np.unique(self._layout.rows(rows))

    def _span(self, start: int, stop: int) -> range:
        return range(self._layout.row(start), self._layout.row(stop - 1) + 1)

    def row_name(self, row: int) -> str:
        source = self._layout.row(row)
        item = row - int(self._layout.first(np.array([source]))[0])
        return f"item {item:,} of {row_name(self._source, source)}"

    def select(self, names: Sequence[str]) -> Source:
        columns = [name for name in self._columns if name in names]
        return ExplodedRows(self._source.select(names), columns, self._found)


def _item(field: Field) -> Field:
    """Return the field of one item of a list. A list that is null has none."""
    if field.null_items:
        return field.item()
    return Field(field.dtype, field.shape[1:], None if field.inner else field.fill)


def _items_of(column: Column, places: Positions, within: Positions) -> Column:
    if isinstance(column, Ragged):
        found: Any = column.values[column.offsets[:-1][places] + within]
        return found  # type: ignore[no-any-return]  # a column like the values
    return np.asarray(column)[places, within]


def _row_sizes(column: Column) -> npt.NDArray[np.int64]:
    """Return the bytes of each row of a column."""
    if not isinstance(column, Ragged):
        return np.full(len(column), column.nbytes // max(1, len(column)), np.int64)
    if isinstance(column.values, np.ndarray):
        each = column.values.nbytes // max(1, len(column.values))
        return column.lengths * each + column.offsets.itemsize
    ends = np.zeros(len(column.values) + 1, np.int64)
    np.cumsum(_row_sizes(column.values), out=ends[1:])
    sizes: npt.NDArray[np.int64] = np.diff(ends[column.offsets]) + column.offsets.itemsize
    return sizes
