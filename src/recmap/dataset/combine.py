"""``rm.concat``, ``rm.mix`` and ``rm.zip`` of datasets, and of paths, which are opened."""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any, overload

from recmap.dataset.dataset import Dataset
from recmap.dataset.open import open
from recmap.pipeline import combine
from recmap.pipeline.stream import Stream
from recmap.pipeline.transforms.mix import Schedule, Until
from recmap.store.paths import PathLike, is_path


@overload
def concat(*datasets: Dataset | PathLike | Sequence[Dataset | PathLike]) -> Dataset: ...
@overload
def concat(*datasets: Stream | PathLike | Sequence[Stream | PathLike]) -> Stream: ...
@wraps(combine.concat)
def concat(*datasets: Any, **options: Any) -> Any:
    return combine.concat(*map(_opened, datasets), **options)


@overload
def mix(
    *datasets: Dataset | PathLike,
    weights: Sequence[float] | None = None,
    until: Until | None = None,
    seed: int = 0,
    schedule: Schedule | None = None,
) -> Dataset: ...
@overload
def mix(
    *datasets: Stream | PathLike,
    weights: Sequence[float] | None = None,
    until: Until | None = None,
    seed: int = 0,
    schedule: Schedule | None = None,
) -> Stream: ...
@wraps(combine.mix)
def mix(*datasets: Any, **options: Any) -> Any:
    return combine.mix(*map(_opened, datasets), **options)


@overload
def zip(*datasets: Dataset | PathLike) -> Dataset: ...
@overload
def zip(*datasets: Stream | PathLike) -> Stream: ...
@wraps(combine.zip)
def zip(*datasets: Any, **options: Any) -> Any:
    return combine.zip(*map(_opened, datasets), **options)


def _opened(given: Any) -> Any:
    if isinstance(given, list | tuple):
        return list(map(_opened, given))
    return open(given) if is_path(given) else given
