"""``to_keras``: batches as a ``keras.utils.PyDataset``, for any backend.

Keras reads batches by number, and does not say what it uses them for. Before training it reads
one or two to see their types, and calls ``on_epoch_end`` after this preview. During training it
reads ahead. With ``steps_per_epoch`` it reports the end of an epoch in the middle of the data,
and then continues with the next number. So ``KerasBatches`` works out when an epoch of the
pipeline really ends, and the callback ``Follow`` reports what was trained on. ``_Epoch`` tracks one
epoch of the pipeline.

``FollowInFile`` finds where in the data to resume with given weights, whatever saved them. The
weights include the number of steps that the optimizer has made. The file has the step and the state
at the beginning of each epoch, so the remaining steps are batches to skip.
"""

from __future__ import annotations

import json
import multiprocessing
import os
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import Any

from recmap.adapters.columns import FeaturesAndLabels, Names, as_native, refuse_ragged
from recmap.adapters.feed import Feed, State
from recmap.errors import MissingPackageError, NotResumableWarning, OptionError, SlowOrderWarning
from recmap.local.location import Location
from recmap.model.arguments import parse_workers
from recmap.store.paths import as_location
from recmap.warn import warn

try:
    import keras
except ImportError as e:
    raise MissingPackageError(
        "to_keras() needs Keras 3 and one of its backends", extra="keras"
    ) from e

# Number of batches that Keras previews before it trains.
_LOOK = 2
# Epochs to remember. Training cannot resume with older weights.
_KEPT = 100
# At the end of a resumed epoch, Keras with TensorFlow counts a step that had no batch.
_PAST_END = 1
# The most bytes that so many states take, even those of thousands of files.
_LARGEST = 1 << 28


def to_keras(
    feed: Feed,
    features: Names,
    label: Names,
    sample_weight: str | None,
    workers: int | str | None,
    max_queue_size: int,
) -> KerasBatches:
    """Return the batches of a feed as a ``keras.utils.PyDataset``."""
    if not feed.batched:
        raise OptionError("to_keras() gives batches; put batch(n) before it")
    if feed.resumed:
        raise OptionError(
            "to_keras(): Keras asks for batches before it trains, so it has to be told when to "
            "continue from a state; leave restore() out, and give fit the state: "
            "model.fit(train, shuffle=False, callbacks=[train.follow(state)])"
        )
    try:
        count = len(feed)
    except TypeError as e:
        raise OptionError(
            "to_keras(): the number of batches is not known before they are read; use to_tf(), "
            "which fit also accepts, with steps_per_epoch= if they repeat forever"
        ) from e
    sample = feed.sample()
    chosen = FeaturesAndLabels.choose(sample, features, label, sample_weight, mask=feed.mask)
    for name in chosen.names:
        refuse_ragged(name, sample[name], "Keras models take numbers, not byte strings")
    how = {"max_queue_size": max_queue_size, **_keras_workers(workers, remote=feed.remote)}
    return KerasBatches(feed, chosen, count, **how)


def _keras_workers(workers: int | str | None, *, remote: bool) -> dict[str, Any]:
    """Convert ``workers=`` to arguments of ``PyDataset``."""
    parsed = parse_workers(workers, number="threads")
    if str(workers).startswith(("fork", "spawn")):
        raise OptionError(
            f'workers={workers!r}: Keras starts these processes itself; use "processes:'
            f'{parsed.count}", and multiprocessing.set_start_method("{parsed.method}")'
        )
    # The first of all methods is the default.
    method = multiprocessing.get_start_method(allow_none=True)
    method = method or multiprocessing.get_all_start_methods()[0]
    if remote and parsed.kind == "processes" and method == "fork":
        raise OptionError(
            f"workers={workers!r}: Keras would fork these processes, and a process that is forked "
            'cannot read from a store; use threads, or multiprocessing.set_start_method("spawn")'
        )
    return {"workers": max(1, parsed.count), "use_multiprocessing": parsed.kind == "processes"}


