"""model.fit, stopped in the middle of an epoch, and gone on with: the same rows, the same
weights.
"""

from __future__ import annotations

import json
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
        return ds.shuffle(1).filter(lambda row: row["x"][0] > -1).batch(8)
    if chain == "workers":
        return ds.shuffle(1).map(noisy, workers=2).batch(BATCH)
    return ds.shuffle(1).batch(BATCH)


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
    for wrong in (1001, 743, -1):
        with pytest.raises(rm.OptionError, match="1,000 have been given out"):
            train.state(batches=wrong)
    assert train.state(batches=744)["at"] == 744
