"""``rm.concat``, ``rm.mix`` and ``rm.zip`` of datasets, and of paths, which are opened."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from recmap.dataset.open import open
from recmap.pipeline import combine
from recmap.pipeline.stream import Stream
from recmap.store.paths import is_path

_F = TypeVar("_F", bound=Callable[..., Any])


def _opened(given: Any) -> Any:
    if isinstance(given, list | tuple):
        return list(map(_opened, given))
    return open(given) if is_path(given) else given


def _opening_paths(function: _F) -> _F:
    """Make a function of datasets open the paths among them."""

    @wraps(function)
    def call(*datasets: Any, **options: Any) -> Stream:
        made: Stream = function(*map(_opened, datasets), **options)
        return made

    return cast("_F", call)


concat = _opening_paths(combine.concat)
mix = _opening_paths(combine.mix)
zip = _opening_paths(combine.zip)
