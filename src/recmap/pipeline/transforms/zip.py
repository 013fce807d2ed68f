"""``rm.zip``: the rows of several branches, side by side."""

from __future__ import annotations

from collections.abc import Sequence

from recmap.errors import DataError, FieldMismatchError
from recmap.model.batch import Positions
from recmap.model.fetching import Fetching, fetching_all
from recmap.model.schema import Batch, Schema
from recmap.pipeline.row_source import Rows


class ZippedRows:
    """Rows with the columns of every branch: row ``i`` joins row ``i`` of each."""

    def __init__(self, branches: Sequence[Rows], chosen: Schema | None = None) -> None:
        counts = [branch.count for branch in branches if branch.count is not None]
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
        self.schema = Schema(fields) if chosen is None else chosen
        self._read = self._branches if chosen is None else _chosen(branches, chosen)
        self.count = counts[0] if counts else None
        self.in_order = any(branch.in_order for branch in self._read)
        self.keeps_blocks = any(branch.keeps_blocks for branch in self._read)
        self.calls_user_code = any(branch.calls_user_code for branch in self._read)

    def gather(self, positions: Positions, epoch: int) -> Batch:
        taken = (branch.gather(positions, epoch) for branch in self._read)
        batch = {name: column for branch in taken for name, column in branch.items()}
        return {name: batch[name] for name in self.schema}

    def fetch_ahead(self, positions: Positions, epoch: int) -> Fetching | None:
        return fetching_all(branch.fetch_ahead(positions, epoch) for branch in self._read)

    def select(self, columns: Sequence[str]) -> ZippedRows:
        # All branches are kept: states identify the pipeline by them.
        return ZippedRows(self._branches, self.schema.select(columns))

    def reseeded(self, by: int) -> ZippedRows:
        return ZippedRows([branch.reseeded(by) for branch in self._branches], self._chosen)

    def row_bytes(self) -> int:
        return sum(branch.row_bytes() for branch in self._read)

    def origin(self, position: int, epoch: int) -> str:
        return " beside ".join(branch.origin(position, epoch) for branch in self._branches)


def _chosen(branches: Sequence[Rows], schema: Schema) -> list[Rows]:
    """Return the branches that have any of the columns, with only those columns."""
    wanted = [[name for name in schema if name in branch.schema] for branch in branches]
    return [branch.select(names) for branch, names in zip(branches, wanted, strict=True) if names]
