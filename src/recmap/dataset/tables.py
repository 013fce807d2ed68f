"""Tables of other libraries as rows: Arrow, pandas and Hugging Face datasets."""

from __future__ import annotations

import datetime as dt
import sys
from collections.abc import Collection, Mapping, Sequence
from decimal import Decimal
from functools import partial
from typing import Any, NamedTuple

import numpy as np

from recmap.dataset.rows import OpenedRows
from recmap.errors import (
    ColumnError,
    DataError,
    LeftOutWarning,
    MissingPackageError,
    OptionError,
    RecmapError,
)
from recmap.formats.array_object import open_array
from recmap.formats.column_readers import DEFAULT_NAME
from recmap.formats.combined import ConcatenatedSource, SideBySideSource
from recmap.formats.memory import StreamSource, memory_source
from recmap.formats.registry import notes_types
from recmap.model.arguments import check_column_name
from recmap.model.arrow import ArrowReader
from recmap.model.coerce import Given, as_columns, fit, infer_schema, text_column
from recmap.model.facts import IndexLevel, TableType
from recmap.model.field import Field
from recmap.model.null_columns import empty_column
from recmap.model.nulls import NULL_SUFFIX, Nulls
from recmap.model.order import Picked
from recmap.model.ordered_rows import OrderedRows
from recmap.model.schema import Schema
from recmap.model.source import Source, WithFacts
from recmap.model.table_notes import arrow_types, innermost
from recmap.warn import warn

# Objects whose rows are computed each time, perhaps in another order.
_COMPUTED = ("duckdb", "_duckdb")
# Values of pandas' object columns that Arrow would turn into lists, even if all have one length.
_SEQUENCES = (list, tuple, np.ndarray)


def is_table(x: Any) -> bool:
    """Return whether an object is a table, or a column of one."""
    if isinstance(x, type):
        return False
    if hasattr(x, "dims"):  # an array of xarray, which streams a row for each of its values
        return False
    arrow = hasattr(x, "__arrow_c_stream__") or hasattr(x, "__arrow_c_array__")
    return arrow or _is_pandas(x)


def _is_pandas(x: Any) -> bool:
    pandas = sys.modules.get("pandas")
    return pandas is not None and isinstance(x, pandas.DataFrame | pandas.Series)


class Wanted(NamedTuple):
    """What is wanted of a table.

    ``fields`` may give the fill values of columns with nulls. ``names`` are the columns to read;
    None for all.
    """

    nulls: Nulls
    fields: Mapping[str, Field]
    names: Collection[str] | None = None

    def of(self, columns: Sequence[str], every: Sequence[str]) -> Wanted:
        """Return what is wanted of some columns of all."""

        def mine(name: str) -> bool:
            return any(_belongs(name, column, every) for column in columns)

        names = None if self.names is None else list(filter(mine, self.names))
        fields = {name: field for name, field in self.fields.items() if mine(name)}
        return Wanted(self.nulls, fields, names)


def open_table(x: Any, wanted: Wanted, column: str | None = None) -> OpenedRows:
    """Open a table. ``column`` is the name for an object that is a single column."""
    if _is_pandas(x):
        frame = _frame(x, column)
        source = _open_pandas(frame, wanted)
        types = {name: _pandas_type(frame[name]) for name in frame.columns}
        index = None if frame.index.identical(_default_index(frame)) else frame.index
        return OpenedRows(_from_table(source, types, index), lasting=False)
    table = _with_columns(x, column)
    source = _from_table(_open_arrow(table, wanted), _arrow_types(table))
    return OpenedRows(source, lasting=False)


def _from_table(source: Source, types: Mapping[str, Any], index: Any = None) -> Source:
    """Return the rows of a table, with the types that go back to its library as they were."""
    known = {
        name: TableType(source.schema[name], dtype)
        for name, dtype in types.items()
        if dtype is not None and name in source.schema
    }
    return WithFacts(source, table_types=known, table_index=index)


def _default_index(frame: Any) -> Any:
    return sys.modules["pandas"].RangeIndex(len(frame))


def _pandas_type(values: Any) -> Any:
    """Return the dtype of a column of pandas, or the class of the objects in it."""
    first = _first(values) if values.dtype == object else None
    if isinstance(first, _SEQUENCES):
        return np.ndarray if isinstance(first, np.ndarray) else list
    if isinstance(first, Decimal | dt.time):
        return Decimal if isinstance(first, Decimal) else dt.time
    return values.dtype


def _arrow_types(table: Any) -> dict[str, Any]:
    """Return the types of columns of polars or pyarrow that fields do not tell."""
    package = type(table).__module__.partition(".")[0]
    if package == "polars" and hasattr(table, "schema"):
        told = ("Array", "Null", "Categorical", "Enum", "Time", "Datetime", "Decimal")
        items = {name: innermost(each) for name, each in table.schema.items()}
        types = {name: each for name, each in items.items() if type(each).__name__ in told}
        zoned = [n for n, each in types.items() if getattr(each, "time_zone", "") is not None]
        return {name: table.schema[name] for name in zoned}
    if package != "pyarrow":
        return {}
    return arrow_types(table.schema)


