"""Statistics of each channel and quantiles, compared with exact arithmetic and NumPy."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import numpy.typing as npt
import pytest

import recmap as rm
from recmap.dataset.channel_stats import ChannelStats
from recmap.machine.cpus import using_threads
from tests.command import run

RNG = np.random.default_rng(7)


def channels(column: Any, **options: Any) -> ChannelStats:
    found = rm.from_arrays({"x": column}).stats(**options)["x"].channels
    assert found is not None
    return found


def exact_moments(values: npt.NDArray[Any]) -> tuple[float, float]:
    """Return the mean and the standard deviation by exact arithmetic."""
    numbers = [Fraction(value) for value in values.astype(np.float64).reshape(-1).tolist()]
    mean = sum(numbers) / len(numbers)
    variance = sum((number - mean) ** 2 for number in numbers) / len(numbers)
    return float(mean), math.sqrt(variance)


NASTY = {
    "far from zero": 1e9 + RNG.normal(0, 1e-3, 3000),
    "very far from zero": 1e15 + RNG.integers(0, 5, 3000),
    "a ramp": np.linspace(1e6, 1e6 + 1, 3000),
    "steps": np.repeat([1e8, 1e8 + 1, -1e8], 1000),
    "both signs": np.concatenate([np.full(1500, 1e12), np.full(1500, -1e12), [1.0, 2.0]]),
    "one outlier": np.concatenate([np.full(3000, 0.1), [1e10]]),
    "tiny": RNG.normal(0, 1e-150, 3000),
    "huge": RNG.normal(0, 1e150, 3000),
    "float32": (1e6 + RNG.normal(0, 0.5, 3000)).astype(np.float32),
    "large integers": (2**53 + RNG.integers(0, 100, 3000)).astype(np.int64),
    "uint16": RNG.integers(0, 2**16, 3000).astype(np.uint16),
}


@pytest.mark.parametrize("name", NASTY)
def test_mean_and_std_are_exact_to_the_last_digits(name: str) -> None:
    values = NASTY[name]
    mean, std = exact_moments(values)
    found = channels(values, axis=-1)
    assert found.mean == pytest.approx(mean, rel=1e-13, abs=std * 1e-11)
    assert found.std == pytest.approx(std, rel=1e-9)


def test_equal_values_have_no_spread() -> None:
    for value in (0.1, 1e300, -1e-300, np.float32(0.1)):
        found = channels(np.full(300_001, value), axis=-1)
        assert (found.mean.item(), found.std.item()) == (float(value), 0.0)


DTYPES: list[Any] = ["f4", "u1", "f8", "i2", "f2", ">f4", "i1", ">i8", "?", "u2", "i4", "u4", "i8"]
DTYPES += ["u8", "g", ml_dtypes.bfloat16]


SHAPES = [(), (3,), (5, 4, 3), (3, 40, 40), (2, 1), (1,), (2000, 2)]
AXES = [None, -1, 0, (0, -1), (0, 1, 2)]


@pytest.mark.slow
def test_any_axis_of_any_numbers_matches_numpy() -> None:
    random = np.random.default_rng(3)
    cases = itertools.product(SHAPES, AXES)
    for (shape, axis), dtype in zip(cases, itertools.cycle(DTYPES), strict=False):
        values = (random.normal(20, 9, (31, *shape)) % 100).astype(dtype)
        wide = values.astype(np.float64)
        given = () if axis is None else np.atleast_1d(axis)
        kept = {int(a) if a < 0 else a - len(shape) for a in given}
        kept = {a for a in kept if -len(shape) <= a < 0}
        over = tuple(a for a in range(wide.ndim) if a - wide.ndim not in kept)
        few = math.prod(shape[a] for a in kept) <= 1024
        found = channels(values, axis=axis, quantiles=[0, 0.1, 0.5, 1] if few else [])
        assert found.axis == tuple(sorted(kept))
        assert np.array_equal(found.min, wide.min(over))
        assert np.array_equal(found.max, wide.max(over))
        assert np.allclose(found.mean, wide.mean(over), rtol=1e-12)
        assert np.allclose(found.std, wide.std(over), rtol=1e-9, atol=1e-12)
        assert (found.count == wide.size // found.count.size).all()
        if found.rank_error == 0:
            for share, quantile in found.quantiles.items():
                assert np.allclose(quantile, np.quantile(wide, share, over), rtol=1e-12)


def test_nan_infinities_and_nulls_are_counted_and_left_out() -> None:
    values = RNG.normal(size=(50_000, 3)).astype(np.float32)
    values[::7, 0], values[::5, 1], values[1::5, 1] = np.nan, np.inf, -np.inf
    values[:, 2] = np.nan
    found = channels(values, axis=-1, quantiles=[0.5])
    finite = np.isfinite(values)
    assert found.nan.tolist() == np.isnan(values).sum(0).tolist()
    assert found.inf.tolist() == np.isinf(values).sum(0).tolist()
    assert found.count.tolist() == [50_000] * 3
    for c in range(2):
        kept = values[finite[:, c], c].astype(np.float64)
        assert found.mean[c] == pytest.approx(kept.mean(), abs=1e-12)
        assert found.std[c] == pytest.approx(kept.std())
        assert (found.min[c], found.max[c]) == (kept.min(), kept.max())
        assert abs((kept < found.quantiles[0.5][c]).mean() - 0.5) <= found.rank_error
    assert math.isnan(found.mean[2])
    assert math.isnan(found.quantiles[0.5][2])
    mask = np.repeat([[False], [True], [False]], 2, axis=1)
    masked = np.ma.array([[1.0, 2.0], [9.0, 9.0], [3.0, 6.0]], mask=mask)
    stats = rm.from_arrays({"x": masked}).stats(axis=-1)["x"]
    assert stats.channels is not None
    assert (stats.nulls, stats.channels.mean.tolist()) == (1, [2.0, 4.0])


def test_all_values_together_are_as_without_channels() -> None:
    values = RNG.normal(size=(2000, 3))
    for change in ((), (np.nan,), (np.inf,), (-np.inf, np.nan), (np.inf, -np.inf)):
        values[: len(change), 1] = change
        plain = rm.from_arrays({"x": values}).stats()["x"].values
        found = rm.from_arrays({"x": values}).stats(axis=-1)["x"].values
        assert plain is not None
        assert found is not None
        for name in ("count", "nan", "min", "max", "mean", "std"):
            expected = pytest.approx(getattr(plain, name), nan_ok=True, abs=1e-12)
            assert getattr(found, name) == expected


def test_rows_of_ragged_columns_have_channels() -> None:
    rows = [RNG.normal(size=(n, 2)) for n in (0, 3, 5)]
    stats = rm.from_arrays({"x": rm.Ragged.from_rows(rows)}).stats(axis=-1)["x"]
    assert stats.channels is not None
    assert np.allclose(stats.channels.mean, np.concatenate(rows).mean(0))
    assert stats.lengths[0].max == 5


def test_columns_without_numbers_have_the_statistics_they_had() -> None:
    columns = {
        "name": ["a", "b"],
        "day": np.array(["2026-01-01", "2026-01-03"], "M8[D]"),
        "z": np.array([1j, 2]),
    }
    ds = rm.from_arrays(columns)
    assert ds.stats(axis=-1, quantiles=[0.5]) == ds.stats()


QUANTILES = [0.0, 0.001, 0.01, 0.25, 0.5, 0.9, 0.99, 0.999, 1.0]


@pytest.mark.parametrize("order", ["random", "ascending", "descending", "few"])
def test_quantiles_are_within_their_error(order: str) -> None:
    values = RNG.lognormal(0, 3, 1_000_000).astype(np.float32)
    if order == "few":
        values = np.floor(values).clip(0, 5)
    elif order != "random":
        values = np.sort(values)[:: -1 if order == "descending" else 1]
    found = channels(values, quantiles=QUANTILES)
    in_order = np.sort(values)
    assert 0 < found.rank_error < 0.002
    for share, quantile in found.quantiles.items():
        low = np.searchsorted(in_order, quantile, "left") / len(values)
        high = np.searchsorted(in_order, quantile, "right") / len(values)
        assert low - found.rank_error <= share <= high + found.rank_error


def test_quantiles_of_bytes_and_of_few_values_are_exact() -> None:
    for values in (RNG.integers(0, 256, (200_000, 3)).astype(np.uint8), RNG.normal(size=(4000, 3))):
        found = channels(values, axis=-1, quantiles=QUANTILES)
        assert found.rank_error == 0
        for share, quantile in found.quantiles.items():
            assert np.allclose(quantile, np.quantile(values, share, 0))


def test_quantiles_of_any_channels_are_within_their_error() -> None:
    random = np.random.default_rng(11)
    sizes = [(1, 9000), (70, 20_000), (3, 1_700_000), (33, 40_000)]
    dtypes = ["f4", "f8", "i2", "u2", "i8", "f2"]
    for (width, count), dtype in zip(itertools.cycle(sizes), dtypes, strict=False):
        values = (random.normal(0, 900, (count, width)) % 30_000).astype(dtype)
        if values.dtype.kind == "f":
            values[random.random(count) < 0.1] = np.nan
            values[random.random((count, width)) < 0.05] = random.choice([np.nan, np.inf, -np.inf])
            values[:, -1] = np.where(random.random(count) < 0.5, -np.inf, values[:, -1])
        found = channels(values, axis=-1, quantiles=QUANTILES)
        for channel in range(0, width, 7):
            kept = np.sort(values[np.isfinite(values[:, channel]), channel].astype(np.float64))
            for share, quantile in found.quantiles.items():
                low = np.searchsorted(kept, quantile[channel], "left") / len(kept)
                high = np.searchsorted(kept, quantile[channel], "right") / len(kept)
                spread = found.rank_error + 1 / len(kept)
                assert low - spread <= share <= high + spread


def test_the_result_does_not_depend_on_the_number_of_threads(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", RNG.normal(size=(400_000, 7)).astype(np.float32))
    found = []
    for count in (1, 5):
        with using_threads(count):
            found.append(rm.open(tmp_path / "x.npy").stats(axis=-1, quantiles=QUANTILES).to_json())
    assert found[0] == found[1]


def test_statistics_of_a_split_are_those_of_its_rows() -> None:
    ds = rm.from_arrays({"x": RNG.normal(size=(1000, 2))})
    train = ds.split({"train": 0.7, "val": 0.3}, seed=1)["train"]
    found = train.stats(axis=-1)["x"].channels
    assert found is not None
    assert np.allclose(found.mean, train["x"][:].mean(0))
    mapped = ds.map(lambda row: {"x": row["x"] * 2}).filter(lambda row: row["x"][0] > 0)
    found = mapped.stats(axis=-1)["x"].channels
    assert found is not None
    assert np.allclose(found.std, mapped[:]["x"].std(0))


def test_statistics_survive_json(tmp_path: Path) -> None:
    ds = rm.from_arrays(
        {
            "x": np.array([[1.0, np.nan], [np.inf, 2.0]]),
            "big": np.array([2**64 - 1, 5], np.uint64),
            "tokens": rm.Ragged.from_rows([[1, 2], []]),
            "name": ["é", "b"],
            "raw": rm.Ragged.from_bytes([b"\xff\0", b"a"]),
            "day": np.array(["2026-01-01", "NaT"], "M8[D]"),
            "flag": np.array([True, False]),
            "empty": np.zeros((2, 0)),
        }
    )
    for stats in (ds.stats(), ds.stats(axis=-1, quantiles=[0.01, 0.99])):
        assert repr(rm.Stats.from_json(stats.to_json())) == repr(stats)
        stats.save(tmp_path / "stats.json")
        loaded = rm.Stats.load(tmp_path / "stats.json")
        assert loaded.to_json() == stats.to_json()
        assert loaded["x"].channels == stats["x"].channels
        assert loaded["raw"] == stats["raw"]
        assert loaded["big"] == stats["big"]


def test_a_file_that_holds_no_statistics_is_an_error_that_names_it(tmp_path: Path) -> None:
    good = json.loads(rm.from_arrays({"x": np.arange(3.0)}).stats(axis=-1).to_json())
    good["x"]["channels"]["mean"] = [[1, 2], [3]]
    texts = ["", "[]", "{", '{"x": 3}', '{"x": {}}', "\0", "[" * 100_000, json.dumps(good)]
    for text in texts:
        (tmp_path / "bad.json").write_text(text)
        with pytest.raises(rm.DataError, match=r"bad\.json: not the statistics"):
            rm.Stats.load(tmp_path / "bad.json")
    with pytest.raises(rm.PathNotFoundError, match="none"):
        rm.Stats.load(tmp_path / "none.json")


def test_options_that_mean_nothing_are_refused() -> None:
    ds = rm.from_arrays({"x": np.zeros((2, 3)), "wide": np.zeros((2, 2000)), "s": ["a", "b"]})
    with pytest.raises(rm.OptionError, match="from 0 to 1"):
        ds.stats(quantiles=[1.5])
    with pytest.raises(rm.OptionError, match="no such fixed axis"):
        ds.stats(axis={"x": 2})
    with pytest.raises(rm.OptionError, match="no column of numbers is called 's'"):
        ds.stats(axis={"s": 0})
    with pytest.raises(rm.OptionError, match="2,000 channels"):
        ds.stats(axis=-1, quantiles=[0.5])
    with pytest.raises(rm.OptionError, match="axis"):
        ds.stats(axis=0.5)  # type: ignore[arg-type]


def test_the_command_line_prints_what_load_reads(tmp_path: Path) -> None:
    values = RNG.normal(size=(50, 3)).astype(np.float32)
    np.save(tmp_path / "x.npy", values)
    file = str(tmp_path / "x.npy")
    done = run("stats", file, "--axis", "-1", "--quantiles", "0.1,0.9", "--json")
    expected = rm.open(tmp_path / "x.npy").stats(axis=-1, quantiles=[0.1, 0.9])
    assert rm.Stats.from_json(done.stdout).to_json() == expected.to_json()
    shown = run("stats", file, "--axis", "data=-1", "--quantiles", "0.1").stdout
    assert "channel 2" in shown
    assert "q0.1" in shown


def test_statistics_of_a_second_pass_are_those_of_the_first(tmp_path: Path) -> None:
    """Batches end elsewhere once the sizes of rows are known better."""
    lengths = np.sort(np.random.default_rng(0).integers(0, 9, 50_000))[::-1]
    values = np.random.default_rng(1).normal(size=int(lengths.sum()))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    columns = {"x": rm.Ragged(values, offsets), "y": values[:50_000]}
    rm.from_arrays(columns).save(tmp_path / "x.arrow")
    ds = rm.open(tmp_path / "x.arrow")
    first = ds.stats(quantiles=[0.01, 0.5])
    assert ds.stats(quantiles=[0.01, 0.5]).to_json() == first.to_json()


def test_the_first_and_the_last_quantile_are_exact() -> None:
    values = np.random.default_rng(0).normal(size=(2_000_000, 2)).astype(np.float32)
    values[1_234_567] = -10, 10
    found = rm.from_arrays({"x": values}).stats(axis=-1, quantiles=[1, 0.5, 0])["x"].channels
    assert found is not None
    assert found.quantiles[0].tolist() == values.min(0).tolist()
    assert found.quantiles[1].tolist() == values.max(0).tolist()
