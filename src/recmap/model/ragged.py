"""Ragged: a column with rows of different lengths."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal, TypeAlias, TypeGuard, overload

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, OptionError, OptionTypeError, RowNotFoundError
from recmap.machine.cpus import thread_count
from recmap.machine.memory import empty
from recmap.model.arguments import as_dtype, as_list, as_row, as_slice, as_whole, check_choice
from recmap.model.casting import exact_array, first_lost, joint_dtype, refuse_masked
from recmap.model.media import media_kind
from recmap.native import _core

# The dtypes of the values of byte strings and of text. They tell these apart from each other, and
# from a ragged uint8 column.
BYTE = np.dtype("S1")
TEXT_BYTE = np.dtype([("utf8", "S1")])

# Rows and values, and letters of a string, that a repr shows.
_SHOWN = 3
_LETTERS = 16
# Arrays that are joined by several threads have so many bytes, of which each copies some at a time.
_LEAST_JOINED, _JOINED_PART = 1 << 20, 1 << 11


class Ragged:
    """Rows of different lengths, stored as all values end to end plus the row offsets.

    Row ``i`` is ``values[offsets[i]:offsets[i + 1]]``. The values may have more axes, or be a
    ``Ragged`` themselves. Byte strings are a ``Ragged`` with values of dtype ``S1``; their rows
    are ``bytes``. Text is stored as UTF-8; its rows are ``str``. ``mask`` says which rows are
    null; it is None if none can be. A null row is None, and has no values.

    >>> r = Ragged.from_rows([[1, 2], [], [3]])
    >>> r[0], len(r), r.lengths
    (array([1, 2]), 3, array([2, 0, 1]))
    >>> r.pad(fill=-1)
    array([[ 1,  2],
           [-1, -1],
           [ 3, -1]])
    >>> Ragged.from_bytes([b"ab", b""])[0]
    b'ab'
    >>> Ragged.from_text(["café", ""])[0]
    'café'
    >>> Ragged([1, 2], [0, 2, 2], [False, True]).tolist()
    [[1, 2], None]
    """

    __slots__ = ("mask", "offsets", "values")
    __hash__ = None  # type: ignore[assignment]  # compared by value

    def __init__(
        self, values: Column, offsets: npt.ArrayLike, mask: npt.ArrayLike | None = None
    ) -> None:
        self.values: Column = values if isinstance(values, Ragged) else as_values(values)
        self.offsets: npt.NDArray[np.int64] = (
            offsets
            if type(offsets) is np.ndarray and offsets.dtype == np.int64
            else _whole_offsets(offsets)
        )
        if self.offsets.ndim != 1 or self.offsets.size == 0:
            raise ColumnError("offsets of a Ragged must be one-dimensional and begin with row 0")
        self.mask: npt.NDArray[np.bool_] | None = None
        if mask is not None:
            self.mask = np.asarray(mask, np.bool_)
            if self.mask.shape != (len(self),):
                raise ColumnError(
                    f"the mask of a Ragged has one value for each of {len(self):,} rows"
                )

    @classmethod
    def from_rows(cls, rows: Iterable[npt.ArrayLike], dtype: npt.DTypeLike | None = None) -> Ragged:
        """Make a ragged column from arrays or lists.

        If rows have different dtypes, the result has one that holds all values exactly. If
        there is none, as for ``2**53 + 1`` and ``0.5``, this raises ``ColumnError``.
        """
        arrays = [
            _row_array(number, row)
            for number, row in enumerate(as_list("rows", rows, "[[1, 2], [3]]"))
        ]
        if dtype is not None:
            dtype = as_dtype("dtype", dtype)
            if dtype.kind in "SUO" or dtype.names is not None:
                raise OptionError(f"dtype={dtype}: rows of a Ragged are lists of numbers")
            arrays = [_of_dtype(array, dtype, row) for row, array in enumerate(arrays)]
        # An empty list has no dtype of its own.
        filled = [array for array in arrays if array.size] or arrays[:1]
        if not filled:
            return cls(np.empty(0, dtype or np.float64), np.zeros(1, np.int64))
        inner = filled[0].shape[1:]
        common = joint_dtype(filled)
        if common.kind in "SUO" or common.names:
            raise ColumnError(
                "rows of a Ragged are lists of numbers; for strings use Ragged.from_bytes or "
                "Ragged.from_text"
            )
        arrays = [a if a.size else np.empty((0, *inner), common) for a in arrays]
        for row, array in enumerate(arrays):
            if array.ndim == 0 or array.shape[1:] != inner:
                raise ColumnError(
                    f"row {row:,} has shape {array.shape}, not (n{''.join(f', {n}' for n in inner)}"
                    ")"
                )
        joined = np.concatenate(arrays, dtype=common, casting="unsafe")  # checked above
        return cls(joined, offsets_of([len(array) for array in arrays]))

    @classmethod
    def from_bytes(cls, rows: Iterable[bytes | bytearray | memoryview]) -> Ragged:
        """Make a column of byte strings."""
        strings = as_list("rows", rows, '[b"a", b"bc"]')
        try:
            joined, lengths = b"".join(strings), [len(string) for string in strings]
        except TypeError:
            raise _not_bytes(strings) from None
        return cls(np.frombuffer(joined, dtype=BYTE), offsets_of(lengths))

    @classmethod
    def from_text(cls, rows: Iterable[str]) -> Ragged:
        """Make a column of text."""
        texts = as_list("rows", rows, '["a", "bc"]')
        try:
            strings = list(map(str.encode, texts))
        except (TypeError, UnicodeEncodeError):
            raise _not_text(texts) from None
        joined = np.frombuffer(b"".join(strings), dtype=TEXT_BYTE)
        return cls(joined, offsets_of([len(string) for string in strings]))

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype of the values; ``S1`` for byte strings."""
        return self.values.dtype

    @property
    def is_bytes(self) -> bool:
        """Whether the rows are byte strings. Text counts: it is stored as UTF-8."""
        return isinstance(self.values, np.ndarray) and self.values.dtype in (BYTE, TEXT_BYTE)

    @property
    def is_text(self) -> bool:
        """Whether the rows are text."""
        return isinstance(self.values, np.ndarray) and self.values.dtype == TEXT_BYTE

    @property
    def lengths(self) -> npt.NDArray[np.int64]:
        """The number of items in each row."""
        return np.diff(self.offsets)

    @property
    def flat(self) -> Column:
        """The values of these rows only."""
        begin, end = int(self.offsets[0]), int(self.offsets[-1])
        return self.values if (begin, end) == (0, len(self.values)) else self.values[begin:end]

    @property
    def nbytes(self) -> int:
        """The size of these rows in bytes: values and offsets."""
        mask = 0 if self.mask is None else self.mask.nbytes
        return self.flat.nbytes + self.offsets.nbytes + mask

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __iter__(self) -> Iterator[Any]:
        return (self[i] for i in range(len(self)))

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> Any: ...
    @overload
    def __getitem__(
        self, key: slice | npt.NDArray[np.integer[Any]] | npt.NDArray[np.bool_] | Sequence[int]
    ) -> Ragged: ...
    def __getitem__(self, key: Any) -> Any:
        if type(key) is np.ndarray and key.dtype == np.int64 and key.ndim == 1:
            with suppress(IndexError):  # the numbers of rows, unless some count from the end
                return self._gather(key)
        number = key if type(key) is int else as_row(key)
        if number is not None:
            row = number + len(self) if number < 0 else number
            if not 0 <= row < len(self):
                raise RowNotFoundError(
                    f"row {number:,} is out of range: the Ragged has {len(self):,}"
                )
            if self.mask is not None and self.mask[row]:
                return None
            items = self.values[int(self.offsets[row]) : int(self.offsets[row + 1])]
            if isinstance(items, np.ndarray) and self.is_bytes:
                return self._text(items.tobytes(), row) if self.is_text else items.tobytes()
            return items
        try:
            if isinstance(key, slice) and key.step in (None, 1):
                start, stop, _ = key.indices(len(self))
                stop = max(start, stop)
                mask = None if self.mask is None else self.mask[start:stop]
                return Ragged(self.values, self.offsets[start : stop + 1], mask)
            refuse_masked(key)
            rows = np.arange(len(self))[key]
        except (IndexError, ValueError, TypeError) as e:
            if isinstance(key, slice):
                as_slice("rows", key)
            raise RowNotFoundError(f"a Ragged of {len(self):,} rows: {e}") from None
        if rows.ndim != 1 or (isinstance(key, tuple) and len(key) > 1):
            raise RowNotFoundError("a Ragged is indexed by a row, a slice, or a list of rows")
        return self._gather(rows)

    @staticmethod
    def _text(string: bytes, row: int) -> str:
        try:
            return string.decode()
        except UnicodeDecodeError as e:  # readers check text, but anybody can make a Ragged
            raise ColumnError(f"row {row:,} of a Ragged of text is not UTF-8: {e}") from None

    def _gather(self, rows: npt.NDArray[np.int64]) -> Ragged:
        """Return rows by number; raise IndexError if one does not exist."""
        offsets: Any = _core.gather_offsets(self.offsets, rows)
        total = int(offsets[-1])
        mask = None if self.mask is None else self.mask[rows]
        if is_plain(self.values):
            values = empty((total, *self.values.shape[1:]), self.values.dtype)
            if values.size:
                here, there, item = raw_bytes(self.values), raw_bytes(values), values[:1].nbytes
                threads = thread_count()
                _core.gather_ragged(here, self.offsets, rows, item, offsets, there, threads)
            return Ragged(values, offsets, mask)
        # The place of each item among those of all rows, and then where it comes from.
        steps = np.repeat(self.offsets[rows] - offsets[:-1], np.diff(offsets))
        return Ragged(self.values[np.arange(total) + steps], offsets, mask)

    def pad(
        self,
        length: int | None = None,
        fill: Any = 0,
        *,
        side: Literal["right", "left"] = "right",
        cut: Literal["right", "left"] = "right",
        out: npt.NDArray[Any] | None = None,
    ) -> npt.NDArray[Any]:
        """Return the rows as one dense array, cut to ``length`` and padded with ``fill``.

        ``length`` defaults to the longest row. ``side`` is the side on which short
        rows are padded, ``cut`` the side on which long rows are cut. ``out`` is an array to
        write to, of the shape and dtype of the result; it is also returned.
        """
        values = self.flat
        if not isinstance(values, np.ndarray) or self.is_bytes or values.dtype.hasobject:
            raise OptionError("pad() takes rows of numbers; pad the rows of a nested column alone")
        if self.mask is not None or has_mask(values):
            raise OptionError("pad() takes rows without nulls; fill them first: ds.fill_null(...)")
        check_choice("side", side, ("right", "left"))
        check_choice("cut", cut, ("right", "left"))
        if out is not None and not isinstance(out, np.ndarray):
            raise OptionTypeError(f"out= is a NumPy array, not {type(out).__name__}")
        length = None if length is None else as_whole("length", length, most=2**31)
        lengths = self.lengths
        offsets = self.offsets - self.offsets[0]
        # Offsets may come from a file: check them before allocating anything.
        if int(lengths.min(initial=0)) < 0 or int(offsets[-1]) != len(values):
            raise ColumnError("the offsets of a Ragged must ascend and end inside its values")
        width = int(lengths.max(initial=0)) if length is None else length
        shape = (len(self), width, *values.shape[1:])
        if out is None:
            out = np.empty(shape, values.dtype)
        elif (
            out.shape != shape
            or out.dtype != values.dtype
            or not out.flags.c_contiguous
            or not out.flags.writeable
        ):
            raise OptionError(
                f"out= is {out.dtype} of shape {out.shape}, not {values.dtype} of shape {shape}, "
                "contiguous and writable"
            )
        if out.size:
            try:
                given = exact_array(fill)
                lost = first_lost(given, values.dtype, rounds=True)
                if lost is not None:
                    raise OptionError(f"fill={lost[1]!r}: {values.dtype} cannot hold it")
                item = np.full(values.shape[1:], given, values.dtype)
            except OptionError:
                raise
            except (TypeError, ValueError) as e:
                raise OptionError(f"fill={fill!r} cannot fill a row: {e}") from None
            _core.pad_rows(
                raw_bytes(values),
                offsets,
                raw_bytes(item),
                side == "left",
                cut == "left",
                raw_bytes(out),
            )
        return out

    def tolist(self) -> list[Any]:
        """Return the rows as nested lists, or as ``bytes`` or ``str``."""
        return [row if isinstance(row, bytes | str | None) else row.tolist() for row in self]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ragged):
            return NotImplemented
        if len(self) != len(other) or self.dtype != other.dtype:
            return False
        if not np.array_equal(self.lengths, other.lengths):
            return False
        if not np.array_equal(null_mask(self), null_mask(other)):
            return False
        mine, theirs = self.flat, other.flat
        if isinstance(mine, np.ndarray) and isinstance(theirs, np.ndarray):
            if has_mask(mine) or has_mask(theirs):
                return _same_masked(mine, theirs)
            if self.is_bytes:  # bytes compare faster than strings of one byte
                return np.array_equal(raw_bytes(mine), raw_bytes(theirs))
            nan = mine.dtype.kind in "fc"
            return np.array_equal(mine, theirs, equal_nan=nan)
        return bool(mine == theirs)

    def __repr__(self) -> str:
        names = {BYTE: "bytes", TEXT_BYTE: "text"}
        kind = names.get(self.dtype) or str(self.dtype)
        longest = int(self.lengths.max(initial=0))
        rows = "1 row" if len(self) == 1 else f"{len(self):,} rows"
        shown = ", ".join([*map(_brief, self[:_SHOWN]), *["..."] * (len(self) > _SHOWN)])
        return f"Ragged({rows} of {kind}, longest {longest:,}{shown and ': '}{shown})"


