"""ds.sample: rows drawn by weight or evenly from classes, the same everywhere."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from recmap.dataset.sample import sampled
from recmap.model.ordered_rows import OrderedRows
from recmap.model.progress import Progress
from recmap.model.source import at_epoch
from recmap.pipeline.row_source import SourceRows
from recmap.pipeline.signature import Seed
from recmap.pipeline.transforms.shuffle import Shuffle
from tests.buckets import HttpFolder
from tests.frameworks import torch

ROWS = 40
LABELS = [0] * 30 + [1] * 7 + [2] * 3


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    columns = {
        "x": np.arange(ROWS),
        "w": np.arange(ROWS, dtype=np.float32) % 5,
        "label": np.array(LABELS),
        "tokens": rm.Ragged.from_rows([[i] * (i % 3) for i in range(ROWS)]),
        "name": rm.Ragged.from_text([f"class {label}" for label in LABELS]),
        "raw": rm.Ragged.from_bytes([bytes([label]) for label in LABELS]),
        "flag": np.array(LABELS) > 0,
    }
    path = tmp_path_factory.mktemp("sample") / "x.tfrecord"
    rm.from_arrays(columns).save(path)
    return path


@pytest.fixture
def ds(file: Path) -> rm.Dataset:
    return rm.open(file)


def numbers(batches: Any) -> list[int]:
    return [n for batch in batches for n in np.atleast_1d(batch["x"]).tolist()]


WAYS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "few": {"n": 13},
    "many": {"n": 60},
    "weights": {"weights": "w"},
    "array": {"weights": [float(i % 7) for i in range(ROWS)], "n": 50},
    "balance": {"balance": "name"},
    "once": {"replace": False},
    "weighted once": {"replace": False, "weights": "w", "n": 25},
    "balanced once": {"replace": False, "balance": "label", "n": 9},
}


@pytest.mark.parametrize("way", WAYS)
def test_ranks_workers_and_resumed_runs_draw_the_same_rows(ds: rm.Dataset, way: str) -> None:
    def build() -> Any:
        return ds.sample(seed=3, **WAYS[way]).batch(4)

    train = build()
    epochs = [[batch["x"].tolist() for batch in train] for _ in range(3)]
    assert epochs[0] != epochs[1] != epochs[2]
    assert len(numbers(build())) == WAYS[way].get("n", ROWS)
    for cut in range(len(epochs[0])):
        stopped = build()
        batches = iter(stopped)
        for _ in range(cut):
            next(batches)
        again = build().restore(json.loads(json.dumps(stopped.state())))
        assert [batch["x"].tolist() for batch in again] == epochs[0][cut:], cut
        assert [batch["x"].tolist() for batch in again] == epochs[1], cut
    for world in (2, 3):
        ranks = [ds.sample(seed=3, **WAYS[way]).batch(4).shard(r, world) for r in range(world)]
        for epoch in range(2):
            shares = Counter(row for rank in ranks for row in numbers(rank))
            assert shares == Counter(row for batch in epochs[epoch] for row in batch), world
    threads = ds.sample(seed=3, **WAYS[way]).map(plus_one, workers="threads:2").batch(4)
    assert [batch["x"].tolist() for batch in threads] == epochs[0]


def plus_one(row: dict[str, Any]) -> dict[str, Any]:
    return {"x": row["x"], "more": row["x"] + 1}


def test_rows_come_in_proportion_to_their_weights(ds: rm.Dataset) -> None:
    for kind in (np.float32, np.float64, np.float16, np.int8, np.uint64, bool):
        weights = (np.arange(ROWS) % 3).astype(kind)
        counts = Counter(numbers(ds.sample(20_000, weights=weights, seed=1).batch(1000)))
        for row, weight in enumerate((weights / weights.astype(float).sum()).tolist()):
            wanted = 20_000 * weight
            assert abs(counts[row] - wanted) <= 5 * wanted**0.5, (kind, row)


@pytest.mark.parametrize("column", ["label", "name", "raw", "flag"])
def test_classes_come_equally_often(ds: rm.Dataset, column: str) -> None:
    drawn = numbers(ds.sample(9000, balance=column, seed=2).batch(1000))
    classes = Counter(LABELS[row] > 0 if column == "flag" else LABELS[row] for row in drawn)
    share = 9000 / len(classes)
    assert all(abs(count - share) < 300 for count in classes.values())
    assert set(drawn) == set(range(ROWS))


def test_without_replacement_no_row_comes_twice_in_an_epoch(ds: rm.Dataset) -> None:
    positive = [row for row in range(ROWS) if row % 5]
    every = ds.sample(len(positive), weights="w", replace=False, seed=1)
    assert [sorted(numbers(every)) for _ in range(3)] == [positive] * 3
    assert sorted(numbers(ds.sample(replace=False, seed=1))) == list(range(ROWS))
    even = [numbers(ds.sample(8, balance="label", replace=False, seed=seed)) for seed in range(9)]
    for drawn in even:
        counts = Counter(LABELS[row] for row in drawn)
        assert len(set(drawn)) == 8
        assert sorted(counts.values()) == [2, 3, 3]


def test_a_sample_is_independent_of_a_shuffle_with_the_same_seed(ds: rm.Dataset) -> None:
    assert numbers(ds.sample(replace=False, seed=1)) != numbers(ds.shuffle(seed=1))


def test_the_column_is_read_once_when_the_first_row_is_needed(ds: rm.Dataset) -> None:
    passes: list[Progress] = []
    options: list[dict[str, Any]] = [{"weights": "w"}, {"balance": "label"}]
    for option in options:
        passes.clear()
        train: Any = ds.sample(seed=1, progress=passes.append, **option).batch(4)
        assert len(train) == 10
        repr(train)
        assert passes == []
        for _ in range(2):
            list(train)
        assert [each.rows for each in passes if each.rows == ROWS] == [ROWS] * len(passes)
        assert len(passes) in (1, 2)  # an update and the end, or the end alone


def test_processes_get_what_was_computed(file: Path, tmp_path: Path) -> None:
    log = tmp_path / "passes"

    def watch(progress: Progress) -> None:
        with log.open("a") as out:
            out.write(f"{progress.rows}\n")

    ds = rm.open(file, fields=["x", "name"])
    sample = ds.sample(seed=1, balance="name", progress=watch)
    wanted = numbers(ds.sample(seed=1, balance="name").batch(4))
    loader = torch.utils.data.DataLoader(sample.batch(4).to_torch(), batch_size=None, num_workers=2)
    assert [int(n) for batch in loader for n in batch["x"]] == wanted
    mapped = ds.sample(seed=1, balance="name", progress=watch).map(plus_one, workers="fork:2")
    assert numbers(mapped) == wanted
    assert len(log.read_text().splitlines()) <= 4  # two passes, not one for each process


@pytest.mark.parametrize("way", WAYS)
def test_a_pickled_sample_draws_the_same_rows(ds: rm.Dataset, way: str) -> None:
    given = {"n": None, "weights": None, "balance": None, "replace": True, **WAYS[way]}
    rows = SourceRows(ds._opened.source, ds._opened.reopen)
    order = sampled(rows, **given, seed=Seed(3))
    copy = pickle.loads(pickle.dumps(order))
    for epoch in range(3):
        wanted = at_epoch(order, epoch).read(0, len(order))["x"].tolist()
        assert at_epoch(copy, epoch).read(0, len(order))["x"].tolist() == wanted
    assert copy.gather(np.empty(0, np.int64))["x"].tolist() == []


def test_weights_follow_rows_that_change_places_from_epoch_to_epoch(ds: rm.Dataset) -> None:
    rows = SourceRows(ds._opened.source, ds._opened.reopen)
    shuffled = OrderedRows(rows, Shuffle(ROWS, Seed(5)))
    for given in ({"weights": "w", "balance": None}, {"weights": None, "balance": "label"}):
        for replace in (True, False):
            order = sampled(shuffled, 9, replace=replace, seed=Seed(3), **given)  # type: ignore[arg-type]
            again = pickle.loads(pickle.dumps(order))
            for epoch in (0, 1, 2, 0):
                drawn = at_epoch(order, epoch).read(0, 9)
                assert 0 not in drawn["w"].tolist() or given["weights"] is None
                if not replace and given["balance"]:
                    assert sorted(Counter(drawn["label"].tolist()).values()) == [3, 3, 3]
                same = at_epoch(again, epoch).read(0, 9)
                assert same["x"].tolist() == drawn["x"].tolist()


def test_a_state_restores_a_drawn_seed(ds: rm.Dataset) -> None:
    train = ds.sample(weights="w").batch(4)
    batches = iter(train)
    next(batches)
    again = ds.sample(weights="w").batch(4).restore(train.state())
    assert numbers(again) == numbers(batches)
    with pytest.raises(rm.OptionError, match=r"sample\(seed=\d+, weights='w'\) then"):
        ds.sample(weights=[1] * ROWS).batch(4).restore(train.state())


def test_ranks_need_an_explicit_seed(ds: rm.Dataset) -> None:
    with pytest.raises(rm.OptionError, match=r"different seed for sample\(\).*sample\(seed="):
        ds.sample(weights="w").shard(0, 2)


def test_no_rows_are_drawn_from_nothing() -> None:
    empty = rm.from_arrays({"x": np.empty(0), "w": np.empty(0)})
    assert list(empty.sample(seed=1)) == []
    assert list(empty.sample(seed=1, weights="w")) == []
    assert list(rm.from_arrays({"w": np.zeros(3)}).sample(0, weights="w")) == []
    with pytest.raises(rm.OptionError, match="n=5, but there are no rows"):
        empty.sample(5)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"weights": [1] * 39}, rm.OptionError, "39 weights for 40 rows"),
    ({"weights": [1] * 39 + [-2]}, rm.OptionError, "row 39 is -2; weights are finite"),
    ({"weights": [1] * 39 + [np.nan]}, rm.OptionError, "row 39 is nan"),
    ({"weights": [1] * 39 + [np.inf]}, rm.OptionError, "row 39 is inf"),
    ({"weights": [0] * 40}, rm.OptionError, "all weights are 0"),
    ({"weights": [[1]] * 40}, rm.OptionTypeError, "one number per row"),
    ({"weights": ["a"] * 40}, rm.OptionTypeError, "one number per row"),
    ({"weights": [1j] * 40}, rm.OptionTypeError, "one number per row"),
    ({"weights": 3}, rm.OptionTypeError, "one number per row"),
    ({"weights": "nope"}, rm.FieldNotFoundError, "no column 'nope'; there are: x, w"),
    ({"weights": "tokens"}, rm.OptionError, r"weights='tokens': the column is int64\[\*\]"),
    ({"weights": "name"}, rm.OptionError, "weights='name': the column is text"),
    ({"balance": "w"}, rm.OptionError, "balance='w': the column is float32"),
    ({"balance": "tokens"}, rm.OptionError, "balance='tokens'"),
    ({"balance": ["label"]}, rm.OptionTypeError, "name of the column"),
    ({"balance": "label", "weights": "w"}, rm.OptionError, "give one"),
    ({"n": 41, "replace": False}, rm.OptionError, "41 rows without replacement, .* only 40"),
    ({"weights": "w", "replace": False}, rm.DataError, "only 32 have a weight above 0"),
    ({"weights": [1] + [0] * 39, "n": 2, "replace": False}, rm.OptionError, "only 1 have"),
    (
        {"balance": "label", "n": 10, "replace": False},
        rm.DataError,
        "class 2 has only 3; give n=9 or less",
    ),
    ({"n": -1}, rm.OptionError, "n=-1"),
    ({"n": 1.5}, rm.OptionTypeError, "n=1.5"),
    ({"replace": "no"}, rm.OptionTypeError, "replace='no'"),
    ({"seed": -1}, rm.OptionError, "seed=-1"),
    ({"progress": 3}, rm.OptionTypeError, "progress=3"),
    ({"num_samples": 3}, rm.OptionTypeError, "no option 'num_samples'; use 'n'"),
    ({"frac": 0.5}, rm.OptionTypeError, "frac=0.5: give the number of rows"),
    ({"balanced": "label"}, rm.OptionTypeError, "did you mean 'balance'"),
]


@pytest.mark.parametrize(("given", "kind", "message"), BAD, ids=str)
def test_what_cannot_be_drawn_is_refused(
    ds: rm.Dataset, given: dict[str, Any], kind: type[Exception], message: str
) -> None:
    with pytest.raises(kind, match=message):
        list(ds.sample(**given))


@pytest.mark.parametrize("value", [-1.0, np.nan, np.inf])
def test_a_bad_weight_in_a_column_is_named(tmp_path: Path, value: float) -> None:
    weights = np.ones(3000)
    weights[2345] = value
    rm.from_arrays({"w": weights}).save(tmp_path / "bad.tfrecord")
    train = rm.open(tmp_path / "bad.tfrecord").sample(weights="w", seed=1)
    with pytest.raises(rm.DataError, match=r"weights='w': row 2,345 of .*bad.tfrecord is") as e:
        list(train)
    assert (e.value.field, e.value.record) == ("w", 2345)


def test_a_null_weight_or_class_is_named() -> None:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"w": [1.0, None, 2.0], "label": ["a", "b", None]})
    ds = rm.open(table, nulls="mask")
    with pytest.raises(rm.DataError, match="row 1 has no value in column 'w'"):
        list(ds.sample(weights="w"))
    with pytest.raises(rm.DataError, match="row 2 has no value in column 'label'"):
        list(ds.sample(balance="label"))


@pytest.mark.filterwarnings("ignore::recmap.SlowOrderWarning")
@pytest.mark.parametrize("name", ["x.tfrecord.gz", "x.npz", "x.h5", "x.parquet", "x.zarr"])
def test_every_format_is_sampled(ds: rm.Dataset, tmp_path: Path, name: str) -> None:
    rm.from_arrays({"x": ds["x"][:], "w": ds["w"][:], "name": ds["name"][:]}).save(tmp_path / name)
    other = rm.open(tmp_path / name)
    for way in ("uniform", "weights", "balance", "weighted once"):
        given = WAYS[way]
        assert numbers(other.sample(seed=3, **given)) == numbers(ds.sample(seed=3, **given)), way


def test_a_file_that_is_slow_to_read_at_random_gives_a_warning(tmp_path: Path) -> None:
    rm.from_arrays({"x": np.arange(5)}).save(tmp_path / "x.tfrecord.gz")
    with pytest.warns(rm.SlowOrderWarning, match="sample reads a lot of data for each row"):
        rm.open(tmp_path / "x.tfrecord.gz").sample(seed=1)


def test_rows_of_a_store_are_drawn_sorted_and_divided_like_local_ones(
    file: Path, http_folder: HttpFolder
) -> None:
    http_folder.put("x.tfrecord", file.read_bytes())
    far = rm.open(f"{http_folder.url}/x.tfrecord", storage=http_folder.storage)
    near = rm.open(file)
    for given in ({"weights": "w"}, {"balance": "name"}):
        drawn = [numbers(ds.sample(20, seed=1, **given).batch(8)) for ds in (far, near)]  # type: ignore[arg-type]
        assert drawn[0] == drawn[1]
    for column in ("w", "name"):
        assert far.sort(column)["x"][:].tolist() == near.sort(column)["x"][:].tolist()
    assert far.explode("tokens")["x"][:].tolist() == near.explode("tokens")["x"][:].tolist()
