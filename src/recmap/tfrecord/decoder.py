"""Decode the records of a TFRecord file into columns, padded or not, according to a schema.

A schema inferred from a sample may lack a feature that only other records have. Every read
counts such features and warns once. It raises if the rows are about to be written, because
the feature would be lost.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from recmap.errors import (
    DataError,
    FieldMismatchError,
    FieldTextError,
    Message,
    Option,
    OptionError,
    UnknownFeatureWarning,
)
from recmap.machine.memory import empty, empty_bytes
from recmap.model.batch import Allocate, PaddedColumn, PaddedRows, PadSpec
from recmap.model.field import Field
from recmap.model.ragged import BYTE, TEXT_BYTE, Column, Ragged, masked
from recmap.model.schema import Batch, Schema
from recmap.native import _core
from recmap.tfrecord.embedded_schema import LISTS, EmbeddedSchemas, Where
from recmap.tfrecord.faults import KIND_NAMES, FieldChoice, fault_error
from recmap.warn import warn

Kind = _core.Kind
Records = _core.Records

Offsets = npt.NDArray[np.uint64]
Bytes = npt.NDArray[np.uint8]
_Rows_co = TypeVar("_Rows_co", covariant=True)
_Parts: TypeAlias = "npt.NDArray[Any] | _core.Decoded | _core.Padded"

_CODES = {
    "bool": _core.Dtype.bool,
    "int8": _core.Dtype.int8,
    "int16": _core.Dtype.int16,
    "int32": _core.Dtype.int32,
    "int64": _core.Dtype.int64,
    "uint8": _core.Dtype.uint8,
    "uint16": _core.Dtype.uint16,
    "uint32": _core.Dtype.uint32,
    "uint64": _core.Dtype.uint64,
    "float32": _core.Dtype.float32,
    "float64": _core.Dtype.float64,
}
# The most names listed in a message.
_NAMED = 5


def dtype_code(dtype: np.dtype[Any]) -> _core.Dtype:
    """Return the native core's code for a dtype; ``opaque`` if only raw bytes can hold it."""
    if dtype.kind in "SU":
        return _core.Dtype.bytes
    if dtype.kind in "mM":
        return _core.Dtype.int64 if dtype.isnative else _core.Dtype.opaque
    return _CODES.get(dtype.name, _core.Dtype.opaque) if dtype.isnative else _core.Dtype.opaque


def row_layout(field: Field) -> _core.RowLayout:
    """Return how a row of a field is laid out in a record."""
    # The steps of a feature list run along the first axis.
    step = int(np.prod(field.inner[1:], dtype=np.int64)) if field.inner else 1
    code, itemsize = dtype_code(field.dtype), max(field.dtype.itemsize, 1)
    return _core.RowLayout(code, itemsize, field.ragged, field.count, step, field.is_text)


def split_name(name: str) -> tuple[str, _core.Place]:
    """Split a field's name into the key in a record and the map that holds it."""
    if name.startswith(LISTS):
        return name[len(LISTS) :], _core.Place.lists
    return name, _core.Place.any


def check_fill(name: str, field: Field) -> None:
    """Refuse a fill value that would fill nothing."""
    if field.ragged and field.fill is not None:
        raise FieldTextError(f"column {name!r}: {field}: a missing ragged row is empty, not filled")


def refuse_null_items(name: str, field: Field) -> None:
    """Refuse a field whose lists may hold nulls: those of records hold none."""
    if field.null_items:
        raise OptionError(
            f"field {name!r}: {field}: the lists of TFRecord files hold no nulls; write "
            f"{str(replace(field, null_items=False))!r}"
        )


def fill_bytes(field: Field) -> bytes | None:
    """Return the bytes of a row of fill values, or of those below a mask; None if there are none.

    Dates that are missing are NaT.
    """
    if field.fill is not None:
        row = field.fill_row()
        return row if isinstance(row, bytes) else row.tobytes()
    if field.ragged or not field.nullable:
        return None
    if field.is_bytes:
        return b""
    dates = field.dtype.kind in "mM"
    zero = np.array("NaT", field.dtype) if dates else np.zeros((), field.dtype)
    return np.full(field.inner, zero, field.dtype).tobytes()


class StepNumbers(NamedTuple):
    """Which step of each record to decode, and which columns have steps."""

    numbers: npt.NDArray[np.int64]
    columns: Sequence[bool]

    def pick(self, rows: npt.NDArray[np.int64]) -> StepNumbers:
        """Return the same for some of the records."""
        return self._replace(numbers=self.numbers[rows])


