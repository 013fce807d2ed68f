"""Transform: changes rows after they are read, as map, filter and pad do.

Verbs that put rows in another order, such as shuffle and repeat, are an ``Order``
(model/order.py) instead, which is applied before anything is read.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from recmap.errors import FieldNotFoundError
from recmap.model.batch import Positions, pick
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, at_epoch, row_name


@dataclass(frozen=True)
class Block:
    """Rows that were read together, on their way through the transforms.

    ``positions`` and ``epoch`` are their place in the order, which determines everything
    random about them; ``rows`` is where they came from.
    """

    batch: Batch
    positions: Positions
    epoch: int
    rows: Source

    def origin(self, row: int) -> str:
        """Say where a row came from, for error messages."""
        return row_name(at_epoch(self.rows, self.epoch), int(self.positions[row]))

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
    def functions(self) -> Sequence[Any]:
        """The user's functions that it calls."""
        return ()

    @property
    def calls_user_code(self) -> bool:
        """Whether it calls the user's functions, which not every thread may do."""
        return bool(self.functions)

    @property
    def drops(self) -> bool:
        """Whether it may drop rows."""
        return False

    @property
    def changes(self) -> bool:
        """Whether it changes the rows that it keeps."""
        return True

    @property
    def varies(self) -> bool:
        """Whether it makes something else of the same row in another epoch."""
        return False

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        """Return the transform after it has seen some rows, and the schema of its output."""
        del sample
        return self, self.output(schema) or schema

    def output(self, schema: Schema) -> Schema | None:
        """Return the schema of its output, or None if only its function can tell.

        Refuse columns that do not fit.
        """
        return schema

    def seen(self, schema: Schema | None) -> Schema | None:
        """Return the columns of its output, also if only trying its function has shown them."""
        return schema and self.output(schema)

    @abstractmethod
    def apply(self, block: Block) -> Block:
        """Transform a block."""

    def leaves(self, name: str) -> bool:
        """Whether it surely leaves a column as it is."""
        del name
        return False

    def reseeded(self, by: int) -> Transform:
        """Return the transform for another branch of a pipeline, with other random numbers."""
        del by  # nothing here is random
        return self


def prepared(transform: Transform, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
    """Prepare a transform; an error about a column says which verb asked for it."""
    try:
        return transform.prepared(schema, sample)
    except FieldNotFoundError as e:
        raise FieldNotFoundError(f"{transform.name}: {e}") from None


def run_transforms(block: Block, transforms: Sequence[Transform]) -> tuple[Block, list[float]]:
    """Apply the transforms in turn; return the rows and the seconds each took."""
    seconds = []
    for transform in transforms:
        begun = time.perf_counter()
        block = transform.apply(block)
        seconds.append(time.perf_counter() - begun)
    return block, seconds
