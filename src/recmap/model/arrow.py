"""Arrow: hand batches to other libraries, and read theirs, without copies where possible.

Both directions use the Arrow PyCapsule interface, which needs no package. ``ArrowBatches`` is
what polars, pyarrow, DuckDB and pandas read; ``ArrowReader`` reads what they hold.
"""

from __future__ import annotations

import reprlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Literal

import numpy as np

from recmap.errors import (
    DataError,
    FieldMismatchError,
    FieldNotFoundError,
    OptionTypeError,
    RecmapError,
)
from recmap.model.arguments import check_choice, check_column_name, no_column
from recmap.model.arrow_export import Tensors, arrow_batch, arrow_type
from recmap.model.arrow_import import ArrowKind, exact, holds_nulls, make_readers, seen
from recmap.model.arrow_readers import ArrayReader, BadRowError
from recmap.model.field import Field
from recmap.model.null_columns import kept, of_field
from recmap.model.nulls import NULL_SUFFIX, NULLS, Nulls, fill_rows, mask_taken, null_item
from recmap.model.schema import Batch, Schema
from recmap.native import _core


class ArrowBatches:
    """Batches for any library that reads Arrow streams. One batch is one record batch.

    Rows with several axes have the type ``arrow.fixed_shape_tensor``; with
    ``tensors="list"`` they are lists of lists. A batch is made when it is asked for, and its
    memory stays in use until the consumer releases it.
    """

    def __init__(
        self,
        schema: Schema,
        batches: Iterable[Mapping[str, Any]],
        tensors: Tensors = "extension",
    ) -> None:
        check_choice("tensors", tensors, ("extension", "list"))
        self._schema, self._batches, self._tensors = schema, batches, tensors
        self._type = arrow_type(schema, tensors)
        #: What ended the last stream too early. Consumers know only its text.
        self.error: BaseException | None = None

    def __arrow_c_schema__(self) -> object:
        return _core.export_arrow_schema(self._type)

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        # Consumers cast to the schema they requested, if they can.
        del requested_schema
        return _core.export_arrow_stream(self._type, self._columns())

    def _columns(self) -> Iterator[_core.ArrowColumn]:
        self.error = None
        try:
            for batch in self._batches:
                yield arrow_batch(batch, self._schema, self._tensors)
        except GeneratorExit:
            raise
        except BaseException as e:
            self.error = e
            raise


