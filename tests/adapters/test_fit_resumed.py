"""model.fit, stopped in the middle of an epoch, and gone on with: the same rows, the same
weights.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest

import recmap as rm

ROWS = 60
BATCH = 10


def pipeline(chain: str = "shuffle") -> rm.Pipeline:
    x = np.random.default_rng(1).standard_normal((ROWS, 3)).astype(np.float32)
    ds = rm.from_arrays({"x": x, "y": x @ np.array([1, -2, 3], np.float32)})
    if chain == "filter":
        return ds.shuffle(seed=1).filter(lambda row: row["x"][0] > -1).batch(8)
    if chain == "workers":
        return ds.shuffle(seed=1).map(noisy, workers=2).batch(BATCH)
    return ds.shuffle(seed=1).batch(BATCH)


def noisy(row: dict[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    return {**row, "x": row["x"] + rng.normal(size=3).astype(np.float32)}


def new_model() -> Any:
    model = keras.Sequential([keras.Input((3,)), keras.layers.Dense(1)])
    model.layers[0].set_weights([np.ones((3, 1), np.float32), np.zeros(1, np.float32)])
    model.compile(keras.optimizers.SGD(0.05), "mse")
    return model


class Save(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
    """Saves the model and the place after a batch of an epoch, and ends there."""

    def __init__(self, state: Any, epoch: int, batch: int) -> None:
        super().__init__()
        self.state, self.at = state, (epoch, batch)
        self.epoch = 0
        self.saved: tuple[Any, str] | None = None

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        self.epoch = epoch

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        if (self.epoch, batch) == self.at:
            self.saved = self.model.get_weights(), json.dumps(self.state(batch + 1))
            self.model.stop_training = True


def weights(model: Any) -> list[float]:
    return [float(value) for array in model.get_weights() for value in array.reshape(-1)]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # of an epoch that is not whole
@pytest.mark.parametrize("chain", ["shuffle", "filter", "workers"])
def test_a_dataset_of_tensorflow_goes_on_after_the_batch_it_was_trained_on(chain: str) -> None:
    whole = pipeline(chain)
    undisturbed = new_model()
    for _ in range(3):
        undisturbed.fit(whole.to_tf(features="x", label="y"), shuffle=False, verbose=0)

    train, model = pipeline(chain), new_model()
    model.fit(train.to_tf(features="x", label="y"), shuffle=False, verbose=0)
    save = Save(train.state, 0, 2)
    stopped = train.to_tf(features="x", label="y")
    model.fit(stopped, shuffle=False, verbose=0, callbacks=[save])

    assert save.saved is not None
    again, model = pipeline(chain), new_model()
    model.set_weights(save.saved[0])
    again.restore(json.loads(save.saved[1]))
    model.fit(again.to_tf(features="x", label="y"), shuffle=False, verbose=0)  # the rest
    model.fit(again.to_tf(features="x", label="y"), shuffle=False, verbose=0)
    assert weights(model) == weights(undisturbed)


PROGRAM = """
import json, sys, warnings
import keras, numpy as np
from tests.adapters.test_fit_resumed import Save, new_model, pipeline, weights

def fit(train, model, state=None, more=(), **how):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        follow = [train.follow(state), *more]
        model.fit(train, shuffle=False, verbose=0, callbacks=follow, **how)
    return model

def batches():
    return pipeline(sys.argv[1]).to_keras(features="x", label="y")

train = batches()
undisturbed = fit(train, new_model(), epochs=4)
assert train.state()["epoch"] == 4

# In two calls, and half an epoch at a time.
train, model = batches(), new_model()
for _ in range(2):
    fit(train, model, epochs=4, steps_per_epoch=3)
assert weights(model) == weights(undisturbed)

train, model = batches(), new_model()
save = Save(lambda _: train.state(), 1, 2)
fit(train, model, epochs=4, more=[save])
assert save.saved is not None
state = json.loads(save.saved[1])
assert (state["epoch"], state["at"]) == (1, 30), state