class KerasBatches(keras.utils.PyDataset):  # type: ignore[misc]  # untyped
    """Batches by number. Once Keras has used all batches of an epoch, the next one begins."""

    def __init__(self, feed: Feed, chosen: FeaturesAndLabels, count: int, **how: Any) -> None:
        super().__init__(**how)
        self._feed, self._chosen, self._count = feed, chosen, count
        self._epoch = _Epoch(feed, feed.epoch, count)
        self._in_keras_epoch = False  # Keras has reported a beginning, but no end yet
        self._used = False  # Keras has reported an end
        self._followed = False
        self._warned = False
        self._lock = Lock()

    def __len__(self) -> int:
        return self._epoch.length

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index:,} is out of range: there are {len(self):,}")
        if self.use_multiprocessing:
            # A Keras worker process cannot reach the running pipeline of its parent.
            return self._arrange(self._feed.batch_at(index, self._epoch.number))
        with self._lock:
            batch, epoch = self._next_in_order(index), self._epoch.number
        return self._arrange(self._feed.batch_at(index, epoch) if batch is None else batch)

    def _next_in_order(self, index: int) -> dict[str, Any] | None:
        """Return the batch from the running pipeline if it comes next, else None."""
        if index == 0 and self._epoch.paused:
            self._begin_epoch(self._following_epoch)
        batch = self._epoch.take(index)
        if batch is None and self._feed.in_turn and not self._warned:
            self._warned = True
            warn(
                "batches are requested out of order, so each is made on demand, without the "
                "workers of the pipeline; use fit(..., shuffle=False), and shuffle in the pipeline",
                SlowOrderWarning,
            )
        return batch

    def _arrange(self, columns: dict[str, Any]) -> Any:
        names = self._chosen.names
        return self._chosen.arrange({name: as_native(name, columns[name]) for name in names})

    # Called by Keras.

    def on_epoch_begin(self) -> None:
        """Note that Keras begins to read, either to train or for a preview."""
        self._in_keras_epoch = True

    def on_epoch_end(self) -> None:
        """Begin the next epoch if this one is used up.

        After a preview, this epoch starts over. If Keras stopped in the middle, the rest of it
        follows.
        """
        with self._lock:
            only_looked, self._in_keras_epoch = self._only_looked(), False
            self._used = True
            if only_looked:
                self._epoch.rewind()
            elif self._parallel or self._epoch.is_over(self._followed):
                self._begin_epoch(self._following_epoch)
            else:
                self._epoch.pause()

    def _only_looked(self) -> bool:
        """Whether Keras has read batches only as a preview, to see their types."""
        if self._epoch.trained:
            return False
        if self._parallel:
            return not self._in_keras_epoch  # its workers read more than the preview needs
        if self._in_keras_epoch:
            # Keras reports an end before it trains, even without a preview.
            return self._epoch.requested < min(_LOOK, self._count) or (
                self._count == 1 and not self._used
            )
        return self._epoch.requested <= _LOOK

    @property
    def _parallel(self) -> bool:
        """Whether Keras workers read the batches, out of order and ahead."""
        return bool(self.workers > 1 or self.use_multiprocessing)

    @property
    def _following_epoch(self) -> int:
        return self._epoch.number + self._feed.turns

    def _begin_epoch(self, number: int) -> None:
        self._epoch = _Epoch(self._feed, number, self._count)
        if self._followed:
            self._feed.epoch = number  # state() may be called before the first batch

    # Called by the callback.

    def follow(self, state: State | str | os.PathLike[str] | None = None) -> Follow:
        """Return a callback for ``fit`` that keeps track of what was trained on.

        With it, ``state()`` returns the state after the last batch that was trained on. Given
        such a state, training resumes there: the first epoch is the rest of the interrupted
        one, and Keras warns that the input ran out.

        Given a path such as ``"state.json"``, it saves there where each epoch begins. Put it after
        ``BackupAndRestore`` in ``callbacks``, or load a saved model before ``fit``: training
        resumes in the same epoch, after the last batch that these weights were trained on.
        """
        if self._parallel:
            raise OptionError(
                "follow() needs batches in order: to_keras(workers=1), and map(..., workers=4) in "
                "the pipeline"
            )
        if isinstance(state, str | bytes | os.PathLike):
            return FollowInFile(self, StateFile(as_location(state, "follow")))
        return Follow(self, state)

    def state(self) -> dict[str, Any]:
        """Return the state after the last batch that was trained on."""
        with self._lock:
            if not self._followed:
                raise OptionError(
                    "state() needs to know what was trained on: use "
                    "fit(train, shuffle=False, callbacks=[train.follow()])"
                )
            if not self._epoch.in_order:
                raise OptionError(
                    "what was trained on is not known, because batches were asked for out of "
                    "order: use fit(..., shuffle=False), and a separate to_keras() for evaluate, "
                    "predict and validation_data"
                )
            return self._feed.state(batches=self._epoch.trained)

    @property
    def followed(self) -> bool:
        """Whether training has begun with a callback."""
        return self._followed

    @property
    def trained_in_epoch(self) -> int:
        """Batches of this epoch of the pipeline, or of the rest of one, that were trained on."""
        return self._epoch.trained

    def later(self, state: Any, batches: int) -> dict[str, Any]:
        """Return the state ``batches`` batches after a given one."""
        return self._feed.later(state, batches)

    def begin(self, state: State | None) -> None:
        """Note that training begins, at ``state`` if it is given.

        Any batches read before were only a preview.
        """
        with self._lock:
            self._followed = True
            paused = self._epoch.paused
            self._begin_epoch(self._following_epoch if paused else self._epoch.number)
            if state is None:
                return
            self._feed.restore(state)
            first = self._feed.first_epoch
            if self._feed.resumed:
                self._epoch = _Epoch(self._feed, first, self._feed.left(), state)
            else:
                self._epoch = _Epoch(self._feed, first, self._count)

    def trained(self, batches: int) -> None:
        """Note how many batches were trained on in the current Keras epoch."""
        self._epoch.note_trained(batches)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_lock": Lock()})


