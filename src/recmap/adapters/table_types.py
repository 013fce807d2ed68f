"""Give columns the types that they had in the table they come from.

A field does not say everything: whether text was a category, or the time zone of a date. So what
comes from pandas, polars or pyarrow remembers its type (``table_types`` of ``SourceFacts``), and
goes back to the same library as it was. A type that no longer fits the values is left alone. The
library is there already: its own adapter has imported it.
"""

from __future__ import annotations

import base64
import datetime as dt
import sys
from collections.abc import Mapping
from contextlib import suppress
from decimal import Decimal
from typing import Any

import numpy as np

from recmap.model.facts import PANDAS_PERIODS, IndexLevel, NotedType, TableType
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Schema
from recmap.model.table_notes import POLARS_LIST, innermost, special_items

# What a library raises for values that a type cannot hold, besides errors of its own.
_MISFITS = (TypeError, ValueError, OverflowError, NotImplementedError, AttributeError)
# Nanoseconds of a day.
_DAY = 86_400 * 10**9
# Classes of the objects in columns of pandas.
_CLASSES: Mapping[str, type] = {
    "list": list,
    "ndarray": np.ndarray,
    "Decimal": Decimal,
    "time": dt.time,
}


def remembered(schema: Schema, types: Mapping[str, TableType], library: str) -> dict[str, Any]:
    """Return the types of columns that come from a library, and still have the same fields."""
    fitting = {n: t.dtype for n, t in types.items() if n in schema and t.fits(schema[n])}
    found = {name: _of_library(dtype, library) for name, dtype in fitting.items()}
    return {name: dtype for name, dtype in found.items() if dtype is not None}


def _of_library(dtype: Any, library: str) -> Any:
    """Return a type of a library, or what it has for one of pyarrow; None if it has none."""
    if _library(dtype) == library:
        return _made(dtype)
    made = _made(dtype) if _library(dtype) == "pyarrow" and "pyarrow" in sys.modules else None
    if made is None:
        return None
    pa, their = sys.modules["pyarrow"], sys.modules[library]
    if library == "polars":
        try:
            return their.from_arrow(pa.array([], made)).dtype
        except (*_MISFITS, pa.ArrowException, their.exceptions.PolarsError):
            return None
    if pa.types.is_timestamp(made) and made.tz is not None:
        return their.DatetimeTZDtype(made.unit, made.tz)
    if pa.types.is_dictionary(made):
        return "category"
    if str(made).startswith(PANDAS_PERIODS):
        return made.to_pandas_dtype()
    if pa.types.is_decimal(made) and made.scale > 0:
        return Decimal
    return dt.time if pa.types.is_time(made) else None


def _made(noted: Any) -> Any:
    """Return the type that a file notes, or None if there is no such type; others as they are."""
    if not isinstance(noted, NotedType):
        return noted
    made = {"pandas": _pandas_type, "polars": _polars_type, "pyarrow": _arrow_type}
    try:
        return made[noted.package](noted)
    except (*_MISFITS, KeyError):
        return None


def _pandas_type(noted: NotedType) -> Any:
    pd: Any = sys.modules["pandas"]
    if noted.text in _CLASSES:
        return _CLASSES[noted.text]
    if noted.text.startswith("arrow:"):
        return pd.ArrowDtype(_arrow_type(noted._replace(text=noted.text.removeprefix("arrow:"))))
    if noted.text == "category":
        return pd.CategoricalDtype(noted.parts, noted.ordered)
    return pd.api.types.pandas_dtype(noted.text)


def _arrow_type(noted: NotedType) -> Any:
    pa: Any = sys.modules["pyarrow"]
    try:
        if not noted.parts:
            return pa.type_for_alias(noted.text)
        return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(noted.parts[0]))).field(0).type
    except (pa.ArrowException, OSError, IndexError) as e:
        raise ValueError(str(e)) from None


def _polars_type(noted: NotedType) -> Any:
    pl: Any = sys.modules["polars"]
    types = {"Categorical": pl.Categorical, "Enum": pl.Enum, "Time": pl.Time, "Null": pl.Null}
    inner = noted.text.removeprefix(POLARS_LIST)
    if inner != noted.text:
        return pl.List(_polars_type(noted._replace(text=inner)))
    made: Any = {**types, "Datetime": pl.Datetime, "Decimal": pl.Decimal}[noted.text]
    if noted.text == "Enum":
        return pl.Enum(noted.parts)
    return made(*noted.parts)


