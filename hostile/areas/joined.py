"""Random concatenations, flat maps, selections and appends, compared with plain Python on lists."""

from __future__ import annotations

import glob
import json
import os
import warnings
from collections import Counter
from collections.abc import Iterator
from typing import Any

import numpy as np

import recmap as rm
from hostile.case import Case
from hostile.reading import check_some_ways
from hostile.table import Table

__all__ = ["case"]

_ENDINGS = [".tfrecord", ".tfrecord.gz", ".npz", ".h5", ".zarr", ".parquet", ".arrow"]
_VERBS = ["flat_map", "filter", "map", "numbers", "mask", "slice", "repeat", "columns", "ends"]
_VERBS += ["where", "sort"]
Row = dict[str, Any]


def some(row: Row) -> list[Row]:
    """Return no row, the row, or several."""
    return [{**row, "x": row["x"] + 1000 * i} for i in range(int(row["x"]) % 4)]


def yielded(row: Row) -> Iterator[Row]:
    buffer = np.zeros((), np.int64)
    for each in some(row):
        buffer[...] = each["x"]  # the same array every time
        yield {**each, "x": buffer}


def keep(row: Row) -> bool:
    return int(row["x"]) % 3 != 1


def double(row: Row) -> Row:
    return {**row, "x": row["x"] * 2}


def case(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.SlowOrderWarning)
        try:
            [_joined, _joined, _appended][case.between(0, 2)](case)
        except rm.OptionError as e:
            if "comes before repeat and the take or skip after it" not in str(e):
                raise
            case.note(f"refused: {e}")
            case.outcome = "refused"


def _joined(case: Case) -> None:
    parts, models, shuffled = [], [], []
    for number in range(case.between(1, 4)):
        ds, rows = _part(case, number)
        ds, rows, is_shuffled = _changed(case, ds, rows)
        parts.append(ds)
        models.append(rows)
        shuffled.append(is_shuffled)
    joined = rm.concat(*parts) if case.chance(0.5) else rm.concat(parts)
    if not any(shuffled) and case.chance(0.5):
        joined, rows, is_shuffled = _changed(case, joined, [row for rows in models for row in rows])
        models, shuffled = [rows], [is_shuffled]
    case.note(repr(joined).partition("\n")[0])
    if not any(models):
        if len(joined):
            raise AssertionError(f"{len(joined)} rows, not 0")
        return
    if not any(shuffled):
        check_some_ways(case, joined, _table([row for rows in models for row in rows]))
    _check_training(case, joined, models, shuffled)


def _part(case: Case, number: int) -> tuple[rm.Dataset, list[Row]]:
    """Return a file, or rows in memory; its columns may be in another order."""
    count = case.pick([0, 1, 2, 5, 20])
    x = case.rng.integers(0, 100, count)
    t = [b"t" * case.between(0, 3) for _ in range(count)]
    ds = rm.from_arrays({"x": x, "t": rm.Ragged.from_bytes(t)})
    if case.chance(0.3):
        ds = ds.select("t", "x")
    if case.chance(0.7):
        path = case.path(f"part{number}{case.pick(_ENDINGS)}")
        ds.save(path)
        if case.chance(0.5):  # without an index, rows are counted when that is needed
            for beside in glob.glob(f"{path}?*"):
                os.remove(beside)
        ds = rm.open(path)
    return ds, [{"x": int(a), "t": b} for a, b in zip(x, t, strict=True)]


def _changed(case: Case, ds: rm.Dataset, rows: list[Row]) -> tuple[rm.Dataset, list[Row], bool]:
    """Apply a few verbs, and the same to a list; also tell whether rows are shuffled."""
    workers = case.pick([None, None, None, "threads:2"])
    for _ in range(case.between(0, 3)):
        verb = case.pick(_VERBS)
        case.note(verb)
        if verb == "flat_map":
            ds = ds.flat_map(case.pick([some, yielded]), workers=workers)
            rows = [each for row in rows for each in some(row)]
        elif verb == "filter":
            ds, rows = ds.filter(keep), [row for row in rows if keep(row)]
        elif verb == "map":
            ds, rows = ds.map(double, workers=workers), [double(row) for row in rows]
        elif verb == "repeat":
            ds, rows = ds.repeat(2), rows * 2
        elif verb == "columns":
            renamed = ds.rename({"x": "y"}).cast({"y": "uint32"})
            ds = rm.zip(renamed.select("y").rename({"y": "x"}).cast({"x": "int64"}), ds.select("t"))
        elif verb == "ends":
            skip, take = case.between(0, 3), case.between(0, 30)
            ds, rows = ds.skip(skip).take(take), rows[skip:][:take]
        elif verb == "where":
            ds, rows = ds.where("x >= 20"), [row for row in rows if row["x"] >= 20]
        elif verb == "sort":
            ds, rows = ds.sort("x"), sorted(rows, key=lambda row: int(row["x"]))
        elif verb == "numbers" and rows:
            chosen = case.rng.integers(-len(rows), len(rows), case.between(0, len(rows)))
            given: Any = chosen.tolist() if case.chance(0.5) else chosen
            ds, rows = ds.select(given), [rows[i] for i in chosen]
        elif verb == "mask":
            mask = case.rng.random(len(rows)) < 0.5
            given = mask.tolist() if case.chance(0.5) and rows else mask
            ds, rows = (
                ds.select(given),
                [row for row, wanted in zip(rows, mask, strict=True) if wanted],
            )
        elif verb == "slice":
            span = slice(case.between(0, 3), case.pick([None, -1, 7]), case.pick([None, 2]))
            ds, rows = ds.select(span), rows[span]
    if case.chance(0.4):
        return ds.shuffle(seed=case.between(0, 9)), rows, True
    return ds, rows, False


