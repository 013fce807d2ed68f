"""Padding as a step of batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recmap.model.schema import Batch, Schema
from recmap.pipeline.row_source import Leaf, Positions, Rows
from recmap.pipeline.transforms.base import Rowset, Step
from recmap.pipeline.transforms.padding import Padding
from recmap.pipeline.transforms.shuffle import Rearranged

__all__ = ["PadBatches", "padded_by"]


@dataclass(frozen=True)
class PadBatches:
    """Ragged columns of a batch made dense; ``asked`` is what the user said."""

    padding: Padding
    asked: str
    before: Schema | None = None
    ours = True
    drops = False

    @property
    def name(self) -> str:
        return "pad"

    def settled(self, schema: Schema, sample: Rowset) -> tuple[Step, Schema]:
        return replace(self, before=schema), self.padding.schema(schema)

    def apply(self, rows: Rowset) -> Rowset:
        assert self.before is not None
        return replace(rows, batch=self.padding.apply(rows.batch, self.before))

    def read(
        self, rows: Rows, positions: Positions, epoch: int, size: int, most: int
    ) -> list[Batch]:
        """Rows in batches of ``size``, read and padded at once; none if that cannot be.
        Several that take more than ``most`` bytes are a MemoryLimitError.
        """
        assert self.before is not None
        while isinstance(rows, Rearranged):
            positions, rows = rows.numbers(positions, epoch), rows.rows
        if not isinstance(rows, Leaf):
            return []
        return self.padding.read(rows, positions, size, most, self.before)

    def renumbered(self, by: int) -> Step:
        del by  # nothing here is left to chance
        return self

    def describe(self) -> list[Any]:
        return ["pad", self.asked]


def padded_by(steps: Sequence[Step], rows: Rows) -> PadBatches | None:
    """The first of the steps, if rows may be padded by it while they are read."""
    while isinstance(rows, Rearranged):
        rows = rows.rows
    first = steps[0] if steps else None
    if not isinstance(first, PadBatches) or not isinstance(rows, Leaf) or not rows.pads:
        return None
    return first if first.before is not None and first.padding.has_flat(first.before) else None
