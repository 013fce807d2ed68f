"""The base classes of transforms.

There are two kinds. A ``Transform`` changes rows after they are read: map, filter, pad.
Reordering rows, as shuffle and repeat do, is a function of positions that is applied before
anything is read: such classes extend ``WrappedRows`` or ``ReorderedRows``.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recmap.model.batch import Positions, pick
from recmap.model.fetching import Fetching
from recmap.model.schema import Batch, Schema
from recmap.pipeline.row_source import Rows


@dataclass(frozen=True)
class Block:
    """Rows that were read together, on their way through the transforms.

    ``positions`` and ``epoch`` are their place in the order, which determines everything
    random about them; ``rows`` is where they came from.
    """

    batch: Batch
    positions: Positions
    epoch: int
    rows: Rows

    def origin(self, row: int) -> str:
        """Say where a row came from, for error messages."""
        return self.rows.origin(int(self.positions[row]), self.epoch)

    def span(self, start: int, stop: int) -> Block:
        """Return rows ``start`` to ``stop``, as views."""
        rows = slice(start, stop)
        return replace(self, batch=pick(self.batch, rows), positions=self.positions[rows])

    def where(self, mask: Any) -> Block:
        """Return the rows for which the mask is true."""
        which = np.flatnonzero(mask)
        if len(which) == len(self.positions):
            return self
        return replace(self, batch=pick(self.batch, which), positions=self.positions[which])


class Transform(ABC):
    """One stage of a pipeline: a function of a block of rows, or of a batch.

    Transforms are dataclasses. They store what they learn about types in fields that are a
    ``Schema``, so that a worker process can try functions and tell its parent.
    """

    @property
    @abstractmethod
    def name(self) -> str:
        """The name in timings."""

    @property
    def calls_user_code(self) -> bool:
        """Whether it calls the user's functions, which not every thread may do."""
        return False

    @property
    def drops(self) -> bool:
        """Whether it may drop rows."""
        return False

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        """Return the transform after it has seen some rows, and the schema of its output."""
        del sample
        return self, schema

    @abstractmethod
    def apply(self, block: Block) -> Block:
        """Transform a block."""

    def reseeded(self, by: int) -> Transform:
        """Return the transform for another branch of a pipeline, with other random numbers."""
        del by  # nothing here is random
        return self


def run_transforms(block: Block, transforms: Sequence[Transform]) -> tuple[Block, list[float]]:
    """Apply the transforms in turn; return the rows and the seconds each took."""
    seconds = []
    for transform in transforms:
        begun = time.perf_counter()
        block = transform.apply(block)
        seconds.append(time.perf_counter() - begun)
    return block, seconds


class WrappedRows(ABC):
    """Rows made from other rows: the methods that do not depend on the order."""

    def __init__(self, rows: Rows, count: int | None) -> None:
        self._rows, self._count = rows, count
        self.in_order, self.calls_user_code = rows.in_order, rows.calls_user_code
        self.keeps_blocks = rows.keeps_blocks

    @property
    def count(self) -> int | None:
        """The number of rows; None if there is no end."""
        return self._count

    @property
    def schema(self) -> Schema:
        return self._rows.schema

    def select(self, columns: Sequence[str]) -> Rows:
        return self._over(self._rows.select(columns))

    def reseeded(self, by: int) -> Rows:
        return self._over(self._rows.reseeded(by))

    @abstractmethod
    def _over(self, rows: Rows) -> Rows:
        """Return other rows in the same order."""

    def row_bytes(self) -> int:
        return self._rows.row_bytes()


class ReorderedRows(WrappedRows):
    """Rows that are other rows of the same epoch in another order, or a choice of them."""

    @property
    def rows(self) -> Rows:
        """The other rows."""
        return self._rows

    @abstractmethod
    def numbers(self, positions: Positions, epoch: int) -> Positions:
        """Return the positions in the other rows."""

    def gather(self, positions: Positions, epoch: int) -> Batch:
        return self._rows.gather(self.numbers(positions, epoch), epoch)

    def fetch_ahead(self, positions: Positions, epoch: int) -> Fetching | None:
        return self._rows.fetch_ahead(self.numbers(positions, epoch), epoch)

    def origin(self, position: int, epoch: int) -> str:
        return self._rows.origin(int(self.numbers(np.array([position]), epoch)[0]), epoch)
