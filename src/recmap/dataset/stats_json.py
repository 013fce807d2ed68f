"""Read statistics from JSON, as ``Stats.to_json`` and ``recmap stats --json`` write it."""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.dataset.channel_stats import ChannelStats
from recmap.dataset.field_stats import FieldStats, Histogram, Numbers, ValueCounts
from recmap.errors import DataError
from recmap.local.location import Location
from recmap.model.field import Field

# Larger files are not statistics.
_MOST = 1 << 30
_UNUSUAL = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def load_stats(location: Location) -> dict[str, FieldStats]:
    """Read statistics from a file."""
    try:
        text = location.text(_MOST)
    except ValueError as e:
        raise _not_stats(location.public(), e) from None
    return read_stats(text, location.public())


def read_stats(text: str | bytes, name: str) -> dict[str, FieldStats]:
    """Return the statistics in a text, which errors call ``name``."""
    try:
        return {field: _field_stats(told) for field, told in json.loads(text).items()}
    except (
        ArithmeticError,
        AttributeError,
        LookupError,
        RecursionError,
        TypeError,
        ValueError,
    ) as e:
        raise _not_stats(name, e) from None


def _not_stats(name: str, error: Exception) -> DataError:
    return DataError(
        f"{name}: not the statistics of a dataset, as stats.save and recmap stats --json write "
        f"them: {type(error).__name__}: {error}"
    )


def _field_stats(told: Mapping[str, Any]) -> FieldStats:
    field = Field.parse(told["field"])
    counts, channels = told["counts"], told.get("channels")
    return FieldStats(
        field=field,
        rows=int(told["rows"]),
        values=_numbers(told["values"], dates=field.dtype.kind in "mM"),
        lengths=tuple(each for each in map(_numbers, told["lengths"]) if each is not None),
        sizes=_numbers(told["sizes"]),
        counts=None if counts is None else _counts(counts, field),
        nulls=int(told["nulls"]),
        channels=None if channels is None else _channels(channels),
    )


def _numbers(told: Mapping[str, Any] | None, *, dates: bool = False) -> Numbers | None:
    if told is None:
        return None
    found = told["histogram"]
    histogram = None if found is None else Histogram(
        float(found["start"]), float(found["width"]), [int(count) for count in found["counts"]]
    )  # fmt: skip
    low, high = (told[name] if dates else _number(told[name]) for name in ("min", "max"))
    mean, std = _number(told["mean"]), _number(told["std"])
    return Numbers(int(told["count"]), int(told["nan"]), low, high, mean, std, histogram)


def _number(told: Any) -> Any:
    """Return a number, or None; JSON has no NaN, which is a string."""
    if isinstance(told, str):
        return _UNUSUAL[told]
    if told is not None and not isinstance(told, int | float):
        raise ValueError(f"{told!r} is not a number")
    return told


def _counts(told: Mapping[str, Any], field: Field) -> ValueCounts:
    top = [(_value(value, field), int(count)) for value, count in told["top"]]
    return ValueCounts(int(told["distinct"]), bool(told["complete"]), int(told["counted"]), top)


def _value(told: Any, field: Field) -> Any:
    if field.is_text or not isinstance(told, str | dict):
        return told
    return told.encode() if isinstance(told, str) else base64.b64decode(told["base64"])


def _channels(told: Mapping[str, Any]) -> ChannelStats:
    count = np.array(told["count"], np.int64)
    shape = count.shape
    return ChannelStats(
        axis=tuple(int(axis) for axis in told["axis"]),
        count=count,
        nan=np.array(told["nan"], np.int64).reshape(shape),
        inf=np.array(told["inf"], np.int64).reshape(shape),
        min=_array(told["min"], shape),
        max=_array(told["max"], shape),
        mean=_array(told["mean"], shape).astype(np.float64),
        std=_array(told["std"], shape).astype(np.float64),
        quantiles={
            float(share): _array(values, shape).astype(np.float64)
            for share, values in told["quantiles"].items()
        },
        rank_error=float(told["rank_error"]),
    )


def _array(told: Any, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    flat = [_number(each) for each in np.array(told, object).reshape(-1)]
    return np.array(flat).reshape(shape) if flat else np.empty(shape)
