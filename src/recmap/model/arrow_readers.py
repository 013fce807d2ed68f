"""Read rows of the arrays of another library, laid out as Arrow does, in place where possible.

Nothing of an array is trusted: lengths, offsets and indices are checked before memory is touched.
Only the sizes of buffers are not part of the interface, and cannot be checked.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.model.field import Field
from recmap.model.null_columns import emptied, kept
from recmap.model.nulls import Nulls, blank, fill_items
from recmap.model.ragged import BYTE, Column, Ragged
from recmap.model.text import checked_strings
from recmap.native import _core

Mask: TypeAlias = npt.NDArray[np.bool_]
Read: TypeAlias = tuple[Column, Mask | None]

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


class ArrayReader(ABC):
    """Reads rows of an array as a column."""

    #: The type of the column.
    field: Field
    #: Whether rows may be null, and items of rows.
    nullable = True
    null_items = False

    @abstractmethod
    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        """Return rows ``start`` to ``stop``, and which are null (None if there are none).

        Null rows of a ``Ragged`` are empty; those of an array hold anything.
        """


def _check_span(array: _core.ArrowArray, start: int, stop: int) -> None:
    if not 0 <= start <= stop <= array.length:
        raise damaged(f"items {start:,} to {stop:,} of {array.length:,}")


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


@dataclass
class PlainNumbers(ArrayReader):
    field: Field
    stored: np.dtype[Any]

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
        stored = _items(array, 1, self.stored, start, stop)
        dtype = self.field.dtype
        if dtype.kind not in "mM":
            return stored, null_bits(array, start, stop)
        times = stored.astype(np.int64, copy=False).view(dtype)
        missing = null_bits(array, start, stop)
        if stored.dtype == np.int64:
            _refuse_smallest(stored, missing)
        return times, missing


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


@dataclass
class Booleans(ArrayReader):
    field: Field

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
        return _bits(array, 1, start, stop), null_bits(array, start, stop)


@dataclass
class Decimals(ArrayReader):
    """Whole numbers of up to 256 bits, of which int64 must hold the values."""

    field: Field
    words: int

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
        wide = np.dtype((np.void, 8 * self.words))
        stored = _items(array, 1, wide, start, stop)
        words = np.frombuffer(stored.tobytes(), "<i8").reshape(-1, self.words)
        missing = null_bits(array, start, stop)
        low = words[:, 0].astype(np.int64)
        too_large = (words[:, 1:] != (low >> 63)[:, None]).any(axis=1)
        if missing is not None:
            too_large &= ~missing
        if too_large.any():
            why = "int64 cannot hold the decimal number; give the column the type text"
            raise BadRowError(int(np.argmax(too_large)), why)
        return low, missing


@dataclass
class ScaledDecimals(ArrayReader):
    """Decimal numbers with a scale, as float64 or as text, whichever the field is."""

    field: Field
    bits: int
    scale: int

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
        stored = _items(array, 1, np.dtype((np.void, self.bits // 8)), start, stop)
        missing = null_bits(array, start, stop)
        if self.field.is_text:
            texts = [_decimal_text(number, self.scale) for number in self._whole(stored, missing)]
            return Ragged.from_text(texts), missing
        small = self._small(stored, missing)
        if small is not None:
            return _scaled(small, self.scale), missing
        return _rounded(self._whole(stored, missing), self.scale), missing

    def _small(self, stored: npt.NDArray[Any], missing: Mask | None) -> npt.NDArray[Any] | None:
        """Return the numbers without their point, if float64 holds all of them exactly."""
        size = min(8, self.bits // 8)
        words = np.frombuffer(stored.tobytes(), f"<i{size}").reshape(-1, self.bits // 8 // size)
        low = words[:, 0].astype(np.int64)
        exact = (words[:, 1:] == (low >> 63)[:, None]).all(axis=1)
        exact &= (low > -_EXACT) & (low < _EXACT)
        if missing is not None:
            exact |= missing
            low[missing] = 0
        return low if exact.all() and abs(self.scale) <= _MOST_EXACT else None

    def _whole(self, stored: npt.NDArray[Any], missing: Mask | None) -> list[int]:
        """Return the numbers without their point; 0 where they are null."""
        given = np.frombuffer(stored.tobytes(), f"V{self.bits // 8}").copy()
        if missing is not None:
            given[missing] = b""
        return [int.from_bytes(each.tobytes(), "little", signed=True) for each in given]


def _scaled(numbers: npt.NDArray[Any], scale: int) -> npt.NDArray[np.float64]:
    """Divide by a power of ten. All of these are exact in float64, so the result is the nearest."""
    found = numbers.astype(np.float64)
    return found / 10.0**scale if scale > 0 else found * 10.0**-scale


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


@dataclass
class Nothing(ArrayReader):
    """A column of nulls only, whose type the user gives. Otherwise, they are booleans."""

    field: Field

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
        # The length is only a claim, which need not take memory yet.
        return blank(self.field, stop - start), np.broadcast_to(np.True_, stop - start)


class StringReader(ArrayReader):
    def _checked(self, column: Ragged, missing: Mask | None) -> Read:
        if missing is not None:
            column = emptied(column, missing)
        if self.field.is_text:
            why = "the text is not UTF-8; give the column the type bytes"
            column = checked_strings(self.field, column, lambda row: BadRowError(row, why))
        return column, missing


@dataclass
class Strings(StringReader):
    field: Field
    offset: np.dtype[Any]

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
        offsets = _offsets(array, self.offset, start, stop, _MOST_BYTES)
        data = array.buffer(2, int(offsets[-1])).view(BYTE)
        return self._checked(Ragged(data, offsets), null_bits(array, start, stop))


@dataclass
class StringViews(StringReader):
    field: Field

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
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
        return self._checked(Ragged(values.view(BYTE), offsets), missing)


def _offsets(
    array: _core.ArrowArray, dtype: np.dtype[Any], start: int, stop: int, limit: int
) -> npt.NDArray[np.int64]:
    if start == stop:  # an empty array may have no offsets at all
        return np.zeros(1, np.int64)
    offsets = _items(array, 1, dtype, start, stop + 1).astype(np.int64, copy=False)
    if not _core.offsets_are_sound(offsets, limit):
        raise damaged(f"offsets that do not ascend, or end after {limit:,}")
    return offsets


@dataclass
class Lists(ArrayReader):
    """Lists of any kind."""

    field: Field
    item: ArrayReader
    nulls: Nulls

    def _read_items(
        self, array: _core.ArrowArray, start: int, stop: int, row_of: Callable[[int], int]
    ) -> Read:
        """Read items; ``row_of`` gives the list that an item is in."""
        try:
            return self.item.read(array.child(0), start, stop)
        except BadRowError as e:
            raise BadRowError(row_of(e.row), e.reason) from None

    def _fill_items(
        self, items: Column, missing: Mask | None, row_of: Callable[[int], int]
    ) -> Column:
        if missing is None or not missing.any():
            return items
        if self.nulls == "keep" and self.field.ragged:
            return kept(items, missing)
        filled = fill_items(items, self.item.field, missing, self.nulls)
        if filled is None:
            raise BadRowError(row_of(int(np.argmax(missing))))
        return filled


@dataclass
class OffsetLists(Lists):
    offset: np.dtype[Any]

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
        offsets = _offsets(array, self.offset, start, stop, array.child(0).length)
        first, last = int(offsets[0]), int(offsets[-1])
        offsets = offsets - first if first else offsets

        def row_of(item: int) -> int:
            return int(np.searchsorted(offsets, item, side="right")) - 1

        items, absent = self._read_items(array, first, last, row_of)
        missing = null_bits(array, start, stop)
        if missing is None:
            return Ragged(self._fill_items(items, absent, row_of), offsets), None
        if absent is not None:  # what a null list holds does not matter
            absent = absent & ~np.repeat(missing, np.diff(offsets))
        return emptied(Ragged(self._fill_items(items, absent, row_of), offsets), missing), missing


@dataclass
class ListViews(Lists):
    offset: np.dtype[Any]

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
        starts = _items(array, 1, self.offset, start, stop).astype(np.int64)
        sizes = _items(array, 2, self.offset, start, stop).astype(np.int64)
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

        items, absent = self._read_items(array, first, last, row_with)
        offsets = np.zeros(len(sizes) + 1, np.int64)
        np.cumsum(sizes, out=offsets[1:])
        where = np.repeat(starts - offsets[:-1], sizes) + np.arange(int(offsets[-1]))

        def row_of(item: int) -> int:
            return int(np.searchsorted(offsets, item, side="right")) - 1

        absent = None if absent is None else absent[where]
        return Ragged(self._fill_items(items[where], absent, row_of), offsets), missing


@dataclass
class FixedLists(Lists):
    size: int

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
        rows, size = stop - start, self.size

        def row_of(item: int) -> int:
            return item // size

        first = (array.offset + start) * size
        items, absent = self._read_items(array, first, first + rows * size, row_of)
        missing = null_bits(array, start, stop)
        if missing is not None and absent is not None:
            absent = absent & ~np.repeat(missing, size)
        items = self._fill_items(items, absent, row_of)
        if isinstance(items, np.ndarray) and not self.field.ragged:
            return items.reshape(rows, size, *items.shape[1:]), missing
        column = Ragged(items, np.arange(rows + 1) * size)
        if missing is not None and _is_emptied(self.field):
            column = emptied(column, missing)
        return column, missing


@dataclass
class TensorRows(ArrayReader):
    field: Field
    rows: FixedLists
    shape: tuple[int, ...]
    order: tuple[int, ...]

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        flat, missing = self.rows.read(array, start, stop)
        assert isinstance(flat, np.ndarray)
        stored = flat.reshape(stop - start, *self.shape)
        return stored.transpose(0, *(axis + 1 for axis in self.order)), missing


@dataclass
class StructMember(ArrayReader):
    """One member of a struct; it is null where the struct is."""

    field: Field
    number: int
    member: ArrayReader

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
        begin, end = array.offset + start, array.offset + stop
        column, missing = self.member.read(array.child(self.number), begin, end)
        own = null_bits(array, start, stop)
        if own is not None and isinstance(column, Ragged) and _is_emptied(self.field):
            column = emptied(column, own)
        return column, _either(own, missing)


def _is_emptied(field: Field) -> bool:
    """Return whether a null row has no items. A row of a fixed number of strings has that many."""
    return bool(field.ragged) or not field.inner


@dataclass
class Dictionary(ArrayReader):
    field: Field
    stored: np.dtype[Any]
    values: ArrayReader

    def read(self, array: _core.ArrowArray, start: int, stop: int) -> Read:
        _check_span(array, start, stop)
        dictionary = array.dictionary
        if dictionary is None:
            raise damaged("a dictionary is missing")
        missing = null_bits(array, start, stop)
        indices = _items(array, 1, self.stored, start, stop)
        wrong = (indices < 0) | (indices >= dictionary.length)
        if missing is not None:
            wrong &= ~missing
        if wrong.any():
            reason = (
                f"damaged Arrow data: an index outside of a dictionary of {dictionary.length:,}"
            )
            raise BadRowError(int(np.argmax(wrong)), reason)
        if not dictionary.length:
            return blank(self.field, stop - start), missing
        where = indices.astype(np.int64) if missing is None else np.where(missing, 0, indices)
        try:
            values, absent = self.values.read(dictionary, 0, dictionary.length)
        except BadRowError as e:
            raise BadRowError(int(np.argmax(where == e.row)), e.reason) from None
        column: Column = values[where.astype(np.int64, copy=False)]
        if missing is not None and isinstance(column, Ragged) and _is_emptied(self.field):
            column = emptied(column, missing)
        return column, _either(missing, None if absent is None else absent[where])
