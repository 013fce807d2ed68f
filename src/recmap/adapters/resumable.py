"""Batches that a loop or a trainer reads: their epoch and state, and how they get on a device."""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Self

from recmap.adapters.columns import FeaturesAndLabels
from recmap.adapters.feed import Feed, HandedOut, State
from recmap.errors import NotResumableWarning, OptionError
from recmap.machine.memory import locked_pages
from recmap.model.iteration import Iteration
from recmap.warn import warn

# A pipeline remembers the states after somewhat more batches.
_MOST_PREFETCHED = 200


class Resumable:
    """Batches of a feed that can be resumed. Each iteration is an epoch.

    ``state()`` and ``restore()`` are those of the pipeline. Trainers look for ``state_dict()``
    and ``load_state_dict()``.
    """

    _feed: Feed
    # The epoch that the current iteration began with; None between iterations.
    _began: int | None = None
    # The first epoch of the iteration whose end was loaded; that of the next one, after a state was
    # loaded. None once it has begun.
    _over: int | None = None
    _after: int | None = None
    # The moves of the feed that the above take into account.
    _moves = 0

    @property
    def epoch(self) -> int:
        """The epoch that the next iteration begins with, or continues. Can be set."""
        return self._feed.epoch

    @epoch.setter
    def epoch(self, number: int) -> None:
        self._feed.epoch = number
        self._forget()

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch of the next iteration. By default, each iteration is the next epoch.

        An iteration that was going to resume in this epoch still does.
        """
        self._follow()
        if epoch == self._over:
            self._feed.choose_rest_of(epoch)
        else:
            self._warn_if_place_is_left(epoch)
            self._feed.choose_epoch(epoch)
        self._forget()

    def _warn_if_place_is_left(self, epoch: int) -> None:
        """Warn if a run begins over, in an epoch before that of the state that was restored."""
        first = self._feed.first_epoch
        restored = self._after is not None or self._feed.resumed
        # With repeat(), an iteration is several epochs, and trainers count iterations.
        if restored and epoch < first and self._feed.turns == 1:
            warn(
                f"set_epoch({epoch}) begins epoch {epoch}, so the state that was restored, of "
                f"epoch {first}, is not used; begin with that epoch, as in for epoch in "
                "range(train.epoch, epochs), or give Lightning its checkpoint: "
                "fit(..., ckpt_path=...)",
                NotResumableWarning,
            )

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state after the last batch returned, or after ``batches`` of this iteration.

        The state after the last batch of an epoch is the beginning of the next one.
        """
        return self._feed.state(batches)

    def restore(self, state: State, *, check: bool = True) -> Self:
        """Make the next iteration continue from a state, like ``Stream.restore()``."""
        self._feed.restore(state, check)
        self._forget()
        self._after = self._feed.first_epoch
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the same as ``state()``, in the form that trainers save."""
        return self._with_epoch(self.state())

    def _with_epoch(self, state: Mapping[str, Any]) -> dict[str, Any]:
        """Return a state in the form that trainers save, with the epoch they are in."""
        self._follow()
        first = state["epoch"] - state["turn"]
        if self._began is None:
            first = first if self._over is None else self._over
        elif first == self._began + self._feed.turns and state["turn"] == state["at"] == 0:
            first = self._began  # its last batch was given, but it was not asked for more
        # Text, because PyTorch's distributed checkpoint loads only the keys that the state of a
        # new run has, and not all states have the same.
        return {"workers": 0, "epoch": first, "state": json.dumps(state)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make the next iteration continue from a state."""
        loaded = loaded_state(state_dict)
        check_workers(loaded, 0)
        self.restore(loaded["state"])
        over = loaded.get("epoch", self._after)
        self._over = over if over != self._after else None

    def _forget(self) -> None:
        """Forget the current iteration: the feed now knows what comes next."""
        self._began = self._over = self._after = None
        self._moves = self._feed.moves

    def _follow(self) -> None:
        """Forget what is no longer so: others read the pipeline too, or choose its epoch."""
        if self._moves != self._feed.moves:
            self._began = self._over = self._after = None
        elif self._after is not None and self._feed.first_epoch != self._after:
            self._over = self._after = None

    def _begin(self, epoch: int) -> None:
        """Note that an iteration begins with an epoch."""
        self._began, self._over, self._after = epoch, None, None
        self._moves = self._feed.moves