def _brief(row: Any) -> str:
    """Return the first values of a row as text."""
    if row is None:
        return "None"
    media = media_kind(row) if isinstance(row, bytes) else None
    if media is not None:
        return f"<{media.name}, {len(row):,} bytes>"
    if isinstance(row, bytes | str):
        return repr(row[:_LETTERS]) + "..." * (len(row) > _LETTERS)
    if isinstance(row, np.ndarray) and row.ndim > 1:
        return f"array of {' x '.join(map(str, row.shape))}"
    if isinstance(row, Ragged):
        values = [*map(_brief, row[:_SHOWN])]
    else:
        values = [str(value) for value in row[:_SHOWN]]
    return f"[{', '.join([*values, *['...'] * (len(row) > _SHOWN)])}]"


Column: TypeAlias = "npt.NDArray[Any] | Ragged"


def has_mask(column: Any) -> bool:
    """Return whether a column has a mask: rows that may be null."""
    if isinstance(column, Ragged):
        return column.mask is not None
    # Frames and tensors have something else of that name.
    masks = type(column) is not np.ndarray and isinstance(column, np.ndarray)
    return masks and hasattr(column, "mask")


def as_values(values: Any) -> npt.NDArray[Any]:
    """Work like ``np.asarray``, but never drop a mask or round an integer among floats.

    The masks of masked arrays must be those of whole rows.
    """
    if type(values) is np.ndarray or not has_mask(values):
        return exact_array(values)
    from recmap.model.masked_column import MaskedColumn, masked_column

    return values if isinstance(values, MaskedColumn) else masked_column(values)


