"""Row groups that only the format's own library can decode."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

import numpy as np
import numpy.typing as npt

from recmap.chunks.array import StoredOf, Values
from recmap.chunks.grid import Grid
from recmap.chunks.mapped import ChunkPlaces
from recmap.errors import DataError
from recmap.model.fetching import Fetching


class LibraryChunks:
    """Row groups as chunks of whole rows, which a function loads."""

    remote = mappable = False

    def __init__(
        self, grid: Grid, load: Callable[[int, int], Values], error: Callable[[str], DataError]
    ) -> None:
        """``load`` reads a span of rows, and ``error`` adds to a message where they are."""
        self._grid, self._load_rows, self._error = grid, load, error

    def written(self, numbers: range) -> Sequence[int]:
        return numbers

    def fetched(self, numbers: Sequence[int]) -> AbstractContextManager[StoredOf]:
        del numbers
        return nullcontext(self._load)

    def _load(self, number: int) -> Values:
        return self._load_rows(*self._grid.rows(number))

    def fetch_ahead(self, numbers: Sequence[int]) -> Fetching | None:
        del numbers
        return None

    def places(self, groups: npt.NDArray[np.int64]) -> ChunkPlaces | None:
        del groups
        return None

    def check(self) -> None:
        """Do nothing: loading checks what is read."""

    def error(self, number: int | None, why: str) -> DataError:
        del number
        return self._error(why)
