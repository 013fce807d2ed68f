"""``rm.zip``: the rows of several branches, side by side."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import replace

from recmap.errors import DataError, FieldMismatchError
from recmap.formats.combined import CombinedSource
from recmap.model.batch import RowArray, RowNumbers
from recmap.model.facts import SourceFacts
from recmap.model.fetching import Fetching, fetching_all
from recmap.model.order import finite, gather_span
from recmap.model.schema import Batch, Schema
from recmap.model.source import Source, VaryingRows, at_epoch, prepare, reseeded, row_name
from recmap.pipeline.row_source import count_of


class ZippedRows(CombinedSource, VaryingRows):
    """Rows with the columns of every branch: row ``i`` joins row ``i`` of each."""

    def __init__(self, branches: Sequence[Source], chosen: Schema | None = None) -> None:
        counts = [count for branch in branches if (count := count_of(branch)) is not None]
        if len(set(counts)) > 1:
            listed = ", ".join(f"{count:,}" for count in counts)
            raise DataError(
                f"zip: datasets must have the same number of rows, but they have {listed}"
            )
        names = [name for branch in branches for name in branch.schema]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FieldMismatchError(
                f"zip: two datasets have a column {twice[0]!r}; leave it out with select, or name "
                'the column when a file is opened: rm.open({"image": "x.npy"})'
            )
        self._branches, self._chosen = list(branches), chosen
        fields = {name: field for branch in branches for name, field in branch.schema.items()}
        read = branches if chosen is None else _chosen(branches, chosen)
        super().__init__(read, Schema(fields) if chosen is None else chosen)
        self._count = counts[0] if counts else None

    def _collected(self, told: list[SourceFacts]) -> SourceFacts:
        return replace(super()._collected(told), endless=self._count is None)

    def __len__(self) -> int:
        return finite(self._count)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        return gather_span(self, start, stop, limit)

    def gather(self, rows: RowArray) -> Batch:
        taken = (branch.gather(rows) for branch in self._sources)
        batch = {name: column for branch in taken for name, column in branch.items()}
        return {name: batch[name] for name in self.schema}

    def fetch_ahead(self, rows: RowNumbers) -> Fetching | None:
        return fetching_all(branch.fetch_ahead(rows) for branch in self._sources)

    def at_epoch(self, epoch: int) -> Source:
        other = copy(self)
        other._sources = [at_epoch(branch, epoch) for branch in self._sources]  # noqa: SLF001
        other._branches = [at_epoch(branch, epoch) for branch in self._branches]  # noqa: SLF001
        return other

    def select(self, names: Sequence[str]) -> ZippedRows:
        # All branches are kept: states identify the pipeline by them.
        return ZippedRows(self._branches, self.schema.select(names))

    def prepare(self) -> None:
        for branch in self._branches:
            prepare(branch)

    def reseeded(self, by: int) -> ZippedRows:
        return ZippedRows([reseeded(branch, by) for branch in self._branches], self._chosen)

    def row_bytes(self) -> int:
        return sum(branch.row_bytes() for branch in self._sources)

    def row_name(self, row: int) -> str:
        return " beside ".join(row_name(branch, row) for branch in self._branches)


def _chosen(branches: Sequence[Source], schema: Schema) -> list[Source]:
    """Return the branches that have any of the columns, with only those columns."""
    wanted = [[name for name in schema if name in branch.schema] for branch in branches]
    return [branch.select(names) for branch, names in zip(branches, wanted, strict=True) if names]
