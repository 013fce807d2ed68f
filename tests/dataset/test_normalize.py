"""``normalize`` and ``denormalize``, compared with NumPy."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm

RNG = np.random.default_rng(5)
QUANTILES = [0.01, 0.99]
WAYS: list[Any] = ["std", "minmax", (0.01, 0.99)]


def robot(rows: int = 200) -> rm.Dataset:
    return rm.from_arrays(
        {
            "state": RNG.normal([1, -50, 1000], [1, 5, 0.5], (rows, 3)),
            "reward": RNG.normal(size=rows).astype(np.float32),
            "image": RNG.integers(0, 256, (rows, 4, 5, 3)).astype(np.uint8),
            "tokens": rm.Ragged.from_rows([RNG.normal(size=(n % 4, 2)) for n in range(rows)]),
            "label": RNG.integers(0, 3, rows),
        }
    )


def expected(values: Any, over: Any, by: Any) -> Any:
    values = values.astype(np.float64)
    if by == "std":
        return (values - values.mean(over)) / values.std(over)
    shares = (0, 1) if by == "minmax" else by
    low, high = np.quantile(values, shares, over)
    return 2 * (values - low) / (high - low) - 1


@pytest.mark.parametrize("by", WAYS)
def test_normalize_matches_numpy_and_denormalize_undoes_it(by: Any) -> None:
    ds = robot()
    stats = ds.stats(axis=-1, quantiles=QUANTILES)
    normal = ds.normalize(stats, by=by)
    assert str(normal.schema["state"]) == "float32[3]"
    assert normal.schema["image"] == ds.schema["image"]
    assert normal.schema["label"] == ds.schema["label"]
    rows = ds[:]
    assert np.allclose(normal["state"][:], expected(rows["state"], 0, by), atol=1e-5)
    assert np.allclose(normal["reward"][:], expected(rows["reward"], 0, by), atol=1e-5)
    tokens = normal[:]["tokens"]
    assert np.allclose(tokens.values, expected(rows["tokens"].values, 0, by), atol=1e-5)
    assert np.array_equal(tokens.lengths, rows["tokens"].lengths)
    back = normal.denormalize(stats, by=by)
    assert np.allclose(back["state"][:], rows["state"], rtol=1e-5)
    assert np.allclose(back[:]["tokens"].values, rows["tokens"].values, atol=1e-5)


@pytest.mark.parametrize("by", WAYS)
def test_images_are_normalized_if_they_are_named(by: Any) -> None:
    ds = robot()
    stats = ds.stats(axis=-1, quantiles=QUANTILES)
    found = ds.normalize(stats, "image", by=by)
    assert found.schema["state"] == ds.schema["state"]
    assert np.allclose(found["image"][:], expected(ds["image"][:], (0, 1, 2), by), atol=1e-5)
    first = rm.from_arrays({"image": np.moveaxis(ds["image"][:], -1, 1)})
    stats = first.stats(axis=0, quantiles=QUANTILES)
    found = first.normalize(stats, "image", by=by)
    assert found["image"][3].shape == (3, 4, 5)
    wanted = expected(ds["image"][:], (0, 1, 2), by)
    assert np.allclose(np.moveaxis(found["image"][:], 1, -1), wanted, atol=1e-5)


def test_equal_values_become_zero_and_not_infinite() -> None:
    ds = rm.from_arrays({"x": np.array([[0.1, 1.0], [0.1, 2.0]])})
    stats = ds.stats(axis=-1, quantiles=QUANTILES)
    for by in WAYS:
        normal = ds.normalize(stats, by=by)
        assert normal["x"][:, 0].tolist() == [0, 0]
        assert np.allclose(normal.denormalize(stats, by=by)["x"][:], ds["x"][:])
    other = rm.from_arrays({"x": np.array([[0.6, 1.0]])})
    assert other.normalize(stats)["x"][0].tolist() == [0.5, -1]


def test_nan_infinities_and_nulls_stay_what_they_are() -> None:
    values = np.ma.array([1.0, np.nan, 5.0, np.inf, 3.0], mask=np.arange(5) == 2)
    ds = rm.from_arrays({"x": values})
    normal = ds.normalize(ds.stats(axis=-1))
    assert normal["x"][:].tolist()[2] is None
    assert np.isnan(normal[1]["x"])
    assert normal[3]["x"] == np.inf
    assert (normal[0]["x"], normal[4]["x"]) == (-1, 1)


def test_arrays_and_batches_are_turned_back() -> None:
    ds = robot()
    stats = rm.Stats.from_json(ds.stats(axis=-1, quantiles=QUANTILES).to_json())
    for by in WAYS:
        batch = stats.normalize(ds[:50], by=by)
        normal = ds.normalize(stats, by=by)[:50]
        assert batch["state"].dtype == np.float64
        assert np.allclose(batch["state"], normal["state"], atol=1e-5)
        assert np.array_equal(batch["image"], ds[:50]["image"])
        assert np.allclose(stats.denormalize(batch, by=by)["state"], ds[:50]["state"])
        chunks = RNG.normal(size=(8, 16, 3)).astype(np.float32)
        back = stats["state"].denormalize(chunks, by=by)
        assert (back.shape, back.dtype) == (chunks.shape, chunks.dtype)
        assert np.allclose(stats["state"].normalize(back, by=by), chunks, atol=1e-3)
        assert np.allclose(stats["state"].denormalize(chunks[0, 0], by=by), back[0, 0])
        assert stats["reward"].denormalize(0.0, by=by).shape == ()
    with pytest.raises(rm.OptionError, match=r"shape \(8, 4\)"):
        stats["state"].denormalize(np.zeros((8, 4)))
    with pytest.raises(rm.OptionError, match="no 'action' in the batch"):
        stats.denormalize({"x": np.zeros(3)}, "action")


def test_statistics_without_channels_normalize_by_all_values() -> None:
    ds = robot()
    normal = ds.normalize(ds.stats(), "state")
    assert np.allclose(normal["state"][:], expected(ds["state"][:], None, "std"), atol=1e-5)


def test_normalized_rows_are_rows_like_others(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", RNG.normal(3, 2, (101, 4)))
    ds = rm.open(tmp_path / "x.npy")
    normal = ds.normalize(ds.stats(axis=-1))
    whole = normal["data"][:]
    assert np.array_equal(pickle.loads(pickle.dumps(normal))["data"][:], whole)
    normal.save(tmp_path / "out.npy")
    assert np.array_equal(np.load(tmp_path / "out.npy"), whole)
    train = normal.shuffle(seed=1).batch(8)
    expected_batches = [batch["data"] for batch in train]
    for done in range(len(expected_batches)):
        stream = normal.shuffle(seed=1).batch(8)
        iterator = iter(stream)
        for _ in range(done):
            next(iterator)
        again = normal.shuffle(seed=1).batch(8)
        again.restore(stream.state())
        rest = [batch["data"] for batch in again]
        assert all(map(np.array_equal, rest, expected_batches[done:]))
    ranks = [normal.batch(4).shard(rank, 2) for rank in range(2)]
    rows = np.concatenate([batch["data"] for rank in ranks for batch in rank])
    assert sorted(map(tuple, rows)) == sorted(map(tuple, np.concatenate([whole])))
    doubled = normal.map(lambda row: {"data": row["data"] * 2}, workers=2).batch(50)
    assert np.allclose(np.concatenate([batch["data"] for batch in doubled]), whole * 2)


def test_another_normalization_is_another_conversion(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", RNG.normal(3, 2, (11, 2)))
    ds = rm.open(tmp_path / "x.npy")
    state = ds.normalize(ds.stats(axis=-1)).batch(2).state()
    with pytest.raises(rm.RecmapError):
        ds.normalize(ds.stats()).batch(2).restore(state)


def test_padding_is_not_normalized() -> None:
    ds = rm.from_arrays({"x": rm.Ragged.from_rows([[1.0, 3.0], [5.0]])})
    normal = ds.normalize(ds.stats())
    batch = next(iter(normal.batch(2, pad={"x": rm.Pad(3, fill=0)})))
    assert np.allclose(batch["x"], np.array([[-1, 0, 0], [1, 0, 0]]) * np.sqrt(1.5))


def test_what_cannot_be_normalized_is_refused() -> None:
    ds = robot()
    stats = ds.stats(axis=-1)
    with pytest.raises(rm.OptionError, match="do not have the quantile 0.01"):
        ds.normalize(stats, by=(0.01, 0.99))
    with pytest.raises(rm.OptionError, match="by="):
        ds.normalize(stats, by="mean")  # type: ignore[arg-type]
    with pytest.raises(rm.OptionError, match="two quantiles"):
        ds.normalize(stats, by=(0.9, 0.1))
    with pytest.raises(rm.OptionTypeError, match="stats is what"):
        ds.normalize({"state": 3})  # type: ignore[arg-type]
    with pytest.raises(rm.FieldNotFoundError, match="stat"):
        ds.normalize(stats, "stat")
    with pytest.raises(rm.OptionError, match="no statistics of 'state'"):
        ds.normalize(ds.select("image").stats(), "state")
    with pytest.raises(rm.OptionError, match="no column of floats"):
        ds.select("label").normalize(stats)
    other = rm.from_arrays({"state": np.zeros((2, 4))})
    with pytest.raises(rm.OptionError, match="channels of the statistics are the last axes, 3"):
        other.normalize(stats)
    empty = rm.from_arrays({"x": np.full((2, 2), np.nan)})
    with pytest.raises(rm.OptionError, match="no values"):
        empty.normalize(empty.stats(axis=-1))
    names = rm.from_arrays({"s": ["a"], "x": np.zeros(1)})
    with pytest.raises(rm.OptionError, match="no numbers"):
        names.normalize(names.stats(axis=-1), "s")