class _Epoch:
    """One epoch of the pipeline, or the rest of one, and how far Keras has got in it.

    While batches are requested in order, they come from the running pipeline, which works ahead
    with its workers. After the first request out of order, the running pipeline is not used.
    """

    def __init__(self, feed: Feed, number: int, length: int, state: State | None = None) -> None:
        """Begin an epoch of ``length`` batches, or resume one at ``state`` with that many left."""
        self.number, self.length = number, length
        self.requested = 0  # requests since batch 0 was last requested
        self.paused = False  # Keras has reported an end before the last batch
        self.trained = 0
        self._trained_before = 0  # batches trained on before the last pause
        self._feed, self._state = feed, state
        self._batches: Iterator[dict[str, Any]] | None = None
        self._next: int | None = 0  # the next batch in order; None after one out of order

    @property
    def in_order(self) -> bool:
        return self._next is not None

    def take(self, index: int) -> dict[str, Any] | None:
        """Return a batch from the running pipeline if it comes next, else None."""
        self.paused = False
        if index == 0 and self.in_order:
            self._start()
        self.requested += 1
        if self._batches is not None and index == self._next:
            self._next = index + 1
            return next(self._batches)
        if self._state is not None:
            raise OptionError("a resumed epoch keeps its order; use fit(..., shuffle=False)")
        self._batches = self._next = None
        return None

    def _start(self) -> None:
        """Run the pipeline from the start of this epoch, again if Keras has previewed it."""
        if self._state is None:
            self._feed.epoch = self.number
        else:
            self._feed.restore(self._state)
        self._feed.warn_if_unsharded()
        self._batches, self._next = iter(self._feed), 0
        self.requested = 0

    def rewind(self) -> None:
        """Forget that batches were requested."""
        self._batches, self._next, self.requested = None, 0, 0

    def pause(self) -> None:
        """Note that Keras has reported an end before the last batch."""
        self.paused, self._trained_before = True, self.trained

    def note_trained(self, batches: int) -> None:
        # Keras may run several steps at a time and count past the last batch.
        self.trained = min(self._trained_before + batches, self.length)

    def is_over(self, followed: bool) -> bool:
        """Whether all batches were used: trained on, or just read if there is no callback."""
        return not self.in_order or self.length == (self.trained if followed else self._next)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_batches": None}


class Follow(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
    """A callback that reports what has been trained on."""

    def __init__(self, batches: KerasBatches, state: State | None) -> None:
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

    def __init__(self, batches: KerasBatches, file: StateFile) -> None:
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