# Built from nothing, as after a crash; the rest, then two whole epochs, in one call.
train, model = batches(), new_model()
model.set_weights(save.saved[0])
fit(train, model, state, epochs=4, initial_epoch=1)
assert weights(model) == weights(undisturbed)
print(train.state()["epoch"])
"""


@pytest.mark.parametrize(
    ("backend", "chain"),
    [("tensorflow", "workers"), ("jax", "shuffle"), ("torch", "shuffle")],
    ids=["tensorflow", "jax", "torch"],
)
def test_batches_of_keras_go_on_after_the_one_it_was_trained_on(backend: str, chain: str) -> None:
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, chain],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "KERAS_BACKEND": backend, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["4"]


class Places(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
    """The place after each step, as epoch and row."""

    def __init__(self, train: Any) -> None:
        super().__init__()
        self.train = train
        self.found: list[tuple[int, int]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        state = self.train.state()
        self.found.append((state["epoch"], state["at"]))


def trained_on(epochs: int) -> list[float]:
    """The weights after whole epochs, from the first on."""
    train, model = pipeline(), new_model()
    for _ in range(epochs):
        model.fit(train.to_tf(features="x", label="y"), shuffle=False, verbose=0)
    return weights(model)


@pytest.mark.parametrize("follows", [False, True], ids=["alone", "followed"])
def test_keras_passes_over_no_epoch_when_it_looks_at_batches(follows: bool) -> None:
    train, model = pipeline().to_keras(features="x", label="y"), new_model()
    for done in (2, 4):
        callbacks = [train.follow()] if follows else []
        model.fit(train, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
        if follows:
            assert train.state()["epoch"] == done
    assert weights(model) == trained_on(epochs=4)


def test_a_fit_that_is_not_followed_goes_on_behind_one_that_was() -> None:
    train, model = pipeline().to_keras(features="x", label="y"), new_model()
    for callbacks in ([train.follow()], [], []):
        model.fit(train, shuffle=False, verbose=0, callbacks=callbacks)
    assert weights(model) == trained_on(epochs=3)


def test_epochs_of_some_steps_go_on_with_the_order_of_the_pipeline() -> None:
    train, model = pipeline().to_keras(features="x", label="y"), new_model()
    places = Places(train)
    callbacks = [train.follow(), places]
    model.fit(train, epochs=4, steps_per_epoch=3, shuffle=False, verbose=0, callbacks=callbacks)
    # The place after the last batch is the start of the next epoch.
    steps = [(at // 60, at % 60) for at in range(10, 121, 10)]
    assert places.found == steps
    assert weights(model) == trained_on(epochs=2)


def test_several_steps_at_a_time_may_end_behind_the_last_batch() -> None:
    train, model = pipeline().to_keras(features="x", label="y"), new_model()
    model.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=4)
    places = Places(train)
    model.fit(train, epochs=2, shuffle=False, verbose=0, callbacks=[train.follow(), places])
    assert places.found == [(0, 40), (1, 0), (1, 40), (2, 0)]
    assert train.state()["epoch"] == 2


def test_batches_that_somebody_else_asks_for_hide_what_was_trained_on() -> None:
    train = pipeline().to_keras()
    train.begin(None)
    assert train[0]["y"].shape == (BATCH,)
    train.trained(1)
    assert train[3]["y"].shape == (BATCH,)
    with pytest.raises(rm.OptionError, match=r"out of order.*evaluate.*another to_keras"):
        train.state()


def test_an_epoch_of_keras_that_is_gone_on_with_is_shorter_than_those_behind_it() -> None:
    whole = pipeline()
    epochs = [[batch["y"].tolist() for batch in whole] for _ in range(2)]
    begun = pipeline()
    next(iter(begun))
    train = pipeline().to_keras()
    train.begin(begun.state())
    for expected in (epochs[0][1:], epochs[1]):
        assert len(train) == len(expected)
        assert [train[i]["y"].tolist() for i in range(len(train))] == expected
        train.trained(len(train))
        train.on_epoch_end()
    assert train.state()["epoch"] == 2


def test_what_keras_has_trained_on_is_known_only_in_turn() -> None:
    train = pipeline().to_keras()
    with pytest.raises(rm.OptionError, match=r"callbacks=\[train.follow\(\)\]"):
        train.state()
    begun = pipeline()
    next(iter(begun))
    train.begin(begun.state())
    with pytest.raises(rm.OptionError, match="shuffle=False"):
        train[3]
    with pytest.raises(rm.OptionError, match="in order"):
        pipeline().to_keras(workers=2).follow()


def test_the_state_after_some_batches_is_not_that_of_those_taken_ahead() -> None:
    train = pipeline()
    expected = [batch["y"].tolist() for batch in train]
    train.epoch = 0
    batches = iter(train.to_tf())
    for _ in range(2):
        next(batches)
    rest = pipeline().restore(train.state(batches=2))
    assert [batch["y"].tolist() for batch in rest] == expected[2:]


def test_the_state_after_the_last_batch_is_the_end_of_the_epoch() -> None:
    def make() -> rm.Pipeline:
        # What comes behind the last batch is left out.
        return rm.from_arrays({"i": np.arange(50)}).filter(lambda row: row["i"] < 10).batch(5)

    train = make()
    assert len(list(train)) == 2
    assert len(list(make().restore(train.state(batches=2)))) == 2
    assert len(list(make().restore(train.state(batches=1)))) == 1
    assert len(list(make().restore(train.state(batches=0)))) == 2


def test_only_places_that_are_known_have_a_state() -> None:
    train = rm.from_arrays({"i": np.arange(1000)}).batch(1)
    assert len(list(train)) == 1000
    assert train.state(batches=1000) == train.state()
    for wrong in (1001, 743):
        with pytest.raises(rm.OptionError, match="1,000 have been given out"):
            train.state(batches=wrong)
    odd: Any
    for odd in (-1, 1.5):
        with pytest.raises(rm.OptionError, match="a whole number of 0 or more"):
            train.state(batches=odd)
    assert train.state(batches=744)["at"] == 744
