"""The file that tells which weights were trained on what: follow("state.json")."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recmap as rm
from tests.adapters.test_fit_resumed import new_model
from tests.frameworks import keras

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore:Your input ran out of data"),
]


def batches(repeat: int = 1) -> Any:
    x = np.ones((50, 3), np.float32)
    chain = rm.from_arrays({"x": x, "y": x[:, 0]}).shuffle(seed=1).batch(10)
    return chain.repeat(repeat).to_keras(features="x", label="y")


def fit(model: Any, train: Any, *before: Any, file: str = "state.json", **how: Any) -> Any:
    callbacks = [*before, train.follow(file)]
    return model.fit(train, shuffle=False, verbose=0, callbacks=callbacks, **how)


def starts(path: str = "state.json") -> list[tuple[int, int, int, int]]:
    saved = json.loads(Path(path).read_text())["starts"]
    return [(s["step"], s["epoch"], s["batches"], s["state"]["at"]) for s in saved]


def at_step(model: Any, step: int) -> Any:
    model.optimizer.iterations.assign(step)
    return model


def test_the_file_says_where_each_epoch_began() -> None:
    model = new_model()
    fit(model, batches(), epochs=2)
    assert starts() == [(0, 0, 5, 0), (5, 1, 5, 0)]
    train = batches()
    fit(
        at_step(new_model(), 7), train, epochs=3
    )  # the weights of step 7: the starts before it stay
    assert starts() == [(0, 0, 5, 0), (5, 1, 5, 0), (7, 1, 3, 20), (10, 2, 5, 0)]
    assert fit(model, batches(), epochs=2).epoch == []  # nothing is left
    assert fit(model, train, epochs=1).epoch == [0]  # goes on in the same process


def test_epochs_of_some_steps_continue_in_the_order_of_the_rows() -> None:
    fit(new_model(), batches(), epochs=3, steps_per_epoch=2)
    assert starts() == [(0, 0, 2, 0), (2, 1, 2, 20), (4, 2, 1, 40)]


def test_a_state_within_a_repetition_is_counted() -> None:
    fit(new_model(), batches(repeat=2))
    train = batches(repeat=2)
    fit(at_step(new_model(), 7), train)
    assert starts()[-1] == (7, 0, 3, 20)
    assert train.state()["epoch"] == 2


def test_weights_loaded_too_late_raise() -> None:
    class Load(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
        def on_train_begin(self, logs: Any = None) -> None:
            at_step(self.model, 7)

    train = batches()
    with pytest.raises(rm.OptionError, match=r"after it in callbacks=\[...\]"):
        new_model().fit(train, shuffle=False, verbose=0, callbacks=[train.follow("s.json"), Load()])


def test_what_cannot_be_resumed_is_said() -> None:
    fit(new_model(), batches(), epochs=2)
    with pytest.warns(rm.NotResumableWarning, match=r"5 steps, but the weights are new.*Backup"):
        fit(new_model(), batches())
    with pytest.warns(rm.NotResumableWarning, match="trained for 3 steps"):
        fit(at_step(new_model(), 3), batches(), file="none.json")
    with pytest.raises(rm.OptionError, match="covers steps 0 to 5,.* for 30 steps.*another run"):
        fit(at_step(new_model(), 30), batches())
    other = rm.from_arrays({"x": np.ones((9, 3), "f4"), "y": np.ones(9)}).batch(2)
    with pytest.raises(rm.OptionError, match="the state is not of this pipeline"):
        fit(at_step(new_model(), 4), other.to_keras(features="x", label="y"))


@pytest.mark.parametrize(
    "text", ["", "[]", '{"starts": 1}', '{"starts": [{"step": -1}]}', "[" * 9999]
)
def test_a_damaged_file_raises(text: str) -> None:
    Path("state.json").write_text(text)
    with pytest.raises(rm.OptionError, match="state.json: not a file that"):
        fit(new_model(), batches())


def test_an_optimizer_that_counts_otherwise_is_refused() -> None:
    class Skips(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            at_step(self.model, 1)

    with pytest.raises(rm.OptionError, match="1 steps in 5 batches"):
        fit(new_model(), batches(), Skips())
    accumulating = new_model()
    optimizer = keras.optimizers.SGD(0.1, gradient_accumulation_steps=2)
    accumulating.compile(optimizer, "mse", run_eagerly=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", rm.NotResumableWarning)
        fit(accumulating, batches())
    assert starts() == [(0, 0, 5, 0)]
