"""Encode columns as records.

``Encoding`` says which list holds a field, ``Encoder`` makes the bytes of a batch, and
``Parsing`` describes the result to TensorFlow's parser.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    ColumnError,
    Message,
    Option,
    OptionError,
    OptionTypeError,
    RecmapError,
    RecordTooLargeError,
)
from recmap.machine.cpus import thread_count
from recmap.model.field import Field
from recmap.model.ragged import Column, Ragged, has_mask, null_mask
from recmap.model.schema import Batch, Schema
from recmap.native import _core
from recmap.tfrecord.decoder import check_fill, fill_bytes, row_layout
from recmap.tfrecord.embedded_schema import LISTS, description

Kind = _core.Kind

_KINDS = {
    "float_list": Kind.float,
    "int64_list": Kind.int64,
    "bytes_list": Kind.bytes,
}
_STEPS = "feature_list"
# Integers other than int64 go into an int64_list if a row has at most this many; one-byte
# integers only if a row has one. This fits labels and sizes, but not images and audio.
_FEW = 16
_INTS = ["bool", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]


@dataclass(frozen=True)
class Encoding:
    """How a field is stored, and whether as the steps of a feature list.

    ``list`` is ``float_list``, ``int64_list``, ``bytes_list`` (byte strings) or ``raw`` (one
    string with the bytes of all values).
    """

    list: str
    in_lists: bool = False

    @property
    def kind(self) -> Kind:
        return _KINDS.get(self.list, Kind.bytes)

    def __str__(self) -> str:
        return f"{_STEPS}/{self.list}" if self.in_lists else self.list


def choose_encoding(name: str, field: Field, asked: Any = None) -> Encoding:
    """Choose how to store a field: as asked, or else without losing a bit.

    float32 goes into a float_list. int64 goes into an int64_list, and so do other integers
    with few values or ragged rows. Everything else is stored as raw bytes.
    """
    check_fill(name, field)
    in_lists = field.ragged == 2 or name.startswith(LISTS)
    wanted = asked
    if not isinstance(asked, str | None):
        raise OptionTypeError(f"encoding of column {name!r}: {asked!r}: give text, such as 'raw'")
    if asked is not None and asked.split("/")[0] == _STEPS:
        in_lists, wanted = True, asked.partition("/")[2] or None
    if in_lists and not field.shape:
        raise OptionError(f"column {name!r}: {field} has no axis for the steps of a feature list")
    encoding = Encoding(wanted or _default(field), in_lists)
    _check(name, field, encoding, asked)
    return encoding


def _default(field: Field) -> str:
    if field.is_bytes:
        return "bytes_list"
    if field.dtype == np.float32:
        return "float_list"
    if field.dtype == np.int64:
        return "int64_list"
    small = _is_int(field) and field.dtype.name != "uint64"
    bytewise = field.dtype.itemsize == 1
    few = not bytewise if field.ragged else field.count <= (1 if bytewise else _FEW)
    return "int64_list" if small and few else "raw"


def _is_int(field: Field) -> bool:
    # Only raw bytes can keep a foreign byte order.
    return field.dtype.isnative and field.dtype.name in _INTS


def _check(name: str, field: Field, encoding: Encoding, asked: str | None) -> None:
    fits = {
        "bytes_list": field.is_bytes,
        "float_list": field.dtype == np.float32,
        "int64_list": _is_int(field),
        "raw": not field.is_bytes,
    }
    if encoding.list not in fits:
        raise OptionError(
            f"encoding of column {name!r}: {asked!r} is not one of {', '.join(fits)}, "
            f"{_STEPS} or {_STEPS}/ before one of them"
        )
    if not fits[encoding.list]:
        raise ColumnError(
            f"column {name!r}: a {encoding.list} cannot hold {field} without losing bits "
            f"(cast it first, or leave the encoding out: {_default(field)})"
        )
    if field.ragged > 2:
        raise ColumnError(
            f"column {name!r}: {field} has {field.ragged} ragged axes, and a record holds at most "
            "two (a feature list); write .npz, .h5, .zarr, .parquet or .arrow"
        )
    if field.is_bytes and 0 in field.inner:
        raise ColumnError(
            f"column {name!r}: {field} has an axis of length 0, which records of strings cannot "
            "show; write .npz, .h5, .zarr, .parquet or .arrow"
        )
    if field.ragged == 2 and not encoding.in_lists:
        raise ColumnError(f"column {name!r}: {field} needs encoding={_STEPS!r}")


def little_endian(schema: Schema) -> Schema:
    """Return the schema with every field in this machine's byte order."""
    return Schema(
        {
            name: field
            if field.dtype.isnative
            else replace(field, dtype=field.dtype.newbyteorder("="))
            for name, field in schema.items()
        }
    )


