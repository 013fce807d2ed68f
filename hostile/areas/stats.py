"""Random statistics, quantiles and normalized rows, compared with NumPy and fractions."""

from __future__ import annotations

import itertools
import math
import warnings
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt

import recmap as rm
from hostile import arrays
from hostile.case import Case
from hostile.reading import check_some_ways
from hostile.table import Table
from recmap.dataset.channel_stats import ChannelStats
from recmap.machine.cpus import using_threads

__all__ = ["case"]

_ENDINGS = [".npz", ".h5", ".zarr", ".parquet", ".arrow", ".tfrecord"]
_DTYPES = ["?", "i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f4", "f8", "f8"]
_DTYPES += [">i2", ">u4", ">f4", ">f8"]
_SHARES = [0.0, 1e-6, 0.01, 0.25, 0.5, 0.9, 0.999, 1.0]
_MOST_CHANNELS = 1024
# Squares of greater numbers are infinite, and those of smaller ones 0.
_GREAT, _SMALL = 1e150, 1e-150
# Rows that are checked one by one.
_MOST_SHUFFLED = 10_000
_FEW = 2000


def case(case: Case) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.SlowOrderWarning)
        _case(case)


def _case(case: Case) -> None:
    rows = case.pick([0, 1, 2, 7, 40, 300, 8192, 8193, 20_000, 50_000, case.between(1, 90_000)])
    if case.chance(0.02):
        rows = 1_700_000
    columns: dict[str, Any] = {"id": np.arange(rows)}
    values: dict[str, list[Any] | npt.NDArray[Any]] = {}
    for name in "xy"[: case.between(1, 2)]:
        columns[name], values[name] = _column(case, rows)
    ds = rm.from_arrays(columns)
    if rows and case.chance(0.6):
        ds = _saved(case, ds)
    ds = _changed(case, ds)
    ids = ds["id"][:]
    of_rows = {name: [each[i] for i in ids] for name, each in values.items()}
    axis, shares = case.pick([None, -1, 0, (0, -1), (-1, -2), 1]), _shares(case)
    case.note(f"{ {n: str(f) for n, f in ds.schema.items()} } {len(ids)} rows {axis=} {shares=}")
    wide = [n for n in values if _channels(ds.schema[n], axis) > _MOST_CHANNELS]
    if shares and any(ds.schema[n].dtype.itemsize > 1 for n in wide):
        _refused(lambda: ds.stats(axis=axis, quantiles=shares), "too many channels")
        case.outcome = "refused"
        return
    stats = ds.stats(axis=axis, quantiles=shares)
    with using_threads(case.pick([1, 3])):
        again = ds.stats(axis=axis, quantiles=shares)
    if stats.to_json() != again.to_json():
        raise AssertionError("the statistics depend on the number of threads")
    if rm.Stats.from_json(stats.to_json()).to_json() != stats.to_json():
        raise AssertionError("the statistics are others after to_json")
    for name, each in of_rows.items():
        if axis is not None or shares:
            channels = stats[name].channels
            assert channels is not None
            _check(name, channels, each, ds.schema[name])
    if len(ids) <= _FEW:
        _check_normalized(case, ds, stats, of_rows, shares)


def _column(case: Case, rows: int) -> tuple[Any, list[Any] | npt.NDArray[Any]]:
    """Return a column as recmap takes it, and its rows, of which None is null."""
    dtype = np.dtype(case.pick(_DTYPES))
    shape = arrays.shape(case, rows)[1:] if rows < _FEW else case.pick([(), (1,), (3,), (2, 3)])
    if rows >= _FEW and case.chance(0.1):
        shape = (case.pick([33, 70]),)
    if case.chance(0.2):
        return _ragged(case, rows, dtype, shape if rows < _FEW and 0 not in shape else ())
    made = _numbers(case, (rows, *shape), dtype)
    if case.chance(0.07):
        made = made.astype(np.float32).astype(ml_dtypes.bfloat16)
    if rows and 0 not in shape and made.dtype.kind != "V" and case.chance(0.2):
        missing = case.rng.random(rows) < case.pick([0.1, 0.9, 1.0])
        mask = np.broadcast_to(missing.reshape(-1, *[1] * len(shape)), made.shape)
        return np.ma.array(made, mask=mask), [
            None if null else row for row, null in zip(made, missing, strict=True)
        ]
    return arrays.lay_out(case, made), made


def _ragged(
    case: Case, rows: int, dtype: np.dtype[Any], inner: tuple[int, ...]
) -> tuple[Any, list[Any]]:
    lengths = case.rng.integers(0, case.pick([1, 4, 9]), rows)
    flat = _numbers(case, (int(lengths.sum()), *inner), dtype.newbyteorder("="))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    parts = [flat[a:b] for a, b in itertools.pairwise(offsets)]
    return rm.Ragged(flat, offsets), parts


