"""obstore alone: upload files, and get their bytes in parallel, which is the limit of reading."""

from __future__ import annotations

import functools
import importlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.timing import Clock, Measure, fastest

# Imported by name, because they have no types.
obstore: Any = importlib.import_module("obstore")
stores: Any = importlib.import_module("obstore.store")

__all__ = ["JOBS"]

_PIECE = 8 << 20
# Requests at a time; a trial finds the fastest.
_REQUESTS = (8, 16, 32)


def upload(folder: str, pattern: str, bucket: str, prefix: str, storage: dict[str, Any]) -> Measure:
    """Upload the files of a folder that match a pattern, hidden ones, too."""
    store = _store(bucket, tuple(storage.items()))
    # Indexes last, so that they are not older than the data.
    files = sorted(
        (path for path in Path(folder).glob(pattern) if path.is_file()),
        key=lambda path: path.name.startswith("."),
    )
    with Clock() as clock:
        for path in files:
            key = f"{prefix}/{path.relative_to(folder)}"
            obstore.put(store, key, path.read_bytes())
    return Measure(clock.seconds, len(files))


def read(bucket: str, prefix: str, rows: int, storage: dict[str, Any]) -> Measure:
    """Get all bytes of the objects with these rows."""
    return _read(bucket, prefix, rows, storage, _best(bucket, prefix, tuple(storage.items())))


@functools.cache
def _best(bucket: str, prefix: str, storage: tuple[tuple[str, Any], ...]) -> int:
    return fastest(_REQUESTS, lambda n: _read(bucket, prefix, 0, dict(storage), n))


def _read(bucket: str, prefix: str, rows: int, storage: dict[str, Any], requests: int) -> Measure:
    store = _store(bucket, tuple(storage.items()))
    listed = [each for page in obstore.list(store, prefix) for each in page]
    spans = [
        (each["path"], begin, min(begin + _PIECE, each["size"]))
        for each in sorted(listed, key=lambda each: each["path"])
        if not Path(each["path"]).name.startswith((".", "_"))
        for begin in range(0, each["size"], _PIECE)
    ]

    def get(span: tuple[str, int, int]) -> int:
        key, begin, end = span
        return len(obstore.get(store, key, options={"range": (begin, end)}).bytes())

    with Clock() as clock, ThreadPoolExecutor(requests) as threads:
        got = sum(threads.map(get, spans))
    assert got == sum(end - begin for _, begin, end in spans)
    return Measure(clock.seconds, rows)


@functools.cache
def _store(bucket: str, storage: tuple[tuple[str, Any], ...]) -> Any:
    return stores.S3Store(bucket, **dict(storage), client_options={"allow_http": True})


JOBS = {"read": read, "upload": upload}
