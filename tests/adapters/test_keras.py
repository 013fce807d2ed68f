"""to_keras, with each backend of Keras."""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
from typing import Any

import keras
import numpy as np
import pytest

import recmap as rm

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


@pytest.mark.filterwarnings("ignore:batches are asked for out of order")
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


PROGRAM = """
import keras, numpy as np, recmap as rm

keras.utils.set_random_seed(0)

class Seen(keras.metrics.Metric):
    # How often rows of an epoch were seen, the most times 1000 plus the least.

    def __init__(self):
        super().__init__(name="seen")
        self.counts = self.add_weight(shape=(53,), initializer="zeros", name="counts")

    def update_state(self, y, *rest, **more):
        numbers = keras.ops.cast(keras.ops.reshape(y, (-1,)), "int32")
        self.counts.assign_add(keras.ops.sum(keras.ops.one_hot(numbers, 53), axis=0))

    def result(self):
        return keras.ops.max(self.counts) * 1000 + keras.ops.min(self.counts)

def model(**how):
    made = keras.Sequential([keras.layers.Input((3,)), keras.layers.Dense(1)])
    made.compile(keras.optimizers.SGD(0.05), "mse", **how)
    return made

ds = rm.open("x.npz")
chain = ds.shuffle(seed=1).batch(8)
train = chain.to_keras(features="x", label="y")
losses = model().fit(train, epochs=4, verbose=0).history["loss"]
assert losses[-1] < losses[0] / 4, losses

# A row of weight 0 teaches nothing: the mean loss is that of the others.
weighted = ds.map(lambda row: {**row, "w": np.float32(row["id"] < 20)}).batch(8)
train = weighted.to_keras(features="x", label="y", sample_weight="w")
x, y = ds["x"][:20], ds["y"][:20]
untrained = model()
error = np.mean((untrained.predict(x, verbose=0).ravel() - y) ** 2)
found = untrained.evaluate(train, verbose=0) * 53 / 20
assert abs(found - error) < 1e-3 * error, (found, error)
before = [np.asarray(w) for w in untrained.get_weights()]
none = ds.map(lambda row: {**row, "w": np.float32(0)}).batch(8)
untrained.fit(none.to_keras(features="x", label="y", sample_weight="w"), verbose=0, shuffle=False)
assert all(np.array_equal(a, b) for a, b in zip(before, untrained.get_weights(), strict=True))
untrained.fit(train, verbose=0, shuffle=False)
assert not np.array_equal(before[0], untrained.get_weights()[0])

counted = model(metrics=[Seen()])
for shuffle, how in ((True, {}), (False, {}), (True, {"workers": 2}), (True, MULTI)):
    train = chain.to_keras(features="x", label="id", **how)
    seen = counted.fit(train, epochs=2, verbose=0, shuffle=shuffle).history["seen"]
    assert seen == [1001] * 2, (shuffle, how, seen)

# Predictions come in order, also after an epoch of a few steps.
first = keras.Sequential([keras.layers.Input((1,)), keras.layers.Identity()])
first.compile(loss="mse")
numbers = ds.map(lambda row: {"id": np.float32([row["id"]])}).batch(8).to_keras(features="id")
for steps in (2, None):
    got = first.predict(numbers, steps=steps, verbose=0).ravel().tolist()
    assert got == list(range(53 if steps is None else 16)), got
print(keras.backend.backend(), "trained")
"""


@pytest.mark.parametrize("backend", ["tensorflow", "torch", "jax"])
@pytest.mark.usefixtures("ds")
def test_a_model_learns_with_every_backend(backend: str) -> None:
    # Processes that Keras forks clash with the threads of the other backends.
    multi = '{"workers": "processes:2"}' if backend == "torch" else "{}"
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM.replace("MULTI", multi)],
        capture_output=True,
        text=True,
        env={**os.environ, "KERAS_BACKEND": backend},
        check=False,
        timeout=240,
    )
    assert run.stdout.strip() == f"{backend} trained", run.stderr[-3000:]


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
    assert run.stdout.strip().endswith("pip install recmap[keras]")
