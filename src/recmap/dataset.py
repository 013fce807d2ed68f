"""Dataset: rows and columns over any source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError, RowNotFoundError
from recmap.formats.tfrecord import Errors, FieldsLike, TFRecordSource
from recmap.info import Info, describe
from recmap.ragged import Column, Ragged
from recmap.tfrecord.index import Skipped
from recmap.tfrecord.inflate import CompressionOption
from recmap.tfrecord.paths import PathLike, PathsLike, expand
from recmap.types import Batch, Field, Schema

__all__ = ["ColumnView", "Dataset", "open"]

Rows = slice | npt.NDArray[Any] | list[int] | list[bool] | range

# Bytes read at a time by a pass in batches, in the file or in memory; small batches
# are cut from it. The first read is smaller: it tells what rows take in memory.
_READ_SIZE = 16 << 20
_FIRST_READ_SIZE = 1 << 20


def open(
    path: PathsLike,
    fields: FieldsLike | None = None,
    *,
    errors: Errors = "raise",
    verify: bool = True,
    compression: CompressionOption = "auto",
    index: PathLike | None = None,
) -> Dataset:
    """Opens files as one dataset, without loading them.

    ``path`` is a file, a pattern, a folder, or a list of them. ``fields`` names
    the fields to read and gives types to those stored as raw bytes
    (``{"data": "float32[10]"}``); without it all are read, with the types their
    records show. Bad records raise, or are left out and listed in ``.skipped``
    with ``errors="skip"``. ``verify=False`` does not check the CRCs of the data.
    ``index`` is a text index of offsets and sizes, as DALI uses it.

    >>> import recmap as rm
    >>> with rm.TFRecordWriter("tour.tfrecord") as w:
    ...     w.write({"x": np.arange(6, dtype="float32").reshape(3, 2), "label": [7, 8, 9]})
    >>> ds = rm.open("tour.tfrecord")
    >>> len(ds), ds.schema
    (3, Schema(x: float32[2], label: int64))
    >>> ds[[2, 0]]["label"]
    array([9, 7])
    """
    return Dataset(
        TFRecordSource(
            expand(path),
            fields,
            errors=errors,
            verify=verify,
            compression=compression,
            index=index,
        )
    )


class Dataset:
    """Rows and columns of files, read when they are asked for.

    ``ds[7]`` is a row (a dict of values), ``ds[100:200]`` and ``ds[[5, 3, 9]]`` are
    batches (dicts of columns), ``ds["name"]`` is a column: a view of the mapped
    file where it lies there as an array, else a :class:`ColumnView` that reads
    what is indexed.
    """

    def __init__(self, source: TFRecordSource) -> None:
        self._source = source

    @property
    def schema(self) -> Schema:
        """The fields and their types."""
        return self._source.schema

    @property
    def skipped(self) -> list[Skipped]:
        """The records that ``errors="skip"`` left out, with file, record, byte and reason."""
        return self._source.skipped

    @property
    def files(self) -> list[str]:
        """The files, in the order of their rows."""
        return list(self._source.files)

    def info(self) -> Info:
        """What is known of the files: format, rows, fields, hints for raw bytes."""
        return describe(self._source)

    def __len__(self) -> int:
        return len(self._source)

    @overload
    def __getitem__(self, key: int | np.integer[Any]) -> dict[str, Any]: ...
    @overload
    def __getitem__(self, key: str) -> Any: ...
    @overload
    def __getitem__(self, key: Rows) -> dict[str, Any]: ...
    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, str):
            field = self.schema[key]
            view = self._source.column(key)
            return ColumnView(self, key, field) if view is None else view
        if isinstance(key, int | np.integer) and not isinstance(key, bool | np.bool_):
            row = self._row_number(int(key))
            batch = self._source.take(np.array([row], dtype=np.int64))
            return {name: column[0] for name, column in batch.items()}
        return self._rows(key)

    def _row_number(self, key: int) -> int:
        # A row from the front may be read without counting all of them.
        if key >= 0 and self._source.known_rows() is None:
            if len(next(iter(self._source.read(key, key + 1).values()), ())) == 1:
                return key
        elif -len(self) <= key < len(self):
            return key % len(self)
        raise RowNotFoundError(f"row {key:,} of {len(self):,}")

    def _rows(self, key: Any) -> Batch:
        if isinstance(key, slice):
            step = 1 if key.step is None else int(key.step)
            plain = all(bound is None or bound >= 0 for bound in (key.start, key.stop))
            if step == 1 and plain and key.stop is not None:
                return self._source.read(key.start or 0, max(key.start or 0, key.stop))
            rows = range(*key.indices(len(self)))
            if rows.step == 1:
                return self._source.read(rows.start, max(rows.start, rows.stop))
            key = rows
        numbers = np.asarray(key)
        if numbers.size == 0:
            numbers = numbers.astype(np.int64)
        if numbers.ndim != 1 or numbers.dtype.kind not in "iub":
            raise OptionError(
                f"rows are indexed by a number, a slice, or a one-dimensional array of numbers or "
                f"booleans, not by {type(key).__name__}"
            )
        if numbers.dtype.kind == "b":
            if len(numbers) != len(self):
                raise RowNotFoundError(f"a mask of {len(numbers):,} for {len(self):,} rows")
            numbers = np.flatnonzero(numbers)
        return self._source.take(self._checked(numbers.astype(np.int64)))

    def _checked(self, rows: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        if not len(rows):
            return rows
        count = len(self)
        wrapped = np.where(rows < 0, rows + count, rows)
        wrong = (wrapped < 0) | (wrapped >= count)
        if wrong.any():
            raise RowNotFoundError(f"row {int(rows[wrong][0]):,} of {count:,}")
        return wrapped

    def batches(self, size: int, *, drop_last: bool = False) -> Iterator[dict[str, Any]]:
        """All rows in order, ``size`` at a time; the last batch may be smaller.

        >>> import recmap as rm
        >>> with rm.TFRecordWriter("tour.tfrecord", overwrite=True) as w:
        ...     w.write({"x": np.arange(5)})
        >>> [batch["x"].tolist() for batch in rm.open("tour.tfrecord").batches(2)]
        [[0, 1], [2, 3], [4]]
        """
        if size < 1:
            raise OptionError(f"batches({size}): a batch has one row or more")
        row_bytes = self._source.row_bytes()
        step = max(1, _FIRST_READ_SIZE // row_bytes // size) * size
        start = 0
        while True:
            read = self._source.read(start, start + step)
            rows = len(next(iter(read.values()), ()))
            for begin in range(0, rows, size):
                if begin + size <= rows or not drop_last:
                    yield {name: column[begin : begin + size] for name, column in read.items()}
            if rows < step:
                return
            start += step
            row_bytes = max(row_bytes, sum(column.nbytes for column in read.values()) // rows)
            step = max(1, _READ_SIZE // row_bytes // size) * size

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Rows in order, each a dict."""
        for batch in self.batches(1024):
            for i in range(len(next(iter(batch.values()), ()))):
                yield {name: column[i] for name, column in batch.items()}

    def __repr__(self) -> str:
        files = self._source.files
        rows = self._source.known_rows()
        count = "rows not counted yet" if rows is None else f"{rows:,} rows"
        name = files[0] if len(files) == 1 else f"{len(files):,} files, {files[0]}, ..."
        lines = [f"Dataset({name}: {count}, schema {self._source.origin})"]
        width = max(map(len, self.schema), default=0)
        lines += [f"  {field:{width}}  {self.schema[field]}" for field in self.schema]
        return "\n".join(lines)


class ColumnView:
    """One column of a dataset, read when it is indexed. ``np.asarray`` reads it all."""

    def __init__(self, dataset: Dataset, name: str, field: Field) -> None:
        self._dataset = dataset
        self.name = name
        self.field = field

    @property
    def dtype(self) -> np.dtype[Any]:
        """Of the values."""
        return self.field.dtype

    @property
    def shape(self) -> tuple[int | None, ...]:
        """Rows first; None is a ragged axis."""
        return (len(self), *self.field.shape)

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, key: Any) -> Any:
        picked = self._dataset[key]
        return picked[self.name]

    def __iter__(self) -> Iterator[Any]:
        return (row[self.name] for row in self._dataset)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> npt.NDArray[Any]:
        column: Column = self._dataset[:][self.name]
        if isinstance(column, Ragged):
            raise OptionError(
                f"column {self.name!r} is {self.field}: rows of different lengths are no array; "
                f"use ds[:][{self.name!r}].pad()"
            )
        if copy is False:
            raise OptionError(f"column {self.name!r} has to be read: copy=False cannot be had")
        return column if dtype is None else column.astype(dtype)

    def __repr__(self) -> str:
        return f"ColumnView({self.name!r}: {self.field} of {self._dataset.files[0]})"
