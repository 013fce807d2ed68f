"""to_keras: batches by number, for model.fit."""

from __future__ import annotations

import pickle
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.frameworks import keras

ROWS = 53


@pytest.fixture
def ds() -> rm.Dataset:
    """Rows that hold their own number, in a file."""
    x = np.random.default_rng(1).standard_normal((ROWS, 3)).astype(np.float32)
    np.savez("x.npz", id=np.arange(ROWS), x=x, y=x @ np.array([1, -2, 3], np.float32))
    return rm.open("x.npz")


def ids(batches: Any) -> list[list[int]]:
    return [batch["id"].tolist() for batch in batches]


def by_number(dataset: Any, numbers: Any) -> list[list[int]]:
    return [dataset[i]["id"].tolist() for i in numbers]


def same(row: dict[str, Any]) -> dict[str, Any]:
    return dict(row)


CHAINS: dict[str, Any] = {
    "shuffle": lambda ds: ds.shuffle(seed=1).batch(10),
    "drop_last": lambda ds: ds.shuffle(seed=1).batch(10, drop_last=True),
    "shard": lambda ds: ds.shuffle(seed=1).batch(4).shard(1, 3, even="pad"),
    "workers": lambda ds: ds.shuffle(seed=1).map(same, workers=2).batch(10),
    "repeat": lambda ds: ds.shuffle(seed=1).batch(10).repeat(2),
    "take": lambda ds: ds.shuffle(seed=1).batch(4).shard(0, 2).skip(1).take(4),
}


@pytest.mark.filterwarnings("ignore:batches are requested out of order")
@pytest.mark.parametrize("chain", CHAINS)
def test_batches_have_numbers_and_epochs_follow_each_other(ds: rm.Dataset, chain: str) -> None:
    plain = CHAINS[chain](ds)
    epochs = [ids(plain) for _ in range(3)]
    dataset = CHAINS[chain](ds).to_keras()
    count = len(dataset)
    assert count == len(epochs[0])
    # In order, backwards, and in order again.
    assert by_number(dataset, range(count)) == epochs[0]
    dataset.on_epoch_end()
    assert by_number(dataset, reversed(range(count))) == epochs[1][::-1]
    dataset.on_epoch_end()
    assert by_number(dataset, range(count)) == epochs[2]
    with pytest.raises(IndexError, match="batch"):
        dataset[count]


def test_previewing_the_first_batches_changes_nothing(ds: rm.Dataset) -> None:
    whole = ids(ds.shuffle(seed=1).batch(10))
    dataset = ds.shuffle(seed=1).batch(10).to_keras()
    assert by_number(dataset, [0, 1]) == whole[:2]
    assert by_number(dataset, [3, 0, 5, 1, 2, 4]) == [whole[i] for i in (3, 0, 5, 1, 2, 4)]


def test_a_pickled_copy_gives_the_same_batches(ds: rm.Dataset) -> None:
    dataset = ds.shuffle(seed=1).batch(10).to_keras()
    assert dataset[0]["id"].shape == (10,)  # the pipeline runs
    copy = pickle.loads(pickle.dumps(dataset))
    assert by_number(copy, range(6)) == ids(ds.shuffle(seed=1).batch(10))


def test_batches_out_of_order_warn_that_workers_are_idle(ds: rm.Dataset) -> None:
    dataset = ds.map(same, workers=2).batch(10).to_keras()
    with pytest.warns(UserWarning, match="shuffle=False"):
        assert dataset[3]["id"].tolist() == list(range(30, 40))


def test_features_and_labels(ds: rm.Dataset) -> None:
    x, y = ds.batch(10).to_keras(features="x", label="y")[0]
    assert x.shape == (10, 3)
    assert y.shape == (10,)
    others, y = ds.batch(10).to_keras(label="y")[0]
    assert set(others) == {"id", "x"}
    assert isinstance(ds.batch(10).to_keras(), keras.utils.PyDataset)


def test_sample_weights_come_after_the_label(ds: rm.Dataset) -> None:
    x, y, weight = ds.batch(10).to_keras(features="x", label="y", sample_weight="id")[0]
    assert (x.shape, y.shape) == ((10, 3), (10,))
    assert weight.tolist() == list(range(10))
    others, _, _ = ds.batch(10).to_keras(label="y", sample_weight="id")[0]
    assert set(others) == {"x"}
    batches: Any = ds.batch(10)
    with pytest.raises(rm.OptionError, match="needs a label: label=\"y\", sample_weight='id'"):
        batches.to_keras(sample_weight="id")
    with pytest.raises(rm.FieldNotFoundError, match="sample_weight='w': no column 'w'"):
        batches.to_keras(label="y", sample_weight="w")
    with pytest.raises(rm.OptionError, match="the name of one column"):
        batches.to_keras(label="y", sample_weight=["id"])
    with pytest.raises(rm.OptionTypeError, match="sample_weight"):
        batches.to_keras(label="y", sample_weight=3)


