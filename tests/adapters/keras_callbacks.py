"""Callbacks for ``model.fit``."""

from __future__ import annotations

import json
from typing import Any

import keras

__all__ = ["Places", "Save"]


class Save(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
    """Saves the model and the state after a batch of an epoch, and stops there."""

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


class Places(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
    """Records the state after each step, as epoch and row."""

    def __init__(self, train: Any) -> None:
        super().__init__()
        self.train = train
        self.found: list[tuple[int, int]] = []

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        state = self.train.state()
        self.found.append((state["epoch"], state["at"]))
