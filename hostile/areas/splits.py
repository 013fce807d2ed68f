"""Random rows, appended to a folder and split, compared with plain Python on lists."""

from __future__ import annotations

import hashlib
import math
import warnings
from collections import Counter, defaultdict
from itertools import accumulate
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case
from hostile.reading import check_some_ways
from hostile.table import Table, assert_same

__all__ = ["case"]

_FORMATS = ["tfrecord", "npz", "hdf5", "zarr", "parquet", "arrow"]
_PARTS = ["train", "val", "test"]
_NEAR = 1e-9


def case(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.SlowOrderWarning)
        _case(case)


def _case(case: Case) -> None:
    rows = case.pick([1, 2, 5, 30, 150, 400])
    columns, table = _columns(case, rows)
    folder, format = case.path("rows/"), case.pick(_FORMATS)
    ends = sorted({case.between(1, rows) for _ in range(case.between(0, 3))} | {rows})
    options = _options(case)
    case.note(f"{rows} rows, appended up to {ends} as {format}; split({options})")
    before: dict[str, set[int]] = {}
    for start, stop in zip([0, *ends[:-1]], ends, strict=True):
        some = rm.from_arrays({name: column[start:stop] for name, column in columns.items()})
        shards = case.pick([None, 1, 3])
        some.save(folder, append=True, shards=shards, format=None if start else format)
        so_far = {name: column[:stop] for name, column in table.items()}
        ds = rm.open(folder)
        for name, column in so_far.items():
            assert_same(ds[name][:], column, f"{stop} rows, column {name!r}")
        parts = _check_split(case, ds, so_far, options, before)
        if parts is None:
            case.outcome = "refused"
            return
        before = parts


def _columns(case: Case, rows: int) -> tuple[dict[str, Any], Table]:
    """Return columns as recmap takes them, and their rows as recmap gives them."""
    kinds = case.between(1, 8)
    codes = case.rng.integers(0, kinds, rows).astype(case.pick(["i8", "u1", ">i4"]))
    scores = case.rng.choice([0.0, -0.0, 1.5, np.nan, -np.inf], rows)
    texts = [f"{code}\0é" for code in case.rng.integers(0, case.pick([2, 40]), rows)]
    columns = {
        "row": np.arange(rows),
        "code": codes,
        "score": scores,
        "text": rm.Ragged.from_bytes([each.encode() for each in texts]),
    }
    return columns, {
        "row": list(np.arange(rows)),
        "code": list(codes),
        "score": list(scores),
        "text": [each.encode() for each in texts],
    }


def _options(case: Case) -> dict[str, Any]:
    names = _PARTS[: case.between(1, 3)]
    shares: list[float] = case.rng.dirichlet([1.0] * (len(names) + 1))[: len(names)].tolist()
    if case.chance(0.5):
        shares = [0.8, 0.1, 0.1][: len(names)]
    if case.chance(0.2):
        shares = [*shares[:-1], 0.0]
    given: dict[str, Any] = {"parts": dict(zip(names, shares, strict=True))}
    if case.chance(0.2):
        given["parts"] = {name: case.between(0, 20) for name in names}
    by, stratify = (case.pick([None, *options]) for options in (["text", "score"], ["code"]))
    return given | {"seed": case.between(0, 9), "by": by, "stratify": stratify}


def _check_split(
    case: Case, ds: rm.Dataset, table: Table, options: dict[str, Any], before: dict[str, set[int]]
) -> dict[str, set[int]] | None:
    """Check a split, and return the rows of each part; None if it is refused as it should be."""
    shares, total = options["parts"], len(table["row"])
    counted = any(isinstance(share, int) for share in shares.values())
    grouped = options["by"] is not None or options["stratify"] is not None
    try:
        found = ds.split(**options)
        parts = {name: part["row"][:].tolist() for name, part in found.items()}
    except rm.OptionError as e:
        if not counted or (sum(shares.values()) <= total and not grouped):
            raise
        case.note(f"refused: {e}")
        return None
    if counted and (grouped or sum(shares.values()) > total):
        raise AssertionError(f"{options} of {total} rows should be refused")
    seen = Counter(row for rows in parts.values() for row in rows)
    if any(count > 1 for count in seen.values()):
        raise AssertionError(f"rows are in several parts: {parts}")
    where = {row: name for name, rows in parts.items() for row in rows}
    if options["by"] is not None:
        _check_together(table[options["by"]], where)
    if options["by"] is None:
        _check_counts(table[options["stratify"]] if grouped else [0] * total, where, shares)
    elif options["stratify"] is None:
        _check_hashed(table[options["by"]], where, options)
        for name, rows in before.items():
            if not rows <= set(parts[name]):
                raise AssertionError(f"{name} lost rows {rows - set(parts[name])}")
    name = case.pick(list(parts))
    if parts[name]:
        chosen = {each: [column[row] for row in parts[name]] for each, column in table.items()}
        check_some_ways(case, found[name], chosen, 2)
    return {name: set(rows) for name, rows in parts.items()}


def _key(value: Any) -> Any:
    if isinstance(value, float) and math.isnan(value):
        return "nan"
    return value if isinstance(value, bytes) else value.item() + 0


def _check_together(values: list[Any], where: dict[int, str]) -> None:
    places = defaultdict(set)
    for row, value in enumerate(values):
        places[_key(value)].add(where.get(row))
    apart = {value: names for value, names in places.items() if len(names) > 1}
    if apart:
        raise AssertionError(f"rows of one value are apart: {apart}")


def _check_counts(classes: list[Any], where: dict[int, str], shares: dict[str, Any]) -> None:
    """Each part has its share of all rows, and of each class, to a row."""
    everywhere = [_key(np.asarray(each)) for each in classes]
    for only in (None, *set(everywhere)):
        rows = [row for row, each in enumerate(everywhere) if only in (None, each)]
        found = Counter(where.get(row) for row in rows)
        for name, share in shares.items():
            wanted = share if isinstance(share, int) else share * len(rows)
            if abs(found[name] - wanted) >= 1:
                raise AssertionError(f"{name} has {found[name]} rows of {only}, not {wanted}")
        left = len(rows) - sum(
            share if isinstance(share, int) else share * len(rows) for share in shares.values()
        )
        if abs(found[None] - left) > (0.5 if only is None else 1) + _NEAR:
            raise AssertionError(f"{found[None]} rows of {only} are in no part, not {left}")


def _check_hashed(values: list[Any], where: dict[int, str], options: dict[str, Any]) -> None:
    """A hash of the seed and the value says where a row is."""
    ends = list(accumulate(options["parts"].values()))
    whole = abs(ends[-1] - 1) < _NEAR
    for row, value in enumerate(values):
        key = _key(value)
        text = key if isinstance(key, bytes) else str(key).encode()
        data = f"{options['seed']}\0".encode() + text
        digest = hashlib.blake2b(data, digest_size=8).digest()
        chance = (int.from_bytes(digest, "little") >> 11) / 2**53
        below = [
            name
            for name, end in zip(options["parts"], ends, strict=True)
            if chance < end or (whole and end >= ends[-1])
        ]
        if where.get(row) != (below[0] if below else None):
            raise AssertionError(f"row {row} is in {where.get(row)}, its hash says {below[:1]}")
