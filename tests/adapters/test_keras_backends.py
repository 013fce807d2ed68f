"""model.fit with to_keras, with each backend of Keras."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytestmark = pytest.mark.slow

LEARN = """
import sys
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
    made.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=False, **how)
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
assert keras.backend.backend() == sys.argv[1]
"""


RESUME = """
import json, sys, warnings
import keras, numpy as np
from tests.adapters.keras_callbacks import Save
from tests.adapters.test_fit_resumed import new_model, pipeline, weights

def fit(train, model, state=None, more=(), **how):
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        follow = [train.follow(state), *more]
        model.fit(train, shuffle=False, verbose=0, callbacks=follow, **how)
    return model

def batches():
    return pipeline(sys.argv[2]).to_keras(features="x", label="y")

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

# Built again, as after a crash: the rest of an epoch, then two whole ones, in one call.
train, model = batches(), new_model()
model.set_weights(save.saved[0])
fit(train, model, state, epochs=4, initial_epoch=1)
assert weights(model) == weights(undisturbed)
assert train.state()["epoch"] == 4

# Weights from BackupAndRestore, twice: in the middle of an epoch, and at the end of a resumed one.
class Killed(Exception):
    pass

class Kill(keras.callbacks.Callback):
    def __init__(self, steps):
        super().__init__()
        self.left = steps

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if self.left == 0:
            raise Killed

def fit_backed_up(steps, save_freq):
    train, model = batches(), new_model()
    model.compile(keras.optimizers.SGD(0.05), "mse", jit_compile=False)  # in a graph
    backup = keras.callbacks.BackupAndRestore("backup", save_freq=save_freq)
    callbacks = [backup, train.follow("state.json"), Kill(steps)]
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Your input ran out of data")
        warnings.simplefilter("ignore", DeprecationWarning)  # of Keras, when it saves weights
        model.fit(train, epochs=4, shuffle=False, verbose=0, callbacks=callbacks)
    return model

for steps, save_freq in ((9, 4), (5, "epoch")):  # saved after 8 steps, then after 12
    try:
        fit_backed_up(steps, save_freq)
    except Killed:
        continue
    raise AssertionError
assert weights(fit_backed_up(0, "epoch")) == weights(undisturbed)
"""


@pytest.mark.parametrize(
    ("backend", "chain", "multi"),
    [
        ("tensorflow", "workers", "{}"),
        ("jax", "shuffle", "{}"),
        # Processes that Keras forks clash with the threads of the other backends.
        ("torch", "shuffle", '{"workers": "processes:2"}'),
    ],
    ids=["tensorflow", "jax", "torch"],
)
def test_a_model_learns_and_resumes_with_every_backend(
    backend: str, chain: str, multi: str
) -> None:
    x = np.random.default_rng(1).standard_normal((53, 3)).astype(np.float32)
    np.savez("x.npz", id=np.arange(53), x=x, y=x @ np.array([1, -2, 3], np.float32))
    program = LEARN.replace("MULTI", multi) + RESUME
    # A process has one backend. Starting another process takes longer than both programs.
    if backend == "tensorflow":
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "argv", ["", backend, chain])
            exec(program, {"__name__": "program"})
        return
    root = str(Path(__file__).parents[2])
    path = os.pathsep.join([root, *filter(None, [os.environ.get("PYTHONPATH")])])
    # Models of the same shape are compiled once.
    compiled = {
        "JAX_COMPILATION_CACHE_DIR": os.path.abspath("compiled"),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    done = subprocess.run(
        [sys.executable, "-c", program, backend, chain],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, **compiled, "KERAS_BACKEND": backend, "PYTHONPATH": path},
    )
    assert done.returncode == 0, done.stderr[-3000:]
