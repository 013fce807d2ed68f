"""What every format can do: the protocols of sources and sinks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from recmap.model.row_sizes import RowSizes
from recmap.model.schema import Batch, Schema

__all__ = ["Info", "Sink", "Skipped", "Source", "owned_rows", "reference"]


@dataclass(frozen=True)
class Skipped:
    """A record that was left out."""

    file: str
    record: int
    byte: int
    reason: str

    def __str__(self) -> str:
        return f"{self.file}: record {self.record:,} at byte {self.byte:,}: {self.reason}"


@dataclass(frozen=True)
class Info:
    """Facts about the files of a dataset; ``print`` it.

    ``notes`` says of each field how it lies in the file, or what it may be.
    """

    format: str
    files: list[str]
    size: int
    rows: int
    schema: Schema
    origin: str
    mapped: list[str]
    compression: list[str] = field(default_factory=list)
    record_size: int | None = None
    notes: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        one = self.files[0] if self.files else "in memory"
        lines = [
            one if len(self.files) <= 1 else f"{len(self.files):,} files from {one}",
            f"  format   {self.format}{''.join(f', {name}' for name in self.compression)}",
            f"  size     {self.size:,} bytes",
            f"  rows     {self.rows:,}"
            + (f", all records of {self.record_size:,} bytes" if self.record_size else ""),
            f"  schema   {self.origin}",
        ]
        width = max(map(len, self.schema), default=0)
        for name, kind in self.schema.items():
            notes = ["mapped in place"] if name in self.mapped else []
            notes += [self.notes[name]] if name in self.notes else []
            note = f"  ({'; '.join(notes)})" if notes else ""
            lines.append(f"    {name:{width}}  {kind}{note}")
        return "\n".join(lines)


class Source(Protocol):
    """Rows to be read. Every format that can be read is one."""

    @property
    def schema(self) -> Schema: ...

    @property
    def files(self) -> list[str]:
        """Where the rows come from, in their order."""
        ...

    @property
    def origin(self) -> str:
        """How the schema came to be known, for people."""
        ...

    @property
    def skipped(self) -> Sequence[Skipped]:
        """What ``errors="skip"`` left out."""
        ...

    @property
    def chunk_rows(self) -> int:
        """Rows that are read together, whether they are wanted or not; 1 if any row
        can be read alone.
        """
        ...

    @property
    def band_bytes(self) -> int:
        """Bytes that are decoded together with a row, as whole chunks are; 0 if none are."""
        ...

    def __len__(self) -> int: ...

    def known_rows(self) -> int | None:
        """The number of rows, if it is known without looking for them."""
        ...

    def read(self, start: int, stop: int, limit: int | None = None) -> Batch:
        """Rows ``start`` to ``stop``, fewer where the source ends before. With ``limit``
        there may be fewer, which take no more bytes of memory than that: none only at the
        end. A row that takes more by itself is a MemoryLimitError. They may be views of
        the file, and are not to be written to.
        """
        ...

    def gather(self, rows: npt.NDArray[np.int64]) -> Batch:
        """The rows with these numbers, in this order."""
        ...

    def row_sizes(self, rows: npt.NDArray[np.int64]) -> RowSizes | None:
        """What the rows with these numbers take in memory, at most; None if only reading
        them would tell.
        """
        ...

    def largest_row(self, above: int) -> tuple[int, int] | None:
        """The number of the largest row and what it takes in memory, if that is more than
        ``above`` and soon found.
        """
        ...

    def column(self, name: str) -> npt.NDArray[Any] | None:
        """The whole column as a view of the file, if it lies there as an array."""
        ...

    def select(self, names: Sequence[str]) -> Source:
        """These columns in this order; the others are not read."""
        ...

    def row_bytes(self) -> int:
        """About how many bytes a row takes in the file; 1 or more."""
        ...

    def info(self) -> Info:
        """Counts the rows and collects what else is known."""
        ...


def reference(source: Source) -> Source:
    """The same rows, read through the library of their format where that is another way;
    else the source itself.
    """
    other = getattr(source, "reference", None)
    if other is None:
        return source
    found: Source = other()
    return found


class Sink(Protocol):
    """Where rows are written. Nothing shows under the final name before commit()."""

    def write(self, batch: Mapping[str, Any]) -> None: ...

    def finish(self) -> str:
        """Writes what is left; the name under which all of it lies until commit()."""
        ...

    def commit(self) -> None:
        """Finishes, if that has not been done, and gives the output its name."""
        ...

    def abort(self) -> None:
        """Leaves nothing behind."""
        ...


def owned_rows(
    starts: npt.NDArray[np.int64], rows: npt.NDArray[np.int64]
) -> Iterator[tuple[int, npt.NDArray[np.int64]]]:
    """Of parts that follow each other, of which part ``i`` begins at row ``starts[i]``: those
    that have some of the rows, and the places in ``rows`` of theirs.

    >>> for part, places in owned_rows(np.array([0, 10]), np.array([11, 3, 17])):
    ...     print(part, places)
    0 [1]
    1 [0 2]
    """
    owner = np.searchsorted(starts, rows, side="right") - 1
    order = np.argsort(owner, kind="stable")
    parts, begins = np.unique(owner[order], return_index=True)
    # Of no rows, np.split makes one piece all the same.
    yield from zip(parts.tolist(), np.split(order, begins[1:]), strict=False)