class Encoder:
    """Encodes batches of one schema as framed records."""

    def __init__(
        self,
        schema: Schema,
        encoding: Mapping[str, str] | None = None,
        align: int | None = None,
        *,
        describe: bool = False,
        table_note: Mapping[str, Any] | None = None,
    ) -> None:
        unknown = set(encoding or {}) - set(schema)
        if unknown:
            raise OptionError(f"encoding names no column of the schema: {sorted(unknown)}")
        self.schema = schema
        self.encoding = {
            name: choose_encoding(name, field, (encoding or {}).get(name))
            for name, field in schema.items()
        }
        self.align = align or 0
        self._check_align()
        self._order = sorted(schema, key=lambda n: (self.encoding[n].in_lists, _rank(n)))
        keys = [(self.encoding[n].in_lists, _key(n)) for n in schema]
        if len(set(keys)) != len(keys):
            raise OptionError("two columns of the schema have the same key in a record")
        inferable = all(_is_inferable(field, self.encoding[name]) for name, field in schema.items())
        #: What columns were in a DataFrame, if the records are to say so.
        self.table_note = (table_note or {}) if describe else {}
        #: The first bytes of a file's first record: the types that records do not show.
        self.lead = b""
        if self.table_note or (describe and not inferable):
            self.lead = description(schema, self.align, self.table_note)

    def _check_align(self) -> None:
        if not self.align:
            return
        if self.align & (self.align - 1) or not 8 <= self.align <= 4096:
            raise OptionError(f"align={self.align}: use a power of two from 8 to 4096")
        for name, field in self.schema.items():
            if field.row_bytes is None or field.nullable or self.encoding[name].in_lists:
                raise OptionError(
                    f"align={self.align} needs rows of one size, but column {name!r} is {field}"
                )

    def encode(
        self, batch: Batch, rows: int, first_row: int, *, begins: bool = False
    ) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.uint64]]:
        """Return the records of a batch, and their offsets followed by the end of the last.

        ``first_row`` is the number of the batch's first row, for errors. ``begins`` means that
        this batch is the first of a file.
        """
        least = sum(field.row_bytes or 0 for field in self.schema.values())
        if least > _core.MAX_MESSAGE_SIZE:
            raise _too_large(first_row, least)  # before anything is copied
        native = _core.Batch(rows)
        for name in self._order:
            _add(native, name, self.schema[name], self.encoding[name], batch[name], rows)
        records, offsets, fault = native.encode(
            self.align, thread_count(), self.lead if begins else b""
        )
        if fault is not None:
            raise self._error(fault, first_row)
        return records, offsets

    def fixed_fields(self) -> tuple[str, ...]:
        """Return the fields with a payload at the same place in every record.

        This assumes that all records have the same size.
        """
        varying = [name for name in self._order if not self._is_fixed(name)]
        # If only one field can vary, records of the same size mean that it does not. Padding
        # keeps later fields in place. Otherwise, everything after the first varying field moves.
        firm = bool(self.align) or len(varying) <= 1
        before = self._order if firm else self._order[: self._order.index(varying[0])]
        return tuple(name for name in before if self._is_fixed(name))

    def _is_fixed(self, name: str) -> bool:
        encoding = self.encoding[name]
        field = self.schema[name]
        fixed = field.row_bytes is not None and not field.nullable and not encoding.in_lists
        return fixed and encoding.list != "int64_list"

    def _error(self, fault: _core.Fault, first_row: int) -> RecmapError:
        row = first_row + fault.row
        if fault.code == _core.FaultCode.too_large:
            return _too_large(row, fault.found)
        if fault.code == _core.FaultCode.out_of_range and fault.column is not None:
            name = self._order[fault.column]
            return ColumnError(
                Message(
                    f"column {name!r}, row {row:,}: {fault.found % 2**64:,} does not fit an "
                    "int64_list",
                    hint=("use ", Option("encoding", {name: "raw"})),
                )
            )
        return ColumnError(f"row {row:,}: the arrays were changed while they were written")


