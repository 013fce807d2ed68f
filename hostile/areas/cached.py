"""Objects whose copies in the disk cache are damaged, cut or removed while they are read."""

from __future__ import annotations

import glob
import io
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile.case import Case
from recmap.cache.block_cache import cache_folder
from tests.store_servers import file_server

__all__ = ["case"]


def case(case: Case) -> None:
    rows = case.between(50, 3_000)
    x = case.rng.integers(0, 255, (rows, case.between(1, 2_000)), np.uint8)
    kind = case.pick(["npy", "npz", "h5", "tfrecord"])
    files = _files(case, kind, x)
    case.note(f"{kind} of {x.shape}, {len(files[f'x.{kind}']):,} bytes")
    with file_server() as server, _cache(case.path("cache")):
        server.files = {f"/{name}": content for name, content in files.items()}
        ds = rm.open(f"{server.url}/x.{kind}")
        [column] = ds.schema
        held = []
        for _ in range(case.between(2, 8)):
            step = case.pick([_read, _read, _damage])
            if step is _damage:
                _damage(case)
            else:
                held.append(_read(case, ds, column, x))
        # What was given away stays what it was.
        for got, expected in filter(None, held):
            _check(got, expected)
        again = rm.open(f"{server.url}/x.{kind}")
        _check(again[:][column], x)


@contextmanager
def _cache(folder: str) -> Iterator[None]:
    before = os.environ.get("RECMAP_CACHE")
    os.environ["RECMAP_CACHE"] = folder
    try:
        yield
    finally:
        del os.environ["RECMAP_CACHE"]
        if before is not None:
            os.environ["RECMAP_CACHE"] = before


def _files(case: Case, kind: str, x: npt.NDArray[np.uint8]) -> dict[str, bytes]:
    made = io.BytesIO()
    if kind == "npy":
        np.save(made, x)
    elif kind == "npz":
        case.pick([np.savez, np.savez_compressed])(made, x=x)
    elif kind == "h5":
        with h5py.File(made, "w") as file:
            file.create_dataset("x", data=x, chunks=case.pick([None, True]))
    else:
        rm.from_arrays({"x": x}).save(case.path("x.tfrecord"), options={"durable": False})
        return {name: _content(case.path(name)) for name in ("x.tfrecord", ".x.tfrecord.recmap")}
    return {f"x.{kind}": made.getvalue()}


def _content(path: str) -> bytes:
    with open(path, "rb") as file:
        return file.read()


def _read(case: Case, ds: rm.Dataset, column: str, x: npt.NDArray[Any]) -> Any:
    start = case.between(0, len(x) - 1)
    stop = case.pick([len(x), case.between(start, len(x))])
    rows: Any = case.pick([slice(start, stop), slice(None), [start, len(x) - 1, 0]])
    case.note(f"read {rows}")
    try:
        got = ds[rows][column]
    except rm.DataError as e:
        # Records have checksums of their own, so a damaged copy may be an error.
        if "tfrecord" not in str(e):
            raise
        case.note(str(e))
        case.outcome = "refused"
        return None
    _check(got, x[rows])
    return got, x[rows]


def _check(got: Any, expected: npt.NDArray[Any]) -> None:
    if not np.array_equal(got, expected):
        raise AssertionError(f"{np.count_nonzero(got != expected)} wrong values")


def _damage(case: Case) -> None:
    how = case.pick([_flip, _cut, _extend, _clear, _remove])
    case.note(how.__name__)
    for path in glob.glob(f"{glob.escape(case.path('cache'))}/*/*/data"):
        how(case, path)


def _flip(case: Case, path: str) -> None:
    with open(path, "r+b") as file:
        file.seek(case.between(0, max(0, os.path.getsize(path) - 1)))
        file.write(case.rng.bytes(1))


def _cut(case: Case, path: str) -> None:
    os.truncate(path, case.between(0, os.path.getsize(path)))


def _extend(case: Case, path: str) -> None:
    size = os.path.getsize(path)
    _cut(case, path)
    os.truncate(path, size)


def _clear(case: Case, path: str) -> None:
    del case
    cache_folder().discard(os.path.basename(os.path.dirname(path)))


def _remove(case: Case, path: str) -> None:
    del case
    shutil.rmtree(os.path.dirname(path), ignore_errors=True)