class ArrowReader:
    """The batches of an object with ``__arrow_c_stream__`` or ``__arrow_c_array__``.

    Dictionaries are decoded, structs become columns ``a/b``, strings are text, and lists are
    ragged unless they have a fixed size. Timestamps are UTC; their time zone is dropped. Times
    of day are durations since midnight. ``nulls`` says what becomes of missing values, see
    ``recmap.model.nulls``. ``fields`` may give the fill value of a column, the type of one that
    has only nulls, bytes for strings that are not UTF-8, or int64 for times.

    Only the columns in ``names`` are read, and nothing else of the object is looked at. Without
    it, all are read, and one that cannot be raises, unless ``lenient`` leaves it out.

    Most columns are declared nullable, though they have no nulls. If ``known`` is ``"type"``, the
    types say exactly which may have some; if ``"data"``, all data is in memory and is looked at. If
    ``"none"``, nothing is known before it is read: columns are not nullable, unless ``fields`` says
    so, and a null is an error.

    Batches are views of the object's memory where their types allow it, and keep it alive.
    """

    def __init__(
        self,
        source: Any,
        nulls: Nulls = "error",
        *,
        fields: Mapping[str, Field] | None = None,
        names: Collection[str] | None = None,
        lenient: bool = False,
        known: Literal["type", "data", "none"] | None = None,
    ) -> None:
        check_choice("nulls", nulls, NULLS)
        self._nulls, self._source = nulls, type(source).__qualname__
        declared, self._arrays = _open(source)
        kind: ArrowKind = declared
        with _refused(self._source):
            if known == "type":
                kind = exact(declared)
            elif known == "data":
                arrays = list(self._arrays)
                kind, self._arrays = seen(declared, arrays), iter(arrays)
            elif known == "none":
                kind = seen(declared, [])
        self._readers, self._fields, refused = _columns(kind, fields or {}, nulls)
        #: Why columns cannot be read, if they were left out.
        self.refused = refused if lenient else {}
        if names is not None:
            chosen = {*names}
            _check_names(names, {**self._readers, **refused})
            self._readers = {
                name: reader
                for name, reader in self._readers.items()
                if name in chosen or name + NULL_SUFFIX in chosen
            }
            refused = {name: why for name, why in refused.items() if name in chosen}
        if not lenient:
            for why in refused.values():
                raise why
        #: What else columns may be read as.
        self.alternatives = {
            name: reader.alternative
            for name, reader in self._readers.items()
            if reader.alternative is not None
        }
        # Null dates are NaT, so they need no mask.
        self._masked = [
            name
            for name, reader in self._readers.items()
            if nulls == "mask" and reader.nullable and reader.field.dtype.kind not in "mM"
        ]
        self.schema = self._make_schema()

    def _make_schema(self) -> Schema:
        fields: dict[str, Field] = {}
        for name in self._readers:
            fields[name] = self._fields[name]
            if name in self._masked:
                mask = name + NULL_SUFFIX
                if mask in self._fields:
                    raise mask_taken(mask)
                fields[mask] = Field(np.bool_)
        return Schema(fields)

    def batches(self, rows: int | None = None, first_row: int = 0) -> Iterator[Batch]:
        """Yield all batches, once.

        With ``rows``, large batches are read in parts of this many rows, which bounds the memory
        that a conversion of their values takes. Errors count rows from ``first_row``.
        """
        while True:
            with _refused(self._source):
                array = next(self._arrays, None)
            if array is None:
                return
            length = array.length
            for start in range(0, length, rows or max(length, 1)):
                stop = min(length, start + rows) if rows else length
                yield self._batch(array, start, stop, first_row + start)
            first_row += length

    def _batch(self, array: _core.ArrowArray, start: int, stop: int, first_row: int) -> Batch:
        batch: Batch = {}
        for name, reader in self._readers.items():
            field = self._fields[name]
            try:
                with _refused(self._source):
                    column, missing = reader.read(array, start, stop)
            except BadRowError as e:
                row = first_row + e.row
                if e.reason is None:
                    raise null_item(name, reader.field, row, self._nulls) from None
                message = f"column {name!r}, row {row:,}: {e.reason}"
                raise DataError(message, field=name, record=row) from None
            if missing is not None:
                nulls = self._nulls if self._nulls != "keep" else _row_mode(field)
                if nulls == "keep":
                    column = kept(column, missing)
                else:
                    given = self._nulls == "keep"
                    column = fill_rows(name, column, field, missing, nulls, first_row, given=given)
            batch[name] = of_field(column, field)
            if name in self._masked:
                mask = np.zeros(stop - start, bool) if missing is None else missing
                batch[name + NULL_SUFFIX] = mask
        return batch


def _row_mode(field: Field) -> Nulls:
    """Say what becomes of the null rows of a column that may keep them."""
    if field.fill is not None:
        return "fill"
    dates = field.dtype.kind in "mM" and not field.ragged
    return "keep" if field.nullable or dates else "error"


@contextmanager
def _refused(source: str) -> Iterator[None]:
    """Turn what the native core says of foreign data into an error of the data."""
    try:
        yield
    except RecmapError:
        raise
    except (RuntimeError, ValueError, TypeError) as e:
        raise DataError(f"reading Arrow data of {source}: {e}") from None


