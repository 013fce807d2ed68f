"""model.fit stopped in the middle of an epoch and resumed: the same rows, the same weights."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.frameworks import keras

pytestmark = pytest.mark.slow

ROWS = 60
BATCH = 10


def pipeline(chain: str = "shuffle") -> rm.Stream:
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
    # Compiling a graph takes longer than these few steps.
    eager = keras.backend.backend() == "tensorflow"
    model.compile(keras.optimizers.SGD(0.05), "mse", run_eagerly=eager)
    return model


def weights(model: Any) -> list[float]:
    return [float(value) for array in model.get_weights() for value in array.reshape(-1)]


@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # in an epoch that is resumed
@pytest.mark.parametrize("chain", ["shuffle", "filter", "workers"])
def test_to_tf_resumes_after_the_last_batch_trained_on(chain: str) -> None:
    from tests.adapters.keras_callbacks import Save

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


def trained_on(epochs: int) -> list[float]:
    """Return the weights after whole epochs, from the first on."""
    train, model = pipeline(), new_model()
    for _ in range(epochs):
        model.fit(train.to_tf(features="x", label="y"), shuffle=False, verbose=0)
    return weights(model)


@pytest.mark.parametrize("follows", [False, True], ids=["alone", "followed"])
def test_no_epoch_is_skipped_when_keras_previews_batches(follows: bool) -> None:
    train, model = pipeline().to_keras(features="x", label="y"), new_model()
    for done in (2, 4):
        callbacks = [train.follow()] if follows else []
        model.fit(train, epochs=2, shuffle=False, verbose=0, callbacks=callbacks)
        if follows:
            assert train.state()["epoch"] == done
    assert weights(model) == trained_on(epochs=4)


def test_fit_without_follow_continues_after_one_with_it() -> None:
    train, model = pipeline().to_keras(features="x", label="y"), new_model()
    for callbacks in ([train.follow()], [], []):
        model.fit(train, shuffle=False, verbose=0, callbacks=callbacks)
    assert weights(model) == trained_on(epochs=3)


def test_steps_per_epoch_continues_in_the_order_of_the_pipeline() -> None:
    from tests.adapters.keras_callbacks import Places

    train, model = pipeline().to_keras(features="x", label="y"), new_model()
    places = Places(train)
    callbacks = [train.follow(), places]
    model.fit(train, epochs=4, steps_per_epoch=3, shuffle=False, verbose=0, callbacks=callbacks)
    # The state after the last batch is the start of the next epoch.
    steps = [(at // 60, at % 60) for at in range(10, 121, 10)]
    assert places.found == steps
    assert weights(model) == trained_on(epochs=2)


def test_steps_per_execution_may_go_beyond_the_last_batch() -> None:
    from tests.adapters.keras_callbacks import Places

    train, model = pipeline().to_keras(features="x", label="y"), new_model()
    model.compile(keras.optimizers.SGD(0.05), "mse", steps_per_execution=4)
    places = Places(train)
    model.fit(train, epochs=2, shuffle=False, verbose=0, callbacks=[train.follow(), places])
    assert places.found == [(0, 40), (1, 0), (1, 40), (2, 0)]
    assert train.state()["epoch"] == 2


def test_state_is_refused_after_batches_out_of_order() -> None:
    train = pipeline().to_keras()
    train.begin(None)
    assert train[0]["y"].shape == (BATCH,)
    train.trained(1)
    assert train[3]["y"].shape == (BATCH,)
    with pytest.raises(rm.OptionError, match=r"out of order.*separate to_keras.*evaluate"):
        train.state()


def test_a_resumed_epoch_is_shorter_than_those_after_it() -> None:
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


def test_state_and_resuming_need_follow_and_batches_in_order() -> None:
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


def test_the_state_after_n_batches_ignores_those_taken_ahead() -> None:
    train = pipeline()
    expected = [batch["y"].tolist() for batch in train]
    train.epoch = 0
    batches = iter(train.to_tf())
    for _ in range(2):
        next(batches)
    rest = pipeline().restore(train.state(batches=2))
    assert [batch["y"].tolist() for batch in rest] == expected[2:]


def test_the_state_after_the_last_batch_is_the_end_of_the_epoch() -> None:
    def make() -> rm.Stream:
        # The filter leaves out all rows after the last batch.
        return rm.from_arrays({"i": np.arange(50)}).filter(lambda row: row["i"] < 10).batch(5)

    train = make()
    assert len(list(train)) == 2
    assert len(list(make().restore(train.state(batches=2)))) == 2
    assert len(list(make().restore(train.state(batches=1)))) == 1
    assert len(list(make().restore(train.state(batches=0)))) == 2


def test_the_state_is_kept_for_the_last_batches_only() -> None:
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
