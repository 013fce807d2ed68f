"""Pipelines as Keras takes them, whatever its backend."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.adapters.features_and_labels import Names, Pairs, as_pairs
from recmap.adapters.feed import Feed
from recmap.errors import MissingPackageError, OptionError, SlowOrderWarning
from recmap.model.ragged import Ragged

try:
    import keras
except ImportError as e:
    raise MissingPackageError(
        "to_keras() needs Keras 3 and one of its backends: pip install recmap[keras]"
    ) from e

__all__ = ["Follow", "KerasBatches", "to_keras"]

State: TypeAlias = Mapping[str, Any] | Sequence[Mapping[str, Any]]


def to_keras(
    feed: Feed,
    features: Names,
    label: Names,
    workers: int,
    use_multiprocessing: bool,
    max_queue_size: int,
) -> KerasBatches:
    """A ``keras.utils.PyDataset`` of the batches."""
    if not feed.batched:
        raise OptionError("to_keras() gives batches; put batch(n) before it")
    if feed.resumed:
        raise OptionError(
            "to_keras(): Keras asks for batches before it trains, so it has to be told when to go "
            "on from a state; leave restore() out, and give fit the state: "
            "model.fit(train, shuffle=False, callbacks=[train.follow(state)])"
        )
    try:
        count = len(feed)
    except TypeError as e:
        raise OptionError(
            "to_keras(): how many batches there are is not known before; use to_tf(), which fit "
            "takes too, with steps_per_epoch= if there is no end of them"
        ) from e
    sample = feed.sample()
    pairs = as_pairs(sample, features, label)
    for name in pairs.names:
        _check(name, sample[name])
    return KerasBatches(
        feed,
        pairs,
        count,
        workers=workers,
        use_multiprocessing=use_multiprocessing,
        max_queue_size=max_queue_size,
    )


class KerasBatches(keras.utils.PyDataset):  # type: ignore[misc]  # untyped
    """Batches by number; when Keras ends an epoch, the next one begins.

    Those that are asked for in turn come from the pipeline as it runs, ahead and with
    its workers; any other is made on the spot, by whoever asks.
    """

    def __init__(self, feed: Feed, pairs: Pairs, count: int, **how: Any) -> None:
        super().__init__(**how)
        self._feed, self._pairs, self._count = feed, pairs, count
        self._epoch = feed.epoch
        self._running: Iterator[dict[str, Any]] | None = None
        self._turn: int | None = 0  # the next batch; None if they are asked for out of turn
        self._asked = 0  # batches of this epoch
        self._begun = False  # Keras has said that an epoch begins, and not yet that it ends
        self._paused = False  # it has said that one ends, of which not all has come
        self._warned = False
        self._lock = Lock()
        # Of an epoch that is gone on with: from where, and how many batches came before.
        self._resumed: State | None = None
        self._done = 0
        self._trained: int | None = None  # batches of this epoch, if somebody tells
        self._before = 0  # of these, what Keras counts to epochs before

    def __len__(self) -> int:
        return self._count - self._done

    def follow(self, state: State | None = None) -> Follow:
        """A callback for ``fit``: with it, ``state()`` is the place after the last batch
        that was trained on. Given such a state, training goes on from there; the first
        epoch is what is left of one, and Keras says that the input ran out.
        """
        if self.workers > 1 or self.use_multiprocessing:
            raise OptionError(
                "follow() needs batches in turn: to_keras(workers=1), and map(..., workers=4) in "
                "the pipeline"
            )
        return Follow(self, state)

    def state(self) -> dict[str, Any]:
        """The place after the last batch that was trained on."""
        with self._lock:
            if self._trained is None:
                raise OptionError(
                    "what was trained on is known with "
                    "fit(train, shuffle=False, callbacks=[train.follow()])"
                )
            if self._turn is None:
                raise OptionError(
                    "what was trained on is not known, for batches were asked for out of turn: use "
                    "fit(..., shuffle=False), and give evaluate, predict and validation_data "
                    "batches of their own, from another to_keras()"
                )
            return self._feed.state(batches=self._trained)

    def begin(self, state: State | None) -> None:
        """Training begins now, at a state; what was asked for before was a look."""
        with self._lock:
            following, self._trained = self._epoch + self._feed.turns, 0
            self._start(following if self._paused else self._epoch)
            if state is None:
                return
            self._feed.restore(state)
            self._epoch = self._feed.first_epoch
            if self._feed.resumed:
                self._resumed, self._done = state, self._count - self._feed.left()

    def trained(self, batches: int) -> None:
        """So many batches have been trained on in what Keras takes for an epoch."""
        # The last of several steps at a time may lie behind the last batch.
        self._trained = min(self._before + batches, len(self))

    def __getitem__(self, index: int) -> Any:
        if not 0 <= index < len(self):
            raise IndexError(f"batch {index:,} of {len(self):,}")
        if self.use_multiprocessing:
            # In a process of Keras': what runs ahead, and who counts, is elsewhere.
            return self._given(self._feed.batch_at(index, self._epoch))
        with self._lock:
            batch, epoch = self._in_turn(index), self._epoch
        return self._given(self._feed.batch_at(index, epoch) if batch is None else batch)

    def on_epoch_begin(self) -> None:
        """Batches are asked for to be used from now on, or for another look."""
        self._begun = True

    def on_epoch_end(self) -> None:
        """The next epoch begins, if this one has; it waits until all of this one has come,
        if Keras goes on with it.
        """
        with self._lock:
            looked, self._begun = self._looked(), False
            if looked:
                self._turn = self._turn or 0
            elif self._ended():
                self._start(self._epoch + self._feed.turns)
            else:
                self._paused, self._before = True, self._trained or 0

    def _looked(self) -> bool:
        """Whether Keras has not used batches since the epoch began. Before it trains, it asks
        for one or two of them to see their types, and says that an epoch has ended.
        """
        if self._trained:
            return False
        if self.workers > 1 or self.use_multiprocessing:
            return not self._begun  # they ask for batches before these are used
        return self._asked < min(2, self._count) if self._begun else self._asked <= 2

    def _ended(self) -> bool:
        """Whether all of this epoch has come."""
        if self._turn is None or self.workers > 1 or self.use_multiprocessing:
            return True  # nobody knows what is left, or they do not go on with it
        return (self._turn if self._trained is None else self._trained) == len(self)

    def _start(self, epoch: int) -> None:
        """Batches are those of this epoch from now on."""
        self._epoch = epoch
        self._running, self._turn, self._asked, self._paused = None, 0, 0, False
        self._resumed, self._done, self._before = None, 0, 0
        if self._trained is not None:
            self._feed.epoch, self._trained = epoch, 0

    def _in_turn(self, index: int) -> dict[str, Any] | None:
        """The batch from the pipeline as it runs, if it is the next one."""
        if index == 0 and self._paused:
            self._start(self._epoch + self._feed.turns)
        self._paused = False
        # Keras looks at the first few for their types, and begins again.
        if index == 0 and self._turn is not None:
            self._asked = 0
            if self._resumed is None:
                self._feed.epoch = self._epoch
            else:
                self._feed.restore(self._resumed)
            self._running, self._turn = iter(self._feed), 0
        self._asked += 1
        if self._running is None or self._turn is None or index != self._turn:
            if self._resumed is not None:
                raise OptionError(
                    "an epoch that is gone on with comes in its order; use fit(..., shuffle=False)"
                )
            self._running = self._turn = None
            self._warn()
            return None
        self._turn += 1
        return next(self._running)

    def _warn(self) -> None:
        if self._feed.in_turn and not self._warned:
            self._warned = True
            warnings.warn(
                "batches are asked for out of turn, so each is made on the spot, without the "
                "workers of the pipeline; use fit(..., shuffle=False), and shuffle in the pipeline",
                SlowOrderWarning,
                stacklevel=4,
            )

    def _given(self, columns: dict[str, Any]) -> Any:
        return self._pairs.of({name: _native(columns[name]) for name in self._pairs.names})

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_running": None, "_lock": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_lock": Lock()})


class Follow(keras.callbacks.Callback):  # type: ignore[misc]  # untyped
    """Tells batches what has been trained on."""

    def __init__(self, batches: KerasBatches, state: State | None) -> None:
        super().__init__()
        self._batches, self._state = batches, state

    def on_train_begin(self, logs: Any = None) -> None:
        del logs
        state, self._state = self._state, None  # another fit goes on by itself
        self._batches.begin(state)

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        del logs
        self._batches.trained(batch + 1)


def _check(name: str, column: Any) -> None:
    if not isinstance(column, Ragged):
        return
    if column.is_bytes:
        raise OptionError(
            f"column {name!r}: models of Keras take numbers, not byte strings; leave it out with "
            "select or features=, or decode it with map"
        )
    raise OptionError(
        f"column {name!r}: rows differ in length; make them even: batch(n, pad={{{name!r}: "
        '"longest"})'
    )


def _native(array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    if array.dtype.kind in "mM":  # no backend has dates: they stay the integers they are
        return array.astype(np.int64)
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))
