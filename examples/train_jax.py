"""Train with JAX on a file larger than memory, and resume after a kill.

Run it, kill it (kill -9), run it again: the losses are those of a run that was never killed.
"""

from __future__ import annotations

import argparse
import json
import os
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from larger_than_memory import WIDTH, prepare

import recmap as rm

EVERY = 25  # steps between checkpoints


def loss_of(model: dict[str, Any], x: Any, y: Any) -> Any:
    hidden = jax.nn.relu(x @ model["w1"] + model["b1"])
    return jnp.mean((hidden @ model["w2"] + model["b2"] - y) ** 2)


def advance(model: dict[str, Any], x: Any, y: Any) -> tuple[Any, dict[str, Any]]:
    loss, slopes = jax.value_and_grad(loss_of)(model, x, y)
    return loss, {name: model[name] - 0.1 * slopes[name] for name in model}


step = jax.jit(advance)


def fresh() -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {
        "w1": jnp.asarray(rng.standard_normal((WIDTH, 32), np.float32) / 16),
        "b1": jnp.zeros(32),
        "w2": jnp.asarray(rng.standard_normal(32, np.float32) / 6),
        "b2": jnp.zeros(()),
    }


def save(path: str, model: dict[str, Any], state: dict[str, Any], losses: list[float]) -> None:
    with open(f"{path}.part", "wb") as file:
        np.savez(file, state=json.dumps(state), losses=losses, **model)
    os.replace(f"{path}.part", path)  # atomic: a kill leaves the old checkpoint or the new one


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where the data and the checkpoint are")
    parser.add_argument("--size", type=int, default=480, help="MB of data")
    parser.add_argument("--limit", type=int, default=400, help="MB of memory, imports not included")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    path, checkpoint = f"{options.folder}/train.tfrecord", f"{options.folder}/jax.npz"
    prepare(path, options.size, options.limit)
    data = rm.open(path).shuffle(seed=1).batch(4096).to_jax(features="x", label="y")
    model, losses = fresh(), []
    if os.path.exists(checkpoint):
        with np.load(checkpoint) as saved:
            model = {name: jnp.asarray(saved[name]) for name in model}
            losses = saved["losses"].tolist()
            data.restore(json.loads(str(saved["state"])))
        print(f"resumed after step {len(losses)}")
    steps = options.epochs * len(data)
    while len(losses) < steps:
        for x, y in data:
            loss, model = step(model, x, y)
            losses.append(float(loss))
            print(f"step {len(losses)} of {steps}: loss {losses[-1]:.6f}", flush=True)
            if len(losses) % EVERY == 0:
                save(checkpoint, model, data.state(), losses)
    np.save(f"{options.folder}/losses.npy", losses)


if __name__ == "__main__":
    main()
