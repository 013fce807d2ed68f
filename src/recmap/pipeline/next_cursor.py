"""Where the next iteration of a feed begins."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple, TypeVar

from recmap.adapters.feed import LoaderWorkers
from recmap.files.shared_value import SharedValue
from recmap.pipeline.state import Cursor

R = TypeVar("R")

# Iterations of workers to remember: more than can be starting at a time.
_REMEMBERED = 64


class _Iterations(NamedTuple):
    next: Cursor
    #: The last iterations of workers, and where each began.
    taken: tuple[tuple[LoaderWorkers, Cursor], ...] = ()


class NextCursor:
    """The cursor at which the next iteration begins, for all processes that read a feed.

    A feed begins an iteration by taking it. The workers of a loader are several processes that
    begin one iteration: the first of them takes the cursor, and all get the same. Once the
    cursor is shared, a process has it in common with the workers it starts. A process that was
    forked for another purpose continues by itself.
    """

    def __init__(self, cursor: Cursor) -> None:
        self._here = _Iterations(cursor)
        # By the number of the process that starts the workers.
        self._shared: SharedValue[dict[int, _Iterations]] | None = None

    def share(self) -> None:
        """Share the cursor with workers that are started from now on."""
        if self._shared is None:
            self._shared = SharedValue({os.getpid(): self._here})

    def get(self) -> Cursor:
        """Return the cursor, and leave it to the next iteration."""
        return self._place().next

    def set(self, cursor: Cursor) -> None:
        """Make the next iteration begin at a cursor."""
        self._update(os.getpid(), lambda place: (place._replace(next=cursor), None))

    def take(self, following: Callable[[Cursor], Cursor]) -> Cursor:
        """Begin an iteration: return its cursor, and set the one that follows."""

        def taken(place: _Iterations) -> tuple[_Iterations, Cursor]:
            return place._replace(next=following(place.next)), place.next

        return self._update(os.getpid(), taken)

    def take_with(
        self,
        workers: LoaderWorkers,
        following: Callable[[Cursor], Cursor],
        start: Cursor | None = None,
    ) -> Cursor:
        """Begin an iteration of these workers, unless another of them already has.

        Return its cursor: ``start``, if it is given.
        """

        def taken(place: _Iterations) -> tuple[_Iterations, Cursor]:
            for others, cursor in reversed(place.taken):
                if workers.are_those(others):
                    return place, cursor
            cursor = place.next if start is None else start
            remembered = (*place.taken, (workers, cursor))[-_REMEMBERED:]
            return _Iterations(following(cursor), remembered), cursor

        return self._update(workers.parent, taken)

    @property
    def last_of_workers(self) -> Cursor | None:
        """Where the last iteration of workers began."""
        taken = self._place().taken
        return taken[-1][1] if taken else None

    def _place(self) -> _Iterations:
        places = {} if self._shared is None else self._shared.get()
        return places.get(os.getpid(), self._here)

    def _update(self, owner: int, change: Callable[[_Iterations], tuple[_Iterations, R]]) -> R:
        if self._shared is None:
            self._here, result = change(self._here)
            return result

        def changed(
            places: dict[int, _Iterations],
        ) -> tuple[dict[int, _Iterations], tuple[_Iterations, R]]:
            place, result = change(places.get(owner, self._here))
            return {**places, owner: place}, (place, result)

        self._here, result = self._shared.update(changed)
        return result

    def __getstate__(self) -> dict[str, object]:
        return {"_here": self._place(), "_shared": self._shared}
