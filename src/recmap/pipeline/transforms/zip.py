"""Rows of several chains side by side."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from recmap.errors import DataError, FieldMismatchError, OptionError
from recmap.model.schema import Batch, Schema
from recmap.pipeline.row_source import Positions, Rows

__all__ = ["ZippedRows"]


class ZippedRows:
    """Row ``i`` has the columns of row ``i`` of every chain."""

    def __init__(self, parts: Sequence[Rows], chosen: Schema | None = None) -> None:
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
                f"zip: two chains have a column {twice[0]!r}; leave it out with select, or give a "
                'column its name when a file is opened: rm.open({"image": "x.npy"})'
            )
        self._parts, self._chosen = list(parts), chosen
        fields = {name: field for part in parts for name, field in part.schema.items()}
        self.schema = Schema(fields) if chosen is None else chosen
        self._read = self._parts if chosen is None else _chosen(parts, chosen)
        self.count = counts[0] if counts else None
        self.in_order = any(part.in_order for part in self._read)
        self.calls_user_code = any(part.calls_user_code for part in self._read)

    def gather(self, positions: Positions, epoch: int) -> Batch:
        taken = (part.gather(positions, epoch) for part in self._read)
        batch = {name: column for part in taken for name, column in part.items()}
        return {name: batch[name] for name in self.schema}

    def select(self, columns: Sequence[str]) -> ZippedRows:
        # All parts are still there: they are what the chain is known by.
        return ZippedRows(self._parts, self.schema.select(columns))

    def reseeded(self, by: int) -> ZippedRows:
        return ZippedRows([part.reseeded(by) for part in self._parts], self._chosen)

    def row_bytes(self) -> int:
        return sum(part.row_bytes() for part in self._read)

    def origin(self, position: int, epoch: int) -> str:
        return " beside ".join(part.origin(position, epoch) for part in self._parts)

    def describe(self) -> list[Any]:
        return ["beside", [part.describe() for part in self._parts]]


def _chosen(parts: Sequence[Rows], schema: Schema) -> list[Rows]:
    """The parts that have some of the columns, with those."""
    wanted = [[name for name in schema if name in part.schema] for part in parts]
    return [part.select(names) for part, names in zip(parts, wanted, strict=True) if names]
