"""``rm.zip``: the rows of several branches, side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from recmap.errors import DataError, FieldMismatchError
from recmap.formats.combined import SideBySideSource
from recmap.model.facts import SourceFacts, with_facts
from recmap.model.schema import Batch
from recmap.model.source import Source, row_name
from recmap.pipeline.row_source import count_of


class ZippedRows(SideBySideSource):
    """Rows with the columns of every branch: row ``i`` joins row ``i`` of each."""

    def __init__(self, branches: Sequence[Source]) -> None:
        names = [name for branch in branches for name in branch.schema]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise FieldMismatchError(
                f"zip: two datasets have a column {twice[0]!r}; leave it out with select, or name "
                'the column when a file is opened: rm.open({"image": "x.npy"})'
            )
        super().__init__({str(number): branch for number, branch in enumerate(branches)})

    def _counted(self, sources: Mapping[str, Source]) -> int | None:
        found = [count for source in sources.values() if (count := count_of(source)) is not None]
        if len(set(found)) > 1:
            listed = ", ".join(f"{count:,}" for count in found)
            raise DataError(
                f"zip: datasets must have the same number of rows, but they have {listed}"
            )
        return found[0] if found else None

    @property
    def _is_counted(self) -> bool:
        counted = (each.facts.endless or each.known_rows() is not None for each in self._sources)
        return "_rows" in self.__dict__ or all(counted)

    def known_rows(self) -> int | None:
        return self._rows if self._is_counted else None

    def up_to(self, stop: int) -> int:
        return stop if self._rows is None else min(stop, self._rows)

    def prepare(self) -> None:
        super().prepare()
        self._rows  # noqa: B018  # counted when it is first asked for

    @property
    def facts(self) -> SourceFacts:
        return with_facts(self._told, searched=self._told.searched and self._is_counted)

    def _collected(self, told: list[SourceFacts]) -> SourceFacts:
        return with_facts(super()._collected(told), endless=all(each.endless for each in told))

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        # An endless branch would never stop.
        return super().read(start, stop if self._rows is None else min(stop, self._rows), limit)

    def row_name(self, row: int) -> str:
        return " and ".join(row_name(branch, row) for branch in self._sources)