class PlacedBatches(Resumable, ABC):
    """Batches on a device. Each iteration is an epoch.

    Up to ``prefetch`` batches are placed in advance. ``state()`` still refers to the last batch
    that was returned.
    """

    def __init__(
        self, feed: Feed, chosen: FeaturesAndLabels, prefetch: int, gpu: int | None
    ) -> None:
        self._feed, self._chosen, self._prefetch = feed, chosen, prefetch
        self._gpu = gpu  # the number of the GPU that batches are copied to

    @abstractmethod
    def _place(self, columns: dict[str, Any]) -> Any:
        """Begin to copy the columns of a batch to the device. Return what _finished() needs."""

    def _finished(self, placed: Any) -> Any:
        """Return a batch for the loop to use from now on."""
        return placed

    def __len__(self) -> int:
        return len(self._feed)

    def __iter__(self) -> Iterator[Any]:
        return Iteration(self._counted(ahead=False))

    def _counted(self, *, ahead: bool) -> Iterator[Any]:
        """Run an iteration for a loop, or for a loader that takes a batch ahead of it."""
        handed_out = HandedOut()
        batches = self._prefetched(self._feed.read_ahead(handed_out))
        return counted(batches, handed_out, ahead=ahead)

    def _prefetched(self, batches: Iterator[dict[str, Any]]) -> Iterator[Any]:
        # An iteration begins when its first batch is asked for.
        self._begin(self._feed.first_epoch)
        self._feed.warn_if_unsharded()
        ahead: deque[Any] = deque()
        placed = map(self._place, batches)
        try:
            while batch := self._next(placed):
                ahead.append(batch.pop())
                if len(ahead) > self._prefetch:
                    yield self._hand_out(ahead)
        except Exception:
            # First yield the batches made before the failure, as without prefetching.
            yield from self._hand_out_all(ahead)
            raise
        yield from self._hand_out_all(ahead)
        self._began = None

    def _next(self, placed: Iterator[Any]) -> list[Any]:
        """Place the next batch, if there is one, from memory that the GPU can copy from."""
        with locked_pages(self._gpu):
            return list(islice(placed, 1))

    def _hand_out_all(self, ahead: deque[Any]) -> Iterator[Any]:
        while ahead:
            yield self._hand_out(ahead)

    def _hand_out(self, ahead: deque[Any]) -> Any:
        # A separate function: a local variable in the generator would keep the batch alive
        # until the next one is requested.
        return self._finished(ahead.popleft())


def counted(batches: Iterator[Any], handed_out: HandedOut, *, ahead: bool) -> Iterator[Any]:
    """Yield batches, and count those that a loop has got.

    With ``ahead``, its loader asks for the next batch before it hands one to the loop.
    """
    while batch := list(islice(batches, 1)):
        handed_out.batches += not ahead
        yield batch.pop()
        handed_out.batches += ahead


def check_prefetch(feed: Feed, prefetch: int, verb: str) -> None:
    """Refuse rows, and numbers of batches that make no sense."""
    if not feed.batched:
        raise OptionError(f"{verb} gives batches; put batch(n) before it")
    if not 0 <= prefetch <= _MOST_PREFETCHED:
        raise OptionError(
            f"prefetch={prefetch}: give the number of batches to put on devices ahead, 0 to "
            f"{_MOST_PREFETCHED}"
        )


def is_saved_state(state: Any) -> bool:
    """Return whether this is what ``state_dict()`` returned, rather than ``state()``."""
    return isinstance(state, Mapping) and "version" not in state and "state" in state


def loaded_state(state_dict: Any) -> dict[str, Any]:
    """Return a state with the number of workers that saved it; refuse anything else.

    What ``state()`` returned is good, too.
    """
    if isinstance(state_dict, Mapping) and "version" in state_dict:
        return {"workers": 0, "state": state_dict}
    if not is_saved_state(state_dict):
        raise OptionError("load_state_dict: give what state_dict() of this stream returned")
    for name in ("workers", "epoch"):
        number = state_dict.get(name, 0)
        if type(number) is not int or number < 0:
            raise OptionError(f"load_state_dict: a damaged state: {name!r} is {number!r}")
    return {"workers": 0, **state_dict, "state": _parsed(state_dict["state"])}


def _parsed(state: Any) -> Mapping[str, Any]:
    try:
        parsed = json.loads(state) if isinstance(state, str) else state
    except (ValueError, RecursionError) as e:
        raise OptionError(f"load_state_dict: a damaged state: {e}") from e
    if not isinstance(parsed, Mapping):
        raise OptionError("load_state_dict: give what state_dict() of this stream returned")
    return parsed


def check_workers(state: Mapping[str, Any], workers: int) -> None:
    """Refuse a state of another number of workers."""
    saved = state["workers"]
    if saved != workers:
        raise OptionError(
            f"load_state_dict: saved with num_workers={saved}, but this loader has {workers}; "
            "each worker has its own state, so continue with the same number of workers"
        )