class Decoder(Protocol[_Rows_co]):
    """Turns records into rows of some form, according to a schema."""

    @property
    def schema(self) -> Schema: ...

    @property
    def error(self) -> Callable[[_core.Fault, str, int], DataError]:
        """Make the error for a fault in one record of a file."""
        ...

    def decode(
        self, records: Records, verify: bool, threads: int, where: Where
    ) -> tuple[_Rows_co, _core.Fault | None]:
        """Decode records, or return the fault of the first bad one.

        ``where`` returns the file of a record and its number there.
        """
        ...


class ExampleDecoder:
    """Decodes tf.train.Examples and SequenceExamples into the fields of a schema.

    ``places`` says which of a record's two maps holds a field. Fields not listed there are
    searched for in both. ``kinds`` says which kind of list must hold a field. ``unknown``
    collects the features that the schema lacks, if it should have all of them. ``described``
    checks the column descriptions found at the start of records. ``choice`` is used for advice
    in errors.
    """

    def __init__(
        self,
        schema: Schema,
        places: Mapping[str, _core.Place] | None = None,
        kinds: Mapping[str, Kind] | None = None,
        unknown: UnknownFeatures | None = None,
        described: EmbeddedSchemas | None = None,
        choice: FieldChoice | None = None,
    ) -> None:
        self.schema, self.places, self.kinds = schema, dict(places or {}), dict(kinds or {})
        self.unknown = unknown
        self.described = described
        self._steps: StepNumbers | None = None
        self.choice = choice or FieldChoice(
            list(schema), {} if unknown else dict(schema), unknown is not None
        )
        for name in schema:
            if name.startswith(LISTS) and name[len(LISTS) :] in schema:
                self.places[name[len(LISTS) :]] = _core.Place.features
        self.columns = _core.Columns()
        self.columns.count_unknown = unknown is not None
        # Computed once: every read of a single row needs them.
        self.fields = dict(schema)
        self._dense = {
            name: (field.inner, field.dtype)
            for name, field in schema.items()
            if field.row_bytes is not None
        }
        #: The columns that may hold nulls: a missing feature is one.
        self.nullable = [name for name, field in schema.items() if field.nullable]
        for name, field in schema.items():
            key, place = split_name(name)
            place = self.places.get(name, place)
            if field.ragged > 2:
                raise OptionError(f"column {name!r}: {field}: records hold two ragged axes at most")
            check_fill(name, field)
            refuse_null_items(name, field)
            kind = self.kinds.get(name, Kind.none)
            fill = fill_bytes(field)
            self.columns.add(key, place, row_layout(field), fill, kind, field.nullable)

    def __reduce__(self) -> tuple[Any, ...]:
        assert self._steps is None
        return ExampleDecoder, (
            self.schema,
            self.places,
            self.kinds,
            self.unknown,
            self.described,
            self.choice,
        )

    def decode(
        self, records: Records, verify: bool, threads: int, where: Where
    ) -> tuple[Batch, _core.Fault | None]:
        """Decode records into columns, or return the fault of the first bad one."""
        nulls = {name: np.zeros(len(records), np.uint8) for name in self.nullable}
        made, fault = self.parts(records, verify, threads, where, nulls=nulls)
        if fault is not None:
            return {}, fault
        return self._assembled(made, nulls), None

    def _assembled(self, made: Mapping[str, _Parts], nulls: Mapping[str, Bytes]) -> Batch:
        """Assemble columns of their parts and masks."""
        columns = {name: _assemble(self.fields[name], parts) for name, parts in made.items()}
        for name, mask in nulls.items():
            field, missing = self.fields[name], mask.view(np.bool_)
            if field.dtype.kind in "mM" and not field.ragged:
                missing = np.zeros_like(missing)  # they are NaT
            columns[name] = masked(columns[name], missing)
        return columns

    def parts(
        self,
        records: Records,
        verify: bool,
        threads: int,
        where: Where,
        pads: Sequence[_core.Pad | None] = (),
        rows: int = 0,
        memory: Allocate | None = None,
        nulls: Mapping[str, Bytes] | None = None,
    ) -> tuple[dict[str, _Parts], _core.Fault | None]:
        """Decode the parts that columns are assembled from, into memory from ``memory``.

        Fields with an entry in ``pads`` become arrays of ``rows`` rows each. ``nulls`` has a mask
        for each nullable column, to be filled. If a record is bad, no parts are returned.
        """
        count, steps = len(records), self._steps
        dense = {
            name: empty((count, *inner), dtype) for name, (inner, dtype) in self._dense.items()
        }
        filled = [
            dense[name].reshape(-1).view(np.uint8) if name in dense else None
            for name in self.fields
        ]
        masks = [nulls.get(name) for name in self.fields] if nulls else []
        target = _core.DecodeTarget(filled, memory or empty_bytes, pads, rows, masks)
        made, fault, unknown, described = _core.decode(
            records,
            self.columns,
            target,
            verify,
            threads,
            None if steps is None else np.ascontiguousarray(steps.numbers),
            [] if steps is None else list(steps.columns),
        )
        if fault is not None:
            return {}, fault
        if unknown and self.unknown is not None:
            self.unknown.met(unknown, where)
        self.met(described, where)
        named = zip(self.fields, made, strict=True)
        return {name: dense[name] if parts is None else parts for name, parts in named}, None

    def error(
        self, fault: _core.Fault, file: str, record: int, base: int | None = None
    ) -> DataError:
        """Make the error for a fault in one record of a file.

        ``base`` is where the bytes begin in the inflated data of a compressed file.
        """
        schema, choice, kinds = self.schema, self.choice, self.kinds
        return fault_error(fault, file, record, schema, choice=choice, kinds=kinds, base=base)

    def select(self, names: Sequence[str]) -> ExampleDecoder:
        """Return a decoder for these fields only. It ignores all others, known or not."""
        assert self._steps is None
        described = self.described.select(names) if self.described else None
        schema = self.schema.select(names)
        return ExampleDecoder(schema, self.places, self.kinds, None, described, self.choice)

    def at_steps(self, steps: StepNumbers) -> ExampleDecoder:
        """Return a decoder of one step of each record, as if that were all it holds."""
        other = object.__new__(ExampleDecoder)
        other.__dict__.update(self.__dict__, _steps=steps)
        return other

    def check(
        self, file: Bytes, offsets: Offsets, verify: bool, threads: int, where: Where
    ) -> Sequence[_core.Fault]:
        """Return the faults of the records that do not decode."""
        records = Records.of_file(file, offsets)
        faults, described = _core.check_records(records, self.columns, verify, threads)
        self.met(described, where)
        return faults

    def met(self, described: Sequence[tuple[bytes, int]], where: Where) -> None:
        """Raise if records describe different columns. Each description comes with its row."""
        if described and self.described is not None:
            self.described.met(described, where)