def null_mask(column: Column) -> npt.NDArray[np.bool_]:
    """Return which rows of a column are null.

    >>> null_mask(Ragged([1, 2], [0, 2, 2], [False, True]))
    array([False,  True])
    """
    if not has_mask(column):
        return np.zeros(len(column), np.bool_)
    if isinstance(column, Ragged):
        assert column.mask is not None
        return column.mask
    mask = np.broadcast_to(column.mask, column.shape)  # type: ignore[attr-defined]  # a masked array
    # The values of a row are masked together.
    return mask.reshape(len(mask), -1)[:, 0] if mask.size else np.zeros(len(column), np.bool_)


def concatenate(columns: Sequence[Column]) -> Column:
    """Concatenate the rows of columns of the same field."""
    if len(columns) == 1:
        return columns[0]
    ragged = [column for column in columns if isinstance(column, Ragged)]
    if not ragged:
        arrays = [column for column in columns if isinstance(column, np.ndarray)]
        # Without a dtype, big-endian arrays would become native ones.
        if any(map(has_mask, arrays)):
            plain = [np.asarray(array) for array in arrays]
            return masked(np.concatenate(plain, dtype=plain[0].dtype), _joined_masks(arrays))
        return _joined(arrays)
    values = concatenate([column.flat for column in ragged])
    mask = _joined_masks(ragged) if any(map(has_mask, ragged)) else None
    return Ragged(values, offsets_of(np.concatenate([column.lengths for column in ragged])), mask)


