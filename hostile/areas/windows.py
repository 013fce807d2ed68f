"""Random windows and rows of tokens, compared with plain Python on lists."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case
from hostile.reading import check_some_ways
from hostile.table import Table

__all__ = ["case"]

_ENDINGS = [".tfrecord", ".tfrecord.gz", ".npz", ".h5", ".zarr", ".parquet", ".arrow"]


def case(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.SlowOrderWarning)
        [_windows, _tokens][case.between(0, 1)](case)


def _windows(case: Case) -> None:
    rows = case.pick([1, 2, 7, 40])
    values: Table = {
        "x": list(case.rng.random((rows, 2)).astype(np.float32)),
        "y": list(case.rng.integers(-9, 9, rows)),
        "name": [b"n" * case.between(0, 3) for _ in range(rows)],
        "episode": list(np.sort(case.rng.integers(0, case.pick([1, 3, 20]), rows))),
    }
    columns: dict[str, Any] = {name: np.array(column) for name, column in values.items()}
    columns["name"] = rm.Ragged.from_bytes(values["name"])
    path = case.path("x" + case.pick(_ENDINGS))
    rm.from_arrays(columns).save(path)
    size, stride = case.between(1, 6), case.between(1, 4)
    edges: Any = case.pick(["drop", "repeat", "pad"])
    within = case.pick([None, "episode"])
    offsets: Any = None
    if case.chance(0.4):
        offsets = {
            "x": sorted(case.rng.integers(-3, 4, 3).tolist()),
            "name": [0, case.between(0, 2)],
        }
    case.note(f"windows({offsets or size}, {stride=}, {edges=}, {within=}) of {rows} in {path}")
    ds = rm.open(path).windows(offsets or size, stride=stride, edges=edges, within=within)
    table = _model(
        values, offsets or {n: range(size) for n in values if n != within}, stride, edges, within
    )
    _check(case, ds, table)


def _check(case: Case, ds: rm.Dataset, table: Table) -> None:
    rows = len(next(iter(table.values())))
    if len(ds) != rows:
        raise AssertionError(f"{len(ds)} rows, not {rows}")
    if rows:
        check_some_ways(case, ds, table)


def _model(values: Table, offsets: Any, stride: int, edges: str, within: str | None) -> Table:
    made: Table = {}
    for name in values:
        made[name] = []
        if edges == "pad" and name in offsets:
            made[name + "/is_pad"] = []
    every = [0, *(offset for some in offsets.values() for offset in some)]
    for first, end in _episodes(values, within):
        drop = edges == "drop"
        start, stop = (first - min(every), end - max(every)) if drop else (first, end)
        for anchor in range(start, stop, stride):
            for name, column in values.items():
                if name not in offsets:
                    made[name].append(column[anchor])
                    continue
                rows = [anchor + offset for offset in offsets[name]]
                inside = [first <= row < end for row in rows]
                near = [column[min(max(row, first), end - 1)] for row in rows]
                if edges == "pad":
                    near = [v if i else _blank(v) for v, i in zip(near, inside, strict=True)]
                    made[name + "/is_pad"].append(np.array([not i for i in inside]))
                made[name].append(near if isinstance(near[0], bytes) else np.array(near))
    return made


def _blank(value: Any) -> Any:
    return b"" if isinstance(value, bytes) else value * 0


def _episodes(values: Table, within: str | None) -> list[tuple[int, int]]:
    rows = len(values["x"])
    if within is None:
        return [(0, rows)]
    column = values[within]
    starts = [i for i in range(rows) if i == 0 or column[i] != column[i - 1]]
    return list(zip(starts, [*starts[1:], rows], strict=True))


def _tokens(case: Case) -> None:
    longest = case.pick([1, 5, 200])
    documents = [
        case.rng.integers(0, 99, case.between(0, longest)) for _ in range(case.pick([1, 3, 20]))
    ]
    path = case.path("x" + case.pick(_ENDINGS))
    rm.from_arrays({"ids": rm.Ragged.from_rows(documents, np.int64)}).save(path)
    length, end, target = case.between(1, 12), case.pick([None, 5]), case.chance(0.6)
    case.note(f"tokens({length}, {end=}, {target=}) of {[len(d) for d in documents]} in {path}")
    ds = rm.open(path)
    if case.chance(0.4):
        order = rm.from_arrays({"i": np.arange(len(documents))}).shuffle(seed=3)[:]["i"]
        documents = [documents[i] for i in order]
        ds = ds.shuffle(seed=3)
        case.note("shuffled")
    closed = [d if end is None else np.append(d, end) for d in documents]
    stream = np.concatenate(closed).astype(np.int64)
    number = np.repeat(np.arange(len(closed)), [len(d) for d in closed])
    made: Table = {"ids": [], "segments": []} | ({"ids/target": []} if target else {})
    for start in range(0, len(stream) - length + 1 - target, length):
        made["ids"].append(stream[start : start + length])
        _, segments = np.unique(number[start : start + length], return_inverse=True)
        made["segments"].append((segments + 1).astype(np.int32))
        if target:
            made["ids/target"].append(stream[start + 1 : start + 1 + length])
    _check(case, ds.tokens("ids", length, end=end, target=target, add=["segments"]), made)