def kinds_of(encoding: Mapping[str, str]) -> dict[str, Kind]:
    """Return the kind of list that holds each field, from the encodings in an index."""
    kinds = {"float_list": Kind.float, "int64_list": Kind.int64}
    return {name: kinds.get(text.split("/")[-1], Kind.bytes) for name, text in encoding.items()}


def is_array(slot: _core.Slot, field: Field) -> bool:
    """Return whether the payload at this slot has the same bytes as the field's row in memory."""
    if field.row_bytes is None or slot.size != field.row_bytes or not slot.size or field.nullable:
        return False
    return slot.kind == Kind.bytes or (slot.kind == Kind.float and field.dtype == np.float32)


def _assemble(field: Field, parts: _Parts) -> Column:
    """Assemble a column that is not padded."""
    if isinstance(parts, np.ndarray):
        return parts
    assert len(parts) == 4
    raw, outer, steps, strings = parts
    column: Column
    if strings is not None:
        column = Ragged(raw.view(TEXT_BYTE if field.is_text else BYTE), strings)
        if field.inner and (field.ragged or field.shape):
            column = _group(column, field)
    else:
        column = raw.view(field.dtype).reshape(-1, *field.inner)
    if steps is not None:
        column = Ragged(column, steps)
    return column if outer is None else Ragged(column, outer)


def _group(strings: Ragged, field: Field) -> Ragged:
    """Group byte strings along the fixed axes of a field."""
    column = strings
    for axis in reversed(field.inner):
        items = len(column) // axis if axis else 0
        column = Ragged(column, np.arange(items + 1, dtype=np.int64) * axis)
    return column


