"""Statistics of frames, as LeRobot keeps them: of each number, and of the colors of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.dataset.channel_collector import ChannelCollector
from recmap.dataset.channel_stats import AxisOption, ChannelStats
from recmap.dataset.stats_collector import collected
from recmap.errors import DataError
from recmap.machine.cpus import thread_count
from recmap.machine.threads import Threads
from recmap.model.field import Field
from recmap.model.source import Source, row_name
from recmap.pipeline.transforms.image_reader import ImageReader

# The quantiles that LeRobot keeps, and how many numbers in a row have them: each takes memory.
_SHARES = (0.01, 0.1, 0.5, 0.9, 0.99)
_MOST_QUANTILES = 1024
# Images that are looked at, and how many at a time. Larger ones are thinned out.
_IMAGES, _TOGETHER, _LARGE, _THINNED = 1000, 8, 300, 150

_Stats = dict[str, npt.NDArray[Any]]


def frame_stats(source: Source, images: Sequence[str]) -> dict[str, _Stats]:
    """Return the statistics of the numbers and the encoded images of rows.

    Those of images are of a sample of them, from 0 to 1, with an axis for height and width.
    """
    fields = {n: f for n, f in source.schema.items() if n not in images and not f.is_bytes}
    few = {name: field for name, field in fields.items() if field.count <= _MOST_QUANTILES}
    many = {name: field for name, field in fields.items() if name not in few}
    found = {**_of_numbers(source, few, _SHARES), **_of_numbers(source, many, ())}
    rows = np.array([len(source)])
    made = {name: {**_arrays(found[name]), "count": rows} for name in fields}
    return {**made, **_of_images(source, images)}


def _of_numbers(
    source: Source, fields: Mapping[str, Field], shares: Sequence[float]
) -> dict[str, ChannelStats]:
    if not fields:
        return {}
    axis: AxisOption = {n: tuple(range(-len(f.shape), 0)) for n, f in fields.items() if f.shape}
    found = collected(source.select(list(fields)), axis, shares, None)
    return {name: each.channels for name, each in found.items() if each.channels is not None}


def _arrays(stats: ChannelStats) -> _Stats:
    names = ("min", "max", "mean", "std")
    quantiles = {f"q{round(100 * share):02d}": each for share, each in stats.quantiles.items()}
    found = {**{name: getattr(stats, name) for name in names}, **quantiles}
    return {name: np.atleast_1d(each) for name, each in found.items()}


def _of_images(source: Source, images: Sequence[str]) -> dict[str, _Stats]:
    if not images:
        return {}
    count = min(len(source), _IMAGES)
    rows = np.linspace(0, len(source) - 1, count).round().astype(np.int64)
    chosen, reader = source.select(list(images)), ImageReader(3, None, exif=False, fast=False)
    with Threads(thread_count()) as pool:
        field = Field("uint8", (None, 3))
        collectors = {
            n: ChannelCollector(n, field, (-1,), _SHARES, pool, columns=len(images)) for n in images
        }
        for some in np.array_split(rows, -(-count // _TOGETHER)):
            batch = chosen.gather(some)
            for name in images:
                for row, data in zip(some.tolist(), batch[name], strict=True):
                    collectors[name].add(_pixels(reader, data, source, row, name))
        found = {name: each.result()[1] for name, each in collectors.items()}
    looked_at = np.array([count])
    return {
        name: {
            **{what: (each / 255).reshape(3, 1, 1) for what, each in _arrays(stats).items()},
            "count": looked_at,
        }
        for name, stats in found.items()
    }


def _pixels(
    reader: ImageReader, data: bytes, source: Source, row: int, name: str
) -> npt.NDArray[np.uint8]:
    """Return the pixels of an image, end to end."""
    try:
        pixels = reader.read(data)
    except Exception as e:
        raise DataError(
            f"{row_name(source, row)}: {name!r} is an image that cannot be decoded: {e}", field=name
        ) from e
    step = max(pixels.shape[:2]) // _THINNED if max(pixels.shape[:2]) >= _LARGE else 1
    return np.ascontiguousarray(pixels[::step, ::step]).reshape(-1, 3)
