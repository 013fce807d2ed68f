"""Segments: which part of which sequence lies where, in the rows that a packer fills."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.model.batch import Positions

Held: TypeAlias = list[list[list[int]]]
"""The segments of rows, each ``[position, begin, end]``, ready for JSON."""


class Segments(NamedTuple):
    """Segments of sequences: items ``begins`` to ``ends`` of the sequence at ``positions``.

    Each is in one of ``rows``, from item ``places`` of the row on.
    """

    positions: Positions
    begins: Positions
    ends: Positions
    rows: Positions
    places: Positions

    @classmethod
    def none(cls) -> Segments:
        return cls(*[np.empty(0, np.int64)] * 5)

    @property
    def sizes(self) -> Positions:
        return self.ends - self.begins

    def where(self, which: Any) -> Segments:
        return Segments(*(each[which] for each in self))

    def joined(self, more: Segments) -> Segments:
        return Segments(*map(np.concatenate, zip(self, more, strict=True)))


class UnfinishedRows(NamedTuple):
    """Rows that have not been given out. The workspace has a row for each of ``numbers``.

    ``finished`` are in order. When each was finished, ``after`` segments had been placed, and all
    sequences before number ``at`` had been taken in.
    """

    numbers: Positions
    work: dict[str, npt.NDArray[Any]]
    segments: Segments
    finished: Positions
    after: Positions
    at: Positions

    def without(self, given: int) -> UnfinishedRows:
        """Leave out the first rows that were finished."""
        if not given:
            return self
        kept = ~np.isin(self.numbers, self.finished[:given])
        left = ~np.isin(self.segments.rows, self.finished[:given])
        # Segments are counted from the first that is left.
        before = np.concatenate([[0], np.cumsum(left)])
        return UnfinishedRows(
            self.numbers[kept],
            {name: work[kept] for name, work in self.work.items()},
            self.segments.where(left),
            self.finished[given:],
            before[self.after[given:]],
            self.at[given:],
        )

    def finishing(self, rows: Positions, after: Positions, at: Positions) -> UnfinishedRows:
        """Add rows that are finished."""
        more = zip((self.finished, self.after, self.at), (rows, after, at), strict=True)
        finished, after, at = map(np.concatenate, more)
        return self._replace(finished=finished, after=after, at=at)


def held_segments(rows: UnfinishedRows, given: int, upto: int) -> dict[str, Held]:
    """Return the segments of rows that are open, and of those that are full, for a state.

    They are those after ``upto`` segments had been placed, and ``given`` rows had been given out.
    """
    done = int(np.searchsorted(rows.after, upto, side="right"))
    before = rows.segments.where(np.argsort(rows.segments.places[:upto], kind="stable"))
    held: dict[int, list[list[int]]] = {}
    columns = (before.rows, before.positions, before.begins, before.ends)
    for row, *segment in zip(*(each.tolist() for each in columns), strict=True):
        held.setdefault(row, []).append(segment)
    finished = rows.finished.tolist()
    full = [held.pop(row) for row in finished[given:done]]
    for row in finished[:given]:
        held.pop(row, None)
    return {"open": [held[row] for row in sorted(held)], "full": full}