def is_plain(values: Column) -> TypeGuard[npt.NDArray[Any]]:
    """Return whether values are an array without a mask, whose bytes may be copied as they are."""
    if not isinstance(values, np.ndarray) or has_mask(values):
        return False
    return values.flags.c_contiguous and not values.dtype.hasobject and values.itemsize > 0


def copy_items(
    values: npt.NDArray[Any],
    starts: npt.NDArray[np.int64],
    lengths: npt.NDArray[np.int64],
    out: npt.NDArray[Any],
    to: npt.NDArray[np.int64],
) -> None:
    """Copy sequences of the items of a plain array to places in another one of its dtype."""
    item = values.itemsize * math.prod(values.shape[1:])
    if out.size:
        starts, to = np.ascontiguousarray(starts), np.ascontiguousarray(to)
        here, there, threads = raw_bytes(values), raw_bytes(out), thread_count()
        _core.copy_sequences(here, starts, to, lengths, item, there, threads)


def _joined(arrays: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
    """Concatenate arrays; large ones on several threads, into memory that is used again."""
    first = arrays[0]
    alike = all(
        is_plain(each) and each.dtype == first.dtype and each.shape[1:] == first.shape[1:]
        for each in arrays
    )
    if not alike or sum(each.nbytes for each in arrays) < _LEAST_JOINED:
        return np.concatenate(arrays, dtype=first.dtype)
    out = empty((sum(map(len, arrays)), *first.shape[1:]), first.dtype)
    there, at = raw_bytes(out), 0
    for array in arrays:
        starts = np.arange(0, array.nbytes, _JOINED_PART)
        sizes = np.minimum(_JOINED_PART, array.nbytes - starts)
        copy_items(raw_bytes(array), starts, sizes, there, starts + at)
        at += array.nbytes
    return out


def _joined_masks(columns: Sequence[Column]) -> npt.NDArray[np.bool_]:
    return np.concatenate([null_mask(column) for column in columns])


def masked(values: Column, mask: npt.NDArray[np.bool_]) -> Column:
    """Return a column whose rows are null where ``mask`` is true.

    >>> masked(np.array([1, 0, 3]), np.array([False, True, False])).tolist()
    [1, None, 3]
    """
    if isinstance(values, Ragged):
        return Ragged(values.values, values.offsets, mask)
    from recmap.model.masked_column import MaskedColumn

    whole = np.broadcast_to(mask.reshape(-1, *[1] * (values.ndim - 1)), values.shape)
    return MaskedColumn(values, mask=whole)


def _same_masked(a: npt.NDArray[Any], b: npt.NDArray[Any]) -> bool:
    missing = null_mask(a)
    if len(a) != len(b) or not np.array_equal(missing, null_mask(b)):
        return False
    mine, theirs = np.asarray(a)[~missing], np.asarray(b)[~missing]
    return np.array_equal(mine, theirs, equal_nan=mine.dtype.kind in "fc")


def with_values(column: Column, convert: Callable[[npt.NDArray[Any]], npt.NDArray[Any]]) -> Column:
    """Convert the innermost values of a column; those outside its rows are left out.

    Values that are null are converted, too, and stay null.
    """
    if not isinstance(column, Ragged):
        if not has_mask(column):
            return convert(column)
        return masked(convert(np.asarray(column)), null_mask(column))
    first = column.offsets[0]
    if first < 0:  # values from the end would be taken
        raise ColumnError("the offsets of a Ragged must ascend and end inside its values")
    offsets = column.offsets - first if first else column.offsets
    return Ragged(with_values(column.flat, convert), offsets, column.mask)


def owned(column: Column) -> Column:
    """Copy a column so that it shares no memory with any other."""
    if isinstance(column, Ragged):
        mask = None if column.mask is None else column.mask.copy()
        return Ragged(owned(column.flat), column.offsets - column.offsets[0], mask)
    return column.copy()


def _not_bytes(strings: Sequence[Any]) -> ColumnError:
    for row, string in enumerate(strings):
        if not isinstance(string, bytes | bytearray | memoryview):
            hint = "; encode it: text.encode()" if isinstance(string, str) else ""
            return ColumnError(f"row {row:,} is {type(string).__name__}, not bytes{hint}")
    return ColumnError("rows of from_bytes are byte strings")


def _not_text(texts: Sequence[Any]) -> ColumnError:
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            hint = "; decode it: string.decode()" if isinstance(text, bytes | bytearray) else ""
            return ColumnError(f"row {row:,} is {type(text).__name__}, not text{hint}")
        try:
            text.encode()
        except UnicodeEncodeError as e:
            return ColumnError(f"row {row:,}: {text!r} is not text that UTF-8 can hold: {e.reason}")
    return ColumnError("rows of from_text are text")


def _whole_offsets(offsets: npt.ArrayLike) -> npt.NDArray[np.int64]:
    try:
        given = exact_array(offsets)
    except (TypeError, ValueError) as e:
        raise ColumnError(f"offsets of a Ragged: {e}") from None
    if given.dtype == np.int64:
        return given
    if given.dtype.kind not in "iuf":
        raise ColumnError(f"offsets of a Ragged are whole numbers, not {given.dtype}")
    with np.errstate(invalid="ignore"):
        whole = given.astype(np.int64)
    if not np.array_equal(whole, given):
        raise ColumnError("offsets of a Ragged are whole numbers that fit into int64")
    return whole


def offsets_of(lengths: npt.ArrayLike) -> npt.NDArray[np.int64]:
    """Return the offsets of rows of these lengths."""
    steps = np.asarray(lengths, dtype=np.int64)
    offsets = np.zeros(len(steps) + 1, dtype=np.int64)
    np.cumsum(steps, out=offsets[1:])
    return offsets


def _row_array(number: int, row: Any) -> npt.NDArray[Any]:
    try:
        return exact_array(row)
    except ColumnError as e:
        raise ColumnError(f"row {number:,}: {e}") from None
    except (TypeError, ValueError) as e:
        raise ColumnError(f"row {number:,} is not an array of numbers: {e}") from None


def _of_dtype(array: npt.NDArray[Any], dtype: np.dtype[Any], row: int) -> npt.NDArray[Any]:
    if (lost := first_lost(array, dtype, rounds=True)) is not None:
        raise ColumnError(f"row {row:,} has {lost[1]!r}, which {dtype} cannot hold")
    return array.astype(dtype, copy=False)


def raw_bytes(array: npt.NDArray[Any]) -> npt.NDArray[np.uint8]:
    """Return the bytes of an array, without a copy if they are contiguous."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)
