"""``normalize`` and ``denormalize``: shift and scale each channel by its statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from recmap.dataset.channel_stats import FLOAT32, By, Scaling, check_channels
from recmap.dataset.stats import Stats
from recmap.errors import OptionError, OptionTypeError
from recmap.model.batch import RowNumbers
from recmap.model.field import Field
from recmap.model.ragged import Column, with_values
from recmap.model.source import ColumnMap, MappedColumns, Source


def scalings(
    schema: Mapping[str, Field], stats: Any, columns: Sequence[str], by: By, *, inverse: bool
) -> dict[str, Scaling]:
    """Return how to scale columns: those given, or all of floats that have statistics."""
    verb = "denormalize" if inverse else "normalize"
    if not isinstance(stats, Stats):
        raise OptionTypeError(
            f"{verb}: stats is what ds.stats(axis=-1) returns, or rm.Stats.load(path), "
            f"not {type(stats).__name__}"
        )
    names = list(dict.fromkeys(columns)) or [
        name for name, field in schema.items() if name in stats and _is_float(field)
    ]
    if not names:
        raise OptionError(
            f"{verb}: no column of floats has statistics; name the columns of integers that you "
            f'want to {verb}, as in {verb}(stats, "image")'
        )
    made = {}
    for name in names:
        if name not in stats:
            raise OptionError(f"{verb}: there are no statistics of {name!r}, only of {list(stats)}")
        made[name] = stats[name].scaling(by, inverse=inverse)
        _check_shape(verb, name, schema[name], made[name])
    return made


def _is_float(field: Field) -> bool:
    dtype = field.dtype
    return dtype.kind == "f" or (dtype.kind == "V" and dtype.type is not np.void)


def _check_shape(verb: str, name: str, field: Field, scaling: Scaling) -> None:
    if field.is_bytes or not (_is_float(field) or field.dtype.kind in "biu"):
        raise OptionError(f"{verb}: {name!r} is {field}, not numbers")
    check_channels(f"{verb}: {name!r} is {field}, and", field.inner, scaling)


def scaled(source: Source, scaling: Mapping[str, Scaling]) -> Source:
    """Return a source with scaled columns, which are float32."""
    maps = {name: ColumnMap(name, field) for name, field in source.schema.items()}
    for name, each in scaling.items():
        old = source.schema[name]
        growth = -(-FLOAT32.itemsize // max(1, old.dtype.itemsize))
        field = replace(old, dtype=FLOAT32, fill=None)
        maps[name] = ColumnMap(name, field, partial(_scale, each), growth)
    return MappedColumns(source, maps)


def _scale(scaling: Scaling, column: Column, rows: RowNumbers) -> Column:
    del rows
    return with_values(column, partial(scaling.apply, dtype=FLOAT32))