def open_hugging_face(dataset: Any, wanted: Wanted) -> OpenedRows:
    """Open a dataset of Hugging Face through its Arrow table, which may be mapped from files."""
    reopen = partial(_open_hugging_face, dataset, wanted)
    return OpenedRows(reopen(), lasting=False, reopen=reopen)


def _open_arrow(x: Any, wanted: Wanted) -> Source:
    # Masks are made here, so they have no field to be read with.
    fields = {n: field for n, field in wanted.fields.items() if not n.endswith(NULL_SUFFIX)}
    try:
        stored = _is_stored(x)
        unseen = "none" if wanted.nulls == "keep" else None
        known: Any = "data" if stored else unseen
        reader = ArrowReader(x, wanted.nulls, fields=fields, names=wanted.names, known=known)
    except ModuleNotFoundError as e:
        raise MissingPackageError(
            "text, categories and other columns that NumPy does not have need pyarrow",
            extra="arrow",
        ) from e
    if not stored:
        return StreamSource(reader.batches(), reader.schema)
    parts: list[Source] = [memory_source(batch, reader.schema) for batch in reader.batches()]
    if not parts:
        empty = {name: empty_column(field) for name, field in reader.schema.items()}
        parts = [memory_source(empty, reader.schema)]
    return parts[0] if len(parts) == 1 else ConcatenatedSource(parts)


def _is_stored(x: Any) -> bool:
    """Return whether the rows of a table are in memory, and can be read again."""
    package = type(x).__module__.partition(".")[0]
    return package not in _COMPUTED and hasattr(x, "__len__")


def _with_columns(x: Any, name: str | None) -> Any:
    """Return a table; a single column becomes a table of one."""
    package, kind = type(x).__module__.partition(".")[0], type(x).__qualname__
    if package == "polars" and kind == "Series":
        x = x.to_frame(name or x.name or DEFAULT_NAME)
    if package == "polars" and sys.modules["polars"].Object in x.dtypes:
        raise OptionError(
            "a column of Python objects, which polars exports only as bare addresses; convert it "
            "to numbers, text or lists first"
        )
    if package == "pyarrow" and not hasattr(x, "schema"):  # an Array or ChunkedArray
        return sys.modules["pyarrow"].table({name or DEFAULT_NAME: x})
    return x


def _frame(x: Any, name: str | None) -> Any:
    if hasattr(x, "columns"):
        return x
    return x.to_frame(name or (DEFAULT_NAME if x.name is None else x.name))


def _open_pandas(frame: Any, wanted: Wanted) -> Source:
    """Return the columns of a DataFrame: those of NumPy as they are, the others through Arrow."""
    names = list(frame.columns)
    if wanted.names is not None:
        places = [
            place
            for place, name in enumerate(names)
            if any(_belongs(own, name, names) for own in wanted.names)
        ]
        frame = frame.iloc[:, places]
        names = list(frame.columns)
    if len(set(names)) != len(names):
        twice = next(name for name in names if names.count(name) > 1)
        raise ColumnError(f"the DataFrame has two columns {twice!r}; rename one of them")
    for name in names:
        if not isinstance(name, str):
            raise ColumnError(
                f"the DataFrame has a column {name!r}, but names are text; rename it: "
                "df.columns = df.columns.map(str)"
            )
        check_column_name(name)
    _warn_of_index(frame.index)
    if not names:
        return memory_source({}, Schema({}))
    sources: dict[str, Source] = {}
    others = []
    for place, name in enumerate(names):
        values = frame.iloc[:, place]
        if isinstance(values.dtype, np.dtype) and values.dtype.kind in "biufcmM":
            sources[name] = open_array(values.to_numpy(), name)[0]
        elif (found := _of_sequences(name, values)) is not None:
            sources[name] = found
        else:
            others.append(place)
    if others:
        chosen = frame.iloc[:, others].reset_index(drop=True)
        theirs = [names[place] for place in others]
        try:
            sources[""] = _open_arrow(chosen, wanted.of(theirs, names))
        except DataError as e:
            _refuse_infinite(chosen, e)
            raise
        for own in sources[""].schema:
            if own in sources:
                raise ColumnError(f"the DataFrame has two columns {own!r}; rename one of them")
    beside = SideBySideSource(sources)
    order = [own for name in names for own in beside.schema if _belongs(own, name, names)]
    return beside.select(order)


def _refuse_infinite(frame: Any, error: DataError) -> None:
    """Name an infinite decimal, if there is one: pyarrow does not say what it cannot read."""
    for name in frame.columns[[dtype.kind == "O" for dtype in frame.dtypes]]:
        for row, value in enumerate(frame[name]):
            if isinstance(value, Decimal) and value.is_infinite():
                raise DataError(
                    f"the DataFrame has {value!r} in column {name!r}, row {row:,}, and "
                    f"Arrow's decimals are finite; convert the column: df[{name!r}].astype(float)",
                    field=name,
                ) from error