def _library(dtype: Any) -> str:
    """Return the library that a type belongs to. Objects and dtypes of NumPy are in pandas."""
    if isinstance(dtype, NotedType):
        return dtype.package
    if hasattr(dtype, "storage_type"):  # the class of an extension type may be anyone's
        return "pyarrow"
    package = (dtype if isinstance(dtype, type) else type(dtype)).__module__.partition(".")[0]
    return "pandas" if package in ("numpy", "builtins", "decimal", "datetime") else package


def cells(column: Column, dtype: Any) -> list[Any]:
    """Return rows of several values as objects: lists, unless they were arrays.

    >>> cells(Ragged.from_rows([[1, 2], []]), None)
    [[1, 2], []]
    """
    arrays = dtype is np.ndarray or (dtype is None and not isinstance(column, Ragged))
    return list(column) if arrays and not _nested(column) else column.tolist()


def _nested(column: Column) -> bool:
    """Return whether the rows of a column are ragged themselves, or hold nulls or strings."""
    return isinstance(column, Ragged) and (
        isinstance(column.values, Ragged) or type(column.values) is not np.ndarray
    )


def as_pandas(series: Any, dtype: Any) -> Any:
    """Return a series of pandas as one of another dtype, if that holds all of its values."""
    try:
        made = _pandas(series, dtype)
    except _MISFITS:
        return series
    return made if made.isna().equals(series.isna()) else series


def _pandas(series: Any, dtype: Any) -> Any:
    if dtype is Decimal or dtype is dt.time:
        convert = _decimal if dtype is Decimal else _time
        objects = [None if m else convert(x) for x, m in zip(series, series.isna(), strict=True)]
        return type(series)(objects, dtype=object)
    if isinstance(dtype, type) or dtype == series.dtype:
        return series
    if hasattr(dtype, "pyarrow_dtype"):
        pa: Any = sys.modules["pyarrow"]
        values = [x.tobytes() if isinstance(x, np.void) else x for x in series]
        given = pa.array(values if series.dtype == object else series, from_pandas=True)
        made = _arrow(pa.chunked_array([given]), dtype.pyarrow_dtype)
        return type(series)(sys.modules["pandas"].arrays.ArrowExtensionArray(made))
    if hasattr(dtype, "freq"):
        return _periods(series, dtype)
    if hasattr(dtype, "categories") and series.dtype.kind == "M":
        series = _pandas(series, dtype.categories.dtype)  # with a time zone, or dates of Python
    if hasattr(dtype, "categories") and not series.dropna().isin(dtype.categories).all():
        raise ValueError("values that are not among the categories")
    zone = getattr(dtype, "tz", None)
    if zone is not None:
        return series.dt.tz_localize("UTC").dt.tz_convert(zone).astype(dtype)
    if isinstance(dtype, np.dtype) and dtype.kind == "O":
        objects = series.dt.date if series.dtype.kind == "M" else series.astype(object)
        missing = series.isna()
        return type(series)(
            [None if m else x for x, m in zip(objects, missing, strict=True)], dtype=object
        )
    return series.astype(dtype)


def as_index(series: Any, level: IndexLevel) -> Any:
    """Return a series of pandas as an index, with what else is known of it if that fits."""
    pd: Any = sys.modules["pandas"]
    index = pd.Index(series, dtype=series.dtype, name=level.name)
    if level.step is not None:
        first = int(index[0]) if len(index) else 0
        made = pd.RangeIndex(first, first + level.step * len(index), level.step, name=level.name)
        return made if made.equals(index) else index
    if level.freq is not None and hasattr(index, "freq"):
        with suppress(*_MISFITS):
            index.freq = level.freq
    return index


def _decimal(value: Any) -> Decimal:
    """Return the decimal number that is written like a float, or that a text is."""
    return Decimal(value if isinstance(value, str) else repr(float(value)))


def _time(value: Any) -> dt.time:
    """Return a time of day, which is read as the duration since midnight."""
    if not 0 <= value.value < _DAY or value.value % 1000:
        raise ValueError("not a time of day")
    midnight = dt.datetime(1, 1, 1, tzinfo=dt.UTC)
    made: dt.time = (midnight + value.to_pytimedelta()).time()
    return made