def _table(rows: list[Row]) -> Table:
    return {"x": [np.int64(row["x"]) for row in rows], "t": [row["t"] for row in rows]}


def _check_training(
    case: Case, ds: rm.Dataset, models: list[list[Row]], shuffled: list[bool]
) -> None:
    """Compare epochs of batches, runs that resume at any batch, and ranks."""
    size = case.between(1, 6)
    epochs = [_rows_of(ds.batch(size).run(1))]
    stream = ds.batch(size)
    epochs = [_rows_of(stream) for _ in range(2)]
    for epoch in epochs:
        start = 0
        for model, is_shuffled in zip(models, shuffled, strict=True):
            found = epoch[start : start + len(model)]
            wanted = [(row["x"], row["t"]) for row in model]
            start += len(model)
            if (Counter(found) != Counter(wanted)) if is_shuffled else found != wanted:
                raise AssertionError(f"{found} instead of {wanted}")
        if start != len(epoch):
            raise AssertionError(f"{len(epoch)} rows, not {start}")
    for i in case.rng.integers(0, len(epochs[0]), 3).tolist():
        row = ds[i]
        if (int(row["x"]), row["t"]) != epochs[0][i]:
            raise AssertionError(f"ds[{i}] is {row}, not {epochs[0][i]}")
    stopped = ds.batch(size)
    batches, taken = iter(stopped), list[tuple[int, bytes]]()
    for _ in range(case.between(0, -(-len(epochs[0]) // size) - 1)):
        taken += _rows_of([next(batches)])
    state = json.loads(json.dumps(stopped.state()))
    rest = _rows_of(ds.batch(size).restore(state))
    if taken + rest != epochs[0]:
        raise AssertionError(f"resumed after {len(taken)} rows: {rest}")
    world = case.between(2, 3)
    try:
        ranks = [_rows_of(ds.batch(size).shard(rank, world)) for rank in range(world)]
    except rm.OptionError as e:
        if "put shard before" not in str(e):
            raise
        case.note(f"refused: {e}")
        return
    if Counter(row for rows in ranks for row in rows) != Counter(epochs[0]):
        raise AssertionError(f"ranks have {ranks}")


def _rows_of(batches: Any) -> list[tuple[int, bytes]]:
    return [
        (int(x), bytes(t)) for batch in batches for x, t in zip(batch["x"], batch["t"], strict=True)
    ]


def _appended(case: Case) -> None:
    """Append files and rows in memory, some of them twice, to a folder of any format."""
    format = case.pick(["tfrecord", "npz", "parquet", "arrow", "hdf5", "zarr"])
    folder, wanted = case.path("out/"), list[Row]()
    for number in range(case.between(1, 4)):
        ds, rows = _part(case, number)
        lasting = bool(ds.files)
        options: dict[str, Any] = {"append": True, "shards": case.pick([None, 1, 2, 3])}
        if case.chance(0.3):
            ds, rows = ds.filter(keep), [row for row in rows if keep(row)]
        for _ in range(case.between(1, 2)):
            case.note(f"append {len(rows)} rows, {options}")
            ds.save(folder, format=format if not wanted or case.chance(0.5) else None, **options)
            if not lasting:
                wanted += rows
        wanted += rows if lasting else []
        if not os.path.isdir(folder):
            raise AssertionError("no folder")
    found = rm.open(folder)
    if len(found) != len(wanted):
        raise AssertionError(f"{len(found)} rows, not {len(wanted)}")
    names = list(found.schema)
    if wanted:
        check_some_ways(case, found, {name: _table(wanted)[name] for name in names})
