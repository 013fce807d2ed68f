"""Some columns, after functions that need more of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from recmap.model.schema import Schema
from recmap.pipeline.transforms.base import Rowset, Step

__all__ = ["Choose"]


@dataclass(frozen=True)
class Choose:
    """The columns with these names."""

    columns: tuple[str, ...]
    ours = True
    drops = False

    @property
    def name(self) -> str:
        return "select"

    def settled(self, schema: Schema, sample: Rowset) -> tuple[Step, Schema]:
        return self, schema.select(self.columns)

    def apply(self, rows: Rowset) -> Rowset:
        return replace(rows, batch={name: rows.batch[name] for name in self.columns})

    def renumbered(self, by: int) -> Step:
        del by  # nothing here is left to chance
        return self

    def describe(self) -> list[Any]:
        return ["select", list(self.columns)]
