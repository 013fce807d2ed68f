"""Give columns the types that they had in the table they come from.

A field does not say everything: whether text was a category, or the time zone of a date. So what
comes from pandas, polars or pyarrow remembers its type (``table_types`` of ``SourceFacts``), and
goes back to the same library as it was. A type that no longer fits the values is left alone. The
library is there already: its own adapter has imported it.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any

import numpy as np

from recmap.model.facts import NotedType, TableType
from recmap.model.ragged import Column, Ragged
from recmap.model.schema import Schema

# What a library raises for values that a type cannot hold, besides errors of its own.
_MISFITS = (TypeError, ValueError, OverflowError, NotImplementedError, AttributeError)


def remembered(schema: Schema, types: Mapping[str, TableType], library: str) -> dict[str, Any]:
    """Return the types of columns that come from a library, and still have the same fields."""
    fitting = {n: t.dtype for n, t in types.items() if n in schema and t.fits(schema[n])}
    found = {n: dtype for n, dtype in fitting.items() if _library(dtype) == library}
    return {name: _made(dtype) for name, dtype in found.items()}


def _made(noted: Any) -> Any:
    """Return the type that a file notes, or None if there is no such type; others as they are."""
    if not isinstance(noted, NotedType):
        return noted
    try:
        return _pandas_type(noted) if noted.package == "pandas" else _polars_type(noted)
    except (*_MISFITS, KeyError):
        return None


def _pandas_type(noted: NotedType) -> Any:
    pd: Any = sys.modules["pandas"]
    if noted.text in ("list", "ndarray"):
        return {"list": list, "ndarray": np.ndarray}[noted.text]
    if noted.text == "category":
        return pd.CategoricalDtype(noted.parts, noted.ordered)
    return pd.api.types.pandas_dtype(noted.text)


def _polars_type(noted: NotedType) -> Any:
    pl: Any = sys.modules["polars"]
    types = {"Categorical": pl.Categorical, "Enum": pl.Enum, "Time": pl.Time}
    made: Any = {**types, "Datetime": pl.Datetime}[noted.text]
    if noted.text == "Enum":
        return pl.Enum(noted.parts)
    return made(*noted.parts)


def _library(dtype: Any) -> str:
    """Return the library that a type belongs to. Objects and dtypes of NumPy are in pandas."""
    if isinstance(dtype, NotedType):
        return dtype.package
    package = (dtype if isinstance(dtype, type) else type(dtype)).__module__.partition(".")[0]
    return "pandas" if package in ("numpy", "builtins") else package


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
    if isinstance(dtype, type) or dtype == series.dtype:
        return series
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


def as_polars(series: Any, dtype: Any) -> Any:
    """Return a series of polars as one of another type, if that holds all of its values."""
    pl: Any = sys.modules["polars"]
    try:
        if getattr(dtype, "time_zone", None):
            made = series.dt.replace_time_zone("UTC").dt.convert_time_zone(dtype.time_zone)
        elif dtype == pl.Time:
            made = series.to_physical().cast(pl.Time)
        else:
            made = series.cast(dtype)
    except (*_MISFITS, pl.exceptions.PolarsError):
        return series
    return made


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
    if pa.types.is_dictionary(dtype):
        column = column.cast(dtype.value_type).dictionary_encode()
    elif pa.types.is_time(dtype):  # which were read as durations
        column = column.cast(pa.int64()).cast(pa.int32() if dtype.bit_width == 32 else pa.int64())
    return column.cast(dtype)
