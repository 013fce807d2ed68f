"""Columns of every kind, saved in every format: read back as they were, or refused."""

from __future__ import annotations

from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case

__all__ = ["case"]

_FORMATS = {
    "tfrecord": ".tfrecord",
    "gzip": ".tfrecord.gz",
    "npy": ".npy",
    "npz": ".npz",
    "hdf5": ".h5",
    "zarr": ".zarr",
    "raw": ".bin",
    "parquet": ".parquet",
    "arrow": ".arrow",
    "tfds": "",
}
_DTYPES = ["i1", "u2", "i4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", "?", "S3", "U3", "M8[s]",
           "M8[D]", "m8[ms]", ">i4", ">f8", "V3", "i4,f4"]  # fmt: skip
_STRINGS = {"S": [b"ab", b"", b"a\0b", b"\xff"], "U": ["ab", "", "\xe9", "a\0b"]}
_ITEMS: list[list[Any]] = [
    [1.5, -0.0],
    [7, -1],
    [b"x", b"", b"a\0"],
    ["x", "", "\xe9"],
    [True, False],
    [None, 1],
]


def case(case: Case) -> None:
    rows = case.pick([0, 1, 2, 5])
    given = {f"c{i}": _column(case, rows) for i in range(case.pick([1, 1, 2]))}
    first = given["c0"]
    try:
        alone = isinstance(first, np.ndarray) and case.chance(0.4)
        ds = rm.open(first) if alone else rm.from_arrays(given)
    except rm.RecmapError as e:
        case.note(f"not columns: {e}")
        case.outcome = "refused"
        return
    case.note(f"{rows} rows of {ds.schema}")
    kind = case.pick(list(_FORMATS))
    path = case.path("x" + _FORMATS[kind])
    tfds: dict[str, Any] = {"format": "tfds", "options": {"name": "set", "split": "train"}}
    try:
        ds.save(path, **(tfds if kind == "tfds" else {}))
    except rm.RecmapError as e:
        case.note(f"{kind} refuses it: {e}")
        case.outcome = "refused"
        return
    back = rm.open(f"{path}/set/1.0.0", split="train") if kind == "tfds" else rm.open(path)
    found = rm.diff(ds, back)
    if found.columns or found.rows_a != found.rows_b:
        raise AssertionError(f"{kind}: {found}")
    for name in back.schema:
        len(back[name])


def _column(case: Case, rows: int) -> Any:
    if case.chance(0.6):
        shape = tuple(case.pick([0, 1, 2, 3]) for _ in range(case.between(0, 3)))
        return _array(case, (rows, *shape), np.dtype(case.pick(_DTYPES)))
    items, depth = case.pick(_ITEMS), case.between(1, 4)
    return [_list(case, items, depth) for _ in range(rows)]


def _array(case: Case, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Any:
    case.note(f"{dtype} {shape}")
    if dtype.kind in _STRINGS:
        return case.rng.choice(np.array(_STRINGS[dtype.kind]), shape).astype(dtype)
    count = int(np.prod(shape))
    values = np.frombuffer(case.rng.bytes(count * dtype.itemsize), np.uint8)
    if dtype.kind == "b":
        return (values % 2).astype(bool).reshape(shape)
    return values.view(dtype).reshape(shape) if count else np.empty(shape, dtype)


def _list(case: Case, items: list[Any], depth: int) -> Any:
    if not depth:
        return case.pick(items)
    return [_list(case, items, depth - 1) for _ in range(case.between(0, 3))]
