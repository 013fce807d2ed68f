"""Ragged columns stored as plain arrays, for formats that have nothing else.

A column ``x`` is stored as two arrays: ``x/values`` holds all values end to end, and
``x/offsets`` (int64) holds one more offset than there are rows. Row ``i`` is
``values[offsets[i]:offsets[i + 1]]``. If the items of a row are ragged too, as in a list of
strings, ``x/offsets`` holds the offsets of the items, and ``x/steps`` holds the offsets of
their values. Deeper levels are ``x/steps2`` and so on.
"""

from __future__ import annotations

import threading
from abc import abstractmethod
from collections.abc import Container, Mapping, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import ColumnError, DataError
from recmap.formats.column_readers import ColumnReader, Which
from recmap.formats.sink import Sink
from recmap.local.output import Output
from recmap.model.batch import RowNumbers
from recmap.model.coerce import as_columns, fit
from recmap.model.fetching import Fetching, fetching_all
from recmap.model.field import TEXT, Field
from recmap.model.ragged import BYTE, Column, Ragged, concatenate
from recmap.model.row_sizes import OFFSET, RowSizes, added
from recmap.model.schema import Schema

VALUES, OFFSETS = "values", "offsets"
# Limit the depth, because a file may claim any. NumPy once allowed this many axes.
_LEVELS = (OFFSETS, "steps", *(f"steps{level}" for level in range(2, 32)))
# Maximum number of offsets that a thread keeps.
_KEPT = 1 << 18
# Longer rows are gathered one by one; shorter ones value by value, in one call.
_SLICE_FROM = 64
_NO_OFFSETS = np.empty(0, np.int64)


def levels_of(field: Field) -> tuple[str, ...]:
    """Return the keys of the offsets that a field needs, outermost first."""
    return _LEVELS[: _depth(field)]


def levels(stem: str, there: Container[str]) -> tuple[str, ...]:
    """Return the keys of the offsets found in ``there``, if the field is not known."""
    return tuple(takewhile(lambda key: f"{stem}/{key}" in there, _LEVELS))


def _axes(field: Field) -> tuple[int | None, ...]:
    return field.shape if field.is_bytes else field.shape[: field.ragged]


def _depth(field: Field) -> int:
    return len(_axes(field)) + field.is_bytes


@dataclass(frozen=True)
class ColumnPart:
    """One of the arrays of a column; ``key`` is "" if it is the only one."""

    key: str
    dtype: np.dtype[Any]
    inner: tuple[int, ...]


class Splitter:
    """Splits a column into its arrays, one batch at a time."""

    def __init__(self, name: str, field: Field) -> None:
        depth = _depth(field)
        if depth > len(_LEVELS):
            raise ColumnError(
                f"column {name!r} is {field}: more than {len(_LEVELS)} axes of different lengths "
                "do not fit; join the inner ones"
            )
        self._name, self._field, self._axes = name, field, _axes(field)
        self._ends = dict.fromkeys(levels_of(field), 0)
        values = (
            ColumnPart(VALUES, BYTE, ())
            if field.is_bytes
            else ColumnPart(VALUES if depth else "", field.dtype, field.inner)
        )
        self.parts = [values, *(ColumnPart(key, np.dtype(np.int64), ()) for key in self._ends)]

    def head(self) -> dict[str, npt.NDArray[Any]]:
        """Return the first items of each array."""
        return {key: np.zeros(1, np.int64) for key in self._ends}

    def split(self, column: Column) -> dict[str, npt.NDArray[Any]]:
        """Return the items to append to each array."""
        appended: dict[str, npt.NDArray[Any]] = {}
        for level, key in enumerate(self._ends):
            assert isinstance(column, Ragged)
            self._check_lengths(level, column)
            appended[key] = column.offsets[1:] - column.offsets[0] + self._ends[key]
            column = column.flat
            self._ends[key] += len(column)
        assert isinstance(column, np.ndarray)
        values = self.parts[0]
        if self._field.is_bytes:
            column = column.view(BYTE)
        appended[values.key] = np.ascontiguousarray(column, values.dtype)
        return appended

    def _check_lengths(self, level: int, column: Ragged) -> None:
        axis = self._axes[level] if level < len(self._axes) else None
        if axis is not None and bool((column.lengths != axis).any()):
            raise ColumnError(
                f"column {self._name!r} is {self._field}, but a row has another shape"
            )


class ArraysSink(Sink):
    """The base of sinks that write each column as one or more plain arrays."""

    def __init__(self, output: Output, schema: Schema) -> None:
        if not schema:
            raise ColumnError(f"{output.target}: there are no columns to write")
        super().__init__(output, schema)
        self.splitters = {name: Splitter(name, field) for name, field in schema.items()}
        _check_names(schema)

    @abstractmethod
    def append(self, name: str, key: str, items: npt.NDArray[Any]) -> None:
        """Append items to one of the arrays of a column."""

    def begin(self) -> None:
        """Append the first items of all arrays."""
        for name, splitter in self.splitters.items():
            for key, items in splitter.head().items():
                self.append(name, key, items)

    def write(self, batch: Mapping[str, Any]) -> None:
        """Append rows."""
        columns, rows = fit(as_columns(batch), self.schema)
        for name, column in columns.items() if rows else ():
            for key, items in self.splitters[name].split(column).items():
                self.append(name, key, items)


