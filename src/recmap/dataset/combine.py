"""``rm.mix`` and ``rm.zip`` of datasets, and of what ``rm.open`` opens."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

from recmap.dataset.open import open
from recmap.pipeline import combine
from recmap.pipeline.stream import Stream
from recmap.store.paths import is_path

_F = TypeVar("_F", bound=Callable[..., Any])


def _opening_paths(function: _F) -> _F:
    """Make a function of datasets open the paths among them."""

    @wraps(function)
    def call(*datasets: Any, **options: Any) -> Stream:
        opened = (open(each) if is_path(each) else each for each in datasets)
        made: Stream = function(*opened, **options)
        return made

    return cast("_F", call)


mix = _opening_paths(combine.mix)
zip = _opening_paths(combine.zip)
