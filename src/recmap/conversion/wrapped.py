"""A source over another."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from typing import Any

import numpy as np
import numpy.typing as npt

from recmap.formats.combined import SelectedSource, check_sums
from recmap.model.row_sizes import RowSizes, fitting
from recmap.model.schema import Batch, Schema
from recmap.model.source import Info, Skipped, Source, reference

__all__ = ["SourceOver", "read_by_number", "reads_in_order"]


def read_by_number(source: Source, rows: npt.NDArray[np.int64], limit: int | None) -> Batch:
    """As many of the first of these rows as fit."""
    if limit is not None and len(rows):
        sizes = source.row_sizes(rows)
        rows = rows[: 1 if sizes is None else fitting(sizes, len(rows), limit)]
    return source.gather(rows)


def reads_in_order(source: Source) -> bool:
    """Whether a pass over a source reads every row of its files, in their order."""
    return bool(getattr(source, "in_order", True))


class SourceOver:
    """Resembles the source it is over in all it does not say."""

    def __init__(self, source: Source) -> None:
        self._source = source

    def reference(self) -> Source:
        """The same, over a source that is read through the library of its format."""
        other = copy(self)
        other._source = reference(self._source)  # noqa: SLF001  # it is one of these
        return other

    @property
    def schema(self) -> Schema:
        return self._source.schema

    @property
    def files(self) -> list[str]:
        return self._source.files

    @property
    def origin(self) -> str:
        return self._source.origin

    @property
    def skipped(self) -> Sequence[Skipped]:
        return self._source.skipped

    @property
    def chunk_rows(self) -> int:
        return self._source.chunk_rows

    @property
    def band_bytes(self) -> int:
        return self._source.band_bytes

    def __len__(self) -> int:
        return len(self._source)

    def known_rows(self) -> int | None:
        return self._source.known_rows()

    @property
    def in_order(self) -> bool:
        """Whether a pass reads every row of the source in its order."""
        return reads_in_order(self._source)

    def check_sums(self) -> None:
        """Check the checksums of the source."""
        check_sums(self._source)

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        raise NotImplementedError

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        raise NotImplementedError

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        return self._source.row_sizes(rows)

    def largest_row(self, above: int) -> tuple[int, int] | None:
        return self._source.largest_row(above)

    def column(self, name: str) -> npt.NDArray[Any] | None:
        return None

    def select(self, names: Sequence[str]) -> Source:
        return SelectedSource(self, {name: name for name in names})

    def row_bytes(self) -> int:
        return self._source.row_bytes()

    def info(self) -> Info:
        return self._source.info()
