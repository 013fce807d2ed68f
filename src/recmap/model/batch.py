"""Batches, dicts of columns of equal length: join, pick and interleave their rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import RowNotFoundError
from recmap.machine.memory import empty
from recmap.model.ragged import (
    Column,
    Ragged,
    concatenate,
    copy_items,
    has_mask,
    is_plain,
    null_mask,
    offsets_of,
)
from recmap.model.row_places import all_rows_of, copy_rows
from recmap.model.schema import Batch

# Places in an order or in a batch.
Positions: TypeAlias = npt.NDArray[np.int64]
# Numbers of rows in a source, as an array or, if they are consecutive, perhaps as a range.
RowArray: TypeAlias = npt.NDArray[np.int64]
RowNumbers: TypeAlias = range | RowArray
# Allocates an array, given its size in bytes.
Allocate: TypeAlias = Callable[[int], npt.NDArray[np.uint8]]


class PadSpec(NamedTuple):
    """How to pad the rows of a ragged column to one length."""

    #: None means the longest row of each array.
    width: int | None
    #: The width is rounded up to a multiple of this.
    multiple: int
    #: The bytes of the item that fills short rows.
    fill: bytes
    fill_left: bool
    #: Whether rows that are too long keep their end instead of their beginning.
    keep_last: bool


class PaddedColumn(NamedTuple):
    """A padded array for each batch, and the lengths of all rows before padding."""

    arrays: list[npt.NDArray[Any]]
    lengths: npt.NDArray[np.int64]


class PaddedRows(NamedTuple):
    """Several batches read at once: the padded columns, and all rows of the other columns."""

    padded: dict[str, PaddedColumn]
    others: Batch


def join(batches: Sequence[Batch]) -> Batch:
    """Concatenate the rows of all batches."""
    if len(batches) == 1:
        return batches[0]
    return {name: concatenate([batch[name] for batch in batches]) for name in batches[0]}


def pick(batch: Batch, rows: Positions | slice) -> Batch:
    """Return some rows of a batch."""
    return {name: column[rows] for name, column in batch.items()}


def cut(column: Column, ends: Sequence[int]) -> list[Column]:
    """Cut a column into parts that end at these rows, and share its memory.

    The last may be shorter.

    >>> [part.tolist() for part in cut(np.arange(5), [2, 4, 6])]
    [[0, 1], [2, 3], [4]]
    """
    if len(ends) <= 1:
        return [column]
    if not isinstance(column, Ragged):
        return [column[start:end] for start, end in pairwise([0, *ends])]
    values, offsets, parts = column.values, column.offsets, list[Column]()
    for start, end in pairwise([0, *ends]):
        mine = offsets[start : end + 1]
        first = int(mine[0])
        mask = None if column.mask is None else column.mask[start:end]
        parts.append(Ragged(values[first : int(mine[-1])], mine - first, mask))
    return parts


def interleave(parts: Sequence[Batch], places: Sequence[Positions]) -> Batch:
    """Return one batch in which the rows of ``parts[i]`` are at ``places[i]``."""
    if len(parts) == 1 and bool((np.diff(places[0]) > 0).all()):
        return parts[0]
    return {name: _column([part[name] for part in parts], places) for name in parts[0]}


def _column(columns: Sequence[Column], places: Sequence[Positions]) -> Column:
    count = sum(map(len, places))
    values = [column.values if isinstance(column, Ragged) else column for column in columns]
    plain = [each for each in values if is_plain(each) and each.dtype == columns[0].dtype]
    if len(plain) < len(columns) or len({each.shape[1:] for each in plain}) > 1:
        back = np.empty(count, np.int64)
        back[np.concatenate(places)] = np.arange(count)
        return concatenate(columns)[back]
    ragged = [column for column in columns if isinstance(column, Ragged)]
    if ragged:
        return _interleave_ragged(ragged, plain, places)
    return copy_rows(list(map(all_rows_of, plain)), places)


def _interleave_ragged(
    columns: Sequence[Ragged], plain: Sequence[npt.NDArray[Any]], places: Sequence[Positions]
) -> Ragged:
    lengths = np.empty(sum(map(len, places)), np.int64)
    for column, place in zip(columns, places, strict=True):
        lengths[place] = column.lengths
    offsets = offsets_of(lengths)
    values = empty((int(offsets[-1]), *plain[0].shape[1:]), plain[0].dtype)
    mask = np.empty(len(lengths), np.bool_) if any(map(has_mask, columns)) else None
    for column, items, place in zip(columns, plain, places, strict=True):
        copy_items(items, column.offsets[:-1], column.lengths, values, offsets[:-1][place])
        if mask is not None:
            mask[place] = null_mask(column)
    return Ragged(values, offsets, mask)


def rows_by_owner(starts: RowArray, rows: RowArray) -> Iterator[tuple[int, Positions]]:
    """Yield each owner of some of the rows, and the indices of its rows in ``rows``.

    Owners have consecutive rows: those of owner ``i`` start at ``starts[i]``.

    >>> for owner, places in rows_by_owner(np.array([0, 10]), np.array([11, 3, 17])):
    ...     print(owner, places)
    0 [1]
    1 [0 2]
    """
    owner = np.searchsorted(starts, rows, side="right") - 1
    order = np.argsort(owner, kind="stable")
    owners, begins = np.unique(owner[order], return_index=True)
    # np.split returns one empty array if there are no rows.
    yield from zip(owners.tolist(), np.split(order, begins[1:]), strict=False)


def divide_rows(starts: RowArray, rows: RowNumbers) -> Iterator[tuple[int, RowNumbers]]:
    """Yield each owner of some of the rows, with their numbers there; a range stays a range.

    >>> list(divide_rows(np.array([0, 10]), range(8, 12)))
    [(0, range(8, 10)), (1, range(0, 2))]
    """
    if not isinstance(rows, range):
        for owner, mine in rows_by_owner(starts, rows):
            yield owner, rows[mine] - starts[owner]
        return
    at = rows.start
    while at < rows.stop:
        owner = int(np.searchsorted(starts, at, side="right")) - 1
        first = int(starts[owner])
        end = min(rows.stop, int(starts[owner + 1]) if owner + 1 < len(starts) else rows.stop)
        yield owner, range(at - first, end - first)
        at = end


def gather_from(
    starts: RowArray, rows: RowArray, gather: Callable[[int, RowArray], Batch]
) -> Batch:
    """Gather rows from owners with consecutive rows, one owner at a time.

    ``gather`` is called with an owner and row numbers within that owner.
    """
    first, last = np.searchsorted(starts, [rows.min(), rows.max()], side="right") - 1
    if first == last:
        return gather(int(first), rows - starts[first])
    parts, places = [], []
    for owner, mine in rows_by_owner(starts, rows):
        parts.append(gather(owner, rows[mine] - starts[owner]))
        places.append(mine)
    return interleave(parts, places)


def chosen_rows(key: npt.NDArray[Any], count: int) -> RowArray:
    """Return the numbers of the rows that an array of numbers or a mask chooses of ``count``.

    Negative numbers count from the end.
    """
    if key.dtype.kind == "b":
        if len(key) != count:
            raise RowNotFoundError(f"a mask of {len(key):,} values, but there are {count:,} rows")
        return np.flatnonzero(key)
    rows = key.astype(np.int64, copy=False)
    if not len(rows):
        return rows
    if key.dtype == np.uint64 and int(key.max()) >= count:
        raise RowNotFoundError(f"row {int(key.max()):,} is out of range: there are {count:,}")
    wrapped = np.where(rows < 0, rows + count, rows)
    wrong = (wrapped < 0) | (wrapped >= count)
    if wrong.any():
        raise RowNotFoundError(f"row {int(rows[wrong][0]):,} is out of range: there are {count:,}")
    return wrapped
