"""s3fs: the bytes of objects, as many libraries read them."""

from __future__ import annotations

import functools
import importlib
from typing import Any

from benchmarks.timing import Clock, Measure

# Imported by name, because it has no types.
s3fs: Any = importlib.import_module("s3fs")

__all__ = ["JOBS"]

_PIECE = 8 << 20
_AT_ONCE = 16


def read(pattern: str, rows: int, storage: dict[str, Any]) -> Measure:
    """Get all bytes of the objects that match, several ranges at a time."""
    files = _files(tuple(storage.items()))
    spans = [
        (path, begin, min(begin + _PIECE, info["size"]))
        for path, info in sorted(files.glob(pattern, detail=True).items())
        for begin in range(0, info["size"], _PIECE)
    ]
    with Clock() as clock:
        for first in range(0, len(spans), _AT_ONCE):
            paths, begins, ends = zip(*spans[first : first + _AT_ONCE], strict=True)
            files.cat_ranges(list(paths), list(begins), list(ends))
    return Measure(clock.seconds, rows)


@functools.cache
def _files(storage: tuple[tuple[str, Any], ...]) -> Any:
    options = dict(storage)
    return s3fs.S3FileSystem(
        key=options["access_key_id"],
        secret=options["secret_access_key"],
        endpoint_url=options["endpoint"],
    )


JOBS = {"read": read}
