"""Columns of a TFDS folder, how its records store them, and how they are put together again.

Most columns are stored as they are read: a feature of the same name with all values of a row.
The others are made of several features, or of values that are stored differently:

- Items inside two or more sequences are end to end in ``NAME/ragged_flat_values``. The lengths
  of the sequences at each level but the first are in ``NAME/ragged_row_lengths_0``, ``_1`` ...
- An encoded item is one string with the bytes of its values, which may be compressed.
- If several axes of an item vary, its shape is in ``NAME/shape`` and the string in ``NAME/value``.
- A record has no float16, which is stored as float32, and no uint64, which is stored as the int64
  of the same bits.
"""

from __future__ import annotations

import math
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.errors import DataError
from recmap.model.field import BYTES, TEXT, Field
from recmap.model.ragged import BYTE, Column, Ragged, offsets_of
from recmap.model.row_sizes import OFFSET, RowSizes, added, column_sizes
from recmap.model.schema import Batch, Schema
from recmap.native import _core
from recmap.tfrecord.decoder import ExampleDecoder

FLAT, LENGTHS = "ragged_flat_values", "ragged_row_lengths_"
_Lengths = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Feature:
    """One column: a tensor, inside sequences of these ``lengths``, the outermost first.

    ``encoding`` says whether an item is a list of values, or one string with their bytes, which
    may be compressed. ``path`` has the names of the features around it and its own. ``steps`` is
    the name of the nested dataset that it is in, such as the steps of an episode. ``problem`` says
    why the column cannot be read.
    """

    path: tuple[str, ...]
    dtype: np.dtype[Any] = BYTES
    shape: tuple[int | None, ...] = ()
    lengths: tuple[int | None, ...] = ()
    encoding: str = "none"
    optional: bool = False
    classes: int | None = None
    note: str = ""
    steps: str | None = None
    problem: str = ""
    #: What the file says of the tensor, in today's spelling.
    entry: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)

    @property
    def name(self) -> str:
        return "/".join(self.path)

    @property
    def is_string(self) -> bool:
        return self.dtype in (BYTES, TEXT)

    @property
    def dynamic(self) -> bool:
        """Whether records store the shape of each item, because several axes vary."""
        return self.shape.count(None) > 1

    @property
    def axes(self) -> tuple[int | None, ...]:
        """The shape of a row, in which any axis may vary."""
        return (*self.lengths, *self.shape)

    @property
    def ragged(self) -> int:
        """The number of ragged axes of the column: all up to the last that varies."""
        varying = [i for i, axis in enumerate(self.axes) if axis is None]
        return varying[-1] + 1 if varying else 0

    @property
    def field(self) -> Field:
        """The type of the column."""
        shape = (*(None,) * self.ragged, *self.axes[self.ragged :])
        return Field(self.dtype, shape, self.fill)

    @property
    def fill(self) -> Any:
        """The value of rows without one, which is what ``tensorflow_datasets`` gives; or None."""
        if not self.optional or self.ragged or self.lengths:
            return None
        if self.dtype == TEXT:
            return ""
        if self.dtype == BYTES:
            return b""
        if self.dtype.kind == "b":
            return False
        if self.dtype.kind == "f":
            return float(np.finfo(self.dtype).min)
        return int(np.iinfo(self.dtype).min)

    # How records store the column.

    @cached_property
    def simple(self) -> bool:
        """Whether the column is a single feature, stored as it is read."""
        (first, *others) = self.stored_fields.items()
        return not others and first == (self.name, self.field)

    @cached_property
    def stored_fields(self) -> dict[str, Field]:
        """The features of a record, as they are decoded."""
        rank = len(self.lengths)
        parts: dict[str, Field] = {}
        for suffix, item in self._parts().items():
            name = self.name + suffix
            if rank < 2:
                shape = (*self.lengths, *item.shape)
                parts[name] = Field(item.dtype, shape, item.fill)
                continue
            parts[f"{name}/{FLAT}"] = Field(item.dtype, (None, *item.shape))
            for i in range(rank - 1):
                parts[f"{name}/{LENGTHS}{i}"] = Field(np.int64, (None,))
        return parts

    def kinds(self) -> dict[str, _core.Kind]:
        """Return the kind of list that holds each feature of a record."""
        return {name: self._kind(name, field) for name, field in self.stored_fields.items()}

    def _kind(self, name: str, field: Field) -> _core.Kind:
        encoded = self.encoding != "none" and not self._is_number(name)
        if encoded or field.is_bytes:
            return _core.Kind.bytes
        return _core.Kind.float if field.dtype.kind == "f" else _core.Kind.int64

    def _is_number(self, name: str) -> bool:
        """Return whether a part holds lengths or a shape."""
        part = name.removeprefix(self.name)
        return LENGTHS in part or part.startswith("/shape")

    def _parts(self) -> dict[str, Field]:
        """Return the type of one item, by the end of the name of the feature that holds it."""
        if not self.dynamic:
            return {"": self._item()}
        return {"/value": self._item(), "/shape": Field(np.int64, (len(self.shape),))}

    def _item(self) -> Field:
        if self.is_string:
            return Field(self.dtype, _first_varies(self.shape), self.fill)
        # Inside a sequence, each item is a string. A single one is read as its values.
        if self.encoding == "zlib" or (self.encoding == "bytes" and self.lengths):
            return Field(BYTES)
        if self.encoding == "bytes":
            return Field(self.dtype, _first_varies(self.shape), self.fill)
        dtype = _RECORD_DTYPES.get(self.dtype.name, self.dtype)
        return Field(dtype, _first_varies(self.shape), self.fill)

    # Reading.

    def assemble(self, stored: Batch, file: str) -> Column:
        """Make the column from what was decoded. ``file`` is for errors."""
        if self.simple:
            return stored[self.name]
        try:
            return self._assembled(stored)
        except _MismatchError as e:
            name = self.name
            raise DataError(f"{file}: feature {name!r}: {e}", file=file, field=name) from None

    def _assembled(self, stored: Batch) -> Column:
        suffix = "/value" if self.dynamic else ""
        items, lengths = self._flat(stored, suffix)
        shapes = None
        if self.dynamic:
            listed, others = self._flat(stored, "/shape")
            assert isinstance(listed, np.ndarray)
            if [each.tolist() for each in others] != [each.tolist() for each in lengths]:
                raise _MismatchError("there are not as many shapes as values")
            shapes = listed.reshape(-1, len(self.shape))
        values, inner = self._values(items, shapes)
        return _nested(self, values, [*lengths, *inner])

    def _flat(self, stored: Batch, suffix: str) -> tuple[Column, list[_Lengths]]:
        """Return the items of all rows end to end, and the lengths of the sequences by level."""
        name = self.name + suffix
        rank = len(self.lengths)
        if rank == 0:
            return stored[name], []
        if rank == 1:
            column, static = stored[name], self.lengths[0]
            if static is None:
                assert isinstance(column, Ragged)
                return column.flat, [column.lengths]
            rows = np.full(len(column), static, np.int64)
            if isinstance(column, Ragged):
                return column.flat, [rows]
            return column.reshape(-1, *column.shape[2:]), [rows]
        flat = stored[f"{name}/{FLAT}"]
        levels = [stored[f"{name}/{LENGTHS}{i}"] for i in range(rank - 1)]
        assert isinstance(flat, Ragged)
        lengths, counts = [], flat.lengths
        for i, level in enumerate(levels):
            assert isinstance(level, Ragged)
            values = level.flat
            assert isinstance(values, np.ndarray)
            if i == 0:
                lengths.append(level.lengths)
            lengths.append(values)
            below = levels[i + 1].lengths if i + 1 < len(levels) else counts  # type: ignore[union-attr]  # ragged, too
            _check_sums(level, values, below, i)
        return flat.flat, lengths

    def _values(
        self, items: Column, shapes: npt.NDArray[Any] | None
    ) -> tuple[Column, list[_Lengths]]:
        """Return the values of items, and the lengths of the axes of an item that are ragged."""
        if self.is_string:
            return self._strings(items)
        counts: _Lengths | None = None
        if isinstance(items, Ragged) and items.is_bytes:
            flat, counts = self._decoded(items, shapes)
        elif isinstance(items, Ragged):
            inside = np.asarray(items.flat)
            counts = items.lengths * math.prod(inside.shape[1:])
            flat = inside.reshape(-1)
        else:
            flat = items.reshape(-1)
        values = _restored(flat, self.dtype)
        ragged = max(0, self.ragged - len(self.lengths))
        fixed = [axis or 0 for axis in self.shape[ragged:]]
        if not ragged:
            return values.reshape(-1, *fixed), []
        assert counts is not None
        dims = _dimensions(self.shape, counts) if shapes is None else shapes
        if not np.array_equal(_products(dims, self.shape), counts):
            raise _MismatchError("an item does not have as many values as its shape says")
        return values.reshape(-1, *fixed), list(_axis_lengths(dims[:, :ragged]))

    def _decoded(
        self, items: Ragged, shapes: npt.NDArray[Any] | None
    ) -> tuple[npt.NDArray[Any], _Lengths]:
        """Return the values of encoded items end to end, and how many each has."""
        itemsize = self.dtype.itemsize
        expected: _Lengths | None = None
        if shapes is not None:
            expected = _products(shapes, self.shape) * itemsize
        elif None not in self.shape:
            size = math.prod(axis or 0 for axis in self.shape) * itemsize
            expected = np.full(len(items), size, np.int64)
        if self.encoding == "zlib":
            items = _inflated(items, expected)
        sizes = items.lengths
        wrong = np.flatnonzero(sizes % itemsize if expected is None else sizes != expected)
        if len(wrong):
            raise _MismatchError(
                f"an item has {int(sizes[wrong[0]]):,} bytes, which do not fill its shape"
            )
        return np.ascontiguousarray(items.flat).view(np.uint8).view(self.dtype), sizes // itemsize

    def _strings(self, items: Column) -> tuple[Column, list[_Lengths]]:
        assert isinstance(items, Ragged)
        ragged = max(0, self.ragged - len(self.lengths))
        strings = items
        counts = np.ones(len(items), np.int64)
        for axis in _first_varies(self.shape):
            counts = strings.lengths if axis is None else counts * axis
            inside = strings.flat
            assert isinstance(inside, Ragged)
            strings = inside
        if not ragged:
            return items, []
        return strings, list(_axis_lengths(_dimensions(self.shape, counts)[:, :ragged]))

    def row_sizes(self, stored: Batch) -> RowSizes:
        """Return the size of each row of the column in memory, given what was decoded."""
        sizes: RowSizes = 0
        for name in self.stored_fields:
            sizes = added(sizes, column_sizes(stored[name]))
        if self.encoding != "zlib":
            return added(sizes, OFFSET * len(self.axes)) if not self.simple else sizes
        if None not in self.axes:
            return math.prod(axis or 0 for axis in self.axes) * self.dtype.itemsize
        return sizes * _INFLATED


