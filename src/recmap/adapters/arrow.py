"""``to_arrow``, ``to_polars`` and ``to_pandas``: all rows as a table in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from recmap.errors import MissingPackageError
from recmap.model.arrow import ArrowBatches
from recmap.model.coerce import empty_column
from recmap.model.ragged import Column, Ragged, concatenate, has_mask, null_mask
from recmap.model.schema import Batch, Schema

if TYPE_CHECKING:
    import pandas as pd  # type: ignore[import-untyped]
    import polars as pl
    import pyarrow as pa

_T = TypeVar("_T")


def to_arrow(batches: ArrowBatches) -> pa.Table:
    """Return all rows as a pyarrow table."""
    try:
        import pyarrow as pa
    except ImportError as e:
        raise MissingPackageError("to_arrow() needs PyArrow", extra="arrow") from e
    return _made(pa.table, batches)


def to_polars(batches: ArrowBatches) -> pl.DataFrame:
    """Return all rows as a polars frame."""
    try:
        import polars as pl
    except ImportError as e:
        raise MissingPackageError("to_polars() needs Polars", extra="polars") from e
    return _made(pl.DataFrame, batches)


def _made(make: Callable[[ArrowBatches], _T], batches: ArrowBatches) -> _T:
    try:
        return make(batches)
    except BaseException:
        # The consumer knows only the text of an error that ended the stream.
        if batches.error is not None:
            raise batches.error from None
        raise


def to_pandas(schema: Schema, batches: Iterable[Batch]) -> pd.DataFrame:
    """Return all rows as a pandas frame. A row of several values is one object."""
    try:
        import pandas as pd
    except ImportError as e:
        raise MissingPackageError("to_pandas() needs pandas", extra="pandas") from e
    parts: dict[str, list[Column]] = {name: [empty_column(schema[name])] for name in schema}
    for batch in batches:
        for name, column in batch.items():
            parts[name].append(column)
    return pd.DataFrame({name: _series(pd, concatenate(parts.pop(name))) for name in schema})


def _series(pd: Any, column: Column) -> Any:
    if isinstance(column, np.ndarray) and has_mask(column) and column.ndim == 1:
        return _nullable_series(pd, np.asarray(column), null_mask(column), column)
    if not isinstance(column, np.ndarray) or column.ndim > 1:
        text = isinstance(column, Ragged) and column.is_text
        return pd.Series(list(column), dtype="str" if text else object)
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
