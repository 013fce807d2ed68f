"""Look at the objects that this process has fetched."""

from __future__ import annotations

import gc

import numpy as np

from recmap.store.fetched_file import FetchedFile

__all__ = ["drop_ahead", "held_bytes"]


def _files() -> list[FetchedFile]:
    gc.collect()
    # Not isinstance, which makes some modules warn about themselves.
    return [each for each in gc.get_objects() if type(each) is FetchedFile]


def drop_ahead() -> None:
    """Give up what was read ahead in order, such as what opening a file has scanned."""
    for file in _files():
        file.drop_ahead()


def held_bytes() -> int:
    """Return what is held of all objects, besides what was read ahead in order."""
    drop_ahead()
    return sum(int(np.count_nonzero(file._users)) for file in _files()) * 4096
