"""One TFRecord file: what plain and compressed files have in common."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from recmap.files.output_file import Compression
from recmap.model.row_sizes import RowSizes
from recmap.model.schema import Batch
from recmap.model.source import Skipped
from recmap.native import _core
from recmap.tfrecord.decoder import ExampleDecoder

__all__ = ["BeforeRead", "RecordFile", "Window"]


@dataclass(frozen=True)
class Window:
    """Consecutive records in a buffer.

    ``offsets`` are where they begin in ``bytes``. ``record`` is the number of the first among
    all records of the file, damaged ones included; None if unknown. ``base`` is the place of
    ``bytes`` in the plain data. ``skipped`` lists damage after the records. ``needed`` is the
    size of the next record if it does not fit. ``passed`` is the number of bytes read from the
    file.
    """

    bytes: npt.NDArray[np.uint8]
    offsets: npt.NDArray[np.uint64]
    record: int | None
    base: int
    scan: _core.Scan
    skipped: list[Skipped]
    needed: int = 0
    passed: int = 0


class BeforeRead(Protocol):
    """A check that is deferred until a file is first read."""

    def check(self, file: RecordFile) -> None:
        """Raise if the file must not be read."""
        ...


class RecordFile(ABC):
    """The rows of one file."""

    path: str
    compression: Compression = None
    # What to check before the first read.
    before_read: BeforeRead | None = None

    def check_before_read(self) -> None:
        """Run the deferred check, once."""
        if self.before_read is not None:
            self.before_read.check(self)
            self.before_read = None

    @abstractmethod
    def known_count(self) -> int | None:
        """Return the number of rows, if it is known without reading further."""

    @abstractmethod
    def found_rows(self) -> int:
        """Return the number of rows seen so far."""

    @abstractmethod
    def count(self) -> int:
        """Return the number of rows, reading to the end if necessary."""

    @abstractmethod
    def read(
        self, decoder: ExampleDecoder, start: int, stop: int, limit: int | None = None
    ) -> Batch:
        """Read rows ``start`` to ``stop``, or fewer if the file ends first.

        With ``limit``, stop early rather than use more than ``limit`` bytes of memory.
        """

    @abstractmethod
    def gather(self, decoder: ExampleDecoder, rows: npt.NDArray[np.int64]) -> Batch:
        """Read rows by number. All of them must exist."""

    @abstractmethod
    def row_sizes(self, decoder: ExampleDecoder, rows: npt.NDArray[np.int64]) -> RowSizes:
        """Return an upper bound for the memory of each of these rows."""

    @abstractmethod
    def largest_row(self, decoder: ExampleDecoder, above: int) -> tuple[int, int] | None:
        """Return a row that takes more than ``above`` bytes of memory, and its size.

        Return None if there is none, or if finding out would take another pass over the file.
        """

    @abstractmethod
    def row_bytes(self) -> int:
        """Estimate the size of a record in bytes; at least 1."""

    @abstractmethod
    def windows(self, skip: bool) -> Iterator[Window]:
        """Yield all records in order.

        With ``skip``, damage is left out and listed in the windows. Otherwise, it is raised
        after the records that precede it.
        """

    @abstractmethod
    def sample(self, spots: int, skip: bool) -> Iterator[Window]:
        """Yield the first records, and where that is cheap a few from each of ``spots`` places.

        With ``skip``, search after damage too.
        """

    @abstractmethod
    def first_record(self) -> npt.NDArray[np.uint8] | None:
        """Return the first record with its framing.

        Return None if it cannot be read. Reading the file then reports why.
        """

    @abstractmethod
    def error(
        self, fault: _core.Fault, record: int, base: int, decoder: ExampleDecoder
    ) -> Exception:
        """Make the error for a fault in a window with bytes at ``base``."""

    def release(self) -> None:
        """Free everything held for the next rows."""
        return