def test_workers_are_threads_or_processes_of_keras(ds: rm.Dataset) -> None:
    def how(workers: Any) -> tuple[int, bool]:
        made = ds.batch(10).to_keras(workers=workers)
        return made.workers, made.use_multiprocessing

    assert how(1) == how(0) == how(None) == how("threads:1") == (1, False)
    assert how(4) == how("threads:4") == (4, False)
    assert how("processes:4") == (4, True)
    assert how("processes:1") == (1, True)
    with pytest.raises(rm.OptionError, match='"processes:2".*set_start_method."spawn"'):
        how("spawn:2")
    with pytest.raises(rm.OptionError, match="use a number of threads"):
        how("4")


def test_removed_options_are_refused_with_their_replacement(ds: rm.Dataset) -> None:
    batches: Any = ds.batch(10)
    for value in (True, False):
        with pytest.raises(rm.OptionTypeError, match='is now workers="processes:4"'):
            batches.to_keras(workers=2, use_multiprocessing=value)
    with pytest.raises(rm.OptionTypeError, match="did you mean 'workers'"):
        batches.to_keras(worker=2)


def test_columns_are_numbers_in_native_byte_order() -> None:
    ds = rm.from_arrays({"x": np.arange(3, dtype=">f4"), "d": np.zeros(3, "M8[D]")})
    batch = ds.batch(3).to_keras()[0]
    assert batch["x"].dtype == np.dtype("float32")
    assert batch["d"].dtype == np.dtype("int64")


def test_columns_that_keras_cannot_take_are_refused(ds: rm.Dataset) -> None:
    with pytest.raises(rm.OptionError, match="put batch"):
        ds.to_keras()
    with pytest.raises(rm.OptionError, match="use to_tf"):
        ds.filter(lambda row: row["id"] > 3).batch(2).to_keras()
    with pytest.raises(rm.OptionError, match="steps_per_epoch"):
        ds.batch(2).repeat().to_keras()
    ragged = rm.from_arrays({"t": rm.Ragged.from_rows([[1], [2, 3]])})
    with pytest.raises(rm.OptionError, match="column 't': rows differ in length.*pad"):
        ragged.batch(2).to_keras()
    assert ragged.batch(2, pad={"t": 3}).to_keras()[0]["t"].shape == (2, 3)
    with pytest.raises(rm.OptionError, match="column 'b'.*select"):
        rm.from_arrays({"b": [b"a", b"b"]}).batch(2).to_keras()
    chain = ds.batch(10)
    next(iter(chain))
    with pytest.raises(rm.OptionError, match=r"callbacks=\[train.follow\(state\)\]"):
        ds.batch(10).restore(chain.state()).to_keras()


def test_without_keras_the_error_says_what_to_install() -> None:
    program = """
import sys
sys.modules["keras"] = None
import numpy as np, recmap as rm
try:
    rm.from_arrays({"x": np.arange(3)}).batch(2).to_keras()
except rm.MissingPackageError as e:
    print(e)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert 'pip install "keras>=3.5"' in run.stdout


def test_the_preview_of_a_single_batch_is_no_epoch() -> None:
    """As Keras asks: a preview reads the first batch, and ends before training begins."""
    rows = rm.from_arrays({"id": np.arange(7)})
    dataset = rows.shuffle(seed=1).batch(8).to_keras()
    alone = rows.shuffle(seed=1).batch(8)
    seen = []
    for _ in range(3):
        dataset.on_epoch_begin()
        seen += ids([dataset[0]])
        dataset.on_epoch_end()
    first, second = ids(alone), ids(alone)
    assert seen == first + first + second


def test_a_shuffled_order_that_continues_a_preview_stays_in_its_epoch() -> None:
    rows = rm.from_arrays({"id": np.arange(12)})
    dataset = rows.shuffle(seed=1).batch(4).to_keras()
    alone = rows.shuffle(seed=1).batch(4)
    ids([dataset[0], dataset[1]])
    dataset.on_epoch_end()
    for order in ((2, 0, 1), (1, 2, 0)):
        wanted = ids(alone)
        dataset.on_epoch_begin()
        assert by_number(dataset, order) == [wanted[i] for i in order]
        dataset.on_epoch_end()
