"""``to_arrow``, ``to_polars`` and ``to_pandas``: all rows as a table in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from recmap.adapters.table_types import (
    as_arrow,
    as_index,
    as_pandas,
    as_polars,
    cells,
    remembered,
)
from recmap.errors import MissingPackageError
from recmap.model.arrow import ArrowBatches
from recmap.model.facts import IndexLevel, SourceFacts
from recmap.model.null_columns import empty_column
from recmap.model.ragged import Column, Ragged, concatenate, has_mask, null_mask
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl
    import pyarrow as pa

_T = TypeVar("_T")


def to_arrow(schema: Schema, batches: ArrowBatches, facts: SourceFacts) -> pa.Table:
    """Return all rows as a pyarrow table."""
    try:
        import pyarrow as pa
    except ImportError as e:
        raise MissingPackageError("to_arrow() needs PyArrow", extra="arrow") from e
    return as_arrow(_made(pa.table, batches), remembered(schema, facts.table_types, "pyarrow"))


def to_polars(schema: Schema, batches: ArrowBatches, facts: SourceFacts) -> pl.DataFrame:
    """Return all rows as a polars frame."""
    try:
        import polars as pl
    except ImportError as e:
        raise MissingPackageError("to_polars() needs Polars", extra="polars") from e
    frame = _made(pl.DataFrame, batches)
    types = remembered(schema, facts.table_types, "polars")
    kept = {name: each for name, each in types.items() if each is not None}
    return frame.with_columns(as_polars(frame[name], each) for name, each in kept.items())


def _made(make: Callable[[ArrowBatches], _T], batches: ArrowBatches) -> _T:
    try:
        return make(batches)
    except BaseException:
        # The consumer knows only the text of an error that ended the stream.
        if batches.error is not None:
            raise batches.error from None
        raise


def to_pandas(schema: Schema, batches: Iterable[Batch], facts: SourceFacts) -> pd.DataFrame:
    """Return all rows as a pandas frame. A row of several values is one object."""
    try:
        import pandas as pd
    except ImportError as e:
        raise MissingPackageError("to_pandas() needs pandas", extra="pandas") from e
    parts: dict[str, list[Column]] = {name: [empty_column(schema[name])] for name in schema}
    for batch in batches:
        for name, column in batch.items():
            parts[name].append(column)
    types = remembered(schema, facts.table_types, "pandas")
    series = {name: _series(pd, concatenate(parts.pop(name)), types.get(name)) for name in schema}
    frame = pd.DataFrame(series)
    index = facts.table_index
    if isinstance(index, Source):
        index = _index(pd, index)
    return frame if index is None or len(index) != len(frame) else frame.set_axis(index)


def _index(pd: Any, source: Source) -> Any:
    """Return the index of pandas whose levels are the columns of a source."""
    types, batch = source.facts.table_types, source.read(0, len(source))
    made = remembered(source.schema, types, "pandas")
    levels = [types[name].level or IndexLevel(None) for name in source.schema]
    columns = [_series(pd, concatenate([batch[n]]), made.get(n)) for n in source.schema]
    if len(columns) > 1:
        return pd.MultiIndex.from_arrays(columns, names=[level.name for level in levels])
    return as_index(columns[0], levels[0])


def _series(pd: Any, column: Column, dtype: Any) -> Any:
    series = _plain_series(pd, column, dtype)
    return series if dtype is None else as_pandas(series, dtype)


def _plain_series(pd: Any, column: Column, dtype: Any) -> Any:
    if isinstance(column, np.ndarray) and has_mask(column) and column.ndim == 1:
        return _nullable_series(pd, np.asarray(column), null_mask(column), column)
    if not isinstance(column, np.ndarray) or column.ndim > 1:
        if isinstance(column, Ragged) and column.is_bytes:
            return pd.Series(list(column), dtype="str" if column.is_text else object)
        return pd.Series(cells(column, dtype), dtype=object)
    native = column.dtype.isnative or column.dtype.kind == "V"
    return pd.Series(column if native else column.astype(column.dtype.newbyteorder("=")))


def _nullable_series(pd: Any, values: Any, missing: Any, column: Column) -> Any:
    """Return a series of one of the types of pandas that hold nulls."""
    arrays = {
        "b": pd.arrays.BooleanArray,
        "i": pd.arrays.IntegerArray,
        "u": pd.arrays.IntegerArray,
        "f": pd.arrays.FloatingArray,
    }
    if values.dtype.kind not in arrays or values.dtype == np.float16:
        return pd.Series(list(column), dtype=object)
    native = values.astype(values.dtype.newbyteorder("="))
    return pd.Series(arrays[values.dtype.kind](native, missing.copy()))