def _check_names(schema: Schema) -> None:
    """Refuse columns that would be mistaken for arrays of a ragged column."""
    for name in schema:
        keys = levels_of(schema[name])
        # Include the next level: a column with its name would make this one a level deeper.
        parts = [f"{name}/{key}" for key in (VALUES, *_LEVELS[: len(keys) + 1]) if keys]
        stem, _, end = name.rpartition("/")
        if not parts and end == VALUES and f"{stem}/{OFFSETS}" in schema:
            parts, name = [f"{stem}/{OFFSETS}"], stem  # noqa: PLW2901
        for taken in parts:
            if taken in schema:
                raise ColumnError(
                    f"the column {taken!r} would be taken for a part of {name!r}; rename one of "
                    f'them, as in rename({{"{taken}": "{taken.replace("/", "_")}"}})'
                )


def join(
    path: str,
    name: str,
    values: ColumnReader,
    offsets: Mapping[str, ColumnReader],
    strings: bool,
    told: Field | None,
) -> ColumnReader:
    """Return the column stored in these arrays; the outermost offsets come first.

    With ``strings``, the values are bytes. ``told`` is the field stated in the file, which
    includes fixed axes and says whether strings are text.
    """
    column: _RaggedColumn | None = None
    for read in reversed(list(offsets.values())):
        inner = values if column is None else column
        ends = _ReadOffsets(path, name, read)
        column = _RaggedColumn(path, name, inner, ends, strings and column is None)
    assert column is not None
    if strings and told is not None and told.is_bytes:
        if len(told.shape) != len(column.field.shape):
            raise DataError(
                f"{path}: {name!r} is {column.field}, although the file says {told}",
                file=path,
                field=name,
            )
        # The values are bytes; the source of the column checks that text is UTF-8.
        column.field = Field(TEXT, told.shape) if told.is_text else told
    return column