def _belongs(own: str, name: str, names: Sequence[str]) -> bool:
    """Return whether a column comes from one of the DataFrame: its own, a field or its mask."""
    return own == name or (own not in names and own.startswith(f"{name}/"))


def _of_sequences(name: str, values: Any) -> Source | None:
    """Return a column of lists or arrays; None if Arrow has to read it because of nulls."""
    sequences = values.dtype == object and isinstance(_first(values), _SEQUENCES)
    if not sequences or values.isna().any():
        return None
    try:
        given = as_columns({name: values.tolist()})
        if given[name].text:
            given = {name: Given(text_column(name, given[name].column), exact=True)}
    except ColumnError:
        if _arrow_reads(values):  # lists of lists, or with nulls inside
            return None
        raise
    schema = infer_schema(given)
    return memory_source(fit(given, schema)[0], schema)


def _arrow_reads(values: Any) -> bool:
    try:
        values.to_frame("x").__arrow_c_stream__()
    except Exception:  # pandas and pyarrow raise many kinds
        return False
    return True


def _first(values: Any) -> Any:
    """Return the first value that is not None."""
    return next((value for value in values if value is not None), None)


def _warn_of_index(index: Any) -> None:
    named = [repr(name) for name in index.names if name is not None]
    if named:
        warn(
            f"the index {' and '.join(named)} of the DataFrame is not a column of the dataset; "
            "to_pandas() gives it back, and df.reset_index() makes it a column",
            LeftOutWarning,
        )


def _open_hugging_face(dataset: Any, wanted: Wanted) -> Source:
    table = _with_encoded_media(dataset)
    source = _open_arrow(table, wanted)
    if dataset._indices is None:  # noqa: SLF001  # there is no public way to get them
        return source
    rows = dataset._indices.column(0).to_numpy()  # noqa: SLF001
    return OrderedRows(source, Picked(np.asarray(rows, np.int64)))


def _with_encoded_media(dataset: Any) -> Any:
    """Return the table, with the encoded bytes of images and audio instead of ``bytes, path``."""
    table = dataset.data.table
    for place, (name, feature) in enumerate(dataset.features.items()):
        if type(feature).__name__ not in ("Image", "Audio", "Video", "Pdf"):
            continue
        column = table.column(name)
        if not hasattr(column.type, "get_field_index"):
            continue
        content, path = (column.type.get_field_index(part) for part in ("bytes", "path"))
        chunks = [chunk.flatten() for chunk in column.chunks]
        for chunk in chunks:
            absent = chunk[content].is_null().to_numpy(zero_copy_only=False)
            elsewhere = absent & chunk[path].is_valid().to_numpy(zero_copy_only=False)
            if elsewhere.any():
                raise OptionError(
                    f"column {name!r}: {chunk[path][int(np.argmax(elsewhere))]} is only named, "
                    "not stored in the dataset; store the files first: "
                    'ds.with_format("arrow").map(datasets.table.embed_table_storage, batched=True)'
                )
        stored = sys.modules["pyarrow"].chunked_array([chunk[content] for chunk in chunks])
        table = table.set_column(place, name, stored)
    return table


def with_index(source: Source, format: str, options: Mapping[str, Any]) -> Source:
    """Return the columns of a DataFrame and its index, if files of the format can note that.

    The index is a column for each level, which is hidden when it is read: its name is one that
    pandas gives it, too, and the note of its type says that it is a level.
    """
    index = source.facts.table_index
    if index is None or not notes_types(format, options):
        return source
    try:
        levels = index if isinstance(index, Source) else _index_levels(index, source)
        if any(name in source.schema for name in levels.schema):
            return source
        return SideBySideSource({"the columns": source, "the index": levels})
    except RecmapError as e:
        warn(
            f"the index of the DataFrame is left out: {e}; df.reset_index() makes it a column",
            LeftOutWarning,
        )
        return source


def _index_levels(index: Any, source: Source) -> Source:
    """Return the index of a DataFrame as columns."""
    before = ""
    while any(name.startswith(f"{before}__index_level_") for name in source.schema):
        before += "_"
    names = [f"{before}__index_level_{number}__" for number in range(index.nlevels)]
    frame = index.to_frame(index=False, name=names if index.nlevels > 1 else names[0])
    opened = open_table(frame, Wanted("keep", {})).source
    if list(opened.schema) != names:
        raise ColumnError("it holds structs, such as intervals")
    levels = [_index_level(index.get_level_values(number)) for number in range(index.nlevels)]
    types = opened.facts.table_types
    known = dict(zip(names, levels, strict=True))
    return WithFacts(
        opened,
        table_types={
            name: TableType(field, types[name].dtype, known[name])
            for name, field in opened.schema.items()
        },
    )


def _index_level(values: Any) -> IndexLevel:
    name = values.name.item() if hasattr(values.name, "item") else values.name
    if not isinstance(name, str | int | float | None):
        raise ColumnError(f"its name is {name!r}, which is neither text nor a number")
    step = getattr(values, "step", None)
    freq = getattr(values, "freqstr", None)
    return IndexLevel(name, step, freq)
