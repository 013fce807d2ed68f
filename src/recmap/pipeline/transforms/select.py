"""``select`` of columns, after functions that need other columns too."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from recmap.errors import OptionError
from recmap.model.schema import Schema
from recmap.pipeline.transforms.base import Block, Transform

__all__ = ["SelectColumns", "column_names"]


@dataclass(frozen=True)
class SelectColumns(Transform):
    """Keeps the columns with these names."""

    columns: tuple[str, ...]

    @property
    def name(self) -> str:
        return "select"

    def prepared(self, schema: Schema, sample: Block) -> tuple[Transform, Schema]:
        return self, schema.select(self.columns)

    def apply(self, block: Block) -> Block:
        return replace(block, batch={name: block.batch[name] for name in self.columns})

    def describe(self) -> list[Any]:
        return ["select", list(self.columns)]


def column_names(what: Any, more: Sequence[str]) -> list[str] | None:
    """Return the columns that ``select(what, *more)`` names; None if it selects rows."""
    if isinstance(what, str):
        return [what, *more]
    if isinstance(what, list | tuple) and what and all(isinstance(name, str) for name in what):
        return [*what, *more]
    if more:
        raise OptionError("select: names of columns, or one collection of row numbers")
    return None
