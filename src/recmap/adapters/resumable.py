"""The epoch and the state of batches that a loop or a trainer reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Self

from recmap.adapters.feed import Feed, State
from recmap.errors import OptionError


class Resumable:
    """Batches of a feed that can be resumed. Each iteration is an epoch.

    ``state()`` and ``restore()`` are those of the pipeline. Trainers look for ``state_dict()``
    and ``load_state_dict()``.
    """

    _feed: Feed
    # The epoch that the current iteration began with; None between iterations.
    _began: int | None = None
    # The first epoch of the iteration whose end was loaded.
    _over: int | None = None

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
        if epoch == self._over:
            self._feed.choose_rest_of(epoch)
        else:
            self._feed.choose_epoch(epoch)
        self._forget()

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state after the last batch returned, or after ``batches`` of this iteration.

        The state after the last batch of an epoch is the beginning of the next one.
        """
        return self._feed.state(batches)

    def restore(self, state: State, *, check: bool = True) -> Self:
        """Make the next iteration continue from a state, like ``Stream.restore()``."""
        self._feed.restore(state, check)
        self._forget()
        return self

    def state_dict(self) -> dict[str, Any]:
        """Return the same as ``state()``, in the form that trainers save."""
        state = self.state()
        first = self._over if self._began is None else self._began
        if first is None:
            first = state["epoch"] - state["turn"]
        # Text, because PyTorch's distributed checkpoint loads only the keys that the state of a
        # new run has, and not all states have the same.
        return {"workers": 0, "epoch": first, "state": json.dumps(state)}

    def load_state_dict(self, state_dict: Mapping[str, Any]) -> None:
        """Make the next iteration continue from a state."""
        loaded = loaded_state(state_dict)
        check_workers(loaded, 0)
        self.restore(loaded["state"])
        first = self._feed.first_epoch
        self._over = loaded["epoch"] if loaded.get("epoch", first) != first else None

    def _forget(self) -> None:
        """Forget the current iteration: the feed now knows what comes next."""
        self._began = self._over = None


def is_saved_state(state: Any) -> bool:
    """Return whether this is what ``state_dict()`` returned, rather than ``state()``."""
    return isinstance(state, Mapping) and "version" not in state and "state" in state


def loaded_state(state_dict: Any) -> dict[str, Any]:
    """Return a state with the number of workers that saved it; refuse what is none.

    What ``state()`` returned is good, too.
    """
    if isinstance(state_dict, Mapping) and "version" in state_dict:
        return {"workers": 0, "state": state_dict}
    if not is_saved_state(state_dict):
        raise OptionError("load_state_dict: give what state_dict() of such a stream has returned")
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
        raise OptionError("load_state_dict: give what state_dict() of such a stream has returned")
    return parsed


def check_workers(state: Mapping[str, Any], workers: int) -> None:
    """Refuse a state of another number of workers."""
    saved = state["workers"]
    if saved != workers:
        raise OptionError(
            f"load_state_dict: saved with num_workers={saved}, but this loader has {workers}; "
            "each worker has its own state, so continue with the same number of workers"
        )