def _periods(series: Any, dtype: Any) -> Any:
    pd: Any = sys.modules["pandas"]
    missing = series.isna()
    ordinals = series.fillna(0).to_numpy(np.int64)
    made = type(series)(pd.arrays.PeriodArray(ordinals, dtype=dtype))
    return made.mask(missing) if missing.any() else made


def as_polars(series: Any, dtype: Any) -> Any:
    """Return a series of polars as one of another type, if that holds all of its values."""
    pl: Any = sys.modules["polars"]
    if dtype == pl.Null and series.null_count() < len(series):
        return series
    try:
        made = series.to_frame().select(_polars(pl.first(), dtype)).to_series()
        if innermost(dtype) == pl.Decimal and not made.cast(series.dtype).equals(series):
            return series
    except (*_MISFITS, pl.exceptions.PolarsError):
        return series
    return made


def _polars(values: Any, dtype: Any) -> Any:
    """Return an expression of polars as one of another type."""
    pl: Any = sys.modules["polars"]
    if dtype == pl.List:
        return values.list.eval(_polars(pl.element(), dtype.inner))
    if getattr(dtype, "time_zone", None):
        return values.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone)
    if dtype == pl.Time:
        return values.to_physical().cast(pl.Time)
    return values.cast(dtype)


def as_arrow(table: Any, types: Mapping[str, Any]) -> Any:
    """Return a table of pyarrow whose columns have these types, where they hold all values."""
    pa: Any = sys.modules["pyarrow"]
    for name, dtype in types.items():
        place = table.schema.get_field_index(name)
        try:
            table = table.set_column(place, name, _arrow(table.column(place), dtype))
        except (*_MISFITS, pa.ArrowException):
            continue
    return table


def _arrow(column: Any, dtype: Any) -> Any:
    pa: Any = sys.modules["pyarrow"]
    if pa.types.is_null(dtype) and column.null_count == len(column):
        return pa.chunked_array([pa.nulls(len(column))])
    if _is_list(dtype) and _is_list(column.type) and special_items(str(dtype)):
        column = _arrow_lists(column, dtype)
    if pa.types.is_dictionary(dtype):
        column = column.cast(dtype.value_type).dictionary_encode()
    elif pa.types.is_time(dtype):  # which were read as durations
        column = column.cast(pa.int64()).cast(pa.int32() if dtype.bit_width == 32 else pa.int64())
    elif pa.types.is_decimal(dtype) and pa.types.is_integer(column.type):
        column = column.cast(pa.string())
    elif pa.types.is_fixed_size_list(dtype) and pa.types.is_large_list(column.type):
        column = column.cast(pa.list_(column.type.value_type))
    made = column.cast(dtype)
    made.validate(full=True)
    if pa.types.is_decimal(dtype) and not _same_numbers(made, column):
        raise ValueError("decimals that would be rounded")
    return made


def _is_list(dtype: Any) -> bool:
    types = sys.modules["pyarrow"].types
    kinds = types.is_list, types.is_large_list, types.is_fixed_size_list
    return any(is_of_kind(dtype) for is_of_kind in kinds)


def _arrow_lists(column: Any, dtype: Any) -> Any:
    """Return lists whose items get the type of those of ``dtype``."""
    pa: Any = sys.modules["pyarrow"]
    lists = column.cast(pa.large_list(column.type.value_type)).combine_chunks()
    items = _arrow(pa.chunked_array([lists.values]), dtype.value_type).combine_chunks()
    # A list is null if its offset is.
    missing = np.append(lists.is_null().to_numpy(zero_copy_only=False), False)
    offsets = pa.array(lists.offsets.to_numpy(), mask=missing)
    return pa.chunked_array([pa.LargeListArray.from_arrays(offsets, items)])


def _same_numbers(decimals: Any, column: Any) -> bool:
    """Return whether decimals are those numbers or texts, which functions may have changed."""
    pa: Any = sys.modules["pyarrow"]
    if pa.types.is_null(column.type):
        return True
    if not (pa.types.is_string(column.type) or pa.types.is_large_string(column.type)):
        return bool(decimals.cast(column.type).equals(column))
    pairs = zip(decimals.to_pylist(), column.to_pylist(), strict=True)
    return all(one is None or one == Decimal(other) for one, other in pairs)
