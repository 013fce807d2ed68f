"""Callbacks that tell ``KerasBatches`` what has been trained on.

``FollowInFile`` finds where in the data to resume with given weights, whatever saved them. The
weights include the number of steps that the optimizer has made. The file has the step and the state
at the beginning of each epoch, so the remaining steps are batches to skip.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Protocol

import keras

from recmap.adapters.feed import State
from recmap.errors import NotResumableWarning, OptionError
from recmap.local.location import Location
from recmap.warn import warn

# Epochs to remember. Training cannot resume with older weights.
_KEPT = 100
# At the end of a resumed epoch, Keras with TensorFlow counts a step that had no batch.
_PAST_END = 1
# The most bytes that so many states take, even those of thousands of files.
_LARGEST = 1 << 28


class Followed(Protocol):
    """Batches that are told what Keras does with them."""

    @property
    def followed(self) -> bool: ...

    @property
    def trained_in_epoch(self) -> int: ...

    def __len__(self) -> int: ...

    def begin(self, state: State | None) -> None: ...

    def trained(self, batches: int) -> None: ...

    def state(self) -> dict[str, Any]: ...

    def later(self, state: Any, batches: int) -> dict[str, Any]: ...


class Follow(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
    """A callback that reports what has been trained on."""

    def __init__(self, batches: Followed, state: State | None) -> None:
        super().__init__()
        self._batches, self._state = batches, state

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        state, self._state = self._state, None  # a second fit continues without it
        self._batches.begin(state)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        self._batches.trained(batch + 1)


class FollowInFile(Follow):
    """A callback that also saves where each epoch begins, and resumes where the weights were."""

    def __init__(self, batches: Followed, file: StateFile) -> None:
        super().__init__(batches, None)
        self._file = file
        self._begun = 0  # the optimizer's steps when fit began, or this epoch
        self._first: int | None = None  # the epoch to begin with

    def on_train_begin(self, logs: Any = None) -> None:
        self._begun, self._first = self._steps(), None
        self._file.load()
        if not self._batches.followed:  # another fit continues
            self._find()
        super().on_train_begin(logs)

    def _find(self) -> None:
        """Find where the weights were trained up to."""
        file, steps = self._file, self._begun
        if steps == 0:
            if any(start.step for start in file.starts):
                warn(
                    f"{file.path}: its run had made {file.starts[-1].step:,} steps, but the "
                    "weights are new, so training starts over; to resume, put "
                    "keras.callbacks.BackupAndRestore(...) before this callback, or load the model",
                    NotResumableWarning,
                )
            file.starts = []
        elif file.starts:
            start = file.before(steps)
            done = min(steps - start.step, start.batches)
            self._state = self._batches.later(start.state, done)
            self._first = start.epoch + (done == start.batches)
            self.model._initial_epoch = self._first  # noqa: SLF001  # as BackupAndRestore sets it
        else:
            warn(
                f"{file.path}: no such file, but the weights were trained for {steps:,} steps; "
                "training starts with the first row of an epoch",
                NotResumableWarning,
            )

    def on_epoch_begin(self, epoch: int, logs: Any = None) -> None:
        del logs
        first, self._first = self._first, None
        if self._steps() != self._begun or first not in (None, epoch):
            raise OptionError(
                "BackupAndRestore has loaded weights after follow() looked for them; put "
                'train.follow("...") after it in callbacks=[...]'
            )
        state, left = self._batches.state(), len(self._batches) - self._batches.trained_in_epoch
        batches = min(self.params["steps"] or left, left)
        self._file.add(_Start(self._begun, epoch, batches, state))

    def on_train_end(self, logs: Any = None) -> None:
        del logs
        self.model._initial_epoch = None  # noqa: SLF001  # Keras would keep it for a later fit

    def on_epoch_end(self, epoch: int, logs: Any = None) -> None:
        del epoch, logs
        made, batches = self._steps() - self._begun, self._file.starts[-1].batches
        if made > batches + _PAST_END or (made < batches and not self.model.stop_training):
            raise OptionError(
                f"the optimizer has made {made:,} steps in {batches:,} batches, so the weights do "
                "not show which rows they were trained on; use train.follow(), and save "
                "train.state() together with the weights"
            )
        self._begun += made

    def _steps(self) -> int:
        """Return the number of batches that the optimizer has seen."""
        optimizer = self.model.optimizer
        for variable in () if optimizer is None else optimizer.variables:
            if variable.name == "iteration":  # .iterations is less if gradients are accumulated
                return int(variable)
        raise OptionError(
            "follow(path) needs a model with an optimizer that counts its steps; use "
            "train.follow(), and save train.state() together with the weights"
        )


@dataclass(frozen=True)
class _Start:
    """Where an epoch of Keras, or the rest of one, began."""

    step: int
    epoch: int
    batches: int
    state: dict[str, Any]


class StateFile:
    """The file with the starts of epochs. It is never trusted."""

    def __init__(self, path: Location) -> None:
        self.path = path
        self.starts: list[_Start] = []

    def load(self) -> None:
        """Read what is there."""
        found = self.path.read_whole(_LARGEST)
        if found is None:
            self.starts = []
            return
        try:
            starts = json.loads(found[0])["starts"]
            self.starts = [_Start(**{**start, "state": dict(start["state"])}) for start in starts]
            numbers = [(each.step, each.epoch, each.batches) for each in self.starts]
            sound = all(type(number) is int and number >= 0 for each in numbers for number in each)
            if not sound or numbers != sorted(numbers):
                raise ValueError("impossible numbers")
        except (ValueError, KeyError, TypeError, RecursionError) as e:
            raise OptionError(
                f"{self.path}: not a file that follow(path) wrote: {e}; remove it, or give "
                "another path"
            ) from e

    def before(self, steps: int) -> _Start:
        """Return the start of the epoch in which the optimizer made that many steps."""
        known = [start for start in self.starts if start.step <= steps]
        if not known or steps > known[-1].step + known[-1].batches + _PAST_END:
            first, last = self.starts[0].step, self.starts[-1].step + self.starts[-1].batches
            raise OptionError(
                f"{self.path}: covers steps {first:,} to {last:,}, but the weights were trained "
                f"for {steps:,} steps, so they come from another run; remove the file to start "
                "with the first row of an epoch"
            )
        self.starts = known
        return known[-1]

    def add(self, start: _Start) -> None:
        """Save another start, and forget those that were not reached."""
        known = [each for each in self.starts if each.step < start.step]
        self.starts = [*known, start][-_KEPT:]
        text = json.dumps({"starts": [vars(each) for each in self.starts]})
        self.path.write_whole(text.encode())