class _RaggedColumn(ColumnReader):
    """Values end to end, and the offsets of the rows. With ``strings``, values are bytes."""

    def __init__(
        self, path: str, name: str, values: ColumnReader, offsets: _ReadOffsets, strings: bool
    ) -> None:
        self._path, self._name, self._values, self.offsets = path, name, values, offsets
        if len(offsets) == 0 or int(offsets[0]) < 0 or int(offsets[-1]) > len(values):
            raise self._error()
        inner = values.field
        self._strings = strings
        self.field = Field("bytes") if strings else Field(inner.dtype, (None, *inner.shape))
        self.chunk_rows = self._rows_of(values.chunk_rows)
        self.stored_rows = self._rows_of(values.stored_rows)
        self.chunk_bytes = values.chunk_bytes

    def _rows_of(self, values: int) -> int:
        """Return roughly the number of rows with values in one chunk of so many values."""
        return 1 if values == 1 else max(1, values * len(self) // max(len(self._values), 1))

    @property
    def note(self) -> str:
        return self._values.note

    def keep(self, groups: int | None) -> None:
        self._values.keep(groups)

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def read(self, start: int, stop: int) -> Column:
        offsets = self.offsets[start : stop + 1]
        first, last = self._checked(offsets[:-1], offsets[1:])
        values = self._values.read(first, last) if last > first else self._values.read(0, 0)
        return self._ragged(values, offsets - first)

    def gather(self, rows: npt.NDArray[np.int64]) -> Column:
        starts, ends = self.offsets[rows], self.offsets[rows + 1]
        self._checked(starts, ends)
        lengths = ends - starts
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        if int(offsets[-1]) > _SLICE_FROM * len(rows):
            spans = [range(a, b) for a, b in zip(starts.tolist(), ends.tolist(), strict=True)]
            with self._fetched(spans):
                parts = [self._values.read(span.start, span.stop) for span in spans]
            return self._ragged(concatenate(parts), offsets)
        within = np.arange(int(offsets[-1])) - np.repeat(offsets[:-1], lengths)
        return self._ragged(self._values.gather(within + np.repeat(starts, lengths)), offsets)

    def _fetched(self, spans: Sequence[range]) -> AbstractContextManager[object]:
        """Fetch spans of values at once, inside a context."""
        if not self._values.remote:
            return nullcontext()
        fetching = fetching_all(self._values.fetch_ahead(span) for span in spans)
        return nullcontext() if fetching is None else closing(fetching)

    @property
    def remote(self) -> bool:
        return self._values.remote

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        # Which values follow from the offsets is known only once these are there.
        if isinstance(rows, range):
            return self.offsets.fetch_ahead(range(rows.start, rows.stop + 1) if rows else rows)
        return self.offsets.fetch_ahead(np.concatenate([rows, rows + 1]))

    def _ragged(self, values: Column, offsets: npt.NDArray[np.int64]) -> Ragged:
        if self._strings and isinstance(values, np.ndarray):
            values = np.ascontiguousarray(values).view(BYTE)
        return Ragged(values, offsets)

    def _checked(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64]
    ) -> tuple[int, int]:
        """Return the span of values of these rows; raise if the file has wrong offsets."""
        if not len(starts):
            return 0, 0
        first, last = int(starts.min()), int(ends.max())
        if first < 0 or last > len(self._values) or bool((ends < starts).any()):
            raise self._error()
        return first, last

    def _error(self) -> DataError:
        return DataError(
            f"{self._path}: {self._name!r} has offsets that do not fit its {len(self._values):,} "
            "values",
            file=self._path,
            field=self._name,
        )

    def sizes(self, rows: Which, limit: int) -> RowSizes | None:
        if isinstance(rows, slice):
            stop = min(rows.stop, rows.start + limit // OFFSET + 1)
            offsets = self.offsets[rows.start : stop + 1]
            values = self.value_sizes(offsets[:-1], offsets[1:], limit)
        else:
            values = self.value_sizes(self.offsets[rows], self.offsets[rows + 1], limit)
        return None if values is None else values + OFFSET

    def value_sizes(
        self, starts: npt.NDArray[np.int64], ends: npt.NDArray[np.int64], limit: int
    ) -> RowSizes | None:
        """Return the memory that the values from each start to each end take."""
        first, _ = self._checked(starts, ends)
        values = self._values
        if not isinstance(values, _RaggedColumn):
            item = values.sizes(slice(0, 0), limit)
            if not isinstance(item, int):
                return None
            # Above the limit the exact size does not matter, and could overflow.
            lengths: npt.NDArray[np.int64] = np.minimum(ends - starts, limit // max(item, 1) + 1)
            return item * lengths
        if bool((ends[:-1] == starts[1:]).all()):  # a span of rows
            most = first + limit // OFFSET + 1
            kept = max(1, int(np.searchsorted(ends, most, side="right")))
            starts, ends = starts[:kept], np.minimum(ends[:kept], most)
            offsets = values.offsets[first : int(ends[-1] if len(ends) else first) + 1]
            inner = values.value_sizes(offsets[starts - first], offsets[ends - first], limit)
        else:
            inner = values.value_sizes(values.offsets[starts], values.offsets[ends], limit)
        return None if inner is None else added(inner, OFFSET * (ends - starts))

    def view(self) -> Column | None:
        values, offsets = self._values.view(), self.offsets.view()
        if values is None or offsets is None or self.field.is_bytes:
            return None  # the source of the column checks that text is UTF-8
        return Ragged(values, offsets)

    def row_bytes(self) -> int:
        values = len(self._values) * self._values.row_bytes()
        return max(1, values // max(len(self), 1))


class _ReadOffsets:
    """Offsets that are read on demand, because there may be many.

    Each thread keeps the offsets it read last, because row sizes are requested before the
    rows.
    """

    def __init__(self, path: str, name: str, column: ColumnReader) -> None:
        if column.field.dtype.kind not in "iu" or column.field.shape:
            raise DataError(
                f"{path}: {name!r} has offsets that are {column.field}, not int64",
                file=path,
                field=name,
            )
        self._column = column
        self._last = threading.local()

    def __len__(self) -> int:
        return len(self._column)

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        """Begin to fetch offsets that are going to be read."""
        return self._column.fetch_ahead(rows)

    def view(self) -> npt.NDArray[np.int64] | None:
        """Return all offsets, if they are stored as an array."""
        view = self._column.view()
        return None if view is None else _wide(view)

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            start, stop, _ = key.indices(len(self))
            return self._span(start, max(start, stop))
        if isinstance(key, int):
            at = key % len(self)
            read = self._column.read(at, at + 1)
        else:
            read = self._column.gather(key)
        wide = _wide(read)
        return int(wide[0]) if isinstance(key, int) else wide

    def _span(self, start: int, stop: int) -> npt.NDArray[np.int64]:
        first, held = getattr(self._last, "span", (0, _NO_OFFSETS))
        end = first + len(held)
        if first <= start < end:
            held = held[start - first :]
            if stop > end:
                held = np.concatenate([held, _wide(self._column.read(end, stop))])
        else:
            held = _wide(self._column.read(start, stop))
        self._last.span = (start, held if len(held) <= _KEPT else _NO_OFFSETS)
        return held[: stop - start]


def _wide(offsets: Column) -> npt.NDArray[np.int64]:
    assert isinstance(offsets, np.ndarray)
    return offsets.astype(np.int64, copy=False)
