"""Padding as a step of batches."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from recmap.pipeline.padding import Padding
from recmap.pipeline.steps import Rowset, Step
from recmap.types import Schema

__all__ = ["PadBatches"]


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

    def renumbered(self, by: int) -> Step:
        del by  # nothing here is left to chance
        return self

    def describe(self) -> list[Any]:
        return ["pad", self.asked]
