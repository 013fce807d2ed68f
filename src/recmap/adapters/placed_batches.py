"""Batches that are placed on a device ahead of the loop that reads them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterator
from itertools import islice
from typing import Any

from recmap.adapters.columns import FeaturesAndLabels
from recmap.adapters.feed import Feed
from recmap.adapters.resumable import Resumable
from recmap.errors import OptionError
from recmap.machine.memory import locked_pages
from recmap.model.iteration import Iteration

# A pipeline remembers the states after somewhat more batches.
_MOST_PREFETCHED = 200


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
        # Batches of this iteration that the loop has got; None before the first iteration.
        self._given: int | None = None

    @abstractmethod
    def _place(self, columns: dict[str, Any]) -> Any:
        """Begin to copy the columns of a batch to the device. Return what _finished() needs."""

    def _finished(self, placed: Any) -> Any:
        """Return a batch for the loop to use from now on."""
        return placed

    def __len__(self) -> int:
        return len(self._feed)

    def __iter__(self) -> Iterator[Any]:
        return Iteration(self._prefetched(iter(self._feed)))

    def state(self, batches: int | None = None) -> dict[str, Any]:
        """Return the state after the last batch returned, or after ``batches`` of this iteration.

        The state after the last batch of an epoch is the beginning of the next one.
        """
        return self._feed.state(self._given if batches is None else batches)

    def _forget(self) -> None:
        super()._forget()
        self._given = None

    def _prefetched(self, batches: Iterator[dict[str, Any]]) -> Iterator[Any]:
        # An iteration begins when its first batch is asked for.
        self._given, self._began, self._over = 0, self._feed.first_epoch, None
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
        self._given = (self._given or 0) + 1
        return self._finished(ahead.popleft())


def check_prefetch(feed: Feed, prefetch: int, verb: str) -> None:
    """Refuse rows, and numbers of batches that make no sense."""
    if not feed.batched:
        raise OptionError(f"{verb} gives batches; put batch(n) before it")
    if not 0 <= prefetch <= _MOST_PREFETCHED:
        raise OptionError(
            f"prefetch={prefetch}: give the number of batches to put on devices ahead, 0 to "
            f"{_MOST_PREFETCHED}"
        )
