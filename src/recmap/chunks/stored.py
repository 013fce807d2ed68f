"""Where the chunks of an array are stored: what a format tells the engine."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from recmap.chunks.codecs import Bytes
from recmap.chunks.grid import Grid
from recmap.chunks.mapped import ChunkPlaces
from recmap.errors import DataError
from recmap.model.fetching import Fetching

Values: TypeAlias = npt.NDArray[Any]


class ChunkBytes(NamedTuple):
    """The bytes of a chunk. If bit ``i`` of the mask is set, codec ``i`` was not applied."""

    data: Bytes
    mask: int = 0


# Returns the bytes of a chunk, its values if the format's own library had to decode it, or None if
# it was never written.
StoredOf: TypeAlias = "Callable[[int], ChunkBytes | Values | None]"


class StoredChunks(ABC):
    """Where the chunks of an array are stored. Chunks are numbered as in ``Grid``."""

    @property
    def remote(self) -> bool:
        """Whether chunks are fetched from a store."""
        return False

    @property
    def mappable(self) -> bool:
        """Whether chunks lie in files that can be mapped."""
        return False

    @abstractmethod
    def fetched(self, numbers: Sequence[int]) -> AbstractContextManager[StoredOf]:
        """Return what gives each of these chunks inside a context."""

    @abstractmethod
    def error(self, number: int | None, why: str) -> DataError:
        """Return an error that says what is wrong with a chunk, or with all of the array."""

    def written(self, numbers: range) -> Sequence[int]:
        """Return those of a row group's chunks that may have been written."""
        return numbers

    def fetch_ahead(self, numbers: Sequence[int]) -> Fetching | None:
        """Begin to fetch chunks that are going to be read; None if there is nothing to fetch."""
        del numbers
        return None

    def places(self, groups: npt.NDArray[np.int64]) -> ChunkPlaces | None:
        """Return where the chunks of row groups are mapped; None if they are not."""
        del groups
        return None

    def check(self) -> None:
        """Raise if bytes that were read belong to other data than what was opened."""
        return


class LibraryChunks(StoredChunks):
    """Row groups as chunks of whole rows, which only the format's own library can decode."""

    def __init__(
        self, grid: Grid, load: Callable[[int, int], Values], error: Callable[[str], DataError]
    ) -> None:
        """``load`` reads a span of rows, and ``error`` adds to a message where they are."""
        self._grid, self._load_rows, self._error = grid, load, error

    def fetched(self, numbers: Sequence[int]) -> AbstractContextManager[StoredOf]:
        del numbers
        return nullcontext(self._load)

    def _load(self, number: int) -> Values:
        return self._load_rows(*self._grid.rows(number))

    def error(self, number: int | None, why: str) -> DataError:
        del number
        return self._error(why)