def _open(source: Any) -> tuple[_core.ArrowType, Iterator[_core.ArrowArray]]:
    """Return the type of the batches, and the batches."""
    if hasattr(source, "__arrow_c_stream__"):
        (capsule,) = _asked(source, "__arrow_c_stream__", 1)
        with _refused(type(source).__qualname__):
            stream = _core.ArrowStream(capsule)
            return stream.type(), iter(stream.next, None)
    if hasattr(source, "__arrow_c_array__"):
        schema, items = _asked(source, "__arrow_c_array__", 2)
        with _refused(type(source).__qualname__):
            kind, array = _core.import_arrow_array(schema, items)
            return kind, iter([array])
    raise OptionTypeError(
        f"{type(source).__name__} has neither __arrow_c_stream__ nor __arrow_c_array__"
    )


def _asked(source: Any, method: str, count: int) -> tuple[Any, ...]:
    """Ask an object for its data, as Arrow capsules."""
    kind = type(source).__qualname__
    try:
        given = getattr(source, method)()
    except (RecmapError, ModuleNotFoundError):
        raise
    except Exception as e:  # other libraries may raise anything
        raise DataError(f"{kind} cannot give its columns to Arrow: {type(e).__name__}: {e}") from e
    capsules = given if isinstance(given, tuple) else (given,)
    if len(capsules) != count or any(type(each).__name__ != "PyCapsule" for each in capsules):
        raise DataError(
            f"{kind} cannot give its columns to Arrow: {method} returned {reprlib.repr(given)}, "
            "not what the Arrow PyCapsule interface says"
        )
    return capsules


def _columns(
    kind: ArrowKind, fields: Mapping[str, Field], nulls: Nulls
) -> tuple[dict[str, ArrayReader], dict[str, Field], dict[str, RecmapError]]:
    """Return the readers and fields of all columns, and why some cannot be read."""
    # A single array, such as a polars Series, is a column.
    name = "" if kind.format == b"+s" else kind.name.decode(errors="replace") or "data"
    readers: dict[str, ArrayReader] = {}
    found: dict[str, Field] = {}
    refused: dict[str, RecmapError] = {}
    for path, reader in make_readers(kind, name, fields, nulls):
        if not path and isinstance(reader, RecmapError):
            raise reader  # not of a column, but of the table
        try:
            checked = _checked(path, reader, path in readers or path in refused)
            field = _nullable(checked) if nulls == "keep" else checked.field
            found[path] = _given(path, field, fields.get(path))
            readers[path] = checked
        except RecmapError as e:
            for made_before in (readers, found):
                made_before.pop(path, None)
            refused[path] = e
    for path in fields:
        if path not in readers and path not in refused:
            raise FieldNotFoundError(no_column(path, readers))
    return readers, found, refused


def _check_names(names: Collection[str], known: Collection[str]) -> None:
    for name in names:
        if name not in known and name.removesuffix(NULL_SUFFIX) not in known:
            raise FieldNotFoundError(no_column(name, known))


def _checked(path: str, reader: ArrayReader | RecmapError, taken: bool) -> ArrayReader:
    if isinstance(reader, RecmapError):
        raise reader
    check_column_name(path)
    if taken:
        raise DataError(f"two columns with the name {path!r}; rename one", field=path)
    return reader


def _nullable(reader: ArrayReader) -> Field:
    """Return the field of a reader, which may be null."""
    return replace(
        reader.field, fill=None, nullable=holds_nulls(reader), null_items=reader.null_items
    )


def _given(name: str, found: Field, given: Field | None) -> Field:
    """Return the field of a column: the one found, with the fill value of the one given."""
    if given is None:
        return replace(found, fill=None)
    if (given.dtype, given.shape) != (found.dtype, found.shape):
        raise FieldMismatchError(
            f"column {name!r} is {found.without_nulls()}, not {given}; cast it with ds.cast(...)",
            field=name,
        )
    # Null items were filled when they were read. Rows are not.
    return replace(given, fill=None) if given.ragged else given
