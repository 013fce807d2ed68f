"""Rows of several chains side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recmap.errors import DataError, FieldMismatchError, OptionError
from recmap.pipeline.rows import Positions, Rows
from recmap.types import Batch, Schema

__all__ = ["Beside"]


class Beside:
    """Row ``i`` has the columns of row ``i`` of every chain."""

    def __init__(self, parts: Sequence[Rows]) -> None:
        if not parts:
            raise OptionError("zip(): nothing to put side by side")
        counts = [part.count for part in parts if part.count is not None]
        if len(set(counts)) > 1:
            listed = ", ".join(f"{count:,}" for count in counts)
            raise DataError(f"rows side by side must be equally many, but there are {listed}")
        names = [name for part in parts for name in part.schema]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FieldMismatchError(
                f"zip: two chains have a column {twice[0]!r}; select or rename it first"
            )
        self._parts = list(parts)
        self.schema = Schema({name: f for part in parts for name, f in part.schema.items()})
        self.count = counts[0] if counts else None
        self.in_order = any(part.in_order for part in parts)
        self.ours = all(part.ours for part in parts)

    def take(self, positions: Positions, epoch: int) -> Batch:
        taken = (part.take(positions, epoch) for part in self._parts)
        return {name: column for batch in taken for name, column in batch.items()}

    def row_bytes(self) -> int:
        return sum(part.row_bytes() for part in self._parts)

    def whence(self, position: int, epoch: int) -> str:
        return " beside ".join(part.whence(position, epoch) for part in self._parts)

    def describe(self) -> list[Any]:
        return ["beside", [part.describe() for part in self._parts]]
