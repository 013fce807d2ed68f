"""``rm.concat``, ``rm.mix`` and ``rm.zip`` of datasets, and of paths, which are opened."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, Protocol, TypedDict, Unpack, overload

from recmap.dataset.dataset import Dataset
from recmap.dataset.open import open
from recmap.pipeline import combine
from recmap.pipeline.stream import Stream
from recmap.pipeline.transforms.mix import Schedule, Until
from recmap.store.paths import PathLike, is_path


class _Concat(Protocol):
    @overload
    def __call__(self, *datasets: Dataset | PathLike | Sequence[Dataset | PathLike]) -> Dataset: ...
    @overload
    def __call__(self, *datasets: Stream | PathLike | Sequence[Stream | PathLike]) -> Stream: ...


class _MixOptions(TypedDict, total=False):
    weights: Sequence[float] | None
    schedule: Schedule | None
    until: Until | None
    seed: int


class _Mix(Protocol):
    @overload
    def __call__(
        self, *datasets: Dataset | PathLike, **options: Unpack[_MixOptions]
    ) -> Dataset: ...
    @overload
    def __call__(self, *datasets: Stream | PathLike, **options: Unpack[_MixOptions]) -> Stream: ...


class _Zip(Protocol):
    @overload
    def __call__(self, *datasets: Dataset | PathLike) -> Dataset: ...
    @overload
    def __call__(self, *datasets: Stream | PathLike) -> Stream: ...


def _opened(given: Any) -> Any:
    if isinstance(given, list | tuple):
        return list(map(_opened, given))
    return open(given) if is_path(given) else given


def _opening_paths(function: Callable[..., Any]) -> Any:
    """Make a function of datasets open the paths among them."""

    @wraps(function)
    def call(*datasets: Any, **options: Any) -> Any:
        return function(*map(_opened, datasets), **options)

    return call


concat: _Concat = _opening_paths(combine.concat)
mix: _Mix = _opening_paths(combine.mix)
zip: _Zip = _opening_paths(combine.zip)