class PaddedDecoder:
    """Decodes records as ``decoder`` does, but pads the fields in ``pads``.

    Each ``size`` rows of a padded field become one array of equally long rows. All fields but
    dense ones are decoded into memory from ``memory``.
    """

    def __init__(
        self, decoder: ExampleDecoder, pads: Mapping[str, PadSpec], size: int, memory: Allocate
    ) -> None:
        self.schema, self.error = decoder.schema, decoder.error
        self._decoder, self._size, self._memory = decoder, size, memory
        each = (_core.Pad(*pads[n]) if n in pads else None for n in decoder.fields)
        self._pads = list(each) if pads else []

    def decode(
        self, records: Records, verify: bool, threads: int, where: Where
    ) -> tuple[PaddedRows, _core.Fault | None]:
        """Decode records, or return the fault of the first bad one."""
        made, fault = self._decoder.parts(
            records, verify, threads, where, self._pads, self._size, self._memory
        )
        rows = PaddedRows({}, {})
        for name, parts in made.items():
            field = self._decoder.fields[name]
            if isinstance(parts, tuple) and len(parts) == 3:
                rows.padded[name] = self._column(field, parts)
            else:
                rows.others[name] = _assemble(field, parts)
        return rows, fault

    def _column(self, field: Field, parts: _core.Padded) -> PaddedColumn:
        values, places, offsets = parts
        count, size, dtype, inner = len(offsets) - 1, self._size, field.dtype, field.inner
        # Quicker than slices of the values.
        arrays: list[npt.NDArray[Any]] = [
            np.ndarray((min(size, count - row), width, *inner), dtype, values, start)
            for row, (start, width) in zip(range(0, count, size), places, strict=True)
        ]
        return PaddedColumn(arrays, np.diff(offsets))


# Whether unknown features are an error in this thread.
_mode = threading.local()


@contextmanager
def refuse_unknown_features() -> Iterator[None]:
    """Make unknown features an error in this thread. Use it if the rows will be written."""
    before, _mode.strict = _is_strict(), True
    try:
        yield
    finally:
        _mode.strict = before


def _is_strict() -> bool:
    return getattr(_mode, "strict", False)


class UnknownFeatures:
    """The unknown features seen in one dataset. ``origin`` says where its schema is from.

    Features that are ``hidden`` do not count: they are known, but not shown as columns.
    """

    def __init__(
        self, origin: str, warned: bool = False, hidden: frozenset[str] = frozenset()
    ) -> None:
        self._origin, self._warned, self._hidden = origin, warned, hidden
        self._lock = threading.Lock()
        self._rows: dict[str, int] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return UnknownFeatures, (self._origin, self._warned, self._hidden)

    @property
    def rows(self) -> dict[str, int]:
        """For each unknown feature, the number of records read that have it."""
        with self._lock:
            return dict(self._rows)

    def met(self, found: Sequence[_core.Unknown], where: Where) -> None:
        """Count unknown features; warn about the first, or raise where they are refused."""
        if self._hidden:
            found = [feature for feature in found if _key_text(feature[1]) not in self._hidden]
            if not found:
                return
        with self._lock:
            for _, key, _, rows, _ in found:
                name = _key_text(key)
                self._rows[name] = self._rows.get(name, 0) + rows
            silent = self._warned and not _is_strict()
            self._warned = self._warned or not _is_strict()
        if silent:
            return
        in_lists, key, kind, _, row = min(found, key=lambda feature: feature[4])
        file, record = where(row)
        name, what = _key_text(key), "feature list" if in_lists else "feature"
        listed = "" if kind == _core.Kind.none else f" ({KIND_NAMES[kind.value]})"
        has = f"{file}: record {record:,} has a {what} {name!r}{listed}"
        remedy = Message(
            f'run rm.index("{file}") or `recmap index`, which finds the features of all records, '
            "and open it again; or choose the features you want with ",
            Option("fields", [...]),
        )
        if _is_strict():
            raise FieldMismatchError(
                Message(
                    f"{has}, which is not in the schema ({self._origin}) and would be lost; found "
                    f"so far: {self._counts()}",
                    hint=(remedy,),
                ),
                file=file,
                record=record,
                field=name,
            )
        warn(
            Message(
                f"{has}, which is not in the schema ({self._origin}) and is not read; found so "
                f"far: {self._counts()}. To read it, ",
                remedy,
                ".",
            ),
            UnknownFeatureWarning,
        )

    def _counts(self) -> str:
        rows = self.rows
        texts = [f"{name!r} in {n:,} record{'s'[: n > 1]}" for name, n in rows.items()]
        more = [f"and {len(texts) - _NAMED:,} more"] if len(texts) > _NAMED else []
        return ", ".join(texts[:_NAMED] + more)


def _key_text(key: bytes) -> str:
    return key.decode("utf-8", "backslashreplace")
