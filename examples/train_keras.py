"""Train with Keras on a file larger than memory, and resume after a kill.

Run it, kill it (kill -9), run it again: the losses are those of a run that was never killed.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import keras
import numpy as np
from larger_than_memory import WIDTH, prepare

import recmap as rm

EVERY = 25  # steps between checkpoints


def fresh() -> Any:
    keras.utils.set_random_seed(0)
    layers = keras.layers
    model = keras.Sequential(
        [layers.Input([WIDTH]), layers.Dense(32, activation="relu"), layers.Dense(1)]
    )
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def save(folder: str, model: Any, state: dict[str, Any], losses: list[float]) -> None:
    # Two names in turn, so that the model of the last complete checkpoint is never overwritten.
    name = f"model-{len(losses) // EVERY % 2}.keras"
    model.save(f"{folder}/{name}")
    with open(f"{folder}/keras.json.part", "w") as file:
        json.dump({"model": name, "data": state, "losses": losses}, file)
    os.replace(f"{folder}/keras.json.part", f"{folder}/keras.json")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where the data and the checkpoints are")
    parser.add_argument("--size", type=int, default=480, help="MB of data")
    parser.add_argument("--limit", type=int, default=400, help="MB of memory, imports not included")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    path, checkpoint = f"{options.folder}/train.tfrecord", f"{options.folder}/keras.json"
    prepare(path, options.size, options.limit)
    data = rm.open(path).shuffle(seed=1).batch(4096)
    model, losses = fresh(), []
    if os.path.exists(checkpoint):
        with open(checkpoint) as file:
            saved = json.load(file)
        model = keras.saving.load_model(f"{options.folder}/{saved['model']}")
        data.restore(saved["data"])
        losses = saved["losses"]
        print(f"resumed after step {len(losses)}")
    steps = options.epochs * len(data)
    while len(losses) < steps:
        for batch in data:
            losses.append(float(model.train_on_batch(batch["x"], batch["y"])))
            model.reset_metrics()  # otherwise the next loss is the mean of all so far
            print(f"step {len(losses)} of {steps}: loss {losses[-1]:.6f}", flush=True)
            if len(losses) % EVERY == 0:
                save(options.folder, model, data.state(), losses)
    np.save(f"{options.folder}/losses.npy", losses)


if __name__ == "__main__":
    main()