def _is_inferable(field: Field, encoding: Encoding) -> bool:
    """Return whether the type of a field can be inferred from records.

    It can if a row has one value, or a fixed number of two or more, of its list's own dtype.
    """
    usual = {"float_list": "float32", "int64_list": "int64", "bytes_list": "bytes"}
    plain = str(Field(field.dtype)) == usual.get(encoding.list)
    flat = not field.shape or (len(field.shape) == 1 and not field.ragged and field.count > 1)
    plain = plain and field.fill is None and not field.nullable
    return plain and flat and not encoding.in_lists


def _too_large(row: int, size: int) -> RecordTooLargeError:
    return RecordTooLargeError(
        f"row {row:,} makes a record of {size:,} bytes or more: protobuf, and so every other "
        "reader, refuses 2 GiB (split the row)"
    )


def _key(name: str) -> str:
    return name.removeprefix(LISTS)


def _rank(name: str) -> tuple[int, ...]:
    """Return a sort key that orders keys as protobuf's Python implementation does.

    Keys are ordered by their bytes. If one key is a prefix of another, the longer comes first.
    """
    return (*_key(name).encode(), 256)


def _add(
    native: _core.Batch, name: str, field: Field, encoding: Encoding, column: Column, rows: int
) -> None:
    common = (_key(name), encoding.kind, encoding.in_lists, row_layout(field))
    missing = null_mask(column) if has_mask(column) else None
    nulls = missing.view(np.uint8) if missing is not None and missing.any() else None
    if isinstance(column, np.ndarray):
        native.add_dense(*common, _row_bytes(np.asarray(column), rows), nulls)
        return
    outer = steps = strings = None
    inside: Column = column
    if field.ragged >= 1:
        outer, inside = column.offsets, column.values
    if field.ragged == 2:
        assert isinstance(inside, Ragged)
        steps, inside = inside.offsets, inside.values
    if field.is_bytes:
        for axis in field.inner:
            assert isinstance(inside, Ragged)
            inside = _regular(name, field, inside, axis)
        assert isinstance(inside, Ragged)
        strings, inside = inside.offsets, inside.values
    assert isinstance(inside, np.ndarray)
    flat = np.ascontiguousarray(inside).reshape(-1).view(np.uint8)
    native.add_ragged(*common, flat, _core.RaggedOffsets(outer, steps, strings), nulls)


def _row_bytes(column: npt.NDArray[Any], rows: int) -> npt.NDArray[np.uint8]:
    """Return the rows as bytes. They are copied only if a row is not contiguous."""
    per_row = column.itemsize * int(np.prod(column.shape[1:], dtype=np.int64))
    if rows == 0 or per_row == 0:
        return np.empty((rows, per_row), np.uint8)
    if not column[0].flags.c_contiguous:
        column = np.ascontiguousarray(column)
    return column.reshape(rows, -1).view(np.uint8)


def _regular(name: str, field: Field, column: Ragged, axis: int) -> Ragged:
    """Return what is below a fixed axis. Raise unless every item fills the axis."""
    wrong = np.flatnonzero(column.lengths != axis)
    if len(wrong):
        raise ColumnError(
            f"column {name!r} is {field}, but item {int(wrong[0]):,} has "
            f"{int(column.lengths[wrong[0]]):,} strings"
        )
    inside = column.flat
    assert isinstance(inside, Ragged)
    return inside


@dataclass(frozen=True)
class Parsing:
    """One feature of a parsing spec.

    It is ``fixed`` (FixedLenFeature), ``ragged`` (RaggedFeature) or ``steps`` of a feature list
    (FixedLenSequenceFeature). ``shape`` is the shape below the ragged axis or the steps.
    """

    form: Literal["fixed", "ragged", "steps"]
    kind: _core.Kind
    shape: tuple[int, ...]
    default: Any = None


def parsing_of(field: Field, kind: _core.Kind, in_lists: bool) -> Parsing:
    """Return how to parse a field stored in lists of this kind."""
    raw = kind == _core.Kind.bytes and not field.is_bytes
    if in_lists and (field.ragged < 2 or raw):
        below = field.inner if field.ragged else field.inner[1:]
        return Parsing("steps", kind, () if raw else below)
    if raw:
        return Parsing("fixed", kind, (), b"" if field.ragged else fill_bytes(field))
    if field.ragged == 0:
        return Parsing("fixed", kind, field.inner, _fill_values(field, kind))
    return Parsing("ragged", kind, field.inner)


def _fill_values(field: Field, kind: _core.Kind) -> Any:
    fill = field.fill
    if fill is None:
        return None
    if kind == _core.Kind.int64:
        fill = int(fill)
    return [fill] * field.count if field.shape else fill