def record_decoder(columns: Mapping[str, Feature]) -> ExampleDecoder:
    """Return what decodes the parts of a record that these columns are made of."""
    fields = {
        name: field for each in columns.values() for name, field in each.stored_fields.items()
    }
    kinds = {name: kind for each in columns.values() for name, kind in each.kinds().items()}
    # Features that the metadata does not mention are ignored, as by tensorflow_datasets.
    return ExampleDecoder(Schema(fields), dict.fromkeys(fields, _core.Place.features), kinds, None)


# How much longer values usually are than the strings that zlib makes of them.
_INFLATED = 8
_MOST_VALUES = 1 << 40
_RECORD_DTYPES: dict[str, np.dtype[Any]] = {
    "float16": np.dtype(np.float32),
    "uint64": np.dtype(np.int64),
}


class _MismatchError(Exception):
    """Features of a record do not fit together."""


def _first_varies(shape: tuple[int | None, ...]) -> tuple[int | None, ...]:
    """Return the shape with which values are decoded: only the first axis may vary."""
    if None not in shape:
        return shape
    return shape if None not in shape[1:] else (None,)


def _restored(values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    if values.dtype == dtype:
        return values
    if dtype == np.uint64:
        return values.view(np.uint64)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def _check_sums(level: Ragged, values: npt.NDArray[Any], below: _Lengths, number: int) -> None:
    """Raise unless the lengths of each row add up to what is there at the next level."""
    if len(values) and int(values.min()) < 0:
        raise _MismatchError(f"{LENGTHS}{number} has a negative length")
    ends = np.concatenate([[0], np.cumsum(values.astype(np.float64))])
    sums = np.diff(ends[level.offsets - level.offsets[0]])
    wrong = np.flatnonzero(sums != below)
    if len(wrong):
        row = int(wrong[0])
        raise _MismatchError(
            f"the lengths in {LENGTHS}{number} add up to {int(sums[row]):,}, but there are "
            f"{int(below[row]):,} items"
        )


def _products(shapes: npt.NDArray[Any], shape: tuple[int | None, ...]) -> _Lengths:
    """Return how many values items of these shapes have."""
    for i, axis in enumerate(shape):
        some = shapes[:, i]
        if len(some) and (int(some.min()) < 0 or (axis is not None and bool((some != axis).any()))):
            raise _MismatchError("the shape of an item is not one that the metadata allows")
    counts = np.prod(shapes, axis=1, dtype=np.float64)
    if len(counts) and float(counts.max()) > _MOST_VALUES:
        raise _MismatchError("the shape of an item has more values than a record can hold")
    whole: _Lengths = counts.astype(np.int64)
    return whole


def _dimensions(shape: tuple[int | None, ...], counts: _Lengths | None) -> npt.NDArray[np.int64]:
    """Return the shape of each item, given how many values it has; one axis varies."""
    assert counts is not None
    static = math.prod(1 if axis is None else axis for axis in shape)
    if static == 0 or bool((counts % max(static, 1)).any()):
        raise _MismatchError(f"the values of an item do not fill the shape {shape}")
    columns = [counts // static if axis is None else np.full(len(counts), axis) for axis in shape]
    return np.stack(columns, axis=1).astype(np.int64)


def _axis_lengths(dims: npt.NDArray[Any]) -> Iterator[_Lengths]:
    """Yield the lengths of each axis of items, for all entries of the axes before it."""
    entries = np.ones(len(dims), np.int64)
    for i in range(dims.shape[1]):
        yield np.repeat(dims[:, i].astype(np.int64), entries)
        entries = entries * dims[:, i]


def _nested(feature: Feature, values: Column, lengths: list[_Lengths]) -> Column:
    """Put values into the ragged axes of a column. ``lengths`` has those of each axis."""
    for axis, static in zip(lengths, feature.axes, strict=False):
        if static is not None and bool((axis != static).any()):
            raise _MismatchError(f"a sequence does not have the length {static}")
    ragged = feature.ragged
    if feature.is_string:
        return _nested_strings(feature, values, lengths)
    assert isinstance(values, np.ndarray)
    fixed = tuple(axis or 0 for axis in feature.axes[ragged:])
    column: Column = values.reshape(-1, *fixed)
    for level in reversed(lengths[:ragged]):
        column = Ragged(column, offsets_of(level))
    return column


def _nested_strings(feature: Feature, values: Column, lengths: list[_Lengths]) -> Column:
    ragged = feature.ragged
    column = values
    # The fixed axes of strings are nested, too; those of an item are already.
    fixed = feature.axes[ragged : len(feature.lengths)]
    for axis in reversed(fixed):
        count = len(column) // axis if axis else 0
        column = Ragged(column, np.arange(count + 1, dtype=np.int64) * (axis or 0))
    for level in reversed(lengths[:ragged]):
        column = Ragged(column, offsets_of(level))
    return column


def _inflated(items: Ragged, sizes: _Lengths | None) -> Ragged:
    """Inflate each item, but not beyond the size that it should have."""
    parts: list[bytes] = []
    for i in range(len(items)):
        most = 0 if sizes is None else int(sizes[i]) + 1
        stream = zlib.decompressobj()
        try:
            parts.append(stream.decompress(items[i], most))
        except zlib.error as e:
            raise _MismatchError(f"item {i:,} is not a zlib stream: {e}") from None
        if not stream.eof and len(parts[-1]) < most:
            raise _MismatchError(f"item {i:,} is a zlib stream that is cut short")
    return Ragged.from_bytes(parts)


def disassemble(feature: Feature, column: Column) -> Batch:
    """Return the features that store a column inside sequences, other than as a list."""
    assert isinstance(column, Ragged)
    stored: Batch = {}
    ends = column.offsets - column.offsets[0]
    if feature.encoding == "bytes":
        flat = np.ascontiguousarray(column.flat)
        size = flat.itemsize * math.prod(flat.shape[1:])
        items = Ragged(flat.reshape(-1).view(BYTE), np.arange(len(flat) + 1) * size)
        return {feature.name: Ragged(items, ends)}
    inside = column.flat
    for i in range(len(feature.lengths) - 1):
        assert isinstance(inside, Ragged)
        stored[f"{feature.name}/{LENGTHS}{i}"] = Ragged(inside.lengths, ends)
        ends = (inside.offsets - inside.offsets[0])[ends]
        inside = inside.flat
    stored[f"{feature.name}/{FLAT}"] = Ragged(inside, ends)
    return stored