def _numbers(case: Case, shape: tuple[int, ...], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    kind = case.pick(["bits", "normal", "normal", "few", "sorted"])
    if kind == "bits" or dtype.kind == "b":
        return arrays.values(case, shape, dtype)
    with np.errstate(over="ignore", invalid="ignore"):
        made = case.rng.normal(case.pick([0, 50, 1e4]), case.pick([0, 1, 30]), shape)
        made = np.floor(made) if kind == "few" else np.sort(made, 0) if kind == "sorted" else made
        made = np.abs(made) if dtype.kind == "u" else made
        found = np.clip(made, *_limits(dtype)).astype(dtype)
    if dtype.kind == "f" and case.chance(0.5):
        unusual = case.rng.choice([np.nan, np.inf, -np.inf, -0.0], shape)
        found = np.where(case.rng.random(shape) < case.pick([0.01, 0.5, 0.98]), unusual, found)
        found = found.astype(dtype)
    return np.asarray(found)


def _limits(dtype: np.dtype[Any]) -> tuple[float, float]:
    if dtype.kind == "f":
        return -6e4, 6e4
    info = np.iinfo(dtype)
    return max(int(info.min), -(2**40)), min(int(info.max), 2**40)


def _saved(case: Case, ds: rm.Dataset) -> rm.Dataset:
    path = case.path("x" + case.pick(_ENDINGS))
    try:
        ds.save(path)
    except rm.RecmapError as e:
        case.note(f"not saved: {e}")
        return ds
    case.note(f"saved as {path}")
    return rm.open(path)


def _changed(case: Case, ds: rm.Dataset) -> rm.Dataset:
    rows = len(ds)
    verb = case.pick(["none", "none", "filter", "shuffle", "split", "where"])
    case.note(verb)
    if verb == "filter" and rows <= _FEW:
        return ds.filter(_kept)
    if verb == "where":
        return ds.where(f"id < {case.between(0, rows)}")
    # Rows whose sizes are not known are gathered one by one.
    if verb == "shuffle" and 0 < rows <= _MOST_SHUFFLED:
        return ds.shuffle(seed=case.between(0, 9))
    if verb == "split" and rows > 2:
        return ds.split({"a": 0.5, "b": 0.5}, seed=1)["a"]
    return ds


def _kept(row: dict[str, Any]) -> bool:
    return bool(row["id"] % 3)


def _shares(case: Case) -> list[float]:
    if case.chance(0.1):
        return []
    return sorted({case.pick(_SHARES) for _ in range(case.between(1, 5))})


def _axes(field: rm.Field, axis: Any) -> tuple[int, ...]:
    given = () if axis is None else axis if isinstance(axis, tuple) else (axis,)
    found = {each if each < 0 else each - len(field.shape) for each in given}
    return tuple(sorted(each for each in found if -len(field.inner) <= each < 0))


def _channels(field: rm.Field, axis: Any) -> int:
    return math.prod(field.inner[each] for each in _axes(field, axis))


def _check(name: str, found: ChannelStats, rows: list[Any], field: rm.Field) -> None:
    some = [row for row in rows if row is not None]
    parts = [np.asarray(row) if field.ragged else np.asarray(row)[None] for row in some]
    empty = np.empty((0, *field.inner), field.dtype)
    together = np.concatenate(parts) if parts else empty
    over = [a for a in range(-together.ndim, 0) if a not in found.axis]
    turned = np.transpose(together, [*found.axis, *over])
    for index in np.ndindex(found.count.shape):
        where = f"{name!r}, channel {index}"
        _check_channel(where, found, index, turned[index].reshape(-1))


def _check_channel(where: str, found: ChannelStats, index: Any, values: npt.NDArray[Any]) -> None:
    whole = values.dtype.kind in "biu"
    wide = values if whole else values.astype(np.float64)
    finite = np.sort(wide[np.isfinite(wide)])
    nan, inf = (0, 0) if whole else (int(np.isnan(wide).sum()), int(np.isinf(wide).sum()))
    counts = [int(each[index]) for each in (found.count, found.nan, found.inf)]
    _same(where, "counts", counts, [len(values), nan, inf])
    told = [float(getattr(found, each)[index]) for each in ("min", "max", "mean", "std")]
    quantiles = {share: float(each[index]) for share, each in found.quantiles.items()}
    if not len(finite):
        if not all(math.isnan(each) for each in [*told, *quantiles.values()]):
            raise AssertionError(f"{where}: {told} {quantiles} of no numbers")
        return
    low, high = float(finite[0]), float(finite[-1])
    _same(where, "limits", told[:2], [low, high])
    most = max(abs(low), abs(high))
    if most < _GREAT:
        mean, std = _moments(finite)
        _near(where, "mean", told[2], mean, 1e-12 * most)
        if most > _SMALL:
            _near(where, "std", told[3], std, 1e-8 * std + 1e-12 * most)
    _check_quantiles(where, quantiles, found.rank_error, finite)


def _moments(numbers: npt.NDArray[Any]) -> tuple[float, float]:
    """Return mean and deviation, exactly for few numbers."""
    if len(numbers) > _FEW:
        wide = numbers.astype(np.longdouble)
        mean = wide.mean()
        return float(mean), float(np.sqrt(np.square(wide - mean).mean()))
    exact = [Fraction(each) for each in numbers.tolist()]
    mean = sum(exact) / len(exact)
    return float(mean), math.sqrt(sum((each - mean) ** 2 for each in exact) / len(exact))


def _check_quantiles(
    where: str, quantiles: dict[float, float], error: float, ordered: npt.NDArray[Any]
) -> None:
    numbers = ordered.astype(np.float64)
    last = len(numbers) - 1
    for share, quantile in quantiles.items():
        place = share * last
        if error == 0:
            low, high = numbers[math.floor(place)], numbers[min(math.floor(place) + 1, last)]
            part = place - math.floor(place)
            wanted = low if low == high else low * (1 - part) + high * part
            _near(where, f"quantile {share}", quantile, wanted, 1e-12 * max(abs(low), abs(high)))
            continue
        # The error holds with a probability of 99%, and a quantile lies between two values.
        off = 1.3 * error * len(numbers) + 1
        at = np.searchsorted(numbers, quantile, "left"), np.searchsorted(numbers, quantile, "right")
        if not at[0] - off <= place <= at[1] + off:
            raise AssertionError(
                f"{where}: quantile {share} is {quantile}, at {at} of {last}, {error=}"
            )


def _check_normalized(
    case: Case, ds: rm.Dataset, stats: rm.Stats, rows: dict[str, list[Any]], shares: list[float]
) -> None:
    by: Any = case.pick(["std", "minmax"])
    if len(shares) > 1 and case.chance(0.5):
        by = shares[0], shares[-1]
    names = [name for name in rows if stats[name].channels is not None]
    if not names:
        return
    case.note(f"normalize {names} {by=}")
    scalings = {name: _scaling(stats[name].channels, by, ds.schema[name]) for name in names}
    if not all(np.isfinite(each).all() for scaling in scalings.values() for each in scaling):
        _refused(lambda: ds.normalize(stats, *names, by=by), "no scale")
        return
    table: Table = {"id": list(ds["id"][:])}
    back: Table = dict(table)
    nulls = False
    with np.errstate(over="ignore", invalid="ignore"):
        for name, each in rows.items():
            nulls = nulls or any(row is None for row in each)
            if name not in names or nulls:
                table[name] = back[name] = each
                continue
            center, scale = scalings[name]
            wide = [np.asarray(row).astype(np.float64) for row in each]
            table[name] = [((row - center) / scale).astype(np.float32) for row in wide]
            normal = [row.astype(np.float64) for row in table[name]]
            back[name] = [(row * scale + center).astype(np.float32) for row in normal]
    if nulls or not table["id"]:
        return
    normalized = ds.normalize(stats, *names, by=by)
    check_some_ways(case, normalized, table)
    check_some_ways(case, normalized.denormalize(stats, *names, by=by), back)


def _scaling(found: ChannelStats | None, by: Any, field: rm.Field) -> tuple[Any, Any]:
    assert found is not None
    if by == "std":
        center, scale = found.mean, found.std
    else:
        ends = (found.min, found.max) if by == "minmax" else [found.quantiles[each] for each in by]
        low, high = (each.astype(np.float64) for each in ends)
        center, scale = low / 2 + high / 2, high / 2 - low / 2
    inner = range(-len(field.inner), 0)
    shape = [field.inner[each] if each in found.axis else 1 for each in inner]
    return center.reshape(shape), np.where(scale == 0, 1.0, scale).reshape(shape)


def _refused(call: Any, why: str) -> None:
    try:
        call()
    except rm.OptionError:
        return
    raise AssertionError(f"not refused: {why}")


def _same(where: str, what: str, found: Any, wanted: Any) -> None:
    if found != wanted:
        raise AssertionError(f"{where}: {what} {found}, not {wanted}")


def _near(where: str, what: str, found: float, wanted: float, most: float) -> None:
    if not (found == wanted or abs(found - wanted) <= most + 5e-324):
        raise AssertionError(f"{where}: {what} {found}, not {wanted}")
