"""What is done to rows after they were read: one step after the other, on a batch."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from recmap.errors import DataError, OptionError
from recmap.model.batch import pick
from recmap.model.schema import Batch, Schema
from recmap.model.workers import Workers
from recmap.pipeline.row_source import (
    Positions,
    Rows,
    Selected,
    is_damaged,
    reach_of,
    sound_rows,
)
from recmap.pipeline.trial import Found, tried

__all__ = ["Rowset", "Step", "Stepped", "run_steps", "settle"]

# Rows that are tried at first to see what functions make of them, and at most.
_SAMPLES = (4, 64, 1024)


@dataclass(frozen=True)
class Rowset:
    """Rows on their way. ``positions`` and ``epoch`` are their place in the order, from
    which everything random about them follows; ``rows`` is where they came from.
    """

    batch: Batch
    positions: Positions
    epoch: int
    rows: Rows

    def whence(self, row: int) -> str:
        """Where a row came from."""
        return self.rows.whence(int(self.positions[row]), self.epoch)

    def part(self, start: int, stop: int) -> Rowset:
        """Rows from one place to another, as views."""
        rows = slice(start, stop)
        return replace(self, batch=pick(self.batch, rows), positions=self.positions[rows])

    def kept(self, mask: Any) -> Rowset:
        """Those rows for which the mask is true."""
        which = np.flatnonzero(mask)
        if len(which) == len(self.positions):
            return self
        return replace(self, batch=pick(self.batch, which), positions=self.positions[which])


class Step(Protocol):
    """A function of rows."""

    @property
    def name(self) -> str:
        """For people, in telemetry."""
        ...

    @property
    def ours(self) -> bool:
        """Whether it may run in any thread: it calls nothing of the user's."""
        ...

    @property
    def drops(self) -> bool:
        """Whether rows may be left out."""
        ...

    def settled(self, schema: Schema, sample: Rowset) -> tuple[Step, Schema]:
        """The step once it has seen some rows, and the schema of what it makes."""
        ...

    def apply(self, rows: Rowset) -> Rowset: ...

    def renumbered(self, by: int) -> Step:
        """The same for another branch of a chain, where chances are others."""
        ...

    def describe(self) -> list[Any]:
        """What tells it from another step, as far as that can be said."""
        ...


def settle(rows: Rows, steps: Sequence[Step]) -> tuple[list[Step], Schema, Rowset]:
    """The steps once they have seen the first rows, the schema of what they make, and
    what they made of those rows.
    """
    for size in _SAMPLES:
        first = _sample(rows, size)
        settled, schema, sample = _tried(first, steps)
        reach = reach_of(rows)
        # A filter may have left nothing to look at.
        if len(sample.positions) or len(first.positions) < size or size == reach:
            return settled, schema, sample
    raise OptionError(
        f"none of the first {_SAMPLES[-1]:,} rows is left by the filters, so that what comes "
        "after them cannot be tried; put filter last, or give map(..., fields=...)"
    )


def _tried(sample: Rowset, steps: Sequence[Step]) -> tuple[list[Step], Schema, Rowset]:
    settled: list[Step] = []
    schema = sample.rows.schema
    for step in steps:
        ready, schema = step.settled(schema, sample)
        settled.append(ready)
        sample = ready.apply(sample)
    return settled, schema, sample


def _sample(rows: Rows, size: int) -> Rowset:
    """The first rows, up to a bad one."""
    reach = reach_of(rows)
    positions = np.arange(size if reach is None else min(size, reach), dtype=np.int64)
    try:
        return Rowset(rows.gather(positions, 0), positions, 0, rows)
    except DataError:
        positions = positions[: sound_rows(rows, positions)]
        if not len(positions):
            raise
        return Rowset(rows.gather(positions, 0), positions, 0, rows)


def run_steps(rows: Rowset, steps: Sequence[Step]) -> tuple[Rowset, list[float]]:
    """All steps, and the seconds each took."""
    seconds = []
    for step in steps:
        begun = time.perf_counter()
        rows = step.apply(rows)
        seconds.append(time.perf_counter() - begun)
    return rows, seconds


class Stepped:
    """Rows with steps that leave none out: still rows by position. ``workers`` are those
    of the functions among the steps.
    """

    def __init__(self, rows: Rows, steps: Sequence[Step], workers: Workers | None = None) -> None:
        self._rows, self._given, self._workers = rows, list(steps), workers
        self.in_order = rows.in_order
        self.reach, self.damaged = reach_of(rows), is_damaged(rows)
        self.ours = rows.ours and all(step.ours for step in steps)

    @property
    def count(self) -> int | None:
        """How many; the damage is raised that keeps it from being known."""
        return self._rows.count

    def sound(self, positions: Positions) -> int:
        """How many rows, of those that follow each other, lie in front of a bad one."""
        return sound_rows(self._rows, positions)

    @cached_property
    def _settled(self) -> Found:
        """The steps, once they have seen rows: not before these are asked for."""
        return tried(self._found, self._given, None if self.ours else self._workers)

    def _found(self) -> Found:
        steps, schema, _ = settle(self._rows, self._given)
        return Found(tuple(steps), schema, {})

    @property
    def schema(self) -> Schema:
        return self._settled.schema

    def gather(self, positions: Positions, epoch: int) -> Batch:
        rowset = Rowset(self._rows.gather(positions, epoch), positions, epoch, self._rows)
        for step in self._settled.steps:
            rowset = step.apply(rowset)
        return rowset.batch

    def select(self, columns: Sequence[str]) -> Rows:
        return Selected(self, columns)

    def renumbered(self, by: int) -> Rows:
        steps = [step.renumbered(by) for step in self._given]
        return Stepped(self._rows.renumbered(by), steps, self._workers)

    def row_bytes(self) -> int:
        return self._rows.row_bytes()

    def whence(self, position: int, epoch: int) -> str:
        return self._rows.whence(position, epoch)

    def describe(self) -> list[Any]:
        return ["steps", self._rows.describe(), [step.describe() for step in self._given]]
