"""Train with PyTorch on a file larger than memory, and resume after a kill.

Run it, kill it (kill -9), run it again: the losses are those of a run that was never killed.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
import torch
from larger_than_memory import WIDTH, prepare
from torch.utils.data import DataLoader

import recmap as rm

EVERY = 25  # steps between checkpoints


class Training:
    """The model, the data, and the losses so far: all that a checkpoint holds."""

    def __init__(self, path: str) -> None:
        torch.manual_seed(0)
        torch.set_num_threads(1)  # a model this small gains nothing from more
        self.data = rm.open(path).shuffle(seed=1).batch(4096).to_torch(features="x", label="y")
        self.model = torch.nn.Sequential(
            torch.nn.Linear(WIDTH, 32), torch.nn.ReLU(), torch.nn.Linear(32, 1)
        )
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)
        self.losses: list[float] = []

    def step(self, x: Any, y: Any) -> None:
        self.optimizer.zero_grad()
        loss = torch.nn.functional.mse_loss(self.model(x)[:, 0], y)
        loss.backward()
        self.optimizer.step()
        self.losses.append(loss.item())

    def save(self, path: str) -> None:
        parts = {"model": self.model, "optimizer": self.optimizer, "data": self.data}
        saved = {name: part.state_dict() for name, part in parts.items()}
        torch.save({**saved, "losses": self.losses}, f"{path}.part")
        os.replace(f"{path}.part", path)  # atomic: a kill leaves the old checkpoint or the new one

    def restore(self, path: str) -> None:
        saved = torch.load(path)
        self.model.load_state_dict(saved["model"])
        self.optimizer.load_state_dict(saved["optimizer"])
        self.data.load_state_dict(saved["data"])
        self.losses = saved["losses"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", help="where the data and the checkpoint are")
    parser.add_argument("--size", type=int, default=480, help="MB of data")
    parser.add_argument("--limit", type=int, default=400, help="MB of memory, imports not included")
    parser.add_argument("--epochs", type=int, default=2)
    options = parser.parse_args()
    path, checkpoint = f"{options.folder}/train.tfrecord", f"{options.folder}/torch.pt"
    prepare(path, options.size, options.limit)
    training = Training(path)
    if os.path.exists(checkpoint):
        training.restore(checkpoint)
        print(f"resumed after step {len(training.losses)}")
    loader = DataLoader(training.data, batch_size=None)
    steps = options.epochs * len(training.data)
    while len(training.losses) < steps:
        for x, y in loader:
            training.step(x, y)
            done = len(training.losses)
            print(f"step {done} of {steps}: loss {training.losses[-1]:.6f}", flush=True)
            if done % EVERY == 0:
                training.save(checkpoint)
    np.save(f"{options.folder}/losses.npy", training.losses)


if __name__ == "__main__":
    main()
