"""Shift and scale arrays, channel by channel."""

from __future__ import annotations

import hashlib
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from recmap.dataset.channel_stats import By, ChannelStats
from recmap.errors import OptionError, OptionTypeError
from recmap.model.ragged import Ragged, with_values

FLOAT32 = np.dtype(np.float32)
# Values converted at a time: they fit in the CPU cache.
_STEP = 1 << 15


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
        raise OptionError(f"{what} the statistics are of channels in the last axes, {channels}")


def scale_values(scaling: Scaling, values: Any) -> Any:
    """Scale an array, a list or a Ragged. Floats keep their type, and integers become float32."""
    if isinstance(values, Ragged):
        return with_values(values, partial(_scale_array, scaling))
    return _scale_array(scaling, np.asarray(values))


def _scale_array(scaling: Scaling, values: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if values.dtype.kind not in "biuf":
        raise OptionTypeError(f"numbers are scaled, not {values.dtype}")
    check_channels(f"these are arrays of shape {values.shape};", values.shape, scaling)
    return scaling.apply(values, values.dtype if values.dtype.kind == "f" else FLOAT32)
