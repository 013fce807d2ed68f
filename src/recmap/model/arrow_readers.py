"""Read rows of the arrays of another library, laid out as Arrow does, in place where possible.

Nothing of an array is trusted: lengths, offsets and indices are checked before memory is touched.
Only the sizes of buffers are not part of the interface, and cannot be checked.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.model.facts import Alternative
from recmap.model.field import Field
from recmap.model.null_columns import emptied, kept
from recmap.model.nulls import Nulls, blank, fill_items
from recmap.model.ragged import BYTE, Column, Ragged
from recmap.model.text import checked_strings
from recmap.native import _core

Mask: TypeAlias = npt.NDArray[np.bool_]
Read: TypeAlias = tuple[Column, Mask | None]
RowsReader: TypeAlias = Callable[[_core.ArrowArray, int, int], Read]

# Larger than any memory. Whatever needs more is damaged.
_MOST_BYTES = 1 << 60
# float64 holds whole numbers below this exactly, and powers of ten up to this one.
_EXACT, _MOST_EXACT = 1 << 53, 22
# What NumPy takes for NaT.
_SMALLEST = np.iinfo(np.int64).min


class BadRowError(Exception):
    """A row cannot be read; ``row`` counts from the first that was asked for.

    Without a reason, it is a list with a null that there is nothing to fill with.
    """

    def __init__(self, row: int, reason: str | None = None) -> None:
        super().__init__(reason)
        self.row, self.reason = row, reason


def damaged(what: str) -> DataError:
    return DataError(f"damaged Arrow data: {what}")


@dataclass(frozen=True)
class ArrayReader:
    """Reads rows of an array as a column.

    ``field`` is the type of the column, ``nullable`` whether its rows may be null, and
    ``null_items`` whether items of rows may be. ``rows`` reads some rows that the array has.
    ``alternative`` is what else the values may be read as.
    """

    field: Field
    rows: RowsReader
    nullable: bool = True
    null_items: bool = False
    alternative: Alternative | None = None

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        """Return rows ``start`` to ``stop``, and which are null (None if there are none).

        Null rows of a ``Ragged`` are empty; those of an array hold anything.
        """
        if not 0 <= start <= stop <= array.length:
            raise damaged(f"items {start:,} to {stop:,} of {array.length:,}")
        return self.rows(array, start, stop)


def _items(
    array: _core.ArrowArray, number: int, dtype: np.dtype[Any], start: int, stop: int
) -> npt.NDArray[Any]:
    """Return a part of a buffer."""
    if start == stop:  # there may be no buffer
        return np.empty(0, dtype)
    size = dtype.itemsize
    if array.offset + stop > _MOST_BYTES // max(size, 1):
        raise damaged("a buffer larger than memory")
    first, last = (array.offset + start) * size, (array.offset + stop) * size
    part = array.buffer(number, last)[first:].view(dtype)
    return part if part.flags.aligned else part.copy()


def _bits(array: _core.ArrowArray, number: int, start: int, stop: int) -> Mask:
    if start == stop:
        return np.empty(0, np.bool_)
    first, last = array.offset + start, array.offset + stop
    packed = array.buffer(number, -(-last // 8))[first // 8 :]
    bits = np.unpackbits(packed, bitorder="little")[first % 8 :][: stop - start]
    return bits.view(np.bool_)


def null_bits(array: _core.ArrowArray, start: int, stop: int) -> Mask | None:
    """Return which items are null; None if none are."""
    if array.null_count == 0 or start == stop:
        return None
    if not array.has_buffer(0):
        if array.null_count > 0:
            raise damaged("nulls without a bitmap")
        return None
    missing = ~_bits(array, 0, start, stop)
    return missing if missing.any() else None


def _either(one: Mask | None, other: Mask | None) -> Mask | None:
    if one is None or other is None:
        return one if other is None else other
    return one | other


def read_numbers(
    stored: np.dtype[Any], dtype: np.dtype[Any], array: _core.ArrowArray, start: int, stop: int
) -> Read:
    """Read numbers as they are ``stored``, or times of another dtype."""
    found = _items(array, 1, stored, start, stop)
    missing = null_bits(array, start, stop)
    if dtype.kind not in "mM":
        return found, missing
    if stored == np.int64:
        _refuse_smallest(found, missing)
    return found.astype(np.int64, copy=False).view(dtype), missing


def _refuse_smallest(times: npt.NDArray[np.int64], missing: Mask | None) -> None:
    """Refuse a valid time of -2**63, which is NaT to NumPy."""
    if not times.size or times.min() != _SMALLEST:
        return
    valid = times == _SMALLEST if missing is None else (times == _SMALLEST) & ~missing
    if valid.any():
        raise BadRowError(
            int(np.argmax(valid)),
            "NumPy cannot hold the time -2**63, which means NaT there; give the column the type "
            "int64 to read the numbers",
        )


def read_booleans(array: _core.ArrowArray, start: int, stop: int) -> Read:
    return _bits(array, 1, start, stop), null_bits(array, start, stop)


def read_whole_decimals(words: int, array: _core.ArrowArray, start: int, stop: int) -> Read:
    """Read whole numbers of so many 64-bit words, of which int64 must hold the values."""
    unfit = too_large(words, array, start, stop)
    if unfit.any():
        why = "int64 cannot hold the decimal number; give the column the type text"
        raise BadRowError(int(np.argmax(unfit)), why)
    low = _words(words, array, start, stop)[:, 0].astype(np.int64)
    return low, null_bits(array, start, stop)


def too_large(words: int, array: _core.ArrowArray, start: int, stop: int) -> Mask:
    """Return which whole numbers of so many 64-bit words int64 cannot hold."""
    parts = _words(words, array, start, stop)
    found = np.asarray((parts[:, 1:] != (parts[:, :1] >> 63)).any(axis=1))
    missing = null_bits(array, start, stop)
    return found if missing is None else found & ~missing


def _words(
    words: int, array: _core.ArrowArray, start: int, stop: int
) -> npt.NDArray[np.signedinteger[Any]]:
    stored = _items(array, 1, np.dtype((np.void, 8 * words)), start, stop)
    return np.frombuffer(stored.tobytes(), "<i8").reshape(-1, words)


def read_decimals(
    field: Field, bits: int, scale: int, array: _core.ArrowArray, start: int, stop: int
) -> Read:
    """Read decimal numbers with a scale, as float64 or as text, whichever the field is."""
    stored = _items(array, 1, np.dtype((np.void, bits // 8)), start, stop)
    missing = null_bits(array, start, stop)
    if field.is_text:
        texts = [_decimal_text(number, scale) for number in _whole(stored, missing)]
        return Ragged.from_text(texts), missing
    small = _small(stored, missing) if abs(scale) <= _MOST_EXACT else None
    if small is None:
        return _rounded(_whole(stored, missing), scale), missing
    # All of these are exact in float64, as is the power of ten, so the result is the nearest.
    found = small.astype(np.float64)
    return found / 10.0**scale if scale > 0 else found * 10.0**-scale, missing


def _small(stored: npt.NDArray[Any], missing: Mask | None) -> npt.NDArray[Any] | None:
    """Return the numbers without their point, if float64 holds all of them exactly."""
    size = min(8, stored.itemsize)
    words = np.frombuffer(stored.tobytes(), f"<i{size}").reshape(-1, stored.itemsize // size)
    low = words[:, 0].astype(np.int64)
    exact = (words[:, 1:] == (low >> 63)[:, None]).all(axis=1)
    exact &= (low > -_EXACT) & (low < _EXACT)
    if missing is not None:
        exact |= missing
        low[missing] = 0
    return low if exact.all() else None


def _whole(stored: npt.NDArray[Any], missing: Mask | None) -> list[int]:
    """Return the numbers without their point; 0 where they are null."""
    given = stored.copy()
    if missing is not None:
        given[missing] = b""
    return [int.from_bytes(each.tobytes(), "little", signed=True) for each in given]


def _rounded(numbers: list[int], scale: int) -> npt.NDArray[np.float64]:
    power = 10 ** abs(scale)
    found = [number / power if scale > 0 else float(number * power) for number in numbers]
    return np.array(found, np.float64)


def _decimal_text(number: int, scale: int) -> str:
    """Return a number as text, with as many digits after the point as its type has.

    >>> _decimal_text(-5, 2), _decimal_text(12, -2)
    ('-0.05', '1200')
    """
    if scale <= 0:
        return str(number * 10**-scale)
    digits = str(abs(number)).zfill(scale + 1)
    return f"{'-' if number < 0 else ''}{digits[:-scale]}.{digits[-scale:]}"


def read_nothing(field: Field, array: _core.ArrowArray, start: int, stop: int) -> Read:
    """Read a column of nulls only, whose type the user gives. Otherwise, they are booleans."""
    del array
    # The length is only a claim, which need not take memory yet.
    return blank(field, stop - start), np.broadcast_to(np.True_, stop - start)


def read_strings(
    field: Field, offset: np.dtype[Any], array: _core.ArrowArray, start: int, stop: int
) -> Read:
    offsets = _offsets(array, offset, start, stop, _MOST_BYTES)
    data = array.buffer(2, int(offsets[-1])).view(BYTE)
    return _checked(field, Ragged(data, offsets), null_bits(array, start, stop))


def read_string_views(field: Field, array: _core.ArrowArray, start: int, stop: int) -> Read:
    if array.n_buffers < 3:
        raise damaged("strings without buffers")
    missing = null_bits(array, start, stop)
    views = _items(array, 1, np.dtype((np.void, 16)), start, stop).view(np.uint8)
    count = array.n_buffers - 3
    sizes = array.buffer(array.n_buffers - 1, 8 * count).view(np.int64).tolist()
    if any(not 0 <= size <= _MOST_BYTES for size in sizes):
        raise damaged("a buffer larger than memory")
    buffers = [array.buffer(2 + i, size) for i, size in enumerate(sizes)]
    mask = None if missing is None else missing.view(np.uint8)
    values, offsets, bad = _core.read_arrow_views(views, buffers, mask)
    if bad is not None:
        raise BadRowError(bad, "damaged Arrow data: a string outside of its buffers")
    return _checked(field, Ragged(values.view(BYTE), offsets), missing)


def _checked(field: Field, column: Ragged, missing: Mask | None) -> Read:
    if missing is not None:
        column = emptied(column, missing)
    if field.is_text:
        why = "the text is not UTF-8; give the column the type bytes"
        column = checked_strings(field, column, lambda row: BadRowError(row, why))
    return column, missing


def _offsets(
    array: _core.ArrowArray, dtype: np.dtype[Any], start: int, stop: int, limit: int
) -> npt.NDArray[np.int64]:
    if start == stop:  # an empty array may have no offsets at all
        return np.zeros(1, np.int64)
    offsets = _items(array, 1, dtype, start, stop + 1).astype(np.int64, copy=False)
    if not _core.offsets_are_sound(offsets, limit):
        raise damaged(f"offsets that do not ascend, or end after {limit:,}")
    return offsets


@dataclass(frozen=True)
class ListItems:
    """The items of lists of any kind: their reader, and what becomes of those that are null."""

    field: Field
    reader: ArrayReader
    nulls: Nulls

    def read(
        self, array: _core.ArrowArray, start: int, stop: int, row_of: Callable[[int], int]
    ) -> Read:
        """Read items; ``row_of`` gives the list that an item is in."""
        try:
            return self.reader.read(array.child(0), start, stop)
        except BadRowError as e:
            raise BadRowError(row_of(e.row), e.reason) from None

    def fill(self, items: Column, missing: Mask | None, row_of: Callable[[int], int]) -> Column:
        if missing is None or not missing.any():
            return items
        if self.nulls == "keep" and self.field.ragged:
            return kept(items, missing)
        filled = fill_items(items, self.reader.field, missing, self.nulls)
        if filled is None:
            raise BadRowError(row_of(int(np.argmax(missing))))
        return filled


def read_lists(
    items: ListItems, offset: np.dtype[Any], array: _core.ArrowArray, start: int, stop: int
) -> Read:
    offsets = _offsets(array, offset, start, stop, array.child(0).length)
    first, last = int(offsets[0]), int(offsets[-1])
    offsets = offsets - first if first else offsets

    def row_of(item: int) -> int:
        return int(np.searchsorted(offsets, item, side="right")) - 1

    values, absent = items.read(array, first, last, row_of)
    missing = null_bits(array, start, stop)
    if missing is None:
        return Ragged(items.fill(values, absent, row_of), offsets), None
    if absent is not None:  # what a null list holds does not matter
        absent = absent & ~np.repeat(missing, np.diff(offsets))
    return emptied(Ragged(items.fill(values, absent, row_of), offsets), missing), missing


def read_list_views(
    items: ListItems, offset: np.dtype[Any], array: _core.ArrowArray, start: int, stop: int
) -> Read:
    starts = _items(array, 1, offset, start, stop).astype(np.int64)
    sizes = _items(array, 2, offset, start, stop).astype(np.int64)
    missing = null_bits(array, start, stop)
    if missing is not None:
        sizes[missing] = 0
    starts[sizes == 0] = 0
    limit = array.child(0).length
    if ((sizes < 0) | (starts < 0) | (sizes > limit) | (starts > limit - sizes)).any():
        raise damaged("a list outside of its items")
    used = sizes > 0
    first = int(starts[used].min(initial=limit))
    last = int((starts + sizes)[used].max(initial=first))
    starts -= first

    def row_with(item: int) -> int:
        return int(np.argmax(used & (starts <= item) & (item < starts + sizes)))

    values, absent = items.read(array, first, last, row_with)
    offsets = np.zeros(len(sizes) + 1, np.int64)
    np.cumsum(sizes, out=offsets[1:])
    where = np.repeat(starts - offsets[:-1], sizes) + np.arange(int(offsets[-1]))

    def row_of(item: int) -> int:
        return int(np.searchsorted(offsets, item, side="right")) - 1

    absent = None if absent is None else absent[where]
    return Ragged(items.fill(values[where], absent, row_of), offsets), missing


def read_fixed_lists(
    items: ListItems, size: int, array: _core.ArrowArray, start: int, stop: int
) -> Read:
    rows = stop - start

    def row_of(item: int) -> int:
        return item // size

    first = (array.offset + start) * size
    values, absent = items.read(array, first, first + rows * size, row_of)
    missing = null_bits(array, start, stop)
    if missing is not None and absent is not None:
        absent = absent & ~np.repeat(missing, size)
    values = items.fill(values, absent, row_of)
    if isinstance(values, np.ndarray) and not items.field.ragged:
        return values.reshape(rows, size, *values.shape[1:]), missing
    column = Ragged(values, np.arange(rows + 1) * size)
    return _without_nulls(items.field, column, missing), missing


def read_tensors(
    items: ListItems,
    shape: tuple[int, ...],
    order: tuple[int, ...],
    array: _core.ArrowArray,
    start: int,
    stop: int,
) -> Read:
    """Read lists of a fixed size as tensors of a ``shape``, whose axes are meant in an order."""
    flat, missing = read_fixed_lists(items, math.prod(shape), array, start, stop)
    assert isinstance(flat, np.ndarray)
    stored = flat.reshape(stop - start, *shape)
    return stored.transpose(0, *(axis + 1 for axis in order)), missing


def read_member(
    number: int, member: ArrayReader, array: _core.ArrowArray, start: int, stop: int
) -> Read:
    """Read one member of a struct; it is null where the struct is."""
    begin, end = array.offset + start, array.offset + stop
    column, missing = member.read(array.child(number), begin, end)
    own = null_bits(array, start, stop)
    return _without_nulls(member.field, column, own), _either(own, missing)


def _without_nulls(field: Field, column: Column, missing: Mask | None) -> Column:
    """Empty the null rows of a ragged column. One of a fixed number of strings has that many."""
    if missing is None or not isinstance(column, Ragged) or (field.inner and not field.ragged):
        return column
    return emptied(column, missing)


def read_dictionary(
    stored: np.dtype[Any], values: ArrayReader, array: _core.ArrowArray, start: int, stop: int
) -> Read:
    """Read values of a dictionary, whose indices are ``stored``."""
    dictionary = array.dictionary
    if dictionary is None:
        raise damaged("a dictionary is missing")
    missing = null_bits(array, start, stop)
    indices = _items(array, 1, stored, start, stop)
    wrong = (indices < 0) | (indices >= dictionary.length)
    if missing is not None:
        wrong &= ~missing
    if wrong.any():
        reason = f"damaged Arrow data: an index outside of a dictionary of {dictionary.length:,}"
        raise BadRowError(int(np.argmax(wrong)), reason)
    if not dictionary.length:
        return blank(values.field, stop - start), missing
    where = indices.astype(np.int64) if missing is None else np.where(missing, 0, indices)
    try:
        words, absent = values.read(dictionary, 0, dictionary.length)
    except BadRowError as e:
        raise BadRowError(int(np.argmax(where == e.row)), e.reason) from None
    column: Column = words[where.astype(np.int64, copy=False)]
    absent = None if absent is None else absent[where]
    return _without_nulls(values.field, column, missing), _either(missing, absent)
