"""Statistics of each channel, and how arrays are normalized by them."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.errors import OptionError, OptionTypeError
from recmap.model.arguments import as_list, as_whole, check_choice
from recmap.model.field import Field
from recmap.model.ragged import Ragged, with_values

# How to normalize: by mean and standard deviation, by least and greatest, or by two quantiles.
By: TypeAlias = Literal["std", "minmax"] | tuple[float, float]
# Which axes of a row have statistics of their own.
Axis: TypeAlias = int | tuple[int, ...] | None
AxisOption: TypeAlias = "Axis | Mapping[str, Axis]"

_BY = ("std", "minmax")
FLOAT32 = np.dtype(np.float32)
# Values converted at a time: they fit in the CPU cache.
_STEP = 1 << 15
# NumPy allows no more axes.
_MOST_AXES = 64


@dataclass(frozen=True, eq=False)
class ChannelStats:
    """Statistics of each channel of a field, as arrays.

    ``axis`` has the axes of a row that tell channels apart, counted from the last, -1; the arrays
    have their shape. ``count``, ``nan`` and ``inf`` are how many values there are, and how many
    of them are NaN or infinite; the others leave these out. ``std`` is that of all values,
    as in ``np.std``.

    ``quantiles`` has an array for each share, as ``np.quantile`` computes it. Its rank is off by
    at most ``rank_error`` with a probability of 99%: a median with an error of 0.002 lies between
    the quantiles of 0.498 and 0.502. The error is 0 if the quantiles are exact, as those of bytes
    and of few values are.
    """

    axis: tuple[int, ...]
    count: npt.NDArray[np.int64]
    nan: npt.NDArray[np.int64]
    inf: npt.NDArray[np.int64]
    min: npt.NDArray[Any]
    max: npt.NDArray[Any]
    mean: npt.NDArray[np.float64]
    std: npt.NDArray[np.float64]
    quantiles: dict[float, npt.NDArray[np.float64]]
    rank_error: float

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ChannelStats):
            return NotImplemented
        mine, theirs = self._arrays(), other._arrays()
        return mine.keys() == theirs.keys() and all(
            np.array_equal(mine[name], theirs[name], equal_nan=True) for name in mine
        )

    __hash__ = None  # type: ignore[assignment]  # compared by value

    def _arrays(self) -> dict[Any, Any]:
        named = {each.name: getattr(self, each.name) for each in fields(self)}
        quantiles = named.pop("quantiles")
        return {**named, **quantiles}

    def scaling(self, by: By) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        """Return what to subtract from each channel, and what to divide it by then.

        A channel of equal values is divided by 1, and so becomes 0.
        """
        if by == "std":
            center, scale = self.mean, self.std
        else:
            low, high = self._ends(by)
            # A sum or a difference of the greatest floats would overflow.
            center, scale = low / 2 + high / 2, high / 2 - low / 2
        if not (np.isfinite(center).all() and np.isfinite(scale).all()):
            raise OptionError(
                f"normalize by {by!r}: a channel has no values, or values that are too large"
            )
        return center, np.where(scale == 0, 1.0, scale)

    def _ends(self, by: By) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
        if by == "minmax":
            return self.min.astype(np.float64), self.max.astype(np.float64)
        assert isinstance(by, tuple)
        for share in by:
            if share not in self.quantiles:
                known = f"they have {list(self.quantiles)}" if self.quantiles else "they have none"
                raise OptionError(
                    f"normalize by {by!r}: the statistics do not have the quantile {share}; "
                    f"{known}: ds.stats(quantiles=[{', '.join(map(str, by))}])"
                )
        return self.quantiles[by[0]], self.quantiles[by[1]]


def check_by(by: Any) -> By:
    """Check how to normalize, and return it."""
    if isinstance(by, str) or not isinstance(by, Sequence):
        choice: By = check_choice("by", by, _BY)
        return choice
    shares = tuple(check_quantiles(by, "by"))
    if len(shares) != 2 or shares[0] >= shares[1]:
        raise OptionError(f'by={by!r}: give "std", "minmax" or two quantiles, as in (0.01, 0.99)')
    return shares


def check_quantiles(quantiles: Any, name: str = "quantiles") -> list[float]:
    """Check shares between 0 and 1, and return them in order, each once."""
    shares = []
    for share in as_list(name, quantiles, "[0.01, 0.99]"):
        known = isinstance(share, int | float | np.number) and not isinstance(share, bool)
        if not known or not 0 <= share <= 1:
            raise OptionError(f"{name}={quantiles!r}: give numbers from 0 to 1, as in [0.01, 0.99]")
        shares.append(float(share))
    return shares if name == "by" else sorted(set(shares))


def channel_axes(fields: Mapping[str, Field], axis: AxisOption) -> dict[str, tuple[int, ...]]:
    """Return the axes of each column that tell channels apart, counted from the last, -1.

    An axis that is given for all columns is for those that have it, with a fixed length.
    """
    if not isinstance(axis, Mapping):
        return {name: _axes(name, field, axis, strict=False) for name, field in fields.items()}
    unknown = next((name for name in axis if name not in fields), None)
    if unknown is not None:
        raise OptionError(f"axis: no column of numbers is called {unknown!r}")
    return {name: _axes(name, field, axis.get(name), strict=True) for name, field in fields.items()}


def _axes(name: str, field: Field, axis: Axis, *, strict: bool) -> tuple[int, ...]:
    if axis is None:
        return ()
    found = set()
    given: Any = axis if isinstance(axis, tuple | list) else (axis,)
    for each in given:
        number = as_whole("axis", each, -_MOST_AXES, _MOST_AXES)
        number = number if number < 0 else number - len(field.shape)
        if -len(field.inner) <= number < 0:
            found.add(number)
        elif strict:
            raise OptionError(
                f"axis={axis!r}: {name!r} is {field}, whose rows have no such fixed axis"
            )
    return tuple(sorted(found))


class Scaling(NamedTuple):
    """What is subtracted from each channel, and what it is divided by then; or the inverse.

    The last axes of ``center`` and ``scale`` are those of a row.
    """

    center: npt.NDArray[np.float64]
    scale: npt.NDArray[np.float64]
    inverse: bool

    def apply(self, values: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
        """Return scaled values. They are computed as float64, so only the result is rounded."""
        out = np.empty(values.shape, dtype)
        # An array of one row has no axis of rows.
        alone = values.ndim <= self.center.ndim
        rows, target = (values[None], out[None]) if alone else (values, out)
        step = max(1, _STEP * len(rows) // max(1, rows.size))
        with np.errstate(over="ignore", invalid="ignore"):
            for start in range(0, len(rows), step):
                some = rows[start : start + step].astype(np.float64)
                if self.inverse:
                    np.multiply(some, self.scale, out=some)
                    np.add(some, self.center, out=some)
                else:
                    np.subtract(some, self.center, out=some)
                    np.divide(some, self.scale, out=some)
                target[start : start + step] = some
        return out

    def digest(self) -> str:
        """Return a few letters that differ for other statistics, for states and manifests."""
        content = repr((self.center.shape, self.center.tolist(), self.scale.tolist()))
        return hashlib.sha256(content.encode()).hexdigest()[:12]


def scaling_by(channels: ChannelStats, by: By, *, inverse: bool) -> Scaling:
    """Return how to scale the values of a field; the axes of channels stay where they are."""
    center, scale = channels.scaling(by)
    first = min(channels.axis, default=0)
    # The axes that are averaged over have a length of 1.
    missing = tuple(axis for axis in range(first, 0) if axis not in channels.axis)
    return Scaling(np.expand_dims(center, missing), np.expand_dims(scale, missing), inverse)


def check_channels(what: str, shape: tuple[int, ...], scaling: Scaling) -> None:
    """Raise unless the last axes of a shape are those of the channels."""
    wanted = scaling.center.shape
    last = shape[len(shape) - len(wanted) :]
    if len(shape) < len(wanted) or any(n not in (1, m) for n, m in zip(wanted, last, strict=True)):
        channels = " x ".join(str(n) if n != 1 else "any" for n in wanted)
        raise OptionError(f"{what} the channels of the statistics are the last axes, {channels}")


def scale_values(scaling: Scaling, values: Any) -> Any:
    """Scale an array, a list or a Ragged. Floats keep their type, and integers become float32."""
    if isinstance(values, Ragged):
        return with_values(values, partial(_scale_array, scaling))
    return _scale_array(scaling, np.asarray(values))


def _scale_array(scaling: Scaling, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if values.dtype.kind not in "biuf":
        raise OptionTypeError(f"only numbers can be scaled, not {values.dtype}")
    check_channels(f"these are arrays of shape {values.shape};", values.shape, scaling)
    return scaling.apply(values, values.dtype if values.dtype.kind == "f" else FLOAT32)
